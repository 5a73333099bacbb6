"""Which operators run together now: those of one class whose cursors stand at the same place.

A class has one leading group, the furthest; members that are behind (a new query, say) run by
themselves up to where the group stands, and then go with it. So a shared operator is widened
between two steps without any notice to its other users: no reader sees a gap or a repeat.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.engine.dataflow import Dataflow
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import Operator
from millstream.language.share.groups import Candidate, candidate, split_by_sides
from millstream.language.share.matching import MATCHINGS
from millstream.store.reach import reachable

TOGETHER_MAX = 1_000  # members of one job
Limits = Mapping[str, int]  # by stream: the number a step stops before


@dataclass(frozen=True, slots=True)
class Unit:
    """What runs as one step."""

    id: str
    operators: tuple[Operator, ...]
    members: tuple[Candidate, ...] = ()  # empty for one operator alone
    limits: Limits | None = None
    family: str = ""  # its class, where it has one
    behind: bool = False  # whether it catches up with the rest of its class

    def busy(self) -> set[str]:
        """What nobody else may run meanwhile; the class waits for who comes up to it."""
        names = {self.id, *(o.id for o in self.operators)}
        return names | {self.family} if self.behind else names

    def apart(self) -> "tuple[Unit, ...]":
        """The same operators, each by itself."""
        return tuple(alone(o, self.limits) for o in self.operators)

    def halves(self) -> "tuple[Unit, ...]":
        """The same operators in two units."""
        middle = len(self.operators) // 2
        return tuple(
            alone(self.operators[part][0], self.limits)
            if len(self.operators[part]) == 1
            else replace(self, operators=self.operators[part], members=self.members[part])
            for part in (slice(middle), slice(middle, None))
        )


def alone(operator: Operator, limits: Limits | None = None) -> Unit:
    """One operator by itself: a train with one member."""
    return Unit(operator.id, (operator,), limits=limits)


class Trains:
    """Forms the units of one engine."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self._key: tuple[object, ...] = ()
        self._alone: list[Operator] = []
        self._families: dict[str, list[Candidate]] = {}
        self._given_up: set[str] = set()
        self._seen: tuple[object, ...] = ()  # what the last units were formed from
        self._units: list[Unit] = []

    def units(self, busy: Collection[str] = ()) -> list[Unit]:
        """All operators, each in one unit; those of busy operators are told as they are."""
        self._sort()
        # asked for at every choice, also where nothing has happened but that rows have come
        fences = [(o, *sorted(f.items())) for o, f in self.flow.fences.items()]
        seen = (
            self._key,
            self.flow.ledger.moves_seen,
            frozenset(busy),
            self.flow.paused_operators,
            tuple(fences),
        )
        if seen != self._seen:
            self._units, self._seen = self._formed(busy), seen
        return self._units.copy()

    def _formed(self, busy: Collection[str]) -> list[Unit]:
        fences = self.flow.fences
        found = [self._fenced(o) if o.id in fences else alone(o) for o in self._alone]
        for family, members in self._families.items():
            free = [
                m
                for m in members
                if m.operator.id not in busy and m.operator.id not in self.flow.paused_operators
            ]
            if free and family not in busy:
                found += self._of_family(family, free)
        return found

    def _fenced(self, operator: Operator) -> Unit:
        """An operator by itself, as far as it may go now."""
        fences = self.flow.fences[operator.id]
        return alone(operator, {s: fences.get(s, FOREVER) for s in operator.inputs})

    def give_up(self, unit: Unit) -> None:
        """These operators are too much for one job: from now on each runs alone."""
        self._given_up |= {o.id for o in unit.operators}
        self._key = self._seen = ()

    def _sort(self) -> None:
        """Classes, worked out again only when operators come or go."""
        shedding = self.flow.shedding.allowances()
        key = (tuple(self.flow.operators), frozenset(shedding), frozenset(self.flow.fences))
        if key == self._key:
            return
        self._key = key
        self._alone, self._families = [], {}
        shared = MATCHINGS.get(self.flow.settings.sharing).together
        classes: dict[str, list[Candidate]] = {}
        for operator in self.flow.operators.values():
            apart = operator.id in self._given_up or operator.id in self.flow.fences
            alone = not shared or apart
            found = None if alone else candidate(operator)
            if found is None:
                self._alone.append(operator)
            else:
                family = found.family + (" shedding" if operator.id in shedding else "")
                classes.setdefault(family, []).append(found)
        for name, members in classes.items():
            for number, group in enumerate(split_by_sides(members)):
                if len(group) == 1:
                    self._alone.append(group[0].operator)
                else:
                    self._families[f"{name}.{number}"] = group

    def _of_family(self, family: str, members: Sequence[Candidate]) -> list[Unit]:
        if members[0].operator.kind == "combine":
            return self._of_panes(family, members)
        groups: dict[tuple[int, ...], list[Candidate]] = {}
        for member in members:
            groups.setdefault(self._cursors(member.operator), []).append(member)
        leader = max(groups)
        units = []
        for cursors, group in groups.items():
            limits = None
            if cursors != leader:
                streams = sorted(group[0].operator.inputs)
                limits = dict(zip(streams, map(max, cursors, leader), strict=True))
            units += _units(family, group, limits, leads=cursors == leader)
        return units

    def _cursors(self, operator: Operator) -> tuple[int, ...]:
        return tuple(self.flow.ledger.cursor(operator.id, s)[0] for s in sorted(operator.inputs))

    def _of_panes(self, family: str, members: Sequence[Candidate]) -> list[Unit]:
        """Combinations go together where all their panes lie in shared files, at the same time."""
        groups: dict[tuple[object, ...], list[Candidate]] = {}
        for member in members:
            groups.setdefault(self._stand(member.operator), []).append(member)
        sizes = {key: len(group) for key, group in groups.items()}
        leader = max(groups, key=lambda key: sizes[key])
        return [
            unit
            for key, group in groups.items()
            for unit in _units(family, group, None, leads=key == leader)
        ]

    def _stand(self, operator: Operator) -> tuple[object, ...]:
        """The watermark up to which windows are out, and the one up to which they could be."""
        (stream,) = operator.inputs
        ledger = self.flow.ledger
        following, watermark = ledger.cursor(operator.id, stream)
        marks = {stream: watermark}
        head = watermark
        for s in ledger.segments(stream):
            new = s.last >= following
            if s.file and s.tag is None and (new or reachable(operator, s, marks)):
                return (operator.id,)  # a file of its own: alone
            head = max(head, s.watermark) if new else head
        return (watermark, head)


def _units(
    family: str, group: Sequence[Candidate], limits: Limits | None, *, leads: bool
) -> list[Unit]:
    units = []
    for start in range(0, len(group), TOGETHER_MAX):
        part = group[start : start + TOGETHER_MAX]
        operators = tuple(c.operator for c in part)
        if len(part) == 1:
            units.append(Unit(operators[0].id, operators, (), limits, family, not leads))
            continue
        name = family if leads and start == 0 else f"{family}@{operators[0].id[2:10]}"
        units.append(Unit(name, operators, tuple(part), limits, family, not leads))
    return units
