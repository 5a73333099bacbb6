"""A result of a cluster on its way into sinks here: pulled, written, noted, acknowledged.

The next number is noted in the reader's home after the sinks have taken a page: after a kill it
continues from there, and a file whose number was not noted is written anew, so each row is in the
files once. Without a home it uses the cluster's own note of what was acknowledged. A target that is
away holds up its own result; it is tried again, and says itself what it has taken.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.client.system import Reader, ResultPage
from millstream.core.errors import StateError, UsageError
from millstream.core.json_files import read_sealed, write_sealed
from millstream.store.delivery import Result, ResumingSink, Retry, Sink, TargetError

POSITIONS = "positions.json"
REMEDY = "put it back from a copy, or begin in an empty folder: delivered files stay as they are"


class Positions:
    """How far each delivery has come, by name; nothing is known without a home."""

    def __init__(self, home: Path | None) -> None:
        self._file = None if home is None else home / POSITIONS
        known = read_sealed(self._file, REMEDY) if self._file is not None else None
        self._known: dict[str, dict[str, Any]] = known or {}

    def of(self, name: str) -> Mapping[str, Any]:
        return self._known.get(name, {})

    def note(self, name: str, **position: Any) -> None:
        if self._file is not None:
            self._known[name] = position
            write_sealed(self._file, self._known)

    def identity(self, name: str) -> str:
        """A delivery's name in a target, which no other one ever has."""
        if self._file is None:
            raise UsageError(
                "a sink that takes each row once needs a folder that remembers how far it is",
                hint="run the query in a job: millstream run JOB.toml --manager URL --out DIR",
            )
        key = f"delivery {name}"
        if key not in self._known:
            self.note(key, id=uuid.uuid4().hex)
        return f"{self._known[key]['id']} {name}"


@dataclass(slots=True)
class PulledDelivery:
    """One result, or the rejected rows of one stream."""

    name: str
    result: Result
    reader: Reader
    sinks: list[Sink]
    positions: Positions
    endless: bool = False  # over the system itself, which goes on after its input
    rows: int = 0
    ended: bool = False
    reason: str = ""  # why it has failed
    culprits: list[Any] = field(default_factory=list)
    retry: Retry = field(default_factory=Retry)  # of a target that is away

    def __post_init__(self) -> None:
        """What was not noted of former times is taken back."""
        known = self.positions.of(self.name)
        self.rows, self.ended = int(known.get("rows", 0)), bool(known.get("ended", False))
        sinks, self.sinks = self.sinks, []
        for sink in sinks:
            self.attach(sink)

    def attach(self, sink: Sink) -> None:
        if isinstance(sink, ResumingSink):
            self.positions.identity(self.name)  # refused here, where it cannot be kept
        sink.recover(self.reader.following)
        self.sinks.append(sink)

    def close(self) -> None:
        for sink in self.sinks:
            if isinstance(sink, ResumingSink):
                sink.close()

    def advance(self, wait_s: float = 0.0) -> int:
        """Takes what has come; gives the number of pages."""
        if self.ended:
            return 0
        if not self.retry.due:
            time.sleep(wait_s)
            return 0
        came = 0
        for page in self.reader.pages(wait_s):
            if page.table is not None:
                if not self._take(page, page.table):
                    self.reader.following, self.reader.ended = page.first, False
                    break
                self.rows += page.table.num_rows
            self.ended = page.ended
            came += 1
        if came:
            self.positions.note(
                self.name, next=self.reader.following, rows=self.rows, ended=self.ended
            )
            self.reader.acknowledge()
        return came

    def _take(self, page: ResultPage, table: pa.Table) -> bool:
        """Gives a page to all sinks; targets first, as files are written anew without harm."""
        ordered = sorted(self.sinks, key=lambda sink: not isinstance(sink, ResumingSink))
        try:
            for sink in ordered:
                if not isinstance(sink, ResumingSink) or not self._has_taken(sink, page):
                    sink.deliver(self.result, page.first, page.last, table)
        except TargetError as error:
            self.retry.failed(str(error))
            return False
        self.retry.succeeded()
        return True

    def _has_taken(self, sink: ResumingSink, page: ResultPage) -> bool:
        following = sink.following(self.result, self.positions.identity(self.name))
        if page.first < following <= page.last:
            raise StateError(
                f"the target of query {self.name} has taken a part of what came",
                detail=f"up to number {following - 1}, of {page.first} to {page.last}",
                hint="begin in a new folder, with a new table",
            )
        return following > page.last

    def fail(self, reason: str, culprits: Sequence[Any]) -> None:
        """Its query has failed: what came before is taken, and nothing more waited for."""
        while self.advance():
            pass
        if self.retry.problem:
            return  # its target is away; asked again later
        self.ended, self.reason, self.culprits = True, reason, list(culprits)

    def go_on(self) -> None:
        """Its query was restarted: what it gives from now on is waited for again."""
        if self.reason:
            self.ended, self.reason, self.culprits = False, "", []
