"""The page of results and the tables of the documentation are what the stored runs give."""

from pathlib import Path

import pytest

import millstream_lab as lab
from millstream_lab.claims import measured
from millstream_lab.experiment import EXPERIMENTS
from millstream_lab.results import MARK, WORKS, filled, page
from millstream_lab.stored import read_csv, read_origin

LAB = Path(__file__).parents[1]
RESULTS = LAB / "results"
DESIGN = LAB.parent / "docs" / "design"
lab.load()


def test_the_page_is_what_the_stored_runs_give() -> None:
    assert (LAB / "RESULTS.md").read_text() == page(RESULTS), "run `make results`"


def test_the_tables_of_the_documentation_are_what_the_stored_runs_give() -> None:
    marked = {path: path.read_text() for path in DESIGN.glob("*.md")}
    works = [found[2] for text in marked.values() for found in MARK.finditer(text)]
    assert sorted(works) == sorted(WORKS)
    for path, text in marked.items():
        assert text == filled(text, RESULTS), f"{path.name}: run `make results`"


SIZES = {
    "hosts", "minutes of a run", "networks", "nodes", "plans", "seconds", "seconds of a run",
    "seeds", "trees a point and network",
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_a_full_run_is_as_large_as_its_claims_need(path: Path) -> None:
    """Else a claim could not be compared whatever was run."""
    if read_origin(path).size != "full":
        pytest.skip("a small run")
    rows = read_csv(path)
    short = [
        (claim.text, need.what)
        for claim in EXPERIMENTS.get(path.stem).claims
        for need in claim.needs
        if need.what in SIZES and not need.contains(measured(need, rows))
    ]
    assert not short


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_a_stored_run_is_small_and_says_where_it_comes_from(path: Path) -> None:
    experiment = EXPERIMENTS.get(path.stem)
    origin = read_origin(path)
    assert f"millstream lab run {experiment.name} " in origin.command
    assert ("--quick" in origin.command) == (origin.size == "small")
    rows = read_csv(path)
    assert set(experiment.measured) <= set(rows[0])
    assert path.stat().st_size < 800_000
