"""Running operators of one processor as fragments: what leaves together, and what lies around it.

Seed 002, section 3.1, on operators that already run and that queries share: an operator stays with
the input that gives it most rows, as long as it is that input's only reader; where several read one
stream, each begins a fragment of its own, so that a shared operator is a fragment that leaves alone
(the physical operator leaves with the last of its logical ones). Local knowledge only: what runs
here, whom its rows come from and go to. Decides nothing about what moves.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.core.operator_graph import OperatorGraph
from millstream.decide.balance.partners import by_factor
from millstream.decide.balance.protocol import FragmentView

BASE = "s:"  # how ids of base streams begin


@dataclass(frozen=True, slots=True)
class RunningOperator:
    """One operator with what was measured of it lately; its id is its result stream's."""

    id: str
    inputs: tuple[str, ...]
    load: float  # of the processor's time
    state_bytes: float = 0.0
    queries: tuple[str, ...] = ()
    ratio: float = 0.0  # the worst performance ratio among its queries; 0: unknown
    job: str = ""  # that it shares with others
    alone: float = 0.0  # load that it would be more by itself


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a processor knows of the streams it reads and makes."""

    me: str
    rows: Mapping[str, float] = field(default_factory=dict)  # of streams, so far
    made_at: Mapping[str, str] = field(default_factory=dict)  # streams that come from elsewhere
    read_at: Mapping[str, Collection[str]] = field(default_factory=dict)  # ours, read elsewhere
    readers: Mapping[str, Collection[str]] = field(default_factory=dict)  # operators here, by input
    entered_at: Mapping[str, str] = field(default_factory=dict)  # base stream: its delegation node
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of operators elsewhere


@dataclass(frozen=True, slots=True)
class RunningFragment:
    """Operators that move as one, each after those it reads; named by the last."""

    operators: tuple[RunningOperator, ...]

    @property
    def id(self) -> str:
        return self.operators[-1].id

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(operator.id for operator in self.operators)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Streams from outside the fragment, each once."""
        own = set(self.names)
        found = (s for operator in self.operators for s in operator.inputs if s not in own)
        return tuple(dict.fromkeys(found))


def running_fragments(
    operators: Sequence[RunningOperator], rows: Mapping[str, float]
) -> tuple[RunningFragment, ...]:
    """Cuts what runs here into fragments.

    >>> filters = RunningOperator("o:f", ("s:a",), 0.1)
    >>> join = RunningOperator("o:j", ("o:f", "o:g"), 0.2)
    >>> other = RunningOperator("o:g", ("s:b",), 0.1)
    >>> cut = running_fragments([filters, other, join], {"o:f": 10.0, "o:g": 3.0})
    >>> [fragment.names for fragment in cut]
    [('o:g',), ('o:f', 'o:j')]
    """
    graph = OperatorGraph(operators)
    parts: dict[str, list[RunningOperator]] = {}  # by the operator on top
    for operator in graph.by_depth():
        most = _most(operator.inputs, rows)
        if most in parts and len(graph.consumers(most)) == 1:
            parts[operator.id] = [*parts.pop(most), operator]
        else:
            parts[operator.id] = [operator]
    return tuple(RunningFragment(tuple(part)) for part in parts.values())


def _most(streams: Sequence[str], rows: Mapping[str, float]) -> str:
    return max(streams, key=lambda stream: rows.get(stream, 0.0)) if streams else ""


def view(fragment: RunningFragment, around: Surroundings) -> FragmentView:
    """A fragment as the selection sees it."""
    queries = sorted({query for o in fragment.operators for query in o.queries})
    return FragmentView(
        fragment.id,
        sum(operator.load for operator in fragment.operators),
        sum(operator.state_bytes for operator in fragment.operators),
        around.entered_at.get(base_of(fragment, around), around.me),
        tuple(sorted(_neighbours(fragment, around))),
        queries[0] if queries else "",
        max(operator.ratio for operator in fragment.operators),
        tuple((operator.job, operator.alone) for operator in fragment.operators if operator.job),
    )


def base_of(fragment: RunningFragment, around: Surroundings) -> str:
    """The base stream that a fragment stands on: down by the inputs with most rows."""
    known = {**around.inputs, **{o.id: o.inputs for o in fragment.operators}}
    stream, seen = fragment.id, set[str]()
    while not stream.startswith(BASE) and stream in known and stream not in seen:
        seen.add(stream)
        stream = _most(known[stream], around.rows)
    return stream


def _neighbours(fragment: RunningFragment, around: Surroundings) -> set[str]:
    """Where those run that it exchanges rows with; base streams are no fragments."""
    own = set(fragment.names)
    places = {around.made_at.get(s, around.me) for s in fragment.inputs if not s.startswith(BASE)}
    for name in fragment.names:
        places.update(around.read_at.get(name, ()))
        if not own.issuperset(around.readers.get(name, ())):
            places.add(around.me)
    return places


def neighbours(views: Sequence[FragmentView], me: str) -> tuple[str, ...]:
    """Other processors by how many fragments here have to do with them (neighbouring factor)."""
    factors = Counter(
        place for seen in views for place in {*seen.neighbours_at, seen.native} if place != me
    )
    return by_factor(dict(factors))
