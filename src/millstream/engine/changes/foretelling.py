"""What would become of a query with another text: what stays, what is computed again, what ends.

Nothing is done. How long it takes is told from what operators of the same kind have needed so far.
"""

from dataclasses import dataclass

from millstream.core.beginning import beginning_gone
from millstream.engine.changes.flow import ChangingFlow
from millstream.engine.ports import CompiledQuery
from millstream.engine.query import Query
from millstream.language.share.dataflow import Operator


@dataclass(frozen=True, slots=True)
class Again:
    """An operator that has to read what lies in its inputs first."""

    label: str
    rows: int
    seconds: float | None  # None: no operator of its kind has run yet


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a replacement would do."""

    query: str
    kept: tuple[str, ...]
    again: tuple[Again, ...]
    ended: tuple[str, ...]
    gone: str = ""  # what is not there any more for those that begin

    @property
    def rows(self) -> int:
        return sum(a.rows for a in self.again)

    @property
    def seconds(self) -> float | None:
        """All of it; None where nothing is known of a part."""
        known = [a.seconds for a in self.again]
        return None if None in known else sum(s for s in known if s is not None)

    def sentence(self) -> str:
        """In one line."""
        if not self.again:
            return f"query {self.query} would continue: all its operators already run"
        took = f"about {self.seconds:.1f} s" if self.seconds is not None else "not measured yet"
        return (
            f"query {self.query} would be replaced: {len(self.kept)} operators stay, "
            f"{len(self.again)} are computed again over {self.rows} rows ({took}), "
            f"{len(self.ended)} end"
        )

    def lines(self) -> list[str]:
        """For people."""
        told = [self.sentence(), *(f"  stays: {label}" for label in self.kept)]
        for one in self.again:
            took = "its cost is not measured yet"
            if one.seconds is not None:
                took = f"about {one.seconds:.2f} s"
            told.append(f"  computed again: {one.label}, {one.rows} rows, {took}")
        told += [f"  ends: {label}" for label in self.ended]
        return [*told, f"  {self.gone}"] if self.gone else told


def foretold(flow: ChangingFlow, old: Query, new: CompiledQuery) -> Foretold:
    """What would become of a query."""
    with flow.lock:
        kept = [o for o in new.operators if o.id in flow.operators]
        fresh = [o for o in new.operators if o.id not in flow.operators]
        needed = {o.id for o in new.operators}
        others = {
            o for q in flow.queries.values() if q.name != old.name for o in q.operators
        }  # fmt: skip
        ended = [
            flow.operators[o].label
            for o in old.operators
            if o not in needed | others and o in flow.operators
        ]
        return Foretold(
            old.name,
            tuple(o.label for o in kept),
            tuple(_again(flow, o) for o in fresh),
            tuple(ended),
            _gone(flow, old, fresh),
        )


def _again(flow: ChangingFlow, operator: Operator) -> Again:
    lying = (s.rows for stream in operator.inputs for s in flow.ledger.segments(stream))
    rows = sum(lying)
    statistics = flow.ledger.operator_statistics()
    alike = [
        statistics[o.id]
        for o in flow.operators.values()
        if o.kind == operator.kind and o.id in statistics
    ]
    read = sum(r["rows_in"] for r in alike)
    pace = sum(r["seconds"] for r in alike) / read if read else None
    return Again(operator.label, rows, None if pace is None else rows * pace)


def _gone(flow: ChangingFlow, old: Query, fresh: list[Operator]) -> str:
    """What operators that begin will not find."""
    heads = (flow.ledger.stream(s) for o in fresh for s in o.inputs)
    since = max((int(row["retained_from"]) for row in heads if row is not None), default=old.start)
    return beginning_gone(since) if since > old.start else ""
