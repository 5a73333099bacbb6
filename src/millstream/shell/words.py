"""What may follow at the cursor: keywords, streams, columns, queries, functions, commands.

Pure: from the text before the cursor and what is known, to candidates. Knows the language only as
far as a person who types needs it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.cql.functions import AGGREGATES

COMMANDS: Mapping[str, str] = {
    r"\d": "streams and queries; \\d NAME tells of one",
    r"\explain": "what a query means: \\explain SELECT ...",
    r"\tail": "results of a query as they come: \\tail NAME; Ctrl-C ends it",
    r"\drop": "end a query: \\drop NAME",
    r"\push": 'a row for a stream without source: \\push NAME {"column": 1}',
    r"\i": "statements of a file: \\i FILE",
    r"\?": "this list",
    r"\q": "leave",
}
KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "ON", "AND", "OR", "NOT", "AS",
    "UNION ALL", "DISTINCT", "BETWEEN", "LIKE", "IN", "IS NULL", "CASE", "WHEN", "THEN", "ELSE",
    "END", "RANGE", "ROWS", "SLIDE", "NOW", "UNBOUNDED", "PARTITION BY", "SECONDS", "MINUTES",
    "HOURS", "DAYS", "MILLISECONDS", "ISTREAM", "DSTREAM", "RSTREAM", "CREATE STREAM",
    "CREATE QUERY", "FROM BEGINNING",
)  # fmt: skip
WINDOW_WORDS = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "SLIDE", "PARTITION BY", "SECONDS",
                "MINUTES", "HOURS", "DAYS", "MILLISECONDS")  # fmt: skip
NAMED = (r"\d", r"\tail", r"\drop", r"\push")  # commands that take a name
_WORD = re.compile(r"[\w.]*\Z")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist."""

    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)  # with their columns
    queries: Sequence[str] = ()


def candidates(before: str, known: Known) -> tuple[str, list[str]]:
    r"""The beginning of the word at the cursor, and what it may become.

    >>> known = Known({"requests": ("host", "status")}, ("errors",))
    >>> candidates("SELECT ho", known)
    ('ho', ['host', 'HOURS'])
    >>> candidates("SELECT host FROM re", known)
    ('re', ['requests'])
    >>> candidates(r"\tail e", known)
    ('e', ['errors'])
    """
    if before.lstrip().startswith("\\"):
        return _after_command(before.lstrip(), known)
    match = _WORD.search(before)
    word = match[0] if match else ""
    statement = before.rsplit(";", 1)[-1]
    if statement.count("[") > statement.count("]"):
        return word, _fitting(word, WINDOW_WORDS)
    previous = _previous_word(statement, word)
    if previous in ("FROM", "JOIN"):
        return word, _fitting(word, sorted(known.streams))
    if "." in word:
        return _qualified(word, statement, known)
    if not word:
        return word, []
    used = [s for s in known.streams if re.search(rf"\b{re.escape(s)}\b", statement)]
    streams = used or list(known.streams)
    columns = sorted({c for s in streams for c in known.streams[s]} | {"ts"})
    names = [*columns, *sorted(known.streams), *(f"{a}(" for a in sorted(AGGREGATES))]
    return word, _fitting(word, [*names, *KEYWORDS])


def _previous_word(statement: str, word: str) -> str:
    rest = statement[: len(statement) - len(word)].rstrip()
    if rest.endswith(","):
        # a list after FROM goes on with streams
        clauses = re.findall(r"\b(FROM|WHERE|SELECT|GROUP|HAVING|ON)\b", rest, re.IGNORECASE)
        return "FROM" if clauses and clauses[-1].upper() == "FROM" else ""
    found = re.search(r"(\w+)$", rest)
    return found[1].upper() if found else ""


def _qualified(word: str, statement: str, known: Known) -> tuple[str, list[str]]:
    """`a.ho`: columns of the stream that `a` stands for; `sys.` of streams with a dot."""
    alias, _, start = word.rpartition(".")
    for stream, columns in known.streams.items():
        named = rf"\b{re.escape(stream)}\b\s*(?:\[[^\]]*\]\s*)?(?:AS\s+)?{re.escape(alias)}\b"
        if alias == stream or re.search(named, statement, re.IGNORECASE):
            return start, _fitting(start, sorted({*columns, "ts"}))
    return word, _fitting(word, sorted(known.streams))


def _after_command(text: str, known: Known) -> tuple[str, list[str]]:
    command, space, rest = text.partition(" ")
    if not space:
        return command, [c for c in COMMANDS if c.startswith(command)]
    if command == r"\explain":
        return candidates(rest, known)
    if command in NAMED and " " not in rest:
        streams = () if command in (r"\tail", r"\drop") else known.streams
        queries = () if command == r"\push" else known.queries
        return rest, _fitting(rest, sorted([*streams, *queries]))
    return "", []


def _fitting(word: str, names: Sequence[str]) -> list[str]:
    lowered = word.lower()
    return [n for n in names if n.lower().startswith(lowered) and n != word]
