"""Tokens and certificates of daemons: given as files, so that no list of processes shows them.

A daemon that only this machine reaches and that was given no token takes the user's own.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.client.keyring import user_token
from millstream.core.errors import UsageError
from millstream.core.lock import unwritable

if TYPE_CHECKING:
    from millstream.edge.http.serving import Tls

# Options of daemons.
TokenFile = Annotated[Path | None, typer.Option(help="File with the token; your own without it.")]
Certificate = Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")]
Key = Annotated[Path | None, typer.Option(help="Its key (PEM).")]
PlainHttp = Annotated[bool, typer.Option("--plain-http", help="No TLS on a safe network.")]
Authority = Annotated[Path | None, typer.Option(help="Certificates that are believed (PEM).")]


def daemon_token(file: Path | None, host: str) -> str | None:
    """What a daemon asks for; nothing where a token must be given."""
    if file is None:
        from millstream.edge.http.serving import is_loopback  # noqa: PLC0415

        return user_token() if is_loopback(host) else None
    return token_of(file)


def token_of(file: Path) -> str:
    """The token in a file."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{file} cannot be read", detail=why or "") from None
    if not token:
        raise UsageError(f"{file} holds no token")
    return token


def tls_of(certificate: Path | None, key: Path | None, *, plain: bool) -> "Tls":
    from millstream.edge.http.serving import Tls  # noqa: PLC0415

    return Tls(existing_file(certificate), existing_file(key), plain)


def private_home(home: Path) -> None:
    """A folder for its owner alone, as is all that this process and its Java process write."""
    os.umask(0o077)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid == os.getuid():
            home.chmod(0o700)
    except OSError as error:
        raise unwritable(home, error) from None


def existing_file(path: Path | None) -> str | None:
    if path is not None and not path.is_file():
        raise UsageError(f"there is no file {path}")
    return None if path is None else str(path)
