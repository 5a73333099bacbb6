"""One way for a query to come to life and to end, on a processor that hosts all of it."""

from pathlib import Path
from typing import Any

import pytest

from millstream.core.errors import UsageError
from millstream.engine.culprits import Culprit
from millstream.engine.engine import Engine
from millstream.engine.ports import CompiledQuery, Step
from millstream.engine.steps.trains import alone
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.nodes import Plan, Source
from millstream.language.plan.schema import Field
from millstream.language.share.dataflow import Operator
from plain_plane import PlainPlane, Read, Rows, read, write

STREAM = StreamDefinition("a", (Field("c0", "bigint"),), "ts", 0, source={"source": "push"})
BASE = Source("a", STREAM.columns)


def compiled(cql: str) -> CompiledQuery:
    """A text is a chain of additions; equal beginnings are the same operators."""
    found: list[Operator] = []
    source = "s:a"
    for number in cql.split("+"):
        found.append(Operator(f"{source}+{number}", "map", BASE, None, (source,)))
        source = found[-1].id
    return CompiledQuery(Plan(BASE, BASE.columns, relation=False), tuple(found), source)


def compute(step: Step, rows_of: Read) -> tuple[Rows, Rows | None]:
    added = int(step.operator.id.rpartition("+")[2])
    return [(ts, v + added) for ts, v in rows_of(step.new)], None


def opened(home: Path) -> Engine:
    engine = Engine(home, PlainPlane(compiled, compute))
    engine.add_stream(STREAM)
    return engine


def fed(engine: Engine, rows: Rows) -> None:
    """Rows through all operators, producers first."""
    with engine.ledger.transaction() as ledger:
        ledger.publish("s:a", [write(engine.store, rows)], rows[-1][0])
    for operator in engine.operators.values():
        engine.runner.run(alone(operator), 100)


def values(engine: Engine, query: str) -> list[int]:
    stream = engine.queries[query].stream
    return [v for _, v in read(engine.store, engine.ledger.segments(stream))]


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    made = opened(tmp_path)
    yield made
    made.close()


def test_a_query_goes_on_where_it_was(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    engine.add_query("q", "1+2", from_beginning=True)
    fed(engine, [(1, 10)])
    engine.close()
    again = opened(tmp_path)
    assert again.queries == {}
    again.add_query("q", "1+2")
    fed(again, [(2, 20)])
    assert values(again, "q") == [13, 23]
    assert again.hosting.texts()["q"].operators == ("s:a+1", "s:a+1+2")
    again.close()


def test_what_another_query_uses_stays(engine: Engine) -> None:
    engine.add_query("one", "1+2", from_beginning=True)
    engine.add_query("two", "1+5", from_beginning=True)
    engine.drop_query("one")
    fed(engine, [(1, 10)])
    assert list(engine.operators) == ["s:a+1", "s:a+1+5"]
    assert values(engine, "two") == [16]
    assert engine.ledger.stream("s:a+1+2") is None
    engine.drop_query("two")
    assert engine.operators == {}
    left = {row["id"] for row in engine.ledger.streams()}
    assert left == {"s:a", "l:a", "r:a"}, "nothing is left of the queries"
    assert engine.hosting.ownership.hosted() == {}


def test_a_query_that_failed_for_good_keeps_its_result_and_no_operator(tmp_path: Path) -> None:
    """Nor does it keep those that live queries used beside it, once these are gone."""
    engine = opened(tmp_path)
    engine.add_query("bad", "1", from_beginning=True)
    engine.add_query("good", "1+2", from_beginning=True)
    fed(engine, [(1, 10)])
    engine.fail_query("bad", "no", [Culprit("a", 1, 0, {"c0": 10})])
    engine.hosting.stop(engine.queries["bad"])
    assert list(engine.operators) == ["s:a+1", "s:a+1+2"], "good uses both"
    engine.drop_query("good")
    assert engine.operators == {}
    assert values(engine, "bad") == [11]
    assert "s:a+1" not in engine.ledger.consumers("s:a"), "nothing is held for it"
    engine.close()
    again = opened(tmp_path)
    query = again.add_query("bad", "1")
    assert (query.state, query.culprits[0]["values"]) == ("failed", {"c0": 10})
    assert again.operators == {}
    assert "s:a+1" not in again.ledger.consumers("s:a")
    assert values(again, "bad") == [11]
    again.drop_query("bad")
    assert again.ledger.stream("s:a+1") is None
    again.close()


def test_a_text_that_means_nothing_any_more_stops_its_own_query(tmp_path: Path) -> None:
    """As after an upgrade that has lost a function: the process begins, and the others go on."""
    engine = opened(tmp_path)
    engine.add_query("bad", "1+2", from_beginning=True)
    engine.add_query("good", "1+5", from_beginning=True)
    fed(engine, [(1, 10)])
    engine.close()

    def forgetful(cql: str) -> CompiledQuery:
        if cql == "1+2":
            raise UsageError("unknown function f")
        return compiled(cql)

    again = Engine(tmp_path, PlainPlane(forgetful, compute))
    said: list[str] = []
    again.on_notice.append(said.append)
    again.add_stream(STREAM)
    again.hosting.restore()
    row = again.ledger.query("bad")
    assert row is not None
    assert (row["state"], "unknown function f" in row["reason"]) == ("failed", True)
    assert "query bad has failed" in said[0]
    assert "unknown function f" in again.hosting.texts()["bad"].failed
    fed(again, [(2, 20)])
    assert values(again, "good") == [16, 26]
    again.hosting.unhost("bad", again.hosting.texts()["bad"].operators)
    assert "bad" not in again.hosting.texts()
    fed(again, [(3, 30)])
    assert values(again, "good") == [16, 26, 36]
    again.close()
