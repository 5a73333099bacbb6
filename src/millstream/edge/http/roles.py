"""Roles: what a token is good for, and what a route asks for.

One secret opens everything; tokens for less are derived from it, so that all daemons which share
the secret agree on them without another file. A route says which role it needs; one that says
nothing needs the highest, so that a new route is closed by itself.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from fastapi import Request

Endpoint = TypeVar("Endpoint")
_MARK = "millstream_role"
ROLE = "millstream.role"  # of who asks, in the scope of a request


class Role(IntEnum):
    """Each may do what those before it may do."""

    OPEN = 0  # needs no token: whether somebody is there
    READ = 1  # figures, plans and results
    SUBMIT = 2  # streams, rows, queries and their goals
    ADMIN = 3  # processors, moves, settings; what daemons say to each other


GIVEN = (Role.READ, Role.SUBMIT, Role.ADMIN)  # for which there are tokens


def role_token(secret: str, role: Role) -> str:
    """The token of a role.

    >>> role_token("secret", Role.ADMIN), role_token("secret", Role.READ)[:8]
    ('secret', 'read-dda')
    """
    if role is Role.ADMIN:
        return secret
    name = role.name.lower()
    return f"{name}-{hmac.digest(secret.encode(), name.encode(), 'sha256').hex()}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The tokens that one secret stands for."""

    secret: str = field(repr=False)

    def role_of(self, given: str) -> Role:
        """What a token is good for; takes as long whatever it is."""
        found = Role.OPEN
        for role in GIVEN:
            if hmac.compare_digest(given.encode(), role_token(self.secret, role).encode()):
                found = role
        return found


def asker(request: Request) -> Role:
    """The role of who asks; a server without tokens trusts everybody who reaches it."""
    return Role(request.scope.get(ROLE, Role.ADMIN))


def needs(role: Role) -> Callable[[Endpoint], Endpoint]:
    """Says which role a route asks for."""

    def marked(endpoint: Endpoint) -> Endpoint:
        setattr(endpoint, _MARK, role)
        return endpoint

    return marked


def role_of(endpoint: object) -> Role:
    return Role(getattr(endpoint, _MARK, Role.ADMIN))


reads, submits, for_all = needs(Role.READ), needs(Role.SUBMIT), needs(Role.OPEN)
