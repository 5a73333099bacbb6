"""Addresses of daemons: checked where they enter, and what it is called if nobody answers there."""

import httpx

from millstream.errors import UsageError

# httpx counts an address that it cannot read as no error of HTTP.
UNREACHABLE = (httpx.HTTPError, httpx.InvalidURL)


def checked_url(text: str, option: str) -> str:
    """An address that can be asked; refused with the option that gives it.

    >>> checked_url("http://127.0.0.1:8360/", "--manager")
    'http://127.0.0.1:8360'
    """
    try:
        url = httpx.URL(text)
        good = url.scheme in ("http", "https") and bool(url.host)
    except (httpx.InvalidURL, UnicodeError):
        good = False
    if not good:
        raise UsageError(f"{text!r} is no address", hint=f"{option} http://HOST:PORT")
    return text.rstrip("/")
