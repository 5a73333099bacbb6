"""Asks the endpoint of a run about its goals, changes them, and restarts, pauses and resumes
queries."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from millstream.client.http import HttpClient, json_of
from millstream.core.errors import AwayError, StateError


def run_quality(url: str, token: str | None) -> dict[str, Any]:
    """How the goals of a run stand."""
    return _asked("GET", f"{url.rstrip('/')}/qos", token)


def change_quality(url: str, token: str | None, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Changes goals; gives how all of them stand."""
    return _asked("PUT", f"{url.rstrip('/')}/qos", token, wish)


def restart_query(url: str, token: str | None, query: str) -> dict[str, Any]:
    """Lets a failed query of a run go on."""
    return _asked("POST", f"{url.rstrip('/')}/queries/{quote(query, safe='')}/restart", token, {})


def pause_query(url: str, token: str | None, query: str, *, wanted: bool) -> dict[str, Any]:
    """Lets a query of a run rest, or go on."""
    word = "pause" if wanted else "resume"
    return _asked("POST", f"{url.rstrip('/')}/queries/{quote(query, safe='')}/{word}", token, {})


def _asked(
    method: str, url: str, token: str | None, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    client = HttpClient(token)
    try:
        told = json_of(client.ask(method, url, body))
    except AwayError as error:
        raise StateError(f"no run answers at {url}", detail=error.detail) from None
    finally:
        client.close()
    if not isinstance(told, dict):
        raise StateError(f"no run answers at {url}")
    return told
