"""A lock on a folder, held by one process at a time and let go of when it dies, however it dies."""

import fcntl
import os
from pathlib import Path

from millstream.core.errors import UsageError


def unwritable(folder: Path, error: OSError) -> UsageError:
    """What to say of a folder that is read-only, or somebody else's."""
    return UsageError(
        f"cannot write to {folder}: {(error.strerror or str(error)).lower()}",
        hint="choose another folder",
    )


class FolderLock:
    """Use with `with`; `shown` is the folder as the user knows it."""

    def __init__(self, home: Path, shown: Path | None = None) -> None:
        self._home, self._shown = home, shown or home
        self._handle: int | None = None

    def __enter__(self) -> "FolderLock":
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self._home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise unwritable(self._shown, error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise UsageError(
                f"{self._shown} is in use by another run (pid {holder})",
                hint="wait until it ends, or choose another folder",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)  # gives the lock back
            self._handle = None


def locked(home: Path) -> bool:
    """Whether some process holds the folder now."""
    try:
        handle = os.open(home / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
