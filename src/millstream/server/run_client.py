"""Asks the endpoint of a run about its goals, and changes them."""

from collections.abc import Mapping
from typing import Any

import httpx

from millstream.client.addresses import UNREACHABLE
from millstream.errors import StateError, UsageError

SECONDS_MAX = 30.0


def run_quality(url: str, token: str | None) -> dict[str, Any]:
    """How the goals of a run stand."""
    return _asked("GET", url, token)


def change_quality(url: str, token: str | None, wish: Mapping[str, Any]) -> dict[str, Any]:
    """Changes goals; gives how all of them stand."""
    return _asked("PUT", url, token, wish)


def _asked(
    method: str, url: str, token: str | None, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.request(
            method, f"{url.rstrip('/')}/qos", json=body, headers=headers, timeout=SECONDS_MAX
        )
        told = answer.json()
    except (*UNREACHABLE, ValueError) as error:
        raise StateError(f"no run answers at {url}", detail=str(error)) from None
    if not isinstance(told, dict):
        raise StateError(f"no run answers at {url}")
    if answer.is_success:
        return told
    if isinstance(told.get("error"), dict):  # a manager's way
        told = {**told["error"], "error": told["error"].get("message")}
    message = str(told.get("error") or told.get("detail") or f"status {answer.status_code}")
    raise UsageError(message, detail=str(told.get("detail", "")), hint=str(told.get("hint", "")))
