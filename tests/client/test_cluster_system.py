"""A cluster as a system: when its work is over, what of a result comes twice, its figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.app.runs.statistics_export import statistics_of
from millstream.client.cluster_system import ClusterSystem
from millstream.client.pulled_delivery import Positions, PulledDelivery
from millstream.client.system import ResultPage, tables_of
from millstream.core.errors import StateError
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store.delivery import FileSink, Result

STREAM = StreamDefinition("a", (Field("x", "int"),), "x")
OPERATOR = {"id": "o:1", "processor": "p1", "queries": ["q"], "figures": {"rows_out": 4.0}}


class Manager:
    """A manager whose one stream ends when it is told to."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.ended, self.failed = names, 0, set[str]()

    def streams(self) -> dict[str, Any]:
        return {"a": {"processor": "p1", "figures": {"rows": 9.0, "ended": self.ended}}}

    def status(self) -> dict[str, Any]:
        processor = {"state": "up", "streams": ["a"], "figures": {"cpu": 0.5}}
        return {"processors": {"p1": processor}, "streams": self.streams()}

    def query(self, name: str) -> dict[str, Any]:
        known = {"name": name, "operators": [OPERATOR], "columns": [], "admission": {}}
        known |= {"cql": "", "start": None, "relation": False, "result": f"o:{name}"}
        known["sources"] = ["a"]
        state = "failed" if name in self.failed else "running"
        return known | {"state": state, "reason": "divided by nought" * (state == "failed")}

    def queries(self) -> list[dict[str, Any]]:
        return [self.query(name) for name in self.names]


class Reader:
    """A result of pages that come one at a time."""

    def __init__(self, *pages: ResultPage) -> None:
        self.left, self.following, self.acknowledged = list(pages), 1, 0
        self.ended = self.idle = False

    def pages(self, wait_s: float = 0.0) -> Iterator[ResultPage]:
        self.idle = not self.left
        if self.left:
            page = self.left.pop(0)
            self.following, self.ended = page.last + 1, page.ended
            yield page

    def acknowledge(self) -> None:
        self.acknowledged = self.following


def page(number: int, *values: int, ended: bool = False) -> ResultPage:
    return ResultPage(number, number, pa.table({"x": values}) if values else None, ended)


def system_of(**endless: bool) -> tuple[ClusterSystem, Manager]:
    system, manager = ClusterSystem("http://manager"), Manager(tuple(endless))
    system.close()
    system.client = manager  # type: ignore[assignment]
    system._definitions["a"] = STREAM
    system.results = [
        PulledDelivery(
            name, Result(name, f"o:{name}", ()), Reader(), (), Positions(None), endless=value
        )
        for name, value in endless.items()
    ]
    return system, manager


def test_the_finite_results_decide() -> None:
    system, manager = system_of(sums=False, watch=True)
    system.look()
    assert not system.over()
    manager.ended = 1
    system.look()
    assert not system.over()  # what has been read is not all processed
    system.results[0].ended = True
    assert system.over()


def test_where_there_are_none_the_streams_do() -> None:
    system, manager = system_of(watch=True)
    system.look()
    assert not system.over()
    manager.ended = 1
    assert not system.over()
    system.look()
    assert system.over()


def test_a_query_that_failed_ends_with_what_it_gave_before() -> None:
    system, manager = system_of(sums=False)
    system.results[0].reader = Reader(page(1, 5), page(2, 6))
    manager.failed.add("sums")
    system.look()
    assert system.over()
    assert (system.results[0].rows, system.results[0].reason) == (2, "divided by nought")
    figures = system.figures()["queries"]["sums"]
    assert (figures["state"], figures["rows"]) == ("failed", 2)


def test_a_query_that_somebody_else_dropped_is_told() -> None:
    system, manager = system_of(sums=False)
    manager.names = ()
    with pytest.raises(StateError, match="dropped by another client"):
        system.look()


def test_tables_of_statistics() -> None:
    system, _ = system_of(q=False, r=False)
    tables = statistics_of(system.figures(), {"state": "finished"})
    assert tables["processors"] == [{"processor": "p1", "state": "up", "streams": "a", "cpu": 0.5}]
    assert tables["streams"][0]["rows"] == 9
    assert tables["operators"] == [
        {"operator": "o:1", "processor": "p1", "queries": "q", "rows_out": 4.0}
    ]
    assert [row["query"] for row in tables["queries"]] == ["q", "r"]
    assert tables["summary"] == [{"state": "finished"}]


def files(folder: Path) -> list[int]:
    return [x for f in sorted(folder.glob("part-*")) for x in pq.read_table(f)["x"].to_pylist()]


def test_a_delivery_goes_on_where_it_was_noted(tmp_path: Path) -> None:
    sink, result = FileSink(tmp_path / "out", "parquet"), Result("q", "o:q", ())
    first = Reader(page(1, 1, 2), page(2, 3))
    delivery = PulledDelivery("q", result, first, [sink], Positions(tmp_path))
    assert delivery.advance() == 1
    assert first.acknowledged == 2
    sink.deliver(result, 2, 2, pa.table({"x": [3]}))  # ... and was killed before it noted that
    known = Positions(tmp_path)
    assert known.of("q") == {"next": 2, "rows": 2, "ended": False}
    second = Reader(page(2, 3), page(3, ended=True))
    second.following = known.of("q")["next"]
    again = PulledDelivery("q", result, second, [sink], known)
    assert files(tmp_path / "out") == [1, 2]  # what was not noted is taken back
    while again.advance():
        pass
    assert files(tmp_path / "out") == [1, 2, 3]
    assert (again.rows, again.ended) == (3, True)
    assert Positions(tmp_path).of("q") == {"next": 4, "rows": 3, "ended": True}


def test_a_look_that_was_asked_for_as_the_last_takes_all_that_is_there() -> None:
    system, _ = system_of(q=False)
    reader = Reader(page(1, 1), page(2, 2))
    found = list(tables_of(system, "q", reader, lambda: True))
    assert [t["x"].to_pylist() for t in found] == [[1], [2]]
    assert reader.acknowledged == 0
    reader = Reader(page(1, 1), page(2), page(3, 3, ended=True))
    found = list(tables_of(system, "q", reader, acknowledge=True))
    assert [t["x"].to_pylist() for t in found] == [[1], [3]]
    assert reader.acknowledged == 4
