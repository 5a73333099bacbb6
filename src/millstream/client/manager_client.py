"""A manager over HTTP, as commands, runs and sessions ask it.

Every mistake that a manager tells comes back as the error it would be here, with its detail and
hint; a manager that does not answer is an `AwayError`. Decides nothing.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from millstream.client.http import (
    UNHEARD,
    Body,
    HttpClient,
    Response,
    checked_urls,
    json_of,
    told_error,
)
from millstream.client.keyring import TOKEN
from millstream.control.snapshot.model import Snapshot
from millstream.core.codec import from_json
from millstream.core.errors import AwayError, RefusedError, StateError, UsageError

MANAGER = "MILLSTREAM_MANAGER"
TURNOVER_S = 10.0  # in which one of several begins to lead
AGAIN_S = 0.2
Answer = dict[str, Any]


def manager_url(given: str | None) -> str:
    """The address of the manager, or several: as given, or from the environment."""
    url = given or os.environ.get(MANAGER, "")
    if not url:
        raise UsageError(
            "which manager?", hint=f"--manager URL, or set {MANAGER}; `millstream up` starts one"
        )
    parts = (one.strip() for one in url.split(","))
    whole = (one if "//" in one else f"http://{one}" for one in parts)
    return checked_urls(",".join(whole), "--manager")


class ManagerClient(HttpClient):
    """One manager, or the one of several that leads; use with `with`, or close it."""

    def __init__(self, url: str, *, token: str | None = None, verify: str | bool = True) -> None:
        super().__init__(token if token is not None else os.environ.get(TOKEN), verify)
        self._others = [one.rstrip("/") for one in url.split(",")]
        self.url = self._others.pop(0)  # who answered last

    def send(
        self, method: str, url: str, body: Body = None, *, wait_s: float = 0.0,
        params: Mapping[str, Any] | None = None, answer_s: float | None = None,
    ) -> Response:  # fmt: skip
        """Where several may lead, one is asked after the other until one does."""
        path = url.removeprefix(self.url)
        if not self._others or path == url:
            return super().send(method, url, body, wait_s=wait_s, params=params, answer_s=answer_s)
        deadline = time.monotonic() + TURNOVER_S
        while True:
            late = time.monotonic() >= deadline
            try:
                answer = super().send(
                    method, self.url + path, body, wait_s=wait_s, params=params, answer_s=answer_s
                )
                if late or not _leads_not(answer):
                    return answer
            except AwayError as error:
                if late or not (method == "GET" or isinstance(error.__cause__, UNHEARD)):
                    raise
            self._others.append(self.url)
            self.url = self._others.pop(0)
            time.sleep(AGAIN_S)

    def _get(self, path: str, **params: Any) -> Any:
        return self.get(self.url + path, **params)

    def _post(self, path: str, body: Mapping[str, Any], wait_s: float = 0.0) -> Answer:
        return dict(self.post(self.url + path, body, wait_s=wait_s))

    # -- reading --------------------------------------------------------------------------------

    def status(self) -> Answer:
        return dict(self._get("/status"))

    def alarms(self) -> list[Answer]:
        """What deserves attention, the worst first."""
        return list(self._get("/alarms"))

    def snapshot(self) -> Snapshot:
        """Everything as dashboards show it."""
        return from_json(Snapshot, self._get("/api/snapshot"))

    def placement(self) -> Answer:
        return dict(self._get("/placement"))

    def queries(self) -> list[Answer]:
        return list(self._get("/queries"))

    def query(self, name: str) -> Answer:
        return dict(self._get(f"/queries/{_part(name)}"))

    def streams(self) -> dict[str, Answer]:
        return dict(self._get("/streams"))

    def entrance(self, stream: str) -> Answer:
        """The same of one stream, from the processor where its rows enter, whatever managers there
        are in between."""
        url = self.url
        while True:
            told = dict(self.ask("GET", f"{url}/streams").json()).get(stream)
            if told is None:
                raise StateError(f"stream {stream} is not known at {url}")
            if not told["below"]:
                return dict(told)
            url = str(told["url"])

    def moves(self) -> list[Answer]:
        return list(self._get("/moves"))

    def decisions(self, after: int = 0) -> list[Answer]:
        return list(self._get("/decisions", after=after))

    def coordinators(self) -> list[Answer]:
        """The trees that the members who answer keep placed."""
        found: list[Answer] = []
        for member in self._get("/members"):
            if member["state"] == "up":
                with suppress(AwayError):
                    found += self.ask("GET", f"{member['url'].rstrip('/')}/coordinators").json()
        return found

    def scaling(self) -> Answer:
        """How many processors are wanted, and which may end."""
        return dict(self._get("/scaling"))

    def redistribution(self) -> Answer:
        return dict(self._get("/redistribution"))

    # -- changing -------------------------------------------------------------------------------

    def declare(
        self, table: Mapping[str, Any], *, processor: str = "", start: bool = False
    ) -> Answer:
        return self._post(
            "/streams", {"table": dict(table), "processor": processor, "start": start}
        )

    def start_streams(self, names: Sequence[str] = ()) -> None:
        self._post("/streams/start", {"names": list(names)})

    def forget_stream(self, name: str) -> None:
        self.ask("DELETE", f"{self.url}/streams/{_part(name)}")

    def submit(
        self, name: str, cql: str, *, from_beginning: bool = False, wait_s: float = 60.0,
        deliver_to: str = "", latency_s: float | None = None, queue: bool = False,
        dry_run: bool = False, weight: float = 1.0, replicas: int = 1, paused: bool = False,
    ) -> Answer:  # fmt: skip
        body = {
            "name": name, "cql": cql, "from_beginning": from_beginning, "wait_s": wait_s,
            "deliver_to": deliver_to, "latency_s": latency_s, "queue": queue, "dry_run": dry_run,
            "weight": weight, **({"replicas": replicas} if replicas > 1 else {}),
            **({"paused": True} if paused else {}),
        }  # fmt: skip
        return self._post("/queries", body, wait_s)

    def restart(self, name: str, wait_s: float = 0.0) -> Answer:
        """A failed query goes on where it failed."""
        return self._post(f"/queries/{_part(name)}/restart", {"wait_s": wait_s}, wait_s)

    def pause(self, name: str, *, wanted: bool = True, wait_s: float = 0.0) -> Answer:
        """A query rests, or goes on where it stood."""
        body = {"paused": wanted, "wait_s": wait_s}
        return self._post(f"/queries/{_part(name)}/pause", body, wait_s)

    def drop(self, name: str, wait_s: float = 0.0) -> Answer:
        url = f"{self.url}/queries/{_part(name)}"
        return dict(self.ask("DELETE", url, params={"wait": wait_s}, wait_s=wait_s).json())

    def move(
        self, operator: str, to: str, *, subplan: bool = False, dry_run: bool = False,
        wait_s: float = 0.0,
    ) -> Answer:  # fmt: skip
        body = {
            "operator": operator, "to": to, "subplan": subplan, "dry_run": dry_run,
            "wait_s": wait_s,
        }  # fmt: skip
        return self._post("/moves", body, wait_s)

    def place(self, query: str, *, wait_s: float = 0.0, **how: Any) -> Answer:
        """A running query placed anew by distance; `how` as the manager's endpoint takes it."""
        path = f"/queries/{_part(query)}/placement"
        return self._post(path, {**how, "wait_s": wait_s}, wait_s + 75.0)

    def replace(self, *, gain: float | None = None, dry_run: bool = False) -> Answer:
        return self._post("/replacement", {"gain": gain, "dry_run": dry_run})

    def redistribute(self) -> Answer:
        return self._post("/redistribution", {})

    def drain(self, processor: str, *, back: bool = False, wait_s: float = 0.0) -> Answer:
        path = f"/processors/{_part(processor)}/drain"
        return self._post(path, {"back": back, "wait_s": wait_s}, wait_s)

    def halt(self, processor: str, *, restart: bool = False) -> Answer:
        """Ends the process of an empty processor; with `restart` it forgets all and goes on."""
        word = "restart" if restart else "shutdown"
        return self._post(f"/processors/{_part(processor)}/{word}", {})

    def begin_again(self, processor: str) -> Answer:
        """Ends the process of an empty processor, which begins again with its home; gives the epoch
        that the home had: the next process has a higher one."""
        return self._post(f"/processors/{_part(processor)}/again", {})

    def remove_processor(self, name: str, *, lost: bool = False) -> Answer:
        """Forgets a processor that has nothing; with `lost` one that will not come back."""
        url = f"{self.url}/processors/{_part(name)}"
        return dict(self.ask("DELETE", url, params={"lost": str(lost).lower()}).json())

    def quality(self) -> Answer:
        """The goals of the cluster and of its queries."""
        return dict(self._get("/qos"))

    def set_quality(self, table: Mapping[str, Any] | None, query: str | None = None) -> Answer:
        """Goals as a job file's table has them, of a query or of all together; None forgets."""
        whose = {} if query is None else {"query": query}
        wish = {"forget": True} if table is None else dict(table)
        return dict(self.ask("PUT", f"{self.url}/qos", {**wish, **whose}).json())

    def change(self, settings: Mapping[str, Any]) -> Answer:
        return self._post("/settings", settings)


def _leads_not(answer: Response) -> bool:
    """Whether another one is to be asked; one that waits says so of itself as well."""
    if answer.status_code == 409:
        error = told_error(answer)
        return isinstance(error, RefusedError) and error.code == "superseded"
    status = answer.request.url.path.endswith("/status")
    return status and answer.is_success and bool(json_of(answer).get("superseded"))


def _part(text: str) -> str:
    return quote(text, safe="")
