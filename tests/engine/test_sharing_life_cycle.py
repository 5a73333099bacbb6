"""Queries come and go while rows flow, and the engine is opened anew: each gives what it gives
alone, and what DuckDB gives over the rows from its start on.

One example is one dataflow; the moments are part of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from engine_runner import arrived, declare, rows_of, settle
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from sharing_traps import JOINS, OTHERS, READINGS, SELECTIONS, SLIDING, WINDOWED

from millstream.engine.engine import Engine
from millstream.engine.settings import EngineSettings
from millstream.language.plan.windows import BEGINNING
from millstream.spark.plane import SparkPlane
from oracle.compare import difference
from oracle.evaluate import Oracle
from oracle.generate_overlapping import overlapping
from oracle.harness import Example, Rows, cut, files_of
from oracle.model import (
    FOREVER,
    Query,
    Select,
    Source,
    Stream,
    Sub,
    columns_of,
)
from oracle.nature import item_nature

pytestmark = pytest.mark.spark

ROUND_ROWS = 9  # of each stream
CHECKED = settings(
    deadline=None,
    database=None,
    print_blob=True,
    phases=(Phase.generate,),
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
)


@dataclass(frozen=True, slots=True)
class Moments:
    """The rounds before which a query comes and after which it goes."""

    comes: int
    goes: int | None


@dataclass(frozen=True, slots=True)
class Script:
    example: Example
    moments: Mapping[str, Moments]
    resting: frozenset[int]  # rounds after which nothing is computed yet
    reopened: frozenset[int]  # rounds after which the engine is opened anew
    step_rows_max: int

    @property
    def rounds(self) -> int:
        return max(len(sizes) for sizes in self.example.batches.values())

    def only(self, name: str) -> "Script":
        """The same moments for one query alone."""
        return replace(self, moments={name: self.moments[name]})


@dataclass(frozen=True, slots=True)
class Outcome:
    start: int
    rows: Rows


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    example = draw(overlapping(fewest=8, most=12))
    example = replace(example, batches=cut(example.streams, ROUND_ROWS))
    last = max(len(sizes) for sizes in example.batches.values()) - 1
    moments = {}
    for name in example.texts():
        comes = draw(st.sampled_from((0, 0, *range(last + 1))))
        goes = draw(st.sampled_from((None, None, None, *range(comes, last + 1))))
        moments[name] = Moments(comes, goes)
    some = st.frozensets(st.integers(0, last), max_size=2)
    return Script(example, moments, draw(some), draw(some), draw(st.sampled_from((500, 7))))


class Player:
    """Plays scripts on engines of its own."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self._plays = 0
        self.shared = 0  # segments in files with rows of several queries

    def play(self, script: Script, sharing: str = "subsuming") -> dict[str, Outcome]:
        self._plays += 1
        home = self.folder / f"play-{self._plays}"
        made = EngineSettings(sharing=sharing, step_rows_max=script.step_rows_max)
        engine = Engine(home, SparkPlane(self.spark), made)
        declare(engine, script.example.streams)
        texts = script.example.texts()
        tables = {
            s.name: files_of(s, script.example.batches[s.name]) for s in script.example.streams
        }
        outcomes: dict[str, Outcome] = {}
        for number in range(script.rounds):
            for name, moments in script.moments.items():
                if moments.comes == number:
                    engine.add_query(name, texts[name])
            for name, parts in tables.items():
                if number < len(parts):
                    engine.appenders[name].append(arrived(parts[number]), {})
            going = [n for n, m in script.moments.items() if m.goes == number]
            leaving = any(m.goes == number for m in script.moments.values())
            if leaving or number not in script.resting:
                settle(engine)
            for name in going:
                outcomes[name] = outcome(engine, name)
                engine.drop_query(name)
            if number in script.reopened:
                engine = self._again(engine, script, texts)
        for appender in engine.appenders.values():
            appender.finish()
        settle(engine)
        outcomes |= {name: outcome(engine, name) for name in engine.queries}
        self.shared += sum(
            segment.tag is not None
            for o in engine.operators
            for segment in engine.ledger.segments(o)
        )
        assert set(engine.store.files()) == engine.ledger.named_files()
        engine.close()
        return outcomes

    def _again(self, engine: Engine, script: Script, texts: Mapping[str, str]) -> Engine:
        """The queries in another order than before."""
        names = list(engine.queries)[::-1]
        engine.close()
        opened = Engine(engine.home, SparkPlane(self.spark), engine.settings)
        declare(opened, script.example.streams)
        for name in names:
            opened.add_query(name, texts[name])
        return opened


def outcome(engine: Engine, name: str) -> Outcome:
    return Outcome(engine.queries[name].start, rows_of(engine, name))


def from_start(stream: Stream, start: int) -> Stream:
    """The rows that count for a query: those that were not late, from its start on."""
    rows, latest = [], None
    for row in stream.rows:
        if row.ts is None:
            continue
        if (latest is None or row.ts >= latest - stream.lateness) and row.ts >= start:
            rows.append(row)
        latest = row.ts if latest is None else max(latest, row.ts)
    return replace(stream, rows=tuple(rows), lateness=FOREVER // 4)


def window_length(query: Query) -> int | None:
    """How long before its time a result's window begins; None where this is not so simple."""
    if not isinstance(query, Select):
        return None
    if query.aggregated:
        over = [source.query for source in query.sources if isinstance(source, Sub)]
        if any(isinstance(q, Select) and q.aggregated for q in over):
            return None
        ranges = [length for s in query.sources for length in item_nature(s).ranges]
        return max(ranges, default=0)
    if all(isinstance(s, Source) for s in query.sources):
        return 0
    inner = [window_length(s.query) for s in query.sources if isinstance(s, Sub)]
    return inner[0] if len(query.sources) == 1 else None


def answer(example: Example, query: Query, start: int) -> Rows | None:
    """The oracle's answer for a query with a start; None for queries where that is not simple."""
    length = window_length(query)
    if length is None and start != BEGINNING:
        return None
    streams = {s.name: from_start(s, start) for s in example.streams}
    with Oracle(streams) as oracle:
        rows = oracle.answer(query).rows
    return [r for r in rows if start == BEGINNING or r["ts"] - (length or 0) >= start]


def differs(query: Query, expected: Rows, actual: Rows) -> str | None:
    found = difference(expected, actual, [*columns_of(query), "ts"])
    return f"missing {found.missing[:5]} extra {found.extra[:5]}" if found else None


def problems(
    script: Script, outcomes: Mapping[str, Outcome], alone: Mapping[str, Outcome]
) -> list[str]:
    """Everything in which a dataflow differs from DuckDB, or from queries alone."""
    example, told = script.example, []
    for (name, text), query in zip(example.texts().items(), example.queries, strict=True):
        found = outcomes[name]
        expected = answer(example, query, found.start)
        if expected is not None and script.moments[name].goes is None:
            why = differs(query, expected, found.rows)
            told += [] if why is None else [f"DuckDB: {name} from {found.start}: {text}: {why}"]
        if name in alone:
            assert alone[name].start == found.start
            why = differs(query, alone[name].rows, found.rows)
            told += [] if why is None else [f"alone: {name} from {found.start}: {text}: {why}"]
    return told


def check(script: Script, player: Player, alone_max: int) -> None:
    note(f"{script.moments} resting {script.resting} reopened {script.reopened}")
    outcomes = player.play(script)
    assert outcomes.keys() == script.moments.keys()
    names = sorted(script.moments, key=lambda n: _told_by_duckdb(script, n, outcomes[n].start))
    alone = {n: player.play(script.only(n), "exact")[n] for n in names[:alone_max]}
    told = problems(script, outcomes, alone)
    assert not told, "\n".join(told)


def _told_by_duckdb(script: Script, name: str, start: int) -> bool:
    """Queries that only a run alone can judge come first."""
    query = dict(zip(script.example.texts(), script.example.queries, strict=True))[name]
    simple = start == BEGINNING or window_length(query) is not None
    return simple and script.moments[name].goes is None


def check_seed(number: int, player: Player, examples: int, alone_max: int) -> None:
    @seed(number)
    @settings(CHECKED, max_examples=examples)
    @given(scripts())
    def run(script: Script) -> None:
        check(script, player, alone_max)

    run()


@pytest.fixture(scope="module")
def player(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Player:
    return Player(spark, tmp_path_factory.mktemp("plays"))


def test_queries_come_and_go(player: Player) -> None:
    """What is made up depends on the constants in all of the code: some seeds share nothing."""
    for number in range(8):
        check_seed(number, player, 2, 2)
        if player.shared:
            return
    pytest.fail("no script has queries that share a file")


LATER: tuple[Query, ...] = (
    SELECTIONS[5],
    *SLIDING[1:4],
    *JOINS[:2],
    JOINS[7],
    JOINS[16],
    *WINDOWED,
)


@pytest.mark.parametrize("resting", [frozenset(), frozenset({0})], ids=("behind", "abreast"))
def test_a_query_that_comes_later_sees_rows_from_its_start_on(
    resting: frozenset[int], player: Player
) -> None:
    """Every query twice, the second time when there are rows already: in files that the first has
    read, or in files that both read at once."""
    example = Example((READINGS, OTHERS), cut((READINGS, OTHERS), 5), (*LATER, *LATER))
    moments = {name: Moments(0, None) for name in example.texts()}
    later = list(moments)[len(LATER) :]
    moments |= {name: Moments(1, None) for name in later}
    script = Script(example, moments, resting, frozenset({1}), 500)
    outcomes = player.play(script)
    assert all(outcomes[name].start > BEGINNING for name in later)
    told = problems(script, outcomes, {})
    assert not told, "\n".join(told)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 41))
def test_queries_come_and_go_for_long(number: int, player: Player) -> None:
    check_seed(number, player, 5, 12)
