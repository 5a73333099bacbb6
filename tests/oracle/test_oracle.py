"""The oracle is judged by rows worked out by hand: every case must come out of DuckDB."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from math import nan
from pathlib import Path

import pytest

from oracle.cases import SCENES, Case, Scene
from oracle.cases.nexmark import FOLDER, NEXMARK
from oracle.compare import Difference, difference, report
from oracle.cql_text import cql_text
from oracle.evaluate import Oracle
from oracle.harness import disagreement, expected_rows
from oracle.model import columns_of

CASES = [(scene, case) for scene in SCENES for case in scene.cases]
NAMES = [f"{scene.name}-{case.name}" for scene, case in CASES]


@pytest.fixture(scope="module")
def oracles() -> Iterator[dict[str, Oracle]]:
    started = {s.name: Oracle({stream.name: stream for stream in s.streams}) for s in SCENES}
    yield started
    for oracle in started.values():
        oracle.close()


@pytest.mark.parametrize(("scene", "case"), CASES, ids=NAMES)
def test_rows_worked_out_by_hand(scene: Scene, case: Case, oracles: dict[str, Oracle]) -> None:
    answer = oracles[scene.name].answer(case.query)
    assert not (problem := disagreement(scene, case, answer.rows)), problem


@pytest.mark.parametrize(("scene", "case"), CASES, ids=NAMES)
def test_printer_writes_what_a_person_wrote(scene: Scene, case: Case) -> None:
    assert cql_text(case.query) == case.cql


def normal(text: str) -> str:
    return " ".join(text.split()).replace("( ", "(").replace(" )", ")")


def test_the_nexmark_job_asks_what_the_cases_ask() -> None:
    job = tomllib.loads((FOLDER / "job.toml").read_text(encoding="utf-8"))
    asked = {name: normal(query["cql"]) for name, query in job["queries"].items()}
    assert asked == {case.name: case.cql for case in NEXMARK.cases}
    types = {"bigint": "long"}
    for stream in NEXMARK.streams:
        declared = job["streams"][stream.name]["columns"]
        assert declared == {c.name: types.get(c.type, c.type) for c in stream.columns}


def test_names_of_cases_are_unique() -> None:
    assert max(Counter(case.name for scene in SCENES for case in scene.cases).values()) == 1


def test_expected_rows_have_as_many_values_as_columns() -> None:
    for scene, case in CASES:
        columns, rows = expected_rows(case)
        assert all(len(row) == len(columns) for row in rows), (scene.name, case.name)
        assert len(columns_of(case.query)) == len(set(columns_of(case.query)))


def test_the_oracle_imports_nothing_it_judges() -> None:
    for path in Path(__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.split(".")[0] == "millstream" for name in names), path


def test_doubles_agree_within_the_tolerance_and_exact_kinds_exactly() -> None:
    def differ(one: object, other: object) -> bool:
        return bool(difference([{"a": one}], [{"a": other}], ["a"]))

    assert not differ(0.1 + 0.2, 0.3)
    assert differ(1.0, 1.00001)
    assert not differ(nan, nan)
    assert differ(nan, None)
    assert differ(1, 1.0)
    assert differ(True, 1)
    assert differ(10**17, 10**17 + 1)


def test_doubles_that_sort_differently_still_pair() -> None:
    left = [{"a": 1.0, "b": 5.0}, {"a": 1.0 + 1e-12, "b": 4.0}]
    right = [{"a": 1.0, "b": 4.0}, {"a": 1.0 + 1e-12, "b": 5.0}]
    assert not difference(left, right, ["a", "b"])


def test_rows_count_as_often_as_they_occur() -> None:
    found = difference([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": 1}, {"a": 1}], ["a"])
    assert found == Difference([], [(1,)])


def test_a_report_tells_query_rows_and_input() -> None:
    text = report(
        Difference([(1, 2)], [(n, n) for n in range(12)]),
        ["a", "ts"],
        cql="SELECT a FROM s",
        sql="SELECT 1",
        inputs={"s": [(0, 1)]},
    )
    assert "SELECT a FROM s" in text
    assert "missing   1 rows" in text
    assert "… and 2 more" in text
    assert "s: 1 rows in order of arrival" in text
