"""Registrations, steps and moves as spans of OpenTelemetry, where its API is installed.

Which exporter gets them is the user's choice: `opentelemetry-instrument millstream run ...`, or a
tracer provider set in the program. Without one, the API throws spans away.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.engine.query import Query, QueryEvent
from millstream.engine.steps.reports import StepReport

TRACER = "millstream"
TRACED = frozenset(
    {"compile", "host", "unhost", "prepare", "seal", "take_over", "undo", "complete"}
)


class Spans:
    """Hands spans to OpenTelemetry."""

    def __init__(self, trace: Any) -> None:
        self._trace, self.tracer = trace, trace.get_tracer(TRACER)

    @staticmethod
    def wanted() -> "Spans | None":
        """None where the API is not installed."""
        try:
            from opentelemetry import trace  # noqa: PLC0415
        except ImportError:
            return None
        return Spans(trace)

    def query(self, what: QueryEvent, query: Query) -> None:
        """A registration, or what became of a query since."""
        began = query.here_since if what in ("registered", "taken up") else time.time()
        told = {"millstream.query": query.name, "millstream.state": query.state}
        if query.reason:
            told["millstream.reason"] = query.reason
        self._span(f"query {what}", began, time.time(), told, failed=what == "failed")

    def step(self, report: StepReport) -> None:
        """A step of one operator, alone or in a train."""
        told = {
            "millstream.operator": report.operator,
            "millstream.rows_in": report.rows_in,
            "millstream.rows_out": report.rows_out,
            "millstream.commit_s": round(report.commit_seconds, 6),
            "millstream.members": report.members,
        }
        self._span("step", report.started, report.started + report.seconds, told)

    def _span(
        self, name: str, began: float, ended: float, told: dict[str, Any], *, failed: bool = False
    ) -> None:
        span = self.tracer.start_span(name, start_time=int(began * 1e9), attributes=told)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(end_time=int(max(began, ended) * 1e9))


@contextmanager
def command_span(command: Any) -> Iterator[None]:
    """A span around what a processor is told to do for a query or a move, and for nothing else."""
    spans = Spans.wanted() if command.do in TRACED else None
    if spans is None:
        yield
        return
    told = {
        f"millstream.{name}": str(getattr(command, name))
        for name in ("query", "move", "operators", "stream")
        if hasattr(command, name)
    }
    with spans.tracer.start_as_current_span(f"processor {command.do}", attributes=told):
        yield
