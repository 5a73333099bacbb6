"""What a processor knows of its own operators, as balancing wants it: fragments and surroundings.

Read from the ledger and the engine when somebody asks for load; nothing is kept.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.control.moves.table import UNDER_WAY
from millstream.control.protocol.commands import Host
from millstream.decide.balance.running import (
    BASE,
    RunningFragment,
    RunningOperator,
    Surroundings,
    running_fragments,
)

if TYPE_CHECKING:
    from millstream.edge.processor.statistics_gatherer import StatisticsGatherer
    from millstream.engine.processor import Processor


def operators_here(
    processor: "Processor",
    statistics: "StatisticsGatherer",
    loads: Mapping[str, float],
    ratios: Mapping[str, float],
    jobs: Mapping[str, tuple[str, float]],
) -> list[RunningOperator]:
    """Operators that run here and are not on the move; not those over streams of one processor."""
    engine, ownership = processor.engine, processor.ownership
    moving = {name for move in ownership.moves("old", UNDER_WAY) for name in move.operators}
    declared = {f"{BASE}{name}" for name in ownership.declared()}
    found = []
    with engine.lock:
        running = list(engine.operators.values())
        users = {q.name: q.operators for q in engine.queries.values()}
    for operator in running:
        local = [s for s in operator.inputs if s.startswith(BASE) and s not in declared]
        if operator.id in moving or local or ownership.owned(operator.id) is None:
            continue
        queries = tuple(sorted(q for q, names in users.items() if operator.id in names))
        found.append(
            RunningOperator(
                operator.id,
                tuple(operator.inputs),
                loads.get(operator.id, 0.0),
                float(sum(s.size for s in statistics.reached(operator))),
                queries,
                max((ratios.get(q, 0.0) for q in queries), default=0.0),
                *jobs.get(operator.id, ("", 0.0)),
            )
        )
    return found


def surroundings(processor: "Processor", entered_at: Mapping[str, str]) -> Surroundings:
    """Whom rows come from and go to."""
    engine, ownership = processor.engine, processor.ownership
    copies = {copy.stream: copy.source.processor for copy in ownership.copies()}
    read_at: dict[str, set[str]] = {}
    for consumer, streams in engine.ledger.consumers_of("processor").items():
        for stream in streams:
            read_at.setdefault(stream, set()).add(consumer)
    readers: dict[str, set[str]] = {}
    with engine.lock:
        for operator in engine.operators.values():
            for stream in operator.inputs:
                readers.setdefault(stream, set()).add(operator.id)
    inputs: dict[str, tuple[str, ...]] = {}
    for text in processor.hosting.texts().values():
        for operator in processor.hosting.meant(text).values():
            inputs[operator.id] = tuple(operator.inputs)
    here = {f"{BASE}{n}": processor.id for n, d in ownership.declared().items() if d.ingest}
    pulled = {s: p for s, p in copies.items() if s.startswith(BASE)}
    return Surroundings(
        processor.id,
        {row["id"]: float(row["rows"]) for row in engine.ledger.streams()},
        copies,
        read_at,
        readers,
        {**pulled, **entered_at, **here},
        inputs,
    )


def fragments_here(
    operators: Collection[RunningOperator], around: Surroundings
) -> dict[str, RunningFragment]:
    found = running_fragments(list(operators), around.rows)
    return {fragment.id: fragment for fragment in found}


def hosts_of(processor: "Processor", operators: Collection[str]) -> tuple[Host, ...]:
    """The texts of every query that uses the operators, for a new owner to compile."""
    found = []
    for text in processor.hosting.texts().values():
        chosen = tuple(o for o in text.operators if o in operators)
        known = processor.engine.queries.get(text.query)
        if chosen and known is not None:
            result = text.result and known.stream in chosen
            found.append(replace(text, operators=chosen, result=result))
    return tuple(found)


def sources_of(processor: "Processor", streams: Collection[str]) -> dict[str, tuple[str, int]]:
    """From whom streams come: the processor, and the epoch that counts."""
    found: dict[str, tuple[str, int]] = {}
    for stream in streams:
        owned, copy = processor.ownership.owned(stream), processor.ownership.copy(stream)
        if owned is not None:
            found[stream] = (processor.id, owned.epoch)
        elif copy is not None:
            found[stream] = (copy.source.processor, copy.epoch)
    return found
