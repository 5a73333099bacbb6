"""A processor is lost, and a holder of a copy of its home continues in its place, under its name.

First its followers are fenced: from then on they acknowledge nothing to it, so that it can send
nothing more, should it still run. Everything that it has ever sent is at every follower of the
latest configuration under which one of them was complete. Of these the one with the newest copy
adopts the home, and runs it under an epoch that the lost one never had. For all others the
processor has restarted at another address. The other followers of that configuration keep their
copies until new followers have everything: the heir may be lost next. If the lost processor
answers before another has taken its place, it continues itself.
"""

from dataclasses import replace

from millstream.control.manager.state import ManagerState, Replication
from millstream.control.manager.turn import Turn
from millstream.control.recovery.replication import configurations, hurry, kept
from millstream.core.errors import UsageError

EPOCH_STEP = 500  # half of what an adopted home's epoch grows by


def possible(state: ManagerState, name: str) -> bool:
    """Whether others may have what a processor had."""
    known = state.replications.get(name)
    return known is not None and any(
        follower in state.processors
        for _, followers in configurations(known)
        for follower in followers
    )


def begin(turn: Turn, name: str, *, told: bool = False) -> None:
    """A user has declared it lost (`told`), or it was silent for too long."""
    known = turn.state.replications[name]
    if known.phase == "adopting":
        raise UsageError(
            f"processor {name} is about to continue at {known.heir}",
            hint="wait until it has joined; if that one is lost as well, remove it first",
        )
    _forget_told(turn)
    turn.put(replace(known, phase="fencing", heir="", told=told or known.told))
    if known.phase:
        return
    turn.decide(
        "failure", f"processor {name} is lost: the manager asks the holders of a copy of its home",
        about=("processor", name),
    )  # fmt: skip


def advance(turn: Turn) -> list[str]:
    """Continues lost processors; returns those whose copies are gone too."""
    settings = turn.state.settings
    gone: list[str] = []
    for name, known in list(turn.state.replications.items()):
        live = turn.state.live.get(name)
        if name not in turn.state.processors:
            continue
        silent = live is not None and live.state == "silent"
        if not known.phase:
            overdue = silent and turn.now_s - live.heard_s > settings.lost_after_s  # type: ignore[union-attr]
            if settings.lost_after_s and overdue and known.followers and possible(turn.state, name):
                begin(turn, name)
        elif known.phase == "fencing" and not silent:
            _back(turn, known)
        elif known.phase == "adopting" and _lost_too(turn.state, known):
            _forget_told(turn)
            turn.put(replace(known, phase="fencing", heir=""))
        elif known.phase == "fencing" and not _choose(turn, known) and known.told:
            gone.append(name)  # no other has it: its own home, if it comes back, or nothing
    return gone


def _choose(turn: Turn, known: Replication) -> bool:
    """Says which follower continues, once that is known; False if none can."""
    for number, followers in configurations(known):
        there = [f for f in followers if f in turn.state.processors]
        if followers and not there:
            return False  # every holder of a copy is lost too
        told = {f: kept(turn.state, f, known.id) for f in there}
        fenced = {f: k for f, k in told.items() if k is not None and k.state == "fenced"}
        whole = {f: k for f, k in fenced.items() if k.complete >= number}
        if whole:
            heir = max(whole, key=lambda f: (whole[f].commit, f))
            # whatever was told lies at all of these, and nowhere else
            _adopt(turn, replace(known, former=((number, followers),)), heir)
            return True
        had = {f for f, k in told.items() if k is not None and k.had >= number}
        if had and had == set(there):
            return False  # it is lost with them: older copies do not have all that was told
        never = {f for f in there if f in fenced or _has_none(turn.state, f, known.id)} - had
        if followers and not never:
            return True  # one of those that have not answered yet may have everything
    return False


def _lost_too(state: ManagerState, known: Replication) -> bool:
    """Whether the heir is gone, or has come back without the home, or with a damaged one."""
    return known.heir not in state.processors or _has_none(state, known.heir, known.id)


def _has_none(state: ManagerState, follower: str, home: str) -> bool:
    """Whether a follower has said, since it was asked, that it has no copy that is of any use."""
    live = state.live.get(follower)
    told = live.replicas if live is not None and live.state != "silent" else None
    return told is not None and (home not in told.homes or told.homes[home].state == "damaged")


def _adopt(turn: Turn, known: Replication, heir: str) -> None:
    mine = turn.state.processors[known.id]
    turn.put(replace(known, phase="adopting", heir=heir))
    hurry(turn)
    turn.put(replace(mine, epoch=mine.epoch + EPOCH_STEP))  # the lost one is refused from now on
    turn.decide(
        "failure", f"processor {known.id} continues at {heir}",
        "it has everything that the lost one has ever told anybody", about=("processor", known.id),
        subjects=(heir,),
    )  # fmt: skip


def _back(turn: Turn, known: Replication) -> None:
    """It answered before a follower took its place."""
    _forget_told(turn)
    former = ((known.number, known.followers), *known.former)
    turn.put(replace(known, phase="", heir="", told=False, number=known.number + 1, former=former))
    turn.decide("notice", f"processor {known.id} is there after all", about=("processor", known.id))


def joined(turn: Turn, name: str) -> None:
    """It runs at its heir's: others keep copies of it from here on."""
    known = turn.state.replications.get(name)
    if known is not None and known.phase == "adopting":
        others = tuple((n, tuple(f for f in fs if f != known.heir)) for n, fs in known.former)
        turn.put(
            replace(
                known, phase="", heir="", told=False, number=known.number + 1, followers=(),
                former=tuple((n, followers) for n, followers in others if followers),
            )
        )  # fmt: skip


def under_way(state: ManagerState, name: str) -> bool:
    """Whether nothing is said to a processor: another is about to stand in its place."""
    known = state.replications.get(name)
    return known is not None and known.phase == "adopting"


def _forget_told(turn: Turn) -> None:
    """What followers have said so far was before: only what they say now counts."""
    for name, live in list(turn.state.live.items()):
        if live.replicas is not None:
            turn.live(name, replicas=None)
    hurry(turn)
