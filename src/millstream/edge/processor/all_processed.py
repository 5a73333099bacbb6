"""Whether a processor has processed all that has come and handed on what is others'.

Queries over the system itself do not count: every step makes rows about steps, so that where
somebody watches them nothing would ever settle. Reads, and changes nothing.
"""

from typing import TYPE_CHECKING

from millstream.language.cql.system_streams import PREFIX
from millstream.language.plan.nodes import sources_of

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.processor import Processor


def settled(processor: "Processor") -> bool:
    engine = processor.engine
    if any(not (i.ended or i.follow) for i in list(engine.ingests.values())):
        return False
    watching = about_the_system(engine) | engine.paused_operators
    for operator in list(engine.operators.values()):
        if operator.id in watching:
            continue
        if any(engine.pending(operator).values()):
            return False
    if any(rows and _counts(engine, s, watching) for s, rows in processor.receiver.behind.items()):
        return False
    ledger = engine.ledger
    return not any(
        consumer.kind == "processor" and at.next < row["next"]
        for row in ledger.streams()
        if _counts(engine, row["id"], watching)
        for consumer, at in ledger.consumers(row["id"]).items()
    )


def about_the_system(engine: "Engine") -> frozenset[str]:
    """Operators of which every query reads streams about the system and no others."""
    found: dict[str, bool] = {}
    for query in list(engine.queries.values()):
        watches = all(s.stream.startswith(PREFIX) for s in sources_of(query.plan.root))
        for operator in query.operators:
            found[operator] = found.get(operator, True) and watches
    return frozenset(operator for operator, watches in found.items() if watches)


def _counts(engine: "Engine", stream: str, watching: frozenset[str]) -> bool:
    if stream.startswith(f"s:{PREFIX}") or stream in watching:
        return False
    readers = {o.id for o in list(engine.operators.values()) if stream in o.inputs}
    return not readers or not readers <= watching
