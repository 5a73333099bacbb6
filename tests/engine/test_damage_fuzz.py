"""Random flips and truncations anywhere in a home: nothing wrong is believed, nothing delivered
is destroyed, and every message is one of ours. A failure prints its seed.
"""

import os
import random
import shutil
from pathlib import Path

import pytest
from damaged_homes import all_there, delivered, expected, gone_on, half_done

from millstream.core.errors import MillstreamError
from millstream.store.integrity.scrub import scrub

HOMES = 8
TRIALS = 25  # damages of each home


def damage(out: Path, chance: random.Random) -> Path:
    """Flips a bit of a file, or cuts it short; gives the file."""
    kinds = (
        list((out / ".millstream").glob("ledger.db*")),
        list((out / ".millstream" / "segments").glob("*.parquet")),
        list(out.glob("*/part-*.parquet")),
    )
    chosen = sorted(chance.choice([k for k in kinds if k]))
    path = chance.choice([p for p in chosen if not p.name.endswith("-shm")])
    data = bytearray(path.read_bytes())
    if not data or chance.random() < 0.25:
        path.write_bytes(data[: chance.randrange(len(data) + 1)])
    else:
        for _ in range(chance.choice((1, 1, 1, 8))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    return path


def readable(folder: Path, changed: Path) -> bool:
    """Whether the damage is not in what was delivered here."""
    return folder not in changed.parents


def one_trial(whole: Path, out: Path, chance: random.Random) -> None:
    """Damages a copy of a home, goes on with it, and looks at what was said and what is there."""
    shutil.copytree(whole, out)
    changed = damage(out, chance)
    same = changed.read_bytes() == (whole / changed.relative_to(out)).read_bytes()
    if changed.name.startswith("part-") and not same:  # a delivered file: only a check can tell
        assert str(changed) in {f.file for f in scrub(out).findings}
    outcome = gone_on(out)
    if outcome.said is not None:
        assert isinstance(outcome.said, MillstreamError)
        assert outcome.said.detail
        assert outcome.said.hint
    for query in ("one", "two"):
        if not readable(out / query, changed):
            continue
        found, wanted = delivered(out / query), expected(query)
        assert all_there(whole / query) <= all_there(out / query), "delivered rows are gone"
        assert found <= wanted, "rows that are wrong, or twice"
        if outcome.said is None:
            assert found == wanted, "rows are missing and nobody said so"


def many(tmp_path: Path, homes: int, trials: int, seed: int) -> None:
    for number in range(homes):
        chance = random.Random(f"{seed}.{number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        whole = half_done(folder, chance)
        shutil.copytree(whole, folder / "same")
        assert gone_on(folder / "same").said is None, "without damage all is well"
        for trial in range(trials):
            place = folder / str(trial)
            try:
                one_trial(whole, place, random.Random(f"{seed}.{number}.{trial}"))
            except BaseException as error:
                error.add_note(f"seed {seed}, home {number}, trial {trial}")
                raise
            shutil.rmtree(place)


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power stays on here."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def test_damage_is_never_believed(tmp_path: Path) -> None:
    many(tmp_path, HOMES, TRIALS, 1)


@pytest.mark.soak
def test_damage_is_never_believed_however_often(tmp_path: Path) -> None:
    seed = int(os.environ.get("MILLSTREAM_SEED", random.randrange(1 << 30)))
    many(tmp_path, 100, 100, seed)
