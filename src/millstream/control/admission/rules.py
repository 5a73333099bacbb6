"""Where a new query's operators go, or why they do not: the interface, and its plain member.

A placer, chosen by name, sees the manager's state and a query whose operators are known, and
answers with places for the operators that do not run yet, with a refusal, or with the advice to
wait. It changes nothing; the query plan manager checks its answer before anybody uses it.

- `pattern`: a distribution pattern of D-CAPE (`Settings.pattern`); refuses nothing.
- others register themselves in `PLACERS` (`control/admission/planner.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.control.manager.state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.control.protocol.replies import CompiledOperator
from millstream.core.errors import MillstreamError
from millstream.core.operator_graph import GraphOperator, PlanGraph
from millstream.core.placement import Placement, ProcessorDescription
from millstream.core.registry import Registry
from millstream.decide.place.patterns import distribute


@dataclass(frozen=True, slots=True)
class Placed:
    """Admitted: where each operator of the query runs, those that run already included."""

    table: Placement
    sentence: str
    reused: tuple[str, ...] = ()
    cpu: float | None = None  # CPU seconds a second more than before; None: not estimated
    bandwidth: float | None = None  # bytes a second more between processors
    detail: Mapping[str, Any] = field(default_factory=dict)
    moves: tuple[
        Mapping[str, str], ...
    ] = ()  # of what runs, by operator, in order; they come first
    # what is new, where it is not what the text says first; `table` then has what the query needs
    operators: tuple[OperatorRecord, ...] = ()
    # by stream and reader: the other reader that sends it on from then on, of all that runs; None:
    # as before
    routes: Mapping[tuple[str, str], str] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Not admitted: the binding resource, whose it is, and what would fit."""

    resource: str
    host: str
    sentence: str
    fits: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to decide yet, or no room now and the query may wait for it."""

    sentence: str


Verdict = Placed | Refused | Wait


class Placer(Protocol):
    def __call__(
        self, state: ManagerState, query: Query, operators: Mapping[str, OperatorRecord]
    ) -> Verdict:
        """`operators`: those of the query, by id; one that runs has its place in it."""
        ...


PLACERS: Registry[Placer] = Registry("placer")


def record_of(found: CompiledOperator, *, another_way: bool = False) -> OperatorRecord:
    """An operator of a text, without a place."""
    return OperatorRecord(
        found.id, found.kind, found.label, found.inputs, found.row_bytes, dict(found.properties),
        another_way=another_way,
    )  # fmt: skip


def leads_managers(state: ManagerState) -> bool:
    """Whether it stands above other managers: what they have is placed by them."""
    return any(p.properties.get("kind") == "manager" for p in state.processors.values())


def graph_of(state: ManagerState, extra: Mapping[str, OperatorRecord] | None = None) -> PlanGraph:
    """All operators that have a place, and those given besides, with the queries they serve."""
    plans: dict[str, list[str]] = {}
    for query in state.queries.values():
        for name in query.operators:
            plans.setdefault(name, []).append(query.name)
    records = {**state.operators, **(extra or {})}
    return PlanGraph(
        tuple(
            GraphOperator(
                o.id,
                o.inputs,
                o.kind,
                tuple(plans.get(o.id, ())),
                {**o.properties, "row_bytes": o.row_bytes},
            )
            for o in records.values()
        )
    )


def descriptions(state: ManagerState) -> tuple[ProcessorDescription, ...]:
    """The processors that may get operators: they answer, and nobody drains them."""
    return tuple(
        ProcessorDescription(p.id, p.properties)
        for p in state.processors.values()
        if not p.draining and answers(state, p.id)
    )


def answers(state: ManagerState, processor: str) -> bool:
    live = state.live.get(processor)
    return live is not None and live.state == "up"


def at_any_rate(table: Mapping[str, Any]) -> bool:
    """Whether a stream comes as fast as it is taken: a finite file without a rate."""
    return bool(table.get("path")) and not table.get("rate") and not table.get("follow")


@PLACERS.member("pattern")
def by_pattern(
    state: ManagerState,
    query: Query,  # noqa: ARG001  (one signature for all)
    operators: Mapping[str, OperatorRecord],
) -> Verdict:
    """The table of the distribution pattern named in the settings."""
    processors = descriptions(state)
    if not processors:
        return Wait("no processor answers")
    running = {o.id: o.processor for o in state.operators.values() if o.processor != NOBODY}
    try:
        table = distribute(graph_of(state, operators), processors, state.settings.pattern, running)
    except MillstreamError as error:
        return Wait(str(error))
    mine = {name: running.get(name) or table[name] for name in operators}
    reused = tuple(name for name in operators if name in running)
    places = ", ".join(sorted(set(mine.values())))
    fresh = len(mine) - len(reused)
    sentence = (
        f"{fresh} operators by pattern {state.settings.pattern} on {places}"
        f"{f', {len(reused)} shared' if reused else ''}"
    )
    return Placed(mine, sentence, reused)
