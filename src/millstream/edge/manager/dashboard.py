"""The dashboard of a manager, served by its process as long as it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.client.manager_client import ManagerClient
from millstream.edge.dashboard.serving import DashboardServer
from millstream.edge.http.serving import Address
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
    settings = server.settings
    client = ManagerClient(server.own_url, token=settings.token, verify=settings.authority or True)
    driver = server.driver
    poll = ProcessorPoll(client, lambda: addresses(driver.state)).start()
    view = ManagerView(
        lambda: driver.state, client, title=title, started=driver.started_s, poll=poll
    )
    board = DashboardServer(
        view, host=at.host, port=at.port, token=settings.token, tls=settings.tls
    )
    try:
        yield board.start()
    finally:
        board.stop()
        poll.stop()
        client.close()
