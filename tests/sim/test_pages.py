"""The seed's table 1.1 exactly, and what the notes say of table 1.2 and section 1.3."""

import pytest

from millstream.decide.schedule import Scheduler, ScheduleSettings
from millstream_lab.raindrop.pages import PageLine


def page_line(algorithm: str, *, rate: float = 1.0, cap: float | None = None) -> PageLine:
    settings = ScheduleSettings(candidates=(algorithm,), selector="fixed", rows_max=1)
    return PageLine(Scheduler(settings), rate=lambda _: rate, first_queue_max=cap)


@pytest.mark.parametrize(
    ("algorithm", "queued", "throughput"),
    [
        ("fifo", [1.0, 1.9, 2.0, 2.9, 3.0, 3.9], [0, 0, 0.09, 0.09, 0.18, 0.18]),
        ("mtiq", [1.0, 1.9, 2.8, 1.9, 1.9, 1.9], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_table_1_1(algorithm: str, queued: list[float], throughput: list[float]) -> None:
    readings = page_line(algorithm).run(5)
    assert [reading.time for reading in readings] == [0, 1, 2, 3, 4, 5]
    assert [round(reading.queued, 9) for reading in readings] == queued
    assert [round(reading.throughput, 9) for reading in readings] == throughput


def test_mtiq_in_the_text_between_times_2_and_3() -> None:
    line = page_line("mtiq")
    line.run(3)
    assert line.runs[:4] == [(0.0, "O1"), (1.0, "O1"), (2.0, "O2"), (2.25, "O1")]


def test_table_1_2_fifo_outputs_every_two_units() -> None:
    line = page_line("fifo")
    line.run(200)
    assert line.throughput / 200 == pytest.approx(0.045)
    assert line.first_output == 2.0


def test_table_1_2_mtiq_holds_only_with_a_capped_source_queue() -> None:
    capped, uncapped = page_line("mtiq", cap=1.0), page_line("mtiq")
    capped.run(2000)
    uncapped.run(2000)
    assert capped.throughput / 2000 == pytest.approx(0.07, abs=0.002)
    assert capped.first_output is not None
    assert 13 < capped.first_output < 18  # 'approximately 14'
    assert uncapped.first_output is None  # O3 never runs: an erratum of the seed


def test_section_1_3_at_two_tuples_a_unit_mtiq_runs_only_the_leaf() -> None:
    line = page_line("mtiq", rate=2.0)
    line.run(300)
    assert {operator for _, operator in line.runs} == {"O1"}
    assert line.throughput == 0
