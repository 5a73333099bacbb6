"""Statements and commands, carried out one after the other; rows printed as they come."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from millstream.app.shell.backend import Backend, Batch
from millstream.app.shell.words import COMMANDS, as_command
from millstream.control.snapshot.alarms import told
from millstream.core.errors import UsageError
from millstream.language.cql.parsing.parser import (
    CreateQuery,
    CreateStream,
    CreateView,
    finished,
    parse,
    split,
)
from millstream.language.cql.system_streams import COLUMNS
from millstream.language.cql.views import own_text

WIDTH_MAX = 60
DEPTH_MAX = 8  # of files that name files


class Leave(Exception):  # noqa: N818  (a wish, not a fault)
    """The user wants to go."""


def complete(text: str) -> bool:
    r"""Whether a text can be carried out as it stands, or more lines are to come.

    >>> complete("SELECT a"), complete("SELECT a FROM s;"), complete(r"\d"), complete("")
    (False, True, True, True)
    """
    stripped = text.strip()
    spoken = as_command(stripped)
    if spoken and not spoken.startswith(r"\explain"):  # a query may go on in the next line
        return True
    return stripped.startswith("\\") or finished(stripped) or bool(command_at_end(stripped))


def command_at_end(text: str) -> str:
    r"""The command in the last line of a statement that is not finished; empty where there is none.

    >>> command_at_end("SELECT a" + chr(10) + "exit"), command_at_end("SELECT a" + chr(10) + r"\?")
    ('\\q', '\\?')
    """
    *above, last = text.strip().splitlines() or [""]
    if not above or finished(text):
        return ""
    bare = last.strip()
    command = bare if bare.startswith("\\") else as_command(bare)
    return command if command.partition(" ")[0] in COMMANDS else ""


class Interpreter:
    """Carries out texts on a backend; `write` takes lines."""

    def __init__(
        self, backend: Backend, write: Callable[[str], None], *, as_json: bool = False
    ) -> None:
        self._backend, self._write, self._json = backend, write, as_json
        self._depth = 0
        self._commands: dict[str, Callable[[str], None]] = {
            r"\d": self._describe,
            r"\explain": self._explain,
            r"\tail": self._tail,
            r"\alarms": self._alarms,
            r"\restart": self._restart,
            r"\pause": self._pause,
            r"\resume": self._resume,
            r"\drop": self._drop,
            r"\push": self._push,
            r"\i": self._include,
            r"\?": self._help,
            r"\q": self._leave,
        }

    def run(self, text: str) -> None:
        """One command, or all statements of a text."""
        stripped = text.strip()
        if stripped.startswith("\\"):
            self._command(stripped)
            return
        if spoken := as_command(stripped):
            self._command(spoken)
            return
        if spoken := command_at_end(stripped):
            self._write("the statement before it is not finished, and was put away")
            self._command(spoken)
            return
        for statement in split(stripped):
            if spoken := as_command(statement):
                self._command(spoken)
            else:
                self._statement(statement)

    def _statement(self, text: str) -> None:
        (statement,) = parse(text)
        if isinstance(statement, CreateStream):
            name = self._backend.create_stream(text)
            self._write(f"stream {name} is declared")
        elif isinstance(statement, CreateView):
            self._backend.create_view(statement.name, text)
            self._write(f"view {statement.name} is known in this shell")
        elif isinstance(statement, CreateQuery):
            made = self._backend.create_query(statement.name, text)
            self._write(f"{made.sentence}: {made.reason}" if made.reason else made.sentence)
        else:
            self._print(self._backend.select(text))

    # -- commands -------------------------------------------------------------------------------

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        if name not in self._commands:
            raise UsageError(f"unknown command {name}", hint=r"\? lists them")
        self._commands[name](rest.strip().rstrip(";").strip())

    def _help(self, _: str) -> None:
        self._write(
            "A statement ends with a semicolon: SELECT ..., CREATE STREAM, CREATE QUERY, "
            "CREATE VIEW."
        )
        for name, words in COMMANDS.items():
            self._write(f"  {name:<10}{words}")
        self._write(
            "SHOW, DESCRIBE NAME, PAUSE NAME, RESUME NAME, DROP NAME, EXPLAIN SELECT ..., help and "
            "exit do as well."
        )

    def _leave(self, _: str) -> None:
        raise Leave

    def _describe(self, name: str) -> None:
        snapshot = self._backend.snapshot()
        if name:
            self._describe_one(name)
            return
        streams = [(s.name, s.source, s.rows, len(s.columns)) for s in snapshot.streams]
        self._table(("stream", "source", "rows", "columns"), streams, "no stream is declared")
        queries = [
            (q.name, q.state, q.rows, " ".join(own_text(q.cql).split())) for q in snapshot.queries
        ]
        self._write("")
        self._table(("query", "state", "rows", "text"), queries, "no query is registered")
        self._write(f"\nabout the system itself: {', '.join(sorted(COLUMNS))}")

    def _alarms(self, _: str) -> None:
        snapshot = self._backend.snapshot()
        for alarm in snapshot.overview.alarms:
            self._write(f"{alarm.severity}: {told(alarm, snapshot.taken)}")
        if not snapshot.overview.alarms:
            self._write("nothing needs attention")

    def _describe_one(self, name: str) -> None:
        snapshot = self._backend.snapshot()
        for stream in snapshot.streams:
            if stream.name == name:
                self._table(("column", "type"), [*stream.columns, ("ts", "timestamp")], "")
                return
        if name.lower() in COLUMNS:
            columns = COLUMNS[name.lower()]
            self._table(("column", "type"), [*columns, ("ts", "timestamp")], "")
            return
        for query in snapshot.queries:
            if query.name == name:
                self._write(query.cql.strip())
                readers = [q.name for q in snapshot.queries if name in q.reads]
                if query.reads:
                    self._write(f"reads {', '.join(query.reads)}")
                if readers:
                    self._write(f"is read by {', '.join(readers)}")
                self._write(f"{query.state}{': ' + query.reason if query.reason else ''}")
                self._write(query.plan)
                return
        raise UsageError(f"there is no stream or query {name}", hint=r"\d lists them")

    def _explain(self, cql: str) -> None:
        told = self._backend.explain(cql)
        self._write(told.plan)
        for one in told.operators:
            users = f"runs already for {', '.join(one.shared_with)}" if one.exists else "new"
            self._write(f"  {one.label}: {users}")
        if told.admission.sentence:
            self._write(told.admission.sentence)

    def _tail(self, name: str) -> None:
        self._print(self._backend.tail(name))

    def _restart(self, name: str) -> None:
        self._backend.restart(name)
        self._write(f"query {name} continues")

    def _pause(self, name: str) -> None:
        self._write(self._backend.act("pause", name))

    def _resume(self, name: str) -> None:
        self._write(self._backend.act("resume", name))

    def _drop(self, name: str) -> None:
        readers = [q.name for q in self._backend.snapshot().queries if name in q.reads]
        self._backend.drop(name)
        self._write(f"query {name} is gone")
        for reader in readers:
            self._write(f"query {reader} reads {name} as it was, and continues with that")

    def _push(self, rest: str) -> None:
        stream, _, text = rest.partition(" ")
        try:
            row = json.loads(text)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise UsageError("a row is an object", hint=r'\push NAME {"column": 1}')
        self._backend.push(stream, row)

    def _include(self, path: str) -> None:
        if self._depth >= DEPTH_MAX:
            raise UsageError("files name each other in a circle")
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot read {path}", detail=error.strerror or "") from None
        self._depth += 1
        try:
            for piece in pieces_of(text):
                self.run(piece)
        finally:
            self._depth -= 1

    # -- rows -----------------------------------------------------------------------------------

    def _print(self, batches: Iterator[Batch]) -> None:
        """Rows as they come, in columns; the number of them at the end."""
        count = 0
        widths: list[int] = []
        for batch in batches:
            if batch.lost:
                self._write(f"... {batch.lost} rows before these are not kept")
            if self._json:
                for row in batch.rows:
                    told = dict(zip(batch.columns, row, strict=True))
                    self._write(json.dumps(told, default=str))
            elif batch.rows:
                texts = [[cell(v) for v in row] for row in batch.rows]
                if not widths:
                    widths = _widths(batch.columns, texts)
                    self._write(_line(batch.columns, widths))
                    self._write("  ".join("-" * w for w in widths))
                for line in texts:
                    self._write(_line(line, widths))
            count += len(batch.rows)
        if not self._json:
            self._write(f"({count} row{'' if count == 1 else 's'})")

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], empty: str) -> None:
        if self._json:
            for row in rows:
                self._write(json.dumps(dict(zip(columns, row, strict=True)), default=str))
            return
        if not rows:
            self._write(empty)
            return
        texts = [[cell(v) for v in row] for row in rows]
        widths = _widths(columns, texts)
        for line in (columns, *texts):
            self._write(_line(line, widths).rstrip())


def pieces_of(text: str) -> list[str]:
    """Commands, each on a line of its own, and the statements between them."""
    parts = re.split(r"^(\s*\\.*)$", text, flags=re.MULTILINE)
    return [part.strip() for part in parts if part.strip()]


def cell(value: Any) -> str:
    """A value in one line.

    >>> cell(None), cell(1.5), cell("a" + chr(10) + "b")
    ('null', '1.5', 'a b')
    """
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.7g}"
    text = str(value)
    if hasattr(value, "isoformat"):
        text = value.isoformat(sep=" ") if hasattr(value, "hour") else value.isoformat()
        text = text.removesuffix("+00:00")
    text = " ".join(text.split("\n"))
    return text if len(text) <= WIDTH_MAX else text[: WIDTH_MAX - 1] + "…"


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(c), *(len(r[i]) for r in rows)) for i, c in enumerate(columns)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True)).rstrip()
