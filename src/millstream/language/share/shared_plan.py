"""Several members as one plan: what a shared job computes, and where each member's rows lie in it.

The shared plan's first columns are words of bits, one bit for each member (`predicate_index`), then
every expression that some member selects, once. A row is there if any member wants it. This is the
widened operator: the weakest predicate of its members, the longest of their windows; a member's
residual is its bit. The plan says nothing about when a member began: each has its own cursor.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    shift,
    substitute,
    total,
    uses_time,
)
from millstream.language.plan.keys import expression_key
from millstream.language.plan.nodes import Emit, Filter, Join, Node, Project, Windowed
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import Now, Range, Window, reach
from millstream.language.share.predicate_index import (
    ZERO,
    Membership,
    any_bit,
    bigint,
    bit_of,
    membership,
    narrowed,
    words_of,
)
from millstream.language.share.rowwise import TIME_US, Rowwise

WORD = Field("", "bigint")
PLACE = Field("", "int")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a member's rows lie in a shared result: its bit, and its columns by name."""

    word: int
    bit: int
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Together:
    """A shared plan: the node, and each member's place in its rows."""

    node: Node
    core: Node | None
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Member:
    """One operator that takes part: its result stream, what it does to each row, its types."""

    stream: str
    rows: Rowwise
    schema: Schema


@dataclass(slots=True)
class _Selected:
    """Expressions that some member selects, each once; those that can raise, for whom."""

    texts: dict[str, int] = field(default_factory=dict)
    columns: list[Expr] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)

    def add(self, expr: Expr, type_: str, member: int) -> int:
        key = f"{expression_key(expr)}|{type_}"
        if key not in self.texts:
            self.texts[key] = len(self.columns)
            self.columns.append(expr)
            self.fields.append(Field("", type_))
            self.users.append([])
        number = self.texts[key]
        self.users[number].append(member)
        return number

    def guarded(self, words: Sequence[Expr]) -> list[Expr]:
        """Columns that can raise are computed only for rows of those who select them."""
        return [
            expr if total(expr) else Call("if", (any_of(words, users), expr, NULL))
            for expr, users in zip(self.columns, self.users, strict=True)
        ]


NULL = Literal("NULL", "void")


def any_of(words: Sequence[Expr], members: Collection[int]) -> Expr:
    """Whether a row is one of any of the members."""
    masks: dict[int, int] = {}
    for member in members:
        word, bit = bit_of(member)
        masks[word] = masks.get(word, 0) | bit
    tests = tuple(
        Call("<>", (Call("&", (words[word], bigint(mask))), ZERO))
        for word, mask in sorted(masks.items())
    )
    return tests[0] if len(tests) == 1 else Call("or", tests)


def maps_together(members: Sequence[Member]) -> Together:
    """Selections over one stream as one scan."""
    leaf = members[0].rows.leaf
    bits, conditions = bits_of([m.rows.conditions for m in members])
    node, words = _with_words(leaf, membership(conditions, leaf.schema), ())
    return _selected(node, None, words, members, bits)


def bits_of(
    conditions: Sequence[Sequence[Expr]],
) -> tuple[list[int], list[tuple[Expr, ...]]]:
    """Members with equal conditions share a bit: the bit of each, the conditions of each bit."""
    known: dict[tuple[str, ...], int] = {}
    bits: list[int] = []
    distinct: list[tuple[Expr, ...]] = []
    for terms in conditions:
        key = tuple(expression_key(t) for t in terms)
        if key not in known:
            known[key] = len(distinct)
            distinct.append(tuple(terms))
        bits.append(known[key])
    return bits, distinct


def _with_words(
    node: Node, asked: Membership, sides: Sequence[Sequence[Expr]]
) -> tuple[Node, tuple[Expr, ...]]:
    """The node's rows that any member wants, with the words of bits as last columns.

    `sides` are words that columns of the node hold already: a member needs its bit in all.
    """
    width = len(node.schema)
    own = tuple(Column(i) for i in range(width))
    for stage in asked.stages:
        fields = (*node.schema[:width], *[PLACE] * len(stage))
        node = Project(node, (*own, *stage), fields)
    words = asked.by_index(sides)
    count = len(words)
    columns = tuple(Column(width + i) for i in range(count))
    fields = (*node.schema[:width], *[WORD] * count)
    node = Project(node, (*own, *words), fields)
    if asked.residuals:
        node = Project(node, (*own, *narrowed(asked, columns)), fields)
    return Filter(node, any_bit(columns)), columns


def _selected(
    node: Node,
    core: Node | None,
    words: tuple[Expr, ...],
    members: Sequence[Member],
    bits: Sequence[int],
    ends: Mapping[str, Expr] | None = None,
) -> Together:
    """The words and all selected columns above a node; `ends` are members' own `_until`."""
    chosen = _Selected()
    places = {}
    for number, member in zip(bits, members, strict=True):
        columns = {
            f"c{i}": f"c{len(words) + chosen.add(c, f.type, number)}"
            for i, (c, f) in enumerate(zip(member.rows.columns, member.schema, strict=True))
        }
        if ends is not None:
            end = chosen.add(ends[member.stream], "bigint", number)
            columns["_until"] = f"c{len(words) + end}"
        word, bit = bit_of(number)
        places[member.stream] = Place(word, bit, columns)
    fields = (*[WORD] * len(words), *chosen.fields)
    return Together(Project(node, (*words, *chosen.guarded(words)), fields), core, places)


# -- joins ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinMember:
    """A join that takes part: its sides in the shared order, its predicate over their columns."""

    stream: str
    sides: tuple[Rowwise, ...]
    keys: tuple[Expr, ...]  # equalities between sides, over all leaves' columns
    conditions: tuple[Expr, ...]  # all else, in order, over the same
    columns: tuple[Expr, ...]  # what it selects, over the same
    schema: Schema

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(s.interval for s in self.sides if not isinstance(s.interval, str))


def joins_together(members: Sequence[JoinMember], with_end: Sequence[str]) -> Together:
    """Window joins over the same streams and keys as one join with the longest windows.

    A row of a side carries the bits of the members that take it; a pair belongs to the members
    whose bit both have, if their own window and the rest of their predicate agree.
    """
    count = words_of(len(members))
    alike = len({m.windows for m in members}) == 1
    sides = range(len(members[0].sides))
    nodes = [_side([m.sides[p] for m in members], timed=not alike) for p in sides]
    widths = [len(members[0].sides[p].leaf.schema) for p in sides]
    offsets = [sum(len(n.schema) for n in nodes[:p]) for p in sides]
    moved = tuple(Column(offsets[p] + i) for p in sides for i in range(widths[p]))
    words = [[Column(offsets[p] + widths[p] + w) for w in range(count)] for p in sides]
    times = [Column(offsets[p] + widths[p] + count) for p in sides]
    both = tuple(Call("&", pair) for pair in zip(*words[:2], strict=True))
    keys = tuple(substitute(k, moved) for k in members[0].keys)
    core = Join(tuple(nodes), conjunction((*keys, any_bit(both))))
    node: Node = core
    gaps: dict[tuple[int, int], Expr] = {}
    if not alike:
        node, gaps = _with_gaps(core, times)
    asked = membership(
        [
            (*_within(m, gaps), *(substitute(c, moved) for c in m.conditions))
            for m in members
        ],
        node.schema,
    )  # fmt: skip
    node, final = _with_words(node, asked, words)
    placed = [
        Member(m.stream, Rowwise(core, (), tuple(substitute(c, moved) for c in m.columns), "own"),
               m.schema)
        for m in members
    ]  # fmt: skip
    ends = None
    if not alike and with_end:
        ends = {m.stream: _end(m, times) for m in members}
    return _selected(node, core, final, placed, range(len(members)), ends)


def _side(rows: Sequence[Rowwise], *, timed: bool) -> Node:
    """One input of the shared join: rows that any member takes, with the bits of those."""
    leaf = rows[0].leaf
    node, words = _with_words(leaf, membership([r.conditions for r in rows], leaf.schema), ())
    if timed:
        own = tuple(Column(i) for i in range(len(leaf.schema)))
        fields = (*leaf.schema, *[WORD] * (len(words) + 1))
        node = Project(node, (*own, *words, TIME_US), fields)
    if rows[0].interval == "endless":
        return Emit(node, "istream", 0)
    windows = [r.interval for r in rows if not isinstance(r.interval, str)]
    return Windowed(node, max(windows, key=reach)) if windows else node


def _with_gaps(join: Join, times: Sequence[Expr]) -> tuple[Node, dict[tuple[int, int], Expr]]:
    """The time between each two sides as a column, which the index can compare with windows."""
    width = len(join.schema)
    gaps: dict[tuple[int, int], Expr] = {}
    columns: list[Expr] = [Column(i) for i in range(width)]
    for p in range(len(times)):
        for q in range(p + 1, len(times)):
            gaps[p, q] = Column(len(columns))
            columns.append(Call("-", (times[q], times[p])))
    fields = (*join.schema, *[WORD] * len(gaps))
    return Project(join, tuple(columns), fields), gaps


def _within(member: JoinMember, gaps: Mapping[tuple[int, int], Expr]) -> tuple[Expr, ...]:
    """The member's own windows: intervals intersect where neither begins after the other ends."""
    found: list[Expr] = []
    for (p, q), gap in gaps.items():
        first, second = member.sides[p].interval, member.sides[q].interval
        if isinstance(first, Range | Now):
            found.append(Call("<=", (gap, Literal(f"{reach(first)}L", "bigint"))))
        if isinstance(second, Range | Now):
            found.append(Call(">=", (gap, Literal(f"{-reach(second)}L", "bigint"))))
    return tuple(found)


def _end(member: JoinMember, times: Sequence[Expr]) -> Expr:
    ends = [
        Call("+", (time, Literal(f"{reach(side.interval) + 1}L", "bigint")))
        for time, side in zip(times, member.sides, strict=True)
        if isinstance(side.interval, Range | Now)
    ]
    return ends[0] if len(ends) == 1 else Call("least", tuple(ends))


def join_member(
    stream: str, top: Rowwise, join: Join, sides: Sequence[Rowwise], order: Sequence[int],
    schema: Schema,
) -> JoinMember:  # fmt: skip
    """The join with its sides in a given order, everything over the leaves' columns."""
    arranged = tuple(sides[p] for p in order)
    widths = [len(s.leaf.schema) for s in arranged]
    columns: list[tuple[Expr, ...]] = [()] * len(sides)
    for place, position in enumerate(order):
        offset = sum(widths[:place])
        columns[position] = tuple(shift(c, offset) for c in sides[position].columns)
    flat = tuple(c for side in columns for c in side)
    owner = {sum(widths[:p]) + i: p for p in range(len(widths)) for i in range(widths[p])}
    terms = [substitute(t, flat) for t in conjuncts(join.predicate)]
    keys = tuple(t for t in terms if total(t) and links_sides(t, owner))
    rest = tuple(t for t in terms if t not in keys)
    above = tuple(substitute(t, flat) for t in top.conditions)
    chosen = tuple(substitute(c, flat) for c in top.columns)
    return JoinMember(stream, arranged, keys, (*rest, *above), chosen, schema)


def links_sides(term: Expr, owner: Mapping[int, int]) -> bool:
    """Whether a conjunct equates an expression over one side with one over another."""
    match term:
        case Call("=" | "<=>", (left, right)):
            a, b = ({owner[c] for c in columns_of(e)} for e in (left, right))
            return len(a) == 1 and len(b) == 1 and a != b
        case _:
            return False


def has_time(rows: Rowwise) -> bool:
    """Whether a side's columns use its own time, which a shared join does not hand on."""
    return any(uses_time(c) for c in rows.columns)
