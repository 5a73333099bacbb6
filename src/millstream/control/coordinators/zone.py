"""A zone at its coordinator: gathering, placing, telling hosts, moving children.

Pure functions of `ZoneState`, used by `coordinator.step` alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millstream.control.coordinators.mapping import Table, map_operator, missing_pairs, places
from millstream.control.coordinators.state import Action, Probe, Send, ToPeer, ToZone, ZoneState
from millstream.control.protocol.coordinator_messages import (
    InvalidateMap,
    Map,
    Measure,
    OperatorMapped,
    OperatorRemapped,
    Zone,
)


def heard(zone: ZoneState, message: Map) -> ZoneState:
    """A boundary child was placed; what it knows of the network is added to the view."""
    view = dict(zone.view)
    view.update({(origin, target): ms for origin, target, ms in message.view})
    tables = dict(zone.tables)
    if message.configuration is not None:
        best = message.configuration
        rows = {row.location: row for row in (*message.alternatives, best)}
        tables[message.operator] = Table(
            message.operator, message.rate, best.location, rows, message.descendants
        )
    return replace(
        zone, arrived={**zone.arrived, message.operator: message}, tables=tables, view=view
    )


def candidates_of(zone: ZoneState) -> tuple[str, ...]:
    """Peers met on the routes to the sources below, and those the proxy named."""
    met = {peer for message in zone.arrived.values() for peer in message.candidates}
    return tuple(sorted(met.union(zone.settings.candidates)))


def try_placing(zone: ZoneState) -> tuple[ZoneState, frozenset[tuple[str, str]], bool]:
    """Places operators bottom-up as far as distances allow: (zone, missing distances, feasible)."""
    assert zone.zone is not None
    if any(child not in zone.tables for child in zone.zone.boundary):
        return zone, frozenset(), False
    tables = dict(zone.tables)
    candidates = candidates_of(zone)
    missing: set[tuple[str, str]] = set()
    for operator in zone.zone.operators:
        if operator.id in tables or any(child not in tables for child in operator.children):
            continue
        children = [tables[child] for child in operator.children]
        root = zone.zone.upstream is None and operator.id == zone.zone.id
        wanted = {*zone.zone.wanted}.union(*(other.common for other in zone.zone.operators))
        at = places(operator, children, zone.settings, sorted(wanted), candidates)
        lacking = {
            pair
            for pair in missing_pairs(children, zone.settings, at, zone.view, root=root)
            if pair not in zone.asked
        }
        if lacking:
            missing |= lacking
            continue
        table = map_operator(
            operator, children, zone.settings, zone.view, at=at, candidates=candidates, root=root
        )
        if table is None:
            return replace(zone, tables=tables), frozenset(), False
        tables[operator.id] = table
    return replace(zone, tables=tables), frozenset(missing), True


def ask_distances(
    zone: ZoneState, missing: Iterable[tuple[str, str]], here: str, now_s: float
) -> tuple[ZoneState, tuple[Action, ...]]:
    """One MEASURE to each peer whose distances are lacking; a coordinator probes its own."""
    assert zone.zone is not None
    by_origin: dict[str, list[str]] = {}
    for origin, target in sorted(missing):
        by_origin.setdefault(origin, []).append(target)
    actions: list[Action] = []
    for origin, targets in by_origin.items():
        ask = Measure(zone.settings, zone.zone.id, here, tuple(targets))
        actions.append(Probe(ask.targets, ask) if origin == here else Send(ToPeer(origin), ask))
    waiting = replace(
        zone,
        asked=zone.asked.union(missing),
        awaiting=frozenset(by_origin),
        asked_at_s=now_s,
    )
    return waiting, tuple(actions)


def resolve(zone: Zone, tables: Mapping[str, Table], location: str) -> dict[str, str]:
    """Where everything in the zone, and its boundary children, lie with its root at a place."""
    at = {zone.id: location}
    for operator in reversed(zone.operators):
        row = tables[operator.id].rows[at[operator.id]]
        at.update(zip(operator.children, row.children, strict=True))
    return at


def finish(
    zone: ZoneState, here: str, *, feasible: bool
) -> tuple[ZoneState, Map | None, tuple[Action, ...]]:
    """The zone is placed, or cannot be: (zone, the MAP for upstream, messages to hosts)."""
    assert zone.zone is not None
    done = replace(zone, done=True)
    actions: tuple[Action, ...] = ()
    if feasible:
        best = zone.tables[zone.zone.id].best
        before = {child: zone.tables[child].best for child in zone.zone.boundary}
        done, actions = _assign(replace(done, assigned=before), best)
    if zone.zone.upstream is None:
        return done, None, actions
    return done, _upwards(done, here, feasible=feasible), actions


def _upwards(zone: ZoneState, here: str, *, feasible: bool) -> Map:
    assert zone.zone is not None
    reports = list(zone.arrived.values())
    candidates = {peer for report in reports for peer in report.candidates}
    members = {here, *zone.assigned.values(), *candidates}
    members.update(peer for report in reports for peer in report.members)
    table = zone.tables.get(zone.zone.id)
    rows = table.rows if feasible and table is not None else {}
    best = table.rows[table.best] if feasible and table is not None else None
    return Map(
        zone.settings,
        zone.zone.id,
        zone.zone.operators[-1].rate,
        best,
        reports[0].path[1:],
        tuple(rows[place] for place in sorted(rows) if best is None or place != best.location),
        tuple(sorted({place for report in reports for place in report.descendants})),
        tuple(sorted(candidates)),
        tuple((origin, target, ms) for (origin, target), ms in sorted(zone.view.items())),
        tuple(sorted(members)),
    )


def remap(zone: ZoneState, message: OperatorRemapped) -> tuple[ZoneState, tuple[Action, ...]]:
    """The zone above wants this zone's root elsewhere: checked, then followed (backtracking)."""
    if not zone.done or zone.zone is None or message.revision <= zone.remapped_at:
        return zone, ()
    table = zone.tables.get(message.operator)
    if table is None or message.location not in table.rows:
        return zone, ()  # not a configuration that this coordinator ever offered
    return _assign(replace(zone, remapped_at=message.revision), message.location)


def _assign(zone: ZoneState, location: str) -> tuple[ZoneState, tuple[Action, ...]]:
    """Tells hosts, former hosts and children's coordinators what changed."""
    assert zone.zone is not None
    at = resolve(zone.zone, zone.tables, location)
    revision = zone.revision + 1
    actions: list[Action] = []
    for operator in zone.zone.operators:
        old, new = zone.assigned.get(operator.id), at[operator.id]
        if old == new:
            continue
        if old is not None:
            actions.append(Send(ToPeer(old), InvalidateMap(zone.settings, operator.id, revision)))
        rows = zone.tables[operator.id].rows
        others = tuple(rows[place] for place in sorted(rows) if place != new)
        mapped = OperatorMapped(zone.settings, operator.id, revision, rows[new], others)
        actions.append(Send(ToPeer(new), mapped))
    for child in zone.zone.boundary:
        if at[child] != zone.assigned[child]:
            moved = OperatorRemapped(zone.settings, child, at[child], revision)
            actions.append(Send(ToZone(child), moved))
    return replace(zone, assigned=at, revision=revision), tuple(actions)
