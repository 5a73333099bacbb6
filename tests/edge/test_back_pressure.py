"""Posts to a processor that is far behind are turned away, and sent again by our own client."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from millstream.client.cluster_system import ClusterSystem
from millstream.client.pushing import taken
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from millstream.engine.engine import Engine
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.schema import Field
from plain_plane import PlainPlane

STREAM = StreamDefinition(
    "a", (Field("n", "bigint"),), "timestamp_seconds(n)", 0, source={"source": "push"}
)
BATCH: dict[str, Any] = {"producer": "p", "sequence": 1, "rows": []}


def test_a_processor_that_is_behind_takes_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = [True]
    monkeypatch.setattr(Engine, "congested", lambda _: behind[0])
    server = ProcessorServer("p", tmp_path / "p", PlainPlane(), ProcessorSettings())
    hosting = server.processor.hosting
    server.start()
    try:
        hosting.declare(STREAM, ingest=True)
        hosting.start_stream("a")
        url = f"{server.url}/streams/a/rows"
        refused = httpx.post(url, json=BATCH)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["code"] == "busy"
        expected = f"{server.url}/streams/a/producers/p"
        assert httpx.get(expected).json()["expected"] == 1  # nothing was taken

        slept: list[float] = []

        def later(seconds: float) -> None:
            slept.append(seconds)
            behind[0] = len(slept) < 3

        system = ClusterSystem(server.url)
        monkeypatch.setattr("millstream.client.pushing.time.sleep", later)
        assert taken(system.client, lambda: url, BATCH)["sequence"] == 1
        assert slept == [1.0, 1.0, 1.0]
        system.close()
    finally:
        monkeypatch.undo()
        server.stop()
