"""The dashboard of a cluster without a manager, served by one of its members.

It shows what that member learns by asking all others; who changes something asks the member as any
client does. Decides nothing.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.control.manager.state import ManagerState
from millstream.core.errors import MillstreamError, UsageError
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.serving import Address
from millstream.edge.manager.dashboard import cluster_dashboard

if TYPE_CHECKING:
    from millstream.edge.processor.app import ProcessorServer

READ_S = 20.0


@contextmanager
def member_dashboard(server: "ProcessorServer", at: Address) -> Iterator[DashboardServer]:
    """Pages over what all members have, as this one hears it."""
    desk = server.member
    if desk is None:
        raise UsageError(
            "only a member of a cluster without a manager has a dashboard",
            hint="--balance placement or --join URL; or the manager's --ui",
        )

    def state() -> ManagerState:
        asking = asyncio.run_coroutine_threadsafe(desk.read(), server.loop)
        try:
            return asking.result(READ_S)
        except TimeoutError:
            raise MillstreamError("the other members do not answer in time") from None

    title = f"cluster, seen by {server.processor.id}"
    with cluster_dashboard(state, server.url, server.settings, at, title, desk.started_s) as board:
        yield board
