"""Files that a command writes where its user wants them."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.core.errors import UsageError


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Files that cannot be made there are the user's mistake; a full disk is told as such."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UsageError(f"cannot write to {folder}", detail=str(error)) from error
