"""A system behind an HTTP address, as `SnapshotSource`: what `top` and `shell` talk to.

Speaks the dashboard's API with Python's own client; answers that are errors are raised as the same
errors again, so that a mistake in a query is underlined here as it would be there.
"""

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from millstream.control.codec import from_json
from millstream.control.snapshot import (
    DecisionSnapshot,
    Explanation,
    Results,
    Snapshot,
)
from millstream.errors import CqlError, MillstreamError, ResourceError, StateError, UsageError

DEFAULT_URL = "http://127.0.0.1:8350/"
TOKEN = "MILLSTREAM_TOKEN"
TIMEOUT_S = 120.0


class RemoteSource:
    """Asks a dashboard or a manager at a URL."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        if "//" not in url:
            url = f"http://{url}"
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"{url!r} is no address", hint=f"such as {DEFAULT_URL}")
        self.url = url.rstrip("/")
        self._token = token if token is not None else os.environ.get(TOKEN, "")

    def snapshot(self) -> Snapshot:
        return from_json(Snapshot, self._ask("GET", "/api/snapshot"))

    def explain(self, cql: str) -> Explanation:
        return from_json(Explanation, self._ask("POST", "/api/explain", {"cql": cql}, cql))

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        body = {"cql": cql, "rows": rows_max}
        return from_json(Results, self._ask("POST", "/api/preview", body, cql))

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        body = {"name": name, "cql": cql}
        return from_json(DecisionSnapshot, self._ask("POST", "/api/queries", body, cql))

    def drop(self, name: str) -> None:
        self._ask("DELETE", f"/api/queries/{quote(name, safe='')}")

    def results(self, query: str, after: int = 0) -> Results:
        path = f"/api/queries/{quote(query, safe='')}/results?after={after}"
        return from_json(Results, self._ask("GET", path))

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, cql: str = ""
    ) -> Any:
        headers = {"X-Millstream": "1", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with _DIRECT.open(request, timeout=TIMEOUT_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise _error(error, cql) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ResourceError(
                f"nobody answers at {self.url}",
                detail=str(reason),
                hint="is it running with --ui? another address is given with --url",
            ) from None


# A proxy of the environment is not for addresses that the user names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _error(answer: urllib.error.HTTPError, cql: str) -> MillstreamError:
    try:
        told = json.loads(answer.read())
    except ValueError:
        told = {}
    message = str(told.get("error") or f"the server answered {answer.code}")
    hint = str(told.get("hint") or "")
    if "line" in told:
        return CqlError(
            message, source=cql, line=told["line"], column=told["column"],
            length=told.get("length", 1), hint=hint,
        )  # fmt: skip
    kinds: dict[int, type[MillstreamError]] = {409: StateError, 507: ResourceError}
    kind = kinds.get(answer.code, UsageError if answer.code < 500 else MillstreamError)
    return kind(message, detail=str(told.get("detail") or ""), hint=hint)
