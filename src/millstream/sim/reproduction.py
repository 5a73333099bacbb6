"""The one line that reproduces a run: command, seed, commit.

Finds the commit by reading the repository around the package, if there is one; starts no process.
"""

import shlex
from pathlib import Path

import millstream


def commit() -> str:
    """The commit this code was checked out at, or the installed version."""
    for folder in Path(__file__).resolve().parents:
        git = folder / ".git"
        if git.is_dir():
            found = _head(git)
            return found[:12] if found else "unknown"
    return f"version {getattr(millstream, '__version__', 'unknown')}"


def _head(git: Path) -> str:
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.exists():
            return loose.read_text().strip()
        for line in (git / "packed-refs").read_text().splitlines():
            digest, _, ref = line.partition(" ")
            if ref == name:
                return digest
    except OSError:
        return ""
    return ""


def line(
    scenario: str, seed: int, questions: tuple[str, ...] = (), policy: str | None = None
) -> str:
    """A shell line that runs it again.

    >>> line("a b.toml", 3, ("add-host",)).partition("  #")[0]
    "millstream simulate 'a b.toml' --seed 3 --what-if add-host"
    """
    words = ["millstream", "simulate", scenario, "--seed", str(seed)]
    if policy is not None:
        words += ["--policy", policy]
    for question in questions:
        words += ["--what-if", question]
    return f"{shlex.join(words)}  # commit {commit()}"
