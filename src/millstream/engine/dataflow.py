"""What runs on one processor: its operators and queries, the streams that enter and leave.

All modules that decide what comes next read this picture. Changed by the engine alone, under its
lock; all of it can be rebuilt from the ledger and the declarations.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from millstream.core.errors import MillstreamError
from millstream.decide.schedule.measures import OperatorStatistic, PlanStatistic
from millstream.decide.schedule.quality import Standing
from millstream.engine.ports import LiveSource
from millstream.engine.query import Query, QueryEvent
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.file_ingest import FileIngest
from millstream.engine.steps.path_times import PathTimes
from millstream.engine.steps.reports import StepReport
from millstream.engine.steps.savings import Savings
from millstream.engine.steps.shedding import Shedding
from millstream.language.cql.catalog import Catalog
from millstream.language.plan.nodes import Plan
from millstream.language.share.dataflow import Operator, compile_plan
from millstream.language.share.matching import MATCHINGS, Match, Running, match_all
from millstream.store.arrivals.appending import Appender
from millstream.store.delivery import Delivery
from millstream.store.reach import pending
from millstream.store.segments import Segment
from millstream.store.streams import Streams


class Dataflow:
    """Operators and queries over the streams of one home."""

    def __init__(self, streams: Streams, settings: EngineSettings) -> None:
        self.streams, self.settings = streams, settings
        self.home, self.ledger, self.store = streams.home, streams.ledger, streams.files
        self.lock = threading.RLock()
        self.catalog = Catalog()
        self.operators: dict[str, Operator] = {}
        self.queries: dict[str, Query] = {}
        self.appenders: dict[str, Appender] = {}
        self.ingests: dict[str, FileIngest] = {}
        self.sources: dict[str, LiveSource] = {}  # those that bring rows by themselves
        self.stopped: dict[str, MillstreamError] = {}  # streams whose source cannot go on
        self.deliveries: list[Delivery] = []
        self.paused_operators: frozenset[str] = frozenset()
        self.resting: set[str] = set()  # operators that are about to be handed over
        # by operator and stream: the number that its steps stop before, for now
        self.fences: dict[str, dict[str, int]] = {}
        self.on_trial = False  # somebody runs alone, for Java has died
        self.in_step: set[str] = set()  # operators that are at work now
        self.overdue = False  # whether another processor has left too much of a base stream lying
        self.on_step: list[Callable[[StepReport], None]] = []
        self.on_delivery: list[Callable[[str], None]] = []  # a stream, before it is handed over
        self.on_arrival: list[Callable[[], None]] = []
        self.on_query: list[Callable[[QueryEvent, Query], None]] = []  # what became of one
        self.on_notice: list[Callable[[str], None]] = []  # what an operator should hear of
        # goals beside what is measured, while a loop schedules towards them
        self.standings: Callable[[], Sequence[Standing]] = tuple
        self.own_statistics: list[OperatorStatistic | PlanStatistic] = []  # of the user's
        self.path_times = PathTimes(self.operators, self.queries)
        self.savings = Savings(self.operators, self.queries)
        self.shedding = Shedding(self.operators, self.queries, lambda: self.settings.quality)
        self.on_step += [self.path_times.stepped, self.savings.stepped]

    def notice(self, text: str) -> None:
        """Tells whoever listens what an operator should hear of."""
        for listener in list(self.on_notice):
            listener(text)

    def tell(self, event: QueryEvent, query: Query) -> None:
        """Tells whoever listens what became of a query."""
        for listener in list(self.on_query):
            listener(event, query)

    def settings_changed(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)

    def queries_of(self, operator: str) -> Iterator[Query]:
        return (q for q in self.queries.values() if operator in q.operators)

    def pending(self, operator: Operator) -> dict[str, list[Segment]]:
        """Segments each input has beyond the operator's cursor."""
        return pending(self.ledger, operator)

    def pause_operators(self) -> None:
        """Operators that only parked and failed queries use rest; their inputs and tails stay."""
        running = {op for q in self.queries.values() if q.state == "running" for op in q.operators}
        kept = {op for q in self.queries.values() if q.kept for op in q.operators}
        self.paused_operators = frozenset((kept - running) | self.resting)

    def matches(self, plan: Plan) -> list[Match]:
        """What a query would reuse of what runs, and what is new."""
        with self.lock:
            running = {
                o.id: Running(o, tuple(q.name for q in self.queries_of(o.id)))
                for o in self.operators.values()
            }
        return match_all(compile_plan(plan), running, MATCHINGS.get(self.settings.sharing))

    def live_sources(self) -> bool:
        """Whether rows may still come from sources that are not files."""
        return any(not source.ended for source in self.sources.values())

    def backfilling(self) -> frozenset[str]:
        """Operators that are behind because they began with the past: live rows need not wait."""
        return frozenset()

    def congested(self) -> bool:
        """Whether an operator, or another processor, is so far behind that ingest should wait."""
        if self.overdue or self.on_trial:
            return True
        limit = self.settings.backlog_rows_max
        # without the engine's lock: who brings rows waits for no query that is being compiled
        paused = self.paused_operators | self.backfilling()
        places = {
            tuple((s, self.ledger.cursor(o.id, s).next) for s in o.inputs)
            for o in list(self.operators.values())
            if o.id not in paused
        }
        return any(
            sum(
                s.rows
                for stream, following in place
                for s in self.ledger.segments(stream, following)
            )
            > limit
            for place in places
        )

    def crowded(self, stream: str) -> bool:
        """Whether the readers of a copy are so far behind that pulling it should wait."""
        limit = self.settings.backlog_rows_max
        readers = [o for o in list(self.operators.values()) if stream in o.inputs]
        # who rests keeps nobody waiting: what lies here for it is bounded by its query's quota
        asleep = self.paused_operators - self.resting
        readers = [o for o in readers if o.id not in asleep]
        return any(sum(s.rows for s in self.pending(o)[stream]) > limit for o in readers)
