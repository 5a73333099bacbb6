"""A port of this machine that is kept for a process that is about to be started, again and again.

A free port that was found but not bound can go to any program: the system gives it to the next
outgoing connection. So the parent binds it and keeps it bound, without listening; a process that
binds it with SO_REUSEADDR, as all our endpoints do, may listen there, and no other program gets it.
While no process listens, connections are refused. Where a system does not let two sockets share an
address (BSD), the port is only chosen.
"""

import socket

from millstream.core.errors import UsageError

LOOPBACK = "127.0.0.1"


class KeptPort:
    """A port; close it when those it was kept for have ended."""

    def __init__(self, port: int = 0, host: str = LOOPBACK) -> None:
        self._socket = bound_socket(host, port)
        self.number = int(self._socket.getsockname()[1])
        try:
            bound_socket(host, self.number).close()
        except UsageError:
            self._socket.close()  # not for two at once: better taken by chance than never

    def close(self) -> None:
        self._socket.close()


def keep_port(known: int | None) -> KeptPort:
    """The port of former times, or another where somebody else has that by now."""
    if known:
        try:
            return KeptPort(known)
        except UsageError:
            pass
    return KeptPort()


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that can listen there; a UsageError where it cannot.

    Its protocol is named, for asyncio turns Nagle's algorithm off only where it is: an answer goes
    out as head and body, and else the body would wait 40 ms for the head's acknowledgement.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise UsageError(
            f"cannot listen on {host}:{port}", detail=error.strerror or "", hint="another port?"
        ) from None
    return found
