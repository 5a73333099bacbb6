"""Members of a cluster without a manager, as processes of their own; only Spark is missing.

A text says which streams a query reads and what is added to each value: `a+1 b+2` gives all rows
of both, `sum a+1` the running sum of one. Everything else is the real thing: engine, ledger, HTTP.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.client.results import ResultReader
from millstream.control.peers.membership import Timing
from millstream.control.peers.standing import StandingSettings
from millstream.core.errors import CqlError, MillstreamError
from millstream.edge.http.distance_probe import DistanceProbe
from millstream.edge.peers.balancing import BalanceSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.ports import CompiledQuery, StepResult, TrainStep
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import Catalog
from millstream.language.plan.expressions import Literal
from millstream.language.plan.nodes import Filter, Node, Plan, Source, Union
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator, result_stream, starting_at, state_stream
from millstream.sim.managed.plain_plane import (
    PlainCompiler,
    PlainEvaluator,
    PlainPlane,
    read,
    write,
)
from millstream.store import reach
from millstream.store.segments import Segment

COLUMNS = (Field("c0", "bigint"),)
TIMING = Timing(gossip_s=0.2, silent_s=2.5)


def table(name: str) -> dict[str, Any]:
    """A stream's declaration."""
    return {
        "name": name, "source": "push", "columns": {"c0": "bigint"},
        "time": "timestamp_seconds(c0)",
    }  # fmt: skip


def plan_of(cql: str) -> Plan:
    words = cql.removeprefix("sum ").split()
    parts: list[Node] = []
    for word in words:
        stream, plus, number = word.partition("+")
        if not plus or not number.isdigit():
            raise CqlError("no query of this kind", source=cql, line=1, column=1, length=len(cql))
        parts.append(Filter(Source(stream, COLUMNS), Literal(number, "bigint")))
    root = parts[0] if len(parts) == 1 else Union(tuple(parts))
    if cql.startswith("sum "):
        root = Filter(root, Literal("sum", "string"))
    return Plan(root, COLUMNS, relation=False)


def operators_of(node: Node) -> tuple[Operator, ...]:
    name = f"o:{node.fingerprint}"
    match node:
        case Filter(Source(stream)):
            return (Operator(name, "map", node, None, (f"s:{stream}",)),)
        case Filter(below):
            return (*operators_of(below), Operator(name, "interval", node, None,
                                                   (f"o:{below.fingerprint}",)))  # fmt: skip
        case Union(parts):
            before = {o.id: o for part in parts for o in operators_of(part)}
            inputs = tuple(dict.fromkeys(f"o:{part.fingerprint}" for part in parts))
            return (*before.values(), Operator(name, "map", node, None, inputs))
        case _:
            raise AssertionError(node)


class Compiler(PlainCompiler):
    def __init__(self) -> None:
        super().__init__(lambda cql: self.compile(cql, Catalog(), BEGINNING))

    def compile(self, cql: str, catalog: Catalog, start: int, reader: str = "") -> CompiledQuery:
        plan = plan_of(cql)
        found = operators_of(plan.root)
        known = {s for o in found for s in o.inputs if s.startswith("s:")}
        lacking = sorted(known - {f"s:{s.name}" for s in catalog.streams})
        if lacking:
            missing = lacking[0].removeprefix("s:")
            raise CqlError(f"unknown stream {missing}", source=cql, line=1, column=1, length=1)
        if start == BEGINNING:
            return CompiledQuery(plan, found, result_stream(plan))
        named = tuple(
            Operator(starting_at(o.id, start), o.kind, o.node, o.core,
                     tuple(starting_at(s, start) for s in o.inputs)) for o in found
        )  # fmt: skip
        return CompiledQuery(plan, named, starting_at(result_stream(plan), start))


class Evaluator(PlainEvaluator):
    def __init__(self, files: Any) -> None:
        super().__init__(files, lambda *_: ([], None))

    def evaluate(self, job: TrainStep) -> StepResult:
        written, after, states = {}, {}, []
        for step in job.steps:
            operator = step.operator
            rows = [r for source in step.inputs.values() for r in read(self._files, source.new)]
            if operator.kind == "interval":
                kept = read(self._files, step.states[0])
                total, sums = kept[0][1] if kept else 0, []
                for ts, value in rows:
                    total += value
                    sums.append((ts, total))
                rows = sums
                written[state_stream(operator.id)] = [write(self._files, [(0, total)])]
                states.append(state_stream(operator.id))
            elif isinstance(operator.node, Filter):
                predicate = operator.node.predicate
                assert isinstance(predicate, Literal)
                rows = [(ts, value + int(predicate.text)) for ts, value in rows]
            written[operator.id] = [write(self._files, rows)]
            after[operator.id] = step.after
        return StepResult(written, after, replaced=tuple(states))

    def try_out(self, job: TrainStep) -> None:
        self.evaluate(job)


class Plane(PlainPlane):
    def __init__(self) -> None:
        super().__init__()
        self.compiler = Compiler()

    def evaluator(self, files: Any) -> Evaluator:
        return Evaluator(files)


def not_at_all(operator: Operator, segment: Segment, at: Mapping[str, int]) -> bool:
    return False


def measured_by(network: Path) -> None:
    """Round trips as a file has them, by names, instead of this machine's; ports say who is who."""

    def round_trip_ms(probe: DistanceProbe, url: str, samples: int = 1) -> float | None:
        told = json.loads(network.read_text())
        other = told["names"].get(url.rpartition(":")[2])
        one_way = told["ms"].get(" ".join(sorted((probe.origin, other)))) if other else None
        return None if one_way is None else 2.0 * one_way

    DistanceProbe.round_trip_ms = round_trip_ms  # type: ignore[method-assign]


def main(
    name: str, home: str, port: str, peers: str, round_s: str = "600", every_s: str = "0",
    finding: str = "routes", network: str = "",
) -> None:  # fmt: skip
    """One member, until it is told to stop."""
    if network:
        measured_by(Path(network))
    keeps = StandingSettings(float(every_s), finding=finding) if float(every_s) else None  # type: ignore[arg-type]
    for kind in ("map", "interval"):
        reach.REACHES[kind] = not_at_all  # type: ignore[index]
    balance = BalanceSettings(
        peers=tuple(url for url in peers.split(",") if url), window_s=0.1, round_s=float(round_s),
        manager_silence_s=5.0, membership=TIMING,
    )  # fmt: skip
    server = ProcessorServer(
        name, Path(home), Plane(),
        ProcessorSettings(port=int(port), balance=balance, standing=keeps),
        EngineSettings(slots=1), say=lambda text: print(text, flush=True),
    )  # fmt: skip
    server.processor.new_owner.warm_rounds = 0
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "asked_to_stop", True))
    server.start()
    print(f"processor {name} listens on {server.url}", flush=True)
    server.wait()
    server.stop()


class Members:
    """Processes p0, p1, ...; all but the first know only the first."""

    def __init__(
        self, folder: Path, count: int, round_s: float = 600.0, every_s: float = 0.0,
        finding: str = "routes", network: str = "",
    ) -> None:  # fmt: skip
        self.folder, self.round_s = folder, round_s
        self.more = (str(every_s), finding, network)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.clients: dict[str, ManagerClient] = {}
        self.start("p0")
        others = [f"p{n}" for n in range(1, count)]
        begun = {name: self.launch(name, ("p0",)) for name in others}
        for name in others:
            self.await_start(name, begun[name])
        self.settle(count)

    def start(self, name: str, seeds: Sequence[str] = ()) -> None:
        """Starts a member; one that was there before goes on from its home."""
        self.await_start(name, self.launch(name, seeds))

    def launch(self, name: str, seeds: Sequence[str] = ()) -> int:
        """Gives how much its log had before."""
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        urls = ",".join(self.url(seed) for seed in seeds)
        arguments = [name, str(home), str(self.ports.get(name, 0)), urls, str(self.round_s)]
        arguments += self.more
        log = home / "output.log"
        before = log.stat().st_size if log.exists() else 0
        tests = Path(__file__).parent
        path = os.pathsep.join((str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")))
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", f"from plain_members import main; main(*{arguments!r})"],
                stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        return before

    def await_start(self, name: str, before: int) -> None:
        log = self.folder / name / "output.log"
        deadline = time.monotonic() + 60
        while "listens on" not in (told := log.read_bytes()[before:].decode()):
            assert self.processes[name].poll() is None, told
            assert time.monotonic() < deadline, told
            time.sleep(0.05)
        self.ports[name] = int(told.partition("listens on ")[2].split()[0].rpartition(":")[2])
        self.clients[name] = ManagerClient(self.url(name))

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}"

    def settle(self, count: int) -> None:
        """Until everybody knows everybody."""

        def met() -> bool:
            found = [self.up(name) for name in self.processes]
            return all(len(up) == count for up in found)

        self.until(met)

    def up(self, name: str) -> list[str]:
        told = self.clients[name].get(f"{self.url(name)}/members")
        return [one["id"] for one in told if one["state"] == "up"]

    def until(self, what: Any, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with suppress(MillstreamError):
                if what():
                    return
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)

    def logs(self) -> str:
        found = [
            f"{p.parent.name}: {p.read_text()[-1500:]}" for p in self.folder.glob("*/output.log")
        ]
        return "\n".join(found)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes.pop(name).wait()
        self.clients.pop(name).close()

    def leave(self, name: str) -> None:
        self.processes[name].terminate()
        self.processes.pop(name).wait(30)
        self.clients.pop(name).close()

    def push(self, at: str, stream: str, rows: Sequence[tuple[int, int]], number: int) -> None:
        entrance = self.clients[at].entrance(stream)
        body = {"producer": "test", "sequence": number,
                "rows": [{"ts": ts, "c0": value} for ts, value in rows]}  # fmt: skip
        self.clients[at].post(f"{entrance['url']}/streams/{stream}/rows", body)

    def end(self, at: str, stream: str) -> None:
        entrance = self.clients[at].entrance(stream)
        self.clients[at].ask("POST", f"{entrance['url']}/streams/{stream}/end", {})

    def rows(self, at: str, query: str) -> list[int]:
        """All values of a result, asked through one member."""
        reader = ResultReader(self.clients[at], query)
        found: list[int] = []
        deadline = time.monotonic() + 60
        while not reader.ended:
            assert time.monotonic() < deadline, f"{found}\n{self.logs()}"
            for page in reader.pages(1.0):
                if page.table is not None:
                    found += page.table["c0"].to_pylist()
        return sorted(found)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        for client in self.clients.values():
            client.close()


@contextmanager
def members(folder: Path, count: int, **how: Any) -> Iterator[Members]:
    cluster = Members.__new__(Members)
    cluster.processes, cluster.clients = {}, {}
    try:
        cluster.__init__(folder, count, **how)  # type: ignore[misc]
        yield cluster
    finally:
        cluster.close()
