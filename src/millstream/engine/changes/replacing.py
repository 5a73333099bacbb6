"""A query that takes the place of another under its name: when it may, and when it does.

The new one is registered beside the old one, with its start, under a name of its own; operators
that both need are the same ones, the others read what is still there. When it has caught up, both
are stopped at the same place (`fencing`); once neither has anything left to do before it, one
transaction puts the new one in the old one's place (`switching`).

A query that has failed or rests does not move: the new one stops where it stands, and so goes on
with the very rows that the old one has not taken. A crash at any moment leaves either the old one,
and the wish to replace it, or the new one.
"""

import time
from collections.abc import Collection

from millstream.control.protocol.commands import Host
from millstream.core.errors import UsageError
from millstream.engine.changes.births import pasts_of
from millstream.engine.changes.bridging import bridge
from millstream.engine.changes.fencing import Fence
from millstream.engine.changes.flow import ChangingFlow
from millstream.engine.changes.history import note_history
from millstream.engine.changes.switching import drop_formers, put_in_place, tidy
from millstream.engine.ports import CompiledQuery
from millstream.engine.query import Query, alone_of, replaced_by
from millstream.language.plan.nodes import Plan, sources_of
from millstream.language.share.dataflow import base_stream
from millstream.language.share.matching import MATCHINGS
from millstream.store import faults
from millstream.store.consumers import Consumer
from millstream.store.delivery import ResumingSink
from millstream.store.reach import SELF_READING
from millstream.store.sinks.result_line import formers_of

ENDING = ".next"  # of the name that a query has until it takes another's place
PIECE = "replace "  # how the name of the piece of work begins
LOOK_S = 0.02  # between two looks at how far those are that wait
TIDY_S = 1.0


class Replacements:
    """The queries of one engine that are being replaced."""

    def __init__(self, engine: ChangingFlow) -> None:
        self._engine, self._ledger = engine, engine.ledger
        self._waiting: dict[str, Fence] = {}  # by the name of the old query
        self._next_look = self._next_tidy = 0.0

    @property
    def waits(self) -> bool:
        """Whether somebody will take another's place, or is given up, without anything coming from
        outside."""
        queries = self._engine.queries
        found = (queries.get(fence.new) for fence in list(self._waiting.values()))
        return any(new is not None and new.state in ("running", "failed") for new in found)

    def candidate_of(self, name: str) -> str:
        """The query that will take this one's place; empty where none will."""
        known = self._waiting.get(name)
        return known.new if known else ""

    def is_candidate(self, name: str) -> bool:
        """Whether a name is that of a query which will take another's place."""
        query = name.removesuffix(ENDING)
        return query != name and self._ledger.meta(replaced_by(query)) is not None

    def wanted_text(self, name: str) -> str:
        """The text that a query of the ledger has, or is about to have."""
        row = self._ledger.query(name)
        return self._ledger.meta(replaced_by(name)) or ("" if row is None else str(row["cql"]))

    # -- the wish -------------------------------------------------------------------------------

    def begin(self, name: str, cql: str) -> None:
        """A query shall go on with another text."""
        engine = self._engine
        with engine.lock:
            old = engine.queries[name]
            compiled = engine.hosting.compile(cql, old.start, name)
            self.check(old, compiled)
            engine.check_new(compiled)
            self.abandon(name)
            if compiled.stream == old.stream:
                self._reword(old, cql, compiled.plan)
                return
            with self._ledger.transaction() as ledger:
                ledger.set_meta(replaced_by(name), cql)
            faults.reach("replace.noted")
            self._take_up(name, cql)
        faults.reach("replace.begun")

    def check(self, old: Query, new: CompiledQuery) -> None:
        """Refuses what cannot go on as the same result."""
        engine = self._engine
        if not MATCHINGS.get(engine.settings.sharing).equal:
            raise UsageError(
                f"query {old.name} cannot be replaced where queries share nothing",
                hint='with sharing = "subsuming" or "exact" they can; or drop it first',
            )
        alone = engine.ledger.meta(alone_of(old.name)) is not None
        if pasts_of(old.plan) or pasts_of(new.plan) or alone:
            raise UsageError(
                f"query {old.name} cannot be replaced: a query begins with history once",
                hint="drop it and register it again, or register the new text beside it and drop "
                "it then",
            )
        if f"{old.name}{ENDING}" in engine.queries and old.name not in self._waiting:
            raise UsageError(f"there is a query {old.name}{ENDING}", hint="drop that one first")
        if old.plan.relation != new.plan.relation:
            kinds = ("a stream of rows", "a table that changes")
            raise UsageError(
                f"query {old.name} gives {kinds[old.plan.relation]}, and its new text "
                f"{kinds[new.plan.relation]}",
                hint="drop it first, or choose another name",
            )
        self._refuse_unread(old, new)
        into_table = any(
            d.result.query == old.name and isinstance(d.sink, ResumingSink)
            for d in engine.deliveries
        )
        if old.plan.columns != new.plan.columns and (old.plan.relation or into_table):
            raise UsageError(
                f"the new text of query {old.name} gives other columns",
                detail=f"{_told(new.plan)} instead of {_told(old.plan)}",
                hint="a table keeps its columns: names, types and order; "
                "drop the query first, or choose another name",
            )

    def _refuse_unread(self, old: Query, new: CompiledQuery) -> None:
        """What it gave before and somebody has yet to read must not be mixed with new rows."""
        unread = {f.stream for f in formers_of(self._ledger, old.name)} - {*self._engine.operators}
        if unread.intersection(o.id for o in new.operators):
            raise UsageError(
                f"query {old.name} has had this text before, and rows of then are not taken yet",
                hint="try again when its reader has caught up",
            )

    def _reword(self, old: Query, cql: str, plan: Plan) -> None:
        """Another text that means the same: nothing moves."""
        with self._ledger.transaction() as ledger:
            ledger.change_query(old.name, cql, old.stream)
        old.cql, old.plan = cql, plan

    def take_up(self, name: str) -> None:
        """Goes on with a replacement that an earlier process has begun."""
        cql = self._ledger.meta(replaced_by(name))
        if cql is None or name in self._waiting:
            return
        try:
            self._take_up(name, cql)
        except UsageError as error:  # a stream or function that it needs is declared no more
            self._give_up(name, error.message)

    def _take_up(self, name: str, cql: str) -> None:
        engine, old = self._engine, self._engine.queries[name]
        candidate = f"{name}{ENDING}"
        with engine.lock:
            compiled = engine.hosting.compile(cql, old.start, name)
            operators = tuple(o.id for o in compiled.operators)
            fresh = self._ledger.query(candidate) is None
            engine.hosting.host(Host(candidate, cql, old.start, operators))
            fence = self._waiting[name] = Fence(engine, name, candidate)
            if old.state != "running":
                fence.set_standing()
            with self._ledger.transaction() as ledger:
                if compiled.plan.relation and compiled.operators[-1].kind not in SELF_READING:
                    engine.streams.hold(Consumer("table", candidate), compiled.stream)
                if fresh:
                    sources = sources_of(compiled.plan.root)
                    note_history(ledger, candidate, [base_stream(s.stream) for s in sources])

    def abandon(self, name: str) -> None:
        """A query stays what it is."""
        engine = self._engine
        with engine.lock:
            fence = self._waiting.pop(name, None)
            if fence is not None:
                fence.lift()
                new = engine.queries[fence.new]
                engine.hosting.unhost(new.name, new.operators)
                engine.histories.forget(new.name)
            with self._ledger.transaction() as ledger:
                ledger.drop_meta(replaced_by(name))
                ledger.drop_consumer(Consumer("table", f"{name}{ENDING}"))

    def _give_up(self, name: str, why: str) -> None:
        self.abandon(name)
        self._engine.notice(f"query {name} is not replaced and stays as it was: {why}")

    def forget(self, name: str) -> None:
        """A query is being dropped, with what its result was made of before."""
        self.abandon(name)
        drop_formers(self._engine, name)

    # -- the way there --------------------------------------------------------------------------

    def ready(self, busy: Collection[str]) -> tuple[str, frozenset[str]] | None:
        """A query whose place can be taken now, and the operators that must not move meanwhile
        (under the engine's lock)."""
        now = time.monotonic()
        if now >= self._next_tidy:
            self._next_tidy = now + TIDY_S
            tidy(self._engine)
        if not self._waiting or now < self._next_look:
            return None
        self._next_look = now + LOOK_S
        for name, fence in list(self._waiting.items()):
            if self._aligned(name, fence, busy):
                return f"{PIECE}{name}", fence.operators
        return None

    def _aligned(self, name: str, fence: Fence, busy: Collection[str]) -> bool:
        """Whether both queries have made all they can of the same rows; brings them nearer to that
        where they have not."""
        old, new = fence.queries
        if new.state == "failed":
            self._give_up(name, f"with its new text it fails: {new.reason}")
            return False
        if old.state != "running":
            if not fence.standing:
                self._stand_still(name, fence)
                return False
        else:
            if fence.standing:
                fence.lift()
            if fence.standing is None and not fence.near():
                return False
            if fence.standing is None or fence.overrun():
                fence.set_running()
        return fence.reached(busy)

    def _stand_still(self, name: str, fence: Fence) -> None:
        """The old one has come to stand since; where the new one is further, it begins again."""
        fence.set_standing()
        if fence.overrun():
            cql = self._engine.queries[fence.new].cql
            self.abandon(name)
            with self._ledger.transaction() as ledger:
                ledger.set_meta(replaced_by(name), cql)
            self._take_up(name, cql)

    def switch(self, piece: str) -> None:
        """Puts the new query in the old one's place; the operators of both rest meanwhile."""
        name = piece.removeprefix(PIECE)
        engine, fence = self._engine, self._waiting.get(name)
        if fence is None:
            return
        old, new = fence.queries
        between = bridge(engine, old, new) if old.plan.relation else None
        faults.reach("replace.written")
        with engine.lock:
            if self._waiting.get(name) is not fence:
                return  # somebody has dropped it, or wants yet another text
            gone = put_in_place(engine, old, new, between)
            fence.lift()
            del self._waiting[name]
        faults.reach("replace.committed")
        engine.streams.remove(gone)
        engine.notice(f"query {name} continues with its new text")


def _told(plan: Plan) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in plan.columns)
