"""Keys of `millstream top`: one letter at a time from a terminal, and what each of them means.

Where standard input is no terminal nothing is read, and only Ctrl-C ends it.
"""

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SORT_KEYS: Mapping[str, str] = {
    "d": "delay",
    "l": "load",
    "a": "ratio",
    "r": "rows",
    "n": "name",
}
LEAVE, HELP, HOLD = "q", "?", " "
HELP_LINES = (
    "q       leave",
    "?       this list, and away with it",
    "space   freeze and unfreeze the display",
    *(f"{key}       order of queries: {name}" for key, name in SORT_KEYS.items()),
)


@contextmanager
def key_by_key() -> Iterator[bool]:
    """A terminal that gives every key at once and shows none; whether there is one."""
    if not sys.stdin.isatty():
        yield False
        return
    import termios  # noqa: PLC0415  (no terminal of other systems has it)
    import tty  # noqa: PLC0415

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield True
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def pressed(seconds: float, *, keys: bool) -> str:
    """The keys that come in this time, as soon as one does; none where there is no keyboard."""
    if not keys:
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return ""
    read = os.read(sys.stdin.fileno(), 64)
    return read.decode("utf-8", "ignore") if read else LEAVE  # the terminal has gone
