"""The endpoint of a cluster without a manager, at each of its members: the manager's own routes.

GET    /members                       who is there, as this member knows
GET    /status  /placement  /moves  /decisions?after=N  /alarms
GET    /queries  /queries/NAME        POST /queries    DELETE /queries/NAME
GET    /streams                       POST /streams    DELETE /streams/NAME
POST   /streams/start
POST   /moves                         POST /processors/NAME/drain    DELETE /processors/NAME
GET    /api/snapshot                  what `millstream top` shows
"""

from typing import Any

from fastapi.responses import JSONResponse

from millstream.core.codec import to_json
from millstream.edge.http.access import AnswerError
from millstream.edge.http.roles import reads, submits
from millstream.edge.http.serving import Application, Listening
from millstream.edge.manager import answers
from millstream.edge.manager.alarms import ClusterAlarms
from millstream.edge.manager.app import add_cluster_routes, add_move_routes, add_query_routes
from millstream.edge.manager.driver import Traffic
from millstream.edge.manager.streams import add_stream_routes
from millstream.edge.peers.member_desk import MemberDesk


def add_member_routes(app: Application, desk: MemberDesk, settings: Listening) -> None:
    add_cluster_routes(app, desk)
    add_stream_routes(app, desk, settings)
    add_query_routes(app, desk)
    add_move_routes(app, desk)
    _add_reads(app, desk, settings)


def _add_reads(app: Application, desk: MemberDesk, settings: Listening) -> None:
    @app.get("/members")
    @reads
    async def members() -> list[dict[str, object]]:
        return desk.gossip.members()

    @app.get("/status")
    @reads
    async def status() -> dict[str, Any]:
        state = await desk.read()
        refused = dict(desk.gossip.view.refused)
        told = answers.status(state, Traffic(), desk.started_s)
        return {**told, "members": desk.gossip.members(), "refused_members": refused}

    @app.get("/decisions")
    @reads
    async def decisions(after: int = 0) -> Any:
        return [d for d in (await desk.read()).decisions if d.number > after]

    async def seen() -> Any:
        state = await desk.read()
        alarms = ClusterAlarms(lambda: state, settings.token, settings.verify)
        return await alarms.snapshot()

    @app.get("/alarms")
    @reads
    async def alarms() -> JSONResponse:
        return JSONResponse([to_json(alarm) for alarm in (await seen()).overview.alarms])

    @app.get("/api/snapshot")
    @reads
    async def snapshot() -> JSONResponse:
        return JSONResponse(to_json(await seen()))

    @app.put("/qos")
    @submits
    async def goals() -> None:
        raise AnswerError(
            409, "no_manager", "goals of a cluster are kept by a manager",
            "start one with millstream manager --join URL",
        )  # fmt: skip
