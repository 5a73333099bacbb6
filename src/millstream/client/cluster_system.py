"""A cluster as `System`: its manager over HTTP, and rows from the processors that own them.

Streams are declared to the manager and begin by `start`, so that queries registered one after the
other all see the first row. A job's sinks stand here: `work` pulls every result into them.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.client.arrow_types import empty_table
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.client.pulled_delivery import Positions, PulledDelivery
from millstream.client.pushing import entrance, posted
from millstream.client.relation import summed
from millstream.client.results import RejectReader, ResultReader
from millstream.client.system import POLL_S, Figures, RegisteredQuery, Submission, tables_of
from millstream.control.definitions.qos_table import specification_table
from millstream.control.definitions.stream_table import table_of
from millstream.control.snapshot.model import Snapshot
from millstream.core.errors import AwayError, StateError, UsageError
from millstream.decide.schedule.quality import Specification
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.cql.change_data import is_reference_table
from millstream.language.cql.rule_tables import is_rule_table
from millstream.language.cql.system_streams import PREFIX
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import REJECTED_NAMES, late_stream, rejected_stream
from millstream.store.arrivals.appending import Rows
from millstream.store.consumers import CLIENT
from millstream.store.delivery import FileSink, Result, ResumingSink, Sink

LOOK_S = 2.0  # between questions to the manager
PROGRESS_S = 5.0  # between two lines about the progress
REST_S = 0.1  # when nothing has come
FIGURES_S = 20.0  # to wait for the last figures
SUBMIT_S, DROP_S = 120.0, 30.0  # to wait until a query runs, or is gone
RESTART_S = 30.0
FRESH_S = 1.0  # figures are of now when a processor has spoken this long after the question
CHANGES = "changes"  # in the home: what relations' tables are made of, with its types
COUNTS = ("rows", "late", "rejected")  # of a stream
NO_FIGURES = ("name", "operators", "columns", "admission")  # of a query's answer


class ClusterSystem:
    """One manager and its processors. With a home, deliveries go on where they stopped."""

    shared = True
    steps = 0

    def __init__(
        self,
        manager: str,
        *,
        token: str | None = None,
        verify: str | bool = True,
        home: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.client = ManagerClient(manager_url(manager), token=token, verify=verify)
        self.url = self.client.url
        self._home, self._say = home, say
        self._positions = Positions(home)
        self._definitions: dict[str, StreamDefinition] = {}
        self._waiting: set[str] = set()  # declared here, and not begun
        self._numbers: dict[str, int] = {}  # of the last batch, by stream
        self.results: list[PulledDelivery] = []
        self.rejects: list[PulledDelivery] = []
        self._input_over = False
        self._resting: set[str] = set()  # queries that somebody has paused, as last told

    def close(self) -> None:
        """Queries of the cluster go on until they are dropped."""
        for delivery in self.results:
            delivery.close()
        self.client.close()

    # -- streams --------------------------------------------------------------------------------

    def declare(self, stream: StreamDefinition) -> None:
        if is_rule_table(stream.source):
            raise UsageError(
                f"stream {stream.name} is a rule table, which a cluster does not have",
                hint="a Session without manager has rules; here, register a query for each",
            )
        if is_reference_table(stream.source):
            raise UsageError(
                f"stream {stream.name} is a reference table, which a cluster does not have",
                hint="a Session without manager has them; here, push the table's changes",
            )
        self.client.declare(table_of(stream))
        self._definitions[stream.name] = stream
        self._waiting.add(stream.name)

    def start(self) -> None:
        if self._waiting:
            names, self._waiting = sorted(self._waiting), set()
            self.client.start_streams(names)

    def definition(self, stream: str) -> StreamDefinition:
        if stream not in self._definitions:
            raise UsageError(f"stream {stream} was not declared in this session")
        return self._definitions[stream]

    def push(
        self, stream: str, rows: Rows, producer: str, number: int | None = None
    ) -> Mapping[str, Any]:
        self.start()
        sequence = number if number is not None else self._numbers.get(stream, 0) + 1
        answer = posted(self.client, stream, rows, producer, sequence)
        self._numbers[stream] = max(sequence, self._numbers.get(stream, 0))
        return {**answer, "reasons": [(r["row"], r["reason"]) for r in answer["reasons"]]}

    def finish(self, stream: str) -> None:
        self.start()
        self.client.ask("POST", f"{entrance(self.client, stream)}/end", {})

    def forget(self, stream: str) -> None:
        self.client.forget_stream(stream)

    # -- queries --------------------------------------------------------------------------------

    def free_name(self) -> str:
        """Others may be choosing a name at the same time."""
        return f"q{uuid.uuid4().hex[:8]}"

    def submit(self, query: Submission) -> RegisteredQuery:
        return _registered(
            self.client.submit(
                query.name,
                query.cql,
                from_beginning=query.from_beginning,
                wait_s=SUBMIT_S,
                replicas=query.replicas,
            )
        )

    def explain(self, cql: str) -> str:
        answer = self.client.submit(self.free_name(), cql, dry_run=True)
        told = f"would be {answer['verdict']}: {answer['sentence']}"
        return f"{told}; {answer['objective']}" if answer.get("objective") else told

    def query(self, name: str) -> RegisteredQuery:
        return _registered(self.client.query(name))

    def queries(self) -> Sequence[str]:
        return [str(answer["name"]) for answer in self.client.queries()]

    def recorded(self) -> Mapping[str, str]:
        return {}

    def forget_leftovers(self) -> None:
        """Queries of a cluster are those of everybody."""

    def pause(self, name: str, wanted: bool, why: str = "") -> None:
        """Of its own reasons a cluster gives that a user requested it."""
        self.client.pause(name, wanted=wanted, wait_s=RESTART_S)

    def restart(self, name: str) -> None:
        self.client.restart(name, wait_s=RESTART_S)
        for delivery in self.results:
            if delivery.name == name:
                delivery.go_on()

    def drop(self, name: str) -> None:
        self.client.drop(name, wait_s=DROP_S)

    # -- results --------------------------------------------------------------------------------

    def reader(self, name: str) -> ResultReader:
        return ResultReader(self.client, name)

    def table_pieces(
        self, name: str, enough: Callable[[], bool] = lambda: True
    ) -> Iterator[pa.Table]:
        query = self.query(name)
        if self._home is not None:
            folder = self._home / CHANGES / name
            files = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
            changes = [pq.read_table(file) for file in files]
        else:
            changes = list(tables_of(self, name, self.reader(name), enough))
        whole = changes or [empty_table(query.result)]
        yield summed(pa.concat_tables(whole, promote_options="permissive"))

    def deliver(self, name: str, sink: Sink) -> None:
        query = self.query(name)
        attached = next((d for d in self.results if d.name == name), None)
        if attached is not None and isinstance(sink, ResumingSink):
            attached.attach(sink)  # one pull for both: what is acknowledged is gone
            return
        sinks: list[Sink] = [sink]
        if query.relation and self._home is not None:
            sinks.append(FileSink(self._home / CHANGES / name, "parquet"))
        reader = ResultReader(self.client, name, self._positions.of(name).get("next"))
        self.results.append(
            PulledDelivery(
                name, query.result, reader, sinks, self._positions, endless=_endless(query)
            )
        )

    def deliver_rejects(self, stream: StreamDefinition, late: Sink, rejected: Sink) -> None:
        malformed = tuple(Field(n, "string") for n in REJECTED_NAMES)
        for target, fields, sink in (
            (late_stream(stream.name), stream.columns, late),
            (rejected_stream(stream.name), malformed, rejected),
        ):
            result = Result(target, target, fields, timed=fields is stream.columns)
            following = self._positions.of(target).get("next")
            with suppress(StateError):  # a source that rejects nothing
                reader = RejectReader(self.client, stream.name, result, CLIENT, following)
                self.rejects.append(PulledDelivery(target, result, reader, [sink], self._positions))

    def serve_sinks(self, name: str) -> None:
        self.start()
        for delivery in [d for d in self.results if d.name == name]:
            while not delivery.ended:
                if not delivery.advance(POLL_S):
                    self.query(name).raise_if_failed()

    # -- to the end -----------------------------------------------------------------------------

    def work(self, tick: Callable[[], None]) -> None:
        self.start()
        looked = spoken = time.monotonic()
        troubles: dict[str, str] = {}
        while not self.over():
            tick()
            came = sum(delivery.advance() for delivery in (*self.results, *self.rejects))
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                self.look()
                self._tell_targets(troubles)
            if now - spoken > PROGRESS_S:
                spoken = now
                rows = sum(d.rows for d in self.results)
                left = sum(not d.ended for d in self.results)
                going = "1 query continues" if left == 1 else f"{left:,} queries continue"
                self._say(f"{rows:,} result row{'' if rows == 1 else 's'}; {going}")
            if not came:
                time.sleep(REST_S)
        self._await_last_figures(tick)
        for delivery in (*self.rejects, *(d for d in self.results if d.endless)):
            while delivery.advance():
                tick()

    def _tell_targets(self, told: dict[str, str]) -> None:
        """Says once that a result waits for its target, or goes on."""
        for delivery in self.results:
            problem = delivery.retry.problem
            if problem != told.get(delivery.name, ""):
                told[delivery.name] = problem
                why = f" is parked: its sink has failed: {problem}" if problem else " continues"
                self._say(f"query {delivery.name}{why}")

    def over(self) -> bool:
        """Whether all results have ended, but for those that never do; where there are no others,
        whether the streams have."""
        finite = [d for d in self.results if not d.endless]
        return all(d.ended for d in finite) if finite else self._input_over

    def look(self) -> None:
        """Queries that failed on their data end here."""
        with suppress(AwayError):
            if all(d.endless for d in self.results):
                self._input_over = bool(self._definitions) and self._streams_ended()
            answers = {q["name"]: q for q in self.client.queries()}
            for delivery in self.results:
                answer = answers.get(delivery.name)
                if answer is None:
                    raise StateError(f"query {delivery.name} was dropped by another client")
                if answer["state"] == "running":
                    delivery.go_on()
                if answer.get("paused") and delivery.name not in self._resting:
                    resume = f"millstream resume {delivery.name}"
                    self._say(f"query {delivery.name} is paused; resume it with: {resume}")
                if answer["state"] == "failed" and not delivery.ended:
                    reason = str(answer["reason"]) or "failed"
                    delivery.fail(reason, answer.get("culprits") or [])
                    if delivery.ended:
                        self._say(f"query {delivery.name} is failed: {reason}")
            self._resting = {name for name, answer in answers.items() if answer.get("paused")}

    def _streams_ended(self) -> bool:
        streams = self.client.streams()
        return all(streams[name]["figures"].get("ended") for name in self._definitions)

    def _await_last_figures(self, tick: Callable[[], None]) -> None:
        """Until the processors have reported the end of the streams."""
        deadline = time.monotonic() + FIGURES_S
        while not self._streams_ended() and time.monotonic() < deadline:
            tick()
            time.sleep(0.5)

    def wait(self, timeout_s: float | None = None) -> bool:
        self.start()
        asked_s = time.time()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            processors = self.client.status()["processors"].values()
            up = [p for p in processors if p["state"] == "up"]
            fresh = all(p["heard"] > asked_s + FRESH_S for p in up)
            if up and fresh and all(p["figures"].get("settled") for p in up):
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)

    def caught_up(self, name: str) -> Callable[[], bool]:
        """A result over finite streams is read to its end; one over the system itself, which never
        ends, as far as it is there now."""
        self.start()
        if _endless(self.query(name)):
            return lambda: True
        lasting = [
            d for d in self._definitions.values()
            if d.source.get("source") != "file" or d.source.get("follow")
        ]  # fmt: skip
        return self.wait if lasting else lambda: False

    # -- figures and goals ----------------------------------------------------------------------

    def status(self) -> Mapping[str, Any]:
        return self.client.status()

    def snapshot(self) -> Snapshot:
        return self.client.snapshot()

    def figures(self) -> Figures:
        status = self.client.status()
        streams = _flat(status["streams"])
        answers = {answer["name"]: answer for answer in self.client.queries()}
        operators = {o["id"]: o for d in self.results for o in answers[d.name]["operators"]}
        return {
            "streams": {
                name: {**streams[name], **{k: int(streams[name].get(k, 0)) for k in COUNTS}}
                for name in self._definitions
            },
            "processors": _flat(status["processors"]),
            "operators": _flat(operators),
            "queries": {
                d.name: {k: v for k, v in answers[d.name].items() if k not in NO_FIGURES}
                | {"state": "failed" if d.reason else "running", "rows": d.rows}
                | {"reason": d.reason, "culprits": d.culprits}
                for d in self.results
            },
        }

    def set_quality(
        self, goals: Specification | None, query: str | None, weight: float | None
    ) -> None:
        """The manager keeps the goals and sends them to every processor that they concern."""
        table = None if goals is None else specification_table(goals)
        if table is not None and weight is not None:
            table["weight"] = weight
        self.client.set_quality(table, query)

    def quality(self) -> Mapping[str, Any]:
        """The goals of the cluster; how they stand, each processor knows."""
        return self.client.quality()


def _registered(answer: Mapping[str, Any]) -> RegisteredQuery:
    start = answer["start"]
    return RegisteredQuery(
        str(answer["name"]),
        str(answer["cql"]),
        tuple(Field(str(n), str(t)) for n, t in answer["columns"]),
        bool(answer["relation"]),
        str(answer["result"]),
        str(answer["state"]),
        str(answer["reason"]),
        None if start in (None, BEGINNING) else int(start),
        tuple(str(source) for source in answer["sources"]),
    )


def _endless(query: RegisteredQuery) -> bool:
    """Whether a query is over the system itself, which never ends."""
    return any(source.startswith(PREFIX) for source in query.sources)


def _flat(things: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Measured figures beside what else is known of a thing, not below it."""
    return {
        name: {
            **{k: v for k, v in known.items() if k not in ("figures", "id")},
            **known.get("figures", {}),
        }
        for name, known in things.items()
    }
