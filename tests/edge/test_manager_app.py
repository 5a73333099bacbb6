"""The manager's process, with virtual processors behind real HTTP: no Spark."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from millstream.app.cli import run
from millstream.client.manager_client import ManagerClient, manager_url
from millstream.core.errors import AwayError, StateError, UsageError
from millstream.edge.http.reserved_port import KeptPort
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.peers.local_cluster import LAUNCH
from millstream.sim.managed.managed_cluster import table, tree
from millstream_bench.cluster.plan_processor import HttpProcessor, World

PLANS = {
    "one": tree("one", ("o:f", "s:a"), ("o:j", "o:f", "s:b"), ("o:r", "o:j")),
    "two": tree("two", ("o:f", "s:a"), ("o:g", "o:f")),
    "watch": tree("watch", ("o:w", "s:sys.operators")),
    "taken": tree("taken", ("o:t", "s:sys.admissions")),
}


STAYING = ("--moves-a-minute", "0")  # operators go only where the test sends them


class Process:
    """A manager as a process of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home, self.kept, self.options = home, KeptPort(), options
        self.port = self.kept.number
        self.client = ManagerClient(f"http://127.0.0.1:{self.port}")
        self.start()

    def start(self) -> None:
        arguments = ("manager", "--home", str(self.home), "--port", str(self.port))
        fast = ("--beat", "0.3", *self.options)
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *arguments, *fast],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            wait(self._answers)
        except BaseException:
            self.close()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[1]
        try:
            self.client.status()
        except AwayError:
            return False
        return True

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.kept.close()
        self.client.close()


def wait(look: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


@pytest.fixture
def world() -> Iterator[World]:
    found = World(PLANS, rows=30)
    for name in ("p1", "p2", "p3"):
        HttpProcessor(name, found)
    yield found
    found.close()


def join_all(manager: Process, world: World) -> None:
    for processor in world.processors.values():
        manager.client.ask("POST", f"{manager.client.url}/processors", processor.join())
    wait(lambda: all_up(manager))
    assert len(manager.client.status()["processors"]) == 3


def all_up(manager: Process) -> bool:
    told = manager.client.status()["processors"].values()
    return all(p["state"] == "up" for p in told)


@pytest.fixture
def manager(tmp_path: Path, world: World) -> Iterator[Process]:
    found = Process(tmp_path / "manager", *STAYING)
    join_all(found, world)
    yield found
    found.close()


def submit_both(manager: Process, *, start: bool = True) -> None:
    for name in ("a", "b"):
        manager.client.declare(table(name))
    for name in ("one", "two"):
        told = manager.client.submit(name, name, from_beginning=True)
        assert told["state"] == "running"
    if start:
        manager.client.start_streams()


def test_queries_live_through_a_kill_of_the_manager(manager: Process, world: World) -> None:
    submit_both(manager)
    before = manager.client.placement()["operators"]
    manager.kill()
    with pytest.raises(AwayError):
        manager.client.status()
    manager.start()
    wait(lambda: all_up(manager))
    assert manager.client.status()["epoch"] == 2
    after = manager.client.placement()["operators"]
    assert {o["id"]: o["processor"] for o in after} == {o["id"]: o["processor"] for o in before}
    assert {q["state"] for q in manager.client.queries()} == {"running"}
    hosted = [p.connections.carried_out.count("host") for p in world.processors.values()]
    time.sleep(0.7)
    assert hosted == [p.connections.carried_out.count("host") for p in world.processors.values()]
    assert manager.stop() == 0


def test_moves_drains_and_drops(manager: Process, world: World) -> None:
    submit_both(manager)
    places = {o["id"]: o["processor"] for o in manager.client.placement()["operators"]}
    target = next(p for p in world.processors if p != places["o:j"])
    dry = manager.client.move("j", target, dry_run=True)
    assert dry["moves"] == []
    assert "would go" in dry["sentence"]
    done = manager.client.move("j", target, wait_s=20.0)
    assert [m["phase"] for m in done["moves"]] in (["owned"], ["done"])
    assert "o:j" in world.processors[target].hosted()
    told = manager.client.drain(target, wait_s=20.0)
    assert told["processor"]["operators"] == 0
    with pytest.raises(UsageError, match="no operator"):
        manager.client.move("nothing", target)
    with pytest.raises(UsageError, match="no query"):
        manager.client.drop("nothing")
    assert manager.client.drop("one", wait_s=10.0) == {"gone": True}
    left = {o["id"] for o in manager.client.placement()["operators"]}
    assert left == {"o:f", "o:g"}
    kinds = {d["kind"] for d in manager.client.decisions()}
    assert {"admission", "move", "drop", "notice"} <= kinds
    assert not world.faults


def test_streams_about_the_system_are_fed_while_they_are_read(
    manager: Process, world: World
) -> None:
    submit_both(manager)
    assert not any(p.asked for p in world.processors.values())
    for name in ("watch", "taken"):
        assert manager.client.submit(name, name)["state"] == "running"
    entered = {n: s["processor"] for n, s in manager.client.streams().items() if n[:4] == "sys."}
    assert sorted(entered) == ["sys.admissions", "sys.operators"]

    def rows(stream: str) -> list[dict[str, str]]:
        return list(world.processors[entered[stream]].entered.get(stream, ()))

    placed = {o["id"]: o["processor"] for o in manager.client.placement()["operators"]}
    places = {o: p for o, p in placed.items() if o not in ("o:w", "o:t")}  # who watches is left out
    wait(lambda: {(r["operator"], r["processor"]) for r in rows("sys.operators")} >= set(
        places.items()))  # fmt: skip
    wait(lambda: {r["query"] for r in rows("sys.admissions")} == {"one", "two", "watch", "taken"})
    manager.process.terminate()
    assert b"Traceback" not in manager.process.communicate(timeout=20)[1]
    before = len(rows("sys.operators"))
    manager.start()
    manager.client.drop("two", wait_s=10.0)
    wait(lambda: [r["decision"] for r in rows("sys.admissions")][4:] == ["dropped"])
    wait(lambda: len(rows("sys.operators")) > before)
    for name in ("watch", "taken"):
        manager.client.drop(name, wait_s=10.0)
    assert sorted(manager.client.streams()) == ["a", "b"]
    with pytest.raises(UsageError, match="system itself"):
        manager.client.declare({"name": "sys.mine"})
    manager.process.terminate()
    assert b"Traceback" not in manager.process.communicate(timeout=20)[1]


def test_refusals_come_with_reasons(manager: Process) -> None:
    manager.client.declare(table("a"))
    with pytest.raises(UsageError, match="no such text"):
        manager.client.submit("bad", "SELECT nonsense")
    assert manager.client.queries() == []
    with pytest.raises(UsageError, match="another meaning"):
        manager.client.declare({"name": "a", "columns": {}})
    with pytest.raises(UsageError):
        manager.client.change({"policy": "magic"})
    assert manager.client.change({"policy": "balance"})["policy"] == "balance"
    with pytest.raises(UsageError, match="malformed query\ncode: Unexpected"):
        manager.client._post("/queries", {"name": "x", "cql": "y", "code": "os.remove"})
    answer = manager.client.send("POST", f"{manager.client.url}/queries", b"x" * (5 << 20))
    assert answer.status_code == 413


def test_an_old_epoch_of_a_home_is_refused(manager: Process, world: World) -> None:
    told = world.processors["p1"].join()
    with pytest.raises(StateError, match="epoch 0"):
        manager.client.ask("POST", f"{manager.client.url}/processors", {**told, "epoch": 0})


def test_a_token_guards_everything(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    manager = Process(tmp_path / "manager", "--token-file", str(tmp_path / "token"))
    try:
        assert manager.client.status()["epoch"] == 1
        guessing = ManagerClient(manager.client.url, token="guess")
        with pytest.raises(UsageError, match="token"):
            guessing.status()
        guessing.close()
    finally:
        manager.close()


def test_a_manager_takes_the_token_of_its_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = Process(tmp_path / "manager", "--ui-at", "0")
    try:
        url = manager.client.url
        assert httpx.get(f"{url}/health").status_code == 200
        assert httpx.get(f"{url}/status").status_code == 401  # another user, or a web page
        assert run(["status", "--manager", url]) == 0  # and we do not notice
        assert run(["token", "--role", "read"]) == 0
        reading = capsys.readouterr().out.splitlines()[-1]
        monkeypatch.setenv("MILLSTREAM_TOKEN", reading)
        assert run(["queries", "--manager", url]) == 0
        assert run(["drop", "q", "--manager", url]) == 2
        assert "this token may read, and that is for submit" in capsys.readouterr().err
        home = tmp_path / "manager"
        assert home.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}
    finally:
        manager.close()
    assert run(["token", "--role", "rea"]) == 2
    assert "did you mean read?" in capsys.readouterr().err


def test_beyond_loopback_only_with_a_token() -> None:
    with pytest.raises(UsageError, match="only with a token"):
        ManagerSettings(host="0.0.0.0")


def test_commands_tell_what_goes_on(
    manager: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_both(manager)
    monkeypatch.setenv("MILLSTREAM_MANAGER", manager.client.url)
    assert run(["status"]) == 0
    assert "3 " not in capsys.readouterr().err
    assert run(["queries"]) == 0
    assert "one" in capsys.readouterr().out
    assert run(["placement"]) == 0
    shown = capsys.readouterr().out
    assert "o:j" in shown
    assert run(["move", "o:j", "p9", "--dry-run"]) == 2
    assert "no processor p9" in capsys.readouterr().err
    assert run(["decisions", "--json"]) == 0
    assert '"admission"' in capsys.readouterr().out
    assert run(["redistribute", "--dry-run"]) == 0
    assert "nothing moves" in capsys.readouterr().out
    assert run(["drop", "one"]) == 0
    assert "one is gone" in capsys.readouterr().out


def test_goals_reach_the_processors_that_they_concern(
    manager: Process, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    submit_both(manager)
    url = manager.client.url
    assert run(["qos", url, "delay <= 2s"]) == 0
    assert "delay <= 2s" in capsys.readouterr().out
    assert run(["qos", url, "output_rate maximise", "--query", "two"]) == 0
    assert run(["qos", url, "delay <= 2s", "--query", "nobody"]) == 2
    assert run(["qos", url, "delay <= 2s", "--query", "two", "--schedule", "x.toml"]) == 2
    place = manager.client.query("two")["processor"]
    here = world.processors[place].connections
    wait(lambda: "two" in here.quality.get("queries", {}))
    wait(lambda: all(p.connections.quality.get("goals") for p in world.processors.values()))
    manager.kill()
    capsys.readouterr()
    here.quality = {}
    manager.start()
    assert run(["qos", url]) == 0
    shown = capsys.readouterr().out
    assert "delay <= 2s" in shown
    # with its value, where a processor has told one since
    assert re.search(r"two +output_rate (maximise|\(rows/s\) as much as possible)", shown)
    wait(lambda: here.quality.get("goals") == "delay <= 2s")


def test_a_cluster_schedules_as_a_job_file_says(
    manager: Process, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("1\n")
    job = tmp_path / "job.toml"
    text = (
        '[streams.s]\npath = "rows.csv"\ncolumns = { n = "long" }\n'
        'time = "timestamp_seconds(n)"\n[queries.q]\ncql = "SELECT n FROM s"\n'
    )
    job.write_text(text)
    assert run(["qos", manager.client.url, "--schedule", str(job)]) == 2
    assert "no [schedule]" in capsys.readouterr().err
    job.write_text(text + '[schedule]\nalgorithm = "chain"\n')
    assert run(["qos", manager.client.url, "--schedule", str(job)]) == 0
    wait(lambda: all(p.connections.schedule == {"algorithm": "chain"} for p in
                     world.processors.values()))  # fmt: skip


def test_which_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_MANAGER", raising=False)
    with pytest.raises(UsageError, match="which manager"):
        manager_url(None)
    assert manager_url("127.0.0.1:8360") == "http://127.0.0.1:8360"
    with pytest.raises(UsageError):
        manager_url("ftp://x")
