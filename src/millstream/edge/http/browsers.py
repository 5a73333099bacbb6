"""How a browser gets in without a token in its address: a link that opens once, then a cookie.

The cookie is a secret of its own, good for this server as long as it runs; scripts cannot read it,
and no page of another site makes the browser send it. Its name has the port, because browsers keep
cookies for a host and not for a port.
"""

import secrets

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from millstream.edge.http.roles import Role

ENTRY_PATH, KEY = "/", "key"
KEPT_MAX = 1000  # links and cookies; the oldest go


class Browsers:
    """Who was let in by a link."""

    def __init__(self) -> None:
        self._links: dict[str, Role] = {}
        self._cookies: dict[str, Role] = {}

    def link(self, role: Role) -> str:
        """A path that lets the one in who opens it first."""
        return f"{ENTRY_PATH}?{KEY}={_noted(self._links, role)}"

    def role_of(self, request: Request) -> Role:
        has = self._cookies.get(request.cookies.get(_cookie(request), ""), Role.OPEN)
        if request.scope["path"] == ENTRY_PATH:
            has = max(has, self._links.get(request.query_params.get(KEY, ""), Role.OPEN))
        return has

    def entered(self, request: Request) -> Response | None:
        """The answer to a link, which is used up; None where a request came by none."""
        if KEY not in request.query_params:
            return None
        answer = RedirectResponse(ENTRY_PATH, 303)
        role = self._links.pop(request.query_params[KEY], None)
        if role is not None:
            secure = request.url.scheme == "https"
            answer.set_cookie(
                _cookie(request), _noted(self._cookies, role), httponly=True, samesite="strict",
                secure=secure,
            )  # fmt: skip
        return answer


def _noted(known: dict[str, Role], role: Role) -> str:
    made = secrets.token_urlsafe(24)
    while len(known) >= KEPT_MAX:
        del known[next(iter(known))]
    known[made] = role
    return made


def _cookie(request: Request) -> str:
    return f"millstream_{request.url.port or request.url.scheme}"
