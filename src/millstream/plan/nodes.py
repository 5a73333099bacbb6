"""The algebra: what a query means, as immutable nodes.

Every node gives rows with columns by position, an event time, and an interval in which the row is
in the relation (semantics: docs/CQL.md). Equality and hash are by fingerprint, a digest of what the
node means; names, aliases and the order of conjuncts, of commutative operands and of joined inputs
do not enter it (`fingerprint.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as OneOf

from millstream.plan.expressions import Expr
from millstream.plan.schema import Field, Schema
from millstream.plan.windows import BEGINNING, Grouping, Window


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes."""

    schema: Schema = field(init=False, repr=False)
    fingerprint: str = field(init=False, repr=False)
    shape: str = field(init=False, repr=False)  # the fingerprint but for the start
    start_of_all: int | None = field(init=False, repr=False)  # of what it reads; None: several

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def _seal(self, schema: Schema) -> None:
        from millstream.plan import fingerprint  # noqa: PLC0415  (it matches on nodes)

        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "start_of_all", fingerprint.start_of(self))
        object.__setattr__(self, "shape", fingerprint.shape(self))
        whole = fingerprint.starting(self.shape, self.start_of_all)
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
    the start of it.
    """

    inputs: tuple[Node, ...]
    predicate: Expr | None

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise ValueError("a join has two inputs or more")
        self._seal(tuple(f for node in self.inputs for f in node.schema))


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: `sum(DISTINCT argument) FILTER (WHERE condition)`.

    Functions: count (no argument: rows), sum, avg, min, max, var_pop, var_samp, stddev_pop,
    stddev_samp, first, last (by time). `type` is the result's type, `argument_type` the argument's.
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
        case Source():
            return ()
        case Union(inputs) | Join(inputs, _):
            return inputs
        case Filter() | Project() | Windowed() | Aggregate() | Distinct() | Emit():
            return (node.input,)
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


def windows_of(node: Node) -> Iterator[Window]:
    """The windows that the intervals of a node's rows come from."""
    match node:
        case Windowed(window=window):
            yield window
        case Filter() | Project() | Join() | Union():
            for below in inputs_of(node):
                yield from windows_of(below)
        case _:
            pass


def is_relation(node: Node) -> bool:
    """Whether rows of this node are changes (`+`, `-`) of a table."""
    from millstream.plan.windows import Running  # noqa: PLC0415

    match node:
        case Aggregate(grouping=Running()):
            return True
        case Filter() | Project() | Union():
            return any(is_relation(i) for i in inputs_of(node))
        case _:
            return False


__all__ = [
    "Aggregate",
    "AggregateCall",
    "Distinct",
    "Emit",
    "Field",
    "Filter",
    "Join",
    "Node",
    "Plan",
    "Project",
    "Source",
    "Union",
    "Windowed",
    "inputs_of",
    "is_relation",
    "sources_of",
    "windows_of",
]
