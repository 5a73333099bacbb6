"""Every verdict of the lab flips when its data is mutated, and every need can be missed.

The stored runs, small or full, are inverted, shuffled, scaled and bent; a claim whose verdict is
the same under all of that tests nothing. Nothing is run here.
"""

import random
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import pytest
from generated_rows import GENERATED

import millstream_lab as lab
from millstream_lab.claims import Bound, Claim, Row, Verdict, judged, measured
from millstream_lab.experiment import EXPERIMENTS, Experiment
from millstream_lab.raindrop.quantities import place
from millstream_lab.stored import read_csv

RESULTS = Path(__file__).parents[1] / "results"
SHUFFLES = 40
lab.load()
NAMES = EXPERIMENTS.names()


def mutants(rows: list[Row], columns: tuple[str, ...]) -> Iterator[list[Row]]:
    """The rows with their measured columns inverted, scaled, bent, levelled or dealt anew."""
    for some in (columns, *((column,) for column in columns)):
        yield _mapped(rows, some, lambda value, low, high, place: low + high - value)
        yield _mapped(rows, some, lambda value, low, high, place: value * 30)
        yield _mapped(rows, some, lambda value, low, high, place: value / 30)
        yield _mapped(rows, some, lambda value, low, high, place: (low + high) / 2)
        yield _mapped(rows, some, lambda value, low, high, place: value * (0.2 + 5 * place))
        yield _mapped(rows, some, lambda value, low, high, place: value * (5.2 - 5 * place))
        yield _mapped(rows, some, lambda value, low, high, place: value * value / (high or 1))
        yield _mapped(rows, some, lambda value, low, high, place: value - 1)
        yield _mapped(rows, some, lambda value, low, high, place: value + 1000 * (1 - place))
    yield rows[:-1]
    for lag in (-3, 3):  # courses that are early or late
        yield [
            {**row, **{column: rows[(number - lag) % len(rows)][column] for column in columns}}
            for number, row in enumerate(rows)
        ]
    for seed in range(SHUFFLES):
        yield _dealt(rows, columns, random.Random(seed))
    if "died_at_minute" in columns:
        yield from _deaths(rows)


def _mapped(rows, columns, change):  # type: ignore[no-untyped-def]
    made = [dict(row) for row in rows]
    for column in columns:
        known = [float(r[column]) for r in rows if isinstance(r.get(column), (int, float))]
        if not known:
            continue
        low, high = min(known), max(known)
        for number, row in enumerate(made):
            if isinstance(row[column], (int, float)):
                value = change(float(row[column]), low, high, number / len(rows))
                row[column] = bool(round(value)) if isinstance(row[column], bool) else value
    return made


def _dealt(rows: list[Row], columns: tuple[str, ...], chance: random.Random) -> list[Row]:
    order = list(range(len(rows)))
    chance.shuffle(order)
    return [
        {**row, **{column: rows[other][column] for column in columns}}
        for row, other in zip(rows, order, strict=True)
    ]


def _deaths(rows: list[Row]) -> Iterator[list[Row]]:
    """Nobody died; all did; only those on one processor did, at the minute that is claimed."""
    yield [{**row, "died_at_minute": None} for row in rows]
    yield [{**row, "died_at_minute": 9.0} for row in rows]
    yield [{**row, "died_at_minute": 20.0 if row["processors"] == 1 else None} for row in rows]


def rows_of(experiment: Experiment) -> list[Row]:
    """The stored run, or rows made up where none is stored that speaks of all claims."""
    path = RESULTS / f"{experiment.name}.csv"
    rows = read_csv(path) if path.exists() else []
    if rows and all(held(claim.bound, rows) is not None for claim in experiment.claims):
        return rows
    return GENERATED[experiment.name]


def held(bound: Bound, rows: list[Row]) -> bool | None:
    try:
        value = measured(bound, rows)
    except (ZeroDivisionError, ValueError, IndexError):
        return None
    return None if isnan(value) else bound.contains(value)


def survives(claim: Claim, rows: list[Row], columns: tuple[str, ...]) -> bool:
    """Whether no mutant flips the verdict, nor any on the way to one: a range may be narrow."""
    before = held(claim.bound, rows)
    assert before is not None, f"the stored run has nothing for {claim.text!r}"
    if any(held(claim.bound, mutant) is (not before) for mutant in mutants(rows, columns)):
        return False
    return not any(
        held(claim.bound, _between(rows, mutant, columns, share)) is (not before)
        for mutant in mutants(rows, columns)
        for share in (0.01, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5)
    )


def _between(
    rows: list[Row], mutant: list[Row], columns: tuple[str, ...], share: float
) -> list[Row]:
    """The rows, moved so far towards the mutant."""
    return [
        {
            **row,
            **{
                column: row[column] + share * (other[column] - row[column])
                for column in columns
                if isinstance(row.get(column), (int, float))
                and isinstance(other.get(column), (int, float))
            },
        }
        for row, other in zip(rows, mutant, strict=False)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_does_not_survive_mutated_data(name: str) -> None:
    experiment = EXPERIMENTS.get(name)
    rows = rows_of(experiment)
    left = [claim.text for claim in experiment.claims if survives(claim, rows, experiment.measured)]
    assert experiment.claims
    assert not left


def test_there_are_58_experiments_of_the_works_and_some_beyond() -> None:
    beyond = {"network-real", "placement-better", "placement-growth", "placement-model"}
    beyond |= {"raindrop-goals", "raindrop-selectors", "raindrop-unseen", "raindrop-worldcup"}
    assert len(set(NAMES) - beyond) == 58


def cuts(rows: list[Row], columns: tuple[str, ...]) -> Iterator[list[Row]]:
    """Runs that were smaller: the first rows only, one value of a label only, small labels."""
    for share in (0.02, 0.1, 0.3):
        yield rows[: max(1, int(share * len(rows)))]
    for label in (name for name in rows[0] if name not in columns):
        seen = list(dict.fromkeys(row[label] for row in rows))
        yield [row for row in rows if row[label] == seen[0]]
        if all(isinstance(value, (int, float)) for value in seen if value is not None):
            yield [{**row, label: 0.001 * (row[label] or 0)} for row in rows]
    if "died_at_minute" in columns:
        yield [{**row, "died_at_minute": 9.0} for row in rows]
    # A need may ask that something happened: that a move was made, that load was high.
    yield [{**row, **{c: 0 for c in (*columns, "load") if c in row}} for row in rows]


@pytest.mark.parametrize("name", NAMES)
def test_a_smaller_run_or_one_in_which_something_died_is_not_comparable(name: str) -> None:
    experiment = EXPERIMENTS.get(name)
    rows = rows_of(experiment)
    small = list(cuts(rows, experiment.measured))
    never = [
        (claim.text, need.what)
        for claim in experiment.claims
        for need in claim.needs
        if all(held(need, cut) is True for cut in small)
    ]
    assert not never


def test_a_missed_need_outweighs_the_quantity() -> None:
    claim = Claim(
        "more is better",
        Bound("more", lambda rows: rows[0]["more"], low=1.0),
        (Bound("hosts", lambda rows: rows[0]["hosts"], low=50),),
    )
    found = {
        (more, hosts): judged(claim, [{"more": more, "hosts": hosts}]).verdict
        for more in (0, 2)
        for hosts in (10, 50)
    }
    assert found == {
        (0, 10): Verdict.INCOMPARABLE,
        (0, 50): Verdict.FAILS,
        (2, 10): Verdict.INCOMPARABLE,
        (2, 50): Verdict.HOLDS,
    }
    assert judged(claim, [{"more": 0, "hosts": 50}]).reason == "not explained"
    assert judged(claim, [{"more": 2, "hosts": 10}]).reason == "hosts: 10, needed at least 50"


def test_a_figure_is_missed_on_both_sides() -> None:
    bound = Bound("gain", lambda rows: rows[0]["gain"], 0.33, 0.33, 0.1, "+%")
    assert [bound.contains(gain) for gain in (0.2, 0.25, 0.33, 0.42, 1.85)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert bound.wanted() == "+33 %, tolerance 10 %"


def test_a_claim_that_cannot_fail_is_found() -> None:
    """'The rate suffers slightly' once allowed any place of five."""
    experiment = EXPERIMENTS.get("raindrop-6.6")
    rows = rows_of(experiment)
    any_place = Claim(
        "suffers slightly", Bound("place of five", place("roulette", "rate"), None, 5)
    )
    assert survives(any_place, rows, experiment.measured)
    second = Claim("nearly best", Bound("place", place("roulette", "delay"), None, 2))
    assert not survives(second, rows, experiment.measured)
