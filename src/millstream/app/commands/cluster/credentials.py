"""Tokens and certificates of daemons: given as files, so that no list of processes shows them."""

from pathlib import Path

from millstream.core.errors import UsageError


def token_of(file: Path | None) -> str | None:
    """The token in a file."""
    if file is None:
        return None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{file} cannot be read", detail=why or "") from None
    if not token:
        raise UsageError(f"{file} holds no token")
    return token


def existing_file(path: Path | None) -> str | None:
    if path is not None and not path.is_file():
        raise UsageError(f"there is no file {path}")
    return None if path is None else str(path)
