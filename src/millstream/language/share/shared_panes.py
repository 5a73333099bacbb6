"""Sliding aggregates over one grouping as one pane stream and one combination of panes.

Queries may differ in their filters, in what they aggregate and in their windows. Where there are
few filters, panes are computed once with filtered aggregates: a column of each. Where there are
many, rows that pass the same set of filters are one pane, with that set as bits, and each aggregate
is computed once; the sets are taken apart when panes become windows. So what is computed grows with
rows and results, and the plan with neither. A group without rows of a query is not among its
results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    conjunction,
    substitute,
    total,
)
from millstream.language.plan.keys import expression_key, predicate_key
from millstream.language.plan.nodes import Aggregate, AggregateCall, Node
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import BEGINNING, Sliding, first_end
from millstream.language.share.dataflow import pane_length
from millstream.language.share.predicate_index import bit_of, has_bit, membership, words_of
from millstream.language.share.rowwise import TIME_US, Rowwise
from millstream.language.share.shared_plan import (
    NULL,
    Member,
    Place,
    Together,
    _selected,
    _with_words,
    any_of,
    bits_of,
)

FILTERED_MAX = 16  # filters, up to which each has aggregates of its own
PRESENT = AggregateCall("bit_or", None, "bigint")  # whose rows are in a pane or window
NUMBER = Field("", "int")  # of a pane stream


@dataclass(frozen=True, slots=True)
class PaneMember:
    """A sliding aggregate over the rows of a leaf: filters, keys and calls over its columns."""

    stream: str  # of its panes
    rows: Rowwise
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    pane: int

    @property
    def filter_key(self) -> tuple[str, ...]:
        return tuple(expression_key(t) for t in self.rows.conditions)


def pane_member(stream: str, node: Aggregate, rows: Rowwise) -> PaneMember:
    columns = rows.columns
    return PaneMember(
        stream,
        rows,
        tuple(substitute(k, columns) for k in node.keys),
        tuple(
            replace(
                c,
                argument=None if c.argument is None else substitute(c.argument, columns),
                condition=None if c.condition is None else substitute(c.condition, columns),
            )
            for c in node.calls
        ),
        pane_length(node),
    )


def call_key(call: AggregateCall) -> str:
    argument = call.argument and expression_key(call.argument)
    return f"{call.function}|{call.distinct}|{argument}|{predicate_key(call.condition)}|{call.type}"


@dataclass(frozen=True, slots=True)
class PanesTogether:
    """One aggregation for all members.

    `rows` are those that any member wants, with the bits of their filters as last columns: `words`.
    `calls` are all wanted ones, each once, filtered; or, `by_sets`, each once for all filters, in
    panes of rows with the same bits. A member's panes are those of its length in which some row has
    the bit of its filter.
    """

    rows: Node
    words: tuple[Expr, ...]
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    lengths: tuple[int, ...]
    bits: tuple[tuple[int, int], ...]  # what each bit stands for: filter, pane length
    chosen: dict[str, tuple[int, ...]]  # each member's calls
    member_bit: dict[str, int]
    by_sets: bool


def panes_together(members: Sequence[PaneMember]) -> PanesTogether:
    filters, conditions = bits_of([m.rows.conditions for m in members])
    leaf = members[0].rows.leaf
    rows, words = _with_words(leaf, membership(conditions, leaf.schema), ())
    by_sets = len(conditions) > FILTERED_MAX
    calls: dict[tuple[int, str], int] = {}
    wanted: list[tuple[AggregateCall, set[int]]] = []
    chosen: dict[str, tuple[int, ...]] = {}
    for number, member in zip(filters, members, strict=True):
        places = []
        for call in member.calls:
            key = (0 if by_sets else number, call_key(call))
            if key not in calls:
                calls[key] = len(wanted)
                wanted.append((call, set()))
            places.append(calls[key])
            wanted[calls[key]][1].add(number)
        chosen[member.stream] = tuple(places)
    bits: dict[tuple[int, int], int] = {}
    member_bit = {}
    for number, member in zip(filters, members, strict=True):
        member_bit[member.stream] = bits.setdefault((number, member.pane), len(bits))
    return PanesTogether(
        rows,
        words,
        members[0].keys,
        tuple(
            call if by_sets and _never_raises(call) else _filtered(call, any_of(words, users))
            for call, users in wanted
        ),
        tuple(sorted({m.pane for m in members})),
        tuple(bits),
        chosen,
        member_bit,
        by_sets,
    )


def _never_raises(call: AggregateCall) -> bool:
    return all(e is None or total(e) for e in (call.argument, call.condition))


def _filtered(call: AggregateCall, mine: Expr) -> AggregateCall:
    """A call over the rows of some filters alone; its argument is computed for no others."""
    argument = call.argument
    if argument is not None and not total(argument):
        argument = Call("if", (mine, argument, NULL))
    terms = (mine,) if call.condition is None else (mine, call.condition)
    return replace(call, argument=argument, condition=conjunction(terms))


def pane_places(plan: PanesTogether, parts: Sequence[int], words: int) -> dict[str, Place]:
    """Where each member's panes lie: words, keys, then the parts of all calls, `parts` of each."""
    first = [words + len(plan.keys) + sum(parts[:i]) for i in range(len(parts))]
    places = {}
    for stream, calls in plan.chosen.items():
        wide = [words + i for i in range(len(plan.keys))]
        wide += [first[c] + j for c in calls for j in range(parts[c])]
        word, bit = bit_of(plan.member_bit[stream])
        places[stream] = Place(word, bit, {f"c{i}": f"c{w}" for i, w in enumerate(wide)})
    return places


# -- windows -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowMember:
    """The combination of one member's panes into windows, with what lies on top of it."""

    stream: str  # of its results
    panes: PaneMember
    node: Aggregate
    top: Rowwise
    schema: Schema


@dataclass(frozen=True, slots=True)
class WindowsTogether:
    """One combination for all members, over panes that hold all their calls, then bits.

    `sources` says for each call of the shared aggregate whose panes hold it: pane streams and the
    position of the call there. Behind the calls stand words of bits: which pane streams have rows
    in a window; `present` are the streams in the order of the bits. Where it goes `by_sets`, a pane
    is there once for each of its streams, and the stream's number is the last key.
    """

    together: Together
    aggregate: Aggregate
    sources: tuple[Mapping[str, int], ...]
    present: tuple[str, ...]
    by_sets: bool


def windows_together(members: Sequence[WindowMember]) -> WindowsTogether:
    first = members[0].node
    by_sets = len({m.panes.filter_key for m in members}) > FILTERED_MAX
    keys = len(first.keys) + by_sets
    calls: dict[tuple[tuple[str, ...], str], int] = {}
    wanted: list[AggregateCall] = []
    sources: list[dict[str, int]] = []
    columns: list[list[Expr]] = []
    for member in members:
        mine: list[Expr] = [Column(i) for i in range(len(first.keys))]
        for position, call in enumerate(member.panes.calls):
            key = (() if by_sets else member.panes.filter_key, call_key(call))
            if key not in calls:
                calls[key] = len(wanted)
                wanted.append(member.node.calls[position])
                sources.append({})
            sources[calls[key]].setdefault(member.panes.stream, position)
            mine.append(Column(keys + calls[key]))
        columns.append(mine)
    present = {m.panes.stream: 0 for m in members}
    present = {stream: number for number, stream in enumerate(present)}
    first_word = keys + len(wanted)
    words = tuple(Column(first_word + i) for i in range(words_of(len(present))))
    fields = first.fields[: len(first.keys)]
    by = first.keys
    if by_sets:
        fields, by = (*fields, NUMBER), (*by, Column(0))
    else:
        wanted += [PRESENT] * len(words)
    fields = (*fields, *(Field("", c.type) for c in wanted))
    aggregate = Aggregate(first.input, by, tuple(wanted), first.grouping, fields)
    placed = []
    conditions = []
    for member, mine in zip(members, columns, strict=True):
        number = present[member.panes.stream]
        there = has_bit(words, number)
        if by_sets:
            there = Call("=", (Column(keys - 1), Literal(str(number), "int")))
        top = (substitute(c, tuple(mine)) for c in member.top.conditions)
        conditions.append((there, *_began(member.node), *top))
        selected = tuple(substitute(c, tuple(mine)) for c in member.top.columns)
        rows = replace(member.top, conditions=(), columns=selected)
        placed.append(Member(member.stream, rows, member.schema))
    bits, distinct = bits_of(conditions)
    node, final = _with_words(aggregate, membership(distinct, aggregate.schema), ())
    together = _selected(node, aggregate, final, placed, bits)
    return WindowsTogether(together, aggregate, tuple(sources), tuple(present), by_sets)


def _began(node: Aggregate) -> tuple[Expr, ...]:
    """Only windows that begin at or after the query's start."""
    if node.start == BEGINNING:
        return ()
    if isinstance(node.grouping, Sliding):
        earliest = first_end(node.grouping, node.start)
    else:  # [NOW], whose window begins with its only instant
        earliest = node.start
    return (Call(">=", (TIME_US, Literal(f"{earliest}L", "bigint"))),)
