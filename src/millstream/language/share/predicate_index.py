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
from dataclasses import dataclass

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
    everyone, count = (1 << len(conditions)) - 1, words_of(len(conditions))
    whole = [bigint(everyone >> (BITS * word) & ((1 << BITS) - 1)) for word in range(count)]
    words: list[Expr] = list(whole)
    staged: list[tuple[Expr, ...]] = []
    for value, tests in lines.items():
        found = line(value, tests, everyone, len(schema) + len(staged))
        if found.stages:
            staged.append(found.stages)
        bits = [found.bits(word, BITS) for word in range(count)]
        words = [
            b if w == all_ else w if b == all_ else Call("&", (w, b))
            for w, b, all_ in zip(words, bits, whole, strict=True)
        ]
    return Membership(tuple(words), tuple(residuals), _level(staged, len(schema)))


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
