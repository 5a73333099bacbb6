"""Secrets in options of sources and sinks: by reference where written, hidden where they show.

`env:NAME` and `file:PATH` stand for a value that only the process which opens it reads, at
that moment; what is stored, told or logged is the reference. An option whose name says that it is a
secret is not told to anybody, even where it was written as it is.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.core.errors import UsageError

REFERENCES = ("env:", "file:")
NOT_REFERRED = ("path", "warehouse")  # places, which may be written as file:
HIDDEN = "(hidden)"
SECRET_BYTES_MAX = 1 << 16
_TELLING = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|(private|access|api)[._-]?key",
    re.IGNORECASE,
)

_IN_VALUE = re.compile(r"://[^/@\s]*:[^/@\s]+@|\bpassword\s*=", re.IGNORECASE)  # of an address


def refers(option: str, value: object) -> bool:
    """Whether an option stands for a secret that lies elsewhere.

    >>> refers("kafka.password", "env:PASSWORD"), refers("path", "file:/data")
    (True, False)
    """
    return (
        isinstance(value, str)
        and value.startswith(REFERENCES)
        and option.lower() not in NOT_REFERRED
    )


def resolved(owner: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the secrets that they refer to; `owner` is whose they are, in words."""
    return {
        option: _value(owner, option, str(value)) if refers(option, value) else value
        for option, value in options.items()
    }


def _value(owner: str, option: str, reference: str) -> str:
    kind, _, name = reference.partition(":")
    about = f"{owner}: the secret of option {option}"
    if kind == "env":
        if name not in os.environ:
            raise UsageError(
                f"{about} is not there", detail=f"{name} is not in the environment",
                hint=f"set {name} where the process is started",
            )  # fmt: skip
        return os.environ[name]
    try:
        with Path(name).open(encoding="utf-8") as file:
            return file.read(SECRET_BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"{about} cannot be read", detail=f"{name}: {why}",
            hint="a file that the process's user can read",
        ) from None  # fmt: skip


def masked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as anybody may see them.

    >>> masked({"kafka.password": "x", "kafka.Token": "env:T", "sep": ";"})
    {'kafka.password': '(hidden)', 'kafka.Token': 'env:T', 'sep': ';'}
    >>> masked({"servers": "nats://me:hunter2@broker:4222", "path": "/data/me@home"})
    {'servers': '(hidden)', 'path': '/data/me@home'}
    """
    return {
        option: HIDDEN if _secret(option, value) and not refers(option, value) else value
        for option, value in options.items()
    }


def _secret(option: str, value: object) -> bool:
    """Whether an option's name says so, or its value has a password in it."""
    in_value = isinstance(value, str) and _IN_VALUE.search(value)
    return bool(_TELLING.search(option) or in_value)


def without_secrets(text: str, written: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    """A text in which no secret of these options is left.

    >>> without_secrets("bad password hunter2", {"password": "hunter2"}, {"password": "hunter2"})
    'bad password (hidden)'
    """
    secret = {
        str(value)
        for option, value in used.items()
        if value != written.get(option) or _secret(option, value)
    }
    for value in sorted(secret - {""}, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def masked_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """A stream's table as anybody may see it."""
    options = table.get("options")
    told = {**table, "options": masked(options)} if isinstance(options, Mapping) else dict(table)
    return {**told, **masked({"path": told["path"]})} if "path" in told else told
