"""Every command and block of code of the documentation is carried out."""

import os
from pathlib import Path
from typing import Any

import pytest
from doc_runner import run_page

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT_SPARK = (
    "howto/admission", "howto/network-placement", "howto/simulation", "howto/own-files",
)  # fmt: skip
WITH_SPARK = (
    "tutorial", "concepts", "howto/sources-and-sinks", "howto/spark-clusters", "howto/watching",
    "howto/tuning", "howto/quality-of-service", "howto/notebooks", "howto/kafka",
    "howto/testing-queries", "howto/rules", "howto/reference-tables", "howto/replacing",
    "howto/beginning",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    return tmp_path


@pytest.mark.parametrize("page", WITHOUT_SPARK)
def test_a_page_without_spark(page: str, folder: Path) -> None:
    assert run_page(DOCS / f"{page}.md", folder) > 1


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_SPARK)
def test_a_page_with_spark(page: str, folder: Path, spark: Any) -> None:
    assert run_page(DOCS / f"{page}.md", folder) >= {"howto/kafka": 0, "howto/beginning": 1}.get(
        page, 2
    )


@pytest.mark.process
def test_the_page_of_the_cluster(folder: Path) -> None:
    """A manager and three processors as processes of their own."""
    assert run_page(DOCS / "cluster.md", folder) > 5


def test_no_page_with_code_is_forgotten() -> None:
    from doc_runner import blocks_of  # noqa: PLC0415

    known = {
        *WITHOUT_SPARK,
        *WITH_SPARK,
        "cluster",
        "CQL",
        "JOBS",
    }  # the last two have tests of their own
    languages = ("sh", "console", "python")
    for path in DOCS.rglob("*.md"):
        name = str(path.relative_to(DOCS)).removesuffix(".md")
        if name.startswith("design"):
            continue
        if any(b.runs and b.language in languages for b in blocks_of(path)):
            assert name in known, f"{name} has code and is not run"
