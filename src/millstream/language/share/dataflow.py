"""A plan as operators: what is computed in one step, from which streams.

Selects, projections, unions and windows of time are virtual: they are folded into the step of the
operator above or below. An operator is a core that needs state (join, aggregate, distinct, windows
of rows, DSTREAM, RSTREAM) with what lies on top of it, or a map where there is no core at all.
Its id is the fingerprint of what it gives, so that equal parts of two queries are one operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Literal as OneOf

from millstream.core.errors import UsageError
from millstream.language.plan.keys import digest, expression_key, predicate_key
from millstream.language.plan.nodes import (
    Aggregate,
    Distinct,
    Emit,
    Filter,
    Join,
    Matched,
    Node,
    Over,
    Plan,
    Project,
    Ranked,
    Ruled,
    Semijoin,
    Source,
    Union,
    Windowed,
    inputs_of,
    is_relation,
    starting,
)
from millstream.language.plan.windows import (
    FOREVER,
    Calendar,
    Change,
    Instant,
    Rows,
    Running,
    Session,
    Sliding,
    Snapshot,
    Unbounded,
    reach,
)

Kind = OneOf[
    "map",
    "join",
    "semijoin",
    "partial",
    "combine",
    "interval",
    "distinct",
    "running",
    "running_emit",
    "session",
    "rank",
    "over",
    "calendar",
    "match",
    "table_join",
    "table_semijoin",
    "table_rank",
    "table_over",
    "rules",
]
UNFUSED = frozenset({"distinct", "running", "over", "table_semijoin", "table_rank", "table_over"})
REJECTED_NAMES = ("reason", "record", "file", "row")  # columns of a stream's malformed rows


@dataclass(frozen=True, slots=True)
class Operator:
    """What one step computes. `node` is the meaning of its output, `core` the part with state."""

    id: str
    kind: Kind
    node: Node
    core: Node | None
    inputs: tuple[str, ...]  # streams, each once

    @property
    def sides(self) -> tuple[str, ...]:
        """Inputs that are read whole at every step and hold no result back."""
        return (stream_of(self.core.rules),) if isinstance(self.core, Ruled) else ()

    @property
    def label(self) -> str:
        """A short name for people."""
        core = self.core or self.node
        return f"{self.kind} {type(core).__name__.lower()} {short_id(self.id)}"


def base_stream(name: str) -> str:
    return f"s:{name}"


def short_id(stream: str) -> str:
    """The first digits of an operator's id, for labels."""
    return stream[2:10]


def starting_at(stream: str, start: int) -> str:
    """The id that a stream has in a query with a start, from its id in the query without one."""
    return stream if is_base(stream) else f"o:{starting(stream.removeprefix('o:'), start)}"


def is_base(stream: str) -> bool:
    return stream.startswith("s:")


def state_stream(operator: str, part: int = 0) -> str:
    return f"{operator}#{part}"


def late_stream(name: str) -> str:
    return f"l:{name}"


def rejected_stream(name: str) -> str:
    return f"r:{name}"


def stream_of(node: Node) -> str:
    """The stream that holds the rows of a leaf: a source, or an operator's output."""
    return base_stream(node.stream) if isinstance(node, Source) else f"o:{node.fingerprint}"


def partial_stream(node: Aggregate) -> str:
    """The stream of a sliding aggregate's partial results by pane.

    Windows do not enter its name, only the panes' length: queries with other windows over one
    grouping share it.
    """
    calls = (
        f"{c.function}|{c.distinct}|{c.argument and expression_key(c.argument)}"
        f"|{predicate_key(c.condition)}|{c.type}"
        for c in node.calls
    )
    keys = ",".join(expression_key(k) for k in node.keys)
    parts = ("partial", node.input.shape, str(pane_length(node)), keys, *calls)
    return "o:" + starting(digest(*parts), node.input.start_of_all)


def pane_length(node: Aggregate) -> int:
    """The greatest common divisor of range, slide and offset; one microsecond for [NOW]."""
    match node.grouping:
        case Sliding(length, slide, offset):
            return gcd(length, slide, offset)
        case _:
            return 1


def is_core(node: Node) -> bool:
    """Whether a node needs more than the row at hand."""
    match node:
        case (
            Join() | Semijoin() | Aggregate() | Distinct() | Ranked() | Over() | Matched() | Ruled()
        ):
            return True
        case Emit():
            return node.kind != "istream" or has_rows(node.input) or is_relation(node.input)
        case _:
            return False


def has_rows(node: Node) -> bool:
    """Whether intervals of this node end with later rows of the stream."""
    match node:
        case Windowed():
            return isinstance(node.window, Rows)
        case Filter() | Project():
            return has_rows(node.input)
        case Union() | Join():
            return any(has_rows(i) for i in inputs_of(node))
        case _:
            return False


def endless(node: Node) -> bool:
    """Whether all rows of this node stay in the relation for ever."""
    match node:
        case Windowed():
            return isinstance(node.window, Unbounded)
        case Filter() | Project():
            return endless(node.input)
        case Union() | Join():
            return all(endless(i) for i in inputs_of(node))
        case Aggregate():  # a result holds until the next window's end, or the next change
            return isinstance(node.grouping, Running | Session)
        case _:
            return True


def lasting(node: Node) -> int:
    """The longest time for which a row of this node stays after its own; FOREVER where it is open.

    A row of a join is there no longer than the shortest-lived of its parts.
    """
    match node:
        case Windowed():
            return reach(node.window)
        case Filter() | Project():
            return lasting(node.input)
        case Join():
            return min(lasting(i) for i in node.inputs)
        case Union():
            return max(lasting(i) for i in node.inputs)
        case _:
            return FOREVER


def leaves(node: Node) -> Iterator[Node]:
    """Sources and cores at which a chain of virtual nodes ends."""
    if isinstance(node, Source) or is_core(node):
        yield node
    else:
        for child in inputs_of(node):
            yield from leaves(child)


def compile_plan(plan: Plan) -> tuple[Operator, ...]:
    """All operators of a plan, producers first; the last one gives the query's result."""
    operators: dict[str, Operator] = {}
    _compile(result_node(plan), operators)
    return tuple(operators.values())


def result_node(plan: Plan) -> Node:
    """What the result stream holds; rows of a window of rows are emitted when they begin."""
    root = plan.root
    if not is_core(root) and has_rows(root):
        return Emit(root, "istream", 0)
    return root


def result_stream(plan: Plan) -> str:
    return f"o:{result_node(plan).fingerprint}"


def _compile(node: Node, operators: dict[str, Operator]) -> str:
    """Adds what computes this node, and all it reads; gives the stream of its rows."""
    name = f"o:{node.fingerprint}"
    if name in operators:
        return name
    core = _single_core(node)
    if core is None or (core is not node and not _fuses(core)):
        inputs = _inputs((node,), operators)
        operators[name] = Operator(name, "map", node, None, inputs)
        return name
    kind = _kind(core)
    if kind == "combine":
        assert isinstance(core, Aggregate)
        partials = partial_stream(core)
        if partials not in operators:
            inputs = _inputs((core.input,), operators)
            operators[partials] = Operator(partials, "partial", core, core, inputs)
        operators[name] = Operator(name, "combine", node, core, (partials,))
        return name
    operators[name] = Operator(name, kind, node, core, _core_inputs(core, kind, operators))
    return name


def _core_inputs(core: Node, kind: Kind, operators: dict[str, Operator]) -> tuple[str, ...]:
    match kind:
        case "interval":
            return _streams(interval_leaves(relation_of(core)), operators)
        case "semijoin":
            found = (leaf for side in inputs_of(core) for leaf in interval_leaves(side))
            return _streams(found, operators)
        case "running_emit":
            return _inputs((running_under(core).input,), operators)
        case _:
            return _inputs(inputs_of(core), operators)


def _inputs(roots: tuple[Node, ...], operators: dict[str, Operator]) -> tuple[str, ...]:
    return _streams((leaf for root in roots for leaf in leaves(root)), operators)


def _streams(found: Iterator[Node], operators: dict[str, Operator]) -> tuple[str, ...]:
    streams: dict[str, None] = {}
    for leaf in found:
        if isinstance(leaf, Source):
            streams[base_stream(leaf.stream)] = None
        else:
            streams[_compile(leaf, operators)] = None
    return tuple(streams)


def _single_core(node: Node) -> Node | None:
    """The core under a chain of filters and projections, if that is all there is."""
    while not is_core(node):
        if not isinstance(node, Filter | Project):
            return None
        node = node.input
    return node


def _fuses(core: Node) -> bool:
    """Whether what lies on top may be computed in the core's own step.

    What reads its own output back leaves it as it is. What queries
    make of OVER differs more than OVER itself: its rows are a stream that they share.
    """
    return _kind(core) not in UNFUSED


def interval_leaves(node: Node) -> Iterator[Node]:
    """Leaves of what an operator over intervals reads.

    Where rows end with later rows of the stream, a result's end is not known when it begins, so it
    cannot travel as a stream: windows of rows, and joins over them, are evaluated inside the
    operator that needs their ends.
    """
    match node:
        case Windowed(window=Rows()):
            yield from leaves(node.input)
        case Join() | Union() if has_rows(node):
            for child in inputs_of(node):
                yield from interval_leaves(child)
        case Filter() | Project() | Windowed():
            yield from interval_leaves(node.input)
        case _:
            yield from leaves(node)


def rows_windows(node: Node) -> tuple[Windowed, ...]:
    """The windows of rows that are evaluated inside an operator over this node's intervals."""
    match node:
        case Windowed(window=Rows()):
            return (node,)
        case Join() | Union() if has_rows(node):
            return tuple(w for child in inputs_of(node) for w in rows_windows(child))
        case Filter() | Project() | Windowed():
            return rows_windows(node.input)
        case _:
            return ()


def relation_of(core: Node) -> Node:
    """The relation over whose intervals an interval operator works."""
    match core:
        case Join():
            return core
        case Emit() | Distinct():
            below = distinct_input(core) or core.input
            change = change_below(below)
            return below if change is None else change.input
        case Aggregate():
            return core.input
        case _:
            raise TypeError(f"not an operator over intervals: {core!r}")


def distinct_input(core: Node) -> Node | None:
    """What DISTINCT is over, directly or below ISTREAM and its kin; None without DISTINCT."""
    if isinstance(core, Emit):
        core = core.input
    return core.input if isinstance(core, Distinct) else None


def change_below(node: Node) -> Aggregate | None:
    """The aggregate over a window of rows whose results a chain hands on.

    How long such a result holds is known only when the group changes again, so DSTREAM and RSTREAM
    over it are computed from the rows themselves.
    """
    while isinstance(node, Filter | Project):
        node = node.input
    if isinstance(node, Aggregate) and isinstance(node.grouping, Change):
        return node
    return None


def running_under(node: Node) -> Aggregate:
    """The lowest unbounded aggregate of a relation: its input is a stream."""
    while not (isinstance(node, Aggregate) and not is_relation(node.input)):
        if isinstance(node, Union | Join | Semijoin | Ranked | Over):
            raise UsageError(
                "ISTREAM, DSTREAM and RSTREAM over a union, join, rank or OVER of tables",
                hint="take the stream of each aggregate, and the union or join of these",
            )
        (node,) = inputs_of(node)
    return node


def _kind(core: Node) -> Kind:
    match core:
        case Join() if is_relation(core):
            return "table_join"
        case Semijoin() if is_relation(core):
            return "table_semijoin"
        case Ranked() if is_relation(core):
            return "table_rank"
        case Over() if is_relation(core):
            return "table_over"
        case Join():
            return "interval" if has_rows(core) else "join"
        case Semijoin():
            return "semijoin"
        case Aggregate(grouping=Sliding() | Instant()):
            return "combine"
        case Aggregate(grouping=Change() | Snapshot()):
            return "interval"
        case Aggregate(grouping=Running()):
            return "running"
        case Aggregate(grouping=Session()):
            return "session"
        case Aggregate(grouping=Calendar()):
            return "calendar"
        case Distinct():
            if endless(core.input) and not has_rows(core.input):
                return "distinct"
            return "interval"
        case Ranked():
            return "rank"
        case Over():
            return "over"
        case Matched():
            return "match"
        case Ruled():
            return "rules"
        case Emit() if is_relation(core.input):
            return "running_emit"
        case _:
            return "interval"


__all__ = [
    "Kind",
    "Operator",
    "base_stream",
    "change_below",
    "compile_plan",
    "distinct_input",
    "endless",
    "has_rows",
    "interval_leaves",
    "is_base",
    "is_core",
    "lasting",
    "late_stream",
    "leaves",
    "pane_length",
    "partial_stream",
    "rejected_stream",
    "relation_of",
    "result_node",
    "result_stream",
    "rows_windows",
    "running_under",
    "short_id",
    "starting_at",
    "state_stream",
    "stream_of",
]
