"""A result of a cluster on its way into sinks here: pulled, written, noted, acknowledged.

The next number is noted in the reader's home after the sinks have taken a page: whoever was killed
goes on from there, and a file whose number was not noted is written anew, so each row is in the
files once. Without a home the cluster's own note of what was acknowledged has to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.client.system import Reader
from millstream.core.json_files import read_json, write_whole
from millstream.store.delivery import Result, Sink

POSITIONS = "positions.json"


class Positions:
    """How far each delivery has come, by name; nothing is known without a home."""

    def __init__(self, home: Path | None) -> None:
        self._file = None if home is None else home / POSITIONS
        known = read_json(self._file) if self._file is not None else None
        self._known: dict[str, dict[str, Any]] = known or {}

    def of(self, name: str) -> Mapping[str, Any]:
        return self._known.get(name, {})

    def note(self, name: str, **position: Any) -> None:
        if self._file is not None:
            self._known[name] = position
            write_whole(self._file, self._known)


@dataclass(slots=True)
class PulledDelivery:
    """One result, or the rejected rows of one stream."""

    name: str
    result: Result
    reader: Reader
    sinks: Sequence[Sink]
    positions: Positions
    endless: bool = False  # over the system itself, which goes on after its input
    rows: int = 0
    ended: bool = False
    reason: str = ""  # why it has failed
    culprits: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        """What was not noted of former times is taken back."""
        known = self.positions.of(self.name)
        self.rows, self.ended = int(known.get("rows", 0)), bool(known.get("ended", False))
        for sink in self.sinks:
            sink.recover(self.reader.following)

    def advance(self, wait_s: float = 0.0) -> int:
        """Takes what has come; gives the number of pages."""
        if self.ended:
            return 0
        came = 0
        for page in self.reader.pages(wait_s):
            if page.table is not None:
                for sink in self.sinks:
                    sink.deliver(self.result, page.first, page.last, page.table)
                self.rows += page.table.num_rows
            self.ended = page.ended
            came += 1
        if came:
            self.positions.note(
                self.name, next=self.reader.following, rows=self.rows, ended=self.ended
            )
            self.reader.acknowledge()
        return came

    def fail(self, reason: str, culprits: Sequence[Any]) -> None:
        """Its query has failed: what came before is taken, and nothing more waited for."""
        while self.advance():
            pass
        self.ended, self.reason, self.culprits = True, reason, list(culprits)
