"""What may follow at the cursor of a query's text: keywords, streams, columns, functions.

Pure: from the text before the cursor and what is known, to candidates. Knows the language only as
far as a person who types needs it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.language.cql.functions import AGGREGATES
from millstream.language.cql.system_streams import COLUMNS

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "ON", "AND", "OR", "NOT", "AS",
    "UNION ALL", "DISTINCT", "BETWEEN", "LIKE", "IN", "IS NULL", "CASE", "WHEN", "THEN", "ELSE",
    "END", "RANGE", "ROWS", "SLIDE", "ALIGN START", "ALIGN END", "NOW", "UNBOUNDED", "SESSION",
    "OFFSET", "ORDER BY", "LIMIT", "QUALIFY", "ROLLUP", "CUBE", "GROUPING SETS", "UNNEST",
    "PARTITION BY", "SECONDS", "MINUTES", "HOURS", "DAYS", "MILLISECONDS",
    "ISTREAM", "DSTREAM", "RSTREAM", "CREATE STREAM", "CREATE QUERY", "CREATE VIEW",
    "FROM BEGINNING", "FROM HISTORY", "UNTIL", "OVER", "WINDOW",
    "PRECEDING", "FOLLOWING", "CURRENT ROW", "LAG", "LEAD",
    "MATCH_RECOGNIZE", "MEASURES", "AFTER MATCH SKIP", "PATTERN", "WITHIN", "DEFINE",
)  # fmt: skip
WINDOW_WORDS = ("RANGE", "ROWS", "NOW", "UNBOUNDED", "SLIDE", "ALIGN START", "ALIGN END",
                "SESSION", "CUMULATE", "OFFSET", "IN", "PARTITION BY", "SECONDS", "MINUTES",
                "HOURS", "DAYS", "MONTHS", "MILLISECONDS")  # fmt: skip
TEXT_MAX = 8_000  # characters before the cursor that are looked at
NAME_MAX = 200
_NO_WORD = re.compile(r"[^\w.]")


@dataclass(frozen=True, slots=True)
class Known:
    """Names that exist."""

    streams: Mapping[str, Sequence[str]] = field(default_factory=dict)  # with their columns
    queries: Sequence[str] = ()


def candidates(before: str, known: Known) -> tuple[str, list[str]]:
    """The beginning of the word at the cursor, and what it may become.

    >>> known = Known({"requests": ("host", "status")}, ("errors",))
    >>> candidates("SELECT ho", known)
    ('ho', ['host', 'HOURS'])
    >>> candidates("SELECT host FROM re", known)
    ('re', ['requests'])
    >>> candidates("SELECT kind FROM sys.st", known)
    ('sys.st', ['sys.steps'])
    >>> candidates("SELECT kind FROM sys.steps WHERE wai", known)
    ('wai', ['waited'])
    """
    before = before[-TEXT_MAX:]  # an endless one would be searched again from each of its signs
    word = _NO_WORD.split(before)[-1]
    if len(word) > NAME_MAX:
        return word, []
    statement = before.rsplit(";", 1)[-1]
    if statement.count("[") > statement.count("]"):
        return word, fitting(word, WINDOW_WORDS)
    previous = _previous_word(statement, word)
    if previous in ("FROM", "JOIN"):
        system = sorted(COLUMNS.keys() - known.streams.keys())
        return word, fitting(word, [*sorted(known.streams), *sorted(known.queries), *system])
    known = _with_used(known, statement)
    if "." in word:
        return _qualified(word, statement, known)
    if not word:
        return word, []
    used = [s for s in known.streams if re.search(rf"\b{re.escape(s)}\b", statement)]
    streams = used or list(known.streams)
    columns = sorted({c for s in streams for c in known.streams[s]} | {"ts"})
    names = [*columns, *sorted(known.streams), *(f"{a}(" for a in sorted(AGGREGATES))]
    return word, fitting(word, [*names, *KEYWORDS])


def _with_used(known: Known, statement: str) -> Known:
    """Streams about the system itself are everywhere, but named only where they are read."""
    read = {n for n in COLUMNS if re.search(rf"\b{re.escape(n)}\b", statement, re.IGNORECASE)}
    columns = {name: tuple(c for c, _ in COLUMNS[name]) for name in sorted(read)}
    return Known({**columns, **known.streams}, known.queries)


def _previous_word(statement: str, word: str) -> str:
    rest = statement[: len(statement) - len(word)].rstrip()
    if rest.endswith(","):
        # a list after FROM goes on with streams
        clauses = re.findall(r"\b(FROM|WHERE|SELECT|GROUP|HAVING|ON)\b", rest, re.IGNORECASE)
        return "FROM" if clauses and clauses[-1].upper() == "FROM" else ""
    return re.split(r"\W", rest)[-1].upper()


def _qualified(word: str, statement: str, known: Known) -> tuple[str, list[str]]:
    """`a.ho`: columns of the stream that `a` stands for; `sys.` of streams with a dot."""
    alias, _, start = word.rpartition(".")
    for stream, columns in known.streams.items():
        named = rf"\b{re.escape(stream)}\b\s*(?:\[[^\]]*\]\s*)?(?:AS\s+)?{re.escape(alias)}\b"
        if alias == stream or re.search(named, statement, re.IGNORECASE):
            return start, fitting(start, sorted({*columns, "ts"}))
    return word, fitting(word, sorted(known.streams))


def fitting(word: str, names: Sequence[str]) -> list[str]:
    """Names that begin with the word, whatever their case."""
    lowered = word.lower()
    return [n for n in names if n.lower().startswith(lowered) and n != word]
