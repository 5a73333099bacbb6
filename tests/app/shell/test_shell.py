"""The shell: completion, statements, commands, rows as they come; over a made-up system."""

import doctest
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.app import cli
from millstream.app.commands.run.shell import history_file
from millstream.app.shell import interpreter, words
from millstream.app.shell.backend import Backend, Batch, follow
from millstream.app.shell.interpreter import Interpreter, Leave, pieces_of
from millstream.app.shell.words import COMMANDS, at_prompt
from millstream.control.snapshot.model import DecisionSnapshot, Results, Snapshot, known_names
from millstream.core.errors import CqlError, UsageError
from millstream.edge.dashboard.serving import DashboardServer
from millstream.language.cql.parsing.completion import Known
from millstream.language.cql.views import reads_of
from millstream_bench.pages.synthetic_system import SyntheticSystem

KNOWN = Known(
    {"requests": ("host", "status"), "doors": ("door",), "sys.steps": ("seconds",)},
    ("errors", "busy"),
)


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("SELECT a FROM ", {"requests", "doors", "sys.steps", "errors"}),
        ("SELECT a FROM requests JOIN d", {"doors"}),
        ("SELECT a FROM requests r, d", {"doors"}),
        ("SELECT sta", {"status"}),
        ("SELECT r.s", set()),
        ("SELECT 1 FROM requests r WHERE r.", {"host", "status", "ts"}),
        ("SELECT 1 FROM requests [RANGE 1 MINUTE] AS r WHERE r.h", {"host"}),
        ("SELECT 1 FROM sys.s", {"sys.steps"}),
        ("SELECT 1 FROM requests [ra", {"RANGE"}),
        ("SELECT 1 FROM requests [RANGE 5 MIN", {"MINUTES"}),
        ("SELECT cou", {"count("}),
        ("cre", {"CREATE STREAM", "CREATE QUERY"}),
        ("SELECT 1 FROM doors WHERE ho", {"HOURS"}),  # doors has no host
        ("\\", set(COMMANDS)),
        (r"\t", {r"\tail"}),
        (r"\drop ", {"errors", "busy"}),
        (r"\d ", {"requests", "doors", "sys.steps", "errors", "busy"}),
        (r"\explain SELECT ho", {"host", "HOURS"}),
        (r"\i ", set()),
        ("", set()),
    ],
)
def test_what_may_follow(before: str, wanted: set[str]) -> None:
    assert wanted <= set(at_prompt(before, KNOWN)[1])
    if before.endswith(("MIN", r"\t", "[ra", "h")) or not wanted:
        assert set(at_prompt(before, KNOWN)[1]) == wanted


@given(st.text(alphabet=" \\[].,;aefhorst()'\n", max_size=30))
def test_completion_continues_the_word_whatever_stands_there(before: str) -> None:
    word, found = at_prompt(before, KNOWN)
    assert before.endswith(word)
    assert all(text.lower().startswith(word.lower()) for text in found)


class Told:
    """Collects lines."""

    def __init__(self, source: "Ending", **more: bool) -> None:
        self.lines: list[str] = []
        self.source = source
        self.shell = Interpreter(Backend(source), self.lines.append, **more)

    def run(self, text: str) -> str:
        self.lines.clear()
        self.shell.run(text)
        return "\n".join(self.lines)


class Ending(SyntheticSystem):
    """A system whose results end after three looks."""

    looks = 0
    texts: ClassVar[dict[str, str]] = {}

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        self.texts[name] = cql
        return super().register(name, cql)

    def snapshot(self) -> Snapshot:
        from dataclasses import replace  # noqa: PLC0415

        taken = super().snapshot()
        state = "finished" if self.looks >= 3 else "running"
        queries = tuple(
            replace(q, reads=reads_of(self.texts.get(q.name, ""))) for q in taken.queries
        )
        return replace(taken, overview=replace(taken.overview, state=state), queries=queries)

    def results(self, query: str, after: int = 0) -> Results:
        self.looks += 1
        if self.looks > 3:
            return Results(("host", "n"), (), after)
        return Results(("host", "n"), ((f"h{self.looks}", self.looks),), after + 1)


@pytest.fixture
def told() -> Told:
    return Told(Ending(queries=5, operators=8, processors=1, streams=2))


def test_a_select_is_registered_looked_at_and_dropped(told: Told) -> None:
    shown = told.run("SELECT host, count(*) AS n FROM stream_1;")
    assert shown.splitlines() == [
        "host  n", "----  -", "h1    1", "h2    2", "h3    3", "(3 rows)",
    ]  # fmt: skip
    assert not any(line.startswith("shell_") for line in told.run(r"\d").splitlines())


def test_a_query_is_dropped_when_nobody_looks_any_more() -> None:
    source = SyntheticSystem(queries=5, operators=8, processors=1)
    rows = Backend(source).select("SELECT host FROM stream_1")
    assert isinstance(next(rows), Batch)
    assert any(q.name.startswith("shell_") for q in source.snapshot().queries)
    rows.close()  # type: ignore[attr-defined]
    assert not any(q.name.startswith("shell_") for q in source.snapshot().queries)


def test_rows_as_json() -> None:
    told = Told(Ending(queries=5, operators=8, processors=1), as_json=True)
    shown = told.run("SELECT host FROM stream_1;").splitlines()
    assert json.loads(shown[0]) == {"host": "h1", "n": 1}


def test_describing(told: Told) -> None:
    assert "stream_1" in told.run(r"\d")
    assert "query 1" in told.run(r"\d")
    assert told.run(r"\d stream_1").splitlines()[1].split() == ["host", "string"]
    assert "GROUP BY host" in told.run(r"\d query 1")
    assert "about the system itself: sys.admissions" in told.run(r"\d")
    assert told.run(r"\d sys.steps").splitlines()[1].split() == ["at", "timestamp"]
    with pytest.raises(UsageError, match="no stream or query nothing"):
        told.run(r"\d nothing")


def test_a_view_is_known_to_the_statements_after_it(told: Told) -> None:
    said = told.run("CREATE VIEW busy AS SELECT host FROM stream_1 WHERE n > 5;")
    assert said == "view busy is known in this shell"
    told.run("CREATE QUERY mine AS SELECT host FROM busy;")
    assert told.source.texts["mine"].split("\n;\n") == [
        "CREATE QUERY mine AS SELECT host FROM busy",
        "CREATE VIEW `busy` AS SELECT host FROM stream_1 WHERE n > 5",
    ]
    with pytest.raises(UsageError, match="there is a query mine"):
        told.run("CREATE VIEW mine AS SELECT host FROM stream_1;")


def test_creating_explaining_and_dropping(told: Told) -> None:
    made = told.run("CREATE QUERY mine AS SELECT host FROM stream_1;")
    assert made.startswith("query mine was taken")
    assert "would be taken on processor-1" in told.run(r"\explain SELECT host FROM stream_1")
    assert told.run(r"\drop mine") == "query mine is gone"
    with pytest.raises(UsageError, match="there is no query mine"):
        told.run(r"\drop mine;")


def test_who_reads_a_query_is_told(told: Told) -> None:
    told.run("CREATE QUERY above AS SELECT host FROM stream_1;")
    told.source.register("below", "SELECT host FROM above\n;\nCREATE VIEW `above` AS SELECT 1")
    assert "is read by below" in told.run("DESCRIBE above")
    assert "reads above" in told.run("DESCRIBE below")
    assert told.run("DROP QUERY above").splitlines() == [
        "query above is gone", "query below reads above as it was, and continues with that",
    ]  # fmt: skip


def test_queries_rest_and_go_on(told: Told) -> None:
    told.run("CREATE QUERY mine AS SELECT host FROM stream_1;")
    told.run("PAUSE QUERY mine;")
    assert next(q for q in told.source.snapshot().queries if q.name == "mine").state == "parked"
    told.run(r"\resume mine")
    assert next(q for q in told.source.snapshot().queries if q.name == "mine").state == "running"


def test_mistakes_are_underlined(told: Told) -> None:
    with pytest.raises(CqlError) as wrong:
        told.run("SELECT wrong FROM stream_1;")
    assert "^^^^^" in str(wrong.value)
    for text in (
        r"\nonsense",
        r"\i /nowhere/at/all",
        r"\push s not-json",
        "CREATE STREAM s (a int)",
    ):
        with pytest.raises(UsageError):
            told.run(text)
    with pytest.raises(Leave):
        told.run(r"\q")
    assert r"\tail" in told.run(r"\?")


def test_files_of_statements(told: Told, tmp_path: Path) -> None:
    file = tmp_path / "script.cql"
    file.write_text("-- two things\nCREATE QUERY a AS SELECT host FROM stream_1;\n\\d a\n")
    assert "query a was taken" in told.run(f"\\i {file}")
    file.write_text(f"\\i {file}\n")
    with pytest.raises(UsageError, match="circle"):
        told.run(f"\\i {file}")
    assert pieces_of("SELECT 1;\n  \\d\nSELECT 2;\n") == ["SELECT 1;", r"\d", "SELECT 2;"]


def test_a_failed_query_ends_its_tail() -> None:
    source = SyntheticSystem(queries=5, operators=8, processors=1)
    source.results = lambda query, after=0: Results((), (), after)  # type: ignore[method-assign]
    with pytest.raises(Exception, match="query 3 failed: division by zero"):
        list(follow(source, "query 3"))


def test_names_for_completion() -> None:
    known = known_names(SyntheticSystem(queries=5, operators=8, processors=1).snapshot())
    assert known.streams["stream_1"] == ("host", "bytes", "status")
    assert "query 5" in known.queries


def test_the_command_against_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with DashboardServer(SyntheticSystem(5, 8, 1), port=0) as server:
        assert cli.run(["shell", "--url", server.url, "-c", r"\d stream_1"]) == 0
        assert "bytes" in capsys.readouterr().out
        wrong = "SELECT wrong FROM stream_1;"
        assert cli.run(["shell", "--url", server.url, "-c", wrong, "-c", r"\d"]) == 2
        told = capsys.readouterr()
        assert "^^^^^" in told.err
        assert told.out == ""  # nothing after the mistake
    assert cli.run(["shell", "--url", "127.0.0.1:1", "-c", r"\d"]) == 3


def test_what_was_looked_at_ends_with_a_shell_that_is_terminated() -> None:
    system = SyntheticSystem(queries=5, operators=8, processors=1, streams=2)

    def looked_at() -> list[str]:
        return [q.name for q in system.snapshot().queries if q.name.startswith("shell_")]

    def until(wanted: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not wanted():
            assert time.monotonic() < end
            time.sleep(0.05)

    with DashboardServer(system, port=0) as server:
        call = "from millstream.app.cli import main; main()"
        command = [sys.executable, "-c", call, "shell", "--url", server.url]
        process = subprocess.Popen([*command, "-c", "SELECT host FROM stream_1;"],
                                   stdout=subprocess.DEVNULL)  # fmt: skip
        until(lambda: len(looked_at()) == 1)
        process.terminate()
        assert process.wait(60) == 143
        assert looked_at() == []


def test_history_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file().stat().st_mode & 0o077 == 0


def test_examples_in_the_text() -> None:
    for module in (words, interpreter):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("spoken", "command"),
    [
        ("SHOW STREAMS;", r"\d"), ("describe stream_1", r"\d stream_1"), ("help", r"\?"),
        ("SHOW ALARMS", r"\alarms"),
    ],
)  # fmt: skip
def test_words_of_other_shells_are_understood(spoken: str, command: str) -> None:
    system = Ending(queries=5, operators=8, processors=1, streams=2)
    spoken_told, told = Told(system), Told(system)
    spoken_told.run(spoken)
    told.run(command)
    assert told.lines
    first_words = [[line.split()[:1] for line in t.lines] for t in (spoken_told, told)]
    assert first_words[0] == first_words[1]
    assert interpreter.complete(spoken)
    with pytest.raises(Leave):
        told.run("exit")
