"""The copies of each processor's home: as many as streams, queries or the system ask for.

A copy holds a whole home: one ledger has everything that a step reads, makes and remembers, so a
processor can continue from a copy as after a crash. If a stream or a query asks for replicas, every
processor that has a part of it, or is about to, gets them. Another follower replaces a silent one,
if there is one; while there are too few, the processor sends out nothing that it commits. Each
change is a numbered configuration. A processor gets no work before it has the present one; former
ones are remembered until all of the present one have all.
"""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from millstream.control.definitions.replicas import REPLICAS_HINT, replicas_problem
from millstream.control.manager import monitor
from millstream.control.manager.state import ManagerState, Processor, Query, Replication
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import Command, Home, KeepReplicas
from millstream.control.protocol.records import NOWHERE, Peer
from millstream.control.protocol.replies import KeptHome, Replicas
from millstream.core.errors import UsageError

ADOPTED_BY = "adopted_by"  # a property: on whose machine an adopted home is run
FORMER_KEPT = 8


def check(replicas: object) -> None:
    """Refuses what is no number of replicas."""
    if problem := replicas_problem(replicas):
        raise UsageError(problem, hint=REPLICAS_HINT)


def wanted(state: ManagerState, processor: str) -> int:
    """How many processors are to have everything of one's home, itself among them."""
    arriving = _arriving(state, processor)
    entering = (s for s in state.streams.values() if s.processor == processor or s.id in arriving)
    asked = [state.settings.replicas, *(int(s.table.get("replicas", 1)) for s in entering)]
    for query in state.queries.values():
        if query.replicas <= max(asked):
            continue
        comes = not arriving.isdisjoint((*query.operators, *query.sources))
        if comes or processor in _places(state, query):
            asked.append(query.replicas)
    return max(asked)


def _arriving(state: ManagerState, processor: str) -> set[str]:
    """What moves there: its rows are told by the new owner before the move is over here."""
    moves = (m for m in state.moves.values() if m.target == processor and not m.over)
    return {operator for move in moves for operator in move.operators}


def _places(state: ManagerState, query: Query) -> set[str]:
    """Where a query's operators are, and where the streams that it reads enter."""
    placed = {state.operators[o].processor for o in query.operators if o in state.operators}
    names = (s.removeprefix("s:") for s in query.sources)
    return placed | {state.streams[n].processor for n in names if n in state.streams}


def review(turn: Turn) -> None:
    """Configurations as they should be now. A manager that learns leaves them as they are, but for
    followers that do not answer: without others in their place nobody could tell it anything."""
    for name in sorted({*turn.state.processors, *turn.state.replications}):
        known = turn.state.replications.get(name)
        if turn.state.learning_until_s:
            if known is not None and not known.phase and name in turn.state.processors:
                _configure(turn, known, max(wanted(turn.state, name) - 1, known.wanted))
            continue
        if name not in turn.state.processors:
            if known is not None and not known.phase and (known.followers or known.former):
                turn.put(replace(known, number=known.number + 1, followers=(), former=(), wanted=0))
            continue
        others = wanted(turn.state, name) - 1
        if known is None:
            if not others:
                continue
            known = Replication(name)
        if not known.phase:
            _configure(turn, known, others)


def _configure(turn: Turn, known: Replication, others: int) -> None:
    state, name = turn.state, known.id
    live = state.live.get(name)
    if live is None or live.state == "silent" or state.processors[name].url == NOWHERE:
        return  # nobody could tell it
    followers = _chosen(state, known, others)
    former = known.former
    if former and _all_complete(state, known):
        former = ()
    if (others, followers) == (known.wanted, known.followers):
        if former != known.former:
            turn.put(replace(known, former=former))
        return
    if known.followers:
        former = ((known.number, known.followers), *former)[:FORMER_KEPT]
    turn.put(
        replace(known, number=known.number + 1, wanted=others, followers=followers, former=former)
    )
    hurry(turn)
    if others:
        at = ", ".join(followers) or "no processor"
        lack = f"; {others - len(followers)} more are wanted" if len(followers) < others else ""
        turn.decide(
            "notice", f"what {name} has is kept at {at} as well{lack}", about=("processor", name)
        )


def hurry(turn: Turn) -> None:
    """Nobody's next report is waited for."""
    for name in list(turn.state.live):
        turn.live(name, beat_due_s=turn.now_s)


def _chosen(state: ManagerState, known: Replication, others: int) -> tuple[str, ...]:
    """Present followers that answer, then others, then, where there is nobody else, silent ones."""
    mine = state.processors[known.id]
    # a home that was adopted lies in its heir's folder and may go with it: the heir itself follows
    others_homes = [p for p in state.processors.values() if ADOPTED_BY not in p.properties]
    fit = [p for p in others_homes if p.id != known.id and not _together(p, mine)]
    # who has just come counts: before it has followers itself, it tells nobody what it has
    up = {p.id for p in fit if (live := state.live.get(p.id)) and live.state != "silent"}
    load = {p.id: 0 for p in fit}
    for other in state.replications.values():
        for follower in other.followers if other.id != known.id else ():
            if follower in load:
                load[follower] += 1
    here = urlsplit(mine.url).hostname
    order = sorted(
        (p for p in fit if p.id in up and p.id not in known.followers),
        key=lambda p: (
            p.draining,
            urlsplit(p.url).hostname == here,
            load[p.id],
            p.id < mine.id,
            p.id,
        ),
    )
    there = [f for f in known.followers if f in up]
    silent = [f for f in known.followers if f in load and f not in up]
    return tuple((*there, *(p.id for p in order), *silent)[:others])


def _together(one: Processor, other: Processor) -> bool:
    """Whether two are lost together."""
    lives = {one.properties.get(ADOPTED_BY, one.id), other.properties.get(ADOPTED_BY, other.id)}
    return len(lives) == 1


def kept(state: ManagerState, follower: str, home: str) -> KeptHome | None:
    """What a follower has last said of its copy."""
    live = state.live.get(follower)
    return live.replicas.homes.get(home) if live is not None and live.replicas is not None else None


def _all_complete(state: ManagerState, known: Replication) -> bool:
    if len(known.followers) < known.wanted or not known.followers:
        return False
    found = [kept(state, follower, known.id) for follower in known.followers]
    return all(one is not None and one.complete >= known.number for one in found)


# -- messages -------------------------------------------------------------------------------------


def commands_for(state: ManagerState, name: str) -> tuple[Command, ...]:
    """What a processor hears with each question for its report; nothing where nobody asks."""
    learning = bool(state.learning_until_s)
    if learning and state.settings.asks_strangers and state.live[name].replicas is None:
        return (KeepReplicas(0, 0, (), ()),)  # a question: nobody is told less than he knows
    if not state.replications:
        return ()
    mine = state.replications.get(name, Replication(name))
    if mine.phase:
        return ()
    followers = tuple(
        Peer(f, state.processors[f].url) for f in mine.followers if f in state.processors
    )
    homes = tuple(
        home for r in state.replications.values()
        if (home := _home(state, r, name)) and not (learning and home.role == "forget")
    )  # fmt: skip
    return (KeepReplicas(mine.number, mine.wanted, followers, homes),)


def in_effect(state: ManagerState, name: str) -> bool:
    """Whether a processor has said that it waits for those who are to have everything: before that
    it would tell what nobody else has."""
    known = state.replications.get(name)
    if known is None or not known.wanted:
        return True
    told = state.live[name].replicas
    return told is not None and told.number >= known.number


def _home(state: ManagerState, known: Replication, name: str) -> Home | None:
    """What one is to do about another's home."""
    owner = state.processors.get(known.id)
    peer = Peer(known.id, owner.url if owner is not None else NOWHERE)
    if known.phase:
        members = {f for _, followers in configurations(known) for f in followers}
        if name == known.heir:
            beyond = owner.epoch if owner is not None else 0
            return Home(replace(peer, epoch=beyond), known.number, "adopt")
        return Home(peer, known.number, "fence") if name in members else None
    if name in known.followers:
        return Home(peer, known.number, "follow")
    former = any(name in followers for _, followers in known.former)
    has = kept(state, name, known.id)
    lives = owner.properties.get(ADOPTED_BY) if owner is not None else None
    if has is None or former or (has.state == "adopted" and lives in (name, None)):
        return None
    needed = known.followers and not _all_complete(state, known)
    return None if needed else Home(peer, known.number, "forget")


def configurations(known: Replication) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The present one and those before it that may still matter, the latest first."""
    return ((known.number, known.followers), *known.former)


def note(turn: Turn, processor: str, told: Replicas) -> None:
    """What a processor says; one that was told more than is remembered here is believed."""
    turn.live(processor, replicas=told)
    known = turn.state.replications.get(processor)
    if known is None and told.followers:
        count = len(told.followers)
        turn.put(Replication(processor, told.number, count, told.followers))
    elif known is not None and not known.phase and _another(known, told):
        former = ((told.number, told.followers), *known.former)[:FORMER_KEPT]
        turn.put(replace(known, number=told.number + 1, former=former))
    for home, copy in told.homes.items() if turn.state.settings.asks_strangers else ():
        if copy.state in ("following", "fenced"):
            _learn(turn, home, processor, copy.number)


def _another(known: Replication, told: Replicas) -> bool:
    """Whether a processor was told a configuration of another manager, or one that was forgotten;
    that may have the same number."""
    others = set(told.followers) - set(known.followers)
    return told.number > known.number or (told.number == known.number and bool(others))


def _learn(turn: Turn, home: str, follower: str, number: int) -> None:
    """A manager that does not remember a home hears of a copy of it, and from all copies under
    which configurations they were kept: what its owner has told anybody lies there."""
    state = turn.state
    owner = state.processors.get(home)
    known = state.replications.get(home, Replication(home))
    live = state.live.get(home)
    unheard = live is None or (live.replicas is None and live.state != "up")
    gone = owner is None and (home in state.lost or home in state.replications)
    if gone or known.phase == "adopting" or not (unheard or state.learning_until_s):
        return
    told = {n: followers for n, followers in configurations(known) if followers}
    if any(follower in followers for followers in told.values()):
        return
    if number > known.number and not unheard:
        return  # its owner tells of it
    told[number] = (*told.get(number, ()), follower)
    latest, *former = sorted(told.items(), reverse=True)[: FORMER_KEPT + 1]
    if unheard:
        turn.put(replace(known, number=latest[0], followers=latest[1], former=tuple(former)))
    else:
        former = [one for one in (latest, *former) if one[0] != known.number]
        turn.put(replace(known, former=tuple(former)))
    if owner is None:
        turn.put(Processor(home, NOWHERE, 0, untold=True))
        monitor.begin(turn)


def degraded(state: ManagerState) -> Mapping[str, str]:
    """By processor: why what it commits is told to nobody."""
    found: dict[str, str] = {}
    for known in state.replications.values():
        live = state.live.get(known.id)
        if known.phase:
            found[known.id] = f"it is lost and continues at {known.heir or 'one of its followers'}"
        elif len(known.followers) < known.wanted:
            lack = known.wanted - len(known.followers)
            found[known.id] = f"{lack} more processors are wanted that keep what it has"
        elif live is not None and live.state != "silent" and not in_effect(state, known.id):
            found[known.id] = f"it does not know yet that {', '.join(known.followers)} keep it"
        elif known.wanted and live is not None and live.replicas and not live.replicas.safe:
            found[known.id] = f"{', '.join(known.followers)} do not have yet what it commits"
    return found
