"""Twenty poisons beside good queries: each is refused, failed or parked by name in time, the others
go on, and what they give equals DuckDB's answer over the whole input."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import poison_life
import pytest
from poison_life import (
    AGAIN,
    BASE,
    BATCH,
    HARMLESS,
    LONGEST_S,
    POISONS,
    SETTINGS,
    STEP_US,
    Life,
    finish,
    good_oracle,
    live,
    outcomes,
)
from small_engines import file_rows

from millstream.app.session.session import Session
from millstream.engine import delivering

pytestmark = pytest.mark.spark
QUICK = ("cross", "wide", "nesting", "division", "cast", "hanging", "full")
GOOD, GOOD_QUICK = 50, 6
RESTARTS_MAX = 2  # for one poison


def check_good(folder: Path, good: int) -> None:
    rows = int((folder / "batches").read_text()) * BATCH
    db = duckdb.connect()
    db.execute(
        f"CREATE TABLE ev AS SELECT (i % 7)::INT AS k, (i * 37 % 101)::INT AS v, "
        f"{BASE} + i * {STEP_US} AS us FROM range({rows}) t(i)"
    )
    for number in range(good):
        found = file_rows(folder / "out" / f"good{number}")
        names = [d[0] for d in db.execute(good_oracle(number)).description]
        wanted = Counter(db.fetchall())
        assert Counter(tuple(row[n] for n in names) for row in found) == wanted, number


def check_outcome(outcome: dict[str, Any]) -> None:
    what = json.dumps(outcome)
    wanted = ("refused", "failed", "parked")
    assert outcome["state"] in (*wanted, *(("fine",) if outcome["poison"] in HARMLESS else ())), (
        what
    )
    assert outcome["reason"] or outcome["state"] == "fine", what
    assert outcome["lives"] <= RESTARTS_MAX + 1, what


@pytest.mark.soak
def test_some_poisons_stop_nobody_else(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "PATIENCE_S", 2.0)
    with Session(tmp_path / "home", spark=spark, settings=SETTINGS) as session:
        life = Life(tmp_path, session, GOOD_QUICK)
        for outcome in live(life, list(QUICK)):
            poison_life.note(tmp_path, outcome)
        finish(life)
    assert [o["poison"] for o in outcomes(tmp_path)] == list(QUICK)
    for told in outcomes(tmp_path):
        check_outcome(told)
        assert told["seconds"] < LONGEST_S
    check_good(tmp_path, GOOD_QUICK)


@pytest.mark.soak
def test_twenty_poisons_beside_fifty_good_queries(tmp_path: Path) -> None:
    """Started again when Java has died, as a daemon would be."""
    names = list(POISONS)
    command = [sys.executable, poison_life.__file__, str(tmp_path), str(GOOD), ",".join(names)]
    for _ in range(3 * len(names)):
        done = subprocess.run(command, stderr=subprocess.PIPE, timeout=1800, check=False)
        print(done.stderr.decode()[-2000:], file=sys.stderr)
        if done.returncode != AGAIN:
            break
    for told in outcomes(tmp_path):
        print(told)
    assert done.returncode == 0
    assert [o["poison"] for o in outcomes(tmp_path)] == names
    for told in outcomes(tmp_path):
        check_outcome(told)
        assert told["seconds"] < 2 * LONGEST_S, told
    check_good(tmp_path, GOOD)
