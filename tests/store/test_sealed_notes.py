"""Small files that results depend on: whatever bit of them changes, nobody believes it."""

import json
from pathlib import Path

import pytest

from millstream.app.runs.folder import RunFolder
from millstream.client.pulled_delivery import POSITIONS, Positions
from millstream.core.errors import DamageError, MillstreamError
from millstream.core.json_files import DIGEST, read_sealed, write_sealed
from millstream.store.integrity.scrub import scrub
from millstream.store.ledger import Ledger

VALUE = {"q": {"next": 17, "rows": 1234, "ended": False}, "delivery q": {"id": "ab3f"}, "x": None}


@pytest.fixture
def note(tmp_path: Path) -> Path:
    write_sealed(tmp_path / "note.json", VALUE)
    return tmp_path / "note.json"


def test_what_is_sealed_is_read(note: Path) -> None:
    assert read_sealed(note, "remedy") == VALUE
    assert read_sealed(note.with_name("none.json"), "remedy") is None
    note.write_text(json.dumps(VALUE))  # of a former version
    assert read_sealed(note, "remedy") == VALUE


def test_each_bit_counts(note: Path) -> None:
    whole = note.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            note.write_bytes(data)
            try:
                found = read_sealed(note, "remedy")
            except DamageError:
                continue
            assert found is not None
            assert {k: v for k, v in found.items() if k in VALUE} == VALUE
            assert len(found.keys() - VALUE) <= 1, "but the digest's own name"


@pytest.mark.parametrize("text", [b"", b"[]", b"12", b'"x"', b"\xff", b"[" * 100_000, b"null"])
def test_what_is_no_note_is_damage(note: Path, text: bytes) -> None:
    note.write_bytes(text)
    with pytest.raises(DamageError, match="is damaged") as error:
        read_sealed(note, "remedy")
    assert str(note) in error.value.message
    assert error.value.hint == "remedy"


def test_positions_of_deliveries_are_sealed(tmp_path: Path) -> None:
    Positions(tmp_path).note("q", next=17, rows=1234, ended=False)
    file = tmp_path / POSITIONS
    assert Positions(tmp_path).of("q")["next"] == 17
    file.write_text(file.read_text().replace("17", "19"))
    with pytest.raises(DamageError, match=r"positions\.json is damaged") as error:
        Positions(tmp_path)
    assert "delivered files stay as they are" in error.value.hint


@pytest.mark.parametrize("name", ["job.json", "summary.json"])
def test_notes_of_a_run_are_sealed(tmp_path: Path, name: str) -> None:
    folder = RunFolder(tmp_path)
    folder.home.mkdir()
    Ledger(folder.home / "ledger.db").close()
    write_sealed(folder.home / name, {"parts": {}, "queries": {"q": {"rows": 10}}})
    assert not scrub(tmp_path).findings
    file = folder.home / name
    file.write_text(file.read_text().replace("10", "11"))
    (found,) = scrub(tmp_path).findings
    assert found.file == str(file)
    assert found.remedy
    with pytest.raises(MillstreamError, match="is damaged") as error:
        folder.summary() if name == "summary.json" else folder.registered()
    assert error.value.exit_code == DamageError.exit_code
    assert DIGEST not in VALUE
