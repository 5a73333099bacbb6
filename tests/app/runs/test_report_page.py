"""The page of a finished run: all that it did, in one file, and no script."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from millstream.app import cli
from millstream.app.runs.statistics_export import keep_statistics

SUMMARY: dict[str, Any] = {
    "state": "failed", "out": "out", "seconds": 12.5, "steps": 9,
    "streams": {"s": {"rows": 90, "late": 3, "rejected": 7}},
    "queries": {
        "errors": {"state": "done", "rows": 2, "path": "out/errors"},
        "bad": {"state": "failed", "rows": 0, "path": "out/bad", "reason": "division by <zero>"},
    },
    "sharing": {"jobs": 9, "jobs_alone": 15, "seconds": 6.0, "seconds_alone": 10.0,
                "saved_s": 4.0, "saved_part": 0.4, "most_queries": 3},
    "warnings": [{"stream": "s", "what": "most of s", "cause": "x", "change": "y", "severe": True}],
}  # fmt: skip
OPERATORS = [
    {"operator": "o:1", "label": "filter s", "queries": "errors, bad, more", "seconds": 2.0,
     "steps": 3, "rows_in": 90, "rows_out": 2},
    {"operator": "o:2", "label": "join", "queries": "bad", "seconds": 4.0, "steps": 1},
]  # fmt: skip


class Pages(HTMLParser):
    """Texts and tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(v) for k, v in attrs if k in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    home = tmp_path / ".millstream"
    home.mkdir()
    (home / "summary.json").write_text(json.dumps(SUMMARY))
    keep_statistics({"operators": OPERATORS}, home)
    for name, row in {
        "errors": {"host": "<script>alert(1)</script>", "status": 500},
        "s.rejected": {"reason": "1 column where 2 are declared", "record": "x"},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "part-1.json").write_text(json.dumps(row) + "\n")
    return tmp_path


def test_a_run_as_a_page(finished: Path) -> None:
    assert cli.run(["report", str(finished)]) == 0
    page = Pages()
    page.feed((finished / "report.html").read_text())
    assert "script" not in page.tags
    assert page.links == [], "it needs nothing else"
    for told in (
        "90 rows of 1 streams, 2 queries, 12.5 s, 9 steps; 1 failed", "most of s",
        "division by <zero>", "<script>alert(1)</script>", "1 column where 2 are declared",
        "9 Spark jobs instead of 15", "4.0 s (40 %) saved", "1 of 2 operators", "\u00d73",
    ):  # fmt: skip
        assert told in page.text, told


def test_a_folder_without_a_finished_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(tmp_path / "none")]) == 2
    assert "there is no finished run" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
