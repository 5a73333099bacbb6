"""What operators cost and give: measured where they run, from the catalog where they do not.

Rates are bytes a second, CPU is seconds of steps a second. A step costs a fixed part, whatever its
rows, and a part for each row. An engine with much to do makes larger batches, so that its steps'
seconds say how busy it is and not how much more it could do; what counts is the load at which every
operator still runs once in a cycle: fixed / cycle + row * rows a second.

Rows a second follow from the base streams downwards by measured selectivities. An operator that has
not been measured yet is taken at what was promised when it was admitted; a new one at what others
of its family (one job) or kind cost and give here, or at figures of the engine's own benchmarks
(docs/design/0002-engine.md).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean

from millstream.control.manager.state import Figures, ManagerState, OperatorRecord
from millstream.core.operator_graph import OperatorGraph

ROWS_A_SECOND = 1_000.0  # of a stream of which nothing is known
ROW_BYTES = 64
CYCLE_S = 5.0  # within which every operator is to run: how late a full processor may be
FIXED_S = 0.1  # of a step, and for each row:
ROW_S: Mapping[str, float] = {"map": 2e-6, "partial": 4e-6, "combine": 1e-5, "join": 2e-5}
OUT_OF_IN: Mapping[str, float] = {"map": 0.5, "partial": 0.2, "combine": 0.5, "join": 1.0}
ROW_S_OTHER, OUT_OF_IN_OTHER = 2e-5, 1.0
INGEST_ROW_S = 4e-6  # of a row that enters: parsed, checked, written
MEASURED_ROWS_MIN = 1_000  # below, a ratio says nothing


@dataclass(frozen=True, slots=True)
class Estimate:
    """One operator, or one base stream."""

    rows_out: float  # a second
    bytes_out: float
    cpu: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a step: for any, and for each row."""

    fixed_s: float
    row_s: float

    def cpu(self, rows_a_second: float) -> float:
        return self.fixed_s / CYCLE_S + self.row_s * rows_a_second

    def times(self, factor: float) -> "Cost":
        return Cost(self.fixed_s * factor, self.row_s * factor)


@dataclass(slots=True)
class Experience:
    """What running operators of a family or kind have shown."""

    fixed_s: list[float] = field(default_factory=list)  # of whole jobs for a kind
    row_s: list[float] = field(default_factory=list)
    rows_in: float = 0.0
    rows_out: float = 0.0

    @property
    def out_of_in(self) -> float | None:
        return self.rows_out / self.rows_in if self.rows_in >= MEASURED_ROWS_MIN else None


# By family, and by kind.
Experiences = tuple[Mapping[str, Experience], Mapping[str, Experience]]


def estimates(state: ManagerState, new: Mapping[str, OperatorRecord]) -> dict[str, Estimate]:
    """Of all base streams, all operators that run, and the new ones, by stream id."""
    experienced = experience(state)
    found = {record.id: _base(state, record.id) for record in state.streams.values()}
    promised = _promised(state)
    graph = OperatorGraph({**state.operators, **new}.values())
    for operator in graph.by_depth():  # one in a circle is left out; the plans' own check tells it
        rows_in = sum(found[i].rows_out for i in operator.inputs if i in found)
        figures = state.statistics.operators.get(operator.id)
        measured = _measured(operator, figures, rows_in)
        found[operator.id] = (
            measured or promised.get(operator.id) or _expected(operator, rows_in, experienced())
        )
    return found


def cpu_of(
    state: ManagerState,
    known: Mapping[str, Estimate],
    operator: OperatorRecord,
    experienced: Callable[[], Experiences],
) -> float:
    """What one way to compute a stream costs; what the stream carries is known."""
    rows_in = sum(known[i].rows_out for i in operator.inputs if i in known)
    cost = _cost(state.statistics.operators.get(operator.id))
    if cost is not None:
        return cost.cpu(rows_in)
    return _expected(operator, rows_in, experienced()).cpu


def _base(state: ManagerState, stream: str) -> Estimate:
    """The rate at which a stream comes: as measured, but never less than was declared.

    Over the last while, because rows come in bursts; and a source that is held up by a processor
    with too much to do looks slow.
    """
    figures = state.statistics.streams.get(stream)
    seen = figures.steady.get("rows", figures.rates.get("rows", 0.0)) if figures else 0.0
    held = figures.values if figures else {}
    width = held["bytes"] / held["rows"] if held.get("rows") and held.get("bytes") else ROW_BYTES
    declared = state.streams[stream.removeprefix("s:")].table.get("rate")
    promised = float(declared) if isinstance(declared, int | float) else 0.0
    rows = max(seen, promised) or ROWS_A_SECOND
    return Estimate(rows, rows * width, rows * INGEST_ROW_S, measured=seen > 0)


def _measured(operator: OperatorRecord, figures: Figures | None, rows_in: float) -> Estimate | None:
    """By what its own steps have cost and given; None where too few have run."""
    cost = _cost(figures)
    if figures is None or cost is None or figures.values.get("rows_in", 0.0) <= 0:
        return None
    rows = rows_in * figures.values.get("rows_out", 0.0) / figures.values["rows_in"]
    return Estimate(rows, rows * (operator.row_bytes or ROW_BYTES), cost.cpu(rows_in), True)


def _cost(figures: Figures | None) -> Cost | None:
    """As the processor has measured it, or from what all steps together have taken."""
    if figures is None:
        return None
    values = figures.values
    if "fixed_s" in values and "row_s" in values:
        return Cost(values["fixed_s"], values["row_s"])
    steps, rows, seconds = (values.get(k, 0.0) for k in ("steps", "rows_in", "seconds"))
    if not steps or rows < MEASURED_ROWS_MIN:
        return None
    fixed = min(FIXED_S, seconds / steps)
    return Cost(fixed, (seconds - fixed * steps) / rows)


def _expected(
    operator: OperatorRecord,
    rows_in: float,
    experienced: Experiences,
) -> Estimate:
    """One of which nothing is known but what it is like."""
    families, kinds = experienced
    kin = families.get(str(operator.properties.get("family", "")))
    kin = kin if kin and kin.fixed_s else None
    alike = kin or kinds.get(operator.kind)
    row_s = ROW_S.get(operator.kind, ROW_S_OTHER)
    ratio = alike.out_of_in if alike else None
    if ratio is None:
        ratio = OUT_OF_IN.get(operator.kind, OUT_OF_IN_OTHER)
    if alike and alike.fixed_s:
        # a job of its own reads all rows itself, so that it costs no less than the catalog says
        least = 0.0 if kin else row_s
        cost = Cost(fmean(alike.fixed_s), max(least, fmean(alike.row_s)))
    else:
        cost = Cost(FIXED_S, row_s)
    cost = cost.times(pairs_joined(operator))
    rows = rows_in * ratio
    return Estimate(rows, rows * (operator.row_bytes or ROW_BYTES), cost.cpu(rows_in), False)


def pairs_joined(operator: OperatorRecord) -> int:
    """How many times the work of a join of two streams: a step joins the new rows of each of n
    streams with what the others have, n - 1 joins for each."""
    count = len(operator.inputs)
    return max(1, count * (count - 1) // 2) if operator.kind == "join" else 1


def experience(state: ManagerState) -> Callable[[], Experiences]:
    """What running operators have shown, worked out when somebody asks for it."""
    return cache(lambda: _experiences(state))


def _experiences(state: ManagerState) -> Experiences:
    """Of each family its members; of each kind whole jobs: a new one pays all of the fixed part."""
    families: dict[str, Experience] = {}
    kinds: dict[str, Experience] = {}
    jobs: dict[tuple[str, str], float] = {}
    for name, figures in state.statistics.operators.items():
        record = state.operators.get(name)
        if record is None:
            continue
        cost = _cost(figures)
        cost = None if cost is None else cost.times(1 / pairs_joined(record))
        family = str(record.properties.get("family", ""))
        for table, key in ((families, family), (kinds, record.kind)):
            if key:
                _learn(table.setdefault(key, Experience()), figures, cost)
        if cost is not None:
            job = (record.kind, family or name)
            jobs[job] = jobs.get(job, 0.0) + cost.fixed_s
    for kind, known in kinds.items():
        known.fixed_s = [fixed for (of, _), fixed in jobs.items() if of == kind]
    return families, kinds


def _learn(known: Experience, figures: Figures, cost: Cost | None) -> None:
    known.rows_in += figures.values.get("rows_in", 0.0)
    known.rows_out += figures.values.get("rows_out", 0.0)
    if cost is not None:
        known.fixed_s.append(cost.fixed_s)
        known.row_s.append(cost.row_s)


def _promised(state: ManagerState) -> dict[str, Estimate]:
    """What admitted queries were taken at, for operators that have not been measured."""
    found: dict[str, Estimate] = {}
    for query in state.queries.values():
        for name, told in dict(query.admission.get("estimates", {})).items():
            rows, size, cpu = (float(v) for v in told)
            found[name] = Estimate(rows, size, cpu, measured=False)
    return found


def ingest_cpu(
    state: ManagerState, known: Mapping[str, Estimate], processors: Iterable[str]
) -> dict[str, float]:
    """Seconds a second that taking in the rows of base streams costs, by processor."""
    found = dict.fromkeys(processors, 0.0)
    for stream in state.streams.values():
        if stream.processor in found and stream.start_wanted and stream.id in known:
            found[stream.processor] += known[stream.id].cpu
    return found
