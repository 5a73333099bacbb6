"""A standalone cluster that loses an executor and a worker ten times: the answers stay the same.

The killer is this process, the engine's driver another: it works on while executors die under its
steps, whole machines vanish and other workers take their place.
"""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from engine_runner import EngineRunner
from small_engines import stream
from test_oracle_cases import queries_of

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from oracle.cases import SCENES, Scene
from oracle.harness import disagreement, whole
from standalone_cluster import standalone

HERE = Path(__file__).parent
TIMES = 10
SEED = 24
WAIT_S = 600.0
BETWEEN_S = (0.5, 5.0)  # so long the cluster is let alone
CONFIGURED = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
}
LARGE = {
    "every": "SELECT n, sha2(CAST(n AS STRING), 256) AS h FROM a",
    "pairs": "SELECT x.n AS n FROM a [RANGE 1 SECOND] x JOIN a [RANGE 1 SECOND] y ON x.n = y.n",
    "sums": "SELECT n % 7 AS k, count(*) AS c, sum(n) AS s FROM a GROUP BY n % 7",
}
LARGE_ROWS = 300_000
LARGE_FILES = 6


# -- the driver's process -------------------------------------------------------------------------


def drive(kind: str, folder: Path, url: str) -> None:
    """Works over and over until there is `enough`; tells what was wrong, and how much it did."""
    from millstream.spark.session import session  # noqa: PLC0415

    spark = session(url, CONFIGURED)
    work: Iterator[list[str]] = {"oracle": oracles, "large": large_results}[kind](spark, folder)
    problems: list[str] = []
    for rounds, found in enumerate(work, 1):
        problems += found
        (folder / "told.json").write_text(json.dumps({"problems": problems, "rounds": rounds}))
    spark.stop()


def enough(folder: Path) -> bool:
    return (folder / "enough").exists()


def oracles(spark: Any, folder: Path) -> Iterator[list[str]]:
    """Every scene worked out by hand, collected by the driver and written by executors."""
    runners = [
        EngineRunner(spark, folder / str(size), EngineSettings(collect_bytes_max=size))
        for size in (0, 1 << 30)
    ]
    for count, (scene, runner) in enumerate(itertools.cycle(itertools.product(SCENES, runners))):
        if count >= 2 * len(SCENES) and enough(folder):
            return
        yield disagreements(scene, runner)


def disagreements(scene: Scene, runner: EngineRunner) -> list[str]:
    results = runner.run(scene.streams, queries_of(scene), whole(scene.streams))
    return [
        f"{scene.name}: {problem}"
        for case in scene.cases
        for name in (case.name, f"{case.name}_spelled")
        if name in results and (problem := disagreement(scene, case, results[name]))
    ]


def large_results(spark: Any, folder: Path) -> Iterator[list[str]]:
    """Results that executors write while they die: every row once, in the sums too."""
    from millstream.spark.plane import SparkPlane  # noqa: PLC0415

    settings = EngineSettings(batch_rows=LARGE_ROWS // LARGE_FILES, collect_bytes_max=0)
    for number in itertools.count(1):
        if number > 2 and enough(folder):
            return
        engine = Engine(folder / f"home{number}", SparkPlane(spark), settings)
        columns = {"at": "long", "n": "long"}
        engine.add_stream(stream("a", columns=columns, path=folder / "a"))
        for name, cql in LARGE.items():
            engine.add_query(name, cql)
        Loop(engine).run()
        yield [f"round {number}: {problem}" for problem in miscounted(engine)]
        engine.close()
        shutil.rmtree(folder / f"home{number}")


def miscounted(engine: Engine) -> list[str]:
    wanted = range(LARGE_ROWS)
    problems = []
    for name in ("every", "pairs"):
        found = engine.result(name)["n"].to_pylist()
        if sorted(found) != list(wanted):
            problems.append(f"{name}: {len(found)} rows, {len(set(found))} of them different")
    sums = {row["k"]: (row["c"], row["s"]) for row in engine.table("sums").to_pylist()}
    right = {k: (len(wanted[k::7]), sum(wanted[k::7])) for k in range(7)}
    return problems + ([] if sums == right else [f"sums: {sums}"])


def write_large(folder: Path) -> None:
    (folder / "a").mkdir()
    size = LARGE_ROWS // LARGE_FILES
    for number in range(LARGE_FILES):
        rows = range(number * size, (number + 1) * size)
        text = "".join(f"{n // 100},{n}\n" for n in rows)
        (folder / "a" / f"{number}.csv").write_text(text)


# -- the killer's ---------------------------------------------------------------------------------


@contextmanager
def driver(kind: str, folder: Path, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    program = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
    arguments = f"{kind!r}, pathlib.Path({str(folder)!r}), {url!r}"
    program += f"import test_cluster_kills as t, pathlib; t.drive({arguments})"
    with (folder / "driver.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=log, stderr=log,
                                   cwd=folder, start_new_session=True)  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(condition: Callable[[], Any], alive: "subprocess.Popen[bytes]", log: Path) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        said = log.read_text(errors="replace")[-3000:]
        assert alive.poll() is None, f"the driver has ended: {said}"
        assert time.monotonic() < until, said
        time.sleep(0.1)


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["oracle", "large"])
def test_ten_executors_and_ten_workers_die(kind: str, tmp_path: Path) -> None:
    write_large(tmp_path)
    chance = random.Random(SEED)
    log = tmp_path / "driver.log"
    killed = {"executors": 0, "workers": 0}
    with (
        standalone(tmp_path / "cluster") as cluster,
        driver(kind, tmp_path, cluster.url) as process,
    ):
        wait_until((tmp_path / "told.json").exists, process, log)  # it works
        for number in range(TIMES):
            time.sleep(chance.uniform(*BETWEEN_S))
            wait_until(cluster.executors, process, log)
            with suppress(ProcessLookupError):
                os.kill(chance.choice(cluster.executors()), signal.SIGKILL)
                killed["executors"] += 1
            time.sleep(chance.uniform(*BETWEEN_S))
            cluster.kill_worker(chance.choice(cluster.workers), machine=number % 2 == 1)
            killed["workers"] += 1
            assert process.poll() is None, "they died while it worked"
            time.sleep(chance.uniform(*BETWEEN_S))
            cluster.start_worker()
        (tmp_path / "enough").touch()
        assert process.wait(timeout=1800) == 0, log.read_text(errors="replace")[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    print(f"{kind}: {told['rounds']} rounds, killed {killed}")
    assert killed == {"executors": TIMES, "workers": TIMES}
    assert told["problems"] == []
