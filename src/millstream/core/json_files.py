"""Small JSON files of ours: they appear whole or not at all, and stay."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def read_json(path: Path) -> dict[str, Any] | None:
    """What such a file holds; None where it is missing or broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
