"""How a browser gets in without a token in its address: a link that opens once, then a cookie.

The cookie is signed with the server's secret, so that a server which was started again knows it;
scripts cannot read it, and no page of another site makes the browser send it. Its name has the
port, because browsers keep cookies for a host and not for a port.
"""

import hmac
import secrets
import time

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from millstream.edge.http.roles import Role

ENTRY_PATH, KEY = "/", "key"
LINKS_MAX = 1000  # that nobody has opened; the oldest go
COOKIE_S = 30 * 86400.0
DIGITS_MAX = 20  # of a cookie's end
# Not a redirect: browsers send a strict cookie only where a page of its own site asks.
ENTERED = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>Millstream</title>'


class Browsers:
    """Who was let in by a link."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._links: dict[str, Role] = {}

    def link(self, role: Role) -> str:
        """A path that lets the one in who opens it first."""
        made = secrets.token_urlsafe(24)
        while len(self._links) >= LINKS_MAX:
            del self._links[next(iter(self._links))]
        self._links[made] = role
        return f"{ENTRY_PATH}?{KEY}={made}"

    def role_of(self, request: Request) -> Role:
        has = self._signed_role(request.cookies.get(_cookie(request), ""))
        if request.scope["path"] == ENTRY_PATH:
            has = max(has, self._links.get(request.query_params.get(KEY, ""), Role.OPEN))
        return has

    def entered(self, request: Request) -> Response | None:
        """The answer to a link, which is used up; None where a request came by none."""
        role = self._links.pop(request.query_params.get(KEY, ""), None)
        if role is None:
            return None
        answer = HTMLResponse(ENTERED)
        answer.set_cookie(
            _cookie(request), self._signed(role, int(time.time() + COOKIE_S)), httponly=True,
            samesite="strict", secure=request.url.scheme == "https",
        )  # fmt: skip
        return answer

    def _signed(self, role: Role, until_s: int) -> str:
        said = f"{role.value}.{until_s}"
        return f"{said}.{hmac.digest(self._secret, f'browser {said}'.encode(), 'sha256').hex()}"

    def _signed_role(self, cookie: str) -> Role:
        role, _, rest = cookie.partition(".")
        until = rest.partition(".")[0]
        known = role in {str(one.value) for one in Role}
        if not (known and until.isascii() and until.isdigit() and len(until) < DIGITS_MAX):
            return Role.OPEN
        found = Role(int(role))
        good = hmac.compare_digest(cookie.encode(), self._signed(found, int(until)).encode())
        return found if good and int(until) > time.time() else Role.OPEN


def _cookie(request: Request) -> str:
    return f"millstream_{request.url.port or request.url.scheme}"
