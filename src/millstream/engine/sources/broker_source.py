"""What the sources that read a broker have in common: a thread, a place in the ledger, JSON values.

A broker's client runs in a thread of its own. What it brings becomes rows by the parser of pushed
rows; where it stands is recorded in the transaction that publishes them. A member of the family
says how it reads; this says what a message is as a row, and what becomes of trouble.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from millstream.core.errors import MillstreamError
from millstream.core.secrets import resolved, without_secrets
from millstream.engine.ports import RowParser, SourceSetting
from millstream.engine.sources.gained_columns import GainedColumns
from millstream.language.cql.catalog import StreamDefinition
from millstream.store.arrivals.appending import Appender

CONGESTED_S = 0.2


class BrokerSource(ABC):
    """One topic or subject as a stream."""

    # What the source is called, and the columns that a message has beside its value; all else
    # comes from the value, a JSON object.
    kind: ClassVar[str]
    of_message: ClassVar[Sequence[str]]
    place: ClassVar[str] = "topic"  # the key of the declaration that says what is read

    def __init__(
        self,
        definition: StreamDefinition,
        appender: Appender,
        parse: RowParser,
        setting: SourceSetting,
    ) -> None:
        self.definition, self.appender = definition, appender
        self.failure: BaseException | None = None
        self._parse, self._setting = parse, setting
        self._options = dict(definition.source.get("options", {}))
        self._topic = str(definition.source[self.place])
        self._names = [field.name for field in definition.columns]
        self._gained = GainedColumns(definition, setting.say)
        self._members: set[str] = set()  # of values that are JSON objects
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _read(self, options: Mapping[str, Any]) -> None:
        """Reads until `_stopped`, or to the end where there is one; options have their secrets."""

    # -- as a source of the loop ----------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return bool(self._position().get("ended"))

    def start(self) -> None:
        if self._thread is None and not self.ended:
            name = f"millstream-{self.kind}-{self.definition.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def silent_since(self) -> float:
        return self.appender.arrived

    def _position(self) -> Mapping[str, Any]:
        return self.appender.ledger.ingest_position(self.appender.stream)

    def _run(self) -> None:
        used: dict[str, Any] = {}
        try:
            used = resolved(f"stream {self.definition.name}", self._options)
            self._read(used)
        except MillstreamError as error:
            self.failure = error
        except BaseException as error:  # told by the loop
            words = without_secrets(str(error), self._options, used)
            self.failure = self._trouble(f"{type(error).__name__}: {words}")

    # -- rows -----------------------------------------------------------------------------------

    def _append(self, rows: Sequence[dict[str, Any]], position: Mapping[str, Any]) -> None:
        """Publishes rows and where the source stands after them, in one transaction."""
        table = self._parse(list(rows), f"{self.kind} {self._topic}")
        self.appender.append(table, dict(position))
        if self._members:
            self._gained.look(self._members)
        self._setting.arrived(self.definition.name)

    def _demand_safety(self) -> None:
        """Before whoever sent the rows may forget them: as many others have them as are wanted."""
        safety = self.appender.ledger.safety
        if safety is not None:
            safety.demand()

    def _row(self, own: Mapping[str, Any], content: bytes | None) -> dict[str, Any]:
        """A message as a row. What is no JSON object stands where the time should: it is rejected,
        and the reason shows it."""
        if all(name in self.of_message for name in self._names):
            return {name: own[name] for name in self._names}
        try:
            value = json.loads(content or b"")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            value = dict.fromkeys(self._names, own["value"] or "nothing")
        else:
            self._members.update(value)
        known = {**own, **value}
        return {name: known[name] for name in self._names if name in known}

    def _stamp(self, column: str, milliseconds: int) -> Any:
        """A moment: a text that is a time, or a number where the column wants a number."""
        if not self._wants_time(column):
            return milliseconds
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        return moment.isoformat(timespec="milliseconds")

    def _wants_time(self, column: str) -> bool:
        kinds = {field.name: field.type for field in self.definition.columns}
        return kinds.get(column, "").startswith(("timestamp", "string"))

    def _trouble(self, words: str) -> MillstreamError:
        return MillstreamError(
            f"topic {self._topic} of stream {self.definition.name} cannot be read", detail=words,
            hint="see that the broker runs and that the options are right: it is tried again",
        )  # fmt: skip


def text_of(content: Any) -> str | None:
    """A key or value as a text."""
    return content.decode(errors="replace") if isinstance(content, bytes) else content
