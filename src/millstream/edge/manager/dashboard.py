"""The dashboard of a manager, or of a member, served by its process as long as it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.client.manager_client import ManagerClient
from millstream.control.manager.state import ManagerState
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.serving import Address, Listening
from millstream.edge.manager.processor_poll import ProcessorPoll
from millstream.edge.manager.system_feed import addresses
from millstream.edge.manager.view import ManagerView

if TYPE_CHECKING:
    from millstream.edge.manager.app import ManagerServer


@contextmanager
def manager_dashboard(
    server: "ManagerServer", at: Address, title: str = "cluster"
) -> Iterator[DashboardServer]:
    """Pages over what a manager knows; those who change something ask it as clients do."""
    driver = server.driver
    with cluster_dashboard(
        lambda: driver.state, server.own_url, server.settings, at, title, driver.started_s
    ) as board:
        yield board


@contextmanager
def cluster_dashboard(
    state: Callable[[], ManagerState],
    url: str,
    settings: Listening,
    at: Address,
    title: str,
    started_s: float,
) -> Iterator[DashboardServer]:
    """Pages over what somebody knows who answers for a cluster at an address."""
    client = ManagerClient(url, token=settings.token, verify=settings.authority or True)
    poll = ProcessorPoll(client, lambda: addresses(state())).start()
    view = ManagerView(state, client, title=title, started=started_s, poll=poll)
    board = DashboardServer(
        view, host=at.host, port=at.port, token=settings.token, tls=settings.tls
    )
    try:
        yield board.start()
    finally:
        board.stop()
        poll.stop()
        client.close()
