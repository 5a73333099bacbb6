"""Rule tables without Spark: when rules hold, which are there, and files that they follow."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from millstream.core.errors import UsageError
from millstream.engine.ports import SourceSetting
from millstream.engine.sources import rule_source
from millstream.engine.sources.rule_source import RuleSource
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.plan.expressions import Call, Column
from millstream.language.plan.nodes import Ruled, Source
from millstream.language.plan.schema import Field
from millstream.store.arrivals.appending import (
    FILE,
    REASON,
    RECORD,
    ROW,
    TIME_MIN,
    Appender,
    Rows,
)
from millstream.store.columns import columns_text
from millstream.store.retention import Retention
from millstream.store.streams import Streams

READINGS = StreamDefinition("readings", (Field("v", "double"),), "v", source={"source": "push"})
TYPES = {"rule": pa.string(), "low": pa.float64(), "removed": pa.bool_()}


def table_of(source: dict[str, Any]) -> StreamDefinition:
    columns = (Field("rule", "string"), Field("low", "double"))
    return StreamDefinition("limits", columns, "", source={"source": "rules", **source})


def parse(rows: Rows, producer: str) -> pa.Table:
    """Rows as an appender takes them, where all values are right."""
    assert not isinstance(rows, pa.Table)
    columns = [pa.array([r.get(n) for r in rows], t) for n, t in TYPES.items()]
    times = pa.array([r["since"] for r in rows], pa.timestamp("us", "UTC"))
    nothing = pa.nulls(len(rows), pa.string())
    return pa.table(
        [*columns, times, times.cast(pa.int64()), nothing, nothing, nothing,
         pa.array(range(len(rows)), pa.int64())],
        ["c0", "c1", "c2", "c3", "_ts", REASON, RECORD, FILE, ROW],
    )  # fmt: skip


class Setting:
    """A rule table, and a stream that a query asks it about."""

    def __init__(self, home: Path, **source: Any) -> None:
        self.streams = Streams(home)
        definition = table_of(source)
        hidden = {"_ts": "long", "_pos": "long"}
        limits = columns_text(hidden | {"c0": "string", "c1": "double", "c2": "boolean"})
        self.readings = self._appender(READINGS, columns_text(hidden | {"c0": "double"}))
        self.flow: Any = SimpleNamespace(
            lock=threading.RLock(), appenders={"readings": self.readings}, queries={}
        )
        setting = SourceSetting(home, 1, lambda _: None, lambda: False, lambda _: None)
        self.source = RuleSource(
            definition, self._appender(definition, limits), parse, self.flow, setting
        )

    def _appender(self, definition: StreamDefinition, columns: str) -> Appender:
        made = Appender(definition, columns, self.streams.ledger, self.streams.files)
        with self.streams.ledger.transaction():
            made.install()
        return made

    def ask(self) -> None:
        """Registers a query with rules."""
        definition = self.source.definition
        above = Call(">", (Column(0), Column(2)))
        rows = Source("readings", READINGS.columns)
        root = Ruled(rows, Source("limits", definition.columns), above)
        self.flow.queries["q"] = SimpleNamespace(plan=SimpleNamespace(root=root))

    def reading(self, at: int) -> None:
        nothing = pa.nulls(1, pa.string())
        row = [pa.array([1.0]), pa.array([at]), nothing, nothing, nothing, pa.array([0])]
        self.readings.append(pa.table(row, ["c0", "_ts", REASON, RECORD, FILE, ROW]), {})

    def add(self, *rows: dict[str, Any]) -> None:
        self.source.push("test", None, list(rows))

    def since(self) -> dict[str, int]:
        found = {}
        for name, row in self.source.present().items():
            found[name] = int(row["since"].timestamp() * 1e6 + 0.5)
        return found


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path / "home")
    yield made
    made.streams.close()


def test_rules_hold_from_one_after_the_greatest_time(setting: Setting) -> None:
    setting.add({"rule": "a", "low": 1.0})
    assert setting.source.appender.ledger.ingest_position("s:limits")["highest"] == TIME_MIN
    setting.reading(5_000_000)
    setting.add({"rule": "b", "low": 2.0})  # nobody asks yet: it holds from the beginning, too
    assert setting.source.appender.ledger.ingest_position("s:limits")["highest"] == TIME_MIN
    setting.ask()
    setting.add({"rule": "a", "low": 3.0})
    assert setting.since()["a"] == 5_000_001
    setting.reading(9_000_000)
    setting.add({"rule": "b", "removed": True}, {"rule": "c", "low": 4.0})
    assert setting.since() == {"a": 5_000_001, "c": 9_000_001}
    assert [row["low"] for row in setting.source.present().values()] == [3.0, 4.0]


def test_no_row_comes_between_the_look_and_the_commit(setting: Setting) -> None:
    setting.ask()
    seen: list[bool] = []

    def held(rows: Rows, producer: str) -> pa.Table:
        def other() -> None:
            free = setting.readings.lock.acquire(blocking=False)
            seen.append(free)
            if free:
                setting.readings.lock.release()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return parse(rows, producer)

    setting.source._parse_rows = held
    setting.add({"rule": "a", "low": 1.0})
    assert seen == [False]


def test_a_rule_needs_a_name_and_the_table_no_end(setting: Setting) -> None:
    with pytest.raises(UsageError, match="has no rule"):
        setting.add({"low": 1.0})
    setting.source.finish()
    assert setting.source.ended
    setting.add({"rule": "a", "low": 1.0})
    assert list(setting.source.present()) == ["a"]


def test_rules_are_kept_though_nobody_reads_them(setting: Setting) -> None:
    setting.ask()
    for number in range(3):
        setting.add({"rule": f"r{number}", "low": 1.0})
        setting.reading(1_000_000 * number)
    Retention(setting.streams, {}).retain(["s:limits"])
    assert len(setting.source.present()) == 3


def test_a_table_follows_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_source, "LOOK_SECONDS", 0.01)
    path = tmp_path / "limits.csv"
    path.write_text("rule,low\na,1.5\nb,2.5\n")
    setting = Setting(tmp_path / "home", path=str(path), format="csv")
    source = setting.source
    try:
        source.start()
        assert {n: r["low"] for n, r in source.present().items()} == {"a": 1.5, "b": 2.5}
        numbers = source.appender.ledger.stream("s:limits")["next"]
        path.write_text("rule,low\nb,2.5\nc,9.0\n")
        os.utime(path, (1, 1))
        until = threading.Event()
        while set(source.present()) != {"b", "c"} and not until.wait(0.01):
            pass
        assert source.appender.ledger.stream("s:limits")["next"] == numbers + 1
        path.write_text("other\n1\n")  # not a table of these rules: it changes nothing
        until.wait(0.1)
        assert set(source.present()) == {"b", "c"}
    finally:
        source.stop()
        setting.streams.close()
    assert source.failure is None
