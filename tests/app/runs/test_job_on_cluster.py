"""What of a job file counts on a cluster: its goals do, as those of its queries."""

from pathlib import Path
from typing import Any

import pytest

from millstream.app.config import load_job
from millstream.app.runs.job_run import not_counted, share_out_goals
from millstream.control.definitions.qos_table import specification_table
from millstream.decide.schedule.quality import Specification

JOB = """
[streams.s]
path = "s.csv"
columns = { n = "long" }
time = "timestamp_seconds(n)"
[queries.one]
cql = "SELECT n FROM s"
[queries.two]
cql = "SELECT n FROM s WHERE n > 1"
[queries.three]
cql = "SELECT n FROM s WHERE n > 2"
"""


class System:
    """Hears goals."""

    def __init__(self) -> None:
        self.goals: dict[str, tuple[float, Specification]] = {}

    def set_quality(self, goals: Specification, query: str, weight: float) -> None:
        self.goals[query] = (weight, goals)


def prepared(folder: Path, more: str) -> tuple[System, list[str]]:
    """What the cluster and the user hear before anything runs."""
    (folder / "s.csv").write_text("1\n")
    (folder / "job.toml").write_text(JOB + more)
    job, system = load_job(folder / "job.toml"), System()
    heard: Any = system
    share_out_goals(heard, job)
    return system, list(not_counted(job, "http://manager"))


def test_goals_of_all_are_shared_out_over_queries_without_their_own(tmp_path: Path) -> None:
    text = '[qos]\ngoals = "delay <= 2s"\n[qos.queries.two]\ntemplate = "fresh"\nweight = 3.0\n'
    system, said = prepared(tmp_path, text)
    weight, goals = system.goals["two"]
    assert (weight, specification_table(goals)) == (3.0, {"template": "fresh"})
    for name in ("one", "three"):
        weight, goals = system.goals[name]
        assert weight == pytest.approx(0.5)
        assert goals.goals[0].limit == 2.0
    assert not said


def test_what_does_not_count_is_told(tmp_path: Path) -> None:
    text = '[engine]\nslots = 2\n[schedule]\nalgorithm = "chain"\n'
    system, said = prepared(tmp_path, text)
    assert not system.goals
    assert any("[engine]" in line for line in said)
    (told,) = [line for line in said if "[schedule]" in line]
    assert "millstream qos http://manager --schedule" in told
