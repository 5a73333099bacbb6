"""What a virtual processor does without being told: ingest, pulls, steps, its part in moves.

An operator hands on every row of every input, with the number of the segment it came in, so that
checkers see what was read, in which order, how often. Every method is one transaction or none.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from millstream.control.moves.table import Phase, Story
from millstream.control.protocol import replies as r
from millstream.control.protocol.records import Peer
from millstream.sim.managed.virtual_ledger import (
    MANAGER,
    WHEREVER,
    HandOver,
    Rows,
    VirtualLedger,
)

SEGMENT_ROWS = 3


class Surroundings(Protocol):
    """The world around virtual processors."""

    plans: Mapping[str, r.Compiled]  # by text

    def peer(self, me: str, url: str) -> "VirtualWork | None":
        """The processor at an address, if it can be reached from here now."""

    def gap(self, what: str) -> None:
        """Told when a copy cannot go on."""

    def begun(self, stream: str) -> None:
        """Told when an operator is hosted that was nowhere."""

    def published(self, stream: str, epoch: int, number: int, rows: Rows) -> None:
        """Told at every commit of a segment."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""

    def rows(self, stream: str) -> int:
        """How many rows a source has by now."""


class VirtualWork:
    """The data plane of a virtual processor."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        self.name, self.around = name, surroundings
        self.ledger = VirtualLedger()

    @property
    def plans(self) -> Mapping[str, r.Compiled]:
        return self.around.plans

    def forget_stream(self, name: str) -> None:
        self.ledger.streams.pop(name, None)
        for key in [k for k in self.ledger.cursors if k[1] == name]:
            del self.ledger.cursors[key]

    def work(self) -> None:
        """What goes on without a manager: ingest, pulls, steps, moves, retention."""
        self._ingest()
        self._say_farewells()
        for name in sorted(self.ledger.pulls):
            self._pull(name)
        for query in self.ledger.queries.values():
            for name in query.operators:
                self._step(name, self.plans[query.cql])
        for name, move in list(self.ledger.moves.items()):
            if move.role == "new":
                self._advance(name, move)
            elif move.phase is Phase.DONE:
                self._forget_handed(name, move)
        self.ledger.retain()

    def _say_farewells(self) -> None:
        """Sources need not keep what is not pulled any more; who is away hears it later."""
        for stream, source in list(self.ledger.farewells):
            pull = self.ledger.pulls.get(stream)
            again = pull is not None and pull.source.processor == source.processor
            there = self.around.peer(self.name, source.url)
            if there is not None and not again:
                there.ledger.cursors.pop((f"p:{self.name}", stream), None)
            if there is not None or again:
                self.ledger.farewells.remove((stream, source))

    def _ingest(self) -> None:
        for name in sorted(self.ledger.started):
            if not self.ledger.declared.get(name):
                continue
            done = self.ledger.entered.get(name, 0)
            fresh = min(SEGMENT_ROWS, self.around.rows(name) - done)
            if fresh > 0:
                rows = tuple(f"{name}{done + i + 1}" for i in range(fresh))
                self.ledger.entered[name] = done + fresh
                self._publish(f"s:{name}", rows)

    def _publish(self, name: str, rows: tuple[str, ...]) -> None:
        stream = self.ledger.stream(name)
        self.around.published(name, stream.epoch, stream.following, rows)
        stream.segments[stream.following] = rows
        stream.following += 1

    def _step(self, operator: str, plan: r.Compiled) -> None:
        """One step: what has come on all inputs, one segment out, cursors on, in one go."""
        out: list[str] = []
        for name in inputs_of(plan, operator):
            stream, key = self.ledger.stream(name), (f"op:{operator}", name)
            number = self.ledger.cursors.get(key, WHEREVER)
            if number == WHEREVER:
                pull = self.ledger.pulls.get(name)
                number = stream.first if stream.epoch else pull.first if pull else 0
            while number in stream.segments and len(out) < 4 * SEGMENT_ROWS:
                for row in stream.segments[number]:
                    count = self.ledger.states.get(operator, 0) + 1
                    self.ledger.states[operator] = count
                    out.append(f"{name}|{number}|{row}")
                number += 1
            self.ledger.cursors[key] = number
        if out:
            self._publish(operator, tuple(out))

    def _pull(self, name: str) -> None:
        """Asks the source for what follows; follows a pointer to the new owner."""
        pull = self.ledger.pulls[name]
        source = self.around.peer(self.name, pull.source.url)
        if source is None or self.ledger.owns(name):
            return
        stream = self.ledger.stream(name)
        answer = source.serve(name, self.name, stream.following if pull.first else 0)
        if isinstance(answer, Peer):
            if answer.epoch > pull.source.epoch:  # a former owner may not know its successors
                pull.source = answer
                source.followed(name, self.name)
        elif answer is not None:
            kept = source.ledger.cursors.get((f"p:{self.name}", name), WHEREVER)
            first = min(answer, default=stream.following if pull.first else kept)
            if first and not pull.first:  # whatever is left here of other times
                pull.first = stream.following = first
            elif first > stream.following:
                self.around.gap(f"{self.name} has {name} up to {stream.following}, {first} came")
            for number in sorted(answer):
                if number == stream.following:
                    stream.segments[number] = answer[number]
                    stream.following += 1

    def serve(
        self, name: str, consumer: str, following: int
    ) -> Peer | dict[int, tuple[str, ...]] | None:
        """Segments from a number on, which acknowledges those before; or where to ask instead."""
        stream = self.ledger.streams.get(name)
        key = (f"p:{consumer}", name)
        if following == 0 and stream is not None and stream.epoch:  # a copy begins: keep it
            self.ledger.cursors.setdefault(key, stream.first)
        if stream is None or key not in self.ledger.cursors:
            return self._pointer(name, following)
        position = max(self.ledger.cursors[key], following)
        self.ledger.cursors[key] = position
        limit = stream.following
        if not stream.epoch or position < stream.since:
            pointer = self._pointer(name, position)
            later = [n for n, _ in self.ledger.pointers.get(name, ()) if n > position]
            limit = min(later, default=limit if stream.epoch else 0)
            if pointer is not None and position >= limit:
                return pointer
        return {n: r for n, r in stream.segments.items() if position <= n < limit}

    def followed(self, name: str, consumer: str) -> None:
        """A consumer has everything that is here and went on to the next owner."""
        if not self.ledger.owns(name):
            self.ledger.cursors.pop((f"p:{consumer}", name), None)

    def _pointer(self, name: str, following: int) -> Peer | None:
        """Who makes the stream from a number on, as far as is known here."""
        known = self.ledger.pointers.get(name, [])
        passed = [peer for number, peer in known if number <= following]
        return passed[-1] if passed else None

    def _advance(self, name: str, move: HandOver) -> None:
        """The new owner's part, one thing at a time."""
        old = self.around.peer(self.name, move.peer.url)
        if move.phase is Phase.PREPARING and old is not None:
            if move.copied:
                move.story = self._reached(move.story, Phase.READY)
            move.copied = True
        elif move.phase is Phase.SEALED and old is not None:
            record = old.ledger.moves.get(name)
            if record is not None and record.role == "old":
                self._own(name, move, record, old)

    def _reached(self, story: Story, phase: Phase) -> Story:
        """A move's story with one more phase; a model of an owner need not keep the times."""
        return story.through(phase, self.name, 0.0)

    def _own(self, name: str, move: HandOver, record: HandOver, old: "VirtualWork") -> None:
        """Fetches the rest of the tails and becomes the owner, in one transaction."""
        ledger = self.ledger
        moved = set(move.operators)
        for reads in record.cursors.values():
            for source, number in reads.items():
                if not self._fill(source, number, old, internal=source in moved):
                    return
        for stream_name, (following, _) in record.streams.items():
            pull = ledger.pulls.get(stream_name)
            arrived = ledger.stream(stream_name).following >= following
            if pull and not arrived and (pull.first or pull.source.processor != self.name):
                return  # readers here first get all that the old owner made
        for stream_name, (following, epoch) in record.streams.items():
            stream = ledger.stream(stream_name)
            ledger.pulls.pop(stream_name, None)
            stream.following, stream.epoch, stream.since = following, epoch, following
            for consumer in record.consumers.get(stream_name, ()):
                ledger.cursors.setdefault((f"p:{consumer}", stream_name), following)
        for operator in move.operators:
            ledger.states[operator] = record.states[operator]
            for source, number in record.cursors[operator].items():
                ledger.cursors[f"op:{operator}", source] = number
        for query, host in move.hosts.items():
            self._adopt(query, host, record)
        for stream_name in move.inputs:
            if stream_name in ledger.pulls:
                ledger.pulls[stream_name].users.discard(name)
                ledger.pulls[stream_name].users.add(MANAGER)
        ledger.drop_reader(f"move:{name}")
        move.story = self._reached(move.story, Phase.OWNED)

    def _adopt(self, query: str, host: r.HostedQuery, record: HandOver) -> None:
        known = self.ledger.queries.get(query)
        operators = tuple(dict.fromkeys((*(known.operators if known else ()), *host.operators)))
        result = host.result or (known.result if known else False)
        self.ledger.queries[query] = replace(host, operators=operators, result=result)
        if host.result:
            stream = self.plans[host.cql].result
            self.ledger.cursors[f"q:{query}", stream] = record.streams[stream][0]

    def _fill(self, name: str, number: int, old: "VirtualWork", *, internal: bool) -> bool:
        """Whether all segments from a number on are here; missing ones come from the old owner."""
        if number == WHEREVER:
            return True  # the old owner's copy had not begun either
        stream, theirs = self.ledger.stream(name), old.ledger.streams.get(name)
        pull = self.ledger.pulls.get(name)
        waiting = [r for r, n in self.ledger.readers(name).items() if n == WHEREVER]
        begun = pull is None or bool(pull.first) or stream.following >= number
        if not begun and any(r.startswith("op:") for r in waiting):
            return False  # a copy for others here, which begins where they are to begin
        if pull is not None and pull.first and stream.following < number:
            return internal  # a copy for others here, which has to come so far by itself
        if theirs is not None:
            for n in range(number, theirs.following):
                if n in theirs.segments and n not in stream.segments:
                    stream.segments[n] = theirs.segments[n]
                    stream.following = max(stream.following, n + 1)
                    if pull is not None:
                        pull.first = min(pull.first or n, n)
        if internal:
            return True
        if not stream.segments and stream.following < number:
            stream.following = number
        return all(n in stream.segments for n in range(number, stream.following))

    def _forget_handed(self, name: str, move: HandOver) -> None:
        """The old owner forgets when everybody has what it still holds."""
        ledger = self.ledger
        for stream_name, (following, _) in move.streams.items():
            waiting = [
                r for r, n in ledger.readers(stream_name).items()
                if (n < following and r[:2] in ("p:", "q:"))
                or (r.startswith("p:") and not ledger.owns(stream_name))  # has not followed
            ]  # fmt: skip
            if waiting:
                return
        for stream_name, (following, _) in move.streams.items():
            known = [p for p in ledger.pointers.get(stream_name, ()) if p[0] != following]
            if known:
                ledger.pointers[stream_name] = known
            else:
                ledger.pointers.pop(stream_name, None)
            if ledger.owns(stream_name) or known:
                continue
            for reader in list(ledger.readers(stream_name)):
                if reader[:2] in ("p:", "q:"):
                    del ledger.cursors[reader, stream_name]
            if stream_name not in ledger.pulls:
                self.forget_stream(stream_name)
        del ledger.moves[name]


def inputs_of(plan: r.Compiled, operator: str) -> tuple[str, ...]:
    return next(o.inputs for o in plan.operators if o.id == operator)
