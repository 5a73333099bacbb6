"""Small planning problems with reuse for tests: fixed ones, random ones, and brute force."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from math import inf
from random import Random
from typing import Any

from millstream.decide.place.check import check
from millstream.decide.place.problem import (
    Host,
    Link,
    Links,
    Operator,
    Problem,
    Query,
    Stream,
    Weights,
    check_problem,
)
from millstream.decide.place.solution import Delivered, Flow, PlacedOperator, Refusal, Solution


def pair_problem(**changes: object) -> Problem:
    """Two hosts with a stream each, one join, one query."""
    problem = Problem(
        hosts=(Host("h1", 4.0, 60.0, 60.0), Host("h2", 4.0, 60.0, 60.0)),
        streams=(Stream("a", 10.0, "h1"), Stream("b", 10.0, "h2"), Stream("a*b", 0.06)),
        operators=(Operator("o1", ("a", "b"), "a*b", 1.0),),
        queries=(Query("q1", "a*b"),),
    )
    return replace(problem, **changes)


def random_problem(seed: int, *, hosts: int = 4, queries: int = 8, links: str = "any") -> Problem:
    """A problem with filters and joins, tight in everything, sometimes with links and memory."""
    random = Random(seed)
    names = [f"h{number}" for number in range(hosts)]
    base = [
        Stream(f"b{n}", random.choice((1.0, 5.0, 10.0)), random.choice(names)) for n in range(5)
    ]
    streams, operators = list(base), list[Operator]()
    for number in range(random.randint(3, 9)):
        output = Stream(f"s{number}", random.choice((0.0, 0.1, 2.0)))
        for way in range(random.randint(1, 3)):
            inputs = random.sample([s.id for s in streams], random.choice((1, 2, 2)))
            operators.append(
                Operator(
                    f"o{number}.{way}",
                    tuple(inputs),
                    output.id,
                    random.choice((0.3, 1.0, 1.5)),
                    random.choice((0.0, 1.0)),
                )
            )
        streams.append(output)
    wanted = [random.choice(streams).id for _ in range(queries)]
    kind = random.choice(("none", "uniform", "list")) if links == "any" else links
    return check_problem(
        Problem(
            hosts=tuple(
                Host(
                    name,
                    random.choice((1.0, 2.0, 4.0)),
                    random.choice((10.0, 20.0, 40.0)),
                    random.choice((10.0, 20.0, 40.0)),
                    random.choice((1.0, 3.0, 100.0)),
                )
                for name in names
            ),
            streams=tuple(streams),
            operators=tuple(operators),
            queries=tuple(Query(f"q{n}", name) for n, name in enumerate(wanted)),
            links=_links(kind, names, random),
        )
    )


def _links(kind: str, names: list[str], random: Random) -> Links:
    if kind == "uniform":
        return Links(bandwidth=random.choice((5.0, 10.0, 20.0)))
    if kind == "list":
        return Links(
            listed=tuple(
                Link(source, target, random.choice((2.0, 10.0, 30.0)))
                for source in names
                for target in names
                if source != target and random.random() < 0.7
            )
        )
    return Links()


def tiny_problem(seed: int) -> Problem:
    """Small enough for brute force: two hosts, two base streams, two or three composites."""
    random = Random(seed)
    rates = [random.choice((1.0, 4.0, 10.0)) for _ in range(2)]
    streams = [Stream("a", rates[0], "h0"), Stream("b", rates[1], random.choice(("h0", "h1")))]
    operators = []
    for number in range(2):
        name = f"s{number}"
        for way in range(random.choice((1, 1, 2))):
            inputs = random.sample([s.id for s in streams], random.choice((1, 2)))
            operators.append(
                Operator(f"{name}.{way}", tuple(inputs), name, random.choice((0.5, 1.0, 2.0)))
            )
        streams.append(Stream(name, random.choice((0.1, 1.0, 4.0))))
    return check_problem(
        Problem(
            hosts=tuple(
                Host(f"h{n}", random.choice((0.5, 1.0, 2.5)), bandwidth, bandwidth)
                for n, bandwidth in enumerate(random.choices((3.0, 6.0, 12.0), k=2))
            ),
            streams=tuple(streams),
            operators=tuple(operators),
            queries=tuple(
                Query(f"q{n}", random.choice(streams[1:]).id) for n in range(random.choice((2, 3)))
            ),
            links=Links(bandwidth=random.choice((4.0, 100.0))),
            weights=Weights(balance=random.choice((0.0, 1.0))),
        )
    )


def every_solution(problem: Problem) -> Iterator[Solution]:
    """All placements of a tiny problem, valid or not, with every choice of deliveries."""
    hosts = [host.id for host in problem.hosts]
    cells: list[tuple[str, str]] = []
    choices: list[list[PlacedOperator | Flow | None]] = []
    for stream in problem.streams:
        for host in hosts:
            if stream.host == host:
                continue
            cells.append((stream.id, host))
            choices.append(
                [
                    None,
                    *(Flow(stream.id, other, host) for other in hosts if other != host),
                    *(
                        PlacedOperator(o.id, host)
                        for o in problem.operators
                        if o.output == stream.id
                    ),
                ]
            )
    at_home = {(stream.id, stream.host) for stream in problem.streams if stream.host}
    wanted = sorted({query.stream for query in problem.queries})
    inputs = {operator.id: operator.inputs for operator in problem.operators}
    for chosen in product(*choices):
        present = at_home | {c for c, way in zip(cells, chosen, strict=True) if way is not None}
        if not _fed(chosen, present, inputs):
            continue
        places = [
            [None, *(host for host in hosts if (stream, host) in present)] for stream in wanted
        ]
        operators = tuple(way for way in chosen if isinstance(way, PlacedOperator))
        flows = tuple(way for way in chosen if isinstance(way, Flow))
        for deliveries in product(*places):
            where = dict(zip(wanted, deliveries, strict=True))
            served = [query for query in problem.queries if where[query.stream] is not None]
            yield Solution(
                admitted=tuple(query.id for query in served),
                refused=tuple(
                    Refusal(query.id, "", "") for query in problem.queries if query not in served
                ),
                operators=operators,
                flows=flows,
                delivered=tuple(
                    Delivered(query.id, query.stream, str(where[query.stream])) for query in served
                ),
            )


def _fed(
    chosen: tuple[PlacedOperator | Flow | None, ...],
    present: set[tuple[str, str]],
    inputs: dict[str, tuple[str, ...]],
) -> bool:
    """Whether everything chosen has something to read: most choices do not."""
    for way in chosen:
        if isinstance(way, Flow):
            if (way.stream, way.source) not in present:
                return False
        elif way is not None and any((n, way.host) not in present for n in inputs[way.operator]):
            return False
    return True


def value(problem: Problem, solution: Solution) -> float:
    """(III.3) with the weights scaled as documented, written independently of the planners."""
    rate = {stream.id: stream.rate for stream in problem.streams}
    cpu = {operator.id: operator.cpu for operator in problem.operators}
    used = {host.id: 0.0 for host in problem.hosts}
    for placed in solution.operators:
        used[placed.host] += cpu[placed.operator]
    weights = problem.weights
    return (
        weights.admit * len(solution.admitted)
        - weights.network
        * sum(rate[flow.stream] for flow in solution.flows)
        / sum(host.bandwidth_out for host in problem.hosts)
        - weights.cpu * sum(used.values()) / sum(host.cpu for host in problem.hosts)
        - weights.balance * max(used.values()) / max(host.cpu for host in problem.hosts)
    )


def best_value(problem: Problem) -> float:
    """The optimum by exhaustive search."""
    ranked = sorted(
        ((value(problem, s), n, s) for n, s in enumerate(every_solution(problem))), reverse=True
    )
    for worth, _, solution in ranked:
        if not check(problem, solution):
            return worth
    raise AssertionError("admitting nothing is always possible")


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """What `problem_from_json` reads; absent means the default."""
    return {
        "hosts": [_present(asdict(host)) for host in problem.hosts],
        "links": _links_to_json(problem.links),
        "streams": [_present(asdict(stream)) for stream in problem.streams],
        "operators": [
            _present({**asdict(operator), "inputs": list(operator.inputs)}, memory=0.0)
            for operator in problem.operators
        ],
        "queries": [_present(asdict(query)) for query in problem.queries],
        "weights": asdict(problem.weights),
        **({} if problem.timeout_s is None else {"timeout_s": problem.timeout_s}),
    }


def _links_to_json(links: Links) -> Any:
    if links.listed is None:
        return {} if links.bandwidth == inf else {"bandwidth": links.bandwidth}
    return [
        _present(
            {
                "from": link.source,
                "to": link.target,
                "bandwidth": link.bandwidth,
                "distance": link.distance,
            },
            distance=0.0,
        )
        for link in links.listed
    ]


def _present(fields: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Without what says nothing: None, no text, infinity (JSON has none), the default."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None
        and not (isinstance(value, str) and value == "")
        and value != inf
        and not (name in defaults and value == defaults[name])
    }
