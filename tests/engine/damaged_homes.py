"""A small home in the middle of its work, to be damaged: two queries over one stream, into files.

It is copied while its engine is open, so that the ledger's log is still there, as after a kill.
"""

import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from test_hosting import compiled, compute

from millstream.core.errors import MillstreamError
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.delivery import FileSink
from plain_plane import PlainPlane

COLUMNS = (Field("c0", "bigint"),)
SETTINGS = EngineSettings(batch_rows=4, sharing="exact", slots=1)
QUERIES = {"one": ("1", 1), "two": ("1+2", 3)}
ROWS = 12


class Killed(BaseException):
    """The end of a process."""


def opened(out: Path) -> Engine:
    engine = Engine(out / ".millstream", PlainPlane(compiled, compute), SETTINGS)
    try:
        path = str(out.parent / "in.csv")
        engine.add_stream(StreamDefinition("a", COLUMNS, "ts", 0, source={"path": path}))
        for name, (cql, _) in QUERIES.items():
            engine.add_query(name, cql, from_beginning=True)
            engine.deliver(name, FileSink(out / name, "parquet"))
    except BaseException:
        engine.close()
        raise
    return engine


def half_done(folder: Path, chance: random.Random) -> Path:
    """An --out folder whose engine was killed somewhere; its input lies beside it."""
    (folder / "in.csv").write_text("".join(f"{n},{n}\n" for n in range(ROWS)))
    left = chance.randrange(8, 34)
    out, killed = folder / "out", folder / "killed"

    def kill(point: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            faults.set_hook(None)
            shutil.copytree(out, killed)
            raise Killed(point)

    engine = opened(out)
    faults.set_hook(kill)
    try:
        Loop(engine).run()
        shutil.copytree(out, killed)
    except Killed:
        pass
    finally:
        faults.set_hook(None)
        engine.close()
    shutil.rmtree(out)
    return killed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of going on: what was said, and which queries stood still."""

    said: MillstreamError | None
    parked: frozenset[str] = frozenset()


def gone_on(out: Path) -> Outcome:
    """Opens the home and works to the end; anything but our own errors is the test's failure."""
    try:
        engine = opened(out)
    except MillstreamError as error:
        return Outcome(error)
    said: MillstreamError | None = None
    try:
        Loop(engine).run()
    except MillstreamError as error:
        said = error
    finally:
        engine.close()
    return Outcome(said, frozenset(q.name for q in engine.queries.values() if q.state == "parked"))


def delivered(folder: Path) -> Counter[int]:
    """The values of all delivered files of a query, those set aside left out."""
    found: Counter[int] = Counter()
    for part in sorted(folder.glob("part-*.parquet")):
        found.update(pq.read_table(part)["c0"].to_pylist())
    return found


def all_there(folder: Path) -> set[int]:
    """The same with those that wait to be written again."""
    parts = [*folder.glob("part-*.parquet"), *folder.glob(".uncommitted/part-*.parquet")]
    return {v for part in parts for v in pq.read_table(part)["c0"].to_pylist()}


def expected(query: str) -> Counter[int]:
    return Counter(n + QUERIES[query][1] for n in range(ROWS))
