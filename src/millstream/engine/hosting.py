"""How a query comes to life on a processor, and how it ends there.

A processor compiles a query's text and runs those of its operators that it hosts: some, or, where
it is alone, all of them. The others' streams are copies, pulled under the same numbers, so that
everything else in the engine works as if it were alone. All of it lies in the ledger: `restore`
needs nothing else. Never decides what is hosted where.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from millstream.control.protocol.commands import Host
from millstream.core.errors import UsageError
from millstream.engine.dataflow import Dataflow
from millstream.engine.ports import CompiledQuery, DataPlane
from millstream.engine.query import (
    Query,
    alone_of,
    culprits_of,
    deaths_of,
    given_up_of,
    history_of,
    pauses,
    pauses_of,
    restarted,
    restarted_of,
    restarts_of,
    state_in_force,
)
from millstream.engine.sources.entrances import Entrances
from millstream.engine.steps.runner import StepRunner
from millstream.engine.steps.warming import warm_up
from millstream.engine.steps.ways import Ways
from millstream.language.plan.windows import BEGINNING
from millstream.language.share.dataflow import Operator, state_stream
from millstream.language.share.matching import MATCHINGS
from millstream.store.consumers import subscriber
from millstream.store.delivery import identity_of
from millstream.store.moves.ownership import Ownership
from millstream.store.moves.transfer import RefusedError

COMPILED_KEPT_MAX = 10_000
REASON_MAX = 2_000  # characters of why a query has failed that are told on
POINTERS_KEPT = 100  # to later owners of a stream: who was away for long may still ask


class Hosting(Entrances):
    """Declarations and hosted operators of one engine."""

    def __init__(
        self,
        flow: Dataflow,
        plane: DataPlane,
        runner: StepRunner,
        ownership: Ownership,
        arrived: Callable[[str], None],
    ) -> None:
        super().__init__(flow, plane, ownership, arrived)
        self._runner, self.ways = runner, Ways(self.ledger)
        self._compiled: dict[tuple[str, int, str], CompiledQuery] = {}
        self._catalog = flow.catalog  # that they were compiled with

    def restore(self) -> None:
        """Everything again as the ledger has it. A text that means nothing any more (a function
        that is gone, or may not be called by now) stops its own query."""
        self.restore_streams()
        for text in self.texts().values():
            try:
                self.run(text)
            except UsageError as error:
                reason = f"its text cannot be read any more: {error.message}"
                with self.ledger.transaction():
                    self.ledger.set_query_state(text.query, "failed", reason)
                self.engine.notice(f"error: query {text.query} has failed: {reason}")

    # -- operators ------------------------------------------------------------------------------

    def compile(self, cql: str, start: int | None, query: str = "") -> CompiledQuery:
        """A query's plan and operators, producers first; ids are the same everywhere.

        `query` is its name: where queries share nothing, no operator is another's as well.
        """
        shared = MATCHINGS.get(self.engine.settings.sharing).equal
        shared = shared and (not query or self.ledger.meta(alone_of(query)) is None)
        key = (cql, BEGINNING if start is None else start, "" if shared else query)
        with self.engine.lock:
            if self._catalog is not self.engine.catalog or len(self._compiled) > COMPILED_KEPT_MAX:
                self._compiled.clear()
                self._catalog = self.engine.catalog
            if key not in self._compiled:
                compiler = self._plane.compiler
                with self.unanswered.asking(cql, lambda: self._runs(cql)):
                    self._compiled[key] = compiler.compile(cql, self._catalog, key[1], key[2])
            return self._compiled[key]

    def _runs(self, cql: str) -> bool:
        return any(cql == row["cql"] for row in self.ledger.queries())

    def _compile(self, text: Host) -> CompiledQuery:
        return self.compile(text.cql, text.start, text.query)

    def chosen(self, text: Host) -> tuple[Operator, ...]:
        """The operators that a text means."""
        known = self.meant(text)
        missing = [o for o in text.operators if o not in known]
        if missing:
            raise UsageError(
                f"query {text.query} has no operator {missing[0]}",
                detail=f"its operators are {', '.join(known)}",
            )
        return tuple(known[o] for o in known if o in text.operators)

    def meant(self, text: Host) -> dict[str, Operator]:
        """All operators of a text by id, producers first, those here by the way they were told."""
        return self.ways.meant(self._compile(text), text)

    def install(self, text: Host) -> None:
        """Makes the columns of all the query's streams known (inside a transaction)."""
        compiled = self._compile(text)
        for operator in self.meant(text).values():
            self._runner.install(operator)
        if self.ledger.query(text.query) is None:
            self.ledger.add_query(text.query, text.cql, text.start, compiled.stream)
            if text.failed:  # it comes from elsewhere
                self.ledger.set_query_state(text.query, "failed", text.failed)
        if text.pauses > pauses(self.ledger, text.query):
            self.ledger.set_meta(pauses_of(text.query), str(text.pauses))
            self.settle(text.query)

    def settle(self, query: str) -> None:
        """Lets a query rest, or go on, as was last told (inside a transaction)."""
        row = self.ledger.query(query)
        if row is not None:
            known = row["state"], row["reason"]
            wanted = state_in_force(self.ledger, query, *known)
            if wanted != known:
                self.ledger.set_query_state(query, *wanted)

    def host(self, text: Host) -> None:
        """Runs operators of a query here, from the first rows that their inputs still have."""
        with self.engine.lock:
            operators = self.chosen(text)
            self._check_text(text)
            self._check_inputs(operators)
            with self.ledger.transaction():
                if self._keeps_place(text.query):
                    self.install(text)
                    for operator in operators:
                        for stream in operator.inputs:
                            self.engine.streams.hold(operator.id, stream)
                        self._own(operator.id)
                self.register(text)
                self._note_restart(text)
            self.run(text)

    def _note_restart(self, text: Host) -> None:
        """Lets a failed query go on that was restarted since (inside a transaction)."""
        if text.restarts <= restarted(self.ledger, text.query):
            return
        self.ledger.set_meta(restarted_of(text.query), str(text.restarts))
        row = self.ledger.query(text.query)
        if row is not None and row["state"] == "failed" and self._keeps_place(text.query):
            self.ledger.set_query_state(text.query, "running")
            self.ledger.drop_meta(culprits_of(text.query))
            self.settle(text.query)

    def _keeps_place(self, query: str) -> bool:
        """Whether a query has, or will have, operators here: all but those given up for good.

        One that failed under a version that gave everybody up has no cursors left.
        """
        if self.ledger.meta(given_up_of(query)) is not None:
            return False
        row = self.ledger.query(query)
        if row is None or row["state"] != "failed":
            return True
        return all(self.ledger.cursors(o) for o in self.ownership.hosted_for(query))

    def register(self, text: Host) -> None:
        """Notes which operators of a query are here (inside a transaction)."""
        compiled = self._compile(text)
        for operator in text.operators:
            self.ownership.host(text.query, operator)
        self.ways.keep(text.ways)
        stream, name = compiled.stream, subscriber(text.query)
        if text.result:
            self.ownership.keep_result(text.query)
            if name not in self.ledger.consumers(stream):
                self.engine.streams.hold(name, stream)

    def run(self, text: Host) -> None:
        """Lets the loop see the operators of a query that the ledger says are here."""
        compiled = self._compile(text)
        hosted = self.ownership.hosted_for(text.query)
        present = Host(text.query, text.cql, text.start, hosted, ways=text.ways)
        here = tuple(o for o in self.meant(present) if o in hosted)
        row = self.ledger.query(text.query)
        assert row is not None
        query = Query(text.query, text.cql, compiled.plan, text.start, compiled.stream, here)
        query.state, query.reason = row["state"], row["reason"]
        query.culprits = json.loads(self.ledger.meta(culprits_of(text.query)) or "[]")
        query.given_up = not self._keeps_place(text.query)
        with self.engine.lock:
            if query.kept:
                for operator in self.chosen(replace(present, operators=here)):
                    self.engine.operators.setdefault(operator.id, operator)
            self.engine.queries[text.query] = query
            self.engine.pause_operators()

    def _check_text(self, text: Host) -> None:
        row = self.ledger.query(text.query)
        if row is not None and (row["cql"], row["start"]) != (text.cql, text.start):
            raise UsageError(
                f"query {text.query} is hosted here with another text or start",
                detail=row["cql"],
                hint="drop it first, or choose another name",
            )

    def _check_inputs(self, operators: Sequence[Operator]) -> None:
        here = {o.id for o in operators}
        for operator in operators:
            if operator.id in self.engine.operators:
                continue
            for stream in operator.inputs:
                if stream not in here and self.left_behind(stream):
                    raise _waiting_for_others(stream)

    def left_behind(self, stream: str) -> bool:
        """Whether all that is here of a stream is what others have yet to fetch from the time when
        it was made here.

        A new reader must not begin with that: it is as much as the slowest of them lacks, and not
        what the present owner has kept.
        """
        return (
            self.ownership.owned(stream) is None
            and bool(self.ownership.handed(stream))
            and self.ownership.copy(stream) is None
            and bool(self.ledger.segments(stream))
            and not any(stream in o.inputs for o in list(self.engine.operators.values()))
        )

    def may_copy(self, stream: str) -> None:
        """Refuses a copy of a stream for as long as others fetch what was left behind of it."""
        if self.left_behind(stream):
            raise _waiting_for_others(stream)

    def unhost(self, query: str, operators: Sequence[str]) -> None:
        """A query uses operators here no more; those that no query uses are forgotten."""
        gone: list[str] = []
        with self.engine.lock:
            with self.ledger.transaction():
                mine = self.ownership.hosted_for(query)
                leaving = [o for o in operators if o in mine]
                for operator in leaving:
                    self.ownership.unhost(query, operator)
                gone += self.forget_unused(query, leaving)
                arriving = self.ownership.arriving()
                for operator in (o for o in operators if o not in mine):
                    former = bool(self.ownership.handed(operator)) and operator not in arriving
                    used = self.ownership.users(operator) or self.ownership.owned(operator)
                    if former and not used:
                        gone += self._forget_output(operator)
                self.leave(query)
                self.engine.streams.layouts.forget_unused()
            self.refresh(query)
        self.remove(gone)

    def forget_unused(
        self, query: str, leaving: Sequence[str], kept: Collection[str] = ()
    ) -> list[str]:
        """Forgets those of a query's operators that no other uses, and what they made but for
        results that somebody has (inside a transaction); gives files to go."""
        gone: list[str] = []
        results = self._results_of_others(query)
        for operator in self._unused(query, leaving):
            gone += self.drop_operator(operator)
            if operator not in results and operator not in kept:
                self.ownership.disown(operator)
                gone += self._forget_output(operator)
        return gone

    def stop(self, query: Query) -> None:
        """A query that has failed for good runs no more; it stays here, and so do its results."""
        gone: list[str] = []
        with self.engine.lock:
            with self.ledger.transaction() as ledger:
                query.given_up = True
                ledger.set_meta(given_up_of(query.name), "1")
                kept = {query.stream, *self._results_of_others(query.name)}
                for operator in self._unused(query.name, query.operators):
                    gone += self.drop_operator(operator)
                    if operator not in kept:
                        gone += ledger.drop_stream(operator)
                self.engine.streams.layouts.forget_unused()
            self.engine.pause_operators()
        self.remove(gone)

    def _unused(self, query: str, operators: Sequence[str]) -> list[str]:
        """Operators that no other query keeps: the loop sees them no more."""
        others = [q for q in self.engine.queries.values() if q.name != query and q.kept]
        used = {o for other in others for o in other.operators}
        unused = [o for o in operators if o not in used]
        for operator in unused:
            self.engine.operators.pop(operator, None)
        return unused

    def _results_of_others(self, query: str) -> set[str]:
        """Results that other queries have here: those of failed ones stay."""
        others = [q for q in self.engine.queries.values() if q.name != query]
        return {q.stream for q in others if q.stream in q.operators}

    def _forget_output(self, operator: str) -> list[str]:
        """Forgets what an operator made here and where it went (inside a transaction)."""
        self.ownership.forget_handed(operator)
        if self.ownership.copy(operator) is not None:
            return []
        for consumer in self.ledger.consumers(operator):
            self.ledger.drop_cursor(consumer, operator)
        return list(self.ledger.drop_stream(operator))

    def drop_operator(self, operator: str) -> list[str]:
        """Forgets an operator's cursors and states (inside a transaction); gives files to go."""
        gone: list[str] = []
        self.ledger.drop_consumer(operator)
        self.ledger.drop_meta(deaths_of(operator))
        self.ways.forget(operator)
        part = 0
        while self.ledger.stream(state_stream(operator, part)) is not None:
            gone += self.ledger.drop_stream(state_stream(operator, part))
            part += 1
        return gone

    def leave(self, query: str) -> None:
        """Forgets a query of which nothing is left here (inside a transaction)."""
        if self.ownership.hosted_for(query):
            return
        self.ledger.drop_query(query)
        self.ledger.drop_meta(culprits_of(query))
        self.ledger.drop_meta(given_up_of(query))
        self.ledger.drop_meta(restarts_of(query))
        self.ledger.drop_meta(restarted_of(query))
        self.ledger.drop_meta(pauses_of(query))
        self.ledger.drop_meta(identity_of(query))
        self.ledger.drop_meta(history_of(query))
        self.ledger.drop_meta(alone_of(query))
        self.ownership.drop_result(query)
        self.ledger.drop_consumer(subscriber(query))

    def refresh(self, query: str) -> None:
        """Brings what the loop sees of a query in line with the ledger."""
        known = self.engine.queries.get(query)
        here = self.ownership.hosted_for(query)
        with self.engine.lock:
            if known is not None and here:
                known.operators = tuple(o for o in known.operators if o in here)
            else:
                self.engine.queries.pop(query, None)
            self.engine.pause_operators()

    def tidy(self, stream: str) -> None:
        """Forgets a stream that was handed over, or copied for an operator that has left, once
        nobody reads it from this ledger any more."""
        gone: list[str] = []
        with self.engine.lock, self.ledger.transaction():
            if self.ownership.owned(stream) is None and self.unread(stream):
                self.ownership.drop_copy(stream)
                gone = self.engine.streams.reset(stream)
            self.ownership.forget_old_pointers(stream, POINTERS_KEPT)
        self.remove(gone)

    def unread(self, stream: str) -> bool:
        """Whether nobody, here or elsewhere, reads a stream from this ledger."""
        return not self.ledger.consumers(stream)

    def texts(self) -> dict[str, Host]:
        """What runs here, or rests after a failure, by query."""
        rows = {row["name"]: row for row in self.ledger.queries()}
        kept = self.ownership.kept_results()
        return {
            query: Host(
                query,
                row["cql"],
                row["start"],
                operators,
                query in kept,
                restarted(self.ledger, query),
                row["reason"][:REASON_MAX] if row["state"] == "failed" else "",
                self.ways.here(operators),
                pauses(self.ledger, query),
            )
            for query, operators in self.ownership.hosted().items()
            for row in (rows[query],)
        }  # fmt: skip

    def warm_up(self, operator: Operator, rounds: int) -> str:
        """Tries an operator out on what lies here; gives what went wrong, if anything did."""
        return warm_up(self._runner, operator, rounds)

    def remove(self, files: Sequence[str]) -> None:
        self.engine.streams.remove(files)


def _waiting_for_others(stream: str) -> RefusedError:
    return RefusedError(
        "busy",
        f"what was made here of stream {stream} is still being fetched by others",
        hint="ask again when they have it",
    )
