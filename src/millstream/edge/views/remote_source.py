"""A system behind an HTTP address, as `SnapshotSource`: what `top` and `shell` talk to.

Speaks the dashboard's API; answers that are errors are raised as the same errors again, so that a
mistake in a query is underlined here as it would be there.
"""

import os
from typing import Any
from urllib.parse import quote, urlsplit

from millstream.client.http import HttpClient, json_of
from millstream.client.keyring import TOKEN
from millstream.control.snapshot.model import (
    PAUSES,
    DecisionSnapshot,
    Explanation,
    Results,
    Snapshot,
)
from millstream.core.codec import from_json
from millstream.core.errors import AwayError, ResourceError, UsageError
from millstream.edge.http.serving import CHANGE_HEADER

DEFAULT_URL = "http://127.0.0.1:8350/"
TIMEOUT_S = 120.0


class RemoteSource:
    """Asks a dashboard or a manager at a URL."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        if "//" not in url:
            url = f"http://{url}"
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"{url!r} is not an address", hint=f"such as {DEFAULT_URL}")
        self.url = url.rstrip("/")
        given = token if token is not None else os.environ.get(TOKEN)
        headers = {CHANGE_HEADER: "1"}
        self._client = HttpClient(given, answer_s=TIMEOUT_S, headers=headers, kept=0)

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

    def act(self, action: str, name: str, to: str = "") -> str:
        path = "/api/pauses" if action in PAUSES else "/api/actions"
        body = {"action": action, "name": name, "to": to}
        return str(self._ask("POST", path, body)["done"])

    def restart(self, name: str) -> None:
        self._ask("POST", f"/api/queries/{quote(name, safe='')}/restart", {})

    def results(self, query: str, after: int = 0) -> Results:
        path = f"/api/queries/{quote(query, safe='')}/results?after={after}"
        return from_json(Results, self._ask("GET", path))

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, cql: str = ""
    ) -> Any:
        try:
            return json_of(self._client.ask(method, self.url + path, body, cql=cql))
        except AwayError as error:
            raise ResourceError(
                f"no server answers at {self.url}",
                detail=error.detail,
                hint="is it running with --ui? another address is given with --url",
            ) from None
