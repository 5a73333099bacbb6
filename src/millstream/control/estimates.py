"""What operators cost and give: measured where they run, from the catalog where they do not.

Rates are bytes a second, CPU is seconds a second. An operator that has not been measured yet is
taken at what was promised when it was admitted; a new one at what others of its kind cost and give
here, or at figures of the engine's own benchmarks (docs/design/0002-engine.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.control.manager_state import ManagerState, OperatorRecord

ROWS_A_SECOND = 1_000.0  # of a stream of which nothing is known
ROW_BYTES = 64
FIXED_CPU = 0.02  # of an operator that has any work: a step costs a tenth of a second
CPU_A_ROW: Mapping[str, float] = {"map": 2e-6, "partial": 4e-6, "combine": 1e-5, "join": 2e-5}
OUT_OF_IN: Mapping[str, float] = {"map": 0.5, "partial": 0.2, "combine": 0.5, "join": 1.0}
CPU_A_ROW_OTHER, OUT_OF_IN_OTHER = 2e-5, 1.0
MEASURED_ROWS_MIN = 1_000  # below, a ratio says nothing


@dataclass(frozen=True, slots=True)
class Estimate:
    """One operator, or one base stream."""

    rows_out: float  # a second
    bytes_out: float
    cpu: float
    measured: bool


def estimates(state: ManagerState, new: Mapping[str, OperatorRecord]) -> dict[str, Estimate]:
    """Of all base streams, all operators that run, and the new ones, by stream id."""
    kinds = _kinds(state)
    found = {record.id: _base(state, record.id) for record in state.streams.values()}
    promised = _promised(state)
    waiting = {**state.operators, **new}
    while waiting:
        ready = [
            o for o in waiting.values() if all(i in found or i not in waiting for i in o.inputs)
        ]
        if not ready:
            break  # a circle, which the plans' own check tells
        for operator in ready:
            found[operator.id] = _operator(state, operator, found, kinds, promised)
            del waiting[operator.id]
    return found


def _base(state: ManagerState, stream: str) -> Estimate:
    figures = state.statistics.streams.get(stream)
    rows = figures.rates.get("rows", 0.0) if figures else 0.0
    held = figures.values if figures else {}
    width = held["bytes"] / held["rows"] if held.get("rows") and held.get("bytes") else ROW_BYTES
    if rows > 0:
        return Estimate(rows, rows * width, 0.0, measured=True)
    table = state.streams[stream.removeprefix("s:")].table
    declared = table.get("rate")
    rows = float(declared) if isinstance(declared, int | float) else ROWS_A_SECOND
    return Estimate(rows, rows * width, 0.0, measured=False)


def _operator(
    state: ManagerState,
    operator: OperatorRecord,
    known: Mapping[str, Estimate],
    kinds: Mapping[str, tuple[float, float]],
    promised: Mapping[str, Estimate],
) -> Estimate:
    width = operator.row_bytes or ROW_BYTES
    figures = state.statistics.operators.get(operator.id)
    if figures is not None and figures.rates.get("rows_in", 0.0) > 0:
        rows = figures.rates.get("rows_out", 0.0)
        return Estimate(rows, rows * width, figures.rates.get("seconds", 0.0), measured=True)
    if operator.id in promised:
        return promised[operator.id]
    rows_in = sum(known[i].rows_out for i in operator.inputs if i in known)
    cpu_a_row, out_of_in = kinds.get(
        operator.kind,
        (
            CPU_A_ROW.get(operator.kind, CPU_A_ROW_OTHER),
            OUT_OF_IN.get(operator.kind, OUT_OF_IN_OTHER),
        ),
    )
    rows = rows_in * out_of_in
    return Estimate(rows, rows * width, FIXED_CPU + rows_in * cpu_a_row, measured=False)


def _kinds(state: ManagerState) -> dict[str, tuple[float, float]]:
    """CPU seconds a row and rows out of rows in, of each kind of operator that runs here."""
    sums: dict[str, list[float]] = {}
    for name, figures in state.statistics.operators.items():
        record = state.operators.get(name)
        if record is not None:
            total = sums.setdefault(record.kind, [0.0, 0.0, 0.0])
            for place, key in enumerate(("rows_in", "rows_out", "seconds")):
                total[place] += figures.values.get(key, 0.0)
    return {
        kind: (seconds / rows_in, rows_out / rows_in)
        for kind, (rows_in, rows_out, seconds) in sums.items()
        if rows_in >= MEASURED_ROWS_MIN
    }


def _promised(state: ManagerState) -> dict[str, Estimate]:
    """What admitted queries were taken at, for operators that have not been measured."""
    found: dict[str, Estimate] = {}
    for query in state.queries.values():
        for name, told in dict(query.admission.get("estimates", {})).items():
            rows, size, cpu = (float(v) for v in told)
            found[name] = Estimate(rows, size, cpu, measured=False)
    return found
