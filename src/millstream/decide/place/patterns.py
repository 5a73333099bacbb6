"""Distribution patterns: from operators and processors to a placement, chosen by name.

D-CAPE, section 5.1.3. A pattern sees the graph, the processors with their properties, and what
already runs somewhere: running operators stay where they are (moving them is redistribution, which
knows costs). `distribute` checks every answer before anybody may use it. Patterns are
deterministic: operators in the graph's order, processors in the order given.

- `round_robin`: algorithm 2, every operator to the processor with the fewest.
- `grouping`: algorithm 3 by its prose: neighbours together, as many operators on each processor.
- `quality_aware` (decide/place/pattern_quality.py): least expected delay, weighted by the plans'
  priority; the seed names such a pattern as future work.
"""

from collections.abc import Callable, Collection, Sequence

from millstream.core.errors import InternalError, UsageError
from millstream.core.operator_graph import PlanGraph
from millstream.core.placement import Placement, ProcessorDescription, problems
from millstream.core.registry import Registry
from millstream.decide.place.pattern_quality import quality_aware

Pattern = Callable[[PlanGraph, Sequence[ProcessorDescription], Placement], Placement]

PATTERNS: Registry[Pattern] = Registry("distribution pattern")
DEFAULT_PATTERN = "grouping"


def distribute(
    graph: PlanGraph,
    processors: Sequence[ProcessorDescription],
    pattern: str = DEFAULT_PATTERN,
    running: Placement | None = None,
) -> Placement:
    """The table of a named pattern, checked; operators in the graph's order.

    `running` may name operators or processors that are gone: the former are dropped, operators of
    the latter are placed anew.
    """
    if not processors:
        raise UsageError(
            "no processors to distribute to",
            detail="none has answered",
            hint="start one with `millstream processor --manager URL`",
        )
    alive = [processor.id for processor in processors]
    kept = {
        operator: processor
        for operator, processor in (running or {}).items()
        if operator in graph.by_id and processor in alive
    }
    table = PATTERNS.get(pattern)(graph, processors, kept)
    wrong = list(problems(graph, table, alive))
    wrong += [f"{o} was moved from {p}" for o, p in kept.items() if table.get(o) != p]
    if wrong:
        raise InternalError(
            f"pattern {pattern!r} gave an invalid placement", detail="; ".join(wrong)
        )
    return {operator.id: table[operator.id] for operator in graph}


@PATTERNS.member("round_robin")
def round_robin(
    graph: PlanGraph, processors: Sequence[ProcessorDescription], running: Placement
) -> Placement:
    """Algorithm 2: each operator to the processor with the least workload, which is the number of
    operators on it; the first of equals."""
    table = dict(running)
    counts = {processor.id: 0 for processor in processors}
    for processor in running.values():
        counts[processor] += 1
    for operator in graph:
        if operator.id not in table:
            chosen = min(counts, key=counts.__getitem__)
            table[operator.id] = chosen
            counts[chosen] += 1
    return table


@PATTERNS.member("grouping")
def grouping(
    graph: PlanGraph, processors: Sequence[ProcessorDescription], running: Placement
) -> Placement:
    """Algorithm 3, as its prose means it.

    Fill one processor after the other: take the next unused leaf, climb to unused parents, and add
    a parent's other unused descendants, a whole sub-plan at a time, while they fit. The printed
    loop reads no table of used operators and never ends on a full processor.
    """
    table = dict(running)
    room = rooms([p.id for p in processors], running.values(), len(graph) - len(running))
    for processor, places in room.items():
        left = places
        while left > 0 and (leaf := _next_leaf(graph, table)) is not None:
            for operator in _group(graph, table, leaf, left):
                table[operator] = processor
                left -= 1
    return table


def rooms(processors: Sequence[str], running: Collection[str], fresh: int) -> dict[str, int]:
    """How many fresh operators each processor takes, so that all end with as many as possible.

    Without running operators that is ceil(N / M) for each until none is left.

    >>> rooms(["a", "b", "c"], [], 20)
    {'a': 7, 'b': 7, 'c': 6}
    >>> rooms(["a", "b"], ["a", "a", "a"], 2)
    {'a': 0, 'b': 2}
    """
    present = dict.fromkeys(processors, 0)
    for name in running:
        present[name] += 1
    target = max(present.values(), default=0)
    while sum(max(0, target - count) for count in present.values()) < fresh:
        target += 1
    while target and sum(max(0, target - 1 - count) for count in present.values()) >= fresh:
        target -= 1
    places = {}
    for name, count in present.items():
        places[name] = min(max(0, target - count), fresh)
        fresh -= places[name]
    return places


def _next_leaf(graph: PlanGraph, used: Collection[str]) -> str | None:
    """The first unused operator with nothing unused below it."""
    for operator in graph:
        if operator.id not in used and all(p in used for p in graph.producers(operator.id)):
            return operator.id
    return None


def _group(graph: PlanGraph, used: Collection[str], leaf: str, room: int) -> list[str]:
    """The leaf and neighbours above and below, at most `room` of them."""
    group = [leaf]
    top: str | None = leaf
    while top is not None and len(group) < room:
        top = next((c for c in graph.consumers(top) if c not in used and c not in group), None)
        if top is None:
            break
        group.append(top)
        for source in graph.producers(top):
            below = [n for n in graph.subplan(source) if n not in used and n not in group]
            if below and len(group) + len(below) <= room:
                group.extend(below)
    return group


PATTERNS.add("quality_aware", quality_aware)
