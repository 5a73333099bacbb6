"""A port that is kept is nobody else's, and somebody's who was told of it."""

import asyncio
import socket

import pytest

from millstream.core.errors import UsageError
from millstream.edge.http.reserved_port import LOOPBACK, KeptPort, bound_socket, keep_port


def test_whoever_was_told_may_listen_again_and_again() -> None:
    kept = KeptPort()
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, kept.number), timeout=5).close()
        with bound_socket(LOOPBACK, kept.number) as listening:
            listening.listen()
            with socket.create_connection((LOOPBACK, kept.number), timeout=5) as client:
                assert client.getpeername()[1] == kept.number
            with pytest.raises(UsageError, match="cannot listen"):
                bound_socket(LOOPBACK, kept.number)
    kept.close()


def test_nobody_else_is_given_it() -> None:
    kept = [KeptPort() for _ in range(50)]
    numbers = {k.number for k in kept}
    assert len(numbers) == 50
    others = [socket.socket() for _ in range(200)]
    for other in others:
        other.bind((LOOPBACK, 0))
    assert not numbers & {o.getsockname()[1] for o in others}
    for other in (*others, *kept):
        other.close()


def test_a_port_of_former_times_is_taken_again_where_it_is_free() -> None:
    first = KeptPort()
    first.close()
    again = keep_port(first.number)
    assert again.number == first.number
    again.close()
    with bound_socket(LOOPBACK, first.number) as taken:
        taken.listen()
        other = keep_port(first.number)
        assert other.number != first.number
        other.close()
        with pytest.raises(UsageError):
            KeptPort(first.number)


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that name their protocol."""

    async def undelayed() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found: socket.socket = writer.get_extra_info("socket")
            seen.set_result(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = bound_socket(LOOPBACK, 0)
        async with await asyncio.start_server(accepted, sock=listening):
            address = listening.getsockname()
            _, writer = await asyncio.open_connection(*address)
            writer.close()
            return await seen

    assert asyncio.run(undelayed()) == 1
