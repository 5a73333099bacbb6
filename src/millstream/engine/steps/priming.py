"""A processor that has nothing to do yet makes itself ready: it runs a small dataflow of its own.

Spark's first steps cost ten times what later ones do, because Java compiles while they run, and an
operator that arrives there keeps the processor busy for half a minute. So rows are made up, and
joined, grouped and filtered by a second engine in a folder of its own, until steps are as quick as
they get or something real is to be done. Leaves nothing behind.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.ports import DataPlane
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field

ROUNDS = 24  # by then a step takes a quarter of what the first one did
HASTE = 6  # rounds without a pause, until it is half; later ones leave half of the time to others
ROWS = 1_000  # of a round: half a second of event time
LOOK_SECONDS = 0.2
QUERIES = {
    "join": "SELECT x.k AS k, x.v + y.v AS v FROM a [RANGE 2 SECONDS] x "
    "JOIN b [RANGE 2 SECONDS] y ON x.k = y.k WHERE x.v > 10",
    "windows": "SELECT v % 5 AS g, count(*) AS c, sum(v) AS s, max(k) AS m FROM a "
    "[RANGE 2 SECONDS SLIDE 1 SECONDS] GROUP BY v % 5",
    "filter": "SELECT k, v * 2 AS v FROM b WHERE v > 3",
    "table": "SELECT v % 3 AS g, count(*) AS c FROM b GROUP BY v % 3",
}


def prime(plane: DataPlane, folder: Path, enough: Callable[[], bool]) -> int:
    """Rounds of made-up work, until there is real work; gives how many."""
    shutil.rmtree(folder, ignore_errors=True)
    engine = Engine(folder, plane, EngineSettings())
    loop = Loop(engine)
    try:
        sources = [_source(engine, name) for name in ("a", "b")]
        for name, cql in QUERIES.items():
            engine.add_query(name, cql, from_beginning=True)
        loop.start()
        done = 0
        while done < ROUNDS and not enough() and loop.failure is None:
            begun_s = time.monotonic()
            for source in sources:
                source.push("prime", done + 1, _rows(done * ROWS))
            done += 1
            while not (loop.settled.wait(LOOK_SECONDS) or enough() or loop.failure):
                pass
            took_s = time.monotonic() - begun_s
            while done > HASTE and time.monotonic() < begun_s + 2 * took_s and not enough():
                time.sleep(min(LOOK_SECONDS, took_s))
        return done
    finally:
        loop.stop()
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


def _source(engine: Engine, name: str) -> PushSource:
    columns = tuple(Field(column, "long") for column in ("at", "k", "v"))
    engine.add_stream(
        StreamDefinition(name, columns, "timestamp_micros(at)", source={"source": "push"})
    )
    source = engine.sources[name]
    assert isinstance(source, PushSource)
    return source


def _rows(first: int) -> list[dict[str, int]]:
    return [{"at": n * 500, "k": n, "v": n % 97} for n in range(first, first + ROWS)]
