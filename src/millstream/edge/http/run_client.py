"""Asks the endpoint of a run about its goals, and changes them."""

from collections.abc import Mapping
from typing import Any

from millstream.client.http import HttpClient, json_of
from millstream.core.errors import AwayError, StateError


def run_quality(url: str, token: str | None) -> dict[str, Any]:
    """How the goals of a run stand."""
    return _asked("GET", url, token)


def change_quality(url: str, token: str | None, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Changes goals; gives how all of them stand."""
    return _asked("PUT", url, token, wish)


def _asked(
    method: str, url: str, token: str | None, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    client = HttpClient(token)
    try:
        told = json_of(client.ask(method, f"{url.rstrip('/')}/qos", body))
    except AwayError as error:
        raise StateError(f"no run answers at {url}", detail=error.detail) from None
    finally:
        client.close()
    if not isinstance(told, dict):
        raise StateError(f"no run answers at {url}")
    return told
