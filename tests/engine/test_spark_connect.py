"""Through Spark Connect: every kind of operator gives the rows that it gives in this process.

A server is a process of its own; so is its client, because PySpark decides once for a process
whether it speaks to a server.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_crashes import write_input
from test_local_cluster import CHOSEN, QUERIES, answers, here, shown

import millstream
from millstream.core.errors import UsageError
from standalone_cluster import connect_server

__all__ = ["here"]  # the fixture
HERE = Path(__file__).parent
SESSIONS = HERE.parent / "app" / "session"  # its `test_attach` has what users get of a session
sys.path.append(str(SESSIONS))


def client(folder: Path, url: str) -> None:
    """What the client's process does: a session of ours, and one beside a user's."""
    from pyspark.sql import SparkSession  # noqa: PLC0415
    from test_attach import ODD  # noqa: PLC0415
    from test_attach import answers as attached_answers  # noqa: PLC0415

    from millstream.spark.session import session  # noqa: PLC0415

    spark = session(url)
    collected, _, _ = answers(spark, folder, folder / "one", QUERIES, 1 << 30)
    chosen = {name: QUERIES[name] for name in CHOSEN}
    written, how, _ = answers(spark, folder, folder / "two", chosen, 0)
    builder: Any = SparkSession.builder
    user = builder.remote(url).create()
    for key, value in ODD.items():
        user.conf.set(key, value)
    before = dict(user.conf.getAll)
    with millstream.attach(user) as own:
        told = attached_answers(own, folder)
    look = user.sql("SELECT CAST('ann' AS INT) IS NULL AS x, '1' || 1 AS y").collect()[0]
    parts = {
        "collected": shown(collected), "written": shown(written), "how": sorted(how),
        "attached": told, "same": dict(user.conf.getAll) == before, "look": list(look),
        "refused": refused(spark, folder),
    }  # fmt: skip
    (folder / "told.json").write_text(json.dumps(parts))
    user.stop()
    spark.stop()


def refused(spark: Any, folder: Path) -> str:
    """Why rows cannot come from Structured Streaming."""
    try:
        with millstream.attach(spark) as own:
            own.stream(
                "r", source="spark", format="rate", columns={"timestamp": "timestamp"},
                time="timestamp",
            )  # fmt: skip
            own.query("SELECT * FROM r")
            own.wait(timeout=5)
    except UsageError as error:
        return f"{error}"
    return ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("server")) as url:
        yield url


@pytest.mark.spark
@pytest.mark.process
def test_every_kind_of_operator_and_a_session_beside_a_users(
    here: Any, server: str, tmp_path: Path
) -> None:
    from test_attach import ROWS  # noqa: PLC0415
    from test_attach import answers as attached_answers  # noqa: PLC0415

    (tmp_path / "f.csv").write_text(ROWS)
    write_input(tmp_path)
    program = f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
    arguments = f"pathlib.Path({str(tmp_path)!r}), {server!r}"
    program += f"import test_spark_connect as t, pathlib; t.client({arguments})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=800, check=False, cwd=tmp_path,
        env={**os.environ, "TZ": "America/New_York"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    expected = shown(here[0])
    for name, rows in expected.items():
        assert told["collected"][name] == rows, name
    assert told["how"] == [False]
    assert told["written"] == {name: expected[name] for name in CHOSEN}
    with millstream.Session() as session:
        ours = attached_answers(session, tmp_path)
    for name, answer in ours.items():
        assert told["attached"][name] == answer, name
    assert told["same"], "the user's settings are as they were"
    assert told["look"] == [True, "11"]
    assert "do not work through Spark Connect" in told["refused"]


@pytest.mark.process
def test_a_job_by_the_address_of_a_server(server: str, tmp_path: Path) -> None:
    job = Path(__file__).parents[2] / "examples" / "doors" / "doors.toml"
    done = subprocess.run(
        [sys.executable, "-c", "from millstream.app.cli import main; main()", "run", str(job),
         "--out", str(tmp_path / "out"), "--format", "csv", "--master", server],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = "".join(path.read_text() for path in sorted((tmp_path / "out" / "busy").glob("*.csv")))
    assert '"south",2,"2024-05-01 08:05:00.000000"' in rows
    rejected = (tmp_path / "out" / "doors.rejected").glob("*.csv")
    assert "cannot read 'not a time' as timestamp" in "".join(p.read_text() for p in rejected)
