"""Rows over HTTP: numbered, bounded, answered after the commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from millstream.core.errors import UsageError
from millstream.edge.http.rows_api import RowsServer
from millstream.engine.engine import Engine
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

COLUMNS = (Field("at", "long"), Field("n", "int"))
ROWS = [{"at": 1, "n": 1}, {"at": 2, "n": 2}]


@pytest.fixture(scope="module")
def engine(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home: Path = tmp_path_factory.mktemp("rows")
    opened = Engine(home, SparkPlane(spark))
    for name in ("s", "t", "u", "v"):
        time = "timestamp_seconds(at)"
        opened.add_stream(StreamDefinition(name, COLUMNS, time, source={"source": "http"}))
    yield opened
    opened.close()


def doors(engine: Engine) -> Any:
    def door(name: str) -> PushSource | None:
        found = engine.sources.get(name)
        return found if isinstance(found, PushSource) else None

    return door


@contextmanager
def served(engine: Engine, **settings: Any) -> Iterator[httpx.Client]:
    server = RowsServer(doors(engine), **settings)
    server.start()
    try:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[httpx.Client]:
    with served(engine, request_bytes_max=200_000) as opened:
        yield opened


def batch(sequence: Any, rows: Any = ROWS, producer: Any = "p") -> dict[str, Any]:
    return {"producer": producer, "sequence": sequence, "rows": rows}


def test_batches_are_numbered(engine: Engine, client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    first = client.post("/streams/s/rows", json=batch(1))
    assert first.status_code == 200
    assert (first.json()["rows"], first.json()["repeated"]) == (2, False)
    assert engine.ledger.ingest_position("s:s")["pos"] == 2, "the answer comes after the commit"
    again = client.post("/streams/s/rows", json=batch(1))
    assert (again.status_code, again.json()["rows"], again.json()["repeated"]) == (200, 0, True)
    gap = client.post("/streams/s/rows", json=batch(5))
    assert (gap.status_code, gap.json()["expected"]) == (409, 2)
    assert client.get("/streams/s/producers/p").json() == {"producer": "p", "expected": 2}
    assert engine.ledger.ingest_position("s:s")["pos"] == 2


def test_rows_that_do_not_fit_are_told_one_by_one(client: httpx.Client) -> None:
    rows = [{"at": 1, "n": "x"}, {"at": 3, "n": 4}, {"n": 5}]
    answer = client.post("/streams/t/rows", json=batch(1, rows)).json()
    assert (answer["rows"], answer["rejected"]) == (1, 2)
    assert answer["reasons"] == [
        {"row": 0, "reason": "cannot read 'x' as int (column n)"},
        {"row": 2, "reason": "the time is null"},
    ]


def arrow_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_rows_as_an_arrow_stream(engine: Engine, client: httpx.Client) -> None:
    """Numbered, judged and answered as rows in JSON are."""
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}

    def post(sequence: Any, table: pa.Table | bytes) -> httpx.Response:
        content = table if isinstance(table, bytes) else arrow_bytes(table)
        params = {"producer": "arrow", "sequence": sequence}
        return client.post("/streams/v/rows", params=params, content=content, headers=headers)

    good = pa.table({"at": [1, 2, None], "n": pa.array([1, 2, 3], pa.int8()), "more": [1, 2, 3]})
    answer = post(1, good).json()
    assert (answer["rows"], answer["rejected"], answer["sequence"]) == (2, 1, 1)
    assert answer["reasons"] == [{"row": 2, "reason": "the time is null"}]
    assert post(1, good).json()["repeated"]
    answer = post(2, pa.table({"at": [3, 4], "n": ["5", "x"], "more": ["a", "b"]})).json()
    assert answer["reasons"] == [
        {"row": 0, "reason": "cannot read '5' as int (column n)"},
        {"row": 1, "reason": "cannot read 'x' as int (column n)"},
    ]
    assert post(9, good).json()["expected"] == 3
    for sequence, content in (("", good), ("x", good), (3, b"no table"), (0, good)):
        assert post(sequence, content).status_code == 400
    assert engine.ledger.ingest_position("s:v")["pos"] == 5


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400), (b"not json", 400), (b"[]", 400), (b'{"producer": "p"}', 400),
        (b'{"producer": 1, "sequence": 1, "rows": []}', 400),
        (b'{"producer": "p", "sequence": "1", "rows": []}', 400),
        (b'{"producer": "p", "sequence": true, "rows": []}', 400),
        (b'{"producer": "p", "sequence": 0, "rows": []}', 400),
        (b'{"producer": "p", "sequence": 1, "rows": [1]}', 400),
        (b'{"producer": "", "sequence": 1, "rows": []}', 400),
        (b"[" * 100_000, 400), (b"x" * 300_000, 413),
    ],
)  # fmt: skip
def test_bodies_that_are_no_batches(client: httpx.Client, content: bytes, status: int) -> None:
    answer = client.post(
        "/streams/s/rows", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status
    assert answer.json()["error"]


def test_unknown_streams_and_ended_ones(client: httpx.Client) -> None:
    assert client.post("/streams/nowhere/rows", json=batch(1)).status_code == 404
    assert client.post("/streams/u/end").json() == {"stream": "u", "ended": True}
    ended = client.post("/streams/u/rows", json=batch(1))
    assert (ended.status_code, ended.json()["error"]) == (409, "stream u has ended")


def test_beyond_loopback_a_token_is_required(engine: Engine) -> None:
    with pytest.raises(UsageError, match="only with a token"):
        RowsServer(doors(engine), host="0.0.0.0")
    with served(engine, token="secret") as client:
        assert client.get("/health").status_code == 200
        for token in (None, b"Bearer wrong", b"Bearer \xff", b"secre"):
            headers = {} if token is None else {b"Authorization": token}
            answer = client.post("/streams/s/rows", json=batch(9), headers=headers)
            assert answer.status_code == 401
            assert client.post("/streams/s/end", headers=headers).status_code == 401
        headers = {b"Authorization": b"Bearer secret"}
        assert client.post("/streams/s/rows", json=batch(9), headers=headers).status_code == 409


def test_a_server_on_loopback(engine: Engine) -> None:
    server = RowsServer(doors(engine))
    server.start()
    try:
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
        expected = httpx.get(f"{server.url}/streams/s/producers/q").json()["expected"]
        answer = httpx.post(
            f"{server.url}/streams/s/rows", json=batch(expected, producer="q"), timeout=60
        )
        assert answer.json()["sequence"] == 1
        with pytest.raises(UsageError, match="cannot listen"):
            RowsServer(doors(engine), port=server.port)
    finally:
        server.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
