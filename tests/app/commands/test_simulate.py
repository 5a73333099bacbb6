"""`millstream simulate` as a user types it."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from millstream.app.commands.planning import simulate
from millstream.core.errors import UsageError
from millstream.sim import reproduction

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"
QUICK = """
title = "quick"
duration_s = 8
[cluster]
hosts = 4
streams_a_host = 2
[workload]
queries = 40
operators = 300
choice = "zipf"
"""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    simulate.register(made)
    made.command("other")(lambda: None)  # two commands, so that the name stays in the line
    return made


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return path


def test_figures_side_by_side(app: typer.Typer, scenario: Path) -> None:
    result = CliRunner().invoke(
        app, ["simulate", str(scenario), "--seed", "3", "--what-if", "add-host=4", "--json"]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    base, more = told["runs"]
    assert (base["name"], more["name"]) == ("quick", "add-host=4")
    assert more["hosts"] == 8
    assert more["load_mean"] < base["load_mean"]
    assert "--seed 3 --what-if add-host=4  # commit" in told["reproduce"]


def test_the_report_for_people_and_its_files(
    app: typer.Typer, scenario: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["simulate", str(scenario), "--out", str(out), "--what-if", "policy:static"]
    )
    assert result.exit_code == 0, result.output
    assert "worst" in result.stdout
    assert "policy:static: " in result.stdout
    assert {path.name for path in out.iterdir()} == {
        "report.json",
        "samples.csv",
        "moves.csv",
        "course.png",
        "hosts.png",
        "hosts-1.png",
    }
    assert (out / "samples.csv").read_text().count("\n") == 17
    assert "worst ratio" in (out / "moves.csv").read_text()


def test_a_failed_check_exits_1_with_the_line_that_reproduces_it(
    app: typer.Typer, scenario: Path
) -> None:
    scenario.write_text(QUICK + "[checks]\nworst_ratio_max = 0.1\n")
    result = CliRunner().invoke(app, ["simulate", str(scenario), "--seed", "5"])
    assert result.exit_code == 1
    assert "failed: quick: worst_ratio_max" in result.stderr
    assert f"--seed 5  # commit {reproduction.commit()}" in result.stderr


def test_mistakes_are_usage_errors(app: typer.Typer, scenario: Path) -> None:
    for arguments in (["--policy", "best"], ["--what-if", "luck"]):
        result = CliRunner().invoke(app, ["simulate", str(scenario), *arguments])
        assert isinstance(result.exception, UsageError)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_examples_are_valid_and_end_well(app: typer.Typer, path: Path, tmp_path: Path) -> None:
    text = re.sub(r"duration_s = \d+", "duration_s = 10", path.read_text())
    text = re.sub(r"(at|until)_s = (\d)0", r"\1_s = \2", text)
    short = tmp_path / path.name  # as it is, but shorter and without its questions
    short.write_text(text.split("[[what_if]]", maxsplit=1)[0].split("[checks]", maxsplit=1)[0])
    result = CliRunner().invoke(app, ["simulate", str(short), "--policy", "flow_aware", "--json"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("title", ["rows [/s]", "rates [rows]", "as :warning: says"])
def test_a_title_is_shown_as_it_is_written(app: typer.Typer, scenario: Path, title: str) -> None:
    scenario.write_text(QUICK.replace('"quick"', f'"{title}"'))
    arguments = ["--what-if", "policy:static", "--out", str(scenario.parent / "out [/s]")]
    result = CliRunner().invoke(app, ["simulate", str(scenario), *arguments])
    assert result.exit_code == 0, result.output
    assert title in result.stdout
    assert "[/s]" in result.stdout.replace("\n", "").rpartition("written to")[2]


def test_a_plots_name_taken_by_a_folder_is_told(
    app: typer.Typer, scenario: Path, tmp_path: Path
) -> None:
    (tmp_path / "out" / "course.png").mkdir(parents=True)
    result = CliRunner().invoke(app, ["simulate", str(scenario), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert "course.png" in str(result.exception)
