"""Trouble with the machine in words: one line of a long error, and a disk that is full."""

import errno
import re

from millstream.core.errors import ResourceError

VALUE_MAX, MESSAGE_MAX = 120, 600  # characters of a message that people read
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def shortened(message: str) -> str:
    """A message whose quoted values are cut: rows of a megabyte are no news.

    >>> shortened("The value '" + "x" * 1000 + "' is malformed")[100:]
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is malformed"
    """
    long_value = rf"'([^']{{{VALUE_MAX}}})[^']*'"
    cut = re.sub(long_value, r"'\1...'", message)
    return cut if len(cut) <= MESSAGE_MAX else f"{cut[:MESSAGE_MAX]}..."


def first_line(error: BaseException) -> str:
    """What Spark has to say in one line: the innermost cause, else its own message.

    >>> first_line(ValueError("[A.B] Bad.  SQLSTATE: 42\\n at x\\nCaused by: java.io.E: why\\n"))
    'why'
    >>> first_line(ValueError("An error occurred while calling o1.f.\\n: java.lang.E: heap\\n"))
    'java.lang.E: heap'
    """
    text = str(error)
    causes = re.findall(r"^Caused by: [\w.$]+: (.+)$", text, re.MULTILINE)
    if causes:
        return str(causes[-1]).strip()[:300]
    match = re.search(r"\[[A-Z_]+(?:\.[A-Z_]+)*\] (.*?)\s*(?:SQLSTATE: \w+|\n|$)", text)
    match = match or re.match(r"An error occurred while calling .*\n: (.+)", text)
    return (match[1] if match else text.strip().split("\n")[0])[:300]


def disk_full(error: BaseException) -> ResourceError | None:
    """The error to raise instead where a disk is full, however the machine says so."""
    full = isinstance(error, OSError) and error.errno in NO_SPACE
    if not full and "No space left on device" not in str(error):
        return None
    return ResourceError(
        "the disk is full",
        detail=str(error) if full else "Spark could not write",
        hint="free some space and run the same command again: nothing is lost",
    )
