"""A copy that cannot go on: said once, told for as long as it lasts, forgotten when rows come."""

import threading
from types import SimpleNamespace
from typing import Any

from control_calls import until

from millstream.edge.processor.stream_receiver import StreamReceiver
from millstream.store.moves.transfer import RefusedError


class Source:
    """Pulls that are refused until somebody opens the way."""

    def __init__(self) -> None:
        self.open, self.refusals, self.pulled = threading.Event(), 0, threading.Event()

    def crowded(self, stream: str) -> bool:
        return False

    def say_farewells(self) -> None:
        return None

    def pull(self, stream: str, wait: float) -> int:
        if not self.open.is_set():
            self.refusals += 1
            raise RefusedError("gap", f"{stream} was merged")
        self.pulled.set()
        threading.Event().wait(0.01)
        return 1


def test_a_stream_that_cannot_be_pulled_is_told_while_it_lasts() -> None:
    source, said = Source(), list[str]()
    copy = SimpleNamespace(stream="s:a")
    ownership = SimpleNamespace(copies=lambda: [copy], copy=lambda _: copy)
    ownership.moves = lambda _role, _phases: []
    processor: Any = SimpleNamespace(receiver=source, ownership=ownership)
    receiver = StreamReceiver(processor, said.append)
    receiver.start()
    try:
        until(lambda: source.refusals >= 2)
        assert receiver.troubles == {"s:a": "stream s:a cannot be pulled: s:a was merged"}
        source.open.set()
        assert source.pulled.wait(60)
        until(lambda: not receiver.troubles)
        assert said == ["stream s:a cannot be pulled: s:a was merged"], "said once"
    finally:
        receiver.stop()
