"""The Python API on a real Spark session."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import millstream
from millstream.app.session import Session
from millstream.app.session.query import QueryFailedError, Row
from millstream.client.system import ReaderFailedError
from millstream.core.errors import CqlError, UsageError
from millstream.decide.schedule import Choice, Goal, Specification
from millstream.decide.schedule.measures import PlanStatistic

COLUMNS = {"at": "long", "host": "string", "status": "int"}
ROWS = [(0, "a", 200), (10, "b", 500), (30, "a", 404), (65, "a", 503), (130, "b", 500)]
TIME = "timestamp_seconds(at)"

pytestmark = pytest.mark.spark


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    lines = ["at,host,status", *(",".join(map(str, row)) for row in ROWS)]
    (tmp_path / "requests.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "requests.csv"


@pytest.fixture
def session(spark: Any) -> Iterator[Session]:
    with millstream.Session() as made:
        yield made


def declare(session: Session, path: Path) -> None:
    session.stream("requests", path=path, columns=COLUMNS, time=TIME, options={"header": True})


def test_rows_of_files_come_once_and_end(session: Session, requests: Path) -> None:
    declare(session, requests)
    errors = session.query("SELECT host, status FROM requests WHERE status >= 500")
    counts = session.query("SELECT host, count(*) AS n FROM requests GROUP BY host", "counts")
    rows = list(errors)
    assert [(r.host, r["status"], r.ts.timestamp()) for r in rows] == [
        ("b", 500, 10.0), ("a", 503, 65.0), ("b", 500, 130.0),
    ]  # fmt: skip
    assert isinstance(rows[0], Row)
    with pytest.raises(AttributeError, match="no column hots"):
        _ = rows[0].hots
    assert list(errors) == []
    assert sorted(counts.table().to_pydict()["n"]) == [2, 3]
    assert sum(1 if r.op == "+" else -1 for r in counts) == 2
    assert counts.relation
    assert not errors.relation
    with pytest.raises(UsageError, match="not a table"):
        errors.table()


def test_a_query_over_a_query_and_over_a_view(session: Session, requests: Path) -> None:
    declare(session, requests)
    session.query("SELECT host, status FROM requests WHERE status >= 500", "errors")
    session.execute("CREATE VIEW hosts AS SELECT host, count(*) AS n FROM errors GROUP BY host")
    busy = session.query("SELECT max(n) AS most FROM hosts")
    again = session.query("SELECT host, status FROM errors", "again")
    engine = session.here("it").engine
    assert engine.queries["again"].stream == engine.queries["errors"].stream
    assert "requests" in session.explain("SELECT n FROM hosts")
    session.drop("errors")  # its readers go on: they share its operators
    assert [(r.host, r.status) for r in again] == [("b", 500), ("a", 503), ("b", 500)]
    assert busy.table().to_pydict()["most"] == [2]
    with pytest.raises(CqlError, match="unknown stream errors"):
        session.query("SELECT host FROM errors")


def test_breaking_off_goes_on_with_the_next_row(session: Session, requests: Path) -> None:
    declare(session, requests)
    everything = session.query("SELECT at FROM requests")
    first = next(iter(everything))
    assert first.at == 0
    assert [row.at for row in everything] == [10, 30, 65, 130]


def test_tables_for_other_tools(session: Session, requests: Path) -> None:
    declare(session, requests)
    query = session.query("SELECT host, status FROM requests WHERE status >= 500", "errors")
    none = session.query("SELECT host FROM requests WHERE status = 1")
    table = query.to_arrow()
    assert table.column_names == ["host", "status", "ts"]
    assert table.num_rows == 3
    assert list(query.to_pandas()["host"]) == ["b", "a", "b"]
    assert none.to_arrow().num_rows == 0
    assert none.to_arrow().column_names == ["host", "ts"]
    assert query.columns == (("host", "string"), ("status", "int"))
    assert query.start is None
    assert query.state == "running"
    assert "status" in query.explain()
    assert repr(query) == "<query errors: running>"


def test_goals_statistics_and_choices(session: Session, requests: Path) -> None:
    declare(session, requests)
    errors = session.query("SELECT host FROM requests WHERE status >= 500", "errors")
    session.set_quality("delay <= 1 min, queue_rows 0.4")
    errors.set_quality({"template": "fresh"}, weight=2)
    assert errors.to_arrow().num_rows == 3
    told = session.quality()
    assert [(g["query"], g["statistic"], g["limit"]) for g in told["goals"]] == [
        (None, "delay", 60.0), (None, "queue_rows", None), ("errors", "delay", None),
    ]  # fmt: skip
    assert told["algorithm"] == "cost_aware"
    assert told["starving"] == {}
    session.register_statistic(
        PlanStatistic("longest", "rows", "less", lambda interval: interval.queue_rows_max)
    )
    session.set_quality(Specification((Goal("longest", "minimise", 1.0, limit=500),)))
    errors.set_quality(None)
    assert [g["told"] for g in session.quality()["goals"]] == [
        "longest at most 500: not measured yet"
    ]
    for wrong in ({"goals": "dellay"}, {"goals": "fresh", "query": "erors"}, {"goals": "best"}):
        with pytest.raises(UsageError):
            session.set_quality(**wrong)
    with pytest.raises(UsageError, match="exists already"):
        session.register_statistic(PlanStatistic("delay", "s", "less", lambda interval: None))
    choices = [c for c in session.choices() if isinstance(c, Choice)]
    assert choices
    assert all(c.reason for c in choices)


def test_pushed_rows(session: Session) -> None:
    session.stream("s", columns={"at": "timestamp", "n": "int"}, time="at", lateness="5 seconds")
    big = session.query("SELECT n FROM s WHERE n > 1")
    windows = session.query("SELECT sum(n) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS]")
    told = session.push("s", [{"at": "2024-01-01T00:00:00Z", "n": 1}, {"N": 2, "at": _at(3)}])
    assert figures(told) == (2, 0, 0)
    assert [r["n"] for r in big.to_arrow().to_pylist()] == [2]
    told = session.push("s", [(_at(12), 3), (_at(13), "x"), {"n": 4}, (_at(2), 5)])
    assert figures(told) == (1, 1, 2)
    assert told["reasons"][0] == (1, "cannot read 'x' as int (column n)")
    table = pa.table({"at": pa.array([_at(16)], pa.timestamp("us", tz="UTC")), "n": [6]})
    assert session.push("s", table)["rows"] == 1
    assert session.push("s", pd.DataFrame({"at": [_at(17)], "n": [7]}))["rows"] == 1
    assert session.push("s", [])["rows"] == 0
    assert [r["n"] for r in big.to_arrow().to_pylist()] == [2, 3, 6, 7]
    assert [r["n"] for r in windows.to_arrow().to_pylist()] == [3]
    with pytest.raises(UsageError, match="no column m"):
        session.push("s", [{"at": _at(20), "m": 1}])
    with pytest.raises(UsageError, match="has 1 values"):
        session.push("s", [[1]])
    with pytest.raises(UsageError, match="is a str"):
        session.push("s", ["at"])
    session.finish("s")
    assert [r["n"] for r in windows] == [3, 16]
    assert session.status()["streams"]["s"]["rejected"] == 2


def figures(told: Any) -> tuple[int, int, int]:
    return told["rows"], told["late"], told["rejected"]


def _at(second: int) -> datetime:
    return datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)


def test_a_numbered_batch_counts_once(session: Session) -> None:
    session.stream("s", columns={"at": "timestamp", "n": "int"}, time="at")
    query = session.query("SELECT n FROM s")
    for _ in range(2):
        session.push("s", [(_at(1), 1)], producer="p", number=1)
    session.push("s", [(_at(2), 2)], producer="p", number=2)
    session.push("s", [(_at(2), 3)], producer="other", number=1)
    assert [r["n"] for r in query.to_arrow().to_pylist()] == [1, 2, 3]


def test_queries_come_and_go_while_it_runs(session: Session) -> None:
    session.stream("s", columns={"at": "timestamp", "n": "int"}, time="at")
    first = session.query("SELECT n FROM s WHERE n < 10", "first")
    batches: list[tuple[list[int], int]] = []
    first.on_batch(lambda table, number: batches.append((table["n"].to_pylist(), number)))
    session.push("s", [(_at(1), 1), (_at(2), 2)])
    assert session.wait(120)
    second = session.query("SELECT n FROM s WHERE n < 10", "second")
    assert second.start == _at(2)
    early = session.query("SELECT n FROM s WHERE n < 100", from_beginning=True)
    first.drop()
    with pytest.raises(UsageError, match="was dropped"):
        _ = first.state
    session.push("s", [(_at(2), 3), (_at(4), 4)])
    assert [r["n"] for r in second.to_arrow().to_pylist()] == [2, 3, 4]
    assert [r["n"] for r in early.to_arrow().to_pylist()][-2:] == [3, 4]
    assert [n for values, _ in batches for n in values] == [1, 2]
    with pytest.raises(UsageError, match="no query first"):
        session.drop("first")
    assert {q.name for q in session.queries()} == {"second", "q1"}


def test_a_home_keeps_what_was_and_others_out(spark: Any, requests: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with millstream.Session(home=home) as s:
        declare(s, requests)
        query = s.query("SELECT at FROM requests", "all")
        query.write(tmp_path / "files", "csv")
        with pytest.raises(UsageError, match="go to a sink"):
            next(iter(query))
        assert s.wait(120)
        with pytest.raises(UsageError, match="in use by another run"):
            millstream.Session(home=home)
    with millstream.Session(home=home) as s:
        declare(s, requests)
        query = s.query("SELECT at FROM requests", "all")
        assert list(query) == []
    with millstream.Session(home=home) as s:
        declare(s, requests)
        with pytest.raises(UsageError, match="another text"):
            s.query("SELECT host FROM requests", "all")
    texts = [file.read_text().split() for file in sorted((tmp_path / "files").iterdir())]
    values = [line.split(",")[0] for text in texts for line in text if line[0].isdigit()]
    assert [v for v in values if "-" not in v and ":" not in v] == ["0", "10", "30", "65", "130"]


def test_other_sinks(
    session: Session, requests: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: Any
) -> None:
    declare(session, requests)
    cql = "SELECT host FROM requests WHERE status = 404"
    session.query(cql, "shown").print()
    session.query(cql, "kept").write(tmp_path / "orc", "orc", compression="none")
    assert session.wait(120)
    assert "shown: host=a, ts=1970-01-01 00:00:30" in capsys.readouterr().out
    (row,) = spark.read.orc(str(tmp_path / "orc")).collect()
    assert (row["host"], row["batch"] >= 1) == ("a", True)
    shown = session.query("SELECT host AS `<b>` FROM requests", "html")._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "(running)" in shown


def test_statements_as_a_script(session: Session, requests: Path) -> None:
    stream, query, other = session.execute(
        f"""
        CREATE STREAM requests (at LONG, host STRING, status INT)
        WITH (path = '{requests}', time = 'timestamp_seconds(at)', option.header = true);
        -- it's a comment; with a semicolon
        CREATE QUERY errors AS SELECT host FROM requests WHERE status >= 500;
        SELECT ';' AS mark FROM requests WHERE status = 404
        """
    )
    assert stream.name == "requests"
    assert query.name == "errors"
    assert [row.host for row in query] == ["b", "a", "b"]
    assert [row.mark for row in other] == [";"]
    with pytest.raises(UsageError, match="expected one query"):
        session.query("SELECT 1 FROM requests; SELECT 2 FROM requests")


def test_functions(session: Session, requests: Path) -> None:
    declare(session, requests)
    session.register_function("shout", lambda text: text.upper() + "!", "string", "1")
    session.register_function("half", "x / 2", "double", parameters={"x": "double"})
    query = session.query("SELECT shout(host) AS h, half(status) AS s FROM requests WHERE at = 0")
    assert [(r.h, r.s) for r in query] == [("A!", 100.0)]
    with pytest.raises(UsageError, match="in use by query q1"):
        session.register_function("shout", lambda text: text, "string", "2")
    with pytest.raises(UsageError, match="unknown type"):
        session.register_function("f", lambda text: text, "strnig")


def test_a_failed_query_says_why(session: Session, requests: Path) -> None:
    declare(session, requests)
    bad = session.query("SELECT CAST(host AS INT) AS n FROM requests", "bad")
    good = session.query("SELECT host FROM requests WHERE status = 404", "good")
    with pytest.raises(QueryFailedError, match=r"query bad failed: .*'a'"):
        list(bad)
    with pytest.raises(QueryFailedError, match="query bad failed"):
        bad.to_arrow()
    assert [row.host for row in good] == ["a"]
    (alarm,) = session.alarms()
    assert (alarm.kind, alarm.subject, alarm.queries) == ("failed", "bad", ("bad",))


def test_mistakes(session: Session, requests: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder:"):
        session.stream("s", path="none.csv", columns=COLUMNS, time=TIME)
    with pytest.raises(UsageError, match="did you mean lateness"):
        session.stream("s", path=requests, columns=COLUMNS, time=TIME, latness="1 s")
    declare(session, requests)
    with pytest.raises(UsageError, match="exists already"):
        declare(session, requests)
    with pytest.raises(CqlError, match="did you mean status"):
        session.query("SELECT statsu FROM requests")
    with pytest.raises(millstream.MillstreamError):  # what a script catches
        session.query("SELECT")
    with pytest.raises(UsageError, match="source of its own"):
        session.push("requests", [])
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.start()


def test_a_callback_that_raises_is_told(session: Session, requests: Path) -> None:
    declare(session, requests)

    def broken(table: Any, number: int) -> None:
        raise ValueError("no such mailbox")

    session.query("SELECT host FROM requests").on_batch(broken)
    with pytest.raises(ReaderFailedError, match="the reader of query") as error:
        session.wait(60)
    assert "ValueError: no such mailbox" in error.value.detail
