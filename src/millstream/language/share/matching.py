"""What a new query has in common with what runs: equal parts, parts of one job, new parts.

Matching is a family chosen by name: `none` keeps every query to itself, `exact` makes equal
sub-plans one operator, `subsuming` also computes in one job what differs in filters, projections,
starts, windows and aggregate functions. A match says from whom the query reuses what, and what is
left for a residual.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from millstream.core.registry import Registry
from millstream.language.plan.explain import duration, readable
from millstream.language.plan.expressions import Expr
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.windows import Sliding, reach
from millstream.language.share.dataflow import Operator
from millstream.language.share.groups import Candidate, candidate, split_by_sides
from millstream.language.share.implication import implies, residual
from millstream.language.share.shared_panes import PaneMember, WindowMember
from millstream.language.share.shared_plan import JoinMember, Member


@dataclass(frozen=True, slots=True)
class Matching:
    """How much is shared."""

    name: str
    equal: bool  # equal sub-plans are one operator
    together: bool  # unequal ones of a class run in one job


DEFAULT = "subsuming"
MATCHINGS: Registry[Matching] = Registry("matching")
for _one in (
    Matching("none", equal=False, together=False),
    Matching("exact", equal=True, together=False),
    Matching("subsuming", equal=True, together=True),
):
    MATCHINGS.add(_one.name, _one)


@dataclass(frozen=True, slots=True)
class Running:
    """An operator that runs, and the queries that use it."""

    operator: Operator
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """One operator of a new query against what runs."""

    operator: Operator
    how: OneOf["new", "same", "together"]
    queries: tuple[str, ...] = ()  # of whom it is, or with whom it runs
    words: str = ""

    def told(self) -> str:
        """One line for people."""
        names = _listed(self.queries)
        match self.how:
            case "same":
                return f"{self.operator.label}: the same as for {names}"
            case "together":
                return f"{self.operator.label}: in one job with {names}; {self.words}"
            case _:
                return f"{self.operator.label}: new"


def match_all(
    operators: Sequence[Operator], running: Mapping[str, Running], matching: Matching
) -> list[Match]:
    """Every operator of a query, producers first, against what runs."""
    others = [c for r in running.values() if (c := candidate(r.operator)) is not None]
    return [_match(operator, running, others, matching) for operator in operators]


def _match(
    operator: Operator,
    running: Mapping[str, Running],
    others: Sequence[Candidate],
    matching: Matching,
) -> Match:
    if matching.equal and operator.id in running:
        return Match(operator, "same", running[operator.id].queries)
    mine = candidate(operator) if matching.together else None
    if mine is None:
        return Match(operator, "new")
    family = [c for c in others if c.family == mine.family]
    group = next((g for g in split_by_sides([*family, mine]) if mine in g), [mine])
    found = [c for c in group if c is not mine]
    if not found:
        return Match(operator, "new")
    queries = tuple(dict.fromkeys(q for c in found for q in running[c.operator.id].queries))
    wider = next((c for c in found if _covers(c, mine)), None)
    if wider is not None:
        left = _left(mine, wider)
        name = _listed(running[wider.operator.id].queries)
        words = f"{name} has all it needs" + (f", residual {left}" if left else "")
    else:
        words = "the job is widened by what only it needs"
    return Match(operator, "together", queries, words)


def _covers(wide: Candidate, narrow: Candidate) -> bool:
    """Whether what one operator reads and keeps holds all that another of its class needs."""
    a, b = wide.part, narrow.part
    match a, b:
        case Member(), Member():
            return implies(b.rows.conditions, a.rows.conditions, a.rows.leaf.schema)
        case JoinMember(), JoinMember():
            longer = all(reach(x) >= reach(y) for x, y in zip(a.windows, b.windows, strict=True))
            sides = all(
                implies(y.conditions, x.conditions, x.leaf.schema)
                for x, y in zip(a.sides, b.sides, strict=True)
            )
            return longer and sides and implies(b.conditions, a.conditions, _schema(a))
        case PaneMember(), PaneMember():
            return (
                b.pane % a.pane == 0
                and a.filter_key == b.filter_key
                and set(map(repr, b.calls)) <= set(map(repr, a.calls))
            )
        case WindowMember(), WindowMember():
            return a.panes.stream == b.panes.stream
        case _:
            return False


def _left(mine: Candidate, wide: Candidate) -> str:
    """The residual in words; empty where nothing is left."""
    a, b = wide.part, mine.part
    match a, b:
        case Member(), Member():
            return _texts(residual(b.rows.conditions, a.rows.conditions, a.rows.leaf.schema),
                          a.rows.leaf.schema)  # fmt: skip
        case JoinMember(), JoinMember():
            schema = _schema(a)
            parts = [_texts(residual(b.conditions, a.conditions, schema), schema)]
            for x, y in zip(a.sides, b.sides, strict=True):
                rest = residual(y.conditions, x.conditions, x.leaf.schema)
                parts.append(_texts(rest, x.leaf.schema))
            if a.windows != b.windows:
                parts.append(f"windows {', '.join(duration(reach(w)) for w in b.windows)}")
            return " AND ".join(p for p in parts if p)
        case WindowMember(), WindowMember() if isinstance(b.node.grouping, Sliding):
            return _texts(b.top.conditions, b.node.schema)
        case _:
            return ""


def _texts(terms: Sequence[Expr], schema: Schema) -> str:
    return " AND ".join(readable(t, schema) for t in terms)


def _schema(join: JoinMember) -> Schema:
    return tuple(Field(f.name, f.type) for side in join.sides for f in side.leaf.schema)


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    if len(names) <= 4:
        return ", ".join(names)
    return f"{', '.join(names[:3])} and {len(names) - 3} more"
