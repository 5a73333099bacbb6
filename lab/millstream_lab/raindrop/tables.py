"""Experiments raindrop-t1.1, raindrop-t1.2 and raindrop-1.3: the seed's first example.

Table 1.1 comes out exactly. Table 1.2 does so only if the source queue holds at most one tuple:
uncapped, MTIQ never runs O3 (an erratum of the seed). Section 1.3 calls MTIQ 'Greedy'.
"""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.decide.schedule import Scheduler, ScheduleSettings
from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, MissingError, Row, Rows, about, at_most, chosen, numbers
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress
from millstream_lab.raindrop.pages import PageLine

# Table 1.1 as printed: (time, queue of FIFO, of MTIQ, throughput of FIFO, of MTIQ).
TABLE_1_1 = (
    (0, 1.0, 1.0, 0.0, 0.0),
    (1, 1.9, 1.9, 0.0, 0.0),
    (2, 2.0, 2.8, 0.09, 0.0),
    (3, 2.9, 1.9, 0.09, 0.0),
    (4, 3.0, 1.9, 0.18, 0.0),
    (5, 3.9, 1.9, 0.18, 0.0),
)


def page_line(algorithm: str, *, rate: float = 1.0, queue_max: float | None = None) -> PageLine:
    settings = ScheduleSettings(candidates=(algorithm,), selector="fixed", rows_max=1)
    return PageLine(Scheduler(settings), rate=lambda _: rate, first_queue_max=queue_max)


def _rows(name: str, line: PageLine, until: int) -> list[dict[str, object]]:
    return [
        {
            "variant": name,
            "time": reading.time,
            "queue_O1": round(reading.queues[0], 9),
            "queue_O2": round(reading.queues[1], 9),
            "queue_O3": round(reading.queues[2], 9),
            "queued": round(reading.queued, 9),
            "throughput": round(reading.throughput, 9),
        }
        for reading in line.run(until)
    ]


CAPPED = "mtiq, source queue capped at 1"
UNITS_1_2 = 2000
TABLE_1_1_END = 20
THINNED = 20  # later on every so many units are stored


def run_table_1_1(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001
    return [row for name in ("fifo", "mtiq") for row in _rows(name, page_line(name), 20)]


def _different(rows: Rows) -> float:
    """How many of the 24 numbers differ from the printed ones."""
    return float(
        sum(
            numbers(rows, column, variant=variant, time=time)[0] != figure
            for time, fifo_queue, mtiq_queue, fifo_out, mtiq_out in TABLE_1_1
            for variant, column, figure in (
                ("fifo", "queued", fifo_queue), ("mtiq", "queued", mtiq_queue),
                ("fifo", "throughput", fifo_out), ("mtiq", "throughput", mtiq_out),
            )
        )
    )  # fmt: skip


def run_table_1_2(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001
    lines = {
        "fifo": page_line("fifo"),
        "mtiq": page_line("mtiq"),
        CAPPED: page_line("mtiq", queue_max=1.0),
    }
    return [
        row
        for name, line in lines.items()
        for row in _rows(name, line, UNITS_1_2)
        if float(str(row["time"])) <= 100 or float(str(row["time"])) % THINNED == 0
    ]


def _rate(variant: str) -> Callable[[Rows], float]:
    """Tuples a unit, over the whole run."""

    def rate(rows: Rows) -> float:
        last = chosen(rows, variant=variant)[-1]
        return float(last["throughput"]) / float(last["time"])

    return rate


def _first_output(rows: Rows) -> float:
    mine = chosen(rows, variant=CAPPED)
    times = [float(row["time"]) for row in mine if float(row["throughput"]) > 0]
    if not times:
        raise MissingError("an output")
    return min(times)


def _never_runs(rows: Rows) -> str:
    """Which queues MTIQ leaves, where it gives nothing."""
    last = chosen(rows, variant="mtiq")[-1]
    queues = ", ".join(f"{name} {last[f'queue_{name}']:g}" for name in ("O1", "O2", "O3"))
    return f"queues after {last['time']} units: {queues}"


def run_section_1_3(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001
    until = 100 if quick else 400
    lines = {name: page_line(name, rate=2.0) for name in ("fifo", "mtiq")}
    return [row for name, line in lines.items() for row in _rows(name, line, until)]


def _beyond_o1(rows: Rows) -> float:
    """What came out of O2 or O3 under MTIQ."""
    last = chosen(rows, variant="mtiq")[-1]
    return float(last["queue_O3"]) + float(last["throughput"])


def _growth(rows: Rows, variant: str) -> float:
    last = chosen(rows, variant=variant)[-1]
    return float(last["queued"]) / float(last["time"])


TABLE_CLAIMS: dict[str, tuple[Claim, ...]] = {
    "raindrop-t1.1": (
        Claim(
            "table 1.1: queue sizes and throughput of FIFO and MTIQ at times 0 to 5",
            about("numbers of 24 that differ", _different, 0),
            beside=lambda rows: f"{24 - _different(rows):.0f} of 24 numbers equal",
        ),
    ),
    "raindrop-t1.2": (
        Claim(
            "table 1.2: FIFO outputs 0.045 tuples a unit",
            about("tuples a unit", _rate("fifo"), 0.045, 0.001),
        ),
        Claim(
            "table 1.2: MTIQ outputs 0.07 tuples a unit (O1's queue capped at one tuple, which the "
            "seed does not mention)",
            about("tuples a unit", _rate(CAPPED), 0.07, 0.002),
        ),
        Claim(
            "table 1.2: MTIQ's first output comes after about 14 units (capped)",
            about("time of the first output", _first_output, 14, 2),
            why=lambda rows: (
                "O3's queue holds a whole tuple from time "
                f"{min(r['time'] for r in rows if r['variant'] == CAPPED and r['queue_O3'] >= 1)} "
                "on"
            ),
        ),
        Claim(
            "table 1.2: MTIQ outputs 0.07 tuples a unit (as printed, without a cap)",
            about("tuples a unit", _rate("mtiq"), 0.07, 0.002),
            why=_never_runs,
        ),
    ),
    "raindrop-1.3": (
        Claim(
            "section 1.3, two tuples a unit: Greedy (that is, MTIQ) runs O1 only",
            about("tuples that any other operator gave", _beyond_o1, 0),
        ),
        Claim(
            "its queues grow much more slowly than FIFO's",
            at_most("growth of MTIQ's queues over that of FIFO's",
                    lambda rows: _growth(rows, "mtiq") / _growth(rows, "fifo"), 0.5),
            beside=lambda rows: (
                f"tuples a unit: MTIQ {_growth(rows, 'mtiq'):.3f}, FIFO {_growth(rows, 'fifo'):.3f}"
            ),
            why=lambda rows: (
                "under MTIQ "
                f"{float(chosen(rows, variant='mtiq')[-1]['throughput']):g} tuples left the plan, "
                f"under FIFO {float(chosen(rows, variant='fifo')[-1]['throughput']):g}"
            ),
        ),
    ),
}  # fmt: skip


def _star(axis: Any, x: float, y: float, text: str, place: int) -> None:
    shape = "*" if place == 1 else "P"
    axis.plot([x], [y], shape, color="black", markersize=7, label=f"seed: {text}" if text else None)


def plot_lines(rows: Sequence[Row], figure: Any) -> None:
    """Queue sizes over time on the left, throughput on the right."""
    left, right = figure.subplots(1, 2)
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        times = [row["time"] for row in mine]
        left.plot(times, [row["queued"] for row in mine], label=str(variant))
        right.plot(times, [row["throughput"] for row in mine], label=str(variant))
    if max(row["time"] for row in rows) <= TABLE_1_1_END:
        for place, name in ((1, "FIFO"), (2, "MTIQ")):
            for line in TABLE_1_1:
                text = f"table 1.1, {name}" if line[0] == 0 else ""
                _star(left, line[0], line[place], text, place)
                _star(right, line[0], line[place + 2], text, place)
    for axis, name in ((left, "tuples in queues"), (right, "tuples output")):
        axis.set_xlabel("time units")
        axis.set_ylabel(name)
    mark_claim(left, "MTIQ keeps queues smaller, outputs late")
    right.legend()


for _name, _title, _run in (
    ("raindrop-t1.1", "table 1.1: FIFO and MTIQ on three filters, time 0 to 5", run_table_1_1),
    ("raindrop-t1.2", "table 1.2: output rates of FIFO and MTIQ", run_table_1_2),
    ("raindrop-1.3", "section 1.3: two tuples a unit, MTIQ never delivers", run_section_1_3),
):
    EXPERIMENTS.add(
        _name,
        Experiment(
            _name, _title, "raindrop", _run, plot_lines, TABLE_CLAIMS[_name],
            ("queue_O1", "queue_O2", "queue_O3", "queued", "throughput"),
        ),
    )  # fmt: skip
