"""Processors over HTTP: commands, data, rows, a move, refusals. Both share one Spark session."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from control_calls import Control, declare, deploy, move, start, until

from millstream.control.protocol.commands import (
    Compile,
    Configure,
    Declare,
    Host,
    Progress,
    Report,
    Reset,
    Seal,
    TakeInventory,
    Unexpect,
)
from millstream.control.protocol.records import Peer
from millstream.control.protocol.replies import Expected, Inventory, Refusal
from millstream.core.errors import UsageError
from millstream.edge.http.serving import Tls
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.settings import EngineSettings
from millstream.spark.plane import SparkPlane

pytestmark = pytest.mark.spark

TABLE = {
    "name": "s",
    "source": "http",
    "columns": {"at": "long", "name": "string", "n": "int"},
    "time": "timestamp_seconds(at)",
}
JOIN = (
    "SELECT x.n AS n, y.n AS m FROM s [RANGE 5 SECONDS] x JOIN s [RANGE 5 SECONDS] y"
    " ON x.name = y.name WHERE x.n < y.n"
)
COUNT = "SELECT name, count(*) AS c FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY name"
SETTINGS = EngineSettings(batch_rows=100, step_rows_max=1000)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"at": i // 4, "name": "uvw"[i % 3], "n": i} for i in range(first, first + count)]


@pytest.fixture(scope="module")
def pair(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    servers = [
        ProcessorServer(
            f"p{i}",
            tmp_path_factory.mktemp(f"p{i}"),
            SparkPlane(spark),
            ProcessorSettings(),
            SETTINGS,
        )
        for i in range(2)
    ]
    for server in servers:
        server.start()
    yield servers
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def controls(pair: list[ProcessorServer]) -> Iterator[list[Control]]:
    found = [Control(s.processor.id, s.url) for s in pair]
    yield found
    for control in found:
        control.close()


def post(control: Control, sequence: int, batch: list[dict[str, Any]]) -> None:
    body = {"producer": "p", "sequence": sequence, "rows": batch}
    answer = control.client.http.post("/streams/s/rows", json=body)
    assert answer.status_code == 200, answer.text


def settled(*controls: Control) -> bool:
    return all(c.do(Report())[0].processor["settled"] == 1 for c in controls)


def test_a_query_over_two_processors_moves_while_rows_come(controls: list[Control]) -> None:
    first, second = controls
    declare(controls, TABLE)
    found = deploy("join", JOIN, lambda o: second, first, ["s:s"])
    ids = [o.id for o in second.do(Compile(JOIN))[0].starting(found["start"]).operators]
    deploy("count", COUNT, lambda o: first, first, ["s:s"])
    assert ids == list(found["places"]), "ids are the same wherever a text is compiled"
    start(first, "s")
    post(first, 1, rows(0, 60))
    until(lambda: settled(*controls) and len(second.rows("join")) > 0)
    host = Host("join", JOIN, found["start"], tuple(ids), True)
    move("m1", [host], second, first, {})
    post(first, 2, rows(60, 60))
    until(lambda: settled(*controls))
    host = Host("join", JOIN, found["start"], tuple(ids), True)
    move("m2", [host], first, second, {"s:s": first.peer(1)})
    post(first, 3, rows(120, 60))
    first.client.http.post("/streams/s/end").raise_for_status()
    until(lambda: settled(*controls))
    every = rows(0, 180)
    expected = sorted(
        (x["n"], y["n"])
        for x in every
        for y in every
        if x["name"] == y["name"] and x["n"] < y["n"] and abs(x["at"] - y["at"]) <= 5
    )
    assert sorted((r["n"], r["m"]) for r in second.rows("join")) == expected
    per_window = {(r["name"], r["ts"]): r["c"] for r in first.rows("count")}
    assert sum(per_window.values()) == 2 * len(every), "each row lies in two windows"
    (have,) = second.do(TakeInventory())
    assert isinstance(have, Inventory)
    assert have.owned[ids[-1]] == 3
    assert have.connected["s:s"].processor == "p0"
    (report,) = second.do(Report())
    edge = report.edges["s:s>p1"]
    assert edge["rows"] > 0
    assert edge["bytes"] > 0
    again = second.do(Report(report.version))[0]
    assert again.operators == {}
    assert again.edges == {}


def test_an_operator_that_shares_its_job_and_files_moves_alone(controls: list[Control]) -> None:
    """Three filters run in one job and write one file; one of them leaves with its own rows."""
    first, second = controls
    declare(controls, {**TABLE, "name": "t"})
    texts = {f"mod{i}": f"SELECT name, n FROM t WHERE n % 5 = {i}" for i in range(3)}
    found = {q: deploy(q, cql, lambda o: first, first, ["s:t"]) for q, cql in texts.items()}
    start(first, "t")

    def send(sequence: int, batch: list[dict[str, Any]]) -> None:
        body = {"producer": "p", "sequence": sequence, "rows": batch}
        first.client.http.post("/streams/t/rows", json=body).raise_for_status()

    send(1, rows(0, 50))
    until(lambda: settled(*controls))
    (operator,) = found["mod1"]["places"]
    host = Host("mod1", texts["mod1"], found["mod1"]["start"], (operator,), True)
    move("m3", [host], first, second, {"s:t": first.peer(1)})
    send(2, rows(50, 50))
    first.client.http.post("/streams/t/end").raise_for_status()
    until(lambda: settled(*controls))
    for number, (query, control) in enumerate([("mod0", first), ("mod1", second), ("mod2", first)]):
        assert sorted(r["n"] for r in control.rows(query)) == [
            n for n in range(100) if n % 5 == number
        ], query
    assert first.client.http.get("/queries/mod1/rows").status_code == 409, "it is not here any more"


def test_moves_back_and_forth_while_everything_runs(controls: list[Control]) -> None:
    """Loops, receivers and moves in their own threads; rows are posted all the time."""
    first, second = controls
    declare(controls, {**TABLE, "name": "u"})
    texts = {"joined": JOIN.replace("FROM s", "FROM u").replace("JOIN s", "JOIN u"), "counted": (
        "SELECT name, count(*) AS c FROM u [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY name"
    )}  # fmt: skip
    found = {q: deploy(q, cql, lambda o: first, first, ["s:u"]) for q, cql in texts.items()}
    start(first, "u")
    done = threading.Event()
    sent: list[int] = []

    def post_rows() -> None:
        with httpx.Client(base_url=first.url, timeout=60) as client:
            while not done.is_set() or len(sent) < 10:
                batch = rows(40 * len(sent), 40)
                body = {"producer": "p", "sequence": len(sent) + 1, "rows": batch}
                client.post("/streams/u/rows", json=body).raise_for_status()
                sent.append(len(batch))
                time.sleep(0.2)
            client.post("/streams/u/end").raise_for_status()

    poster = threading.Thread(target=post_rows)
    poster.start()
    try:
        for number in range(4):
            old, new = (first, second) if number % 2 == 0 else (second, first)
            hosts = [
                Host(q, texts[q], found[q]["start"], tuple(found[q]["places"]), True) for q in texts
            ]
            inputs = {} if new is first else {"s:u": first.peer(1)}
            move(f"b{number}", hosts, old, new, inputs)
    finally:
        done.set()
        poster.join()
    until(lambda: settled(*controls))
    every = rows(0, sum(sent))
    expected = sorted(
        (x["n"], y["n"])
        for x in every
        for y in every[x["n"] + 1 : x["n"] + 30]
        if x["name"] == y["name"] and y["at"] - x["at"] <= 5
    )
    assert sorted((r["n"], r["m"]) for r in first.rows("joined")) == expected
    assert sum(r["c"] for r in first.rows("counted")) == len(every)


def test_results_are_read_once_and_then_need_not_be_kept(controls: list[Control]) -> None:
    first = controls[0]
    answer = first.client.http.get("/queries/count/rows").json()
    assert answer["ended"]
    assert answer["columns"] == [["name", "string"], ["c", "bigint"]]
    first.client.http.post("/queries/count/ack", json={"next": answer["next"]}).raise_for_status()
    later = first.client.http.get("/queries/count/rows").json()
    assert (later["rows"], later["read"]) == ([], answer["next"])


def test_messages_that_were_overtaken_or_are_not_ours(controls: list[Control]) -> None:
    first = controls[0]
    (done,) = first.ask(Configure(properties={"cpu": 2}))
    assert not isinstance(done, Refusal)
    (stale,) = first.ask(Configure(properties={"cpu": 3}), number=1)
    assert isinstance(stale, Refusal)
    assert stale.code == "stale"
    other = Control("somebody", first.url)
    (wrong,) = other.ask(TakeInventory())
    assert isinstance(wrong, Refusal)
    assert wrong.code == "not_me"
    older = Control("p0", first.url, epoch=0)
    (old,) = older.ask(TakeInventory())
    assert isinstance(old, Refusal)
    assert old.code == "stale"
    other.close()
    older.close()


def test_mistakes_come_back_in_words(controls: list[Control]) -> None:
    first = controls[0]
    bad, fine = first.ask(Compile("SELECT nothing FROM s"), Progress("m9"))
    assert isinstance(bad, Refusal)
    assert bad.code == "mistake"
    assert "nothing" in bad.message
    assert fine.phase == "requested"
    (unknown,) = first.ask(Seal("m9", ("o:1",), Peer("p1", "http://x")))
    assert isinstance(unknown, Refusal)
    assert unknown.code == "unknown"
    (broken,) = first.ask(Declare({"name": "t", "columns": {"a": "int"}}, ingest=False))
    assert isinstance(broken, Refusal)
    assert "time" in broken.message


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"x", 400), (b"[]", 400), (b"{}", 400), (b'{"epoch": 1}', 400), (b" " * (5 << 20), 413)],
)
def test_bodies_that_are_no_envelopes(controls: list[Control], content: bytes, status: int) -> None:
    answer = controls[0].client.http.post(
        "/control", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_data_that_is_not_here_is_refused(controls: list[Control]) -> None:
    client = controls[0].client.http
    asked = {"after": 1, "consumer": "x", "epoch": 7}
    answer = client.get("/streams/s%3As/segments", params=asked)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_owner")
    answer = client.get("/streams/s%3As/segments/1", params={"last": 999})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "gone")
    assert client.get("/queries/none/rows").status_code == 409
    assert client.post("/moves/m9/wrong", json={}).status_code == 404


def test_a_consumer_is_expected_and_no_more(controls: list[Control]) -> None:
    first = controls[0]
    answer = first.client.http.post("/streams/s%3As/expect", json={"consumer": "someone"})
    assert Expected(**answer.json()).epoch == 1
    first.do(Unexpect("s:s", "someone"))
    assert "someone" not in first.do(TakeInventory())[0].expected.get("s:s", ())


def test_beyond_loopback_a_token_is_required(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only with a token"):
        ProcessorSettings(host="0.0.0.0")
    with pytest.raises(UsageError, match="TLS"):
        ProcessorSettings(tls=Tls(certificate="x"))
    server = ProcessorServer("t", tmp_path, SparkPlane(spark), ProcessorSettings(token="secret"))
    server.start()
    try:
        paths = ["/streams/a/segments?after=1&consumer=x", "/moves/m/sealed", "/queries/q/rows"]
        for path in paths:
            assert httpx.get(server.url + path).status_code == 401, path
        assert httpx.post(server.url + "/control", json={}).status_code == 401
        assert httpx.post(server.url + "/streams/a/rows", json={}).status_code == 401
        assert httpx.get(server.url + "/health").json()["processor"] == "t"
        control = Control("t", server.url, token="secret")
        assert control.do(TakeInventory())[0].owned == {}
        control.close()
    finally:
        server.stop()


def test_a_reset_forgets_everything(spark: Any, tmp_path: Path) -> None:
    server = ProcessorServer("r", tmp_path, SparkPlane(spark), ProcessorSettings(), SETTINGS)
    server.start()
    control = Control("r", server.url)
    try:
        declare([control], TABLE)
        deploy("count", COUNT, lambda o: control, control, ["s:s"])
        start(control, "s")
        control.do(Reset())
        (have,) = control.do(TakeInventory())
        assert (have.declared, have.queries, have.owned) == ({}, {}, {})
        declare([control], TABLE)
        deploy("count", COUNT, lambda o: control, control, ["s:s"])
    finally:
        control.close()
        server.stop()
