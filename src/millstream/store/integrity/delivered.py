"""Delivered files: the digest of each stands in a hidden list beside its folder.

The list grows by a line a file, as the folder does; the last line of a name counts. It is not
synced: a file whose line was lost in a power failure is reported as unchecked, not as damaged.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from millstream.core.errors import DamageError
from millstream.store.integrity.digests import LENGTH, digest_of_file

ENDING = ".digests"


def list_of(folder: Path) -> Path:
    """The list of a folder's digests; whoever reads all files of the folder does not meet it."""
    return folder.parent / f".{folder.name}{ENDING}"


def folders_in(place: Path) -> list[Path]:
    """The folders of delivered files in a place."""
    lists = place.glob(f".*{ENDING}")
    return sorted(place / p.name.removeprefix(".").removesuffix(ENDING) for p in lists)


def note_digest(folder: Path, name: str, digest: str) -> None:
    with list_of(folder).open("a", encoding="utf-8") as file:
        file.write(f"{digest} {name}\n")


def noted_digests(folder: Path) -> dict[str, str]:
    """The digests of a folder's files by name; lines that are no such thing are passed over."""
    found: dict[str, str] = {}
    try:
        text = list_of(folder).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    for line in text.splitlines():
        digest, _, name = line.partition(" ")
        if len(digest) == LENGTH and name:
            found[name] = digest
    return found


def differences(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each delivered file of a folder, and what is wrong with it; empty where nothing is."""
    noted = noted_digests(folder)
    for name in sorted(noted):
        path = folder / name
        try:
            same = digest_of_file(path) == noted[name]
        except FileNotFoundError:
            continue  # whoever has taken it away; or it never appeared under its name
        except OSError as error:
            yield path, f"the file cannot be read: {error.strerror}"
            continue
        yield path, "" if same else "its digest is not the one that was written"


def without_digest(folder: Path) -> list[Path]:
    """Delivered files whose line is gone: nobody can tell whether they are as they were."""
    noted = noted_digests(folder)
    return [path for path in sorted(folder.glob("part-*")) if path.name not in noted]


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it, durably."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        handle = os.open(made.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def older_ledger(path: Path, query: str, delivered: int) -> DamageError:
    return DamageError(
        f"ledger {path} is older than the files that it has delivered",
        file=str(path),
        detail=f"of {query} number {delivered} was delivered, which the ledger does not know; "
        "nothing was removed",
        hint="put a copy of ledger.db and segments from one moment in place, or choose an empty "
        "folder for a new run: delivered files stay as they are",
    )
