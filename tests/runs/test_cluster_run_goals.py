"""What of a job file counts on a cluster: its goals do, as those of its queries."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.config import load_job
from millstream.runs.cluster_run import ClusterRun

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


class Manager:
    url = "http://manager"

    def __init__(self) -> None:
        self.goals: dict[str, dict[str, Any]] = {}

    def set_quality(self, table: dict[str, Any], query: str) -> None:
        self.goals[query] = table


def prepared(folder: Path, more: str) -> tuple[Manager, list[str]]:
    """What the manager and the user hear before anything runs."""
    (folder / "s.csv").write_text("1\n")
    (folder / "job.toml").write_text(JOB + more)
    manager, said = Manager(), list[str]()
    display: Any = SimpleNamespace(say=said.append)
    home: Any = SimpleNamespace(home=folder, path=folder)
    client: Any = manager
    made = ClusterRun(load_job(folder / "job.toml"), home, client, "csv", display)
    made._say_what_does_not_count()
    made._set_goals()
    return manager, said


def test_goals_of_all_are_shared_out_over_queries_without_their_own(tmp_path: Path) -> None:
    text = '[qos]\ngoals = "delay <= 2s"\n[qos.queries.two]\ntemplate = "fresh"\nweight = 3.0\n'
    manager, said = prepared(tmp_path, text)
    assert manager.goals["two"] == {"template": "fresh", "weight": 3.0}
    for name in ("one", "three"):
        assert manager.goals[name]["weight"] == pytest.approx(0.5)
        assert manager.goals[name]["goals"][0]["limit"] == 2.0
    assert not said


def test_what_does_not_count_is_told(tmp_path: Path) -> None:
    text = '[engine]\nslots = 2\n[schedule]\nalgorithm = "chain"\n'
    manager, said = prepared(tmp_path, text)
    assert not manager.goals
    assert any("[engine]" in line for line in said)
    (told,) = [line for line in said if "[schedule]" in line]
    assert "millstream qos http://manager --schedule" in told
