"""A cluster's result on its way into a target: once, whoever was killed, and after it was away."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.client.pulled_delivery import Positions, PulledDelivery
from millstream.client.system import ResultPage
from millstream.core.errors import UsageError
from millstream.language.plan.schema import Field
from millstream.store.delivery import FileSink, Result, TargetError

RESULT = Result("q", "r:q", (Field("n", "bigint"),))
PAGES = [ResultPage(n, n, pa.table({"n": [n]}), n == 3) for n in (1, 2, 3)]


class Gone(BaseException):
    """The end of a process."""


class Reader:
    """Three pages, from a number on."""

    def __init__(self, following: int) -> None:
        self.following, self.ended, self.idle = following, False, False

    def pages(self, wait_s: float = 0.0) -> Iterator[ResultPage]:
        for page in PAGES[self.following - 1 :]:
            self.following, self.ended = page.last + 1, page.ended
            yield page

    def acknowledge(self) -> None: ...


class Target:
    """A table that outlives the processes that write it."""

    def __init__(self) -> None:
        self.rows, self.number, self.away, self.names = list[int](), 1, False, set[str]()
        self.cut_at = 0

    def recover(self, following: int) -> None: ...

    def close(self) -> None: ...

    def following(self, result: Result, delivery: str) -> int:
        self.names.add(delivery)
        if self.away:
            raise TargetError("away")
        return self.number

    def deliver(self, result: Result, first: int, last: int, table: pa.Table) -> None:
        assert first >= self.number
        self.rows += table["n"].to_pylist()
        self.number = last + 1
        if first == self.cut_at:
            self.cut_at = 0
            raise Gone


def opened(home: Path, target: Target) -> PulledDelivery:
    positions = Positions(home)
    reader = Reader(int(positions.of("q").get("next", 1)))
    sinks = [FileSink(home / "files", "json"), target]
    return PulledDelivery("q", RESULT, reader, sinks, positions)


@pytest.mark.parametrize("cut_at", [1, 2, 3])
def test_a_target_is_asked_what_it_has_after_a_kill(tmp_path: Path, cut_at: int) -> None:
    target = Target()
    target.cut_at = cut_at
    with pytest.raises(Gone):
        opened(tmp_path, target).advance()
    again = opened(tmp_path, target)
    assert again.advance()
    assert again.ended
    assert target.rows == [1, 2, 3]
    assert len(target.names) == 1
    assert len(list((tmp_path / "files").glob("part-*"))) == 3


def test_a_target_that_is_away_keeps_its_result_waiting(tmp_path: Path) -> None:
    target = Target()
    target.away = True
    delivery = opened(tmp_path, target)
    assert delivery.advance() == 0
    assert delivery.retry.problem == "away"
    assert delivery.advance() == 0, "not asked again at once"
    target.away = False
    delivery.retry.succeeded()
    assert delivery.advance() == 3
    assert target.rows == [1, 2, 3]


def test_without_a_home_it_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a folder that remembers"):
        PulledDelivery("q", RESULT, Reader(1), [Target()], Positions(None))
