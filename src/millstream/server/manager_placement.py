"""Running queries placed anew on request: by a planner, or by the processors among themselves.

    POST /queries/NAME/placement   {"planner" | "distributed", "algorithm", "levels", "dry_run"}
    POST /replacement              {"gain", "dry_run"}: every query, if it pays

The answer says what crosses the network now and then, and how long it takes (`control/query_tree`);
a distributed one also how many messages that took, beside the bounds of seed 003, section 5.
Operators then go by the same moves as everywhere.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import httpx
from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from millstream.client.addresses import UNREACHABLE
from millstream.control.manager_events import RequestMove
from millstream.control.manager_state import ManagerState
from millstream.errors import UsageError
from millstream.server import manager_answers as answers
from millstream.server.access import authorise, json_body, validated
from millstream.server.manager_driver import ManagerDriver
from millstream.server.placement_messages import Wish, tree_json
from millstream.store.transfer import PeerAwayError, RefusedError

if TYPE_CHECKING:
    from millstream.control.query_tree import Promise, QueryTree
    from millstream.place.network_problem import PlacementProblem

WAIT_S_MAX = 300.0
MAPPING_S = 60.0


class _Placing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    planner: Annotated[str, Field(min_length=1, max_length=100)] = "optimal_tree"
    distributed: bool = False
    algorithm: Literal["edge", "edge_plus", "in_network"] = "in_network"
    k: Annotated[int, Field(ge=0, le=10_000)] = 32
    levels: Annotated[int, Field(ge=1, le=100)] = 1
    dry_run: bool = False
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0.0


class _Replacing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    gain: Annotated[float, Field(ge=0, le=1)] | None = None
    dry_run: bool = False


def add_placement_routes(
    app: FastAPI, driver: ManagerDriver, token: str | None, verify: str | bool
) -> None:
    """Lets a manager's application place queries anew."""

    @app.post("/queries/{name}/placement")
    async def place(request: Request, name: str) -> dict[str, Any]:
        authorise(request, token)
        asked = validated(_Placing, await json_body(request))
        from millstream.control.query_tree import query_tree  # noqa: PLC0415

        tree = query_tree(driver.state, name)
        if asked.distributed:
            told = await _placed_together(driver, tree, asked, token, verify)
        else:
            told = _planned(tree, asked)
        return {**told, **await _carried_out(driver, tree, told["placement"], asked)}

    @app.post("/replacement")
    async def replace(request: Request) -> dict[str, Any]:
        authorise(request, token)
        asked = validated(_Replacing, await json_body(request))
        from millstream.control.replacement import proposals  # noqa: PLC0415

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
            "moves": _moves_since(driver.state, before),
        }


def _planned(tree: "QueryTree", asked: _Placing) -> dict[str, Any]:
    from millstream.place.network_outcome import Options, Placed  # noqa: PLC0415

    problem, outcome = tree.planned(asked.planner, Options(k=asked.k))
    if not isinstance(outcome, Placed):
        raise RefusedError(
            "latency",
            f"{asked.planner} finds no placement that keeps {outcome.latency_bound:g} ms",
            detail=f"{outcome.detail}; it needs at least {outcome.least_delay:g} ms",
        )
    return _told(tree, problem, outcome.placement) | {"planner": asked.planner}


def _told(
    tree: "QueryTree", problem: "PlacementProblem", placement: Mapping[str, str]
) -> dict[str, Any]:
    from millstream.control.query_tree import promise  # noqa: PLC0415

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
    from millstream.control.coordinator_zones import (  # noqa: PLC0415
        Tree,
        TreeOperator,
        TreeSource,
    )
    from millstream.place.network_bounds import tree_bounds  # noqa: PLC0415
    from millstream.place.network_check import cost_and_delay  # noqa: PLC0415
    from millstream.place.network_problem import within  # noqa: PLC0415

    state, problem = driver.state, tree.present()
    wanted = Tree(
        f"{tree.query}#{state.epoch}-{state.counter}-{state.number}",
        tuple(TreeSource(s.id, s.node, s.rate) for s in problem.sources),
        tuple(TreeOperator(o.id, o.inputs, o.rate) for o in problem.operators),
        problem.root,
    )
    wish = Wish(
        tree=tree_json(wanted),
        peers={node: state.processors[node].url for node in problem.nodes},
        algorithm=asked.algorithm,
        k=asked.k,
        latency_bound=problem.latency_bound,
        levels=asked.levels,
        wait_s=MAPPING_S,
    )
    found = await _asked(state.processors[problem.proxy].url, wish, token, verify)
    if "refused" in found:
        refused = found["refused"]
        raise RefusedError(
            str(refused["reason"]), "the processors found no placement", detail=refused["detail"]
        )
    placement = {str(o): str(p) for o, p in found["placement"].items()}
    unknown = sorted(set(placement.values()) - set(problem.nodes))
    if unknown or placement.keys() != tree.running.keys():
        raise PeerAwayError("the processors' answer does not fit the query; ask again")
    _, delay = cost_and_delay(problem, placement)
    if not within(delay, problem.latency_bound):
        raise RefusedError(
            "latency",
            "the processors' placement is late by the manager's distances",
            detail=f"{delay:g} ms, and {problem.latency_bound:g} ms are allowed",
        )
    return _told(tree, problem, placement) | {
        "planner": f"{asked.algorithm}, distributed",
        "measured_cost": found["cost"],
        "attempts": found["attempts"],
        "messages": {**found["messages"], "all": sum(found["messages"].values())},
        "envelopes": found["envelopes"],
        "probed_pairs": found["probed_pairs"],
        "bounds": asdict(tree_bounds(problem, asked.levels)),
    }


async def _asked(url: str, wish: Wish, token: str | None, verify: str | bool) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx.Timeout(wish.wait_s + 15.0, connect=5.0)
    async with httpx.AsyncClient(headers=headers, verify=verify, timeout=timeout) as client:
        try:
            answer = await client.post(
                f"{url.rstrip('/')}/placement/trees", json=wish.model_dump(mode="json")
            )
            found = answer.json()
        except (*UNREACHABLE, ValueError) as error:
            raise PeerAwayError(
                "the processor where the result is wanted does not answer",
                detail=f"{type(error).__name__}: {error}"[:300],
            ) from None
    if answer.status_code != 200 or not isinstance(found, dict):
        told = found.get("error", {}) if isinstance(found, dict) else {}
        raise UsageError(
            "the processor where the result is wanted refuses",
            detail=str(told.get("message", answer.status_code))[:500],
        )
    return found


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
    mine = [move["id"] for move in _moves_since(driver.state, before)]

    def over(state: ManagerState) -> bool | None:
        return True if all(state.moves[m].settled for m in mine) else None

    await driver.until(over, asked.wait_s)
    return {"sentence": sentence, "moves": _moves_since(driver.state, before)}


def _moves_since(state: ManagerState, counter: int) -> list[dict[str, Any]]:
    fresh = [m for m in state.moves.values() if int(m.id.split("-")[-1]) > counter]
    return [answers.move(move) for move in fresh]
