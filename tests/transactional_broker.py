"""A Kafka broker with transactions for tests: one node, topics in memory, threads of this process.

librdkafka's own mock answers the requests of a transaction and does nothing about them: what was
written shows at once, and stays. This one keeps what they promise: a reader of committed messages
sees none of an open transaction or of one that was taken back, and a producer is refused once
another one has taken its transactional id.
"""

import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

NOT_THERE, FENCED, EXISTS, UNSUPPORTED, BAD_STATE = 3, 47, 36, 35, 48
VERSIONS = {0: (3, 7), 1: (4, 4), 2: (2, 2), 3: (4, 4), 10: (1, 2), 18: (0, 0), 19: (4, 4),
            22: (0, 1), 24: (0, 0), 26: (0, 1)}  # fmt: skip
HEAD = struct.Struct(">qiibIhiqqqhii")  # of a batch of records, up to the records
TRANSACTIONAL, CONTROL = 0x10, 0x20
ANSWER_BYTES_MAX = 1 << 20


class Reader:
    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def take(self, code: str) -> Any:
        values = struct.unpack_from(">" + code, self._content, self._at)
        self._at += struct.calcsize(">" + code)
        return values[0] if len(values) == 1 else values

    def bytes_of(self, code: str = "h") -> bytes | None:
        length = self.take(code)
        if length < 0:
            return None
        self._at += length
        return self._content[self._at - length : self._at]

    def text(self) -> str:
        return (self.bytes_of() or b"").decode()

    def many(self, one: Callable[[], Any]) -> list[Any]:
        return [one() for _ in range(self.take("i"))]


def text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value.encode())) + value.encode()


def many(parts: list[bytes]) -> bytes:
    return struct.pack(">i", len(parts)) + b"".join(parts)


@dataclass
class Log:
    """One partition: batches by their first offset, open and ended transactions."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # first, next, content
    end: int = 0
    open: dict[int, int] = field(default_factory=dict)  # producer, first offset
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first, marker

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def add(self, content: bytes) -> int:
        head = HEAD.unpack_from(content)
        first = self.end
        if head[5] & TRANSACTIONAL and not head[5] & CONTROL:
            self.open.setdefault(head[9], first)
        self.end += head[6] + 1
        self.batches.append((first, self.end, struct.pack(">q", first) + content[8:]))
        return first

    def close(self, producer: int, epoch: int, *, committed: bool) -> None:
        begun = self.open.pop(producer, None)
        if begun is None:
            return
        key, value = struct.pack(">hh", 0, int(committed)), struct.pack(">hi", 0, 0)
        record = b"\0\0\0" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
        record = bytes([len(record) * 2]) + record
        now = int(time.time() * 1000)
        head = HEAD.pack(0, HEAD.size - 12 + len(record), 0, 2, 0, TRANSACTIONAL | CONTROL, 0,
                         now, now, producer, epoch, -1, 1)  # fmt: skip
        marker = self.add(head + record)
        if not committed:
            self.aborted.append((producer, begun, marker))


@dataclass
class Owner:
    """A transactional id: who may write, and where it has written in its transaction."""

    producer: int
    epoch: int = 0
    parts: set[tuple[str, int]] = field(default_factory=set)


class TransactionalBroker:
    def __init__(self) -> None:
        self.logs: dict[str, list[Log]] = {}
        self.configs: dict[str, dict[str, str | None]] = {}
        self._owners: dict[str, Owner] = {}
        self._lock = threading.RLock()
        broker = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while len(head := self.rfile.read(4)) == 4:
                    answer = broker.answer(self.rfile.read(struct.unpack(">i", head)[0]))
                    self.wfile.write(struct.pack(">i", len(answer)) + answer)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address = True, True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that is gone; whoever waits for it says so."""

        self._server = Server(("127.0.0.1", 0), Connection)
        self.port = int(self._server.server_address[1])
        self.address = f"127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def make(self, topic: str, partitions: int = 2) -> None:
        with self._lock:
            self.logs.setdefault(topic, [Log() for _ in range(partitions)])

    # -- requests -------------------------------------------------------------------------------

    def answer(self, request: bytes) -> bytes:
        asked = Reader(request)
        api, version, number = asked.take("hhi")
        asked.bytes_of()  # the client's name
        if api == 18:
            listed = many([struct.pack(">hhh", k, *v) for k, v in VERSIONS.items()])
            return struct.pack(">ih", number, UNSUPPORTED if version > 0 else 0) + listed
        handlers: dict[int, Callable[[Reader], bytes]] = {
            0: self._produce, 1: self._fetch, 2: self._offsets, 3: self._metadata,
            10: self._coordinator, 19: self._create, 22: self._producer_id,
            24: self._add_partitions, 26: self._end,
        }  # fmt: skip
        if api == 1:
            return struct.pack(">i", number) + self._fetch(asked)
        with self._lock:
            return struct.pack(">i", number) + handlers[api](asked)

    def _log(self, topic: str, partition: int) -> Log | None:
        logs = self.logs.get(topic, [])
        return logs[partition] if partition < len(logs) else None

    def _metadata(self, asked: Reader) -> bytes:
        count = asked.take("i")
        names = list(self.logs) if count < 0 else [asked.text() for _ in range(count)]
        one = many([struct.pack(">i", 1)])
        topics = []
        for name in names:
            parts = [struct.pack(">hii", 0, n, 1) + one + one for n in range(len(self._of(name)))]
            error = 0 if name in self.logs else NOT_THERE
            topics.append(struct.pack(">h", error) + text(name) + b"\0" + many(parts))
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self.port) + text(None)
        return struct.pack(">i", 0) + many([node]) + text("c") + struct.pack(">i", 1) + many(topics)

    def _of(self, topic: str) -> list[Log]:
        return self.logs.get(topic, [])

    def _coordinator(self, asked: Reader) -> bytes:
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", self.port)
        return struct.pack(">ih", 0, 0) + text(None) + node

    def _create(self, asked: Reader) -> bytes:
        done = []

        def one() -> None:
            name, (partitions, _) = asked.text(), asked.take("ih")
            asked.many(lambda: (asked.take("i"), asked.many(lambda: asked.take("i"))))
            pairs = asked.many(lambda: (asked.text(), asked.bytes_of()))
            error = EXISTS if name in self.logs else 0
            if not error:
                self.make(name, partitions)
                self.configs[name] = {k: v.decode() if v else None for k, v in pairs}
            done.append(text(name) + struct.pack(">h", error) + text(None))

        asked.many(one)
        return struct.pack(">i", 0) + many(done)

    def _offsets(self, asked: Reader) -> bytes:
        _, isolation = asked.take("ib")

        def partition(topic: str) -> bytes:
            number, moment = asked.take("iq")
            log = self._log(topic, number)
            if log is None:
                return struct.pack(">ihqq", number, NOT_THERE, -1, -1)
            last = log.stable if isolation else log.end
            return struct.pack(">ihqq", number, 0, -1, 0 if moment == -2 else last)

        def one() -> bytes:
            topic = asked.text()
            return text(topic) + many(asked.many(lambda: partition(topic)))

        return struct.pack(">i", 0) + many(asked.many(one))

    # -- messages -------------------------------------------------------------------------------

    def _produce(self, asked: Reader) -> bytes:
        asked.bytes_of()
        asked.take("hi")

        def partition(topic: str) -> bytes:
            number, content = asked.take("i"), asked.bytes_of("i") or b""
            log, head = self._log(topic, number), HEAD.unpack_from(content)
            error, first = 0, -1
            if log is None:
                error = NOT_THERE
            elif head[5] & TRANSACTIONAL and not self._may_write(topic, number, head[9], head[10]):
                error = FENCED
            else:
                first = log.add(content)
            return struct.pack(">ihqqq", number, error, first, -1, 0)

        def one() -> bytes:
            topic = asked.text()
            return text(topic) + many(asked.many(lambda: partition(topic)))

        return many(asked.many(one)) + struct.pack(">i", 0)

    def _may_write(self, topic: str, partition: int, producer: int, epoch: int) -> bool:
        return any(
            (o.producer, o.epoch) == (producer, epoch) and (topic, partition) in o.parts
            for o in self._owners.values()
        )

    def _fetch(self, asked: Reader) -> bytes:
        _, wait_ms, _, _, isolation = asked.take("iiiib")

        def wanted() -> tuple[str, list[Any]]:
            return asked.text(), asked.many(lambda: asked.take("iqi"))

        places = asked.many(wanted)
        deadline = time.monotonic() + min(wait_ms, 100) / 1000
        while True:
            with self._lock:
                found = [
                    (topic, [self._read(topic, p, at, isolation) for p, at, _ in parts])
                    for topic, parts in places
                ]
            if any(some for _, parts in found for _, some in parts) or time.monotonic() > deadline:
                told = [text(topic) + many([a for a, _ in parts]) for topic, parts in found]
                return struct.pack(">i", 0) + many(told)
            time.sleep(0.005)

    def _read(self, topic: str, partition: int, at: int, isolation: int) -> tuple[bytes, bool]:
        log = self._log(topic, partition)
        if log is None:
            return struct.pack(">ihqqii", partition, NOT_THERE, -1, -1, 0, 0), True
        limit = log.stable if isolation else log.end
        taken, size = [], 0
        for first, following, content in log.batches:
            if following > at and first < limit and size < ANSWER_BYTES_MAX:
                taken.append(content)
                size += len(content)
        gone = [struct.pack(">qq", p, b) for p, b, m in log.aborted if m >= at and isolation]
        head = struct.pack(">ihqq", partition, 0, log.end, log.stable)
        return head + many(gone) + struct.pack(">i", size) + b"".join(taken), bool(taken)

    # -- transactions ---------------------------------------------------------------------------

    def _producer_id(self, asked: Reader) -> bytes:
        name = asked.bytes_of()
        if name is None:
            return struct.pack(">ihqh", 0, 0, 1_000_000 + len(self._owners), 0)
        owner = self._owners.get(name.decode())
        if owner is None:
            owner = self._owners[name.decode()] = Owner(len(self._owners) + 1)
        else:
            owner.epoch += 1
            self._finish(owner, committed=False)
        return struct.pack(">ihqh", 0, 0, owner.producer, owner.epoch)

    def _owner(self, asked: Reader) -> tuple[Owner, int]:
        owner = self._owners[asked.text()]
        ours = asked.take("qh") == (owner.producer, owner.epoch)
        return owner, 0 if ours else FENCED

    def _add_partitions(self, asked: Reader) -> bytes:
        owner, error = self._owner(asked)

        def one() -> bytes:
            topic, numbers = asked.text(), asked.many(lambda: asked.take("i"))
            if not error:
                owner.parts |= {(topic, n) for n in numbers}
            return text(topic) + many([struct.pack(">ih", n, error) for n in numbers])

        return struct.pack(">i", 0) + many(asked.many(one))

    def _end(self, asked: Reader) -> bytes:
        owner, error = self._owner(asked)
        committed = bool(asked.take("b"))
        if not error and not owner.parts:
            error = BAD_STATE
        if not error:
            self._finish(owner, committed=committed)
        return struct.pack(">ih", 0, error)

    def _finish(self, owner: Owner, *, committed: bool) -> None:
        for topic, number in owner.parts:
            if (log := self._log(topic, number)) is not None:
                log.close(owner.producer, owner.epoch, committed=committed)
        owner.parts = set()


@contextmanager
def running_transactional_broker() -> Iterator[TransactionalBroker]:
    broker = TransactionalBroker()
    try:
        yield broker
    finally:
        broker.close()
