"""Windows of Flink, Spark and ksqlDB are the windows of CQL: equal fingerprints, equal columns."""

import pytest

from language.cql.binding import Binding
from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.parsing.parser import CreateStream, parse
from millstream.language.plan.explain import explain

pytestmark = pytest.mark.spark

TUMBLING = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
HOPPING = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
UNEVEN = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 4 SECONDS ALIGN START] GROUP BY k"
BOUNDS = (
    "SELECT window_start AS a, window_end AS b, count(*) AS n "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
)
STRUCT = (
    "SELECT named_struct('start', window_start, 'end', window_end) AS w, count(*) AS n "
    "FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]"
)
MOVED = "SELECT count(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY OFFSET 2 HOURS]"
SESSIONS = "SELECT k, window_start AS a, count(*) AS n FROM s [SESSION 10 MINUTES] GROUP BY k"
TABLE = "SELECT k, count(*) AS n FROM s GROUP BY k"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        # Flink: table functions
        ("SELECT k, count(*) AS n FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
         " GROUP BY window_start, window_end, k", TUMBLING),
        ("SELECT k, count(*) n FROM TUMBLE(TABLE s, DESCRIPTOR(at), INTERVAL '10' SECONDS) "
         "GROUP BY k, window_start, window_end", TUMBLING),
        ("SELECT k, COUNT(*) AS n FROM TABLE(TUMBLE(DATA => TABLE s, TIMECOL => DESCRIPTOR(ts), "
         "SIZE => INTERVAL '10' SECOND)) AS w GROUP BY k", TUMBLING),
        ("SELECT k, count(*) AS n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
         "INTERVAL '10' SECOND)) GROUP BY window_start, window_end, k", HOPPING),
        ("SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY, "
         "INTERVAL '2' HOUR)) GROUP BY window_start, window_end", MOVED),
        ("SELECT window_start AS a, window_end AS b, count(*) AS n FROM TABLE(TUMBLE(TABLE s, "
         "DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end", BOUNDS),
        ("SELECT k, count(*) AS n FROM TABLE(TUMBLE((SELECT k FROM s WHERE v > 1), DESCRIPTOR(ts), "
         "INTERVAL '10' SECOND)) GROUP BY k",
         "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WHERE v > 1 "
         "GROUP BY k"),
        # Flink: windows in GROUP BY
        ("SELECT k, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '10' SECOND), k", TUMBLING),
        ("SELECT k, count(*) AS n FROM s GROUP BY k, HOP(at, INTERVAL '5' SECOND, INTERVAL '10' "
         "SECOND)", HOPPING),
        ("SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS a, TUMBLE_END(ts, INTERVAL '10' SECOND) "
         "AS b, count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)", BOUNDS),
        # Spark
        ("SELECT k, count(*) AS n FROM s GROUP BY k, window(ts, '10 seconds')", TUMBLING),
        ("SELECT k, count(*) AS n FROM s GROUP BY window(ts, '10 seconds', '5 seconds'), k",
         HOPPING),
        ("SELECT k, count(*) AS n FROM s GROUP BY window(ts, '10 seconds', '4 seconds'), k",
         UNEVEN),
        ("SELECT window.start AS a, window.end AS b, count(*) AS n FROM s "
         "GROUP BY window(ts, '10 seconds')", BOUNDS),
        ("SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w", STRUCT),
        ("SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM s GROUP BY 1", STRUCT),
        ("SELECT count(*) AS n FROM s GROUP BY window(ts, '1 day', '1 day', '2 hours')", MOVED),
        ("SELECT k, count(*) AS n FROM s GROUP BY window(ts, '10 seconds'), k HAVING "
         "window.start > '2024-01-01'", TUMBLING + " HAVING window_start > '2024-01-01'"),
        # ksqlDB
        ("SELECT k, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k EMIT FINAL",
         TUMBLING),
        ("SELECT k, COUNT(*) AS n FROM s q WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS) "
         "GROUP BY k", HOPPING),
        ("SELECT WINDOWSTART AS a, WINDOWEND AS b, COUNT(*) AS n FROM s WINDOW TUMBLING "
         "(SIZE 10 SECONDS)", BOUNDS),
        # ksqlDB: the span of a join
        ("SELECT a.k, b.v FROM s a JOIN t b WITHIN 5 SECONDS ON a.k = b.k",
         "SELECT a.k, b.v FROM s [RANGE 5 SECONDS] a JOIN t [RANGE 5 SECONDS] b ON a.k = b.k"),
        ("SELECT a.k, b.v FROM s a LEFT JOIN t AS b WITHIN (2 SECONDS, 5 SECONDS) ON a.k = b.k "
         "EMIT CHANGES",
         "SELECT a.k, b.v FROM s [RANGE 5 SECONDS] a LEFT JOIN t [RANGE 2 SECONDS] b ON a.k = b.k"),
        # RisingWave
        ("SELECT k, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '10 SECONDS') "
         "GROUP BY k, window_start", TUMBLING),
        ("SELECT k, count(*) AS n FROM HOP(s, at, INTERVAL '5 SECONDS', INTERVAL '10 SECONDS') "
         "GROUP BY window_start, k", HOPPING),
        ("SELECT window(ts, '10 seconds') AS w, count(*) AS n FROM s GROUP BY ALL", STRUCT),
        # sessions
        ("SELECT k, window_start AS a, count(*) AS n FROM TABLE(SESSION(TABLE s PARTITION BY k, "
         "DESCRIPTOR(ts), INTERVAL '10' MINUTE)) GROUP BY k, window_start, window_end", SESSIONS),
        ("SELECT k, SESSION_START(ts, INTERVAL '10' MINUTE) AS a, count(*) AS n FROM s "
         "GROUP BY SESSION(ts, INTERVAL '10' MINUTE), k", SESSIONS),
        ("SELECT k, session_window.start AS a, count(*) AS n FROM s "
         "GROUP BY session_window(ts, '10 minutes'), k", SESSIONS),
        ("SELECT k, WINDOWSTART AS a, COUNT(*) AS n FROM s WINDOW SESSION (10 MINUTES) GROUP BY k",
         SESSIONS),
        ("SELECT k, min(ts) AS a, count(*) AS n FROM s [SESSION 10min] GROUP BY k", SESSIONS),
        (f"{TABLE} EMIT CHANGES", TABLE),
        ("SELECT k FROM s EMIT CHANGES", "SELECT k FROM s"),
        (f"{TUMBLING} EMIT ON WINDOW CLOSE", TUMBLING),
        # the stream's own column of the time, in lookups
        ("SELECT a.v, b.v AS w FROM s a ASOF JOIN t b ON a.k = b.k AND a.at >= b.at",
         "SELECT a.v, b.v AS w FROM s a ASOF JOIN t b ON a.k = b.k AND a.ts >= b.ts"),
        (f"SELECT a.v, b.n FROM s a JOIN ({TABLE}) FOR SYSTEM_TIME AS OF a.at AS b ON a.k = b.k",
         f"SELECT a.v, b.n FROM s a JOIN ({TABLE}) FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k"),
    ],
)  # fmt: skip
def test_another_spelling_is_the_same_query(theirs: str, ours: str, binding: Binding) -> None:
    there, here = binding.plan(theirs), binding.plan(ours)
    assert there.fingerprint == here.fingerprint
    assert [f.name for f in there.columns] == [f.name for f in here.columns]
    assert explain(there) == explain(here)


def test_bounds_keep_the_names_that_spark_gives_them(binding: Binding) -> None:
    plan = binding.plan(
        "SELECT window.start, window.end, window, count(*) AS n FROM s "
        "GROUP BY window(ts, '1 minute')"
    )
    assert [f.name for f in plan.columns] == ["start", "end", "window", "n"]
    assert plan.columns[2].type == "struct<start:timestamp,end:timestamp>"


def test_a_column_named_window_stays_one(binding: Binding) -> None:
    plan = binding.plan("SELECT window, v FROM (SELECT k AS window, v FROM s) t WHERE window = 'a'")
    assert [f.name for f in plan.columns] == ["window", "v"]


def test_a_watermark_in_create_stream_is_its_time_and_lateness() -> None:
    (made,) = parse(
        "CREATE STREAM s (at TIMESTAMP, k STRING, WATERMARK FOR at AS at - INTERVAL '5' SECOND)"
    )
    assert isinstance(made, CreateStream)
    assert (made.definition.time, made.definition.lateness_us) == ("at", 5_000_000)
    assert [f.name for f in made.definition.columns] == ["at", "k"]
    with pytest.raises(CqlError, match="given twice"):
        parse("CREATE STREAM s (at TIMESTAMP, WATERMARK FOR at AS at) WITH (time = 'at')")


REFUSED = [
    ("SELECT a.k FROM s a JOIN t b WITHIN 5 SECONDS ON a.k = b.k JOIN t c ON c.k = a.k",
     "WITHIN among several joins", "[RANGE 5 SECONDS] JOIN",
     "SELECT a.k FROM s a [RANGE 5 SECONDS] JOIN t b [RANGE 5 SECONDS] ON a.k = b.k JOIN t c "
     "ON c.k = a.k"),
    ("SELECT a.k FROM s [NOW] a JOIN t b WITHIN 5 SECONDS ON a.k = b.k", "WITHIN beside a window",
     "one of the two", "SELECT a.k FROM s a JOIN t b WITHIN 5 SECONDS ON a.k = b.k"),
    ("SELECT a.k FROM s a JOIN t b WITHIN 5 SECONDS GRACE PERIOD 1 DAY ON a.k = b.k",
     "GRACE in a join", "lateness", "SELECT a.k FROM s a JOIN t b WITHIN 5 SECONDS ON a.k = b.k"),
    # text, what is wrong, part of the hint, a text that the hint leads to
    ("SELECT count(*) FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL "
     "'10' MINUTE)) GROUP BY window_start", "CUMULATE needs a size that is a multiple",
     "the step before the size",
     "SELECT count(*) FROM TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL "
     "'1' HOUR)) GROUP BY window_start, window_end"),
    ("SELECT k FROM s [SESSION 10 MINUTES]", "SESSION has no effect here", "an aggregate",
     SESSIONS),
    ("SELECT count(*) FROM s [SESSION 10 MINUTES], t", "a join over sessions", "in a subquery",
     "SELECT t.k, n FROM (SELECT k, count(*) AS n FROM s [SESSION 10 MINUTES] GROUP BY k) AS q "
     "[RANGE 1 HOUR] JOIN t [RANGE 1 HOUR] ON q.k = t.k"),
    ("SELECT count(*) FROM TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), "
     "INTERVAL '1' MINUTE))", "PARTITION BY of SESSION that is not GROUP BY", "the same columns",
     SESSIONS),
    ("SELECT count(*) FROM s GROUP BY SESSION(ts)", "SESSION takes one gap", "PARTITION BY k",
     SESSIONS),
    ("DSTREAM(SELECT count(*) FROM s [SESSION 1 MINUTE])", "rows that never leave", "a window",
     "DSTREAM(SELECT k FROM s [RANGE 10 SECONDS])"),
    ("SELECT k FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
     "TUMBLE has no effect here", "an aggregate", TUMBLING),
    ("SELECT count(*) FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts)))", "expected a comma in TUMBLE",
     "INTERVAL '10' SECOND",
     "SELECT count(*) AS n FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))"),
    ("SELECT count(*) FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
     "HOP takes SLIDE and SIZE", "the slide before the size",
     "SELECT count(*) AS n FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
     "INTERVAL '10' SECOND))"),
    ("SELECT count(*) FROM TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, "
     "INTERVAL '5' SECOND))", "further apart than they are long", "up to the size", HOPPING),
    ("SELECT count(*) FROM TABLE(GENERATE(TABLE s))", "unknown table function GENERATE", "TUMBLE",
     TUMBLING),
    ("SELECT count(*) FROM s WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES)",
     "GRACE in a window is not supported", "lateness",
     "CREATE STREAM q (ts TIMESTAMP) WITH (time = 'ts', lateness = '10 seconds')"),
    ("SELECT count(*) FROM s WATERMARK ts DELAY OF INTERVAL 10 SECONDS",
     "WATERMARK in a query is not supported", "lateness",
     "CREATE STREAM q (ts TIMESTAMP) WITH (time = 'ts', lateness = '10 seconds')"),
    (f"{TUMBLING} EMIT CHANGES", "EMIT CHANGES over windows", "EMIT FINAL",
     f"{TUMBLING} EMIT FINAL"),
    (f"{TABLE} EMIT FINAL", "EMIT FINAL over a table", "leave it out", TABLE),
    ("SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) AS a, count(*) FROM s",
     "TUMBLE_START without TUMBLE", "GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)",
     "SELECT count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)"),
    ("SELECT TUMBLE_START(ts, INTERVAL '1' SECOND) AS a, count(*) FROM s "
     "GROUP BY TUMBLE(ts, INTERVAL '2' SECOND)", "of another window", "window_start", BOUNDS),
    ("SELECT count(*) FROM s JOIN t USING (k) GROUP BY TUMBLE(s.ts, INTERVAL '2' SECOND)",
     "TUMBLE in GROUP BY over a join", "join in a subquery",
     "SELECT count(*) AS n FROM (SELECT s.k FROM s JOIN t ON s.k = t.k) "
     "[RANGE 2 SECONDS SLIDE 2 SECONDS]"),
    ("SELECT count(*) FROM s [RANGE 1 SECOND] GROUP BY window(ts, '2 seconds')",
     "over a stream with a window", "keep one", TUMBLING),
    ("SELECT count(*) FROM s GROUP BY window(ts, '2 seconds'), TUMBLE(ts, INTERVAL '2' SECOND)",
     "two windows in GROUP BY", "one of them", TUMBLING),
    ("SELECT count(*) FROM s GROUP BY window(date_trunc('day', ts), '2 seconds')",
     "a time that is not the row's own", "windows go by ts", TUMBLING),
    ("SELECT count(*) FROM s GROUP BY window(ts)", "window takes 2 to 4",
     "window(ts, '10 seconds')",
     "SELECT count(*) AS n FROM s GROUP BY window(ts, '10 seconds')"),
    ("SELECT count(*) FROM s GROUP BY window(ts, '1 month')", "month", "30 DAYS",
     "SELECT count(*) AS n FROM s GROUP BY window(ts, '30 DAYS')"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "hint", "instead"), REFUSED)
def test_what_has_no_counterpart_is_refused_by_its_name(
    text: str, message: str, hint: str, instead: str, binding: Binding
) -> None:
    with pytest.raises(UsageError) as refused:
        binding.plan(text)
    assert message in str(refused.value)
    assert hint in refused.value.hint
    (statement,) = parse(instead)
    if not isinstance(statement, CreateStream):
        binding.plan(instead)


def test_an_offset_moves_windows_and_explain_says_so(binding: Binding) -> None:
    assert "over 1 day every 1 day offset 2 hours" in explain(binding.plan(MOVED))
    even = binding.plan(
        "SELECT count(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS OFFSET 2 SECONDS]"
    )
    plain = binding.plan("SELECT count(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]")
    assert even.fingerprint == plain.fingerprint
    with pytest.raises(CqlError, match="OFFSET does not go without RANGE and SLIDE"):
        binding.plan("SELECT count(*) AS n FROM s [RANGE 4 SECONDS OFFSET 1 SECOND]")
    with pytest.raises(CqlError, match="OFFSET does not go with RSTREAM"):
        binding.plan("RSTREAM(SELECT k FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS OFFSET 1 SECOND])")
