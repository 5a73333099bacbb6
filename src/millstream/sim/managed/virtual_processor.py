"""A processor in virtual time that speaks the control messages of 0005; no Spark, no files.

Carries out commands on its ledger, pulls streams from other virtual processors, runs its operators
in steps, takes part in moves. It is the model against which the manager is tested, and a stand-in
for processors in experiments. It decides nothing that a real one would not, and every change of the
ledger is one transaction: a crash falls between two of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.control.moves.table import BEFORE_SEAL, UNDER_WAY, Phase, Story
from millstream.control.protocol import commands as c
from millstream.control.protocol import replies as r
from millstream.control.protocol.commands import Command
from millstream.control.protocol.envelope import Envelope
from millstream.control.protocol.replies import Refusal, Reply
from millstream.language.cql.system_streams import COLUMNS
from millstream.sim.managed.virtual_ledger import MANAGER, WHEREVER, HandOver, Pull, VirtualLedger
from millstream.sim.managed.virtual_work import Surroundings, VirtualWork, inputs_of


class VirtualProcessor(VirtualWork):
    """One home, and the process that has it open."""

    def __init__(self, name: str, surroundings: Surroundings) -> None:
        super().__init__(name, surroundings)
        self.starts = 1
        self.up = True
        self.version = 0
        self.carried_out: list[str] = []
        self.heard_from: dict[str, float] = {}  # of this process: managers by lineage
        self.acquainted: tuple[str, ...] = ()
        self.quality: dict[str, Any] = {}  # of this process: a home does not keep it
        self.schedule: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"virtual://{self.name}/{self.starts}"

    def restart(self, *, moved: bool = False) -> c.Join:
        """Opens the home again, perhaps at another address."""
        self.up = True
        self.starts += moved
        self.ledger.epoch += 1
        self.version = 0
        self.quality, self.schedule, self.heard_from = {}, {}, {}
        return self.join()

    def join(self) -> c.Join:
        return c.Join(self.name, self.url, self.ledger.epoch)

    # -- control --------------------------------------------------------------------------------

    def take(self, envelope: Envelope, told: Callable[[tuple[Reply, ...]], None]) -> None:
        """A message whose answer is known at once."""
        told(self.control(envelope))

    def control_stream(self, command: c.Expect) -> Reply:
        """What another processor's manager says of one stream."""
        return self._expect(command)

    def control(self, envelope: Envelope) -> tuple[Reply, ...]:
        """Carries out a message; old ones are refused as a whole."""
        seen = self.ledger.manager
        said = (envelope.epoch, envelope.number)
        refusal = None
        if envelope.to != self.name:
            refusal = Refusal("not_me", f"this is {self.name}")
        elif (
            envelope.epoch < seen[0]
            or (envelope.number and said < seen)
            or (
                envelope.epoch == seen[0]
                and bool(self.ledger.leader and envelope.lineage)
                and self.ledger.leader != envelope.lineage
            )
        ):
            others = [at for who, at in self.heard_from.items() if who != envelope.lineage]
            ago = self.around.now() - max(others) if others else None
            refusal = Refusal("stale", f"{said} comes after {seen}", epoch=seen[0], other_s=ago)
        if refusal is not None:
            return tuple(refusal for _ in envelope.commands)
        if said > seen:
            self.ledger.manager, self.ledger.leader = said, envelope.lineage
        self.heard_from[envelope.lineage] = self.around.now()
        if any(not isinstance(command, c.QUESTIONS) for command in envelope.commands):
            self.ledger.led_by = (envelope.lineage, envelope.revision)
        return tuple(self._carry_out(command) for command in envelope.commands)

    def _carry_out(self, command: Command) -> Reply:
        self.carried_out.append(command.do)
        reply: Reply = getattr(self, f"_{command.do}")(command)
        return reply

    def _declare(self, command: c.Declare) -> Reply:
        name = str(command.stream["name"])
        self.ledger.declared[name] = command.ingest
        self.ledger.tables[name] = dict(command.stream)
        if command.ingest:
            stream = self.ledger.stream(f"s:{name}")
            stream.epoch = max(1, stream.epoch)
        return r.Done()

    def _forget(self, command: c.Forget) -> Reply:
        self.ledger.declared.pop(command.stream, None)
        self.ledger.started.discard(command.stream)
        return r.Done()

    def _start_stream(self, command: c.StartStream) -> Reply:
        self.ledger.started.add(command.stream)
        return r.Done()

    def _compile(self, command: c.Compile) -> Reply:
        found = self.plans.get(command.cql)
        if found is None:
            return Refusal("mistake", "no such text")
        there = self.ledger.declared.keys() | COLUMNS.keys()
        missing = [s for s in found.sources if s.removeprefix("s:") not in there]
        return Refusal("mistake", f"unknown stream {missing[0]}") if missing else found

    def _hold(self, command: c.Hold) -> Reply:
        marks = {}
        for name in command.streams:
            stream = self.ledger.stream(name)
            self.ledger.cursors.setdefault((f"hold:{command.query}", name), stream.first)
            marks[name] = r.StreamMark(stream.following, stream.first, stream.following)
        held = {*self.ledger.holds.get(command.query, ()), *command.streams}
        self.ledger.holds[command.query] = tuple(sorted(held))
        return r.Held(marks)

    def _release(self, command: c.Release) -> Reply:
        for name in command.streams:
            self.ledger.cursors.pop((f"hold:{command.query}", name), None)
        known = self.ledger.holds.pop(command.query, ())
        kept = tuple(s for s in known if s not in command.streams)
        if kept:
            self.ledger.holds[command.query] = kept
        return r.Done()

    def _host(self, command: c.Host) -> Reply:
        fresh = [o for o in command.operators if o not in self.ledger.operators()]
        known = self.ledger.queries.get(command.query)
        operators = tuple(dict.fromkeys((*(known.operators if known else ()), *command.operators)))
        result = command.result or (known.result if known else False)
        self.ledger.queries[command.query] = r.HostedQuery(
            command.cql, command.start, operators, result
        )
        plan = self.plans[command.cql]
        for name in fresh:
            self.around.begun(name)
            stream = self.ledger.stream(name)
            stream.epoch = max(1, stream.epoch)
            self._begin_reading(name, plan)
        if command.result:
            self._keep(f"q:{command.query}", plan.result)
        return r.Done()

    def _begin_reading(self, operator: str, plan: r.Compiled) -> None:
        for name in inputs_of(plan, operator):
            self._keep(f"op:{operator}", name)

    def _keep(self, reader: str, stream: str) -> None:
        """A new reader begins with the first segment that is still there."""
        known, pull = self.ledger.stream(stream), self.ledger.pulls.get(stream)
        copied = not known.epoch and (pull is not None or reader.startswith("op:"))
        begun = pull is not None and pull.first
        first = WHEREVER if copied and not begun else known.first
        self.ledger.cursors.setdefault((reader, stream), first)

    def _unhost(self, command: c.Unhost) -> Reply:
        known = self.ledger.queries.get(command.query)
        for name in command.operators:
            if name in self.ledger.pointers and name not in self.ledger.operators():
                del self.ledger.pointers[name]  # handed over, and nobody wants the rest of it
                if name not in self.ledger.pulls:
                    self.forget_stream(name)
        if known is None:
            return r.Done()
        kept = tuple(o for o in known.operators if o not in command.operators)
        plan = self.plans[known.cql]
        if kept:
            result = known.result and plan.result in kept
            self.ledger.queries[command.query] = replace(known, operators=kept, result=result)
        else:
            del self.ledger.queries[command.query]
        if plan.result in command.operators:
            self.ledger.drop_reader(f"q:{command.query}")
        for name in command.operators:
            if name not in self.ledger.operators():
                self._forget_operator(name)
        return r.Done()

    def _forget_operator(self, name: str) -> None:
        self.ledger.drop_reader(f"op:{name}")
        self.ledger.states.pop(name, None)
        if name not in self.ledger.pulls and name not in self.ledger.pointers:
            self.forget_stream(name)

    def _expect(self, command: c.Expect) -> Reply:
        self._keep(f"p:{command.consumer}", command.stream)
        stream = self.ledger.stream(command.stream)
        return r.Expected(stream.following, stream.epoch)

    def _unexpect(self, command: c.Unexpect) -> Reply:
        self.ledger.cursors.pop((f"p:{command.consumer}", command.stream), None)
        return r.Done()

    def _connect(self, command: c.Connect) -> Reply:
        if self.ledger.owns(command.stream):
            return r.Done()
        known = self.ledger.pulls.setdefault(command.stream, Pull(command.source, set()))
        known.users.add(MANAGER)
        if known.source.processor == command.source.processor:  # a new owner is found by a pointer
            known.source = command.source
        return r.Done()

    def _disconnect(self, command: c.Disconnect) -> Reply:
        self._end_pull(command.stream, MANAGER)
        return r.Done()

    def _end_pull(self, stream: str, user: str) -> None:
        pull = self.ledger.pulls.get(stream)
        if pull is None:
            return
        pull.users.discard(user)
        if not pull.users:
            del self.ledger.pulls[stream]
            self.ledger.farewells.append((stream, pull.source))
            if not self.ledger.owns(stream) and stream not in self.ledger.pointers:
                self.forget_stream(stream)

    def _configure(self, command: c.Configure) -> Reply:
        """Goals of queries that are not here are refused, as the engine does."""
        for query in (command.quality or {}).get("queries", {}):
            if query not in self.ledger.queries:
                return Refusal("mistake", f"unknown query {query}")
        if command.quality is not None:
            self.quality = dict(command.quality)
        if command.schedule is not None:
            self.schedule = dict(command.schedule)
        return r.Done()

    def _acquaint(self, command: c.Acquaint) -> Reply:
        self.acquainted = tuple(peer.processor for peer in command.peers)
        return r.Done()

    def _reset(self, _: c.Reset) -> Reply:
        kept = self.ledger
        self.ledger = VirtualLedger(kept.epoch, kept.manager, kept.leader, kept.led_by)
        return r.Done()

    def _stop(self, _: c.Stop) -> Reply:
        self.up = False
        return r.Done()

    def _report(self, command: c.Report) -> Reply:
        self.version = max(self.version, command.since) + 1
        figures = {
            o: {"rows_out": float(self.ledger.states.get(o, 0))} for o in self.ledger.operators()
        }
        return r.Reported(self.version, figures, {}, {}, {"load": 0.1})

    def _inventory(self, _: c.TakeInventory) -> Reply:
        ledger = self.ledger
        expected: dict[str, tuple[str, ...]] = {}
        for reader, stream in sorted(ledger.cursors):
            if reader.startswith("p:"):
                expected[stream] = (*expected.get(stream, ()), reader[2:])
        return r.Inventory(
            dict(ledger.declared),
            tuple(sorted(ledger.started)),
            dict(ledger.queries),
            {name: s.epoch for name, s in ledger.streams.items() if s.epoch},
            dict(ledger.holds),
            expected,
            {name: pull.source for name, pull in ledger.pulls.items()},
            {
                name: r.MoveRecord(m.role, m.phase, m.operators, m.peer.processor)
                for name, m in ledger.moves.items()
                if m.phase in UNDER_WAY
            },
            led_by=ledger.led_by[0],
            revision=ledger.led_by[1],
            tables=dict(ledger.tables),
        )

    # -- moves ----------------------------------------------------------------------------------

    def _prepare(self, command: c.Prepare) -> Reply:
        known = self.ledger.moves.get(command.move)
        if known is not None:
            known.peer = command.old
        else:
            hosts = {
                h.query: r.HostedQuery(h.cql, h.start, h.operators, h.result) for h in command.hosts
            }
            story = self._reached(Story(), Phase.PREPARING)
            self.ledger.moves[command.move] = HandOver(
                "new", story, command.operators, command.old, hosts, inputs=tuple(command.inputs)
            )
        for host in command.hosts:
            for name in host.operators:
                for stream in inputs_of(self.plans[host.cql], name):
                    key = (f"move:{command.move}", stream)
                    self.ledger.cursors.setdefault(key, WHEREVER)
        for stream, source in command.inputs.items():
            pull = self.ledger.pulls.setdefault(stream, Pull(source, set()))
            pull.users.add(command.move)
            pull.source = source
        return r.Done()

    def _progress(self, command: c.Progress) -> Reply:
        move = self.ledger.moves.get(command.move)
        if move is None:
            return r.Progressed(Phase.REQUESTED)
        missing = 10 if move.phase is Phase.PREPARING else 0
        return r.Progressed(move.phase, missing, move.phase is Phase.READY)

    def _seal(self, command: c.Seal) -> Reply:
        known = self.ledger.moves.get(command.move)
        if known is None:
            unowned = [o for o in command.operators if o not in self.ledger.operators()]
            if unowned:
                return Refusal("not_owner", f"{unowned[0]} is not here")
            known = self._sealed(command)
        known.peer = command.to
        for stream, (following, epoch) in known.streams.items():
            others = [p for p in self.ledger.pointers.get(stream, ()) if p[0] != following]
            target = (following, replace(command.to, epoch=epoch))
            self.ledger.pointers[stream] = sorted([*others, target], key=lambda p: p[0])
        return r.Sealed(
            {
                s: r.SealedStream(n, e, known.cursors.get(s, {}))
                for s, (n, e) in known.streams.items()
            }
        )

    def _sealed(self, command: c.Seal) -> HandOver:
        """The commit point: one transaction."""
        ledger = self.ledger
        story = self._reached(Story(), Phase.SEALED)  # what is kept begins with the commit point
        move = HandOver("old", story, command.operators, command.to)
        for name in command.operators:
            stream = ledger.stream(name)
            move.streams[name] = (stream.following, stream.epoch + 1)
            move.states[name] = ledger.states.pop(name, 0)
            reads = {s: n for (r, s), n in ledger.cursors.items() if r == f"op:{name}"}
            for source, number in reads.items():
                if number == WHEREVER and source in ledger.pulls:
                    reads[source] = ledger.pulls[source].first
            move.cursors[name] = reads
            readers = ledger.readers(name)
            left = {f"op:{o}" for o in ledger.operators() - set(command.operators)}
            read = {r[2:] for r in readers if r.startswith("p:")}
            here = {self.name} if left & readers.keys() else set()  # it goes on with a copy
            move.consumers[name] = tuple(sorted((read | here) - {command.to.processor}))
            stream.epoch = 0
            ledger.drop_reader(f"op:{name}")
            for source, number in reads.items():  # the rest of the tails stays until complete
                key = (f"move:{command.move}", source)
                ledger.cursors[key] = min(ledger.cursors.get(key, number), number)
        for query, known in list(ledger.queries.items()):
            kept = tuple(o for o in known.operators if o not in command.operators)
            result = known.result and self.plans[known.cql].result in kept
            if kept:
                ledger.queries[query] = replace(known, operators=kept, result=result)
            else:
                del ledger.queries[query]
        ledger.moves[command.move] = move
        return move

    def _take_over(self, command: c.TakeOver) -> Reply:
        move = self.ledger.moves.get(command.move)
        if move is None:
            return Refusal("unknown", f"no move {command.move}")
        if command.old is not None:
            move.peer = command.old
        if move.phase in BEFORE_SEAL:
            move.story = self._reached(move.story, Phase.SEALED)
        return r.Done()

    def _undo(self, command: c.Undo) -> Reply:
        move = self.ledger.moves.get(command.move)
        if move is None:
            return r.Done()
        if move.phase not in BEFORE_SEAL and not command.lost:
            return Refusal("sealed", "it was handed over")
        del self.ledger.moves[command.move]
        self.ledger.drop_reader(f"move:{command.move}")
        for stream in list(self.ledger.pulls):
            self._end_pull(stream, command.move)
        return r.Done()

    def _complete(self, command: c.Complete) -> Reply:
        move = self.ledger.moves.get(command.move)
        if move is None:
            return r.Done()
        if move.role == "new":
            if move.phase is not Phase.OWNED:
                return Refusal("busy", "not yet the owner")
            del self.ledger.moves[command.move]
        else:
            move.story = self._reached(move.story, Phase.DONE)
            for stream in move.streams:  # the new owner reads from itself now
                self.ledger.cursors.pop((f"p:{move.peer.processor}", stream), None)
            self.ledger.drop_reader(f"move:{command.move}")
        return r.Done()
