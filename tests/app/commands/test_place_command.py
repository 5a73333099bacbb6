"""`millstream place` as a script sees it."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from millstream.app.commands.planning.place import explained, register
from millstream.core.errors import UsageError
from millstream.decide.place.network.outcome import Placed
from millstream.decide.place.network.planner import NETWORK_PLANNERS
from millstream.decide.place.problem_json import tree_from_json

PROBLEM: dict[str, Any] = {
    "nodes": ["n0", "n1", "n2"],
    "distance": [[0, 10, 30], [10, 0, 20], [30, 20, 0]],
    "sources": [{"id": "s1", "node": "n1", "rate": 4.0}, {"id": "s2", "node": "n2", "rate": 10.0}],
    "operators": [{"id": "o1", "inputs": ["s1", "s2"], "rate": 2.5}],
    "root": "o1",
    "proxy": "n0",
    "latency_bound": None,
}


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


def call(*arguments: str) -> Any:
    app = typer.Typer()
    register(app)
    app.callback()(lambda: None)  # with one command only, typer would drop its name
    return CliRunner().invoke(app, ["place", *arguments])


@pytest.mark.parametrize("planner", NETWORK_PLANNERS.names())
def test_prints_the_format(problem: Path, planner: str) -> None:
    result = call("--planner", planner, str(problem))
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert set(answer) == {"placement", "cost", "delay", "lower_bound", "optimal"}
    assert answer["optimal"] is (planner == "optimal_tree")
    assert answer["lower_bound"] == (answer["cost"] if planner == "optimal_tree" else 0)
    expected = {"o1": "n0"} if planner == "baseline" else {"o1": "n2"}
    assert answer["placement"] == expected
    assert answer["cost"] == (340.0 if planner == "baseline" else 4 * 20 + 2.5 * 30)


def test_the_default_is_the_optimum(problem: Path) -> None:
    assert json.loads(call(str(problem), "--json").stdout)["cost"] == 155.0
    assert "the optimum" in call(str(problem), "--explain").stdout


def scaled(factor: float, **changes: Any) -> str:
    """The problem in another unit of distance."""
    rows = [[cell * factor for cell in row] for row in PROBLEM["distance"]]
    return json.dumps(PROBLEM | {"distance": rows} | changes)


def test_a_bound_binds_and_a_heuristic_is_no_optimum_in_any_unit(problem: Path) -> None:
    for factor in (1e-15, 1.0, 1e100):
        problem.write_text(scaled(factor, latency_bound=10 * factor))
        assert call(str(problem)).exit_code == 2
        problem.write_text(scaled(factor))
        assert "optimum" not in call(str(problem), "--explain", "--planner", "baseline").stdout
        assert "the optimum" in call(str(problem), "--explain").stdout


def test_what_is_not_proven_is_told() -> None:
    given = tree_from_json(PROBLEM)
    placed = Placed("optimal_tree", {"o1": "n2"}, cost=155.0, delay=50.0, lower_bound=124.0)
    assert "cost 155, at most 25 % above the optimum; delay 50" in explained(given, placed)


@pytest.mark.parametrize("planner", NETWORK_PLANNERS.names())
def test_an_infeasible_bound_is_reported_and_exits_2(problem: Path, planner: str) -> None:
    result = call("--planner", planner, "--latency", "25", str(problem))
    assert result.exit_code == 2
    answer = json.loads(result.stdout)
    assert answer["infeasible"] is True
    assert answer["placement"] is None
    assert answer["least_delay"] == 30.0
    assert result.stderr.count("\n") == 1
    assert "25 is infeasible" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (f'{{"nodes": {"1" * 5000}}}', "not JSON"),
        ("[]", "JSON object"),
        (json.dumps(PROBLEM | {"proxy": "zz"}), "proxy 'zz'"),
    ],
)
def test_a_bad_file_is_the_users_mistake(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    result = call(str(path))
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert isinstance(call(str(tmp_path / "absent.json")).exception, UsageError)
    assert isinstance(call(str(tmp_path)).exception, UsageError)


def test_a_topology_gives_nodes_and_distances(tmp_path: Path) -> None:
    path = tmp_path / "regions.json"
    regions = {
        "topology": "cloud-regions",
        "sources": [
            {"id": "eu", "node": "gcp--europe-west1", "rate": 9.0},
            {"id": "uk", "node": "aws--eu-west-2", "rate": 5.0},
        ],
        "operators": [{"id": "join", "inputs": ["eu", "uk"], "rate": 1.0}],
        "root": "join",
        "proxy": "gcp--us-central1",
    }
    path.write_text(json.dumps(regions))
    answer = json.loads(call(str(path)).stdout)
    assert answer["placement"]["join"].split("-")[2].startswith("eu")
    assert answer["delay"] < 100
    elsewhere = call(str(path), "--topology", "zoo-abilene")
    assert "not among the nodes" in str(elsewhere.exception)
    assert isinstance(call(str(path), "--topology", "nowhere").exception, UsageError)
    assert isinstance(call(str(path), "--topology", "absent.gml").exception, UsageError)


def test_bad_options(problem: Path) -> None:
    for arguments in (["--planner", "edgy"], ["--k", "-1"], ["--json", "--explain"]):
        assert isinstance(call(*arguments, str(problem)).exception, UsageError)
