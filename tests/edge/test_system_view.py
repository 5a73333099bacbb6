"""What a processor tells of itself for streams about the system: when asked, and bounded."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from millstream.control.manager.system_streams import OPERATORS, STEPS
from millstream.edge.http.serving import Application
from millstream.edge.views import system_view
from millstream.edge.views.system_view import SystemView
from millstream.engine.sources import system_rows
from millstream.engine.steps.reports import StepReport


class PlainEngine:
    """Two operators: one of a user's query, one of a query over the system."""

    def __init__(self) -> None:
        self.on_step: list[Any] = []
        self.operators = {n: SimpleNamespace(id=n, kind="map") for n in ("o:user", "o:watch")}
        self.ledger = SimpleNamespace(
            epoch=3,
            operator_statistics=lambda: {
                "o:user": {"rows_in": 7, "rows_out": 5, "steps": 2, "seconds": 0.5}
            },
        )
        waiting = [SimpleNamespace(rows=4, size=40)]
        self.pending = lambda _: {"s:a": waiting}

    def queries_of(self, operator: str) -> list[Any]:
        stream = "a" if operator == "o:user" else "sys.steps"
        return [SimpleNamespace(plan=SimpleNamespace(root=stream))]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PlainEngine:
    monkeypatch.setattr(system_rows, "sources_of", lambda root: [SimpleNamespace(stream=root)])
    return PlainEngine()


def step(engine: PlainEngine, operator: str) -> None:
    report = StepReport(
        operator=operator, rows_in=1, rows_out=1, bytes_in=1, bytes_out=1, seconds=0.1,
        commit_seconds=0.01, tail_segments=0, started=0.0, arrived=0.0, collected=True,
    )  # fmt: skip
    for listener in engine.on_step:
        listener(report)


def test_operators_as_they_stand_without_those_that_watch(engine: PlainEngine) -> None:
    view = SystemView("p7", engine)  # type: ignore[arg-type]
    (row,) = view.rows(frozenset({OPERATORS}), 0, 0)[OPERATORS]
    assert (row["operator"], row["processor"], row["queue_rows"]) == ("o:user", "p7", 4)
    assert (row["rows_in"], row["steps"], row["queries"]) == (7, 2, 1)
    assert engine.on_step == []  # nobody wants steps


def test_steps_from_the_first_question_on(
    engine: PlainEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_view, "STEPS_KEPT", 3)
    view = SystemView("p7", engine)  # type: ignore[arg-type]
    wanted = frozenset({STEPS})
    step(engine, "o:user")
    assert view.rows(wanted, 0, 0)[STEPS] == []
    step(engine, "o:user")
    step(engine, "o:watch")
    told = view.rows(wanted, 3, 0)
    assert [row["operator"] for row in told[STEPS]] == ["o:user"]
    assert (told["epoch"], told["last"]) == (3, 1)
    assert view.rows(wanted, 3, told["last"])[STEPS] == []
    assert len(view.rows(wanted, 2, told["last"])[STEPS]) == 1  # asked by who knew another life
    assert view.rows(wanted, 0, 0)[STEPS] == []  # by somebody new: told already, to another one
    for _ in range(9):
        step(engine, "o:user")
    assert len(view.rows(wanted, 3, 1)[STEPS]) == 3
    assert len(engine.on_step) == 1
    view._asked_s -= 100.0  # nobody has asked since
    step(engine, "o:user")
    assert view.rows(wanted, 3, 0)[STEPS] == []


def test_over_http_with_a_token(engine: PlainEngine) -> None:
    app = Application("processor", token="secret")
    SystemView("p7", engine).add_route(app)  # type: ignore[arg-type]

    async def ask() -> list[httpx.Response]:
        base, bearer = "http://127.0.0.1", {"authorization": "Bearer secret"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
            wanted = {"wanted": f"{OPERATORS},{STEPS}"}
            return [
                await client.get("/system"),
                await client.get("/system", params=wanted, headers=bearer),
                await client.get("/system", headers=bearer),
            ]

    denied, told, nothing = asyncio.run(ask())
    assert denied.status_code == 401
    assert len(told.json()[OPERATORS]) == 1
    assert told.json()[STEPS] == []
    assert nothing.json() == {"epoch": 3, "last": 0}
