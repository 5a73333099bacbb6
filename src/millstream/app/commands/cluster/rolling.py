"""All processors of a cluster restarted one after the other, while queries run.

Each is drained, its process begins again with its home, it takes part again, and what it had moves
back. The next one follows when all of that is done; the first trouble ends it, with what to do. The
manager moves; this only asks for one thing after the other.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from millstream.client.manager_client import ManagerClient
from millstream.core.errors import AwayError, MillstreamError, StateError, UsageError

LOOK_S = 0.3
THERE = ("up", "draining")
MOVED = ("owned", "done", "undone")


@dataclass(frozen=True, slots=True)
class Restarted:
    """A processor that is back with what it had."""

    processor: str
    operators: int
    streams: int
    emptied_s: float  # until it had nothing
    away_s: float  # until it answered again
    back_s: float  # until it had everything


class RollingRestart:
    """Restarts processors; `say` hears how far it is."""

    def __init__(
        self, client: ManagerClient, say: Callable[[str], None], wait_s: float = 300.0
    ) -> None:
        self._client, self._say, self._wait_s = client, say, wait_s
        self.done: list[Restarted] = []

    def run(self) -> list[Restarted]:
        """All of them; raises at the first trouble, with those before it in `done`."""
        names = self._everybody()
        for number, name in enumerate(names, 1):
            self._say(f"{name} ({number} of {len(names)}): its work goes elsewhere")
            restarted = self._one(name)
            self.done.append(restarted)
            self._say(
                f"{name} is back after {restarted.away_s:.1f} s, with {restarted.operators} "
                f"operators and {restarted.streams} streams"
            )
        return self.done

    def told(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.done]

    def _processors(self) -> dict[str, dict[str, Any]]:
        return dict(self._client.status()["processors"])

    def _everybody(self) -> list[str]:
        """Who is to be restarted, where nothing stands in the way."""
        known = self._processors()
        for name, told in sorted(known.items()):
            if told["properties"].get("kind") == "manager":
                raise UsageError(
                    f"{name} is a manager", hint="restart its processors: ask that manager"
                )
            if told["state"] != "up":
                raise StateError(
                    f"processor {name} is {told['state']}",
                    hint=f"start it, or millstream drain --back {name}, or millstream remove "
                    f"--lost {name}; then begin again",
                )
        if len(known) < 2:
            raise UsageError(
                "no other processor could take the work meanwhile",
                hint="start another processor first",
            )
        return sorted(known)

    def _one(self, name: str) -> Restarted:
        begun = time.monotonic()
        operators = [
            o["id"] for o in self._client.placement()["operators"] if o["processor"] == name
        ]
        streams = [f"s:{stream}" for stream in self._processors()[name]["streams"]]
        self._empty(name)
        emptied = time.monotonic()
        self._say(f"{name} has nothing any more: its process begins again")
        self._renew(name)
        there = time.monotonic()
        self._client.drain(name, back=True)
        self._say(f"{name} answers again: its operators and streams come back")
        self._return(name, [*streams, *operators])
        back = time.monotonic()
        return Restarted(
            name, len(operators), len(streams), emptied - begun, there - emptied, back - there
        )

    def _empty(self, name: str) -> None:
        told = self._client.drain(name, wait_s=min(self._wait_s, 300.0))
        left = [f"stream {one['stream']}: {one['reason']}" for one in told["entering"]]
        left += [one["outcome"] for one in told["moves"] if one["outcome"]]
        if told["processor"]["operators"] or told["entering"]:
            self._client.drain(name, back=True)
            raise StateError(
                f"processor {name} could not be emptied, and was not restarted",
                detail="; ".join(dict.fromkeys(left)) or "its operators did not leave in time",
                hint="fix what it reports and start again; everything that runs continues",
            )

    def _renew(self, name: str) -> None:
        """Ends the process and waits for the next one of its home."""
        epoch = int(self._client.begin_again(name)["epoch"])
        deadline = time.monotonic() + self._wait_s
        while time.monotonic() < deadline:
            time.sleep(LOOK_S)
            try:
                told = self._processors().get(name, {})
            except AwayError:
                continue  # the manager is asked again
            if int(told.get("epoch", 0)) > epoch and told["state"] in THERE:
                return
        raise StateError(
            f"processor {name} did not come back within {self._wait_s:.0f} s",
            detail="it was empty when its process ended: nothing is missing",
            hint=f"look at its output and start it, then millstream drain --back {name} and begin "
            "again",
        )

    def _return(self, name: str, had: Iterable[str]) -> None:
        """What it had moves back; what is no more, or has gone on, stays as it is."""
        asked: list[str] = []
        for what in had:
            try:
                asked += [m["id"] for m in self._client.move(what, name)["moves"]]
            except UsageError as error:
                self._say(f"{what} does not come back: {error.message}")
        deadline = time.monotonic() + self._wait_s
        while time.monotonic() < deadline:
            moves = [m for m in self._client.moves() if m["id"] in asked]
            if all(m["phase"] in MOVED for m in moves):
                break
            time.sleep(LOOK_S)
        undone = (
            [m for m in moves if m["phase"] not in MOVED or m["phase"] == "undone"] if asked else []
        )
        if undone:
            raise StateError(
                f"not everything from {name} has come back",
                detail="; ".join(f"{m['id']}: {m['outcome'] or m['phase']}" for m in undone),
                hint="it runs where it is now; begin again, or leave it: millstream placement",
            )


def trouble_of(error: MillstreamError) -> dict[str, str]:
    return {"message": error.message, "detail": error.detail, "hint": error.hint}
