"""A cluster without a manager, as processes: any member takes queries, members come and go."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import httpx
import pytest
from control_calls import until
from plain_members import Members, members, table

from millstream.client.manager_client import ManagerClient
from millstream.core.errors import MillstreamError, StateError, UsageError
from millstream.edge.peers.local_cluster import LAUNCH

THREE = "a+1 b+2 c+3"


def declared(cluster: Members, *streams: str) -> None:
    """Stream a enters at p0, b at p1, c at p2; all are declared through one member."""
    for n, name in enumerate(streams or "abc"):
        cluster.clients["p0"].declare(table(name), processor=f"p{n}")


def fed(cluster: Members, at: str, streams: str = "abc") -> None:
    cluster.clients[at].start_streams(list(streams))
    for stream in streams:
        cluster.push(at, stream, [(1_000_000 * n, n) for n in range(10)], 1)
        cluster.end(at, stream)


def expected(**added: int) -> list[int]:
    return sorted(n + more for more in added.values() for n in range(10))


def places(cluster: Members, at: str, query: str) -> dict[str, str]:
    told = cluster.clients[at].query(query)
    return {o["id"]: o["processor"] for o in told["operators"]}


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LAUNCH, *arguments], capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with members(tmp_path_factory.mktemp("three"), 3) as cluster:
        declared(cluster)
        yield cluster


def test_any_member_takes_a_query_and_fragments_lie_where_streams_enter(three: Members) -> None:
    told = cli("submit", THREE, "--name", "q", "--from-beginning", "--to", three.url("p1"))
    assert told.returncode == 0, told.stderr
    assert "3 fragments on p0, p1, p2, at most 3 processors" in told.stdout
    query = three.clients["p2"].query("q")
    by_input = {tuple(o["inputs"]): o["processor"] for o in query["operators"]}
    assert (by_input[("s:a",)], by_input[("s:b",)]) == ("p0", "p1")
    assert by_input[("s:c",)] == "p2"
    assert query["admission"]["acceptor"] == "p1"
    fed(three, "p2")
    for name in ("p0", "p1", "p2"):
        assert three.rows(name, "q") == expected(a=1, b=2, c=3)
    status = three.clients["p0"].status()
    assert {one["state"] for one in status["processors"].values()} == {"up"}
    assert cli("queries", "--to", three.url("p0")).stdout.startswith("q ")
    top = cli("top", "--url", three.url("p2"), "--once")
    assert top.returncode == 0, top.stderr
    assert "q" in top.stdout
    tail = cli("tail", "q", "--no-follow", "--to", three.url("p2"))
    assert len(tail.stdout.splitlines()) == 30
    assert cli("drop", "q", "--to", three.url("p0")).returncode == 0
    three.until(lambda: not any(three.clients[n].queries() for n in ("p0", "p1", "p2")))
    three.until(lambda: not any(_hosted(three, n) for n in ("p0", "p1", "p2")))


def _hosted(cluster: Members, name: str) -> list[str]:
    return list(httpx.get(f"{cluster.url(name)}/balance").json()["operators"])


def test_a_query_sent_to_two_members_at_once_is_taken_by_one(three: Members) -> None:
    outcomes: dict[str, Any] = {}

    def send(name: str) -> None:
        try:
            with ManagerClient(three.url(name)) as client:
                outcomes[name] = client.submit("twice", "a+1", wait_s=40)
        except MillstreamError as error:
            outcomes[name] = error

    threads = [threading.Thread(target=send, args=(name,)) for name in ("p0", "p2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [name for name, told in outcomes.items() if not isinstance(told, Exception)]
    (lost,) = [told for told in outcomes.values() if isinstance(told, Exception)]
    assert len(won) == 1
    assert isinstance(lost, UsageError)
    assert lost.message == "query twice exists already"
    assert lost.detail == f"{won[0]} has accepted it"
    for name in ("p0", "p1", "p2"):
        assert three.clients[name].query("twice")["admission"]["acceptor"] == won[0]
    three.clients["p1"].drop("twice", 20)


def test_mistakes_are_told_and_leave_nothing(three: Members) -> None:
    with pytest.raises(UsageError, match="unknown stream z"):
        three.clients["p1"].submit("wrong", "z+1", wait_s=30)
    with pytest.raises(UsageError, match="there is no query nothing"):
        three.clients["p1"].drop("nothing")
    assert three.clients["p0"].queries() == []
    again = three.clients["p2"].submit("wrong", "b+1", wait_s=30)
    assert again["state"] == "running"
    three.clients["p0"].drop("wrong", 20)


def test_queries_of_two_acceptors_share_what_is_equal(three: Members) -> None:
    one = three.clients["p0"].submit("one", "a+1 b+2", from_beginning=True, wait_s=30)
    two = three.clients["p2"].submit("two", "a+1 c+2", from_beginning=True, wait_s=30)
    shared = {o["id"] for o in one["operators"]} & {o["id"] for o in two["operators"]}
    assert len(shared) == 1
    assert "1 operators run already" in two["admission"]["sentence"]
    three.clients["p1"].drop("one", 20)
    left = three.clients["p1"].query("two")
    assert {o["id"] for o in left["operators"]} >= shared
    assert left["state"] == "running"
    three.clients["p1"].drop("two", 20)


def test_members_come_and_go_and_a_record_outlives_its_acceptor(tmp_path: Path) -> None:
    with members(tmp_path, 2) as cluster:
        declared(cluster, "a", "b")
        cluster.start("p2", ("p1",))  # knows one member, and of the streams nothing
        cluster.settle(3)
        told = cluster.clients["p2"].submit("q", "a+1 b+2", from_beginning=True, wait_s=40)
        assert told["state"] == "running"
        assert set(places(cluster, "p0", "q").values()) == {"p0", "p1"}
        cluster.kill("p2")  # its acceptor, which has nothing of it
        cluster.until(lambda: cluster.up("p0") == ["p0", "p1"])
        query = cluster.clients["p0"].query("q")
        assert query["admission"] == {"acceptor": "p2", "coordinator": "p0"}
        assert query["state"] == "running"
        late = cluster.clients["p1"].submit("late", "a+7", from_beginning=True, wait_s=40)
        assert late["state"] == "running", "nobody waits for one who has nothing of it"
        fed(cluster, "p1", "ab")
        assert cluster.rows("p0", "q") == expected(a=1, b=2)
        assert cluster.rows("p0", "late") == expected(a=7)
        cluster.kill("p1")  # half of the query is gone with it
        cluster.until(lambda: cluster.up("p0") == ["p0"])
        cluster.until(lambda: cluster.clients["p0"].query("q")["state"] == "stalled")
        assert "p1 does not answer" in cluster.clients["p0"].query("q")["reason"]
        cluster.start("p1")  # finds the others by what its home remembers
        cluster.until(lambda: cluster.clients["p1"].query("q")["state"] == "running")
        cluster.leave("p1")
        cluster.until(lambda: cluster.up("p0") == ["p0"], 2.0)  # it said goodbye


@pytest.mark.soak  # every point at which it may die: tests/control/test_leading.py
def test_an_acceptor_that_dies_in_the_middle_leaves_nothing_half_done(tmp_path: Path) -> None:
    with members(tmp_path, 3) as cluster:
        declared(cluster)

        def submit() -> None:
            try:
                with ManagerClient(cluster.url("p2")) as client:
                    client.submit("q", THREE, from_beginning=True, wait_s=30)
            except MillstreamError:
                return

        asking = threading.Thread(target=submit)
        asking.start()
        cluster.until(lambda: "query q is taken" in (tmp_path / "p2/output.log").read_text())
        cluster.kill("p2")
        asking.join()
        cluster.until(lambda: cluster.up("p0") == ["p0", "p1"])
        cluster.start("p2")
        cluster.until(lambda: cluster.clients["p1"].query("q")["state"] == "running")
        fed(cluster, "p0")
        assert cluster.rows("p1", "q") == expected(a=1, b=2, c=3)


@contextmanager
def manager(folder: Path, joins: str) -> Iterator[ManagerClient]:
    folder.mkdir()
    arguments = ["manager", "--home", str(folder), "--port", "0", "--join", joins, "--pattern",
                 "grouping", "--beat", "0.5"]  # fmt: skip
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", LAUNCH, *arguments], stdout=log)
    try:
        until(lambda: "listens on" in (folder / "output.log").read_text())
        url = (folder / "output.log").read_text().partition("listens on ")[2].split()[0]
        with ManagerClient(url) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def test_a_manager_takes_over_what_runs_and_hands_back_what_is_then_drained(tmp_path: Path) -> None:
    with members(tmp_path, 2) as cluster:
        declared(cluster, "a", "b")
        cluster.clients["p1"].submit("q", "a+1 b+2", from_beginning=True, wait_s=40)
        with manager(tmp_path / "manager", cluster.url("p0")) as leader:
            cluster.until(lambda: leader.query("q")["state"] == "running")
            assert set(leader.status()["processors"]) == {"p0", "p1"}
            with pytest.raises(StateError, match="a manager leads"):
                cluster.clients["p1"].submit("refused", "a+7")
            # who only asks is answered by members too
            assert cluster.clients["p0"].query("q")["state"] == "running"
            led = leader.submit("led", "a+5 b+6", from_beginning=True, wait_s=40)
            assert led["state"] == "running"
        cluster.until(lambda: cluster.clients["p0"].submit("after", "b+9")["state"] == "running")
        names = {q["name"]: q["state"] for q in cluster.clients["p1"].queries()}
        assert names == dict.fromkeys(("q", "led", "after"), "running")
        told = cli("status", "--to", cluster.url("p1"))
        assert told.returncode == 0, told.stderr
        assert "p0" in told.stdout
        drained = cluster.clients["p1"].drain("p0", wait_s=60)
        assert drained["entering"] == [], "rows enter elsewhere"
        assert set(places(cluster, "p0", "q").values()) == {"p1"}
        fed(cluster, "p1", "ab")
        assert cluster.rows("p1", "q") == expected(a=1, b=2)
        assert cluster.rows("p1", "led") == expected(a=5, b=6)
        cluster.clients["p0"].drop("led", 20)
        assert {q["name"] for q in cluster.clients["p1"].queries()} == {"q", "after"}


def test_balancing_spreads_what_was_accepted_and_keeps_the_limit(tmp_path: Path) -> None:
    """All streams enter at one member; the others ask it for load, while a query is added."""
    with members(tmp_path, 3, round_s=0.3) as cluster:
        for name in "ab":
            cluster.clients["p1"].declare(table(name), processor="p0")
        texts = {f"q{n}": f"sum a+{n}" for n in range(4)} | {"both": "a+8 b+9"}
        for name, cql in texts.items():
            cluster.clients["p2"].submit(name, cql, from_beginning=True, wait_s=60)
        cluster.clients["p2"].start_streams(["a", "b"])
        rows: dict[str, list[int]] = {"a": [], "b": []}

        def spread() -> bool:
            for stream, values in rows.items():
                n = len(values)
                new = [(1_000_000 * (n + i), n + i) for i in range(20)]
                cluster.push("p0", stream, new, n // 20 + 1)
                values.extend(range(n, n + 20))
            return len({p for q in texts for p in places(cluster, "p1", q).values()}) > 1

        cluster.until(spread, 120)
        for name in texts:
            told = cluster.clients["p1"].query(name)
            own = {o["processor"] for o in told["operators"] if o["queries"] == [name]}
            limit = sum(len(o["inputs"]) for o in told["operators"]) - len(told["operators"]) + 1
            assert len(own) <= limit
        late = cluster.clients["p1"].submit("late", "b+1", wait_s=60)
        assert late["state"] == "running"
        for stream in rows:
            cluster.end("p0", stream)
        for n in range(4):
            sums = list(accumulate(value + n for value in rows["a"]))
            assert cluster.rows("p2", f"q{n}") == sorted(sums)
        both = [v + 8 for v in rows["a"]] + [v + 9 for v in rows["b"]]
        assert cluster.rows("p2", "both") == sorted(both)


def test_who_speaks_another_version_or_nonsense_is_told_and_nothing_is_stuck(
    three: Members,
) -> None:
    url = f"{three.url('p0')}/control"
    join = {"id": "px", "url": "http://127.0.0.1:1", "epoch": 1, "home": "x"}
    card = {"join": join, "beat": 1}

    def said(message: dict[str, Any]) -> dict[str, Any]:
        envelope = {"epoch": 1, "number": 0, "to": "p0", "by": "processor", "sender": "px",
                    "messages": [message]}  # fmt: skip
        found: dict[str, Any] = httpx.post(url, json=envelope).json()
        return found

    other = said({"do": "gossip", "version": 99, "cards": [card]})["replies"][0]["error"]
    assert other["message"] == "px cannot be a member here"
    assert "version 99" in other["detail"]
    assert "error" in said({"do": "gossip", "version": "x", "cards": 7})
    wild = {"join": {**join, "epoch": 1 << 61}, "beat": 1 << 61}
    said({"do": "gossip", "version": 1, "cards": [wild]})
    assert three.up("p0") == ["p0", "p1", "p2"]
    # one that gossips well and answers nothing: queries go on without it
    said({"do": "gossip", "version": 1, "cards": [card]})
    assert "px" in three.up("p0")
    told = three.clients["p1"].submit("still", "b+1", wait_s=40)
    assert told["state"] == "running"
    three.clients["p1"].drop("still", 20)


@pytest.mark.soak
def test_an_address_that_is_no_member_is_told_once(tmp_path: Path) -> None:
    with (
        members(tmp_path, 1) as cluster,
        manager(tmp_path / "manager", cluster.url("p0")) as leader,
    ):
        cluster.ports |= {"m": int(leader.url.rpartition(":")[2]), "nobody": 1}
        cluster.start("p1", ("m", "nobody"))
        log = tmp_path / "p1" / "output.log"
        cluster.until(lambda: "the server there is not a processor" in log.read_text())
        cluster.until(lambda: "no server answers at http://127.0.0.1:1" in log.read_text())
        cluster.until(lambda: cluster.up("p1") == ["p1"])
        assert log.read_text().count("no processor") == 1


def test_a_member_is_gone_with_its_home_and_a_user_says_so(tmp_path: Path) -> None:
    """What needs something of it begins again at the others, or can be dropped; its home, should
    it come back, is refused."""
    with members(tmp_path, 3) as cluster:
        declared(cluster)
        cluster.clients["p1"].submit("both", "a+1 c+2", from_beginning=True, wait_s=40)
        cluster.clients["p1"].submit("there", "c+5", from_beginning=True, wait_s=40)
        cluster.clients["p0"].start_streams(["a", "c"])
        cluster.kill("p2")
        (tmp_path / "p2").rename(tmp_path / "kept")
        cluster.until(lambda: cluster.up("p0") == ["p0", "p1"])
        assert {q["state"] for q in cluster.clients["p0"].queries()} == {"stalled"}
        assert cli("drop", "there", "--to", cluster.url("p0")).returncode == 0
        told = cli("remove", "--lost", "p2", "--to", cluster.url("p0"))
        assert told.returncode == 0, told.stderr
        assert "query both begins again" in told.stdout
        cluster.until(lambda: cluster.clients["p1"].query("both")["state"] == "running")
        assert [q["name"] for q in cluster.clients["p0"].queries()] == ["both"]
        late = cluster.clients["p0"].submit("late", "c+9", from_beginning=True, wait_s=40)
        assert late["state"] == "running"
        fed(cluster, "p1", "ac")
        assert cluster.rows("p0", "both") == expected(a=1, c=2)
        assert cluster.rows("p1", "late") == expected(c=9)
        (tmp_path / "kept").rename(tmp_path / "p2")
        cluster.start("p2")
        log = tmp_path / "p2" / "output.log"
        cluster.until(lambda: "was declared lost" in log.read_text())
        assert cluster.up("p0") == ["p0", "p1"]
