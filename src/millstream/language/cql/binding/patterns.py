"""Constants that functions read as patterns: one that cannot be read would fail on every row.

Spark computes a probe of constants. Where a time's pattern is that of another system, the message
shows how Spark writes it.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlglot import exp

from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.literals import plain_text, string
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Call, Expr, Literal

TIMES = ("date", "timestamp", "timestamp_ntz")
MOMENT = "TIMESTAMP '2000-01-01 00:00:00'"
UNIT_HINT = "e.g. 'HOUR', 'DAY', 'WEEK', 'MONTH'"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which argument is read as what, and an expression that fails where it cannot be."""

    probe: str
    kind: str
    hint: str
    position: int = 1


REGEX = Pattern("'' RLIKE {}", "a regular expression", "a sign itself goes in brackets: '[(]'")
TIME_HINT = "e.g. 'yyyy-MM-dd HH:mm:ss'; years are yyyy, days of a month dd"
SHOWN = Pattern(f"date_format({MOMENT}, {{}})", "a pattern of times", TIME_HINT)
READ = Pattern("try_to_timestamp('', {})", "a pattern of times", TIME_HINT)
ZONE = Pattern(
    f"from_utc_timestamp({MOMENT}, {{}})", "a time zone", "e.g. 'Europe/Berlin', '+02:00'"
)
CHARSET = Pattern("encode('', {})", "a character set", "e.g. 'UTF-8', 'ISO-8859-1'")
# What is no unit gives NULL for every row; a cast of no number fails where that shows.
TRUNCATED = "CAST(IF({} IS NULL, 'x', '1') AS INT)"
CUT_TIME = Pattern(
    TRUNCATED.format(f"date_trunc({{}}, {MOMENT})"), "a unit of time", UNIT_HINT, position=0
)
CUT_DATE = Pattern(
    TRUNCATED.format("trunc(DATE '2000-01-01', {})"), "a unit of dates", "e.g. 'WEEK', 'MONTH'"
)
PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "split", "regexp_replace"), REGEX),
    **dict.fromkeys(("regexp_extract", "regexp_extract_all", "regexp_count"), REGEX),
    **dict.fromkeys(("regexp_instr", "regexp_substr"), REGEX),
    **dict.fromkeys(("date_format", "from_unixtime", "to_char", "to_varchar"), SHOWN),
    **dict.fromkeys(("to_timestamp", "try_to_timestamp", "to_date", "try_to_date"), READ),
    **dict.fromkeys(("to_timestamp_ltz", "to_timestamp_ntz"), READ),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), READ),
    **dict.fromkeys(("from_utc_timestamp", "to_utc_timestamp"), ZONE),
    **dict.fromkeys(("encode", "decode"), CHARSET),
    "date_trunc": CUT_TIME,
    "trunc": CUT_DATE,
}
# These write numbers as well, by patterns that Spark's analyser judges.
OF_TIMES_ALONE = frozenset({"to_char", "to_varchar"})
# How other systems write the parts of a time, the longest first.
ELSEWHERE = {
    "YYYY": "yyyy", "YY": "yy", "MONTH": "MMMM", "MON": "MMM", "MM": "MM", "DAY": "EEEE",
    "DY": "E", "DD": "dd", "HH24": "HH", "HH12": "hh", "HH": "hh", "MI": "mm", "SS": "ss",
    "MS": "SSS", "US": "SSSSSS", "AM": "a", "PM": "a", "TZ": "VV",
}  # fmt: skip


def refuse_unreadable(
    text: Text,
    analyzer: Analyzer,
    made: Iterable[tuple[Expr, exp.Expr]],
    type_of: Callable[[Expr], str | None],
) -> None:
    """Refuses calls whose constant pattern Spark cannot read."""
    for call, node in made:
        if not isinstance(call, Call) or call.name not in PATTERNS:
            continue
        pattern = PATTERNS[call.name]
        constant = call.args[pattern.position] if len(call.args) > pattern.position else None
        if not isinstance(constant, Literal) or constant.type != "string":
            continue
        if call.name in OF_TIMES_ALONE and type_of(call.args[0]) not in TIMES:
            continue
        if call.name == "decode" and len(call.args) != 2:
            continue  # the other decode compares
        if not analyzer.computable(pattern.probe.format(constant.text)):
            hint = _rewritten(text, analyzer, call, node, constant) or pattern.hint
            raise text.error(f"{constant.text} is not {pattern.kind}", span_of(node), hint)


def _rewritten(
    text: Text, analyzer: Analyzer, call: Call, node: exp.Expr, constant: Literal
) -> str | None:
    """What to write instead of a pattern of another system."""
    if PATTERNS[call.name] not in (SHOWN, READ) or not isinstance(node, exp.Anonymous):
        return None
    spark = string(spelt_for_spark(plain_text(constant)))
    if spark == constant or not analyzer.computable(SHOWN.probe.format(spark.text)):
        return None
    value = text.slice(span_of(node.expressions[0]))
    name = "date_format" if call.name in OF_TIMES_ALONE else node.name
    return f"write {name}({value}, {spark.text})"


def spelt_for_spark(pattern: str) -> str:
    """A pattern of times as Spark writes it.

    >>> spelt_for_spark("YYYY-MM-DD HH24:MI:SS"), spelt_for_spark("dd Mon yy")
    ('yyyy-MM-dd HH:mm:ss', 'dd MMM yy')
    """
    parts = "|".join(ELSEWHERE)
    return re.sub(parts, lambda m: ELSEWHERE[m[0].upper()], pattern, flags=re.IGNORECASE)
