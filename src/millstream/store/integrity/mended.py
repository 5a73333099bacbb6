"""What was damaged in a home and is right again: a small file beside the ledger, for `check`."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from millstream.core.errors import StateError
from millstream.core.json_files import read_sealed, write_sealed

NOTE = "mended.json"
KEPT = 200


@dataclass(frozen=True, slots=True)
class Mended:
    """A file of segments that was put right."""

    file: str
    stream: str  # one whose rows are in it
    problem: str
    source: str  # the processor whose copy it came from
    at_s: float


def note_mended(home: Path, mended: Mended) -> None:
    known = [asdict(m) for m in mended_in(home)][1 - KEPT :]
    write_sealed(home / NOTE, {"files": [*known, asdict(mended)]})


def mended_in(home: Path) -> list[Mended]:
    """The last ones, the latest at the end; nothing where the file cannot be believed."""
    with suppress(StateError, TypeError, KeyError):
        found = read_sealed(home / NOTE, "remove it") or {"files": []}
        return [Mended(**one) for one in found["files"]]
    return []
