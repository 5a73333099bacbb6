"""`millstream bench admission`: does what is admitted keep up, and would twice as much not?

A manager that admits with reuse and one real processor, as processes. Two streams are replayed at
declared rates; queries of three natures are submitted one after another, each taken or refused by
what those before it were measured to cost, until one is refused for want of CPU. The admitted set
then runs for a while: every result must advance as fast as the streams. Then as many queries again
are let in by a placer that refuses nothing, and the same is measured.

How far a result is behind is told in event time: where the streams should be by now, less the
result's watermark. A set keeps up where that stays within two cycles.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from millstream.client.manager_client import ManagerClient
from millstream.control.admission.estimates import CYCLE_S
from millstream.core.errors import MillstreamError
from millstream.edge.peers.local_cluster import LocalCluster
from millstream_bench.cluster.generic_operators import join, unary

Progress = Callable[[str], None]
STREAMS = ("a", "b")
KEYS = 500
EPOCH_S = 1_000_000  # event time of the first row
BEAT_S = 1.0
MEASURED_S_MAX = 20.0  # to wait for figures of a query's steps
MEASURED_STEPS = 6  # of each of its operators, before the next query is judged by them
WARM_STEPS = 12  # of each nature, before anything counts: a new process compiles its code
NATURES = 3
COSTLY_US = 20.0  # of a row that a costly filter lets through
KEEPS_UP = 0.95  # of the streams' pace: less loses ground
BEHIND_S_MAX = 2 * CYCLE_S  # rows wait for their turn, and a round takes a cycle
QUERIES_MAX = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, and how much."""

    rate: int = 1_000  # rows a second of each stream
    slots: int = 2
    refusals: int = 3  # of one query, one after another, until the processor counts as full
    cpu: float | None = None  # the processor's capacity; None: as it says itself
    queries_max: int = QUERIES_MAX
    settle_s: float = 10.0  # before figures are taken: code is compiled, batches find their size
    watch_s: float = 30.0
    rows: int = 600_000  # of each stream: ten minutes


QUICK = Plan(cpu=0.3, queries_max=8, refusals=1, settle_s=3.0, watch_s=6.0, rows=240_000)


@dataclass(slots=True)
class Pace:
    """Where every result stood at each look: seconds since the beginning, seconds behind."""

    at_s: list[float] = field(default_factory=list)
    behind_s: dict[str, list[float]] = field(default_factory=dict)
    source_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """The slowest result: its pace against the streams', and how far behind it was."""
        half = len(self.at_s) // 2
        paces = {
            name: 1.0 - slope(self.at_s[half:], seen[half:]) for name, seen in self.behind_s.items()
        }
        slowest = min(paces, key=lambda name: paces[name])
        last = [max(seen[-3:]) for seen in self.behind_s.values()]
        return {
            "slowest": slowest,
            "pace": round(min(paces.values()), 3),
            "behind_s_end": round(max(last), 2),
            "behind_s_mean": round(fmean(fmean(s[half:]) for s in self.behind_s.values()), 2),
            "source_behind_s_end": round(self.source_s[-1], 2),
        }


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The line of least squares through them: how fast they grow.

    >>> round(slope([0, 1, 2, 3], [5, 5.5, 6, 6.5]), 3)
    0.5
    """
    if len(at) < 2:
        return 0.0
    return float(np.polyfit(np.asarray(at), np.asarray(values), 1)[0])


def run(quick: bool = False, seed: int = 1, progress: Progress = print) -> dict[str, Any]:
    """All figures, ready for JSON."""
    return measure(QUICK if quick else Plan(), seed, progress)


def measure(plan: Plan, seed: int, progress: Progress) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    write_streams(folder, plan.rate, plan.rows, seed)
    cluster = LocalCluster(
        folder / "cluster", 1, spark="local[2]", heap="1g",
        manager_options=("--placer", "sqpr", "--beat", str(BEAT_S), "-q"),
    )  # fmt: skip
    for member in cluster.processors:
        member.arguments += ("--slots", str(plan.slots))
        if plan.cpu is not None:
            member.arguments += ("--property", f"cpu={plan.cpu}")
    try:
        progress("starting a manager and a processor")
        cluster.start()
        return _compare(cluster.client, folder, plan, seed, progress)
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _compare(
    client: ManagerClient, folder: Path, plan: Plan, seed: int, progress: Progress
) -> dict[str, Any]:
    began = begin(client, folder, plan.rate)
    wishes = queries(seed)
    warm_up(client, wishes[-NATURES:])
    admitted, refusal = fill(client, wishes[: plan.queries_max], progress, plan.refusals)
    (processor,) = client.status()["processors"].values()
    figures: dict[str, Any] = {
        "rate_rows_s": plan.rate, "streams": len(STREAMS), "slots": plan.slots,
        "capacity": processor["properties"].get("cpu"), "cycle_s": CYCLE_S,
        "admitted": len(admitted), "refusal": refusal,
        "promised_cpu": [round(a["admission"]["cpu"], 4) for a in admitted],
    }  # fmt: skip
    names = [str(a["name"]) for a in admitted]
    progress(f"{len(names)} queries admitted; {refusal or 'none was refused'}")
    figures["admitted_set"] = _watched(client, names, began, plan)
    progress(told("the admitted set", figures["admitted_set"]))
    client.change({"placer": "pattern"})
    for name, cql in wishes[len(names) : 2 * len(names)]:
        client.submit(name, cql, wait_s=120.0)
        names.append(name)
    figures["twice"] = _watched(client, names, began, plan)
    progress(told("twice as many", figures["twice"]))
    figures["targets"] = targets(figures)
    for target in figures["targets"]:
        progress(f"{'met' if target['met'] else 'NOT MET'}: {target['what']}")
    return figures


def targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    mine, twice = figures["admitted_set"], figures["twice"]
    return [
        {"what": "a query was refused for want of CPU", "met": bool(figures["refusal"])},
        {
            "what": "results of the admitted set stay near their streams, s behind at the end",
            "measured": mine["behind_s_end"], "target": f"<= {BEHIND_S_MAX:g}",
            "met": mine["behind_s_end"] <= BEHIND_S_MAX,
        },
        {
            "what": "those of twice as many do not, and lose ground",
            "measured": twice["behind_s_end"], "target": f"> {BEHIND_S_MAX:g}",
            "met": twice["behind_s_end"] > BEHIND_S_MAX and twice["pace"] < KEEPS_UP,
        },
    ]  # fmt: skip


def told(what: str, found: dict[str, Any]) -> str:
    return (
        f"{what}: the slowest result advances at {found['pace']:.2f} of the streams' pace and is"
        f" {found['behind_s_end']:.1f} s behind at the end; CPU by estimate {found['cpu']:.2f}"
    )


# -- input --------------------------------------------------------------------------------------


def write_streams(folder: Path, rate: int, rows: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for name in STREAMS:
        table = pa.table(
            {
                "at": EPOCH_S * 1000 + (np.arange(rows) * 1000) // rate,
                "k": chance.integers(0, KEYS, rows, dtype=np.int32),
                "v": np.round(chance.random(rows) * 100, 3),
            }
        )
        pacsv.write_csv(table, folder / f"{name}.csv", pacsv.WriteOptions(include_header=False))


def table_of(name: str, folder: Path, rate: int) -> dict[str, Any]:
    return {
        "name": name, "path": str(folder / f"{name}.csv"), "rate": rate,
        "columns": {"at": "long", "k": "int", "v": "double"}, "time": "timestamp_millis(at)",
    }  # fmt: skip


def queries(seed: int) -> list[tuple[str, str]]:
    """Joins, sliding aggregates and costly filters by turns; none is a part of another."""
    chance = np.random.default_rng(seed + 1)
    found = []
    for number in range(2 * QUERIES_MAX + NATURES):
        selectivity = round(float(chance.uniform(0.2, 0.8)), 3)
        natures = (
            join("a", "b", "1 SECOND", selectivity, number),
            f"SELECT k % {number + 2} AS g, avg(v) AS mean, count(*) AS n"
            f" FROM b [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k % {number + 2}",
            unary("a", COSTLY_US, selectivity, number),
        )
        found.append((f"q{number:03}", natures[number % NATURES]))
    return found


# -- measuring ----------------------------------------------------------------------------------


def begin(client: ManagerClient, folder: Path, rate: int) -> float:
    """Lets the streams flow; when that was by the wall clock, as far as event time tells."""
    for name in STREAMS:
        client.declare(table_of(name, folder, rate), processor="p1")
    client.start_streams()
    while True:
        marks = [_mark(s["figures"].get("watermark_us")) for s in client.streams().values()]
        if all(mark > 0 for mark in marks):
            return time.time() - min(marks)
        time.sleep(0.1)


def _mark(watermark_us: float | None) -> float:
    """Seconds of event time since the first row."""
    return -1.0 if watermark_us is None else max(-1.0, watermark_us / 1e6 - EPOCH_S)


def warm_up(client: ManagerClient, wishes: Sequence[tuple[str, str]]) -> None:
    """A query of each nature for a while: what follows finds a processor as it is after minutes."""
    client.change({"placer": "pattern"})
    for name, cql in wishes:
        client.submit(name, cql, wait_s=120.0)
    for name, _ in wishes:
        _wait_until_measured(client, name, WARM_STEPS)
        client.drop(name, wait_s=30.0)
    client.change({"placer": "sqpr"})


def fill(
    client: ManagerClient, wishes: Sequence[tuple[str, str]], progress: Progress,
    refusals: int = 1, measured_s_max: float = MEASURED_S_MAX,
) -> tuple[list[dict[str, Any]], str]:  # fmt: skip
    """Submits until one is refused: those that were taken, and what was said of the other."""
    admitted: list[dict[str, Any]] = []
    for name, cql in wishes:
        for attempt in range(1, refusals + 1):
            try:
                answer = client.submit(name, cql, wait_s=120.0)
                break
            except MillstreamError as error:
                if attempt == refusals:
                    return admitted, error.message
                progress(f"{name}: {error.message}")
                time.sleep(2 * CYCLE_S)  # what is full for a moment may have room again
        admitted.append(answer)
        progress(f"{name}: {answer['admission']['sentence']}")
        _wait_until_measured(client, name, MEASURED_STEPS, measured_s_max)
    return admitted, ""


def _wait_until_measured(
    client: ManagerClient, name: str, steps: int, seconds_max: float = MEASURED_S_MAX
) -> None:
    """What follows is to know what this query costs."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        known = [o["figures"] for o in client.query(name)["operators"]]
        if all("fixed_s" in f and f["steps"] >= steps for f in known):
            return
        time.sleep(0.2)


def behind(
    client: ManagerClient, names: Sequence[str], began: float
) -> tuple[float, dict[str, float], float]:
    """Now, by event time: where the streams should be, how far results and sources are behind."""
    due = time.time() - began
    marks = {q["name"]: _mark(q["watermark_us"]) for q in client.queries()}
    heads = [_mark(s["figures"].get("watermark_us")) for s in client.streams().values()]
    return due, {name: due - marks[name] for name in names}, due - min(heads)


def _watched(
    client: ManagerClient, names: Sequence[str], began: float, plan: Plan
) -> dict[str, Any]:
    """The pace of all results, after they have had time to find theirs."""
    time.sleep(plan.settle_s)
    pace = Pace(behind_s={name: [] for name in names})
    deadline = time.monotonic() + plan.watch_s
    while time.monotonic() < deadline:
        due, results, source = behind(client, names, began)
        pace.at_s.append(due)
        pace.source_s.append(source)
        for name, seconds in results.items():
            pace.behind_s[name].append(seconds)
        time.sleep(BEAT_S)
    return {
        **pace.figures(), "queries": len(names), "cpu": round(_cpu(client), 3),
        "costs": _costs(client),
    }  # fmt: skip


def _costs(client: ManagerClient) -> dict[str, list[float]]:
    """Fixed milliseconds of a step and microseconds of a row, means by kind of operator."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for operator in client.placement()["operators"]:
        known = operator["figures"]
        if "fixed_s" in known:
            line = (known["fixed_s"] * 1e3, known["row_s"] * 1e6)
            kinds.setdefault(str(operator["kind"]), []).append(line)
    return {
        kind: [round(fmean(f for f, _ in seen), 1), round(fmean(r for _, r in seen), 2)]
        for kind, seen in kinds.items()
    }


def _cpu(client: ManagerClient) -> float:
    """What the rows that operators did see take, by the costs that were measured."""
    total = 0.0
    for operator in client.placement()["operators"]:
        known = operator["figures"]
        rows = known.get("rows_in_per_s", 0.0)
        total += known.get("fixed_s", 0.0) / CYCLE_S + known.get("row_s", 0.0) * rows
    return total
