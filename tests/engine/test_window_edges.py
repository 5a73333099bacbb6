"""Rows at the edges of windows: tumbling windows count each once, however rows arrive.

All queries of a test are one dataflow: joins that include the last instant of their windows beside
aggregates over the same join, which do not; windows of both alignments.
"""

import pytest
from engine_runner import EngineRunner
from sharing_traps import OTHERS, READINGS, WINDOWED

from millstream.engine.settings import EngineSettings
from oracle.cases.case import sec, stream
from oracle.cases.windows import LEFT, RIGHT, SAME, TWO, WINDOWS, joined
from oracle.harness import Example, Runner, cut, judge, whole
from oracle.model import (
    SECOND,
    Item,
    Query,
    Range,
    Select,
    Source,
    Stream,
    Sub,
    Union,
    agg,
    expr,
    item,
)

pytestmark = pytest.mark.spark

BOTH = (LEFT, RIGHT)
COUNT = Item(agg("count(*)"), "n")


def agrees(example: Example, runner: Runner) -> None:
    results = runner.run(example.streams, example.texts(), example.batches)
    problems = judge(example, results)
    assert not problems, "\n\n".join(problems)


def test_edges_row_by_row(runner: Runner) -> None:
    # pairs two seconds apart: results of the join, never counted
    pairs: Query = Select(
        (item("l.id"), Item(expr("r.id"), "other")),
        (Source("l", window=TWO), Source("r", window=TWO)),
        where=SAME,
    )
    queries = tuple(case.query for case in WINDOWS.cases)
    agrees(Example(BOTH, cut(BOTH, 1), (pairs, *queries)), runner)


@pytest.mark.parametrize("size", [1, 5, None], ids=("by_one", "by_five", "whole"))
def test_windows_that_share(size: int | None, runner: Runner) -> None:
    streams = (READINGS, OTHERS)
    batches = whole(streams) if size is None else cut(streams, size)
    agrees(Example(streams, batches, WINDOWED), runner)


def test_windows_without_sharing(spark: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = EngineRunner(spark, tmp_path_factory.mktemp("alone"), EngineSettings(sharing="exact"))
    agrees(Example((READINGS, OTHERS), cut((READINGS, OTHERS), 5), WINDOWED), alone)


LENGTHS_US = (sec(3), sec(1.5), sec(0.7), sec(20.3), sec(4))
SLIDES_US = (sec(2), sec(0.5), sec(4), sec(5))
NEAR: Stream = stream(
    "n",
    {"id": "int"},
    [(at + near, number) for number, at in enumerate((-4, -2, 0, 1, 3, 4, 6, 33))
     for near in (-0.000001, 0, 0.000001)],
    lateness=1,
)  # fmt: skip


def test_all_lengths_by_all_slides(runner: Runner) -> None:
    """Both alignments, before and after 1970, with windows of few panes and of many."""
    queries = tuple(
        Select((COUNT, Item(agg("sum(id)"), "total")), (Source("n", window=window),))
        for length in LENGTHS_US
        for slide in SLIDES_US
        for window in (Range(length, slide), Range(length, slide, align_start=True))
    )
    agrees(Example((NEAR,), cut((NEAR,), 7), queries), runner)


def test_unions_and_joins_of_uneven_windows(runner: Runner) -> None:
    queries: list[Query] = []
    for length in (sec(3), sec(1.5), sec(2)):
        for align_start in (False, True):
            window = Range(length, 2 * SECOND, align_start)
            sides = [Select((item("id"),), (Source(n, window=window),)) for n in ("l", "r")]
            queries.append(Select((COUNT,), (Sub(Union(tuple(sides)), "u"),)))
            queries.append(joined((COUNT,), window, Range(length)))
    agrees(Example(BOTH, cut(BOTH, 2), tuple(queries)), runner)
