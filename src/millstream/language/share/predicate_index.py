"""Which of many members a row belongs to, without asking each of them.

Conjuncts that compare a value with constants are put on one ordered line for each value: a row
finds its place on the line by binary search, and a table says which members hold there
(`value_lines`). What cannot be indexed is asked one by one, only of rows that passed the index, in
the order in which it stands. The answer is a set of bits, one for each member, in words of 62.

    members:  0: v > 10   1: v > 20   2: v = 15 AND f(w)
    line of v:   ..10]  (10..15)  15  (15..20]  (20..
    members:     -      0         0 2  0         0 1       then f(w) only where bit 2 is set
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    conjunction,
    total,
)
from millstream.language.plan.schema import Schema
from millstream.language.share.constants import Test, test_of
from millstream.language.share.offsets import OVERFLOWS, Offset, offset_of
from millstream.language.share.value_lines import line

BITS = 62  # of a word: the sign of a bigint stays clear
ZERO = Literal("0L", "bigint")


@dataclass(frozen=True, slots=True)
class Membership:
    """The bits of a row's members, as expressions: first those of the index, then the rest.

    `indexed` are the words by the index alone. `residuals` are (member, condition) in order: the
    condition is asked only where the member's bit is set in `indexed`. `stages` are columns that
    have to stand behind the row's own for `indexed`, each computed where the one before stands.
    """

    indexed: tuple[Expr, ...]
    residuals: tuple[tuple[int, Expr], ...]
    stages: tuple[tuple[Expr, ...], ...] = ()
    # words of those whose columns compare, and of those whose sum raises if it is asked; in turn
    offsets: tuple[tuple[tuple[Expr, ...], tuple[Expr, ...]], ...] = ()

    def by_index(self, sides: Sequence[Sequence[Expr]] = ()) -> tuple[Expr, ...]:
        """The words by the index, of members that have their bit in the words of all sides."""
        words: list[Expr] = list(self.indexed)
        for side in sides:
            words = [Call("&", pair) for pair in zip(side, words, strict=True)]
        raised: list[list[Expr]] = [[] for _ in words]
        for compare, overflow in self.offsets:
            for number, (holding, raising) in enumerate(zip(compare, overflow, strict=True)):
                if raising != ZERO:
                    raised[number].append(Call("&", (words[number], raising)))
                    holding = Call("|", (holding, raising))  # noqa: PLW2901
                words[number] = Call("&", (words[number], holding))
        return tuple(
            Call("if", (any_bit(lost), OVERFLOWS, word)) if lost else word
            for word, lost in zip(words, raised, strict=True)
        )


def words_of(count: int) -> int:
    return max(1, -(-count // BITS))


def bit_of(member: int) -> tuple[int, int]:
    """The word of a member and its bit in there."""
    return member // BITS, 1 << (member % BITS)


def number_of(word: int, bit: int) -> int:
    """The member with a bit in a word."""
    return word * BITS + bit.bit_length() - 1


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
    found = _sorted(conditions, schema)
    everyone, count = (1 << len(conditions)) - 1, words_of(len(conditions))
    staged: list[tuple[Expr, ...]] = []

    def words(lines: _Lines, everyone: int, neutral: int, sign: str) -> tuple[Expr, ...]:
        """The words of all lines together; `neutral` are the bits that change nothing."""
        idle = [bigint(neutral >> (BITS * word) & ((1 << BITS) - 1)) for word in range(count)]
        made: list[Expr] = list(idle)
        for (value, beside, _), tests in lines.items():
            asking = everyone if sign == "&" else sum(1 << member for member in tests)
            place = line(value, tests, asking, len(schema) + len(staged), beside)
            if place.stages:
                staged.append(place.stages)
            bits = [place.bits(word, BITS) for word in range(count)]
            made = [
                b if w == i else w if b == i else Call(sign, (w, b))
                for w, b, i in zip(made, bits, idle, strict=True)
            ]
        return tuple(made)

    indexed = words(found.lines, everyone, everyone, "&")
    offsets = tuple(
        (words(compare, everyone, everyone, "&"), words(overflow, everyone, 0, "|"))
        for compare, overflow in found.offsets
    )
    return Membership(indexed, tuple(found.residuals), _level(staged, len(schema)), offsets)


_Lines = dict[tuple[Expr, Expr | None, bool], dict[int, list[Test]]]


@dataclass(slots=True)
class _Sorted:
    """Terms of all members, by how they are asked."""

    lines: _Lines = field(default_factory=dict)
    offsets: list[tuple[_Lines, _Lines]] = field(default_factory=list)  # by place in a member
    residuals: list[tuple[int, Expr]] = field(default_factory=list)


def _sorted(conditions: Sequence[Sequence[Expr]], schema: Schema) -> _Sorted:
    found = _Sorted()
    for member, terms in enumerate(conditions):
        rest: list[Expr] = []
        guarded, sums = False, 0  # what stands behind a term that can raise is not asked before it
        for term in terms:
            test = None if guarded or sums else test_of(term, schema)
            offset = None if guarded or test else offset_of(term, schema)
            if offset is not None and offset.test.beside is not None and not sums:
                test = offset.test  # it never raises
            if test is not None:
                found.lines.setdefault(test.line, {}).setdefault(member, []).append(test)
            elif offset is not None and offset.test.beside is None and not rest:
                _place(found.offsets, sums, member, offset)
                sums += 1
            else:
                rest.append(term)
                guarded = guarded or not total(term)
        if (condition := conjunction(tuple(rest))) is not None:
            found.residuals.append((member, condition))
    return found


def _place(offsets: list[tuple[_Lines, _Lines]], number: int, member: int, offset: Offset) -> None:
    if number == len(offsets):
        offsets.append(({}, {}))
    for lines, test in zip(offsets[number], (offset.test, offset.overflow), strict=True):
        if test is not None:
            lines.setdefault(test.line, {})[member] = [test]


def _level(staged: Sequence[tuple[Expr, ...]], width: int) -> tuple[tuple[Expr, ...], ...]:
    """The stages of all lines side by side; one that is through hands its place on."""
    return tuple(
        tuple(
            stages[level] if level < len(stages) else Column(width + number)
            for number, stages in enumerate(staged)
        )
        for level in range(max(map(len, staged), default=0))
    )


def narrowed(membership_: Membership, words: Sequence[Expr]) -> tuple[Expr, ...]:
    """The final words, given those of the index (as columns, say)."""
    if not membership_.residuals:
        return tuple(words)
    asking: dict[tuple[int, Expr], int] = {}
    for member, condition in membership_.residuals:
        word, bit = bit_of(member)
        asking[word, condition] = asking.get((word, condition), 0) | bit
    failed: list[list[Expr]] = [[] for _ in words]
    for (word, condition), bits in asking.items():  # what many ask is asked once
        wanted = Call("<>", (Call("&", (words[word], bigint(bits))), ZERO))
        asked = Call("and", (wanted, condition))
        failed[word].append(Call("if", (guarded(asked), ZERO, bigint(bits))))
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
