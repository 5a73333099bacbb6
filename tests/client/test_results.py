"""Results from wherever they are kept: pages, pointers, gaps, restarts; tables from changes."""

import doctest
import io
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.client import arrow_types, relation
from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.client.system import ResultPage
from millstream.control.definitions import stream_table
from millstream.core.errors import AwayError, ResourceError, StateError, UsageError
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import FOREVER
from millstream.store.delivery import Result
from millstream.store.integrity.digests import digest_of

MANAGER, OLD, NEW = "http://manager", "http://old", "http://new"


def stored(*values: int) -> bytes:
    """Rows as a processor keeps them."""
    out = io.BytesIO()
    table = pa.table({"_ts": pa.array([0] * len(values), pa.int64()), "c0": list(values)})
    pq.write_table(table, out)
    return out.getvalue() + digest_of(out.getbuffer()).encode()


def segment(number: int, rows: int, watermark: int = 0) -> dict[str, int]:
    return {"first": number, "last": number, "rows": rows, "watermark": watermark}


class Cluster:
    """A result that was made at one processor up to number 2, and goes on at another."""

    def __init__(self) -> None:
        self.owner = OLD
        self.away: set[str] = set()
        self.gone = 0  # so many segments go between the page that has them and the question
        self.acknowledged: list[tuple[str, int]] = []
        self.rows = {1: stored(1, 2), 2: stored(3), 3: stored(4, 5)}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        base = f"{request.url.scheme}://{request.url.host}"
        if base in self.away:
            raise httpx.ConnectError("refused")
        path = request.url.path
        if base == MANAGER:
            told = {
                "result": "o:1",
                "url": self.owner,
                "relation": False,
                "columns": [["x", "long"]],
            }
            return httpx.Response(200, json={**told, "state": "running"})
        if path.endswith("/ack"):
            self.acknowledged.append((base, 0))
            return httpx.Response(200, json={})
        if path.endswith("/segments"):
            return self._page(base, int(request.url.params["after"]))
        number = int(path.rsplit("/", 1)[1])
        if self.gone:
            self.gone -= 1
            return httpx.Response(409, json={"error": {"message": f"no segment {number}"}})
        return httpx.Response(200, content=self.rows[number])

    def _page(self, base: str, after: int) -> httpx.Response:
        if base == OLD:
            found = [segment(1, 2), segment(2, 1)][after - 1 :]
            to = {"to": {"processor": "p2", "url": NEW}, "epoch": 2}
            page = {"segments": found, "moved": None if found else to, "epoch": 1}
            return httpx.Response(200, json=page)
        found = [segment(3, 2), segment(4, 0, FOREVER)][max(0, after - 3) :]
        return httpx.Response(200, json={"segments": found, "moved": None, "epoch": 2})


def client_of(answer: Callable[[httpx.Request], httpx.Response]) -> ManagerClient:
    client = ManagerClient(MANAGER)
    client.http.close()
    client.http = httpx.Client(transport=httpx.MockTransport(answer))
    return client


def all_of(reader: ResultReader) -> list[ResultPage]:
    found: list[ResultPage] = []
    for _ in range(10):
        found += list(reader.pages(0.0))
        if reader.ended:
            break
    return found


def values(batches: list[ResultPage]) -> list[int]:
    return [x for b in batches if b.table is not None for x in b.table["x"].to_pylist()]


def test_rows_come_once_and_in_order_across_a_move() -> None:
    cluster = Cluster()
    reader = ResultReader(client_of(cluster), "q", 1)
    batches = all_of(reader)
    assert values(batches) == [1, 2, 3, 4, 5]
    assert [b.first for b in batches] == [1, 2, 3, 4]
    assert reader.ended
    reader.acknowledge()
    assert cluster.acknowledged == [(NEW, 0)]


def test_a_reader_goes_on_where_it_stopped() -> None:
    assert values(all_of(ResultReader(client_of(Cluster()), "q", 2))) == [3, 4, 5]
    cluster = Cluster()
    cluster.owner = NEW
    assert values(all_of(ResultReader(client_of(cluster), "q", 3))) == [4, 5]


def test_a_processor_that_is_away_is_asked_again_where_it_is_then() -> None:
    cluster = Cluster()
    cluster.away.add(OLD)
    reader = ResultReader(client_of(cluster), "q", 3)
    assert list(reader.pages(0.0)) == []
    cluster.owner = NEW
    assert list(reader.pages(0.0)) == []
    assert values(all_of(reader)) == [4, 5]


def test_rows_that_went_after_they_were_told_of_are_asked_for_again() -> None:
    cluster = Cluster()
    cluster.gone = 2
    assert values(all_of(ResultReader(client_of(cluster), "q", 1))) == [1, 2, 3, 4, 5]


def test_rows_that_never_come_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.client.results.VAIN_MAX", 3)
    cluster = Cluster()
    cluster.gone = 1 << 30
    with pytest.raises(StateError, match="no segment 1"):
        all_of(ResultReader(client_of(cluster), "q", 1))


def test_a_gap_is_never_passed_over() -> None:
    cluster = Cluster()
    cluster.owner = NEW
    with pytest.raises(StateError, match="are gone"):
        all_of(ResultReader(client_of(cluster), "q", 1))


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, UsageError), (401, UsageError), (409, StateError), (503, AwayError),
     (507, ResourceError)],
)  # fmt: skip
def test_errors_come_back_as_what_they_are(status: int, kind: type[Exception]) -> None:
    body: dict[str, Any] = {"error": {"message": "no", "detail": "because", "hint": "try"}}
    client = client_of(lambda _: httpx.Response(status, json=body))
    with pytest.raises(kind) as caught:
        client.status()
    assert str(caught.value) == "no\nbecause\nhint: try"


def test_a_result_without_rows_has_its_types() -> None:
    columns = (Field("a", "decimal(10,2)"), Field("b", "map<string,array<int>>"))
    schema = arrow_types.empty_table(Result("q", "o:1", columns)).schema
    assert schema.field("a").type == pa.decimal128(10, 2)
    assert pa.types.is_map(schema.field("b").type)


def test_a_relation_is_what_its_changes_add_up_to() -> None:
    changes = pa.table({"k": [1, 1, 2, 2, 3], "op": ["+", "-", "+", "+", "+"]})
    assert sorted(relation.summed(changes)["k"].to_pylist()) == [2, 2, 3]


@pytest.mark.parametrize("module", [arrow_types, relation, stream_table])
def test_examples_in_docstrings(module: Any) -> None:
    assert doctest.testmod(module).failed == 0
