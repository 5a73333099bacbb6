"""Whether a request comes from a program of the user who serves: then it needs no token.

The kernel says which user owns a connection of this machine. If it does not (another system,
another network namespace), or if the owner is another user, the token decides.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from fastapi import Request

from millstream.edge.http.roles import Role

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED, NOBODY = "01", "0"  # a state; the inode of a socket that its program has closed
Address = tuple[str, int]


def own_program(request: Request) -> Role:
    """All that an endpoint offers for the user's own programs, nothing for those of others."""
    asking, here = request.scope.get("client"), request.scope.get("server")
    if not asking or not here or not ipaddress.ip_address(asking[0]).is_loopback:
        return Role.OPEN
    return Role.ADMIN if owner(tuple(asking), tuple(here)) == os.getuid() else Role.OPEN


def owner(asking: Address, here: Address) -> int | None:
    """The user whose program has connected from one address to another; None where unknown."""
    wanted = set(zip(_spellings(asking), _spellings(here), strict=False))
    for table in TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        for line in lines[1:]:
            parts = line.split()
            if (parts[1], parts[2]) in wanted and parts[3] == ESTABLISHED and parts[9] != NOBODY:
                return int(parts[7])
    return None


def _spellings(address: Address) -> Iterator[str]:
    """An address as the kernel's tables have it; one of version 4 also as a program of version 6.

    >>> list(_spellings(("127.0.0.1", 80)))
    ['0100007F:0050', '0000000000000000FFFF00000100007F:0050']
    """
    host, port = address
    if ":" not in host:
        words = struct.unpack("=I", socket.inet_pton(socket.AF_INET, host))
        yield f"{words[0]:08X}:{port:04X}"
        host = f"::ffff:{host}"
    words = struct.unpack("=4I", socket.inet_pton(socket.AF_INET6, host))
    yield f"{''.join(f'{word:08X}' for word in words)}:{port:04X}"
