"""A planner for batches: which queries is decided for all of them at once, where one by one.

A decomposition of SQPR's problem (III.8) for many queries. The master, a solver, chooses the set
that is best with hindsight on all hosts taken together, on what is free and with what runs already
(`bounds.best_set`); the default planner places those first, sweeping from early on, and then what
is left of the batch. Its answer is worth as much as the default planner's at least where the master
finds a set in time; a batch of one is the default planner's. An admitted query is never dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from millstream.decide.place.bounds import best_set
from millstream.decide.place.online import Decision
from millstream.decide.place.problem import Operator, Problem, Query, Stream
from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.planners.sqpr import SqprPlanner, SqprSettings
from millstream.decide.place.reuse.state import PlanState

SECONDS_MAX = 300.0  # for one batch's set, however many queries it has
SECONDS_EACH = 0.1  # for each of its queries, where nobody says


@dataclass(frozen=True, slots=True)
class BatchSettings:
    seconds_each: float = SECONDS_EACH
    placing: SqprSettings = SqprSettings(sweep_from=0.3)  # noqa: RUF009  (frozen)


class BatchPlanner(SqprPlanner):
    """The default planner, after a look at the whole batch."""

    def __init__(
        self,
        catalog: Catalog,
        settings: BatchSettings | None = None,
        state: PlanState | None = None,
    ) -> None:
        self.batch = settings or BatchSettings()
        super().__init__(catalog, self.batch.placing, state)

    def submit(self, batch: Sequence[Query]) -> tuple[Decision, ...]:
        if len(batch) == 1:
            return super().submit(batch)
        seconds = min(SECONDS_MAX, self.batch.seconds_each * len(batch))
        chosen = best_set(self._left(batch), seconds).streams
        ordered = sorted(batch, key=lambda query: query.stream not in chosen)  # keeps the order
        answers: dict[str, Decision] = {}
        for query in ordered:
            (answers[query.id],) = super().submit((query,))
            self.rest()
        again = [q for q in ordered if q.stream in chosen and not answers[q.id].admitted]
        for query in again:  # sweeps have made room since
            (answers[query.id],) = super().submit((query,))
        return tuple(answers[query.id] for query in batch)

    def _left(self, batch: Sequence[Query]) -> Problem:
        """What is free, and the batch; streams that are there already enter there."""
        state, catalog = self.state, self.state.catalog
        hosts = tuple(
            replace(
                host,
                cpu=_free(host.cpu, float(state.cpu_used[place])),
                bandwidth_in=_free(host.bandwidth_in, float(state.in_used[place])),
                bandwidth_out=_free(host.bandwidth_out, float(state.out_used[place])),
            )
            for place, host in enumerate(catalog.hosts)
        )
        needed: dict[int, None] = {}
        for query in batch:
            needed.update(dict.fromkeys(catalog.closure(catalog.stream_at[query.stream]).streams))
        streams: list[Stream] = []
        operators: list[Operator] = []
        for stream in needed:
            name, rate = catalog.stream_ids[stream], catalog.rate[stream]
            owner = state.owner(stream)
            streams.append(Stream(name, rate, None if owner < 0 else catalog.host_ids[owner]))
            if owner < 0:
                operators += [self._operator(number) for number in catalog.producers[stream]]
        return Problem(hosts, tuple(streams), tuple(operators), tuple(batch))

    def _operator(self, number: int) -> Operator:
        catalog = self.state.catalog
        inputs = tuple(catalog.stream_ids[stream] for stream in catalog.inputs[number])
        output = catalog.stream_ids[catalog.output[number]]
        return Operator(catalog.operator_ids[number], inputs, output, catalog.cpu[number])


def _free(offered: float, used: float) -> float:
    return max(0.0, offered - used)
