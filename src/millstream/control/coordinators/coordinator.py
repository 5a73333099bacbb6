"""A peer of distributed placement as a pure state machine: events in, messages out.

`step(state, event)` gives the next state and what to do (seed 003, section 4). A peer may be
proxy, coordinator of zones, source and host at once. It knows no transport: a driver resolves
addresses, delivers messages in any order, perhaps twice or never, measures distances and tells
the time. Mapping goes bottom-up by MAP messages; a zone is placed when all its boundary children
have reported and the distances it needs are known; children that lie badly for it are moved by
OPERATOR_REMAPPED. When a peer fails, or an answer stays out, the proxy maps the tree again
in a new epoch, and former hosts forget the old one only when the new one stands; what a lost
message leaves behind lapses at its host when no later epoch confirms it.
"""

from dataclasses import replace
from typing import assert_never

from millstream.control.coordinators.state import (
    Action,
    Event,
    Hosted,
    PeerDown,
    PeerState,
    Probe,
    Probed,
    Received,
    Refuse,
    Report,
    Send,
    Submit,
    Tick,
    ToPeer,
    ToZone,
    TreeState,
    Withdraw,
    ZoneState,
)
from millstream.control.coordinators.zone import (
    ask_distances,
    finish,
    heard,
    remap,
    try_placing,
)
from millstream.control.coordinators.zones import zones
from millstream.control.protocol.coordinator_messages import (
    AddSubtree,
    Configuration,
    InvalidateMap,
    Map,
    Measure,
    Measured,
    OperatorMapped,
    OperatorRemapped,
    Settings,
)

Step = tuple[PeerState, tuple[Action, ...]]


def step(state: PeerState, event: Event) -> Step:
    """What a peer does next."""
    match event:
        case Submit():
            return _submitted(state, event)
        case Withdraw():
            return _withdrawn(state, event.tree)
        case Received():
            return _received(state, event)
        case Probed():
            return _probed(state, event)
        case PeerDown():
            return _peer_down(state, event)
        case Tick():
            return _tick(state, event.now_s)
        case _:
            assert_never(event)


def _submitted(state: PeerState, event: Submit) -> Step:
    """A new tree, or one that stands already with the rates and places of now."""
    tree = TreeState(event.tree, event.settings, event.levels, "mapping", event.now_s)
    known = state.trees.get(event.tree.id)
    if known is not None:
        settings = replace(tree.settings, epoch=known.settings.epoch + 1)
        former = tuple(sorted({*known.former, *known.members}))
        tree = replace(tree, settings=settings, former=former)
    return _begin(state, tree)


def _received(state: PeerState, event: Received) -> Step:
    message = event.message
    match message:
        case AddSubtree():
            zone = _zone(state, message.settings, message.zone.id)
            if zone is None or zone.zone is not None:
                return state, ()
            return _advance(state, replace(zone, zone=message.zone), message.zone.id, event.now_s)
        case Map() if not message.descendants:
            return _begin_at_source(state, message, event.route)
        case Map():
            zone = _zone(state, message.settings, message.path[0])
            if zone is None or message.operator in zone.arrived:
                return state, ()
            return _advance(state, heard(zone, message), message.path[0], event.now_s)
        case Measure():
            return state, (Probe(message.targets, message),)
        case Measured():
            zone = _zone(state, message.settings, message.zone)
            if zone is None or message.origin not in zone.awaiting:
                return state, ()
            view = dict(zone.view)
            view.update({(message.origin, to): ms for to, ms in message.distances})
            awaiting = zone.awaiting - {message.origin}
            known = replace(zone, view=view, awaiting=awaiting)
            return _advance(state, known, message.zone, event.now_s)
        case OperatorMapped() if message.configuration.location != state.name:
            return state, ()  # it was meant for somebody whom the overlay does not find
        case OperatorMapped():
            return _hosts(
                state,
                message.settings,
                message.operator,
                Hosted(
                    message.settings.epoch,
                    message.revision,
                    message.configuration,
                    message.alternatives,
                    event.now_s,
                ),
            )
        case InvalidateMap():
            return _invalidated(state, message, event.now_s)
        case OperatorRemapped():
            zone = state.zones.get((message.settings.tree, message.operator))
            if zone is None or zone.settings.epoch != message.settings.epoch:
                return state, ()
            moved, actions = remap(zone, message)
            return _with_zone(state, moved, message.operator), actions
        case _:
            assert_never(message)


def _zone(state: PeerState, settings: Settings, zone_id: str) -> ZoneState | None:
    """The zone's state in the message's epoch, new if need be; None for an older epoch."""
    known = state.zones.get((settings.tree, zone_id))
    if known is None or known.settings.epoch < settings.epoch:
        return ZoneState(settings)
    return known if known.settings.epoch == settings.epoch else None


def _with_zone(state: PeerState, zone: ZoneState, zone_id: str) -> PeerState:
    return replace(state, zones={**state.zones, (zone.settings.tree, zone_id): zone})


def _advance(state: PeerState, zone: ZoneState, zone_id: str, now_s: float) -> Step:
    """Places what can be placed, asks for distances, or passes the result on."""
    if zone.done or zone.zone is None or zone.awaiting:
        return _with_zone(state, zone, zone_id), ()
    if not set(zone.zone.boundary) <= set(zone.arrived):
        return _with_zone(state, zone, zone_id), ()
    zone, missing, feasible = try_placing(zone)
    if feasible and missing:
        zone, asks = ask_distances(zone, missing, state.name, now_s)
        return _with_zone(state, zone, zone_id), asks
    zone, upwards, actions = finish(zone, state.name, feasible=feasible)
    state = _with_zone(state, zone, zone_id)
    if upwards is not None:
        assert zone.zone is not None
        upstream = zone.zone.upstream
        assert upstream is not None
        top = len(upwards.path) == 1  # the root zone's coordinator is the proxy
        to = ToPeer(zone.settings.proxy) if top else ToZone(upstream)
        return state, (*actions, Send(to, upwards))
    return _completed(state, zone, zone_id, now_s, actions)


def _begin(state: PeerState, tree: TreeState) -> Step:
    """The proxy hands out zones and wakes the sources (section 4.2, initialization)."""
    actions: list[Action] = []
    cut = zones(tree.tree, tree.levels)
    above = {zone.id: zone.upstream for zone in cut}
    owner = {child: zone.id for zone in cut for child in zone.boundary}
    for zone in cut:
        to = ToPeer(state.name) if zone.upstream is None else ToZone(zone.id)
        actions.append(Send(to, AddSubtree(tree.settings, zone)))
    for source in tree.tree.sources:
        path: list[str] = []
        at: str | None = owner.get(source.id)
        while at is not None:
            path.append(at)
            at = above[at]
        here = Configuration(source.location, 0.0)
        to_source = ToPeer(source.location, routed=True)
        mapped = OperatorMapped(tree.settings, source.id, 0, here)
        actions.append(Send(to_source, mapped))
        begin = Map(tree.settings, source.id, source.rate, here, tuple(path))
        actions.append(Send(to_source, begin))
    trees = {**state.trees, tree.tree.id: tree}
    return replace(state, trees=trees), tuple(actions)


def _begin_at_source(state: PeerState, message: Map, route: tuple[str, ...]) -> Step:
    """A source adds the peers on its route and its own way to the proxy, and passes MAP on."""
    settings = message.settings
    if message.configuration is None or message.configuration.location != state.name:
        return state, ()  # it was meant for somebody whom the overlay does not find
    met = tuple(peer for peer in route if peer not in (state.name, *settings.read_at))
    begun = replace(
        message,
        candidates=met if settings.algorithm == "in_network" else (),
        descendants=(state.name,),
        members=(state.name,),
    )
    if settings.algorithm == "edge" and settings.latency_bound is None:
        return state, (_forward(begun),)
    if settings.read_at == (state.name,):
        return _probed(state, Probed(begun, ((state.name, 0.0),)))
    return state, (Probe(settings.read_at, begun),)


def _forward(message: Map) -> Send:
    top = len(message.path) == 1
    to = ToPeer(message.settings.proxy) if top else ToZone(message.path[0])
    return Send(to, message)


def _probed(state: PeerState, event: Probed) -> Step:
    reason = event.reason
    match reason:
        case Measure():
            answer = Measured(reason.settings, reason.zone, state.name, event.distances)
            return state, (Send(ToPeer(reason.reply_to), answer),)
        case Map():
            view = tuple((state.name, to, ms) for to, ms in event.distances if to != state.name)
            configuration = reason.configuration
            if reason.settings.latency_bound is not None:
                # An unanswered probe leaves the source without a known way to who reads the result.
                ways = dict(event.distances)
                known = all(end in ways for end in reason.settings.timed_at)
                delay = max(ways.get(end, 0.0) for end in reason.settings.timed_at)
                configuration = Configuration(state.name, 0.0, (delay,)) if known else None
            return state, (_forward(replace(reason, configuration=configuration, view=view)),)
        case _:
            assert_never(reason)


def _hosts(state: PeerState, settings: Settings, operator: str, hosted: Hosted) -> Step:
    known = state.hosted.get((settings.tree, operator))
    if known is not None and (known.epoch, known.revision) >= (hosted.epoch, hosted.revision):
        return state, ()
    return replace(state, hosted={**state.hosted, (settings.tree, operator): hosted}), ()


def _invalidated(state: PeerState, message: InvalidateMap, now_s: float) -> Step:
    settings = message.settings
    if message.operator is not None:
        gone = Hosted(settings.epoch, message.revision, None, (), now_s)
        known = state.hosted.get((settings.tree, message.operator))
        if known is not None and (known.epoch, known.revision) > (gone.epoch, gone.revision):
            return state, ()
        return replace(state, hosted={**state.hosted, (settings.tree, message.operator): gone}), ()
    kept = {
        key: hosted
        for key, hosted in state.hosted.items()
        if key[0] != settings.tree or hosted.epoch >= settings.epoch
    }
    zones_kept = {
        key: zone
        for key, zone in state.zones.items()
        if key[0] != settings.tree or zone.settings.epoch >= settings.epoch
    }
    return replace(state, hosted=kept, zones=zones_kept), ()


def _withdrawn(state: PeerState, tree_id: str) -> Step:
    tree = state.trees.get(tree_id)
    if tree is None:
        return state, ()
    trees = {name: other for name, other in state.trees.items() if name != tree_id}
    later = replace(tree.settings, epoch=tree.settings.epoch + 1)
    sources = {source.location for source in tree.tree.sources}
    known = sorted({*tree.members, *tree.former, *sources, state.name})
    forget = InvalidateMap(later, None, 0)
    return replace(state, trees=trees), tuple(Send(ToPeer(peer), forget) for peer in known)


def _completed(
    state: PeerState, zone: ZoneState, zone_id: str, now_s: float, actions: tuple[Action, ...]
) -> Step:
    """The root zone is placed: the proxy reports, and former hosts forget the older epochs."""
    tree = state.trees.get(zone.settings.tree)
    if tree is None or tree.settings.epoch != zone.settings.epoch:
        return state, actions
    table = zone.tables.get(zone_id)
    if table is None:
        bound = zone.settings.latency_bound
        refusal = Refuse(
            tree.tree.id, zone.settings.epoch, "latency", f"no placement keeps the bound of {bound}"
        )
        refused = replace(tree, phase="refused", since_s=now_s)
        return _with_tree(state, refused), (*actions, refusal)
    members = sorted({peer for report in zone.arrived.values() for peer in report.members})
    best = table.rows[table.best]
    forget = InvalidateMap(zone.settings, None, 0)
    farewell = [Send(ToPeer(peer), forget) for peer in tree.former]
    placed = replace(
        tree,
        phase="placed",
        since_s=now_s,
        attempts=1,
        # a child that was moved on may lie wherever its zone, or the proxy, had a place for it
        members=tuple(
            sorted({*members, *zone.settings.candidates, *zone.settings.read_at, state.name})
        ),
        former=(),
    )
    report = Report(
        tree.tree.id,
        zone.settings.epoch,
        best.cost,
        max(best.delays) if best.delays else None,
        table.best,
    )
    return _with_tree(state, placed), (*actions, *farewell, report)


def _with_tree(state: PeerState, tree: TreeState) -> PeerState:
    return replace(state, trees={**state.trees, tree.tree.id: tree})


def _restart(state: PeerState, tree: TreeState, now_s: float, *, attempts: int) -> Step:
    settings = replace(tree.settings, epoch=tree.settings.epoch + 1)
    former = tuple(sorted({*tree.former, *tree.members}))
    again = replace(
        tree, settings=settings, phase="mapping", since_s=now_s, attempts=attempts, former=former
    )
    return _begin(state, again)


def _tick(state: PeerState, now_s: float) -> Step:
    actions: list[Action] = []
    lease_s = state.timing.lease_s
    if any(now_s - hosted.told_at_s > lease_s for hosted in state.hosted.values()):
        fresh = {k: h for k, h in state.hosted.items() if now_s - h.told_at_s <= lease_s}
        state = replace(state, hosted=fresh)
    for (_, zone_id), zone in sorted(state.zones.items(), key=lambda item: item[0]):
        if zone.awaiting and now_s - zone.asked_at_s >= state.timing.measure_s:
            state, more = _advance(state, replace(zone, awaiting=frozenset()), zone_id, now_s)
            actions.extend(more)
    for tree in sorted(state.trees.values(), key=lambda tree: tree.tree.id):
        state, more = _tick_tree(state, tree, now_s)
        actions.extend(more)
    return state, tuple(actions)


def _tick_tree(state: PeerState, tree: TreeState, now_s: float) -> Step:
    age_s = now_s - tree.since_s
    if tree.phase == "mapping" and age_s >= state.timing.mapping_s:
        if tree.attempts >= state.timing.attempts_max:
            refused = replace(tree, phase="refused", since_s=now_s)
            detail = f"no answer after {tree.attempts} attempts"
            refusal = Refuse(tree.tree.id, tree.settings.epoch, "timeout", detail)
            return _with_tree(state, refused), (refusal,)
        return _restart(state, tree, now_s, attempts=tree.attempts + 1)
    if tree.phase != "mapping" and age_s >= state.timing.replace_s:
        return _restart(state, tree, now_s, attempts=1)
    return state, ()


def _peer_down(state: PeerState, event: PeerDown) -> Step:
    """A tree that depends on the peer is mapped again; the overlay gives its zones to others."""
    actions: list[Action] = []
    for tree in sorted(state.trees.values(), key=lambda tree: tree.tree.id):
        if tree.phase == "refused":
            continue
        lost = [s.id for s in tree.tree.sources if s.location == event.peer]
        if lost:
            detail = f"source {lost[0]!r} lies on {event.peer!r}, which is down"
            refused = replace(tree, phase="refused", since_s=event.now_s)
            state = _with_tree(state, refused)
            actions.append(Refuse(tree.tree.id, tree.settings.epoch, "source", detail))
        elif event.peer in tree.members or (tree.phase == "mapping" and _counts_on(tree, event)):
            named = tuple(peer for peer in tree.settings.candidates if peer != event.peer)
            without = replace(tree, settings=replace(tree.settings, candidates=named))
            state, more = _restart(state, without, event.now_s, attempts=tree.attempts)
            actions.extend(more)
    return state, tuple(actions)


def _counts_on(tree: TreeState, event: PeerDown) -> bool:
    """Whether a mapping under way may wait for the peer; told twice it is begun anew once."""
    return not tree.settings.candidates or event.peer in tree.settings.candidates
