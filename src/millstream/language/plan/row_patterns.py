"""Row patterns: what MATCH_RECOGNIZE looks for among the rows of a partition.

A pattern is a regular expression over variables; each variable has a condition for the row that is
to be it. A condition that hangs on the row alone is an expression of Spark's; one that hangs on the
rows matched before it is a term over leaves, values that are carried along a match.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from millstream.language.plan.expressions import Expr
from millstream.language.plan.keys import expression_key, predicate_key

CARRIED = ("classifier", "match_number", "nth", "back", "place", "place_back")


@dataclass(frozen=True, slots=True)
class Variable:
    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: "tuple[Pattern, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """The first part that leads to a match."""

    parts: "tuple[Pattern, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Pattern"
    least: int
    most: int | None  # None: without a limit
    greedy: bool = True


Pattern = Variable | Sequence | Choice | Repeat


@dataclass(frozen=True, slots=True)
class Look:
    """A value of an earlier row of the partition: PREV(value, back)."""

    value: Expr
    back: int
    type: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that a condition takes from the row at hand or from those matched before it.

    `current` is the row at hand; first and last count from the ends of what a variable has matched
    so far, the row at hand included; the others are aggregates of that.
    """

    kind: OneOf["current", "first", "last", "count", "sum", "avg", "min", "max"]
    variable: str | None  # None: all rows of the match
    value: Expr | None  # None: rows are counted
    type: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """An operator over leaves (their numbers) and other terms."""

    name: str
    type: str
    args: "tuple[Term | int, ...]"


@dataclass(frozen=True, slots=True)
class Condition:
    """When a row may be a variable: by itself, and by what was matched before it."""

    variable: str
    own: Expr | None
    others: tuple[Term | int, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the search goes on after a match."""

    kind: OneOf["past last row", "to next row", "to first", "to last"]
    variable: str = ""


@dataclass(frozen=True, slots=True)
class RowPattern:
    """All that decides which rows match. Expressions are over the row's columns, then `looks`."""

    pattern: Pattern
    conditions: tuple[Condition, ...]
    looks: tuple[Look, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    within: int | None = None  # the last row comes less than this after the first, in microseconds
    skip: Skip = Skip("past last row")
    numbered: bool = False  # whether matches of a partition are counted from its beginning

    @property
    def context(self) -> int:
        """How many rows before the first undecided one are still needed."""
        return max([look.back for look in self.looks], default=0) or int(self.numbered)


def variables_of(pattern: Pattern) -> Iterator[str]:
    """Names in a pattern, in order, each as often as it stands there."""
    match pattern:
        case Variable(name):
            yield name
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from variables_of(part)
        case Repeat(part=part):
            yield from variables_of(part)


def least_rows(pattern: Pattern) -> int:
    """How few rows a match may have."""
    match pattern:
        case Variable():
            return 1
        case Sequence(parts):
            return sum(least_rows(part) for part in parts)
        case Choice(parts):
            return min(least_rows(part) for part in parts)
        case Repeat(part=part, least=least):
            return least * least_rows(part)


def written(pattern: Pattern) -> str:
    """The pattern as text.

    >>> a, b = Variable("A"), Variable("B")
    >>> written(Sequence((a, Repeat(Choice((a, b)), 1, None, greedy=False), Repeat(b, 2, 3))))
    'A (A | B)+? B{2,3}'
    """
    match pattern:
        case Variable(name):
            return name
        case Sequence(parts):
            return " ".join(
                f"({written(p)})" if isinstance(p, Choice) else written(p) for p in parts
            )
        case Choice(parts):
            return " | ".join(written(part) for part in parts)
        case Repeat(part, least, most, greedy):
            inner = written(part) if isinstance(part, Variable) else f"({written(part)})"
            usual = {(0, None): "*", (1, None): "+", (0, 1): "?"}
            count = (
                f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
            )
            return inner + usual.get((least, most), count) + ("" if greedy else "?")


def program(pattern: Pattern) -> tuple[tuple[str, int, int], ...]:
    """The pattern as instructions of a machine that tries, and goes back where it fails.

    `row n` takes a row as the n-th variable (by `names`), `fork a b` goes to a, and to b where that
    leads to nothing, `jump a` goes to a, `match` is the end.

    >>> program(Repeat(Variable("A"), 1, None))
    (('row', 0, 0), ('fork', 2, 4), ('row', 0, 0), ('jump', 1, 0), ('match', 0, 0))
    """
    names = {name: i for i, name in enumerate(dict.fromkeys(variables_of(pattern)))}
    made: list[tuple[str, int, int]] = []
    _emit(pattern, names, made)
    return (*made, ("match", 0, 0))


def _emit(pattern: Pattern, names: dict[str, int], made: list[tuple[str, int, int]]) -> None:
    match pattern:
        case Variable(name):
            made.append(("row", names[name], 0))
        case Sequence(parts):
            for part in parts:
                _emit(part, names, made)
        case Choice(parts):
            _emit_choice(parts, names, made)
        case Repeat(part, least, most, greedy):
            for _ in range(least):
                _emit(part, names, made)
            if most is None:
                _emit_loop(part, greedy, names, made)
            else:
                _emit_optional(part, most - least, greedy, names, made)


def _emit_choice(
    parts: tuple[Pattern, ...], names: dict[str, int], made: list[tuple[str, int, int]]
) -> None:
    jumps = []
    for part in parts[:-1]:
        fork = len(made)
        made.append(("fork", 0, 0))
        _emit(part, names, made)
        jumps.append(len(made))
        made.append(("jump", 0, 0))
        made[fork] = ("fork", fork + 1, len(made))
    _emit(parts[-1], names, made)
    for jump in jumps:
        made[jump] = ("jump", len(made), 0)


def _emit_loop(
    part: Pattern, greedy: bool, names: dict[str, int], made: list[tuple[str, int, int]]
) -> None:
    fork = len(made)
    made.append(("fork", 0, 0))
    _emit(part, names, made)
    made.append(("jump", fork, 0))
    made[fork] = _fork(fork + 1, len(made), greedy)


def _emit_optional(
    part: Pattern, times: int, greedy: bool, names: dict[str, int], made: list[tuple[str, int, int]]
) -> None:
    forks = []
    for _ in range(times):
        forks.append(len(made))
        made.append(("fork", 0, 0))
        _emit(part, names, made)
    for fork in forks:
        made[fork] = _fork(fork + 1, len(made), greedy)


def _fork(into: int, past: int, greedy: bool) -> tuple[str, int, int]:
    return ("fork", into, past) if greedy else ("fork", past, into)


def pattern_key(spec: RowPattern) -> tuple[str, ...]:
    """Texts that are equal where the same rows match in the same way."""
    return (
        written(spec.pattern),
        *(f"{expression_key(k.value)}|{k.back}" for k in spec.looks),
        ";",
        *(
            f"{leaf.kind}|{leaf.variable}|{leaf.value and expression_key(leaf.value)}"
            f"|{leaf.offset}|{leaf.type}"
            for leaf in spec.leaves
        ),
        ";",
        *(f"{c.variable}|{predicate_key(c.own)}|{c.others!r}" for c in spec.conditions),
        f"{spec.within}|{spec.skip.kind}|{spec.skip.variable}|{spec.numbered}",
    )
