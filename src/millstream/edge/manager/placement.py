"""Running queries placed anew on request: by a planner, or by the processors among themselves.

    POST /queries/NAME/placement   {"planner" | "distributed", "algorithm", "levels", "dry_run"}
    POST /replacement              {"gain", "dry_run"}: every query, if it pays

The answer says what crosses the network now and then, and how long it takes
(`control/admission/query_tree`); a distributed one also how many messages that took, beside the
bounds of seed 003, section 5. Operators then go by the same moves as everywhere.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Request
from pydantic import Field

from millstream.client.http import AsyncHttpClient, json_of
from millstream.control.manager.events import RequestMove
from millstream.control.protocol.envelope import PATH, Envelope, PlaceTree, read_replies
from millstream.control.protocol.replies import Refusal, TreePlaced
from millstream.core.codec import EXACT
from millstream.core.errors import AwayError, MillstreamError, RefusedError, UsageError
from millstream.edge.http.access import record_body
from millstream.edge.http.serving import Application
from millstream.edge.manager import answers
from millstream.edge.manager.driver import ManagerDriver

if TYPE_CHECKING:
    from millstream.control.admission.query_tree import Promise, QueryTree
    from millstream.decide.place.network.tree import NetworkTree

WAIT_S_MAX = 300.0
MAPPING_S = 60.0


@dataclass(frozen=True, slots=True)
class _Placing:
    __pydantic_config__ = EXACT

    planner: Annotated[str, Field(min_length=1, max_length=100)] = "optimal_tree"
    distributed: bool = False
    algorithm: Literal["edge", "edge_plus", "in_network"] = "in_network"
    k: Annotated[int, Field(ge=0, le=10_000)] = 32
    levels: Annotated[int, Field(ge=1, le=100)] = 1
    dry_run: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


@dataclass(frozen=True, slots=True)
class _Replacing:
    __pydantic_config__ = EXACT

    gain: Annotated[float, Field(ge=0, le=1)] | None = None
    dry_run: bool = False


def add_placement_routes(
    app: Application, driver: ManagerDriver, token: str | None, verify: str | bool
) -> None:
    """Lets a manager's application place queries anew."""

    @app.post("/queries/{name}/placement")
    async def place(request: Request, name: str) -> dict[str, Any]:
        asked = await record_body(request, _Placing)
        from millstream.control.admission.query_tree import query_tree  # noqa: PLC0415

        tree = query_tree(driver.state, name)
        if asked.distributed:
            told = await _placed_together(driver, tree, asked, token, verify)
        else:
            told = _planned(tree, asked)
        return {**told, **await _carried_out(driver, tree, told["placement"], asked)}

    @app.post("/replacement")
    async def replace(request: Request) -> dict[str, Any]:
        asked = await record_body(request, _Replacing)
        from millstream.control.admission.replacement import proposals  # noqa: PLC0415

        found = proposals(driver.state, gain=asked.gain)
        before = driver.state.counter
        for proposal in found if not asked.dry_run else ():
            for wish in proposal.wishes():
                driver.feed(wish)
        return {
            "queries": [
                {
                    "query": p.query,
                    "sentence": p.sentence,
                    "reason": p.reason,
                    "cost_now": p.cost_now,
                    "cost_then": p.cost_then,
                    "moves": {o: {"from": a, "to": b} for o, (a, b) in p.moves.items()},
                }
                for p in found
            ],
            "moves": answers.moves_since(driver.state, before),
        }


def _planned(tree: "QueryTree", asked: _Placing) -> dict[str, Any]:
    from millstream.decide.place.network.outcome import Options, Placed  # noqa: PLC0415

    problem, outcome = tree.planned(asked.planner, Options(k=asked.k))
    if not isinstance(outcome, Placed):
        raise RefusedError(
            "latency",
            f"{asked.planner} finds no placement that keeps {outcome.latency_bound:g} ms",
            detail=f"{outcome.detail}; it needs at least {outcome.least_delay:g} ms",
        )
    return _told(tree, problem, outcome.placement) | {"planner": asked.planner}


def _told(
    tree: "QueryTree", problem: "NetworkTree", placement: Mapping[str, str]
) -> dict[str, Any]:
    from millstream.control.admission.query_tree import promise  # noqa: PLC0415

    return {
        "query": tree.query,
        "placement": dict(placement),
        "deliver_to": problem.proxy,
        "staying": list(tree.staying),
        "distances": "measured or given" if tree.distances_known else "unknown",
        "now": _promise(promise(tree, tree.present(), tree.running)),
        "then": _promise(promise(tree, problem, placement)),
    }


def _promise(known: "Promise") -> dict[str, Any]:
    return {
        "cost": known.cost,
        "delay_ms": round(known.delay_ms, 3),
        "arrival_ms": round(known.arrival_ms, 3),
        "bytes_per_s": round(known.bytes_per_s, 1),
        "crosses": [
            {"stream": s, "from": a, "to": b, "bytes_per_s": round(rate, 1)}
            for s, a, b, rate in known.crossings
        ],
    }


async def _placed_together(
    driver: ManagerDriver,
    tree: "QueryTree",
    asked: _Placing,
    token: str | None,
    verify: str | bool,
) -> dict[str, Any]:
    """Asks the processor where the result is wanted to place the tree with all others."""
    from millstream.control.coordinators.zones import tree_of  # noqa: PLC0415
    from millstream.decide.place.check import cost_and_delay  # noqa: PLC0415
    from millstream.decide.place.network.bounds import tree_bounds  # noqa: PLC0415
    from millstream.decide.place.problem import within  # noqa: PLC0415

    state, problem = driver.state, tree.present()
    wanted = tree_of(problem, f"{tree.query}#{state.epoch}-{state.counter}-{state.number}")
    asking = PlaceTree(
        wanted,
        {node: state.processors[node].url for node in problem.nodes},
        asked.algorithm,
        asked.k,
        problem.latency_bound,
        asked.levels,
        MAPPING_S,
    )
    proxy = state.processors[problem.proxy]
    envelope = Envelope(state.epoch, 0, proxy.id, (asking,))
    found = await _asked(proxy.url, envelope, token, verify)
    if not isinstance(found, TreePlaced):
        raise RefusedError(found.code, found.message, detail=found.detail, hint=found.hint)
    placement = found.placement
    unknown = sorted(set(placement.values()) - set(problem.nodes))
    if unknown or placement.keys() != tree.running.keys():
        raise AwayError("the processors' answer does not fit the query; ask again")
    _, delay = cost_and_delay(problem, placement)
    if not within(delay, problem.latency_bound):
        raise RefusedError(
            "latency",
            "the processors' placement is late by the manager's distances",
            detail=f"{delay:g} ms, and {problem.latency_bound:g} ms are allowed",
        )
    return _told(tree, problem, placement) | {
        "planner": f"{asked.algorithm}, distributed",
        "measured_cost": found.cost,
        "attempts": found.attempts,
        "messages": {**found.messages, "all": sum(found.messages.values())},
        "envelopes": found.envelopes,
        "probed_pairs": found.probed_pairs,
        "bounds": asdict(tree_bounds(problem, asked.levels)),
    }


async def _asked(
    url: str, envelope: Envelope, token: str | None, verify: str | bool
) -> TreePlaced | Refusal:
    async with AsyncHttpClient(token, verify, answer_s=MAPPING_S + 15.0) as client:
        try:
            answer = await client.ask("POST", url.rstrip("/") + PATH, envelope)
            (reply,) = read_replies(envelope, json_of(answer))
        except AwayError as error:
            raise AwayError(
                "the processor where the result is wanted does not answer", detail=error.detail
            ) from None
        except MillstreamError as error:
            raise UsageError(
                "the processor where the result is wanted refuses", detail=error.message
            ) from None
    assert isinstance(reply, TreePlaced | Refusal)
    return reply


async def _carried_out(
    driver: ManagerDriver, tree: "QueryTree", placement: Mapping[str, str], asked: _Placing
) -> dict[str, Any]:
    """The moves to a placement, and a sentence."""
    targets: dict[str, list[str]] = {}
    for operator, place in placement.items():
        if tree.running[operator] != place:
            targets.setdefault(place, []).append(operator)
    count = sum(map(len, targets.values()))
    go = "would go" if asked.dry_run else "go"
    sentence = f"query {tree.query}: all {len(placement)} operators are where they belong"
    if count:
        sentence = f"query {tree.query}: {count} of {len(placement)} operators {go} elsewhere"
    if asked.dry_run or not targets:
        return {"sentence": sentence, "moves": []}
    before = driver.state.counter
    how = "the processors" if asked.distributed else asked.planner
    for target, operators in sorted(targets.items()):
        driver.feed(RequestMove(tuple(operators), target, f"{how} placed it there"))
    mine = [move["id"] for move in answers.moves_since(driver.state, before)]
    await driver.until(lambda state: answers.settled(state, mine), asked.wait_s)
    return {"sentence": sentence, "moves": answers.moves_since(driver.state, before)}
