"""A placement with reuse: what was admitted, where operators run, which streams flow where.

The one form in which planners answer and the checker reads. Values only: nothing here plans,
checks or knows a planner.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.core.errors import UsageError
from millstream.decide.place.json_fields import Fields, read_json


@dataclass(frozen=True, slots=True, order=True)
class PlacedOperator:
    """An operator on a host (z of SQPR)."""

    operator: str
    host: str


@dataclass(frozen=True, slots=True, order=True)
class Flow:
    """A stream sent from one host to another (x of SQPR); a relay is a flow onward."""

    stream: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, order=True)
class Delivered:
    """A query's result leaves the system at this host (d of SQPR)."""

    query: str
    stream: str
    host: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a query does not fit: the binding resource, where, and what would help."""

    query: str
    reason: (
        str  # "cpu", "bandwidth_in", "bandwidth_out", "link", "memory", "latency", "no_plan", ...
    )
    detail: str
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Durations:
    """Time to plan a query, in milliseconds."""

    median: float = 0.0
    p95: float = 0.0
    max: float = 0.0


@dataclass(frozen=True, slots=True)
class Solution:
    admitted: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    operators: tuple[PlacedOperator, ...] = ()
    flows: tuple[Flow, ...] = ()
    delivered: tuple[Delivered, ...] = ()
    planning_ms: Durations = field(default_factory=Durations, compare=False)
    planning_cpu_ms: Durations = field(default_factory=Durations, compare=False)


def durations(seconds: Iterable[float]) -> Durations:
    """Median, 95th percentile (nearest rank) and maximum.

    >>> durations([0.001, 0.002, 0.003])
    Durations(median=2.0, p95=3.0, max=3.0)
    """
    ordered = sorted(seconds)
    if not ordered:
        return Durations()

    def rank(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Durations(rank(0.5), rank(0.95), 1000 * ordered[-1])


def solution_to_json(solution: Solution) -> dict[str, Any]:
    return {
        "admitted": list(solution.admitted),
        "refused": [
            {
                "query": refusal.query,
                "reason": refusal.reason,
                "detail": refusal.detail,
                **({} if refusal.host is None else {"host": refusal.host}),
            }
            for refusal in solution.refused
        ],
        "operators": [
            {"operator": placed.operator, "host": placed.host} for placed in solution.operators
        ],
        "flows": [
            {"stream": flow.stream, "from": flow.source, "to": flow.target}
            for flow in solution.flows
        ],
        "delivered": [
            {"query": given.query, "stream": given.stream, "host": given.host}
            for given in solution.delivered
        ],
        "planning_ms": _told(solution.planning_ms),
        "planning_cpu_ms": _told(solution.planning_cpu_ms),
    }


def _told(times: Durations) -> dict[str, float]:
    return {
        "median": round(times.median, 3), "p95": round(times.p95, 3), "max": round(times.max, 3)
    }  # fmt: skip


def solution_from_json(document: Any) -> Solution:
    """A solution from parsed JSON; its sense is the checker's business."""
    fields = Fields(
        "solution",
        document,
        (
            "admitted", "refused", "operators", "flows", "delivered", "planning_ms",
            "planning_cpu_ms", "planner", "bounds",
        ),
    )  # fmt: skip
    admitted = [item for _, item in fields.items("admitted", required=True)]
    if not all(isinstance(name, str) for name in admitted):
        raise UsageError(
            "admitted must be a list of query ids",
            detail=next(f"it has {name!r}"[:200] for name in admitted if not isinstance(name, str)),
            hint='as in "admitted": ["q1", "q2"]',
        )
    return Solution(
        admitted=tuple(admitted),
        refused=tuple(_refusal(item) for item in fields.items("refused")),
        operators=tuple(_placed(item) for item in fields.items("operators")),
        flows=tuple(_flow(item) for item in fields.items("flows")),
        delivered=tuple(_delivered(item) for item in fields.items("delivered")),
        planning_ms=_durations(fields, "planning_ms"),
        planning_cpu_ms=_durations(fields, "planning_cpu_ms"),
    )


def _durations(fields: Fields, name: str) -> Durations:
    times = Fields(name, fields.get(name) or {}, ("median", "p95", "max"))
    return Durations(
        times.amount("median", 0.0), times.amount("p95", 0.0), times.amount("max", 0.0)
    )


def read_solution(path: Path) -> Solution:
    return solution_from_json(read_json(path))


def _refusal(item: tuple[str, Any]) -> Refusal:
    fields = Fields(*item, ("query", "reason", "detail", "host"))
    return Refusal(
        fields.word("query"),
        fields.text("reason", required=False) or "",
        fields.text("detail", required=False) or "",
        fields.text("host", required=False),
    )


def _placed(item: tuple[str, Any]) -> PlacedOperator:
    fields = Fields(*item, ("operator", "host"))
    return PlacedOperator(fields.word("operator"), fields.word("host"))


def _flow(item: tuple[str, Any]) -> Flow:
    fields = Fields(*item, ("stream", "from", "to"))
    return Flow(fields.word("stream"), fields.word("from"), fields.word("to"))


def _delivered(item: tuple[str, Any]) -> Delivered:
    fields = Fields(*item, ("query", "stream", "host"))
    return Delivered(fields.word("query"), fields.word("stream"), fields.word("host"))
