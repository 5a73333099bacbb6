"""`millstream bench live`: delay, pace and cost of live rows, ours beside others, by turns.

Others are plain Structured Streaming and, with `--peer flink`, Flink's statement set.

- *delay*: so many queries at so many rows a second in each of two streams.
- *sustained*: the highest rate that a side keeps up, found by doubling and then halving the step.

A side keeps up where all rows go out on time and the delay of the last third of the time is that of
the first. Rows of some queries are compared with DuckDB's over all that was sent.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from millstream.core.errors import UsageError
from millstream.core.suggestions import did_you_mean
from millstream.spark.session import session as spark_session
from millstream_bench.live import flink
from millstream_bench.live.sides import Load, Trial, ours, plain
from millstream_bench.throughput.flink import flink_python

PARTS = ("delay", "sustained")
FLINK_PARALLELISM = (1, 2)
PLAIN_QUERIES_MAX = 30  # more of them only make a queue that grows
FIRST_RATE, LAST_RATE, HALVINGS = 500, 256_000, 2
Progress = Callable[[str], None]
Side = Callable[[Load], Trial]


@dataclass(frozen=True, slots=True)
class Scale:
    warm_s: float
    seconds: float
    sustained_s: float
    repeats: int


QUICK = Scale(warm_s=4.0, seconds=8.0, sustained_s=6.0, repeats=1)
WHOLE = Scale(warm_s=15.0, seconds=30.0, sustained_s=60.0, repeats=5)


def run(
    *,
    quick: bool = False,
    seed: int = 1,
    queries: str = "1,3,30",
    rates: str = "1000",
    parts: str = "delay",
    peer: str | None = None,
    progress: Progress = print,
) -> dict[str, Any]:
    """All parts that are named, for all numbers of queries."""
    if peer not in (None, "flink"):
        raise UsageError(f"unknown peer {peer!r}", hint="flink")
    scale = QUICK if quick else WHOLE
    if peer is not None:
        flink_python()  # says at once what is missing
    counts, paces = _numbers("queries", queries), _numbers("rates", rates)
    found: dict[str, Any] = {"streams": 2, **asdict(scale)}
    spark_session()
    for part in parts.split(","):
        if part not in PARTS:
            raise UsageError(f"unknown part {part}{did_you_mean(part, PARTS)}")
        found[part] = []
        for count in counts:
            if part == "sustained":
                found[part].append(_sustained(count, scale, seed, peer, progress))
                continue
            for rate in paces:
                load = Load(count, rate, scale.warm_s, scale.seconds, seed)
                found[part].append(_delays(load, scale.repeats, peer, progress))
    return found


def _numbers(option: str, text: str) -> list[int]:
    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"--{option} takes numbers: 1,30,300", detail=f"not {text}")
    return found


def sides_of(count: int, peer: str | None = None) -> dict[str, Side]:
    """Ours, plain where it is no queue that grows, and Flink where it is asked for."""
    sides: dict[str, Side] = {"ours": ours}
    if count <= PLAIN_QUERIES_MAX:
        sides["plain"] = plain
    if peer is not None:
        sides |= {f"flink x{n}": flink.side(n) for n in FLINK_PARALLELISM}
    return sides


# -- delay ----------------------------------------------------------------------------------------


def _delays(load: Load, repeats: int, peer: str | None, progress: Progress) -> dict[str, Any]:
    sides = sides_of(load.queries, peer)
    trials: dict[str, list[Trial]] = {name: [] for name in sides}
    for number in range(repeats):
        for name, side in sides.items():
            once = Load(load.queries, load.rate, load.warm_s, load.seconds, load.seed + number)
            trials[name].append(side(once))
    figures = {name: together(found) for name, found in trials.items()}
    for name, of_side in figures.items():
        progress(_line(load, name, of_side))
    return {"queries": load.queries, "rows_a_second_each": load.rate, **figures}


def together(trials: list[Trial]) -> dict[str, Any]:
    """Medians of repeated trials, with their ranges."""

    def spread(values: list[float | None]) -> dict[str, float | None]:
        known = [v for v in values if v is not None]
        if not known:
            return {"median": None, "least": None, "most": None}
        found = {"median": median(known), "least": min(known), "most": max(known)}
        return {name: round(value, 3) for name, value in found.items()}

    return {
        "trials": len(trials),
        "kept_up": sum(t.kept_up for t in trials),
        "median_s": spread([t.delay["median_s"] for t in trials]),
        "p95_s": spread([t.delay["p95_s"] for t in trials]),
        "p99_s": spread([t.delay["p99_s"] for t in trials]),
        "cpu_s_a_million_rows": spread([t.cpu_s_a_million for t in trials]),
        "push_ms": spread([t.push_ms for t in trials]),
        "sent_rows": sum(t.sent_rows for t in trials),
        "wanted_rows": sum(t.wanted_rows for t in trials),
        "compared_rows": sum(t.compared_rows for t in trials),
        "different_rows": sum(t.different_rows for t in trials),
    }


def _line(load: Load, side: str, figures: Mapping[str, Any]) -> str:
    delay = "; ".join(
        f"{words} {_spread(figures[key])} s"
        for words, key in (("median", "median_s"), ("95 %", "p95_s"), ("99 %", "p99_s"))
    )
    return (
        f"{load.queries:5} queries, 2 x {load.rate:,} rows/s, {side}: delay {delay}; "
        f"CPU {_spread(figures['cpu_s_a_million_rows'])} s a million rows; "
        f"push {_spread(figures['push_ms'])} ms; kept up in {figures['kept_up']} of "
        f"{figures['trials']}; {figures['different_rows']} of {figures['compared_rows']:,} rows "
        "differ"
    )


def _spread(values: Mapping[str, float | None]) -> str:
    if values["least"] == values["most"]:
        return str(values["median"])
    return f"{values['median']} ({values['least']} to {values['most']})"


# -- sustained ------------------------------------------------------------------------------------


def _sustained(
    count: int, scale: Scale, seed: int, peer: str | None, progress: Progress
) -> dict[str, Any]:
    found: dict[str, Any] = {"queries": count}
    for name, side in sides_of(count, peer).items():

        def keeps_up(rate: int, name: str = name, side: Side = side) -> bool:
            trial = side(Load(count, rate, scale.warm_s, scale.sustained_s, seed))
            words = "kept up" if trial.kept_up else "not kept up"
            progress(
                f"{count:5} queries, 2 x {rate:,} rows/s, {name}: {words}, 95 % "
                f"{trial.delay['p95_s']} s, {trial.different_rows} of {trial.compared_rows:,} "
                "rows differ"
            )
            return trial.kept_up

        found[name] = highest(keeps_up)
        progress(f"{count:5} queries, {name}: 2 x {found[name]:,} rows/s sustained")
    return found


def highest(keeps_up: Callable[[int], bool]) -> int:
    """The highest rate tried that was kept up; 0 where the first is not."""
    kept, rate = 0, FIRST_RATE
    while rate <= LAST_RATE and keeps_up(rate):
        kept, rate = rate, rate * 2
    if kept == 0 or rate > LAST_RATE:
        return kept
    step = kept
    for _ in range(HALVINGS):
        step //= 2
        if keeps_up(kept + step):
            kept += step
    return kept
