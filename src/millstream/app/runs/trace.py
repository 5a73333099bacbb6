"""`run --trace FILE`: every choice, every change of algorithm and every step, a JSON object a line.

A choice says which operator (or operators that run together), on how many rows, by which algorithm
and why; the step of that operator that follows says what it cost. Reads the scheduler's trace,
decides nothing.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import UsageError
from millstream.decide.schedule.facts import Choice, Switch
from millstream.engine.scheduling.figures import units_named

if TYPE_CHECKING:
    from millstream.engine.loop import Loop
    from millstream.engine.steps.reports import StepReport


class TraceFile:
    """Appends what has happened since it was last asked to; a resumed run goes on in the file."""

    def __init__(self, path: Path, loop: "Loop") -> None:
        self._loop = loop
        self._last: Choice | Switch | None = None
        self._steps: list[StepReport] = []
        self._units: dict[str, tuple[str, list[str], list[str]]] = {}
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot write the trace {path}: {reason}") from None
        loop.engine.on_step.append(self._steps.append)

    def write(self) -> None:
        """The events since the last call, in order of time."""
        with self._loop.engine.lock:  # the trace grows under it
            fresh = self._fresh()
            if any(isinstance(e, Choice) and e.operator not in self._units for e in fresh):
                self._units = units_named(self._loop)
        steps, self._steps[:] = list(self._steps), []
        lines = [self._line(event) for event in fresh]
        lines += [
            {"event": "step", "at": step.started + step.seconds} | asdict(step) for step in steps
        ]
        for line in sorted(lines, key=lambda line: float(line["at"])):
            self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _line(self, event: Choice | Switch) -> dict[str, Any]:
        if isinstance(event, Switch):
            return {"event": "review"} | asdict(event)
        label, operators, queries = self._units.get(event.operator, ("", [event.operator], []))
        named = {"label": label, "operators": operators, "queries": queries}
        return {"event": "choice"} | asdict(event) | named

    def _fresh(self) -> list[Choice | Switch]:
        """What the scheduler has noted since the last look; what it has forgotten is lost."""
        found: list[Choice | Switch] = []
        for entry in reversed(self._loop.scheduler.scheduler.trace):
            if entry is self._last:
                break
            found.append(entry)
        found.reverse()
        if found:
            self._last = found[-1]
        return found

    def close(self) -> None:
        with suppress(Exception):  # a run does not fail for its trace
            self.write()
        self._file.close()


def tracing(path: Path | None, loop: "Loop") -> tuple[Callable[[], None], Callable[[], None]]:
    """What to call now and then, and at the end."""
    if path is None:
        return (lambda: None), (lambda: None)
    file = TraceFile(path, loop)
    return file.write, file.close
