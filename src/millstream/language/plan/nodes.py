"""The algebra: what a query means, as immutable nodes.

Every node gives rows with columns by position, an event time, and an interval in which the row is
in the relation (semantics: docs/CQL.md). Equality and hash are by fingerprint, a digest of what the
node means; names, aliases and the order of conjuncts, of commutative operands and of joined inputs
do not enter it (`keys.py`). A query's start enters last: a fingerprint is a digest of the shape and
the start, so that who knows the shapes of a query's operators knows their fingerprints for every
start.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf

from millstream.language.plan.expressions import Call, Expr, conjuncts
from millstream.language.plan.keys import (
    digest,
    expression_key,
    grouping_key,
    input_orders,
    join_key,
    predicate_key,
    window_key,
)
from millstream.language.plan.row_patterns import RowPattern, pattern_key
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import BEGINNING, Grouping, OverFrame, Running, Window


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes."""

    schema: Schema = field(init=False, repr=False)
    fingerprint: str = field(init=False, repr=False)
    shape: str = field(init=False, repr=False)  # the fingerprint but for the start
    start_of_all: int | None = field(init=False, repr=False)  # of what it reads; None: several
    parts: int = field(init=False, repr=False)  # of its tree; what stands there twice counts twice

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _seal(self, schema: Schema) -> None:
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "parts", 1 + sum(below.parts for below in inputs_of(self)))
        object.__setattr__(self, "start_of_all", start_of(self))
        object.__setattr__(self, "shape", shape(self))
        whole = starting(self.shape, self.start_of_all)
        object.__setattr__(self, "fingerprint", whole)


@dataclass(frozen=True, slots=True, eq=False)
class Source(Node):
    """The rows of a base stream with ts >= start; each is in the relation for ever.

    Sources of unlike readers are never one: a query that shares nothing is its own reader.
    """

    stream: str
    columns: Schema
    start: int = BEGINNING
    reader: str = ""

    def __post_init__(self) -> None:
        self._seal(self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class Constants(Node):
    """A table of constants, while a query is bound: rows beside it take its columns one by one, so
    that no plan has it as an input."""

    rows: tuple[tuple[Expr, ...], ...]
    fields: Schema

    def __post_init__(self) -> None:
        self._seal(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Filter(Node):
    """Rows for which the predicate is true; a conjunct sees only rows that passed those before."""

    input: Node
    predicate: Expr

    def __post_init__(self) -> None:
        self._seal(self.input.schema)


@dataclass(frozen=True, slots=True, eq=False)
class Project(Node):
    """New columns computed from each row; time, interval and position stay."""

    input: Node
    columns: tuple[Expr, ...]
    fields: Schema  # names and types of the new columns

    def __post_init__(self) -> None:
        if len(self.columns) != len(self.fields):
            raise ValueError("a projection needs a field for each column")
        self._seal(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Unnest(Node):
    """Each row once for every element of an array, which is a new last column.

    A second field is the element's place, from 1 on. Outer: rows without elements stay, with NULL.
    """

    input: Node
    array: Expr
    fields: Schema
    outer: bool = False

    def __post_init__(self) -> None:
        self._seal((*self.input.schema, *self.fields))


@dataclass(frozen=True, slots=True, eq=False)
class Ruled(Node):
    """Each row once for every rule that holds at its time and for which the predicate is true.

    Columns are those of the row, then those of the rule table. Time and interval are the row's.
    The rules are a stream from its beginning on: no start of a query cuts them.
    """

    input: Node
    rules: Source
    predicate: Expr | None

    def __post_init__(self) -> None:
        self._seal((*self.input.schema, *self.rules.schema))


@dataclass(frozen=True, slots=True, eq=False)
class Union(Node):
    """All rows of all inputs."""

    inputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        types = {tuple(f.type for f in node.schema) for node in self.inputs}
        if len(types) != 1:
            raise ValueError("inputs of a union differ in their types")
        self._seal(self.inputs[0].schema)


@dataclass(frozen=True, slots=True, eq=False)
class Windowed(Node):
    """Starts new intervals from the rows' times."""

    input: Node
    window: Window

    def __post_init__(self) -> None:
        self._seal(self.input.schema)


@dataclass(frozen=True, slots=True, eq=False)
class Join(Node):
    """Combinations of rows whose intervals intersect and for which the predicate is true.

    Columns are those of all inputs, in order. The result's interval is the intersection, its time
    the start of it. With a relation among the inputs the result is one: the join of their tables.
    """

    inputs: tuple[Node, ...]
    predicate: Expr | None

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise ValueError("a join has two inputs or more")
        self._seal(tuple(f for node in self.inputs for f in node.schema))


@dataclass(frozen=True, slots=True, eq=False)
class Semijoin(Node):
    """Rows of the first input that meet one of the second, or with `anti` none, each once.

    The predicate is over the columns of both; the result has those of the first. A row that meets
    others comes at the first instant at which it does. One that met none comes when it leaves the
    relation; if it is there for an instant alone, at that instant. Results are a stream. With a
    relation among the inputs the result is one: the first table's rows that meet the second's now.
    """

    inputs: tuple[Node, Node]
    predicate: Expr | None
    anti: bool

    def __post_init__(self) -> None:
        self._seal(self.inputs[0].schema)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: `sum(DISTINCT argument) FILTER (WHERE condition)`.

    Functions: count (no argument: rows), sum, avg, min, max, var_pop, var_samp, stddev_pop,
    stddev_samp, first, last (by time), and those of `cql/functions.py`; several arguments are
    packed into one (`calls.py`). `type` is the result's type, `argument_type` the argument's.
    """

    function: str
    argument: Expr | None
    type: str
    argument_type: str | None = None
    distinct: bool = False
    condition: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Node):
    """One row for each group and window: the keys, then the calls.

    `Time()` above it is the result's time: the window's end e for Sliding and Snapshot. Windows
    that begin before `start` are not emitted.
    """

    input: Node
    keys: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    grouping: Grouping
    fields: Schema
    start: int = BEGINNING

    def __post_init__(self) -> None:
        if len(self.keys) + len(self.calls) != len(self.fields):
            raise ValueError("an aggregate needs a field for each key and call")
        self._seal(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Distinct(Node):
    """Equal rows become one, with merged intervals; each merged start is a result."""

    input: Node

    def __post_init__(self) -> None:
        self._seal(self.input.schema)


@dataclass(frozen=True, slots=True, eq=False)
class Ranked(Node):
    """Rows with their rank among those of the same time and partition, as a last column.

    `order` has each key with its direction and where NULL stands. Equal rows are told apart by
    position, or all columns. `running` ranks all rows so far instead: the result is a relation,
    and with `limit` has only rows of at most that rank.
    """

    input: Node
    function: str  # row_number, rank, dense_rank
    partition: tuple[Expr, ...]
    order: tuple[tuple[Expr, str], ...]
    running: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        self._seal((*self.input.schema, Field(self.function, "int")))


@dataclass(frozen=True, slots=True, eq=False)
class Over(Node):
    """Rows with aggregates over those near them in their partition, as last columns.

    Call i is taken over frame i of each row. Frames of one node are of one kind: bounded by time,
    bounded by rows, or from the first row of all on. Rows keep their times and positions. Over a
    relation rows stand in the order that is given, frames may be of any kind, and the result is a
    relation: each row of the table with what its frames hold now.
    """

    input: Node
    partition: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    frames: tuple[OverFrame, ...]
    order: tuple[tuple[Expr, str], ...] = ()  # each key with its direction, over a relation

    def __post_init__(self) -> None:
        kinds = {(f.unbounded, f.unbounded or f.by) for f in self.frames}
        if len(kinds) != 1 and not is_relation(self.input):
            raise ValueError("frames of one node are of one kind")
        own = (Field(c.function, c.type) for c in self.calls)
        self._seal((*self.input.schema, *own))


@dataclass(frozen=True, slots=True, eq=False)
class Matched(Node):
    """One row for each match of a pattern among a partition's rows: the keys, then the calls.

    Calls are over the columns of a matched row, then its `looks`, then `row_patterns.CARRIED`. A
    result's time is that of the last row matched. With `finals` each row of a match is one of the
    results, with its own time: its columns, then the calls, those over the whole match (`finals`
    says which) and those over its rows up to this one. Rows `unmatched` by any come beside them,
    their calls NULL.
    """

    input: Node
    keys: tuple[Expr, ...]
    spec: RowPattern
    calls: tuple[AggregateCall, ...]
    fields: Schema
    finals: tuple[bool, ...] | None = None
    unmatched: bool = False

    def __post_init__(self) -> None:
        self._seal(self.fields)


@dataclass(frozen=True, slots=True, eq=False)
class Emit(Node):
    """ISTREAM, DSTREAM, RSTREAM: a relation becomes a stream, whose rows are there for ever.

    ISTREAM emits at an interval's start, DSTREAM at its end, RSTREAM all rows at each multiple of
    slide. Over a relation told by changes (Running) all three are taken at multiples of slide.
    """

    input: Node
    kind: OneOf["istream", "dstream", "rstream"]
    slide: int

    def __post_init__(self) -> None:
        self._seal(self.input.schema)


@dataclass(frozen=True, slots=True)
class Plan:
    """A bound query: its meaning, and the names of its result's columns."""

    root: Node
    columns: Schema  # result columns by the user's names, without ts
    relation: bool  # the result is a table told by its changes

    @property
    def fingerprint(self) -> str:
        return self.root.fingerprint


def inputs_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Source() | Constants():
            return ()
        case Union(inputs) | Join(inputs, _) | Semijoin(inputs, _, _):
            return inputs
        case Ruled():
            return (node.input, node.rules)
        case Filter() | Project() | Windowed() | Aggregate() | Distinct() | Emit():
            return (node.input,)
        case Ranked() | Unnest() | Over() | Matched():
            return (node.input,)
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """A node over its inputs changed; the very same where the change leaves each as it is."""
    old = inputs_of(node)
    new = tuple(change(below) for below in old)
    if all(a is b for a, b in zip(new, old, strict=True)):
        return node
    match node:
        case Union():
            return Union(new)
        case Join():
            return Join(new, node.predicate)
        case Semijoin():
            left, right = new
            return replace(node, inputs=(left, right))
        case Ruled():
            changed, rules = new
            assert isinstance(rules, Source)
            return replace(node, input=changed, rules=rules)
        case Filter() | Project() | Windowed() | Aggregate() | Distinct() | Emit():
            return replace(node, input=new[0])
        case Ranked() | Unnest() | Over() | Matched():
            return replace(node, input=new[0])
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def sources_of(node: Node) -> tuple[Source, ...]:
    """All base streams under a node, each once, in order of name."""
    found: dict[str, Source] = {}
    stack = [node]
    while stack:
        here = stack.pop()
        if isinstance(here, Source):
            found[here.fingerprint] = here
        stack.extend(inputs_of(here))
    return tuple(sorted(found.values(), key=lambda s: (s.stream, s.start)))


def is_relation(node: Node) -> bool:
    """Whether rows of this node are changes (`+`, `-`) of a table."""
    match node:
        case Aggregate(grouping=Running()):
            return True
        case Ranked():
            return node.running
        case Filter() | Project() | Unnest() | Union() | Join() | Semijoin() | Over():
            return any(is_relation(i) for i in inputs_of(node))
        case _:
            return False


def start_of(node: Node) -> int | None:
    """The one start of all that a node reads; None where its parts have several."""
    if isinstance(node, Ruled):
        return node.input.start_of_all
    starts = {child.start_of_all for child in inputs_of(node)}
    if isinstance(node, Source | Aggregate):
        starts.add(node.start)
    return starts.pop() if len(starts) == 1 else None


def starting(shape: str, start: int | None) -> str:
    """The fingerprint of what has a shape, for rows from a start on."""
    return shape if start in (None, BEGINNING) else digest(shape, str(start))


def shape(node: Node) -> str:
    """The digest of a node without its start, where it has one: equal for queries that differ in
    their start alone."""
    match node:
        case Source():
            types = ",".join(f.type for f in node.columns)
            own = (node.reader,) if node.reader else ()
            return digest("source", node.stream, types, str(BEGINNING), *own)
        case Constants():
            values = (expression_key(value) for row in node.rows for value in row)
            return digest("constants", ",".join(f.type for f in node.fields), *values)
        case Filter():
            if isinstance(node.input, Filter):
                return _merged_filter(node)
            return digest("filter", _key(node, node.input), predicate_key(node.predicate))
        case Project():
            columns = (expression_key(c) for c in node.columns)
            return digest("project", _key(node, node.input), *columns)
        case Unnest():
            kind = f"{len(node.fields)}|{node.outer}"
            return digest("unnest", _key(node, node.input), expression_key(node.array), kind)
        case Ruled():
            rows = _key(node, node.input)
            return digest("rules", rows, node.rules.shape, predicate_key(node.predicate))
        case Union():
            return digest("union", *sorted(_key(node, i) for i in node.inputs))
        case Windowed():
            return digest("window", _key(node, node.input), window_key(node.window))
        case Join():
            return _join(node)
        case Semijoin():
            both = (_key(node, i) for i in node.inputs)
            return digest("semijoin", *both, predicate_key(node.predicate), str(node.anti))
        case Aggregate():
            calls = (_call(c) for c in node.calls)
            keys = ",".join(expression_key(k) for k in node.keys)
            start = node.start if node.start_of_all is None else BEGINNING
            return digest(
                "aggregate", _key(node, node.input), grouping_key(node.grouping), str(start), keys,
                *calls,
            )  # fmt: skip
        case Distinct():
            return digest("distinct", _key(node, node.input))
        case Emit():
            return digest("emit", _key(node, node.input), node.kind, str(node.slide))
        case Ranked():
            keys = ",".join(sorted(expression_key(k) for k in node.partition))
            order = (f"{expression_key(k)} {way}" for k, way in node.order)
            so_far = (f"running {node.limit}",) if node.running else ()
            return digest("ranked", _key(node, node.input), node.function, keys, *order, *so_far)
        case Over():
            keys = ",".join(sorted(expression_key(k) for k in node.partition))
            near = (f"{_call(c)}|{f}" for c, f in zip(node.calls, node.frames, strict=True))
            order = (f"{expression_key(k)} {way}" for k, way in node.order)
            return digest("over", _key(node, node.input), keys, *near, *order)
        case Matched():
            keys = ",".join(expression_key(k) for k in node.keys)
            calls = (_call(c) for c in node.calls)
            pattern = pattern_key(node.spec)
            every: tuple[str, ...] = ()
            every += () if node.finals is None else (f"all rows {node.finals}",)
            every += ("unmatched",) if node.unmatched else ()
            return digest("matched", _key(node, node.input), *pattern, keys, *calls, *every)
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def _call(call: AggregateCall) -> str:
    argument = call.argument and expression_key(call.argument)
    condition = predicate_key(call.condition)
    return f"{call.function}|{call.distinct}|{argument}|{condition}|{call.type}"


def _key(node: Node, child: Node) -> str:
    """What a child is to a node: its shape, unless the node's parts have several starts."""
    return child.fingerprint if node.start_of_all is None else child.shape


def _merged_filter(node: Filter) -> str:
    """Filters on top of each other mean their conjunction, the inner one first."""
    terms = conjuncts(node.predicate)
    inner: Node = node.input
    while isinstance(inner, Filter):
        terms = conjuncts(inner.predicate) + terms
        inner = inner.input
    return digest("filter", _key(node, inner), predicate_key(Call("and", terms)))


def canonical_order(node: Join) -> tuple[int, ...]:
    """The positions of a join's inputs in the order that gives the least key.

    Inputs are ordered by shape; equal ones (self-joins) by the order that makes the
    predicate's text smallest, so that swapping them changes nothing.
    """
    return min(_orders(node), key=lambda order: _join_key(node, order))


def symmetries(node: Join) -> tuple[tuple[int, ...], ...]:
    """All orders of the inputs that give the very same join; one where there is no self-join."""
    own = tuple(range(len(node.inputs)))
    children = [_key(node, child) for child in node.inputs]
    if len(set(children)) == len(own):
        return (own,)
    key = _join_key(node, own)
    return tuple(
        order
        for order in _orders(node)
        if [children[p] for p in order] == children and _join_key(node, order) == key
    )


def _orders(node: Join) -> Iterator[tuple[int, ...]]:
    return input_orders([_key(node, child) for child in node.inputs], node.predicate)


def _join_key(node: Join, order: tuple[int, ...]) -> str:
    return join_key(node.predicate, [len(child.schema) for child in node.inputs], order)


def _join(node: Join) -> str:
    """The output's column order is part of the meaning: a permuted join is another stream.

    Queries see a join through a projection; `rewrite` puts inputs into canonical order first, so
    that joins written in another order become the same node under another projection.
    """
    order = canonical_order(node)
    children = (_key(node, node.inputs[p]) for p in order)
    return digest("join", *children, _join_key(node, order), ",".join(map(str, order)))


__all__ = [
    "Aggregate",
    "AggregateCall",
    "Constants",
    "Distinct",
    "Emit",
    "Field",
    "Filter",
    "Join",
    "Matched",
    "Node",
    "Over",
    "Plan",
    "Project",
    "Ranked",
    "Ruled",
    "Semijoin",
    "Source",
    "Union",
    "Unnest",
    "Windowed",
    "canonical_order",
    "inputs_of",
    "is_relation",
    "sources_of",
    "starting",
    "symmetries",
    "with_inputs",
]
