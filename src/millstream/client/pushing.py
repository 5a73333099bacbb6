"""Rows to where a stream of a cluster enters, in numbered batches: plain values, or Arrow's."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millstream.client.http import told_error
from millstream.client.manager_client import ManagerClient
from millstream.client.system import POLL_S
from millstream.core.errors import AwayError, StateError

AGAIN = (429, 503)  # rows wait already, the stream moves, or too few others have what came before


def entrance(client: ManagerClient, stream: str) -> str:
    """The address at which a stream takes rows, as soon as it does."""
    while True:
        with suppress(StateError):  # a manager below has not heard of it yet
            answer = client.entrance(stream)
            if answer["started"]:
                return f"{answer['url']}/streams/{stream}"
        time.sleep(POLL_S)


def posted(
    client: ManagerClient,
    stream: str,
    rows: pa.Table | Sequence[Any],
    producer: str,
    sequence: int,
) -> Mapping[str, Any]:
    """The answer to a numbered batch. Where its processor has gone since and the stream enters
    elsewhere by now, it is sent there: under its number it counts once."""
    number = {"producer": producer, "sequence": sequence}
    table = isinstance(rows, pa.Table)
    body, params = (rows, number) if table else ({**number, "rows": rows}, None)
    return taken(client, lambda: f"{entrance(client, stream)}/rows", body, params)


def taken(
    client: ManagerClient,
    where: Callable[[], str],
    body: Any,
    params: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Posts a batch, as soon as not too many rows wait there; `where` says where to each time."""
    url = where()
    while True:
        try:
            answer = client.send("POST", url, body, params=params)
        except AwayError:
            before, url = url, where()
            if url == before:
                raise
            continue
        if answer.status_code not in AGAIN:
            break
        time.sleep(float(answer.headers.get("retry-after", POLL_S)))
        url = where()
    if answer.is_error:
        raise told_error(answer)
    return dict(answer.json())
