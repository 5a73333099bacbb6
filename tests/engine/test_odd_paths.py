"""Names of folders and files that mean something to Spark: every row is read once."""

from pathlib import Path
from typing import Any

import pytest

import millstream

pytestmark = pytest.mark.spark

FILES = 3
ROWS = 40


@pytest.mark.parametrize("name", ["in [1]", "{a,b}*?", "back\\slash #1 100%"])
@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_every_row_is_read_once(name: str, kind: str, spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / name / kind
    folder.mkdir(parents=True)
    for number in range(FILES):
        seconds = range(number * ROWS, (number + 1) * ROWS)
        text = "".join(f'{{"at": {s}}}\n' if kind == "json" else f"{s}\n" for s in seconds)
        (folder / f"[{number}].{kind}").write_text(text)
    columns = {"at": "string" if kind == "text" else "long"}
    # segments are read one by one, executors write, and all of it lies under an odd name too
    settings = {"batch_rows": ROWS, "collect_bytes_max": 0}
    with millstream.Session(tmp_path / name / "home", settings=settings) as session:
        session.stream(
            "s", path=folder, format=kind, columns=columns,
            time="timestamp_seconds(CAST(at AS LONG))",
        )  # fmt: skip
        plain = session.query("SELECT at FROM s")
        sums = session.query("SELECT count(*) AS c FROM s [RANGE 1 HOUR SLIDE 1 HOUR]")
        pairs = session.query(
            "SELECT x.at FROM s [RANGE 1 MINUTE] x JOIN s [RANGE 1 MINUTE] y ON x.at = y.at"
        )
        session.wait()
        found = [sorted(map(int, q.to_arrow()["at"].to_pylist())) for q in (plain, pairs)]
        assert found == [list(range(FILES * ROWS))] * 2
        assert sums.to_arrow()["c"].to_pylist() == [FILES * ROWS]
