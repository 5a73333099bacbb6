"""`millstream plan` from the outside: files in, files out, exit codes, no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from decide.place.reuse_problems import problem_to_json
from millstream.app.cli import run
from millstream.decide.place.workload import TIGHT, generate, scaled


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(problem_to_json(generate(scaled(TIGHT, 5), 1))))
    return path


def planned(problem: Path, *options: str) -> dict[str, Any]:
    out = problem.with_name("solution.json")
    assert run(["plan", str(problem), "--out", str(out), *options]) == 0
    document: dict[str, Any] = json.loads(out.read_text())
    return document


@pytest.mark.parametrize("planner", ["sqpr", "sqpr_tiers", "heuristic", "soda"])
def test_a_plan_is_written_and_passes_the_check(problem: Path, planner: str) -> None:
    document = planned(problem, "--planner", planner)
    assert {"admitted", "refused", "operators", "flows", "delivered", "planning_ms"} <= set(
        document
    )
    assert set(document["planning_ms"]) == {"median", "p95", "max"}
    assert set(document["planning_cpu_ms"]) == {"median", "p95", "max"}
    assert len(document["admitted"]) + len(document["refused"]) == 100
    assert run(["plan", "--check", str(problem), str(problem.with_name("solution.json"))]) == 0


def test_the_solver_is_a_planner_like_the_others(problem: Path) -> None:
    small = json.loads(problem.read_text())
    small["queries"] = small["queries"][:6]
    problem.write_text(json.dumps(small))
    document = planned(problem, "--planner", "sqpr_milp", "--timeout", "1", "--batch", "2")
    assert len(document["admitted"]) == 6


def test_a_wrong_solution_fails_the_check(
    problem: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planned(problem)
    document["flows"] = document["flows"][1:]
    wrong = problem.with_name("wrong.json")
    wrong.write_text(json.dumps(document))
    capsys.readouterr()
    assert run(["plan", "--check", str(problem), str(wrong)]) == 1
    assert "source" in capsys.readouterr().out
    assert run(["plan", "--check", "--json", str(problem), str(wrong)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["valid"]
    assert told["violations"]


def test_json_goes_to_standard_output(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(problem), "--json", "--bounds"]) == 0
    document = json.loads(capsys.readouterr().out)
    bounds = document["bounds"]
    assert len(document["admitted"]) <= bounds["proven"]
    assert bounds["aggregate_host"] <= bounds["proven"]


def test_a_solution_written_with_bounds_passes_the_check(problem: Path) -> None:
    assert "bounds" in planned(problem, "--bounds")
    solution = problem.with_name("solution.json")
    assert run(["plan", "--check", str(problem), str(solution)]) == 0
    huge = json.loads(solution.read_text()) | {"planning_ms": {"max": 10**400}}
    solution.write_text(json.dumps(huge))
    assert run(["plan", "--check", str(problem), str(solution)]) == 2


def test_a_summary_names_the_reasons(problem: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned(problem, "--goal", "least")
    said = capsys.readouterr().out
    assert "queries admitted" in said
    assert "refused:" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "PROBLEM", "--planner", "sqprr"], "did you mean sqpr"),
        (["plan", "PROBLEM", "--batch", "0"], "--batch is 0"),
        (["plan", "PROBLEM", "--timeout", "-1"], "--timeout is -1"),
        (["plan", "PROBLEM", "--goal", "fast"], "unknown goal"),
        (["plan", "absent.json"], "cannot read absent.json"),
        (["plan", "PROBLEM", "PROBLEM"], "nothing to do with it"),
        (["plan", "--check", "PROBLEM"], "needs a problem and a solution"),
        (["plan", "--check", "PROBLEM", "PROBLEM"], "unknown field"),
        (["plan", "PROBLEM", "--out", "/nowhere/at/all.json"], "cannot write"),
    ],
)
def test_mistakes_exit_with_two(
    problem: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(problem) if word == "PROBLEM" else word for word in arguments]
    assert run(given) == 2
    assert words in capsys.readouterr().err


def test_degenerate_problems_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.json"
    path.write_text('{"hosts": [], "streams": []}')
    assert run(["plan", str(path)]) == 2
    assert "no hosts" in capsys.readouterr().err
    path.write_text('{"hosts": [{"id": "h", "cpu": 1}], "streams": []}')
    assert run(["plan", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["admitted"] == []
