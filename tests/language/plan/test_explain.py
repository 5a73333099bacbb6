"""Plans as text and JSON; no Spark."""

import json
from dataclasses import replace

from millstream.language.plan.explain import (
    duration,
    explain,
    explain_json,
    instant,
    notes,
    warnings,
)
from millstream.language.plan.expressions import Call, Column, Literal, Time
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Emit,
    Filter,
    Join,
    Node,
    Plan,
    Project,
    Source,
    Union,
    Windowed,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import (
    Change,
    Grouping,
    Instant,
    Now,
    Range,
    Rows,
    Running,
    Sliding,
    Snapshot,
    Unbounded,
)

SECOND = 1_000_000
COLUMNS = (Field("k", "string"), Field("v", "int"))
STREAM = Source("s", COLUMNS)
FIVE = Literal("5", "int")


def plan(root: Node, relation: bool = False) -> Plan:
    return Plan(root, root.schema, relation)


def counted(grouping: Grouping, rows: Node = STREAM, start: int | None = None) -> Aggregate:
    fields = (Field("k", "string"), Field("count", "bigint"))
    call = AggregateCall("count", None, "bigint")
    if start is None:
        return Aggregate(rows, (Column(0),), (call,), grouping, fields)
    return Aggregate(rows, (Column(0),), (call,), grouping, fields, start)


def text(root: Node) -> list[str]:
    """Without the result's line and the fingerprints."""
    lines = explain(plan(root)).split("\n")[1:]
    return [line.partition("  #")[0] for line in lines]


def test_every_node_has_a_line() -> None:
    over_five = Call(">", (Column(1), FIVE))
    doubled = Project(Filter(STREAM, over_five), (Column(0), Call("*", (Column(1), FIVE))),
                      (Field("k", "string"), Field("v5", "int")))  # fmt: skip
    assert text(Union((doubled, STREAM.__class__("t", doubled.schema)))) == [
        "union all",
        "  project k, v5 = (v * 5)",
        "    filter v > 5",
        "      stream s",
        "  stream t",
    ]
    join = Join((Windowed(STREAM, Range(2 * SECOND)), Windowed(STREAM, Rows(3, (Column(0),)))),
                Call("=", (Column(0), Column(2))))  # fmt: skip
    assert text(Emit(Distinct(join), "rstream", 5 * SECOND)) == [
        "rstream every 5 seconds",
        "  distinct",
        "    join on k#0 = k#2",
        "      window range 2 seconds",
        "        stream s",
        "      window rows 3 partition by k",
        "        stream s",
    ]
    assert text(Join((Windowed(STREAM, Now()), Windowed(STREAM, Unbounded())), None))[0] == (
        "join all pairs"
    )


def test_a_window_without_slide_is_told() -> None:
    (note,) = notes(plan(counted(Sliding(10 * SECOND, SECOND))))
    assert note == (
        "a result every second, each over the last 10 seconds; for one every 10 seconds: "
        "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
    )
    assert f"note: {note}" in explain(plan(counted(Sliding(10 * SECOND, SECOND)))).split("\n")
    assert explain_json(plan(counted(Sliding(10 * SECOND, SECOND))))["notes"] == [note]
    for grouping in (Sliding(10 * SECOND, 10 * SECOND), Sliding(SECOND, SECOND), Change()):
        assert list(notes(plan(counted(grouping)))) == []


def test_groupings() -> None:
    assert [text(counted(g))[0] for g in (Sliding(60 * SECOND, SECOND), Instant(), Change())] == [
        "aggregate count(*) by k over 1 minute every 1 second",
        "aggregate count(*) by k at each instant",
        "aggregate count(*) by k at each change",
    ]
    assert [text(counted(g))[0] for g in (Snapshot(2 * SECOND), Running())] == [
        "aggregate count(*) by k of what is there every 2 seconds",
        "aggregate count(*) by k so far",
    ]


def test_starts_are_told() -> None:
    source = Source("s", COLUMNS, SECOND)
    assert text(counted(Running(), source, SECOND)) == [
        "aggregate count(*) by k so far from 1970-01-01T00:00:01+00:00",
        "  stream s from 1970-01-01T00:00:01+00:00",
    ]


def test_the_first_line_tells_the_result() -> None:
    assert explain(plan(STREAM)).split("\n")[0] == (
        "result (stream): k string, v int, ts timestamp"
    )
    assert explain(plan(counted(Running()), True)).startswith("result (table, told by its changes)")


def test_fingerprints_show_what_is_shared() -> None:
    shared = STREAM.fingerprint[:8]
    assert explain(plan(Distinct(STREAM))).endswith(f"stream s  #{shared}")


def test_a_warning_above_ten_thousand_windows_a_row() -> None:
    day = 86_400 * SECOND
    (warning,) = warnings(plan(counted(Sliding(day, SECOND))))
    assert warning == "each row is in 86,400 windows (1 day by 1 second); give a longer SLIDE"
    assert explain(plan(counted(Sliding(day, SECOND)))).endswith(f"warning: {warning}")
    assert not list(warnings(plan(counted(Sliding(10_000 * SECOND, SECOND)))))
    assert list(warnings(plan(counted(Sliding(10_001 * SECOND, SECOND)))))
    joined = Join((Windowed(STREAM, Range(day)), Windowed(STREAM, Now())), None)
    assert list(warnings(plan(counted(Snapshot(SECOND), joined))))


def test_a_note_where_range_is_no_multiple_of_slide() -> None:
    uneven = "RANGE 10 seconds is not a multiple of SLIDE 4 seconds: windows"
    ends = "end at multiples of SLIDE (ALIGN END);"
    grouping = Sliding(10 * SECOND, 4 * SECOND)
    assert list(notes(plan(counted(grouping)))) == [
        f"{uneven} {ends} with ALIGN START they start there"
    ]
    moved = plan(counted(replace(grouping, offset=2 * SECOND)))
    (note,) = notes(moved)
    assert note == (
        f"{uneven} start at multiples of SLIDE (ALIGN START); with ALIGN END they end there"
    )
    assert explain(moved).endswith(f"note: {note}")
    assert explain_json(moved)["notes"] == [note]
    assert not list(notes(plan(counted(Sliding(8 * SECOND, 4 * SECOND)))))
    ranges = (Range(10 * SECOND, half_open=True), Range(9 * SECOND, half_open=True))
    unlike = Join(tuple(Windowed(STREAM, r) for r in ranges), None)
    (note,) = notes(plan(counted(Snapshot(4 * SECOND), unlike)))
    assert note.endswith(f"{ends} ALIGN START needs the same RANGE for all")


def test_json_holds_the_same() -> None:
    root = Filter(STREAM, Call("<", (Time(), Literal("TIMESTAMP '2020-01-01'", "timestamp"))))
    told = json.loads(json.dumps(explain_json(plan(root))))
    assert told["fingerprint"] == root.fingerprint
    assert told["result"][-1] == {"name": "ts", "type": "timestamp"}
    assert told["plan"]["operator"] == "filter"
    assert told["plan"]["detail"] == "ts < TIMESTAMP '2020-01-01'"
    assert told["plan"]["inputs"][0]["detail"] == "s"
    assert told["relation"] is False
    assert told["warnings"] == []


def test_units() -> None:
    assert duration(90 * SECOND) == "90 seconds"
    assert duration(3600 * SECOND) == "1 hour"
    assert duration(1) == "1 microsecond"
    assert duration(0) == "0 seconds"
    assert instant(-(2**63)) == f"{-(2**63)} us"
