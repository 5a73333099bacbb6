"""How goals are told: wanted of each query by `explain`, standing and their price by `qos`."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from millstream.app.commands.run.explain import _goals
from millstream.app.commands.run.qos import show
from millstream.app.config import load_job

JOB = """
[streams.n]
path    = "n.csv"
columns = { at = "long", n = "int" }
time    = "timestamp_seconds(at)"

[queries.alerts]
cql = "SELECT n FROM n WHERE n > 10"

[queries.rest]
cql = "SELECT n FROM n"
"""
QOS = """
[qos]
goals = "queue_rows minimise"

[qos.queries.alerts]
goals  = "delay <= 2s"
weight = 3.0
"""


def test_explain_tells_what_is_wanted_of_each_query(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("1,2\n")
    job = tmp_path / "job.toml"
    job.write_text(JOB + QOS)
    assert _goals(load_job(job), ["alerts", "rest"]) == {
        "alerts": ["delay at most 2 s (its own, weight 3)"],
        "rest": ["queue_rows minimised, weight 1 (of all queries, weight 1)"],
    }
    job.write_text(JOB)
    assert _goals(load_job(job), ["alerts"]) == {}


def test_qos_tells_what_goals_cost_the_others() -> None:
    told = StringIO()
    show(
        {
            "algorithm": "cost_aware", "selector": "foresight", "switches": 0, "starving": {},
            "seconds_in_charge": {"cost_aware": 9.0}, "costs_others": {"alerts": 0.123},
            "goals": [{"query": "alerts", "told": "delay at most 2 s: 1 s, met", "met": True}],
        },
        Console(file=told, width=120),
    )  # fmt: skip
    assert (
        "alerts costs the others: its steps went before older rows for 12.3% of" in told.getvalue()
    )
