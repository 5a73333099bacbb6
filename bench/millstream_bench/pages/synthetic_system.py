"""A made-up system of any size behind the dashboard's contract.

For measuring pages and for trying them without Spark: streams, queries that share operators,
processors, decisions, one query that is far behind because of one join, one that has failed.
Deterministic given the seed and the number of snapshots taken; nothing runs.
"""

import math
import time
from dataclasses import replace
from random import Random

from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.diagnosis import cause_of, costs_of
from millstream.control.snapshot.model import (
    Admission,
    Connection,
    DecisionSnapshot,
    EdgeSnapshot,
    ErrorSnapshot,
    Explanation,
    GoalSnapshot,
    OperatorSnapshot,
    Overview,
    PlannedOperator,
    ProcessorSnapshot,
    QuerySnapshot,
    Results,
    ScorePoint,
    Snapshot,
    StreamSnapshot,
)
from millstream.core.errors import CqlError, UsageError

KINDS = ("map", "join", "partial", "combine")
ALGORITHMS = ("chain", "fifo", "greedy")
SLOW = "query 7"
FAILED = "query 3"
STARTED = 1_700_000_000.0  # a fixed moment: what is made up is the same every time


class SyntheticSystem:
    """Implements `SnapshotSource`."""

    def __init__(
        self,
        queries: int = 500,
        operators: int = 2000,
        processors: int = 5,
        streams: int = 20,
        seed: int = 1,
    ) -> None:
        self._random = Random(seed)
        self._names = [f"query {n}" for n in range(1, queries + 1)]
        self._processors = [f"processor-{n}" for n in range(1, processors + 1)]
        self._streams = [f"s:stream_{n}" for n in range(1, streams + 1)]
        self._decisions: list[DecisionSnapshot] = []
        self._number = 0
        self.restarted = False
        self._scores: list[ScorePoint] = []
        self._paused: set[str] = set()
        self._draining: set[str] = set()
        self._build(operators)
        for name in self._names[-20:]:
            self._decide("admission", f"query {name} was taken", "2 operators are new", name)

    def _build(self, count: int) -> None:
        """Layers of operators, each fed by one or two of those before it."""
        random = self._random
        self._operators: dict[str, OperatorSnapshot] = {}
        self._edges: list[tuple[str, str]] = []
        ids = [f"o:{n:05d}" for n in range(count)]
        for number, name in enumerate(ids):
            layer = number * 4 // max(1, count)
            kind = KINDS[layer]
            below = ids[count * (layer - 1) // 4 : count * layer // 4] if layer else self._streams
            inputs = random.sample(below, min(len(below), 2 if kind == "join" else 1))
            self._edges += [(source, name) for source in inputs]
            self._operators[name] = OperatorSnapshot(
                name,
                kind,
                f"{kind} {name[2:]}",
                self._processors[number * len(self._processors) // count],
                text=f"{kind} on host = host within 5 minutes",
                steps=10,
            )
        feeds: dict[str, list[str]] = {}
        for source, target in self._edges:
            feeds.setdefault(target, []).append(source)
        self._needs: dict[str, tuple[str, ...]] = {}
        users: dict[str, list[str]] = {}
        last = ids[count * 3 // 4 :] or ids
        for number, query in enumerate(self._names):
            needed = _upstream(last[number % len(last)], feeds)
            self._needs[query] = needed
            for each in needed:
                users.setdefault(each, []).append(query)
        for name, operator in self._operators.items():
            self._operators[name] = replace(operator, queries=tuple(users.get(name, ())))

    # -- what happens ---------------------------------------------------------------------------

    def _decide(self, kind: str, sentence: str, reason: str, subject: str = "") -> DecisionSnapshot:
        made = DecisionSnapshot(
            len(self._decisions) + 1,
            time.time(),
            kind,
            sentence,
            reason,
            "query" if subject in self._names else "operator" if subject else "",
            subject,
            (subject,) if kind == "move" else (),
        )
        self._decisions.append(made)
        return made

    def _advance(self) -> None:
        self._number += 1
        if self._number % 10 == 0 and len(self._processors) > 1:
            self._move()
        scores = {
            name: 0.5 + 0.4 * math.sin(self._number / 9 + 2 * i)
            for i, name in enumerate(ALGORITHMS)
        }
        best = max(scores, key=lambda n: scores[n])
        if self._scores and self._scores[-1].algorithm != best:
            self._decide("switch", f"processor-1 schedules by {best}", "it scores best")
        self._scores = [*self._scores, ScorePoint(time.time(), best, scores)][-100:]

    def _move(self) -> None:
        names = list(self._operators)
        name = names[self._random.randrange(len(names))]
        operator = self._operators[name]
        at = self._processors.index(operator.processor)
        to = self._processors[(at + 1) % len(self._processors)]
        self._operators[name] = replace(operator, processor=to)
        self._decide(
            "move",
            f"{operator.label} goes from {operator.processor} to {to}",
            f"{operator.processor} carries 31 % more than {to}",
            name,
        )

    # -- what there is --------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        self._advance()
        now = time.time()
        operators = {n: self._figures(o) for n, o in self._operators.items()}
        edges = tuple(
            EdgeSnapshot(
                source, target, 100.0 + self._number % 50, 6400.0,
                operators[target].queue_rows, operators[target].queue_bytes,
                min(1.0, operators[target].queue_rows / 10_000),
            )
            for source, target in self._edges
        )  # fmt: skip
        queries = tuple(self._query(name, operators) for name in self._names)
        processors = tuple(self._processor(p, operators, now) for p in self._processors)
        streams = tuple(
            StreamSnapshot(
                s, s[2:], "http", self._processors[i % len(self._processors)],
                rows=self._number * 500, rows_per_s=1000.0, rejected=7 if i == 0 else 0,
                watermark="2024-05-01T08:00:00Z",
                columns=(("host", "string"), ("bytes", "bigint"), ("status", "int")),
            )
            for i, s in enumerate(self._streams)
        )  # fmt: skip
        seen = Snapshot(
            now,
            Overview(
                "synthetic system", "running", STARTED,
                rows_in=self._number * 500 * len(streams), rows_out=sum(q.rows for q in queries),
                rows_in_per_s=1000.0 * len(streams) + 300 * math.sin(self._number / 5),
                rows_out_per_s=400.0 + 90 * math.cos(self._number / 7),
                backlog_rows=sum(o.queue_rows for o in operators.values()),
                backlog_bytes=sum(o.queue_bytes for o in operators.values()),
                watermark_lag_s=2.5, steps=self._number * 40,
                actions=("pause", "resume", "drain", "undrain", "move"),
            ),
            1.0, streams, queries, tuple(operators.values()), edges, processors,
            tuple(self._decisions[-200:]),
        )  # fmt: skip
        return judged(seen)

    def _figures(self, operator: OperatorSnapshot) -> OperatorSnapshot:
        number = int(operator.id[2:])
        slow = operator.kind == "join" and operator.id in self._needs.get(SLOW, ())
        wave = (self._number * 7 + number * 13) % 97
        return replace(
            operator,
            rows_in=self._number * 100 + number,
            rows_out=self._number * 40,
            rows_in_per_s=float(100 + wave),
            rows_out_per_s=float(40 + wave % 11),
            queue_rows=9000 if slow else wave * 10,
            queue_bytes=720_000 if slow else wave * 640,
            waiting_s=42.0 if slow else round(wave / 100, 2),
            steps=self._number,
            cost_s=round(self._number * (0.9 if slow else 0.01), 2),
            load=0.9 if slow else round(wave / 20_000, 5),
        )

    def _query(self, name: str, operators: dict[str, OperatorSnapshot]) -> QuerySnapshot:
        needed = [operators[o] for o in self._needs[name]]
        cause = cause_of(needed)
        own, shared, load_own, load_shared = costs_of(name, needed)
        failed = name == FAILED and not self.restarted
        return QuerySnapshot(
            name,
            "SELECT host, count(*) AS requests\nFROM stream_1 [RANGE 5 MINUTES SLIDE 1 MINUTE]\n"
            "GROUP BY host\nHAVING count(*) > 25",
            "result (stream): host string, requests bigint, ts timestamp\n"
            f"aggregate count(*) by host  #{needed[-1].id[2:]}\n  stream stream_1  #5f",
            "failed" if failed else "parked" if name in self._paused else "running",
            "division by zero" if failed else "paused: asked" if name in self._paused else "",
            STARTED,
            None,
            False,
            (("host", "string"), ("requests", "bigint")),
            rows=self._number * 3,
            rows_per_s=3.0,
            watermark="2024-05-01T08:00:00Z",
            delay_s=max((o.waiting_s or 0.0 for o in needed), default=0.0),
            cost_s_own=own,
            cost_s_shared=shared,
            load_own=load_own,
            load_shared=load_shared,
            result=needed[-1].id,
            operators=self._needs[name],
            goals=(GoalSnapshot("delay (s)", "at most 10 s", needed[0].waiting_s,
                                (needed[0].waiting_s or 0.0) <= 10),),
            error=ErrorSnapshot("division by zero", place="row 12 of stream_1",
                                row={"host": "h1", "bytes": 0, "status": 500}) if failed else None,
            restartable=failed,
            cause=cause.sentence if cause else "",
            cause_operator=cause.operator if cause else "",
        )  # fmt: skip

    def _processor(
        self, name: str, operators: dict[str, OperatorSnapshot], now: float
    ) -> ProcessorSnapshot:
        index = self._processors.index(name)
        others = [p for p in self._processors if p != name]
        return ProcessorSnapshot(
            name,
            "draining" if name in self._draining else "running",
            address=f"http://127.0.0.1:{9000 + index}",
            seen=now,
            load=round(0.5 + 0.3 * math.sin(index + self._number / 10), 2),
            slots=2,
            memory_bytes=700 << 20,
            memory_bytes_max=2 << 30,
            algorithm=self._scores[-1].algorithm,
            selector="highest_score",
            scores=tuple(self._scores),
            goals=(GoalSnapshot("delay (s)", "as little as possible", 0.8),),
            connections=tuple(Connection(p, "in", 4, 400.0, 25_600.0, 20) for p in others[:3]),
            operators=sum(o.processor == name for o in operators.values()),
            segments=340,
            segment_bytes=90 << 20,
            ledger_bytes=3 << 20,
            steps=self._number * 8,
            steps_per_s=8.0,
            epoch=1,
        )

    # -- questions ------------------------------------------------------------------------------

    def explain(self, cql: str) -> Explanation:
        at = cql.find("wrong")
        if at >= 0:
            line = cql.count("\n", 0, at) + 1
            column = at - (cql.rfind("\n", 0, at) + 1) + 1
            raise CqlError(
                "unknown column wrong; did you mean host?",
                source=cql, line=line, column=column, length=5, hint="columns: host, bytes, status",
            )  # fmt: skip
        first = next(iter(self._operators.values()))
        return Explanation(
            "result (stream): host string, ts timestamp\nproject host\n  stream stream_1",
            False,
            (("host", "string"),),
            (PlannedOperator(first.id, first.kind, first.label, first.queries[:2], True),),
            (),
            Admission(True, "would be taken on processor-1, which has room for 12 more"),
        )

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        self.explain(cql)
        rows = tuple((f"host{n}", n * 3) for n in range(min(rows_max, 5)))
        return Results(("host", "requests"), rows, 5, 0, "over 1,000 rows of stream_1")

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        self.explain(cql)
        if name in self._names:
            raise UsageError(f"query {name} exists already", hint="drop it first")
        self._names.append(name)
        self._needs[name] = self._needs[self._names[0]]
        return self._decide("admission", f"query {name} was taken", "all operators run", name)

    def restart(self, name: str) -> None:
        if name != FAILED or self.restarted:
            raise UsageError(f"query {name} has not failed")
        self.restarted = True

    def drop(self, name: str) -> None:
        if name not in self._names:
            raise UsageError(f"there is no query {name}")
        self._names.remove(name)
        self._decide("drop", f"query {name} was dropped", "")

    def act(self, action: str, name: str, to: str = "") -> str:
        match action:
            case "pause" | "resume":
                (self._paused.add if action == "pause" else self._paused.discard)(name)
            case "drain" | "undrain":
                (self._draining.add if action == "drain" else self._draining.discard)(name)
            case "move":
                self._operators[name] = replace(self._operators[name], processor=to)
            case _:
                raise UsageError(f"a made-up system cannot {action}")
        return f"{action} of {name}"

    def results(self, query: str, after: int = 0) -> Results:
        last = self._number * 3
        first = max(after, last - 200)
        rows = tuple((f"host{n % 17}", n, "2024-05-01T08:00:00Z") for n in range(first, last))
        return Results(("host", "requests", "ts"), rows, last, max(0, first - after))


def _upstream(operator: str, feeds: dict[str, list[str]]) -> tuple[str, ...]:
    """An operator and everything below it, producers first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for source in feeds.get(name, ()):
            if source.startswith("o:") and source not in found:
                visit(source)
        found[name] = None

    visit(operator)
    return tuple(found)
