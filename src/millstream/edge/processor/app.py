"""A query processor as a process: its components, and the endpoint they share.

The seven components of D-CAPE's figure 4.1 (section 4.3), one module each:

    execution engine, scheduler   execution_engine.py over engine/loop.py and scheduling.py
    statistics gatherer           statistics_gatherer.py
    stream receiver               stream_receiver.py
    stream feeder                 stream_feeder.py
    stream distributor            stream_distributor.py
    connection manager            connection_manager.py, moves in peers/move_driver.py
    distances, placing together   peers/distance_watch.py, peers/placement_coordinator.py
    trees that stay placed        peers/standing_placement.py (seed 003, section 4)
    balancing without a manager   peers/balancing.py (seed 002), moves in peers/peer_moves.py
    a cluster without a manager   peers/gossip.py, peers/member_desk.py, peers/member_api.py

    POST /control     an envelope of a manager or another processor (control/protocol/envelope.py)
    POST /streams/check    whether a client may name this source, and whether it is declared well
    GET  /coordinators     the trees that this member keeps placed
    GET  /balance     how this processor balances; POST /balance/peers tells it of others
    GET  /health  /live  /ready
    the endpoints of the stream distributor, and of posted rows (rows_api.py)
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from millstream.client.http import checked_url, checked_urls
from millstream.client.manager_client import ManagerClient
from millstream.control.definitions.source_rules import SourceRules
from millstream.control.peers.standing import StandingSettings
from millstream.control.protocol.commands import QUESTIONS, Join, Progress, Report
from millstream.control.protocol.envelope import Envelope, PlaceTree
from millstream.control.protocol.replies import Reply
from millstream.edge.http.access import AnswerError, json_body, record_body
from millstream.edge.http.roles import for_all, reads
from millstream.edge.http.rows_api import rows_app
from millstream.edge.http.serving import Application, Listening, Server
from millstream.edge.peers.balancing import BalanceSettings, Balancing
from millstream.edge.peers.distance_watch import EVERY_S, DistanceWatch
from millstream.edge.peers.gossip import Gossiping
from millstream.edge.peers.member_api import add_member_routes
from millstream.edge.peers.member_desk import MemberDesk
from millstream.edge.peers.move_driver import MoveDriver
from millstream.edge.peers.peer_book import PeerBook
from millstream.edge.peers.peers import HttpPeers
from millstream.edge.peers.placement_coordinator import PlacementCoordinator
from millstream.edge.peers.standing_placement import StandingPlacement
from millstream.edge.peers.unfinished import Unfinished
from millstream.edge.processor.capacity import capacity
from millstream.edge.processor.connection_manager import ConnectionManager, Parts
from millstream.edge.processor.dispatcher import Dispatcher
from millstream.edge.processor.execution_engine import ExecutionEngine
from millstream.edge.processor.registration import Registration
from millstream.edge.processor.statistics_gatherer import StatisticsGatherer
from millstream.edge.processor.stream_distributor import StreamDistributor
from millstream.edge.processor.stream_feeder import StreamFeeder
from millstream.edge.processor.stream_receiver import StreamReceiver
from millstream.edge.replicas.followers import Followers
from millstream.edge.replicas.gated_application import GatedApplication
from millstream.edge.replicas.home_api import add_home_routes
from millstream.edge.replicas.launching import Launcher
from millstream.edge.views.processor_view import ProcessorView
from millstream.edge.views.readiness import Readiness, add_readiness
from millstream.edge.views.system_view import SystemView
from millstream.engine.ports import DataPlane
from millstream.engine.processor import Processor
from millstream.engine.settings import EngineSettings
from millstream.engine.sources.entrances import definition_of
from millstream.store.ledger import Ledger
from millstream.store.replicas.keeper import ReplicaKeeper
from millstream.store.replicas.mending import Mender

NOTED_SECONDS = 0.1
HOME = "home"  # where the ledger keeps its name


@dataclass(frozen=True, slots=True)
class ProcessorSettings(Listening):
    """How a processor is reached, and by whom."""

    WHO: ClassVar[str] = "a processor"
    manager: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    balance: BalanceSettings | None = None  # with its peers, where no manager leads
    standing: StandingSettings | None = None  # of members: trees stay placed by distance
    rules: SourceRules = field(default_factory=SourceRules)  # what a client may name

    def __post_init__(self) -> None:
        Listening.__post_init__(self)
        if self.manager is not None:
            checked_urls(self.manager, "--manager")


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Of other processors that balance."""

    peers: tuple[str, ...]


def home_name(ledger: Ledger) -> str:
    """What tells this home apart from any other, whatever ids they have; made up once."""
    known = ledger.meta(HOME)
    if known is None:
        with ledger.transaction():
            known = uuid4().hex
            ledger.set_meta(HOME, known)
    return known


class ProcessorServer:
    """All components of one processor, started and stopped together."""

    def __init__(
        self,
        name: str,
        home: Path,
        plane: DataPlane,
        settings: ProcessorSettings,
        engine_settings: EngineSettings | None = None,
        say: Callable[[str], None] = lambda text: None,  # noqa: ARG005
        command: Sequence[str] = (),
    ) -> None:
        """`command` begins a process like this one: homes that are adopted are run by it."""
        self.settings, self._say = settings, say
        self.peers = HttpPeers(settings.token, settings.verify)
        self.processor = Processor(name, home, plane, self.peers, engine_settings)
        self.engine = ExecutionEngine(self.processor, self.notice)
        self.statistics = StatisticsGatherer(self.processor, self.engine)
        self.feeder = StreamFeeder(self.processor, self.engine, self.peers)
        self._home = home_name(self.processor.engine.ledger)
        self.receiver = StreamReceiver(self.processor, self.notice)
        self.distributor = StreamDistributor(self.processor)
        self.stopping = threading.Event()
        # set by a signal's handler: an event's lock may be held by the very thread it interrupts
        self.asked_to_stop = False
        self.again = False  # whether its process is to begin again once it has stopped
        self.followers = self._following(home, command)
        self.connections = self._connected(
            Parts(
                self.processor,
                self.engine,
                self.statistics,
                self.receiver,
                self.peers,
                MoveDriver(self.processor, self.statistics.notice, self.receiver.look),
                self.stopping.set,
                self._place,
                begin_again=self._begin_again,
                replicas=self.followers,
            )
        )
        self.connections.properties.update(capacity(self.processor))
        self.connections.properties.update(settings.properties)
        self.balancing = self._balancing()
        self.distances = DistanceWatch(
            self.processor.id,
            self.connections.properties,
            token=settings.token,
            verify=settings.verify,
            every_s=EVERY_S if settings.standing is None else settings.standing.probe_s,
        )
        self.connections.on_acquainted.append(self.distances.acquaint)
        self.statistics.others.append(self.distances.figures)
        self.coordinator = PlacementCoordinator(
            self.processor.id,
            self.distances.distances,
            self.processor.engine.ledger.epoch,
            token=settings.token,
            verify=settings.verify,
            near=self.distances.near,
        )
        self.member = self._member()
        self.standing = self._standing()
        self.duties: Unfinished | None = None
        self.processor.engine.on_notice.append(self.notice)
        self.processor.new_owner.on_owner.append(self._owner)
        self._server = Server.at(settings, self.app())
        self.port = self._server.port
        self.registration = self._registration()

    @property
    def url(self) -> str:
        return self.settings.advertise or self._server.url

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """In which its endpoint answers."""
        return self._server.loop

    def notice(self, text: str) -> None:
        self._say(text)
        self.statistics.notice(text)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Goes on with everything the home has; needs no manager."""
        self.processor.restore()
        self._server.start()
        self.engine.start()
        self.receiver.start()
        self.connections.moves.look()
        self.followers.start()
        if self.registration is not None:
            self.registration.start()
        if self.balancing is not None:
            self.balancing.start()
        if self.member is not None:
            self.member.gossip.start()
            self.duties = Unfinished(self.member, self._own_client, self._say)
            self.duties.start()
        if self.standing is not None:
            self.standing.start()

    def stop(self) -> None:
        """Finishes the steps in hand; the home stays as it is."""
        self.stopping.set()
        if self.registration is not None:
            self.registration.stop()
        if self.standing is not None:
            self.standing.stop()
        if self.duties is not None:
            self.duties.stop()
        if self.member is not None:
            self.member.stop()
            self.member.gossip.stop()
        if self.balancing is not None:
            self.balancing.stop()
        self.distances.close()
        self.coordinator.close()
        self.connections.moves.stop()
        self.followers.stop()
        self.receiver.stop()
        self.engine.stop()
        self.distributor.close()
        self._server.stop()
        self.peers.close()
        self.followers.keeper.close()
        self.processor.close()

    def _begin_again(self) -> None:
        self.again = True
        self.stopping.set()

    def wait(self) -> str:
        """Returns when the processor is to end: why, or nothing where it was asked to."""
        while not self.stopping.wait(0.2) and not self.asked_to_stop:
            if self.engine.fenced.is_set():
                return "another process has taken over this home"
            if self.engine.lost.is_set():
                return "Spark's Java process has ended; a new process of this home continues"
            if self.registration is not None and self.registration.refused.is_set():
                return "the manager knows a later process of this home"
        return ""

    def _following(self, home: Path, command: Sequence[str]) -> Followers:
        me, settings = self.processor.id, self.settings
        launcher = Launcher(
            me, command, self._say, host=settings.host, advertise=settings.advertise
        )
        keeper = ReplicaKeeper(
            me, home, self.processor.log, self.peers.home, launcher.launch, launcher.end
        )
        Mender(home, self.processor.engine.store, keeper, self.notice)
        return Followers(keeper, launcher, self.notice)

    def _connected(self, parts: Parts) -> ConnectionManager:
        return ConnectionManager(parts)

    def _registration(self) -> Registration | None:
        if self.settings.manager is None:
            return None
        return Registration(
            self.settings.manager,
            self._join,
            self.connections.heard,
            self.notice,
            token=self.settings.token,
            verify=self.settings.verify,
        )

    def _balancing(self) -> Balancing | None:
        settings = self.settings.balance
        if settings is None:
            return None
        declared = self.processor.ownership.declared
        book = PeerBook(
            self.processor.id,
            self.processor.engine.ledger.epoch,
            lambda: self.url,
            lambda: [f"s:{name}" for name, d in declared().items() if d.ingest],
            self.peers.learn,
            token=self.settings.token,
            verify=self.settings.verify,
        )
        self.connections.on_acquainted.append(book.meet)
        times = self.processor.engine.path_times
        return Balancing(
            self.processor,
            self.connections,
            self.statistics,
            settings,
            lambda: self.url,
            self.notice,
            book,
            self.engine.costs,
            lambda: {name: served.ratio for name, served in times.ratios().items()},
        )

    def _member(self) -> MemberDesk | None:
        """Who balances with its peers is a member of a cluster that needs no manager."""
        if self.balancing is None:
            return None
        gossip = Gossiping(
            self._join,
            self.connections,
            self.balancing.book,
            self._say,
            seeds=self.balancing.settings.peers,
            timing=self.balancing.settings.membership,
            token=self.settings.token,
            verify=self.settings.verify,
        )
        return MemberDesk(
            gossip,
            lambda: self.connections.epoch_seen,
            self.balancing.led,
            self._say,  # to people: others are told what was decided in reports of its own
            token=self.settings.token,
            verify=self.settings.verify,
        )

    def _standing(self) -> StandingPlacement | None:
        """A member that keeps trees placed knows the others, and what lies between them."""
        if self.member is None or self.settings.standing is None:
            return None
        self.member.gossip.on_change.append(self._acquainted)
        return StandingPlacement(
            self.member, self.coordinator, self.settings.standing, lambda: self.loop,
            self._say, self.processor.engine.ledger.epoch,
        )  # fmt: skip

    def _acquainted(self, there: Mapping[str, str], gone: Collection[str]) -> None:
        self.distances.acquaint(there)
        self.coordinator.learn(there)
        for name in gone:
            self.coordinator.lose(name)

    def _own_client(self) -> ManagerClient:
        return ManagerClient(self.url, token=self.settings.token, verify=self.settings.verify)

    def _join(self) -> Join:
        return Join(
            self.processor.id,
            self.url,
            self.processor.engine.ledger.epoch,
            dict(self.connections.properties),
            self._home,
        )

    def _owner(self, move: str) -> None:
        self.statistics.noted.set()
        self.engine.wake()
        self.receiver.look()

    def _place(self, asked: PlaceTree) -> Reply:
        return self.coordinator.place(asked)

    # -- HTTP -----------------------------------------------------------------------------------

    def app(self) -> Application:
        host, known_as = self.settings.host, self.settings.advertise
        app = GatedApplication(
            self.processor.log, "Millstream processor", host=host, token=self.settings.token,
            known_as=known_as,
        )  # fmt: skip
        store, keeper = self.processor.engine.store, self.followers.keeper
        add_home_routes(app, self.processor.log, store.path, keeper.copied)
        self._dispatcher().add_route(app)

        @app.post("/streams/check")
        async def check(request: Request) -> dict[str, Any]:
            await run_in_threadpool(self._check_stream, await json_body(request))
            return {}

        ready = Readiness(
            self.processor.engine, lambda: self.engine.loop, lambda: tuple(self.engine.restarts_s)
        )
        add_readiness(app, ready.look)
        self._add_balancing(app)
        self.distributor.add_routes(app)
        view = ProcessorView(
            self.processor.id, self.processor.engine, lambda: self.engine.loop,
            lambda: list(self.receiver.troubles.values()),
        )  # fmt: skip
        view.add_route(app)

        @app.get("/health")
        @for_all
        async def health() -> dict[str, Any]:
            return {"status": view.word(), "processor": self.processor.id}

        if self.member is not None:
            add_member_routes(app, self.member, self.settings)

            @app.get("/coordinators")
            @reads
            async def coordinators() -> Any:
                return self.standing.seen() if self.standing is not None else []

        self.system = SystemView(self.processor.id, self.processor.engine)
        self.system.add_route(app)
        app.mount("/", self._rows_app())
        return app

    def _check_stream(self, table: Mapping[str, Any]) -> None:
        """Refuses what a client may not name, and what could not be declared here."""
        self.settings.rules.check(table)
        engine, definition = self.processor.engine, definition_of(table, ingest=True)
        with engine.lock:
            self.processor.hosting.check(definition)

    def _rows_app(self) -> Application:
        return rows_app(
            self.feeder.door, host=self.settings.host, known_as=self.settings.advertise,
            busy=self.processor.engine.congested,
        )  # fmt: skip

    def _dispatcher(self) -> Dispatcher:
        dispatcher = Dispatcher(self.processor.id, self.connections.receive, self._note)
        self.coordinator.take_messages(dispatcher)
        if self.balancing is not None:
            self.balancing.take_messages(dispatcher)
        if self.member is not None:
            self.member.gossip.take_messages(dispatcher)
            questions = tuple(kind for kind in QUESTIONS if kind is not Progress)
            dispatcher.on(questions, lambda _, asked: self.connections.answered(asked))
        return dispatcher

    def _add_balancing(self, app: Application) -> None:
        def there() -> Balancing:
            if self.balancing is None:
                hint = "start it with --balance placement"
                raise AnswerError(404, "unknown", "this processor does not balance", hint)
            return self.balancing

        @app.get("/balance")
        @reads
        async def seen() -> dict[str, Any]:
            return await run_in_threadpool(there().seen)

        @app.post("/balance/peers")
        async def peers(request: Request) -> dict[str, Any]:
            told = await record_body(request, _Addresses)
            there().book.add([checked_url(url, "an address is") for url in told.peers])
            return {}

    async def _note(self, envelope: Envelope) -> None:
        """Lets a report wait for something of note, at most as long as it asks."""
        wait = max((c.wait_s for c in envelope.messages if isinstance(c, Report)), default=0.0)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and not self.stopping.is_set():
            if self.statistics.noted.is_set():
                self.statistics.noted.clear()
                return
            await asyncio.sleep(NOTED_SECONDS)
