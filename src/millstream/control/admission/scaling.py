"""Processors that come and go by themselves: how many there should be, and which may end.

`decide/balance/scaling` decides; this module gives it its facts and carries the decision out. A
processor that is to leave is drained as by a user's request, and may end when nothing is left or
needed there. The manager starts and ends no process: `millstream up` or an orchestrator asks how
many are wanted (`GET /scaling`), and forgets the one that has ended.
"""

from dataclasses import dataclass, replace

from millstream.control.admission.rules import Refused, answers, descriptions, leads_managers
from millstream.control.manager.decisions import measured
from millstream.control.manager.events import Drain
from millstream.control.manager.state import ManagerState, Processor
from millstream.control.manager.turn import Turn
from millstream.control.moves import base_streams
from millstream.control.recovery.silence import silence
from millstream.decide.balance.cost_models import COST_MODELS
from millstream.decide.balance.redistribution import FULL, ROOM
from millstream.decide.balance.scaling import Seen, scale
from millstream.decide.place.reuse.state import CPU, IN, MEMORY, OUT

LOOK_S = 2.0
AGAIN_S = 15.0  # until what stayed at one that leaves is asked to move again
LEAVE_S_MAX = 300.0  # after which it stays
REST_S = 600.0  # then
NO_ROOM = (FULL + ROOM) / 2  # the cost of one that does not answer: it gives no room and wants none
OFFERED = (CPU, MEMORY, IN, OUT)  # resources of which one more processor has more


@dataclass(frozen=True, slots=True)
class Scale:
    """What the starter of processors should do."""

    present: int
    wanted: int
    leaving: tuple[str, ...]  # they are being emptied
    free: tuple[str, ...]  # they have nothing any more: their processes may end
    reason: str


def answer(state: ManagerState) -> Scale:
    """How things are."""
    going = tuple(p.id for p in state.processors.values() if p.leaving_s)
    staying = [p for p in state.processors.values() if not p.draining]
    wanted = max(state.scaling.wanted or len(staying), state.settings.bounds.least)
    free = tuple(name for name in going if _empty(state, name))
    return Scale(len(staying), wanted, going, free, state.scaling.reason)


def can_grow(state: ManagerState, verdict: Refused) -> bool:
    """Whether one more processor may be what a query lacks."""
    there = sum(not p.draining for p in state.processors.values())
    return verdict.resource in OFFERED and there < state.settings.bounds.most


def review(turn: Turn) -> tuple[Drain, ...]:
    """Now and then: what is wanted, and which processor is to be emptied or stays after all."""
    state = turn.state
    bounds = state.settings.bounds
    if not bounds.most or turn.now_s - state.scaled_s < LOOK_S or leads_managers(state):
        return ()
    turn.set(scaled_s=turn.now_s)
    going = [p for p in state.processors.values() if p.leaving_s]
    for processor in going:
        if (asked := _goes_on(turn, processor)) is not None:
            return (asked,)
    wish, memory = scale(_seen(turn.state), bounds, turn.state.scaling, turn.now_s)
    if wish.leave and (silence(state, wish.leave) or not _others(state, wish.leave)):
        return ()  # it cannot be emptied now, or no processor that could take its work answers
    turn.set(scaling=memory)
    if not wish.reason:
        return ()
    if wish.leave:
        known = state.processors[wish.leave]
        turn.put(replace(known, leaving_s=turn.now_s))
        told = f"processor {wish.leave} is to leave: {wish.wanted} are enough"
        turn.decide("notice", told, wish.reason, about=("processor", wish.leave))
        return (Drain(wish.leave),)
    if wish.stay:
        turn.put(replace(state.processors[wish.stay], leaving_s=0.0))
        told = f"processor {wish.stay} stays: {wish.wanted} are wanted"
        turn.decide("notice", told, wish.reason, about=("processor", wish.stay))
        return (Drain(wish.stay, back=True),)
    turn.decide("notice", f"{wish.wanted} processors are wanted", wish.reason)
    return ()


def _goes_on(turn: Turn, known: Processor) -> Drain | None:
    """One that is being emptied: asked again, or kept, where that does not come to an end."""
    if known.leaving_s > turn.now_s:  # by a clock that was ahead
        turn.put(replace(known, leaving_s=turn.now_s))
        return None
    passed_s = turn.now_s - known.leaving_s
    if not known.draining:  # a user wants it back
        turn.put(replace(known, leaving_s=0.0))
        return None
    if not answers(turn.state, known.id) or _empty(turn.state, known.id):
        return None
    if passed_s > LEAVE_S_MAX:
        turn.put(replace(known, leaving_s=0.0))
        turn.set(scaling=replace(turn.state.scaling, rests_until_s=turn.now_s + REST_S))
        told = f"processor {known.id} stays: what it has does not leave"
        turn.decide("notice", told, _left(turn.state, known.id), about=("processor", known.id))
        return Drain(known.id, back=True)
    moving = any(known.id in (m.source, m.target) and not m.over for m in turn.state.moves.values())
    again = int(passed_s / AGAIN_S) > int((passed_s - LOOK_S) / AGAIN_S)
    again = again and not moving and _others(turn.state, known.id)
    return Drain(known.id) if again and _has_work(turn.state, known.id) else None


def _seen(state: ManagerState) -> Seen:
    model = COST_MODELS.get(state.settings.cost_model)
    costs = model.costs(measured(state), state.cost_memory)[0].processors
    there = {p.id for p in descriptions(state)}
    some = {
        p.id: costs.get(p.id, 0.0) if p.id in there else NO_ROOM
        for p in state.processors.values() if not p.draining
    }  # fmt: skip
    staying = {p: "it does not answer" for p in some if silence(state, p)}
    staying |= {
        s.processor: f"stream {s.name} stays there" for s in state.streams.values()
        if base_streams.kind_of(s) in base_streams.STAY
    }  # fmt: skip
    waiting = next(
        (q.reason for q in state.queries.values() if q.phase == "queued" and q.name in state.short),
        "",
    )
    leaving = next((p.id for p in state.processors.values() if p.leaving_s), "")
    return Seen(some, model.name, staying, waiting, leaving)


def _others(state: ManagerState, name: str) -> bool:
    """Whether another processor may get something."""
    return any(p.id != name for p in descriptions(state))


def _has_work(state: ManagerState, name: str) -> bool:
    return any(o.processor == name for o in state.operators.values()) or any(
        s.processor == name for s in state.streams.values()
    )


def _empty(state: ManagerState, name: str) -> bool:
    """Whether nothing is left or needed there: others have fetched what was made there."""
    live = state.live.get(name)
    if live is None or live.actual is None or live.work is not None or _has_work(state, name):
        return False
    if any(name in (m.source, m.target) and not m.over for m in state.moves.values()):
        return False
    have = live.actual
    return not (have.owned or have.queries or any(have.expected.values()))


def _left(state: ManagerState, name: str) -> str:
    for stream in state.streams.values():
        if stream.processor == name:
            return f"stream {stream.name} enters there"
    for operator in state.operators.values():
        if operator.processor == name:
            return f"{operator.label} runs there"
    return "others have not fetched everything"
