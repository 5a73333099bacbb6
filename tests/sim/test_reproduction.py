"""Finding the commit without starting a process."""

from pathlib import Path

from millstream.sim import reproduction


def test_commit_of_a_branch_of_packed_refs_and_detached(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\naaaa refs/heads/other\nbbbb refs/heads/main\n")
    assert reproduction._head(git) == "bbbb"
    (git / "refs" / "heads" / "main").write_text("cccc\n")
    assert reproduction._head(git) == "cccc"
    (git / "HEAD").write_text("dddd\n")
    assert reproduction._head(git) == "dddd"
    assert reproduction._head(tmp_path / "absent") == ""


def test_the_line_quotes_what_a_shell_would_split() -> None:
    line = reproduction.line("my file.toml", 7, ("a + b",), "static")
    command, _, commit = line.partition("  # ")
    asked = "--policy static --what-if 'a + b'"
    assert command == f"millstream simulate 'my file.toml' --seed 7 {asked}"
    assert commit.startswith("commit ")
