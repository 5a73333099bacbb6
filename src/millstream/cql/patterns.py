"""Constants that functions read as patterns: one that cannot be read would fail on every row."""

from collections.abc import Iterable

from sqlglot import exp

from millstream.cql.analyzer import Analyzer
from millstream.cql.expressions import span_of
from millstream.cql.parser import Text
from millstream.plan.expressions import Call, Expr, Literal

REGEX = ("'' RLIKE {}", "a regular expression", "a sign itself goes in brackets: '[(]'")
TIME_HINT = "e.g. 'yyyy-MM-dd HH:mm:ss'; years are yyyy, days of a month dd"
SHOWN = ("date_format(TIMESTAMP '2000-01-01 00:00:00', {})", "a pattern of times", TIME_HINT)
READ = ("try_to_timestamp('', {})", "a pattern of times", TIME_HINT)
# The second argument of each, and an expression of constants that fails where it cannot be read.
PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "split", "regexp_replace"), REGEX),
    **dict.fromkeys(("regexp_extract", "regexp_extract_all", "regexp_count"), REGEX),
    **dict.fromkeys(("regexp_instr", "regexp_substr"), REGEX),
    **dict.fromkeys(("date_format", "from_unixtime"), SHOWN),
    **dict.fromkeys(("to_timestamp", "try_to_timestamp", "to_date", "try_to_date"), READ),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), READ),
}


def refuse_unreadable(
    text: Text, analyzer: Analyzer, made: Iterable[tuple[Expr, exp.Expr]]
) -> None:
    """Refuses calls whose constant pattern Spark cannot read."""
    for call, node in made:
        match call:
            case Call(name, (_, Literal(pattern, "string"), *_)) if name in PATTERNS:
                probe, kind, hint = PATTERNS[name]
                if not analyzer.computable(probe.format(pattern)):
                    raise text.error(f"{pattern} is not {kind}", span_of(node), hint)
            case _:
                pass
