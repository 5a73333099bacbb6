"""The keyring of a user: which token opens which daemon of this machine, so that no user types one.

A folder that only its owner can read holds the user's own token, made when it is first needed, and
one note for each daemon that listens here: its address, its process and the token it asks for.
Clients look an address up before they ask it. A note whose process is gone is ignored: another
program may listen at that port by now, and must not get a token.
"""

import contextlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from millstream.core.errors import ResourceError

FOLDER = "MILLSTREAM_KEYS"
TOKEN = "MILLSTREAM_TOKEN"
OWNER_ONLY, OWNER_FOLDER = 0o600, 0o700
NOTE_BYTES_MAX = 4096


def _places() -> tuple[Path, ...]:
    """Where the folder may be; the second is for a user without a home."""
    given = os.environ.get(FOLDER)
    if given:
        return (Path(given),)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "millstream", Path(tempfile.gettempdir()) / f"millstream-{os.getuid()}"


def folder() -> Path:
    """Where keys lie: made for its owner alone, refused where it is another's."""
    for place in _places():
        try:
            place.mkdir(mode=OWNER_FOLDER, parents=True, exist_ok=True)
        except OSError:
            continue
        if not _own(place):
            raise _unusable(place, "it belongs to another user")
        if stat.S_IMODE(place.stat().st_mode) != OWNER_FOLDER:
            place.chmod(OWNER_FOLDER)
        return place
    raise _unusable(_places()[0], "it cannot be made")


def _own(place: Path) -> bool:
    try:
        found = place.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _unusable(path: Path, why: str) -> ResourceError:
    hint = f"name a folder of your own in {FOLDER}"
    return ResourceError(f"the folder of keys {path} is of no use", detail=why, hint=hint)


def user_token() -> str:
    """The token of the environment, or the user's own; made at first use, the same ever after."""
    given = os.environ.get(TOKEN)
    if given:
        return given
    path = folder() / "token"
    with contextlib.suppress(FileNotFoundError):
        if known := path.read_text(encoding="utf-8").strip():
            return known
        path.unlink(missing_ok=True)  # a loss of power has emptied it; nothing may open the door
    draft = path.with_name(f".token-{secrets.token_hex(8)}")
    _write(draft, secrets.token_urlsafe(32), synced=True)
    with contextlib.suppress(FileExistsError):  # two made one at once: the first counts
        os.link(draft, path)
    draft.unlink()
    return path.read_text(encoding="utf-8").strip()


def _write(path: Path, text: str, *, synced: bool = False) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        if synced:
            file.flush()
            os.fsync(handle)


def _address(url: str) -> str:
    """An address as the name of a file.

    >>> _address("http://127.0.0.1:8360/status"), _address("https://[::1]:80")
    ('127.0.0.1_8360', '--1_80')
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{(parts.hostname or '').replace(':', '-').replace('/', '-')}_{port}"


@contextlib.contextmanager
def listed(urls: tuple[str, ...], token: str | None) -> Iterator[None]:
    """Notes where this process listens, for as long as the block lasts."""
    if not token:
        yield
        return
    notes = folder() / "daemons"
    notes.mkdir(mode=OWNER_FOLDER, exist_ok=True)
    _forget_dead(notes)
    mine = [notes / _address(url) for url in urls]
    for path in mine:
        draft = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        _write(draft, json.dumps({"pid": os.getpid(), "token": token}))
        draft.replace(path)
    try:
        yield
    finally:
        for path in mine:
            if _note(path)[0] == os.getpid():
                path.unlink(missing_ok=True)


def _forget_dead(notes: Path) -> None:
    for path in notes.iterdir():
        if not _alive(_note(path)[0]):
            path.unlink(missing_ok=True)


def _note(path: Path) -> tuple[int, str]:
    """Whose note it is, and the token; process 0 where there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            told = json.loads(file.read(NOTE_BYTES_MAX))
        return int(told["pid"]), str(told["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:  # gone, or another user's who was given its number
        return False
    return process > 0


def token_for(url: str) -> str | None:
    """The token for an address, where a daemon of this user listens there."""
    try:
        name = _address(url)
    except ValueError:  # no port that could be
        return None
    for place in _places():
        process, token = _note(place / "daemons" / name) if _own(place) else (0, "")
        if _alive(process):
            return token
    return None


def introduced(url: str) -> tuple[str, str | None]:
    """An address with the token for it; `localhost` becomes the address that a daemon listens on.

    Another user could listen on the same port of the other address that the name stands for.
    """
    parts = urlsplit(url)
    if parts.hostname == "localhost":
        named = url.replace("localhost", "127.0.0.1", 1)
        token = token_for(named)
        return (named, token) if token else (url, None)
    return url, token_for(url)
