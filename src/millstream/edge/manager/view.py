"""A cluster as a person sees it: implements `SnapshotSource` for a manager.

Figures come from the manager's own state; whoever changes something asks the manager as any other
client does, so that there is one way in. Plans are asked of a processor, opinions on admission of
the placer in use, rows of the processor that owns a result; nothing is acknowledged.
"""

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from millstream.client.manager_client import ManagerClient
from millstream.control.admission.rules import Placed, Refused
from millstream.control.manager.decisions import place_query
from millstream.control.manager.state import ManagerState, OperatorRecord, Query
from millstream.control.protocol.commands import Compile
from millstream.control.protocol.envelope import PATH, Envelope, read_replies
from millstream.control.protocol.replies import Compiled, Refusal
from millstream.control.snapshot.alarms import AlarmBook
from millstream.control.snapshot.model import (
    Admission,
    DecisionSnapshot,
    Explanation,
    PlannedOperator,
    Results,
    Snapshot,
)
from millstream.control.snapshot.of_cluster import laid_over
from millstream.control.snapshot.of_manager import snapshot_of
from millstream.core.errors import CqlError, MillstreamError, ResourceError, StateError, UsageError
from millstream.edge.manager import answers
from millstream.edge.manager.processor_poll import ProcessorPoll
from millstream.edge.views.recent import LatestRows

SUBMIT_S = 60.0
ACTIONS = ("pause", "resume", "drain", "undrain", "remove_lost", "move")
PREVIEW_S = 20.0
LOOK_S = 0.25
ROWS_A_LOOK = 500
SEGMENTS_BACK = 20  # before the head of a result, when somebody begins to look at it
PLACE = re.compile(r"at line (\d+), column (\d+)")


class ManagerView:
    """What a manager knows and does, for people."""

    def __init__(
        self,
        state: Callable[[], ManagerState],
        client: ManagerClient,
        *,
        title: str = "cluster",
        started: float = 0.0,
        poll: ProcessorPoll | None = None,
    ) -> None:
        self._state, self._client, self._poll = state, client, poll
        self._title, self._started = title, started or time.time()
        self._latest, self._book = LatestRows(), AlarmBook()
        self._next: dict[str, int] = {}  # of each result that somebody looks at
        self._lock = threading.Lock()

    def snapshot(self) -> Snapshot:
        whole = snapshot_of(self._state(), title=self._title, started=self._started)
        seen = laid_over(whole, self._poll.latest()) if self._poll is not None else whole
        overview = replace(seen.overview, actions=ACTIONS)
        return self._book.dated(replace(seen, overview=overview))

    # -- questions ------------------------------------------------------------------------------

    def explain(self, cql: str) -> Explanation:
        state = self._state()
        compiled = self._compiled(state, cql)
        users: dict[str, list[str]] = {}
        for query in state.queries.values():
            for operator in query.operators:
                users.setdefault(operator, []).append(query.name)
        needed = tuple(
            PlannedOperator(
                o.id, o.kind, o.label, tuple(sorted(users.get(o.id, ()))), o.id in state.operators
            )
            for o in compiled.operators
        )
        return Explanation(
            compiled.plan,
            compiled.relation,
            compiled.columns,
            needed,
            (),
            opinion(state, cql, compiled),
        )

    def _compiled(self, state: ManagerState, cql: str) -> Compiled:
        """Asks a processor that answers; a mistake in the text is raised with its place."""
        up = [n for n, live in state.live.items() if live.state == "up" and n in state.processors]
        if not up:
            raise StateError("no processor answers now", hint="start one: millstream processor")
        processor = state.processors[min(up)]
        envelope = Envelope(state.epoch, 0, processor.id, (Compile(cql),))
        url = f"{processor.url.rstrip('/')}{PATH}"
        answer = self._client.ask("POST", url, envelope, wait_s=SUBMIT_S).json()
        (reply,) = read_replies(envelope, answer)
        if isinstance(reply, Refusal):
            raise mistake(cql, reply.message, reply.detail, reply.hint)
        assert isinstance(reply, Compiled)
        return reply

    def preview(self, cql: str, rows_max: int = 20) -> Results:
        """Registers the query for a moment, takes what comes, and drops it."""
        name = f"preview_{uuid.uuid4().hex[:8]}"
        self._submit(name, cql)
        try:
            end = time.monotonic() + PREVIEW_S
            found = self.results(name)
            while len(found.rows) < rows_max and time.monotonic() < end:
                time.sleep(LOOK_S)
                found = self.results(name)
        finally:
            with contextlib.suppress(MillstreamError):
                self._client.drop(name)
            self._forget(name)
        kept = found.rows[-rows_max:]
        return Results(
            found.columns,
            kept,
            found.last,
            max(0, found.last - len(kept)),
            "over the rows that are still there, in the cluster itself",
        )

    # -- changes --------------------------------------------------------------------------------

    def register(self, name: str, cql: str) -> DecisionSnapshot:
        before = self._state().counter
        try:
            told = self._submit(name, cql)
        except StateError as error:  # admission has refused it
            return DecisionSnapshot(
                before, time.time(), "refusal", error.message,
                error.detail or error.hint, "query", name,
            )  # fmt: skip
        for decision in reversed(self._state().decisions):
            if decision.subject == name and decision.kind in ("admission", "refusal"):
                return DecisionSnapshot(
                    decision.number, decision.at_s, decision.kind, decision.sentence,
                    decision.reason, decision.subject_kind, decision.subject, decision.subjects,
                )  # fmt: skip
        admission: Mapping[str, Any] = told.get("admission") or {}
        return DecisionSnapshot(
            before, time.time(), "admission", f"query {name} is {told.get('state', 'submitted')}",
            str(admission.get("sentence", "")), "query", name,
        )  # fmt: skip

    def _submit(self, name: str, cql: str) -> dict[str, Any]:
        try:
            return self._client.submit(name, cql, from_beginning=True, wait_s=SUBMIT_S)
        except UsageError as error:
            raise mistake(cql, error.message, error.detail, error.hint) from None

    def restart(self, name: str) -> None:
        self._client.restart(name, SUBMIT_S)

    def settings(self) -> Mapping[str, Any]:
        """How the manager decides."""
        return answers.settings(self._state())

    def change(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Other settings from now on; gives all of them."""
        return self._client.change(settings)

    def drop(self, name: str) -> None:
        self._client.drop(name, SUBMIT_S)
        self._forget(name)

    def act(self, action: str, name: str, to: str = "") -> str:
        match action:
            case "pause" | "resume":
                resting = action == "pause"
                self._client.pause(name, wanted=resting, wait_s=SUBMIT_S)
                return f"query {name} {'is paused' if resting else 'continues'}"
            case "drain" | "undrain":
                moves = self._client.drain(name, back=action == "undrain")["moves"]
                if action == "undrain":
                    return f"processor {name} takes part again"
                return f"processor {name} gives away what it has: {len(moves)} moves begin"
            case "remove_lost":
                gone = self._client.remove_processor(name, lost=True)
                return f"processor {name} is given up; it had {len(gone['queries'])} queries"
            case "move":
                moves = self._client.move(name, to)["moves"]
                return f"{len(moves)} moves to {to} begin" if moves else f"it is at {to} already"
        raise UsageError(f"a cluster cannot {action}", hint="drop the query, or move it")

    def _forget(self, name: str) -> None:
        with self._lock:
            self._next.pop(name, None)
            self._latest.forget(name)

    # -- rows -----------------------------------------------------------------------------------

    def results(self, query: str, after: int = 0) -> Results:
        """The latest rows, taken from wherever the result is; they stay for their reader."""
        state = self._state()
        known = state.queries.get(query)
        if known is None:
            raise UsageError(f"there is no query {query}")
        if known.result:
            with self._lock:
                self._take(state, known)
        return self._latest.after(query, after)

    def _take(self, state: ManagerState, query: Query) -> None:
        record = state.operators.get(query.result)
        owner = state.processors.get(record.processor) if record is not None else None
        if owner is None:
            return
        if query.name not in self._next:
            figures = state.statistics.streams.get(query.result)
            head = int(figures.values.get("next", 1)) if figures is not None else 1
            self._next[query.name] = max(1, head - SEGMENTS_BACK)
        url = f"{owner.url.rstrip('/')}/queries/{quote(query.name, safe='')}/rows"
        asked = {"after": self._next[query.name], "limit": ROWS_A_LOOK}
        try:
            page = self._client.ask("GET", url, params=asked).json()
        except MillstreamError:
            return  # it is moving, or its processor is away: the next look asks again
        if page.get("moved") is None or page["rows"]:
            self._next[query.name] = int(page["next"])
        rows = [tuple(row.values()) for row in page["rows"]]
        if rows:
            self._latest.add(query.name, tuple(page["rows"][0]), rows)


def mistake(cql: str, message: str, detail: str, hint: str) -> MillstreamError:
    """An error as it came over the wire; one in the text knows its place again.

    >>> told = "  at line 1, column 8\\n  1 | SELECT xy\\n    |        ^^"
    >>> error = mistake("SELECT xy", "unknown column xy", told, "")
    >>> error.line, error.column, error.length
    (1, 8, 2)
    """
    found = PLACE.search(detail)
    if found is None:
        return UsageError(message, detail=detail, hint=hint)
    marks = re.search(r"\^+", detail)
    return CqlError(
        message,
        source=cql,
        line=int(found[1]),
        column=int(found[2]),
        length=len(marks[0]) if marks else 1,
        hint=hint,
    )


def opinion(state: ManagerState, cql: str, compiled: Compiled) -> Admission:
    """What the placer in use would say to a query; it decides nothing yet."""
    operators = {
        o.id: state.operators.get(o.id)
        or OperatorRecord(o.id, o.kind, o.label, o.inputs, o.row_bytes, o.properties)
        for o in compiled.operators
    }
    query = Query(
        "?",
        cql,
        phase="placing",
        sources=tuple(s.removeprefix("s:") for s in compiled.sources),
        operators=tuple(operators),
        result=compiled.result,
        columns=compiled.columns,
        relation=compiled.relation,
        compiled=compiled,
    )
    try:
        known = replace(state, operators={**state.operators, **operators})
        verdict = place_query(known, query)
    except (MillstreamError, ResourceError, KeyError, ValueError) as error:
        return Admission(None, f"admission cannot decide now: {error}")
    if isinstance(verdict, Placed):
        objective = verdict.detail.get("objective")
        said = f"would be taken: {verdict.sentence}{f'; {objective}' if objective else ''}"
        return Admission(True, said)
    if isinstance(verdict, Refused):
        fits = f"; {verdict.fits}" if verdict.fits else ""
        return Admission(False, f"would be refused: {verdict.sentence}{fits}", verdict.host)
    return Admission(None, f"would wait: {verdict.sentence}")
