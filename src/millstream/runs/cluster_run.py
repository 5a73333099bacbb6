"""A job on a cluster: what `millstream run --manager URL` does.

The manager gets the job's streams and queries, rows come once all queries are deployed, results are
pulled from the processors that own them into the same files that a run in this process writes.
Every result's next number is recorded after its file: a run that was killed goes on from there, and
a file whose number was not recorded is written anew, so each row is in the files once. At the end
the job's queries leave the cluster.
"""

import json
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.client.arrow_types import empty_table
from millstream.client.manager_client import ManagerAwayError, ManagerClient
from millstream.client.relation import summed
from millstream.client.results import Batch, ResultReader, StreamReader
from millstream.config import Job
from millstream.config.qos_table import table_of as quality_table
from millstream.config.stream_json import table_of
from millstream.cql.system_streams import PREFIX
from millstream.errors import MillstreamError, StateError, UsageError
from millstream.plan.schema import Field
from millstream.runs.display import Display, Silent
from millstream.runs.folder import RunFolder
from millstream.runs.statistics_export import cluster_statistics, keep_statistics
from millstream.runs.summary import counted, summarise
from millstream.schedule.quality import Quality
from millstream.share.dataflow import late_stream, rejected_stream
from millstream.store.appending import REJECTED_NAMES
from millstream.store.delivery import FileSink, Result, user_table, write_file

LOOK_S = 2.0  # between questions to the manager
REST_S = 0.1  # when nothing has come
FIGURES_S = 20.0  # to wait for the last figures
CONSUMER = "run"


@dataclass(slots=True)
class Output:
    """One result, or the rejected rows of one stream, on its way into files."""

    name: str
    result: Result
    sinks: tuple[FileSink, ...]
    reader: StreamReader | None = None
    rows: int = 0
    ended: bool = False
    endless: bool = False  # over the system itself, which goes on after the job
    reason: str = ""
    culprits: list[Any] = field(default_factory=list)

    def take(self, batch: Batch) -> None:
        if batch.table is not None:
            for sink in self.sinks:
                sink.deliver(self.result, batch.first, batch.last, batch.table)
            self.rows += batch.table.num_rows
        self.ended = batch.ended


class RejectReader(StreamReader):
    """Rows of a stream that came too late, or were malformed; kept where the stream enters."""

    def __init__(
        self, manager: ManagerClient, stream: str, base: str, columns: tuple[Field, ...], *,
        timed: bool, following: int,
    ) -> None:  # fmt: skip
        self._base, self._columns, self._timed = base, columns, timed
        url = str(manager.entrance(base)["url"])
        super().__init__(manager, stream, url, following, CONSUMER)
        told = manager.ask("POST", f"{url}/streams/{stream}/expect", {"consumer": CONSUMER}).json()
        self.following = following or int(told["next"])

    def find(self) -> str:
        with suppress(ManagerAwayError, StateError):
            return str(self.manager.entrance(self._base)["url"])
        return self.url

    def shown(self, stored: pa.Table) -> pa.Table:
        return user_table(stored, [f.name for f in self._columns], timed=self._timed)

    def acknowledge(self) -> None:
        url = f"{self.url}/streams/{self.stream}/ack"
        with suppress(MillstreamError):
            self.manager.ask("POST", url, {"consumer": CONSUMER, "next": self.following})


class ClusterRun:
    """One job, from its declaration to its files."""

    def __init__(
        self, job: Job, folder: RunFolder, client: ManagerClient, kind: str, display: Display | None
    ) -> None:
        self.job, self.folder, self.client, self.kind = job, folder, client, kind
        self._shown = display or Silent()
        self._positions = self._read_positions()
        self.results: list[Output] = []
        self.rejects: list[Output] = []
        self._input_over = False

    def run(self, poll: Callable[[], None]) -> dict[str, Any]:
        """To the end of all finite input; `poll` may raise to stop it."""
        started = time.monotonic()
        self._say_what_does_not_count()
        self._submit(poll)
        running = counted(len(self.job.queries), "query runs", "queries run")
        self._shown.say(f"{running} on {self.client.url}")
        looked = told = time.monotonic()
        while not self._over():
            poll()
            came = sum(self._advance(o) for o in (*self.results, *self.rejects))
            now = time.monotonic()
            if now - looked > LOOK_S:
                looked = now
                self._look()
            if now - told > 5.0:
                told = now
                rows = sum(o.rows for o in self.results)
                left = sum(not o.ended for o in self.results)
                going = counted(left, "query goes on", "queries go on")
                self._shown.say(f"{counted(rows, 'result row', 'result rows')}; {going}")
            if not came:
                time.sleep(REST_S)
        streams = self._last_figures(poll)
        for output in (*self.rejects, *(o for o in self.results if o.endless)):
            while self._advance(output):
                poll()
        summary = self._complete(streams, started)
        answers = [self.client.query(query.name) for query in self.job.queries]
        keep_statistics(
            cluster_statistics(self.client.status(), answers, summary), self.folder.home
        )
        self._leave()
        self.folder.finish(summary)
        return summary

    # -- the beginning --------------------------------------------------------------------------

    def _say_what_does_not_count(self) -> None:
        sections = tomllib.loads(self.job.text.places.text)
        if "engine" in sections:
            self._shown.say("[engine] does not count here: processors have their own settings")
        if "schedule" in sections:
            self._shown.say(
                "[schedule] does not count here: a processor schedules all its queries alike; "
                f"millstream qos {self.client.url} --schedule {self.job.text.shown} sets it for all"
            )

    def _set_goals(self) -> None:
        """The job's goals are those of its queries: a cluster has other queries as well.

        Goals of all queries together are shared out over those that have none of their own.
        """
        quality: Quality | None = self.job.engine.get("quality")
        if quality is None:
            return
        table = quality_table(quality)
        own = table.pop("queries", {})
        others = [q.name for q in self.job.queries if q.name not in own]
        whole = {**table, "weight": table["weight"] / max(len(others), 1)}
        for name, goals in {**dict.fromkeys(others, whole), **own}.items():
            self.client.set_quality(goals, name)

    def _submit(self, poll: Callable[[], None]) -> None:
        for stream in self.job.streams:
            if stream.source.get("source") in ("http", "push"):
                raise self.job.text.mistake(
                    ("streams", stream.name, "source"),
                    f"the rows of stream {stream.name} come from other programs",
                    "a job on a cluster reads files and Spark's sources",
                )
            self.client.declare(table_of(stream))
        for query in self.job.queries:
            poll()
            try:
                self.client.submit(query.name, query.cql, from_beginning=True, wait_s=120.0)
            except StateError:
                raise
            except UsageError as error:
                raise query.located(error) from None
        self._set_goals()
        self.folder.record(self.job, self.kind)
        for query in self.job.queries:
            self.results.append(self._result(query.name, poll))
        for stream in self.job.streams:
            self._add_rejects(stream.name)
        self.client.start_streams([s.name for s in self.job.streams])

    def _result(self, name: str, poll: Callable[[], None]) -> Output:
        while self.client.query(name)["state"] == "starting":
            poll()
            time.sleep(REST_S)
        position = self._positions.get(name, {})
        reader = ResultReader(self.client, name, position.get("next"))
        columns = tuple(Field(n, t) for n, t in reader.columns)
        result = Result(name, reader.stream, columns, reader.relation)
        folder = self.folder.path / (f"{name}.changes" if reader.relation else name)
        sinks = [FileSink(folder, self.kind)]
        if reader.relation:  # the final table is made of what was read, with its types
            sinks.append(FileSink(self.folder.home / "changes" / name, "parquet"))
        sources = self.client.query(name).get("sources", ())
        endless = any(str(source).startswith(PREFIX) for source in sources)
        return self._resumed(Output(name, result, tuple(sinks), reader, endless=endless))

    def _add_rejects(self, name: str) -> None:
        columns = next(s.columns for s in self.job.streams if s.name == name)
        malformed = tuple(Field(n, "string") for n in REJECTED_NAMES)
        for stream, fields, end, timed in (
            (late_stream(name), columns, "late", True),
            (rejected_stream(name), malformed, "rejected", False),
        ):
            following = int(self._positions.get(stream, {}).get("next", 0))
            with suppress(StateError):  # a source that rejects nothing
                reader = RejectReader(
                    self.client, stream, name, fields, timed=timed, following=following
                )
                sink = FileSink(self.folder.path / f"{name}.{end}", self.kind)
                result = Result(stream, stream, fields, timed=timed)
                self.rejects.append(self._resumed(Output(stream, result, (sink,), reader)))

    def _resumed(self, output: Output) -> Output:
        """What was not recorded of former times is taken back."""
        known = self._positions.get(output.name, {})
        output.rows, output.ended = int(known.get("rows", 0)), bool(known.get("ended", False))
        for sink in output.sinks:
            sink.recover(int(known.get("next", 1)))
        return output

    # -- on the way -----------------------------------------------------------------------------

    def _over(self) -> bool:
        """Whether all results have ended, but for those that never do; where there are no others,
        whether the job's streams have."""
        finite = [o for o in self.results if not o.endless]
        return all(o.ended for o in finite) if finite else self._input_over

    def _advance(self, output: Output) -> int:
        """Takes what has come of one result; gives the number of segments."""
        reader = output.reader
        if output.ended or reader is None:
            return 0
        came = 0
        for batch in reader.batches(0.0):
            output.take(batch)
            came += 1
        if came:
            known = {"next": reader.following, "rows": output.rows, "ended": output.ended}
            self._positions[output.name] = known
            self._write_positions()
            if isinstance(reader, ResultReader | RejectReader):
                reader.acknowledge()
        return came

    def _look(self) -> None:
        """Queries that failed on their data end here."""
        with suppress(ManagerAwayError):
            if all(o.endless for o in self.results):
                streams = self.client.streams()
                ends = [streams[s.name]["figures"].get("ended") for s in self.job.streams]
                self._input_over = bool(ends) and all(ends)
            told = {q["name"]: q for q in self.client.queries()}
            for output in self.results:
                known = told.get(output.name)
                if known is None:
                    raise StateError(f"query {output.name} was dropped by somebody else")
                if known["state"] == "failed" and not output.ended:
                    while self._advance(output):
                        pass
                    output.ended, output.reason = True, str(known["reason"]) or "failed"
                    output.culprits = list(known.get("culprits") or [])
                    self._shown.say(f"query {output.name} is failed: {output.reason}")

    def _read_positions(self) -> dict[str, dict[str, Any]]:
        try:
            return dict(json.loads((self.folder.home / "positions.json").read_text()))
        except (FileNotFoundError, ValueError):
            return {}

    def _write_positions(self) -> None:
        target = self.folder.home / "positions.json"
        draft = target.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(self._positions, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)

    # -- the end --------------------------------------------------------------------------------

    def _last_figures(self, poll: Callable[[], None]) -> Mapping[str, Mapping[str, float]]:
        """Counts of the streams once their processors have told the end of them."""
        deadline = time.monotonic() + FIGURES_S
        names = [s.name for s in self.job.streams]
        while True:
            poll()
            told = self.client.streams()
            figures = {n: told[n]["figures"] for n in names}
            ended = all(f.get("ended") for f in figures.values())
            if ended or time.monotonic() > deadline:
                return figures
            time.sleep(0.5)

    def _complete(
        self, streams: Mapping[str, Mapping[str, float]], started: float
    ) -> dict[str, Any]:
        tables: dict[str, int] = {}
        for output in self.results:
            if output.result.changes:
                changes = self.folder.home / "changes" / output.name
                table = final_table(changes, output.result)
                tables[output.name] = 0 if output.reason else table.num_rows
                if not output.reason:
                    self._write_table(output.name, table)
            empty = user_table(empty_table(output.result), [f.name for f in output.result.columns],
                               changes=output.result.changes)  # fmt: skip
            target = output.sinks[0].folder
            if not target.is_dir() or not any(target.iterdir()):
                target.mkdir(parents=True, exist_ok=True)
                write_file(empty, target / f"part-none.{self.kind}", self.kind)
        status = {
            "streams": {
                name: {k: int(f.get(k, 0)) for k in ("rows", "late", "rejected")}
                for name, f in streams.items()
            },
            "queries": {
                o.name: {
                    "state": "failed" if o.reason else "running",
                    "rows": o.rows,
                    "relation": o.result.changes,
                    "reason": o.reason,
                    "culprits": o.culprits,
                }
                for o in self.results
            },
        }
        seconds = time.monotonic() - started
        return summarise(status, tables, self.folder.path, seconds=seconds, steps=0)

    def _write_table(self, name: str, table: pa.Table) -> None:
        target = self.folder.path / name
        target.mkdir(parents=True, exist_ok=True)
        for file in target.iterdir():  # of an attempt that was killed
            file.unlink()
        write_file(table, target / f"part-table-00000.{self.kind}", self.kind)

    def _leave(self) -> None:
        """Takes the job off the cluster; streams stay where others read them."""
        for query in self.job.queries:
            with suppress(MillstreamError):
                self.client.drop(query.name, wait_s=30.0)
        for stream in self.job.streams:
            with suppress(MillstreamError):
                self.client.forget_stream(stream.name)


def final_table(folder: Path, result: Result) -> pa.Table:
    """A relation's table: its changes summed up."""
    files = sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
    if not files:
        return user_table(empty_table(result), [f.name for f in result.columns])
    changes = [pq.read_table(f) for f in files]
    return summed(pa.concat_tables(changes, promote_options="permissive"))
