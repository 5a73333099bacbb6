"""A process in which several producers push until it is killed: HOME POINT TIMES.

Prints `producer number` for each batch that was acknowledged. `door` opens the same stream.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from millstream.engine.sources.push_source import PushSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.arrivals.appending import Appender
from millstream.store.arrivals.arrow_rows import ArrowRows
from millstream.store.columns import columns_text
from millstream.store.streams import Streams

PRODUCERS = ("p", "q", "r", "s")
COLUMNS = (Field("at", "long"), Field("who", "string"), Field("n", "int"))


def refused(rows: Any, producer: str) -> NoReturn:
    raise AssertionError(f"rows of {producer} are plain: {rows}")


def door(streams: Streams, **settings: Any) -> PushSource:
    """Where rows of one stream come in; Arrow reads all of them."""
    definition = StreamDefinition("s", COLUMNS, "timestamp_seconds(at)", **settings)
    types = {"_ts": "long", "_pos": "long", "c0": "long", "c1": "string", "c2": "integer"}
    appender = Appender(definition, columns_text(types), streams.ledger, streams.files)
    with streams.ledger.transaction():
        appender.install()
    return PushSource(definition, appender, ArrowRows(definition, "UTC", refused).table)


def batch(who: str, number: int) -> list[dict[str, Any]]:
    return [{"at": number, "who": who, "n": n} for n in range(3)]


def stored(streams: Streams) -> pa.Table:
    """All rows in order of their positions."""
    segments = streams.ledger.segments("s:s")
    tables = [streams.files.read(s) for s in segments if s.rows]
    return pa.concat_tables(tables).sort_by("_pos")


def main(home: str, point: str, times: int) -> None:
    source = door(Streams(Path(home), local_disk=True), lateness_us=10**15)
    met = 0

    def kill(reached: str) -> None:
        nonlocal met
        met += reached == point
        if met == times:
            os.kill(os.getpid(), signal.SIGKILL)

    def produce(who: str) -> None:
        while True:
            number = source.expected(who)
            source.push(who, number, batch(who, number))
            os.write(1, f"{who} {number}\n".encode())

    faults.set_hook(kill)
    for who in PRODUCERS:
        threading.Thread(target=produce, args=(who,)).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
