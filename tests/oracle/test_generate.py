"""Made-up dataflows: all valid, every construct among them, and laws that any answer obeys."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from oracle.compare import difference
from oracle.cql_text import cql_text
from oracle.evaluate import Oracle
from oracle.generate import examples
from oracle.generate_queries import LONG_SLIDES, Asked, QueryMaker
from oracle.generate_streams import stream_sets
from oracle.generate_tables import table_examples
from oracle.harness import Example, files_of
from oracle.model import (
    DAY,
    MILLISECOND,
    SECOND,
    WINDOW_START,
    Emit,
    Item,
    Query,
    Range,
    Rows,
    Select,
    Stream,
    Sub,
    Union,
    agg,
    columns_of,
    expr,
)
from oracle.nature import grouping_of, item_nature, query_nature

QUICK = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)
SEEDS_MAX = 40
CONSTRUCTS = {
    "select",
    "join",
    "join of three",
    "JOIN ON",
    "union",
    "distinct",
    "having",
    "filter",
    "with",
    "subquery",
    "window on a subquery",
    "now",
    "range",
    "rows",
    "partition",
    "unbounded",
    "sliding",
    "instant",
    "change",
    "snapshot",
    "running",
    "relation over relation",
    "relation two deep",
    "whole relation",
    "distinct over relation",
    "having over relation",
    "filter over relation",
    "ISTREAM",
    "DSTREAM",
    "RSTREAM",
    "ISTREAM of a relation",
    "DSTREAM of a relation",
    "RSTREAM of a relation",
    "first",
    "last",
    "var_",
    "stddev_",
    "DISTINCT ",
    "window_",
    "ALIGN START",
    "ALIGN START of a join or union",
    "window_start of a join or union",
}


def queries_within(query: Query) -> Iterator[Query]:
    yield query
    match query:
        case Select():
            for source in query.sources:
                if isinstance(source, Sub):
                    yield from queries_within(source.query)
        case Union():
            for branch in query.branches:
                yield from queries_within(branch)
        case Emit():
            yield from queries_within(query.query)


def constructs_over_relation(select: Select) -> Iterator[str]:
    (source,) = select.sources
    assert isinstance(source, Sub)
    below = (
        [item_nature(s) for s in source.query.sources] if isinstance(source.query, Select) else []
    )
    for present, name in (
        (select.aggregated, "relation over relation"),
        (any(nature.relation for nature in below), "relation two deep"),
        (select.aggregated and not select.keys, "whole relation"),
        (select.distinct, "distinct over relation"),
        (select.having, "having over relation"),
        (select.where and not select.aggregated, "filter over relation"),
    ):
        if present:
            yield name


def constructs_of_select(select: Select) -> Iterator[str]:
    natures = [item_nature(source) for source in select.sources]
    yield ("select", "join", "join of three")[len(natures) - 1]
    if select.aggregated and not natures[0].relation:
        grouping = grouping_of(natures)
        yield grouping
        if any(nature.align_start for nature in natures) and grouping in ("sliding", "snapshot"):
            yield f"ALIGN START{' of a join or union' if grouping == 'snapshot' else ''}"
        if grouping == "snapshot" and any(i.expr is WINDOW_START for i in select.items):
            yield "window_start of a join or union"
    if natures[0].relation:
        yield from constructs_over_relation(select)
    for present, name in (
        (select.on, "JOIN ON"),
        (select.distinct, "distinct"),
        (select.having, "having"),
        (select.where, "filter"),
    ):
        if present:
            yield name
    for source in select.sources:
        if source.window is not None:
            partitioned = isinstance(source.window, Rows) and source.window.partition
            yield "partition" if partitioned else type(source.window).__name__.lower()
        if isinstance(source, Sub):
            yield "subquery"
            if source.window is not None:
                yield "window on a subquery"
            if source.name is not None:
                yield "with"


def constructs_of(query: Query) -> Iterator[str]:
    text = cql_text(query)
    yield from (
        c for c in ("first", "last", "var_", "stddev_", "DISTINCT ", "window_") if c in text
    )
    for inner in queries_within(query):
        match inner:
            case Select():
                yield from constructs_of_select(inner)
            case Union():
                yield "union"
            case Emit(kind, emitted):
                relation = query_nature(emitted).relation
                yield f"{kind} of a relation" if relation else kind


def test_every_construct_is_made_up_and_evaluates() -> None:
    """Seeds until every construct was seen: which of them Hypothesis draws is not ours to say."""
    seen: set[str] = set()

    @settings(QUICK, max_examples=9, phases=(Phase.generate,), derandomize=False)
    @given(examples())
    def collect(example: Example) -> None:
        with Oracle({s.name: s for s in example.streams}) as oracle:
            for query in example.queries:
                answer = oracle.answer(query)
                assert answer.evaluation.relation == query_nature(query).relation
                seen.update(constructs_of(query))

    for number in range(SEEDS_MAX):
        seed(number)(collect)()
        if seen >= CONSTRUCTS:
            return
    raise AssertionError(f"never made up: {sorted(CONSTRUCTS - seen)}")


@QUICK
@given(examples())
def test_files_hold_every_row_once_in_order(example: Example) -> None:
    for stream in example.streams:
        tables = files_of(stream, example.batches[stream.name])
        times = [value for table in tables for value in table["ts"].cast("int64").to_pylist()]
        assert times == [row.ts for row in stream.rows]


def test_groups_of_tables_over_tables_vanish_and_come_back() -> None:
    """Rows of a result, followed row by row of the input: each fate in many of the queries."""
    fates: Counter[str] = Counter()

    @settings(QUICK, phases=(Phase.generate,), max_examples=60)
    @given(table_examples())
    def collect(example: Example) -> None:
        (stream,) = example.streams
        tables: list[list[set[str]]] = []
        for count in range(1, len(stream.rows) + 1):
            with Oracle({stream.name: replace(stream, rows=stream.rows[:count])}) as oracle:
                answers = [oracle.answer(query) for query in example.queries]
            tables.append([{repr(row) for row in answer.rows} for answer in answers])
        for query, history in zip(example.queries, zip(*tables, strict=True), strict=True):
            if query_nature(query).relation:
                fates.update(fates_of(query, history))

    collect()
    assert {name for name, times in fates.items() if times >= 2} == {
        f"{shape} {fate}"
        for shape in ("aggregate", "whole", "distinct", "having", "filter")
        for fate in ("vanish", "come back")
    }


def fates_of(query: Query, history: Sequence[set[str]]) -> set[str]:
    """What happened to rows of a relation's table."""
    assert isinstance(query, Select)
    shape = "distinct" if query.distinct else "having" if query.having else "filter"
    if query.aggregated and not query.having:
        shape = "aggregate" if query.keys else "whole"
    gone: set[str] = set()
    found = set()
    for before, after in pairwise(history):
        if gone & after:
            found.add(f"{shape} come back")
        gone |= before - after
        if gone:
            found.add(f"{shape} vanish")
    return found


Law = Callable[[QueryMaker], tuple[Query, Query]]


@st.composite
def pairs(draw: st.DrawFn, make: Law) -> tuple[tuple[Stream, ...], Query, Query]:
    streams = draw(stream_sets())
    return streams, *make(QueryMaker(draw, streams))


def law(make: Law) -> Callable[[], None]:
    """Two queries that mean the same give the same rows, whatever the input."""

    def holds() -> None:
        @QUICK
        @given(pairs(make))
        def check(drawn: tuple[tuple[Stream, ...], Query, Query]) -> None:
            streams, one, other = drawn
            with Oracle({s.name: s for s in streams}) as oracle:
                left, right = oracle.answer(one), oracle.answer(other)
            columns = [*columns_of(one), *([] if left.evaluation.relation else ["ts"])]
            found = difference(left.rows, right.rows, columns)
            assert not found, f"{cql_text(one)}\n{cql_text(other)}\n{found}"

        check()

    holds.__doc__ = make.__doc__
    return holds


@law
def test_the_order_of_a_join_does_not_matter(maker: QueryMaker) -> tuple[Query, Query]:
    query = maker.rows(maker.several(Asked(), 2), 0).query
    assert isinstance(query, Select)
    terms = [*query.on, *([query.where] if query.where else [])]
    where = replace(
        terms[0],
        cql=" AND ".join(term.cql for term in terms),
        sql=" AND ".join(f"({term.sql})" for term in terms),
    )
    return query, replace(query, sources=query.sources[::-1], on=(), where=where)


@law
def test_istream_is_the_default(maker: QueryMaker) -> tuple[Query, Query]:
    query = maker.aggregated(0).query
    return query, Emit("ISTREAM", query)


@law
def test_a_filter_in_a_subquery_is_a_filter(maker: QueryMaker) -> tuple[Query, Query]:
    readables = [maker.base(None, Asked())]
    query = maker.rows(readables, 0).query
    assert isinstance(query, Select)
    refs = maker.refs(readables, times=False)
    everything = tuple(
        replace(query.items[0], expr=ref, name=name)
        for ref, (name, _) in zip(refs.columns, readables[0].columns, strict=True)
    )
    inner = Select(everything, query.sources, where=query.where)
    return query, replace(query, sources=(Sub(inner, query.sources[0].label),), where=None)


@law
def test_distinct_twice_is_distinct_once(maker: QueryMaker) -> tuple[Query, Query]:
    query = maker.rows([maker.base(None, Asked(("none",)))], 0).query
    assert isinstance(query, Select)
    once = replace(query, distinct=True)
    names = columns_of(once)
    items = tuple(
        replace(entry, expr=replace(entry.expr, cql=f"q.{name}", sql=f"q.{name}"))
        for entry, name in zip(once.items, names, strict=True)
    )
    return once, Select(items, (Sub(once, "q"),), distinct=True)


def unlimited(query: Query, window: Range | Rows) -> Query:
    """The query with a window so wide that nothing ever leaves, where it had none."""
    assert isinstance(query, Select)
    return replace(query, sources=tuple(replace(s, window=window) for s in query.sources))


@law
def test_a_row_window_wider_than_the_stream_is_none(maker: QueryMaker) -> tuple[Query, Query]:
    query = maker.rows(maker.several(Asked(("none",)), 2), 0).query
    return query, unlimited(query, Rows(1_000))


@law
def test_a_range_longer_than_the_stream_is_none(maker: QueryMaker) -> tuple[Query, Query]:
    query = maker.rows(maker.several(Asked(("none",)), 2), 0).query
    return query, unlimited(query, Range(30 * DAY))


@law
def test_neighbouring_windows_cover_every_row_once(maker: QueryMaker) -> tuple[Query, Query]:
    length = maker.pick((2 * SECOND, 7 * SECOND, 500 * MILLISECOND))
    source = maker.base(None, Asked(("none",))).item
    rows = Item(agg("count(*)"), "n")
    tumbling = Select((rows,), (replace(source, window=Range(length, length)),))
    whole = Select((rows,), (source,), having=agg("count(*) > 0"))
    return whole, Select(
        (Item(agg("CAST(sum(q.n) AS BIGINT)"), "n"),),
        (Sub(tumbling, "q"),),
        having=agg("count(*) > 0"),
    )


@law
def test_neighbouring_windows_of_a_union_cover_every_row_once(
    maker: QueryMaker,
) -> tuple[Query, Query]:
    length = maker.pick((2 * SECOND, 7 * SECOND, 500 * MILLISECOND))
    source = maker.base(None, Asked(("none",))).item
    every = Item(agg("count(*)"), "n")
    one = Item(expr("1"), "m")
    branch = Select((one,), (replace(source, window=Range(length, length)),))
    tumbling = Select((every,), (Sub(Union((branch, branch)), "u"),))
    twice = Select((Item(agg("2 * count(*)"), "n"),), (source,), having=agg("count(*) > 0"))
    return twice, Select(
        (Item(agg("CAST(sum(q.n) AS BIGINT)"), "n"),),
        (Sub(tumbling, "q"),),
        having=agg("count(*) > 0"),
    )


@law
def test_a_window_on_a_union_is_one_on_each_side(maker: QueryMaker) -> tuple[Query, Query]:
    window = Range(maker.pick((2 * SECOND, 2_500 * MILLISECOND)), maker.pick((SECOND, 2 * SECOND)))
    window = replace(window, align_start=maker.one_in(2))
    sides = [maker.base(None, Asked(("none",))).item for _ in range(2)]
    one, every = Item(expr("1"), "m"), Item(agg("count(*)"), "n")
    outside = Union(tuple(Select((one,), (side,)) for side in sides))
    inside = Union(tuple(Select((one,), (replace(side, window=window),)) for side in sides))
    return (
        Select((every,), (Sub(outside, "u", window),)),
        Select((every,), (Sub(inside, "u"),)),
    )


@st.composite
def relations(draw: st.DrawFn) -> tuple[tuple[Stream, ...], Query]:
    streams = draw(stream_sets())
    maker = QueryMaker(draw, streams)
    return streams, maker.relation(0, maker.pick(LONG_SLIDES), exact=True).query


@QUICK
@given(relations())
def test_changes_of_a_relation_sum_to_its_table(
    drawn: tuple[tuple[Stream, ...], Query],
) -> None:
    streams, query = drawn
    columns = columns_of(query)
    with Oracle({s.name: s for s in streams}) as oracle:
        table, entered, left, stood = (
            [tuple(repr(row[name]) for name in columns) for row in oracle.answer(asked).rows]
            for asked in (query, *(Emit(k, query) for k in ("ISTREAM", "DSTREAM", "RSTREAM")))
        )
        times = [row["ts"] for row in oracle.answer(Emit("RSTREAM", query)).rows]
    assert Counter(entered) == Counter(table) + Counter(left)
    at_the_end = [row for row, at in zip(stood, times, strict=True) if at == max(times)]
    # Later multiples see no fewer rows, unless HAVING let them all go before the end.
    assert not table or Counter(at_the_end) == Counter(table)
