"""Digests of files, and which files of a folder this process has already checked.

A file is read in full the first time that this process reads it, and again when its size, time or
inode are others than then. What the process has written itself counts as checked: the digest is
that of the bytes in memory. Damage behind the file system's back after that, in memory or on a disk
whose pages are read anew, is found by the next process, or by `millstream check`.
"""

import hashlib
import os
import threading

from millstream.core.errors import DamageError

LENGTH = 32  # hexadecimal digits of a digest: half of SHA-256, which processors compute themselves
REMEDY = (
    "put the file back from a copy of the home, and the query continues within a minute; or drop "
    "the query and register it again; `millstream check HOME` names everything that is damaged"
)


def digest_of(data: "bytes | memoryview") -> str:
    """The digest of bytes.

    >>> digest_of(b"a row") == digest_of(b"a rov"), len(digest_of(b""))
    (False, 32)
    """
    return hashlib.sha256(data).hexdigest()[:LENGTH]


def digest_of_file(path: "str | os.PathLike[str]") -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:LENGTH]


class CheckedFiles:
    """Which files are known to hold what they should, by what the file system says of them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.Lock()

    def written(self, path: str) -> None:
        """This process has just written the file."""
        known = _identity(path)
        if known is not None:
            with self._lock:
                self._known[path] = known

    def forget(self, path: str) -> None:
        with self._lock:
            self._known.pop(path, None)

    def check(self, path: str, digest: str, stream: str) -> None:
        """Refuses a file of a stream that is gone, or holds other bytes than were written."""
        found = _identity(path)
        if found is not None and (self._known.get(path) == found or not digest):
            return
        problem = "the file is missing" if found is None else _difference(path, digest)
        if problem:
            raise damaged_file(path, stream, problem)
        assert found is not None
        with self._lock:
            self._known[path] = found


def damaged_file(path: str, stream: str, problem: str) -> DamageError:
    return DamageError(
        f"a segment of stream {stream} is damaged: {path}", file=path, detail=problem, hint=REMEDY
    )


def _difference(path: str, digest: str) -> str:
    """What is wrong with a file that is there; empty where nothing is."""
    try:
        found = digest_of_file(path)
    except OSError as error:
        return f"the file cannot be read: {error.strerror}"
    return "" if found == digest else f"its digest is {found}, written was {digest}"


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
