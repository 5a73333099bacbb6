"""A process that reads a topic, adds one to every number, writes a topic, and ends at a point.

Arguments: the home, the broker, the point where it ends, and how often that is reached before.
"""

import os
import sys
from pathlib import Path
from typing import Any

from test_hosting import compiled, compute

from millstream.control.definitions.sink_table import sink_of
from millstream.engine.engine import Engine
from millstream.engine.loop import Loop
from millstream.engine.settings import EngineSettings
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.sinks.opening import open_sink
from plain_plane import PlainPlane, arrived


class Plane(PlainPlane):
    """All at one time: no number is late."""

    def row_parser(self, definition: StreamDefinition) -> Any:
        return lambda rows, origin: arrived([(0, row["c0"]) for row in rows], origin)


def main(home: str, broker: str, point: str, left: int) -> None:
    def reached(at: str) -> None:
        nonlocal left
        left -= at == point
        if left < 0:
            os._exit(9)  # as if it had been killed: nothing is closed or taken back

    options = {"bootstrap.servers": broker}
    settings = EngineSettings(batch_rows=4, sharing="exact")
    engine = Engine(Path(home), Plane(compiled, compute), settings)
    source = {"source": "kafka", "topic": "in", "options": options}
    engine.add_stream(StreamDefinition("a", (Field("c0", "bigint"),), "ts", 0, source=source))
    engine.add_query("q", "1", from_beginning=True)
    sink = open_sink(sink_of({"type": "kafka", "topic": "out", "options": options}))
    engine.deliver("q", sink, consumer=Consumer("sink", "q:1"))
    faults.set_hook(reached)
    Loop(engine).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
