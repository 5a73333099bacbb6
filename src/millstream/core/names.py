"""Names that users give to streams and queries: many become those of folders."""

import re

NAME_BYTES_MAX = 100


def problem_of(name: str) -> str:
    """What is wrong with a name; empty where nothing is.

    >>> problem_of("requests"), problem_of("sys.queries"), problem_of("..")
    ('', '', "'..' cannot be a name: it begins with a dot or has a slash in it")
    """
    if not name:
        return "a name is empty"
    if name.startswith(".") or re.search(r"[/\\\x00-\x1f]", name):
        return f"{name!r} cannot be a name: it begins with a dot or has a slash in it"
    if re.search(r"[\ud800-\udfff]", name):
        return f"{name!r} cannot be a name: it is not a text"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"a name is longer than {NAME_BYTES_MAX} bytes"
    return ""
