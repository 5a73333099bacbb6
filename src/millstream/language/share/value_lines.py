"""The line of one value's constants: where a row stands on it, and which members hold there.

Few constants are a tree of comparisons in the generated code. Many of them are data: code of
hundreds of comparisons is compiled for seconds, and Java leaves it slow. Then a row halves the
interval of its place by one stage after the other, each a column over the one before, in an array
of the constants; the bits of the members are another array. Code is the same for any constants, so
that a query which comes to hundreds of its shape is no new code.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.language.plan.expressions import Call, Cast, Column, Expr, Literal
from millstream.language.share.constants import Constant, Test

IN_CODE_MAX = 40  # constants; above, they are data
ZERO = Literal("0", "int")
# Always true, which Spark does not know: what depends on it is computed where it stands. Else a
# filter over the bits would be taken below all stages, each written out in the next, twice.
SETTLED = Call(">=", (Call("spark_partition_id", ()), ZERO))
_SUFFIX = re.compile(r"(?:BD|[LSYD])$")


@dataclass(frozen=True, slots=True)
class Line:
    """What the bits at a row's place are: `rows[place]`; stages compute the place, one by one.

    Stages are to be evaluated in turn: each may use the one before it, as the given column. Where
    there are none, `place` is computed at once.
    """

    rows: tuple[int, ...]  # sets of members, as bits
    stages: tuple[Expr, ...]
    place: Expr

    def bits(self, word: int, size: int) -> Expr:
        """The bits of one word of members at a row's place."""
        mask = (1 << size) - 1
        found = [row >> (word * size) & mask for row in self.rows]
        if len(set(found)) == 1:
            return Literal(f"{found[0]}L", "bigint")
        if not self.stages:
            table: Expr = Call("array", tuple(Literal(f"{b}L", "bigint") for b in found))
        else:
            table = _table([str(b) for b in found], "bigint")
        return Call("element", (table, self.place))


def line(
    value: Expr,
    tests: Mapping[int, Sequence[Test]],
    everyone: int,
    column: int,
    beside: Expr | None = None,
) -> Line:
    """The line of a value; members of `everyone` that do not ask for it hold everywhere.

    `column` is where the stages' result will stand; `beside`, what is added to the constants.
    """
    compared = _Compared(value, beside)
    literals: dict[Constant, Expr] = {
        c: text
        for asked in tests.values()
        for test in asked
        for c, text in zip(test.constants, test.literals, strict=True)
    }
    places = sorted(literals)
    constants = [literals[p] for p in places]
    rows = _rows(places, tests, everyone)
    if len(places) <= IN_CODE_MAX or not _alike(constants):
        return _in_code(compared, constants, rows)
    return _as_data(compared, constants, rows, column)


@dataclass(frozen=True, slots=True)
class _Compared:
    value: Expr
    beside: Expr | None

    def __call__(self, operator: str, constant: Expr) -> Expr:
        if self.beside is None:
            return Call(operator, (self.value, constant))
        return Call(operator, (self.value, Call("+", (self.beside, constant))))

    @property
    def missing(self) -> Expr:
        found: Expr = Call("is_null", (self.value,))
        if self.beside is None:
            return found
        return Call("or", (found, Call("is_null", (self.beside,))))


def _rows(
    places: Sequence[Constant], tests: Mapping[int, Sequence[Test]], everyone: int
) -> list[int]:
    """Who holds for NULL, before the first constant, at it, after it, at the next, ...

    What a member says changes only at its own constants.
    """
    number = {place: i for i, place in enumerate(places)}
    changes = [0] * (2 * len(places) + 2)
    for member, asked in tests.items():
        bit = 1 << member
        own = sorted({c for t in asked for c in t.constants}, key=number.__getitem__)
        if not all(t.operator == "is_null" for t in asked):
            changes[0] ^= bit
        first: Constant = own[0] if own else 0
        held = _holds(asked, first, exactly=False, after=False)
        changes[1] ^= bit if held != all(t.operator == "is_null" for t in asked) else 0
        for place in own:
            at = 2 * number[place] + 2
            for row, exactly in ((at, True), (at + 1, False)):
                now = _holds(asked, place, exactly=exactly, after=not exactly)
                changes[row] ^= bit if now != held else 0
                held = now
    rows, bits = [], everyone
    for change in changes:
        bits ^= change
        rows.append(bits)
    return rows


def _holds(asked: Sequence[Test], place: Constant, *, exactly: bool, after: bool) -> bool:
    return all(t.holds_at(place, exactly=exactly, after=after) for t in asked)


# -- in code --------------------------------------------------------------------------------------


def _in_code(compared: _Compared, constants: Sequence[Expr], rows: Sequence[int]) -> Line:
    """Binary search as nested conditions; pieces with the same members are one."""
    kept, bounds = [rows[0], rows[1]], []
    for number, bits in enumerate(rows[2:]):
        if bits != kept[-1]:  # even ones are exactly at a constant, odd ones beyond it
            name = "<=" if number % 2 else "<"
            bounds.append(compared(name, constants[number // 2]))
            kept.append(bits)
    place = Call("if", (compared.missing, ZERO, _search(bounds, 0, len(bounds))))
    return Line(tuple(kept), (), place)


def _search(bounds: Sequence[Expr], low: int, high: int) -> Expr:
    """The number of the piece of the line, counted from 1."""
    if low == high:
        return Literal(str(low + 1), "int")
    middle = (low + high) // 2
    left, right = _search(bounds, low, middle), _search(bounds, middle + 1, high)
    return Call("if", (bounds[middle], left, right))


# -- as data --------------------------------------------------------------------------------------


def _alike(constants: Sequence[Expr]) -> bool:
    """Whether an array of the constants compares as each of them does."""
    return len({c.type for c in constants if isinstance(c, Literal)}) == 1


def _as_data(
    compared: _Compared, constants: Sequence[Expr], rows: Sequence[int], column: int
) -> Line:
    at, after = rows[2::2], rows[3::2]
    before = [rows[1], *after[:-1]]
    if list(at) == list(before):
        name, kept = ">", [*rows[:2], *after]
    elif list(at) == list(after):
        name, kept = ">=", [*rows[:2], *after]
    else:
        name, kept = ">=", list(rows)
    array, found = _array(constants), Column(column)
    stages: list[Expr] = []
    step = 1 << (len(constants).bit_length() - 1)
    while step:
        known: Expr = found if stages else ZERO
        tried = Call("+", (known, Literal(str(step), "int")))
        passed = compared(name, _element(array, Call("-", (tried, Literal("1", "int")))))
        within = Call("<=", (tried, Literal(str(len(constants)), "int")))
        stages.append(Call("if", (within, Call("if", (passed, tried, known)), known)))
        step //= 2
    passed_all: Expr = Call("+", (found, Literal("1", "int")))
    if len(kept) == len(rows):  # each constant is a place of its own
        last = _element(array, Call("-", (found, Literal("1", "int"))))
        there = Call("and", (Call(">", (found, ZERO)), Call("=", (last, compared.value))))
        beyond = Call("+", (found, passed_all))
        exactly = Call("+", (found, found))
        passed_all = Call("if", (there, exactly, beyond))
    passed_all = Call("if", (SETTLED, passed_all, ZERO))
    stages.append(Call("if", (compared.missing, ZERO, passed_all)))
    return Line(tuple(kept), tuple(stages), found)


def _element(array: Expr, place: Expr) -> Expr:
    """NULL beyond the array's ends, where a condition beside it keeps its value from mattering."""
    return Call("get", (array, place))


def _array(constants: Sequence[Expr]) -> Expr:
    literals = [c for c in constants if isinstance(c, Literal)]
    type_ = literals[0].type
    if type_ == "string":
        return Call("array", tuple(constants))
    return _table([_SUFFIX.sub("", c.text) for c in literals], type_)


def _table(texts: Sequence[str], type_: str) -> Expr:
    """An array that Spark reads from one text: it walks over every literal of a plan many times."""
    text = Literal(f"'{','.join(texts)}'", "string")
    return Cast(Call("split", (text, Literal("','", "string"))), f"array<{type_}>")
