"""The runtime monitor: which processors are present or silent, and the statistics table.

A processor joins, is asked what it has, and reports at an interval; one that does not answer for a
while is silent and gets nothing new (D-CAPE, algorithm 1, lines 3 to 11: at the start, silent
processors are dropped). It comes back by answering. Figures come as increments; rates are taken
between the last two. Decides nothing about queries.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp
from typing import Any

from millstream.control.manager.state import Figures, Live, ManagerState, Processor, Statistics
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import HOME_TAKEN, Acquaint, Command, Join
from millstream.control.protocol.records import NOWHERE, Peer
from millstream.control.protocol.replies import Reported
from millstream.core.errors import RefusedError, UsageError

ACQUAINTED_MAX = 150
EPOCH_FIRST_MAX = 10**9  # of a home that was never seen before
EPOCH_STEP_MAX = 10**6  # by which a home's epoch may grow between two looks at it
STEADY_S = 20.0  # within which steady rates follow what was measured by two thirds
COUNTERS = ("rows_in", "rows_out", "rows", "bytes", "seconds", "steps", "cpu_s")


def join(turn: Turn, news: Join) -> None:
    """A processor says that it is there; an old epoch of its home, or another home, is refused."""
    known = turn.state.processors.get(news.id)
    gone = turn.state.lost.get(news.id)
    if known is None and gone is not None and gone.home == news.home:
        raise RefusedError(
            "declared_lost",
            f"processor {news.id} was declared lost, and its work begun again elsewhere",
            hint="start it with an empty home; rows that only this one has can be read from it",
        )
    if known is not None and known.home and news.home and news.home != known.home:
        _check_replaced(turn.state, news.id)
        known = None
    most = known.epoch + EPOCH_STEP_MAX if known is not None else EPOCH_FIRST_MAX
    if news.epoch > most:
        raise UsageError(f"no home was opened so often: epoch {news.epoch} of {news.id}")
    if known is not None and news.epoch < known.epoch:
        raise RefusedError(
            HOME_TAKEN,
            f"processor {news.id} comes with epoch {news.epoch}, and {known.epoch} was seen",
            hint="another process has taken over its home; this one must stop",
        )
    same = known is not None and (known.epoch, known.url) == (news.epoch, news.url)
    draining = known.draining if known else False
    home = news.home or (known.home if known else "")
    record = Processor(
        news.id, news.url, news.epoch, news.properties, draining, home,
        known.leaving_s if known else 0.0, known.untold if known else False,
    )  # fmt: skip
    if record != known:
        turn.put(record)
    if same and news.id in turn.state.live and turn.state.live[news.id].state != "silent":
        turn.live(news.id, heard_s=turn.now_s)
        return
    _welcome(turn, news.id)
    if known is None:
        turn.decide(
            "notice", f"processor {news.id} has joined at {news.url}", about=("processor", news.id)
        )
    else:
        turn.decide(
            "notice", f"processor {news.id} is back at {news.url}", about=("processor", news.id)
        )


def _check_replaced(state: ManagerState, name: str) -> None:
    """An empty home under the name of one that has work would make as if nothing were lost."""
    operators = any(o.processor == name for o in state.operators.values())
    streams = any(s.processor == name for s in state.streams.values())
    moves = any(name in (m.source, m.target) and not m.over for m in state.moves.values())
    if operators or streams or moves:
        raise RefusedError(
            "other_home",
            f"processor {name} is known with another home, and has work there",
            hint=f"if that home is gone: millstream remove --lost {name}; else choose another --id",
        )


def _welcome(turn: Turn, processor: str) -> None:
    """From here on it is asked what it has before it is told anything."""
    fresh = Live(heard_s=turn.now_s, since_s=turn.now_s, beat_due_s=turn.now_s)
    turn.live(processor, **{f: getattr(fresh, f) for f in Live.__dataclass_fields__})


def begin(turn: Turn) -> None:
    """A manager that was started again waits for the processors it knows."""
    for name in turn.state.processors:
        if name not in turn.state.live:
            _welcome(turn, name)


def heard(turn: Turn, processor: str) -> None:
    """An answer of any kind."""
    live = turn.state.live[processor]
    if live.state == "silent":
        turn.live(processor, state="joining", actual=None, heard_s=turn.now_s, failures=0)
        turn.decide(
            "notice", f"processor {processor} answers again", about=("processor", processor)
        )
    else:
        turn.live(processor, heard_s=turn.now_s, failures=0)


def watch(turn: Turn) -> None:
    """Who has not been heard for too long is silent."""
    limit = turn.state.settings.silent_after_s
    for name, live in list(turn.state.live.items()):
        if live.look_again_s and turn.now_s >= live.look_again_s[0]:
            turn.live(name, actual=None, look_again_s=live.look_again_s[1:])
        if live.state == "silent" or turn.now_s - live.heard_s <= limit:
            continue
        starting = live.state == "joining" and live.actual is None
        turn.live(name, state="silent", actual=None)
        what = "did not answer at the start" if starting else "does not answer any more"
        turn.decide(
            "failure",
            f"processor {name} {what} and gets no new operators",
            f"nothing was heard of it for {turn.now_s - live.heard_s:.0f} s",
            about=("processor", name),
        )
        if not any(one.state != "silent" for one in turn.state.live.values()):
            turn.decide("failure", "no processor is left", "every one of them is silent")


def acquainting(turn: Turn, processor: str) -> list[Command]:
    """Who else is there, if that has changed; of very many those that follow it by name."""
    known, live = turn.state.processors, turn.state.live[processor]
    if live.roster is known:
        return []
    names = sorted(known)
    at = names.index(processor)
    others = [known[name] for name in (*names[at + 1 :], *names[:at])][:ACQUAINTED_MAX]
    peers = tuple(Peer(other.id, other.url) for other in others if other.url != NOWHERE)
    if peers != live.acquainted:
        return [Acquaint(peers)]
    turn.live(processor, roster=known)  # not looked at again before the table has changed
    return []


def note_report(turn: Turn, processor: str, report: Reported) -> None:
    """Increments into the statistics table."""
    now, known = turn.now_s, turn.state.statistics
    turn.live(processor, version=report.version)
    turn.set(
        statistics=Statistics(
            _noted(
                known.processors, {processor: report.processor} if report.processor else {}, now
            ),
            _noted(known.operators, report.operators, now),
            _noted(known.streams, report.streams, now),
            _noted(known.edges, report.edges, now),
            _told_of(known.queries, report.queries),
        )
    )
    for name, told in report.queries.items():
        _note_query(turn, processor, name, told)
    for notice in report.notices:
        turn.decide("notice", f"{processor}: {notice}", about=("processor", processor))


def _told_of(
    known: Mapping[str, Mapping[str, Any]], news: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Of a query over several processors each tells its part: how well it is served, say, only the
    one that makes its result."""
    if not news:
        return known
    return {**known, **{name: {**known.get(name, {}), **told} for name, told in news.items()}}


def _note_query(turn: Turn, processor: str, name: str, told: Mapping[str, Any]) -> None:
    query = turn.state.queries.get(name)
    if query is None or told.get("state") != "failed":
        return
    if int(told.get("restarts", 0)) < query.restarts:
        return  # what it says is older than the restart
    resumable = bool(told.get("restartable", False))
    if query.phase == "failed" and query.resumable and not resumable:
        turn.query(name, resumable=False)
    if query.phase not in ("running", "deploying"):
        return
    reason = str(told.get("reason", ""))
    known = max(query.restarts, int(told.get("restarts", 0)))  # by a manager before this one
    turn.query(
        name, phase="failed", reason=reason, resumable=resumable, failed_s=turn.now_s,
        restarts=known,
    )  # fmt: skip
    turn.decide("failure", f"query {name} has failed on {processor}", reason, about=("query", name))


def _noted(
    table: Mapping[str, Figures], news: Mapping[str, Mapping[str, float]], now_s: float
) -> Mapping[str, Figures]:
    if not news:
        return table
    return {**table, **{k: _figures(table.get(k), v, now_s) for k, v in news.items()}}


def _figures(known: Figures | None, values: Mapping[str, float], now_s: float) -> Figures:
    if known is None or now_s <= known.at_s:
        return Figures(now_s, {**(known.values if known else {}), **values})
    passed = now_s - known.at_s
    rates, steady = dict(known.rates), dict(known.steady)
    weight = 1 - exp(-passed / STEADY_S)
    for name in COUNTERS:
        if name in values and name in known.values:
            rates[name] = max(0.0, values[name] - known.values[name]) / passed
            before = steady.get(name, rates[name])
            steady[name] = before + weight * (rates[name] - before)
    return Figures(now_s, {**known.values, **values}, rates, steady)


def forget_figures(turn: Turn, operators: set[str]) -> None:
    """Of operators that are gone."""
    known = turn.state.statistics
    kept = {k: v for k, v in known.operators.items() if k not in operators}
    edges = {k: v for k, v in known.edges.items() if k.split(">")[0] not in operators}
    streams = {k: v for k, v in known.streams.items() if k not in operators}
    turn.set(statistics=replace(known, operators=kept, edges=edges, streams=streams))
