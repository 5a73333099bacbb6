"""Small JSON files of ours: they appear whole or not at all, and stay.

A sealed one holds a digest of the rest: what results depend on is not believed when a bit of it
has changed.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.errors import DamageError, StateError


def write_whole(path: Path, value: Mapping[str, Any]) -> None:
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, default=str)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


DIGEST = "digest"


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """The same with a digest of it."""
    plain = json.loads(json.dumps(dict(value), default=str))
    write_whole(path, plain | {DIGEST: _digest(plain)})


def read_sealed(path: Path, remedy: str) -> dict[str, Any] | None:
    """What a sealed file holds; None where there is none. One of a former version has no digest."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read", detail=error.strerror or "") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.pop(DIGEST, _digest(found)) != _digest(found):
        raise DamageError(
            f"{path} is damaged", file=str(path), detail="it is not what was written", hint=remedy
        )
    return found


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> dict[str, Any] | None:
    """What such a file holds; None where it is missing or broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
