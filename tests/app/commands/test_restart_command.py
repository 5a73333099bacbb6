"""`millstream restart`: a query of a run that has ended goes on where it failed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from millstream.app import cli

JOB = """\
[streams.s]
path    = "rows.csv"
columns = {{ at = "long", v = "int" }}
time    = "timestamp_seconds(at)"

[queries.pairs]
cql = "SELECT a.v, b.v AS w FROM s [UNBOUNDED] a CROSS JOIN s [UNBOUNDED] b WHERE a.v < b.v"

[queries.all]
cql = "SELECT v FROM s"

[engine]
batch_rows = 5
pairs_max  = {most}
"""


def test_mistakes_are_told_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["restart", "q", "--run", str(tmp_path)]) == 2
    assert "is not a folder of a run" in capsys.readouterr().err
    assert cli.run(["restart", "q", "--run", "x", "--manager", "http://127.0.0.1:1"]) == 2
    assert "exclude each other" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.spark
def test_a_query_of_a_run_goes_on(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("".join(f"{n},{n}\n" for n in range(20)))
    job, out = tmp_path / "job.toml", tmp_path / "out"

    def call(*arguments: str) -> tuple[int, str]:
        code = cli.run(list(arguments))
        told = capsys.readouterr()
        return code, told.out + told.err

    def rows(query: str) -> Counter[tuple[int, ...]]:
        files = sorted((out / query).glob("*.parquet"))
        found = [tuple(r.values()) for f in files for r in pq.read_table(f).to_pylist()]
        return Counter(tuple(v for v in row if isinstance(v, int)) for row in found)

    job.write_text(JOB.format(most=100))
    code, told = call("run", str(job), "--out", str(out), "--quiet")
    assert code == 1
    assert "millstream restart pairs --run" in told.replace("\n", "")
    assert call("restart", "all", "--run", str(out))[0] == 2  # it has not failed
    assert call("restart", "pair", "--run", str(out))[0] == 2
    before = sum(rows("pairs").values())
    assert before < 190

    job.write_text(JOB.format(most=10_000))
    code, told = call("restart", "pairs", "--run", str(out))
    assert code == 0
    assert "continues when the run is started again" in told
    assert call("run", str(job), "--out", str(out), "--quiet")[0] == 0
    assert rows("pairs") == Counter((a, b) for a in range(20) for b in range(a + 1, 20))
    assert rows("all") == Counter((n,) for n in range(20))
    assert call("restart", "pairs", "--run", str(out))[0] == 2
