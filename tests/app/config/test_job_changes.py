"""What an edited job file changes: found and told without anything that runs."""

from pathlib import Path

import pytest

from millstream.app import cli
from millstream.app.config import load_job
from millstream.app.config.job_changes import KnownQuery, changes_of
from millstream.app.runs.folder import RunFolder
from millstream.core.errors import UsageError

JOB = """\
[streams.s]
path = "s.csv"
columns = { at = "long", n = "int" }
time = "timestamp_seconds(at)"

[queries.big]
cql = "SELECT n FROM s WHERE n > 5"

[queries.bigger]
cql = "SELECT n FROM big WHERE n > 9"

[queries.all]
cql = "SELECT n FROM s"
"""
STREAM = """
[streams.t]
path = "s.csv"
columns = { at = "long", n = "int" }
time = "timestamp_seconds(at)"
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Of a run that has been stopped."""
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "s.csv").write_text("1,7\n")
    with RunFolder(tmp_path / "out") as made:
        made.record(load_job(tmp_path / "job.toml"), "csv")
    return made


def edited(folder: RunFolder, *changes: tuple[str, str], more: str = "") -> Path:
    text = JOB
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder.path.parent / "job.toml"
    path.write_text(text + more)
    return path


def test_the_same_file_changes_nothing(folder: RunFolder) -> None:
    changes = folder.changes(load_job(edited(folder, ('path = "s.csv"', 'path  =  "s.csv"'))))
    assert not changes
    assert list(changes.lines()) == []


def test_added_changed_dropped_and_paused(folder: RunFolder) -> None:
    path = edited(
        folder, ("n > 5", "n > 6"), ('[queries.all]\n', '[queries.every]\n'), more=STREAM
    )  # fmt: skip
    changes = folder.changes(load_job(path))
    assert changes.table() == {
        "streams": ["t"], "added": ["every"], "changed": ["big", "bigger"], "dropped": ["all"],
        "paused": [], "resumed": [], "refused": [],
    }  # fmt: skip
    assert list(changes.lines()) == [
        "+ stream t",
        "+ query every",
        "    + SELECT n FROM s",
        "~ query big",
        "    - SELECT n FROM s WHERE n > 5",
        "    + SELECT n FROM s WHERE n > 6",
        "~ query bigger",
        "    as a query or view that it reads has changed",
        "- query all",
    ]
    paused = edited(
        folder, ('cql = "SELECT n FROM s"\n', 'cql = "SELECT n FROM s"\npaused = true\n')
    )
    assert list(folder.changes(load_job(paused)).lines()) == ["| query all is paused"]
    with folder:
        folder.amend(load_job(paused), "csv")
    assert list(folder.changes(load_job(edited(folder))).lines()) == ["> query all continues"]


def test_what_others_read_is_not_taken_away(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    without = edited(folder, ('[queries.big]\ncql = "SELECT n FROM s WHERE n > 5"\n', ""))
    assert folder.changes(load_job(without)).refused == (
        "query bigger reads big, which the file no longer has",
    )
    assert cli.run(["apply", str(without), "--run", str(folder.path), "--dry-run"]) == 0
    assert "! query bigger reads big" in capsys.readouterr().out
    assert cli.run(["apply", str(without), "--run", str(folder.path)]) == 2
    both = edited(folder, ('[queries.big]\ncql = "SELECT n FROM s WHERE n > 5"\n', ""),
                  ("FROM big WHERE", "FROM s WHERE"))  # fmt: skip
    changes = folder.changes(load_job(both))
    assert (changes.refused, changes.dropped) == ((), ("big",))


def test_streams_are_what_they_are(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    path = edited(folder, ('n = "int"', 'n = "long"'))
    assert cli.run(["apply", str(path), "--run", str(folder.path)]) == 2
    assert "stream s has changed" in capsys.readouterr().err
    path.write_text(STREAM + '[queries.all]\ncql = "SELECT n FROM t"\n')
    assert cli.run(["apply", str(path), "--run", str(folder.path)]) == 2
    assert "stream s cannot be taken away" in capsys.readouterr().err


def test_queries_of_others_stay_on_a_cluster(folder: RunFolder) -> None:
    job = load_job(edited(folder))
    known = {"theirs": KnownQuery("SELECT 1"), "all": KnownQuery("SELECT n FROM s")}
    changes = changes_of(job, known, {"s": "", "x": ""}, {"s": ""}, drop_others=False)
    assert changes.table()["added"] == ["big", "bigger"]
    assert (changes.dropped, changes.changed, changes.refused) == ((), (), ())


def test_a_run_that_rests_takes_it_over_later(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "big").mkdir()
    (folder.path / ".big.digests").write_text("")
    path = edited(folder, ("n > 5", "n > 6"))
    command = ["apply", str(path), "--run", str(folder.path)]
    assert cli.run([*command, "--dry-run"]) == 0
    assert "nothing was done (--dry-run)" in capsys.readouterr().out
    with pytest.raises(Exception, match="has changed since it began"), folder:
        folder.claim(load_job(path), "csv")
    assert cli.run(command) == 0
    assert "it is done when it does" in capsys.readouterr().out
    assert (folder.path / "big.old-1").is_dir(), "results are put aside"
    assert (folder.path / ".big.old-1.digests").exists(), "and can still be checked"
    assert not (folder.path / ".big.digests").exists()
    with folder:
        folder.claim(load_job(path), "csv")
    assert cli.run(command) == 0
    assert capsys.readouterr().out == "nothing changes\n"


def test_what_cannot_be_applied_is_told(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = edited(folder, ("n > 5", "n > 6"))
    assert cli.run(["apply", str(path), "--run", str(tmp_path / "none")]) == 2
    assert "not a folder of a run" in capsys.readouterr().err
    path.write_text(JOB.replace("cql =", "paused = 1\ncql =", 1))
    assert cli.run(["apply", str(path), "--run", str(folder.path)]) == 2
    assert "true or false" in capsys.readouterr().err


def test_beginning_anew_removes_what_the_run_wrote_and_nothing_else(folder: RunFolder) -> None:
    names = ("big", "all.changes", "s.late", "s.rejected", "mine", "precious")
    for name in names:
        (folder.path / name).mkdir()
    with folder:
        folder.register({"mine": "SELECT n FROM s"})
        assert folder.registered() == {"mine": "SELECT n FROM s"}
        folder.begin_anew()
        assert not folder.recorded()
        folder.claim(load_job(edited(folder, ("n > 5", "n > 6"))), "csv")
    assert [p.name for p in folder.path.iterdir() if p.name[0] != "."] == ["precious"]
    with pytest.raises(UsageError, match="not a folder of a run"):
        folder.changes(load_job(edited(folder)))
