"""What a processor answers while too few others have what it commits: nothing."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from millstream.edge.replicas import gated_application
from millstream.edge.replicas.gated_application import GatedApplication
from millstream.store.ledger import Ledger
from millstream.store.replicas.commit_log import CommitLog
from millstream.store.replicas.records import Configuration


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommitLog]:
    monkeypatch.setattr(gated_application, "PATIENCE_S", 0.1)
    ledger = Ledger(tmp_path / "ledger.db")
    yield CommitLog(ledger)
    ledger.close()


def posted(log: CommitLog, meanwhile: Callable[[], None] = lambda: None) -> httpx.Response:
    """The answer to a request that commits something; `meanwhile` comes before that."""
    app = GatedApplication(log, "test", host="127.0.0.1")

    @app.post("/rows")
    def rows() -> dict[str, bool]:
        meanwhile()
        with log.ledger.transaction() as ledger:
            ledger.set_meta("row", "1")
        return {"taken": True}

    async def ask() -> httpx.Response:
        there = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=there, base_url="http://127.0.0.1") as client:
            return await client.post("/rows", headers={"X-Millstream": "1"})

    return asyncio.run(ask())


def test_who_wants_followers_and_knows_none_acknowledges_nothing(log: CommitLog) -> None:
    assert posted(log).status_code == 200
    log.configure(Configuration(1, 1, ()))
    refused = posted(log)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "replicas"
    assert not log.open, "and reports say so"


def test_one_that_hears_meanwhile_who_is_to_have_it_waits_for_them(log: CommitLog) -> None:
    """Its rows may be committed after that, and nobody else has them."""
    asked = posted(log, lambda: log.configure(Configuration(1, 1, ("p2",))))
    assert asked.status_code == 503
