"""Streams of changes are tables: inserts, updates and deletes by key, in any batches."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

import millstream

pytestmark = pytest.mark.spark

Change = tuple[int, int, str, str]  # time, key, name, what it does
BATCH = 8
BY_NAME = "SELECT name, count(*) AS n FROM people GROUP BY name"


def changes(number: int, count: int) -> list[Change]:
    """Updates and deletes of keys that are there, and of some that are not."""
    chance = random.Random(number)
    return [
        (at, chance.randint(1, 4), chance.choice("xyz"), chance.choice("cuuud"))
        for at in range(count)
    ]


def table_at(rows: list[Change], at: int) -> dict[int, str]:
    """What the changes up to an instant make, one after the other."""
    table: dict[int, str] = {}
    for time, key, name, op in rows:
        if time <= at and op == "d":
            table.pop(key, None)
        elif time <= at:
            table[key] = name
    return table


def pairs(query: Any) -> list[tuple[Any, ...]]:
    return sorted((r["id"], r["name"]) for r in query.table().to_pylist())


def counts(query: Any) -> dict[str, int]:
    return {r["name"]: r["n"] for r in query.table().to_pylist()}


def check(table: dict[int, str], people: Any, by_name: Any) -> None:
    names = list(table.values())
    assert pairs(people) == sorted(table.items())
    assert counts(by_name) == {n: names.count(n) for n in names}


def test_a_column_that_says_what_a_row_does(spark: Any) -> None:
    rows = changes(11, 24)
    with millstream.Session() as session:
        session.stream(
            "people", columns={"at": "long", "id": "int", "name": "string", "what": "string"},
            time="timestamp_seconds(at)", key="id", op="what",
        )  # fmt: skip
        people = session.query("SELECT id, name FROM people", "all_people")
        by_name = session.query(BY_NAME, "by_name")
        for start in range(0, len(rows), BATCH):
            session.push("people", rows[start : start + BATCH])
            session.wait()
            check(table_at(rows, rows[start + BATCH - 1][0]), people, by_name)


def missed(rows: list[Change]) -> list[tuple[int, str]]:
    """Keys and names of deletes that find nothing."""
    there: set[int] = set()
    found = []
    for _, key, name, op in rows:
        if op == "d" and key not in there:
            found.append((key, name))
        there = there - {key} if op == "d" else there | {key}
    return found


def test_deletes_of_what_is_not_there_are_counted(spark: Any) -> None:
    """In any batches; a change that nobody knows goes aside."""
    rows = [(at, key, name, op.upper()) for at, key, name, op in changes(15, 20)]
    wanted = missed(changes(15, 20))
    assert wanted
    rows.insert(9, (9, 1, "x", "truncate"))
    with millstream.Session() as session:
        session.stream(
            "people", columns={"at": "long", "id": "int", "name": "string", "what": "string"},
            time="timestamp_seconds(at)", key="id", op="what",
        )  # fmt: skip
        count = session.query("SELECT count(*) AS n FROM people.unmatched", "missed")
        listed = session.query("SELECT id, name FROM people.unmatched", "listed")
        for start in range(0, len(rows), BATCH):
            session.push("people", rows[start : start + BATCH])
            session.wait()
        session.push("people", [(30, 9, "x", "c")])
        session.wait()
        assert count.table().to_pylist()[0]["n"] == len(wanted)
        found = [(r["id"], r["name"]) for r in listed.to_arrow().to_pylist()]
        assert sorted(found) == sorted(wanted)


def test_debezium_files(spark: Any, tmp_path: Path) -> None:
    """Deletes have no row after them, updates may set a column to NULL."""
    lines = []
    table: dict[int, str | None] = {}
    for at, key, name, op in changes(2, 24):
        row = {"id": key, "name": None if name == "z" else name}
        before = {"id": key, "name": table[key]} if key in table else None
        if op == "d":
            table.pop(key, None)
            lines.append({"before": before or {"id": key}, "after": None, "op": op, "ts_ms": at})
        else:
            table[key] = row["name"]
            lines.append({"before": before, "after": row, "op": op, "ts_ms": at})
    path = tmp_path / "people.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with millstream.Session() as session:
        session.stream(
            "people", path=path, format="debezium", key=["id"],
            columns={"id": "int", "name": "string"},
        )  # fmt: skip
        people = session.query("SELECT * FROM people", "all_people")
        session.wait()
        assert pairs_of(people) == table


def pairs_of(query: Any) -> dict[int, str | None]:
    return {r["id"]: r["name"] for r in query.table().to_pylist()}
