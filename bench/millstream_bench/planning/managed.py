"""How many queries the manager's own admission takes, against `millstream plan`, without a clock.

The workload of SQPR's section V.A as a manager sees it: processors, streams, statistics that tell
what every operator costs and gives, and one submission after the other through the manager's
placer; its moves and places are carried out at once. A text says its joins from left to right, and
every other order is a way to compute them. `plan` has the same queries, once with that plan alone
and once with every order of joins. Beside
what each admits stand the queries before the first refusal and the area under the curve: admitted
among those submitted so far, on average over all submissions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from time import process_time
from typing import Any

from millstream.control.admission.planning_state import HEADROOM
from millstream.control.admission.rules import Placed
from millstream.control.manager.decisions import SQPR, place_query
from millstream.control.manager.state import (
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Settings,
    Statistics,
    StreamRecord,
)
from millstream.control.moves import routes
from millstream.control.protocol.replies import Compiled, CompiledOperator
from millstream.decide.place.planners import plan_all
from millstream.decide.place.problem import Operator, Problem
from millstream.decide.place.workload import LITERAL, TIGHT, generate, scaled

Progress = Callable[[str], None]
REGIMES = {"tight": TIGHT, "literal": LITERAL}


def run_managed_bench(
    *, seed: int = 1, quick: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Figures of both regimes; `quick` is a small run to see that it works."""
    say = progress or (lambda _: None)
    figures: dict[str, Any] = {"seed": seed, "hosts": 10 if quick else 50}
    for name, workload in REGIMES.items():
        problem = generate(scaled(workload, figures["hosts"]), seed)
        ways = left_to_right(problem)
        alone = replace(problem, operators=tuple(o for way in ways.values() for o in way))
        alone = replace(alone, operators=tuple({o.id: o for o in alone.operators}.values()))
        before = process_time()
        taken = managed(problem, ways, every_way(problem))
        cpu_ms = 1000 * (process_time() - before) / max(1, len(taken))
        told = {
            "manager": curve(taken) | {"cpu_ms_a_query": cpu_ms},
            "plan, one order": curve([d.admitted for d in plan_all(alone).decisions]),
            "plan, every order": curve([d.admitted for d in plan_all(problem).decisions]),
        }
        for who, found in told.items():
            say(
                f"{name}: {who}: {found['admitted']} of {len(taken)} admitted, "
                f"{found['before_first_refusal']} before the first refusal, "
                f"area {found['area']:.3f}"
            )
        for peer in ("plan, one order", "plan, every order"):
            ratio = told["manager"]["admitted"] / max(1, told[peer]["admitted"])
            area = told["manager"]["area"] / max(1e-9, told[peer]["area"])
            told[peer] |= {"manager_admits": ratio, "manager_area": area}
            say(f"{name}: the manager against {peer}: {ratio:.2f} of the queries, {area:.2f} area")
        figures[name] = told
    return figures


def curve(taken: Sequence[bool]) -> dict[str, float]:
    """Admitted, before the first refusal, and the area under admitted against submitted.

    >>> curve([True, False, True])
    {'admitted': 2, 'before_first_refusal': 1, 'area': 0.7222222222222222}
    """
    admitted, shares = 0, 0.0
    for number, fits in enumerate(taken, 1):
        admitted += fits
        shares += admitted / number
    first = next((n for n, fits in enumerate(taken) if not fits), len(taken))
    area = shares / max(1, len(taken))
    return {"admitted": admitted, "before_first_refusal": first, "area": area}


def left_to_right(problem: Problem) -> dict[str, tuple[Operator, ...]]:
    """By query the one plan of its text: base streams joined in their order."""
    by_inputs = {(frozenset(o.inputs), o.output): o for o in problem.operators}
    found = {}
    for query in problem.queries:
        names = query.stream.split("*")
        joined, way = names[0], list[Operator]()
        for name in names[1:]:
            output = f"{joined}*{name}"
            way.append(by_inputs[frozenset((joined, name)), output])
            joined = output
        found[query.id] = tuple(way)
    return found


def every_way(problem: Problem) -> dict[str, tuple[Operator, ...]]:
    """By query all operators that could compute a part of it."""
    by_members: dict[frozenset[str], list[Operator]] = {}
    for operator in problem.operators:
        by_members.setdefault(frozenset(operator.output.split("*")), []).append(operator)
    found = {}
    for query in problem.queries:
        names = query.stream.split("*")
        parts = (c for size in range(2, len(names) + 1) for c in combinations(names, size))
        found[query.id] = tuple(o for part in parts for o in by_members[frozenset(part)])
    return found


def managed(
    problem: Problem,
    ways: Mapping[str, Sequence[Operator]],
    others: Mapping[str, Sequence[Operator]] | None = None,
) -> list[bool]:
    """Which queries the manager's placer takes, in their order; `others` are further ways to
    compute parts of a query."""
    state = _manager(problem)
    taken = []
    for wish in problem.queries:
        way = ways[wish.id]
        beside = (o for o in (others or {}).get(wish.id, ()) if o not in way)
        records = {_id(o.output): state.operators.get(_id(o.output)) or _record(o) for o in way}
        query = Query(
            wish.id, "", phase="placing", operators=tuple(records), result=_id(wish.stream),
            sources=tuple(f"s:{name}" for name in wish.stream.split("*")),
            compiled=Compiled(
                tuple(map(_compiled, way)), _id(wish.stream), (), False, (),
                ways=tuple(map(_compiled, beside)),
            ),
        )  # fmt: skip
        known = replace(
            state,
            operators={**state.operators, **records},
            queries={**state.queries, query.name: query},
        )
        verdict = place_query(known, query)
        taken.append(isinstance(verdict, Placed))
        if isinstance(verdict, Placed):
            state = _carried_out(known, query, verdict)
    return taken


def _carried_out(state: ManagerState, query: Query, verdict: Placed) -> ManagerState:
    places = dict(verdict.table)
    for group in verdict.moves:
        places |= group
    operators = dict(state.operators) | {o.id: o for o in verdict.operators}
    for name, place in places.items():
        operators[name] = replace(operators[name], processor=place)
    running = replace(query, phase="running", operators=tuple(verdict.table), compiled=None)
    if query.compiled is not None:
        running = replace(running, readable=query.compiled.readable)
    return replace(
        state, operators=operators, queries={**state.queries, query.name: running},
        routes=routes.told(verdict.routes or {}),
    )  # fmt: skip


def _manager(problem: Problem) -> ManagerState:
    rates = {stream.id: stream.rate for stream in problem.streams}
    processors = {
        h.id: Processor(
            h.id, f"http://{h.id}", 1,
            {"cpu": h.cpu / HEADROOM, "bandwidth_in": h.bandwidth_in,
             "bandwidth_out": h.bandwidth_out},
        )
        for h in problem.hosts
    }  # fmt: skip
    base = [stream for stream in problem.streams if stream.host is not None]
    operators = {o.output: o for o in reversed(problem.operators)}
    return ManagerState(
        settings=Settings(placer=SQPR),
        processors=processors,
        live={name: Live(state="up") for name in processors},
        streams={s.id: StreamRecord(s.id, {}, s.host or "") for s in base},
        statistics=Statistics(
            operators={_id(o.output): _figures(o, rates) for o in operators.values()},
            streams={
                f"s:{s.id}": Figures(0.0, {"rows": 1.0, "bytes": 1.0}, {}, {"rows": s.rate})
                for s in base
            },
        ),
    )


def _figures(operator: Operator, rates: Mapping[str, float]) -> Figures:
    """Statistics from which the manager works out just what the problem says; a row is a byte."""
    rows_in = sum(rates[name] for name in operator.inputs)
    return Figures(
        0.0,
        {
            "rows_in": rows_in, "rows_out": rates[operator.output],
            "fixed_s": 0.0, "row_s": operator.cpu / rows_in,
        },
    )  # fmt: skip


def _record(operator: Operator) -> OperatorRecord:
    inputs = tuple(_id(name) for name in operator.inputs)
    return OperatorRecord(_id(operator.output), "join", operator.id, inputs, 1)


def _compiled(operator: Operator) -> CompiledOperator:
    inputs = tuple(_id(name) for name in operator.inputs)
    return CompiledOperator(_id(operator.output), "join", operator.id, inputs, 1)


def _id(stream: str) -> str:
    return f"o:{stream}" if "*" in stream else f"s:{stream}"
