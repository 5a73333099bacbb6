"""Which of many members a row belongs to, without asking each of them.

Conjuncts that compare a value with constants are put on one ordered line for each value: a row
finds its place on the line by binary search, and a table says which members hold there. What
cannot be indexed is asked one by one, only of rows that passed the index, in the order in which
it stands. The answer is a set of bits, one for each member, in words of 62.

    members:  0: v > 10   1: v > 20   2: v = 15 AND f(w)
    line of v:   ..10]  (10..15)  15  (15..20]  (20..
    members:     -      0         0 2  0         0 1       then f(w) only where bit 2 is set
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.language.plan.expressions import Call, Expr, Literal, conjunction, total
from millstream.language.plan.schema import Schema
from millstream.language.share.constants import Constant, Test, test_of

BITS = 62  # of a word: the sign of a bigint stays clear
ZERO = Literal("0L", "bigint")


@dataclass(frozen=True, slots=True)
class Membership:
    """The bits of a row's members, as expressions: first those of the index, then the rest.

    `indexed` are the words by the index alone. `residuals` are (member, condition) in order: the
    condition is asked only where the member's bit is set in `indexed`.
    """

    indexed: tuple[Expr, ...]
    residuals: tuple[tuple[int, Expr], ...]


def words_of(count: int) -> int:
    return max(1, -(-count // BITS))


def bit_of(member: int) -> tuple[int, int]:
    """The word of a member and its bit in there."""
    return member // BITS, 1 << (member % BITS)


def bigint(value: int) -> Literal:
    return Literal(f"{value}L", "bigint")


def has_bit(words: Sequence[Expr], member: int) -> Expr:
    word, bit = bit_of(member)
    return Call("<>", (Call("&", (words[word], bigint(bit))), ZERO))


def any_bit(words: Sequence[Expr]) -> Expr:
    tests = tuple(Call("<>", (word, ZERO)) for word in words)
    return tests[0] if len(tests) == 1 else Call("or", tests)


def membership(conditions: Sequence[Sequence[Expr]], schema: Schema) -> Membership:
    """The index over the members' conditions, each a conjunction in order."""
    lines: dict[Expr, dict[int, list[Test]]] = {}
    residuals: list[tuple[int, Expr]] = []
    for member, terms in enumerate(conditions):
        rest: list[Expr] = []
        guarded = False  # what stands behind a term that can raise is not asked before it
        for term in terms:
            test = None if guarded else test_of(term, schema)
            if test is None:
                rest.append(term)
                guarded = guarded or not total(term)
            else:
                lines.setdefault(test.value, {}).setdefault(member, []).append(test)
        if (condition := conjunction(tuple(rest))) is not None:
            residuals.append((member, condition))
    everyone = [_everyone(word, len(conditions)) for word in range(words_of(len(conditions)))]
    words: list[Expr] = [bigint(bits) for bits in everyone]
    for value, tests in lines.items():
        looked_up = _line(value, tests, everyone)
        words = [
            found if word == bigint(all_) else Call("&", (word, found))
            for word, found, all_ in zip(words, looked_up, everyone, strict=True)
        ]
    return Membership(tuple(words), tuple(residuals))


def narrowed(membership_: Membership, words: Sequence[Expr]) -> tuple[Expr, ...]:
    """The final words, given those of the index (as columns, say)."""
    if not membership_.residuals:
        return tuple(words)
    failed: list[list[Expr]] = [[] for _ in words]
    for member, condition in membership_.residuals:
        word, bit = bit_of(member)
        asked = Call("and", (has_bit(words, member), condition))
        failed[word].append(Call("if", (guarded(asked), ZERO, bigint(bit))))
    return tuple(
        word if not lost else Call("&", (word, Call("~", (_sum(lost),))))
        for word, lost in zip(words, failed, strict=True)
    )


def guarded(condition: Expr) -> Expr:
    """A conjunction whose later terms are asked only where those before are true.

    CASE keeps the order in Spark; AND does not.
    """
    if total(condition) or not (isinstance(condition, Call) and condition.name == "and"):
        return condition
    first, *rest = condition.args
    remaining = guarded(Call("and", tuple(rest)) if len(rest) > 1 else rest[0])
    return Call("case", (first, remaining, Literal("FALSE", "boolean")))


def _sum(parts: list[Expr]) -> Expr:
    """Bits together; a balanced tree, because Spark walks it by recursion."""
    while len(parts) > 1:
        parts = [
            parts[i] if i + 1 == len(parts) else Call("|", (parts[i], parts[i + 1]))
            for i in range(0, len(parts), 2)
        ]
    return parts[0]


def _everyone(word: int, count: int) -> int:
    return (1 << max(0, min(BITS, count - word * BITS))) - 1


def _line(value: Expr, tests: dict[int, list[Test]], everyone: Sequence[int]) -> list[Expr]:
    """For each word, the bits of the members that hold at a row's place on the line.

    Members that do not ask for this value hold everywhere.
    """
    free = list(everyone)
    for member in tests:
        word, bit = bit_of(member)
        free[word] &= ~bit
    literals: dict[Constant, Expr] = {
        c: text
        for asked in tests.values()
        for test in asked
        for c, text in zip(test.constants, test.literals, strict=True)
    }
    places = sorted(literals)
    rows: list[tuple[int, ...]] = [_nulls(tests, free)]
    bounds: list[Expr] = []  # bounds[i] is true left of rows[i + 2]
    for number, (place, exactly, after) in enumerate(_stops(places)):
        bits = tuple(_held(tests, free, place, exactly=exactly, after=after))
        if number and bits == rows[-1]:
            continue
        if number:
            name = "<" if exactly else "<="
            bounds.append(Call(name, (value, literals[place])))
        rows.append(bits)
    known: Expr = _search(bounds, 0, len(bounds))
    place_of: Expr = Call("if", (Call("is_null", (value,)), Literal("0", "int"), known))
    return [_table([row[word] for row in rows], place_of) for word in range(len(everyone))]


def _stops(places: list[Constant]) -> list[tuple[Constant, bool, bool]]:
    """Before the first constant, at it, between it and the next, at that, ..., after the last."""
    if not places:
        return [(0, False, False)]
    found: list[tuple[Constant, bool, bool]] = [(places[0], False, False)]
    for place in places:
        found += [(place, True, False), (place, False, True)]
    return found


def _held(
    tests: dict[int, list[Test]], free: list[int], place: Constant, *, exactly: bool, after: bool
) -> list[int]:
    bits = list(free)
    for member, asked in tests.items():
        if all(t.holds_at(place, exactly=exactly, after=after) for t in asked):
            word, bit = bit_of(member)
            bits[word] |= bit
    return bits


def _nulls(tests: dict[int, list[Test]], free: list[int]) -> tuple[int, ...]:
    bits = list(free)
    for member, asked in tests.items():
        if all(t.operator == "is_null" for t in asked):
            word, bit = bit_of(member)
            bits[word] |= bit
    return tuple(bits)


def _search(bounds: list[Expr], low: int, high: int) -> Expr:
    """Binary search: the number of the piece of the line, counted from 1."""
    if low == high:
        return Literal(str(low + 1), "int")
    middle = (low + high) // 2
    left, right = _search(bounds, low, middle), _search(bounds, middle + 1, high)
    return Call("if", (bounds[middle], left, right))


def _table(bits: list[int], place: Expr) -> Expr:
    if len(set(bits)) == 1:
        return bigint(bits[0])
    return Call("element", (Call("array", tuple(bigint(b) for b in bits)), place))
