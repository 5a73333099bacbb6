"""Compares what a command prints with what a page says it prints: all of it, line by line.

What differs from one time and machine to another counts as equal, by one rule:

    runs of blanks                              one blank
    3.2 s, 14 ms, 2 minutes, 1.5 MB, 81 %, 12/s  a number with a unit of time, size, share or rate
    16:54:02 at the beginning of a line          the time of day
    o:1f3c9a0b, #9c41d2                          the id of an operator
    /tmp/...                                     a path of the folder in which the page runs
    "time": "..."                                of a line of a log
    goal: WHAT: how it stands                    how a goal stands
    ...                                          alone on a line of the page: any lines, or none

A block that is marked `excerpt` is compared as before: its lines are among those that are printed.
`MILLSTREAM_CONSOLE=write` writes into the page what was printed; the diff is the review.
"""

import re
from collections.abc import Sequence
from pathlib import Path

ANY = "..."
UNITS = "s|ms|us|min|minutes?|seconds?|B|kB|MB|GB|%"
CHANGING = (
    (re.compile(r"^\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r'(?<="time": ")[^"]+'), "TIME"),
    (re.compile(r"(?<=^goal: )([^:]+): .*"), r"\1: STANDS"),
    (re.compile(rf"(?<![\w.])\d[\d,.]*(?= ?(?:{UNITS})(?!\w))"), "N"),
    (re.compile(r"(?<![\w.])\d[\d,.]*(?=/s\b)"), "N"),
    (re.compile(r"(?<=o:)[0-9a-f]{6,}|(?<=#)[0-9a-f]{2,}\b|\b[0-9a-f]{8}\b"), "ID"),
)  # fmt: skip


def normal(line: str, folder: Path) -> str:
    """A line without what changes from one time to another.

    >>> normal("busy   3  done in 1.25 s, 81 % of 4.5 MB,  o:1f3c9a0b", Path("/nowhere"))
    'busy 3 done in N s, N % of N MB, o:ID'
    >>> normal("2024-05-01 08:01:10  3 rows", Path("/nowhere"))
    '2024-05-01 08:01:10 3 rows'
    """
    line = " ".join(line.replace(f"{folder}/", "").replace(str(folder), ".").split())
    for pattern, word in CHANGING:
        line = pattern.sub(word, line)
    return line


def difference(wanted: Sequence[str], printed: Sequence[str], folder: Path) -> str:
    """Where what was printed is not what the page says; empty where it is.

    >>> difference(["a", "...", "d"], ["a", "b", "c", "d"], Path("/nowhere"))
    ''
    >>> difference(["a"], ["a", "b"], Path("/nowhere"))
    "the page does not have 'b'"
    >>> difference(["a", "...", "d"], ["a", "b"], Path("/nowhere"))
    "nobody printed 'd'"
    """
    there = [line for one in printed if (line := normal(one, folder))]
    at, skipping = 0, False
    for line in (line for one in wanted if (line := normal(one, folder))):
        if line == ANY:
            skipping = True
            continue
        if skipping:
            at = next((i for i in range(at, len(there)) if there[i] == line), len(there))
        if at == len(there):
            return f"nobody printed {line!r}"
        if there[at] != line:
            return f"the page has {line!r} where {there[at]!r} was printed"
        at, skipping = at + 1, False
    return "" if skipping or at == len(there) else f"the page does not have {there[at]!r}"


def missing(wanted: Sequence[str], printed: Sequence[str], folder: Path) -> str:
    """The first line of an excerpt that is no part of a line that was printed; empty: all are."""
    there = [normal(line, folder) for line in printed]
    for line in (line for one in wanted if (line := normal(one, folder)) and line != ANY):
        at = next((i for i, one in enumerate(there) if line in one), None)
        if at is None:
            return f"nobody printed {line!r}"
        del there[at]
    return ""


def rewritten(page: Path, old: str, commands: Sequence[tuple[str, str]], folder: Path) -> None:
    """Puts what was printed in place of what a block says, but for lines that it leaves out."""
    lines = []
    for command, printed in commands:
        lines += [f"$ {command}", *(one.rstrip() for one in printed.splitlines() if one.strip())]
    text = page.read_text(encoding="utf-8")
    said = "\n".join(lines).replace(f"{folder}/", "") + "\n"
    page.write_text(text.replace(old, said, 1), encoding="utf-8")
