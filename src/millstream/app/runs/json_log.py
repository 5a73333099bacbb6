"""What happens in a run as JSON lines, for machines that collect logs.

Every line is an object with `time` (ISO, UTC), `level`, `event` and what belongs to the event:
`message` for words, figures for `progress`. Nothing else is written to the same place.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from millstream.app.runs.display import PLAIN_SECONDS, Rate, figures
from millstream.core.errors import UsageError

LOG_FORMATS = ("text", "json")
TROUBLE = (" is failed", " is parked", " failed")


def line(event: str, level: str = "info", **more: Any) -> str:
    """One log line.

    >>> json.loads(line("started", job="demo"))["job"]
    'demo'
    """
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"time": moment, "level": level, "event": event, **more}, default=str)


def speaker(log_format: str, event: str) -> Callable[..., None]:
    """How a daemon says something on standard error: words, or lines of JSON under this event."""
    if log_format not in LOG_FORMATS:
        raise UsageError(
            f"unknown log format {log_format!r}", hint=f"one of {', '.join(LOG_FORMATS)}"
        )

    def say(text: str, level: str = "info") -> None:
        told = line(event, level, message=text) if log_format == "json" else text
        print(told, file=sys.stderr, flush=True)

    return say


class JsonDisplay:
    """A display that writes lines of JSON; progress every two seconds."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._rate, self._next = Rate(), time.monotonic() + PLAIN_SECONDS

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def show(self, status: Mapping[str, Any], steps: int) -> None:
        self._next = time.monotonic() + PLAIN_SECONDS
        now = figures(status)
        queries = status["queries"]
        self._write(
            line(
                "progress",
                rows=now["rows"],
                rows_per_s=round(self._rate.update(now["rows"]), 1),
                backlog_rows=now["backlog"],
                watermark=now["watermark"],
                steps=steps,
                result_rows=sum(q["rows"] for q in queries.values()),
                failed=sorted(n for n, q in queries.items() if q["state"] == "failed"),
            )
        )

    def say(self, line_: str) -> None:
        level = "warning" if any(words in line_ for words in TROUBLE) else "info"
        self._write(line("message", level, message=line_))

    def close(self) -> None:
        return None

    def _write(self, text: str) -> None:
        print(text, file=self._out, flush=True)
