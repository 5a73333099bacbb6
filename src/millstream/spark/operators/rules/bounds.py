"""Where the line of a rule set is cut: quantiles of a parameter's values, as SQL literals.

Bounds enter the plan of a step, and a plan is made once; so they stay until there are twice or
half as many rows in the rule table. No result depends on them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.engine.ports import Step
from millstream.language.plan.nodes import Ruled
from millstream.language.plan.rule_index import RuleIndex, rule_index
from millstream.language.share.dataflow import stream_of
from millstream.store.segments import Segment

PLACES = 128
RULES_A_KEY_MIN = 64  # with fewer rules for a value of the keys, all of them are asked
KEPT_MAX = 1_000  # operators whose bounds are remembered


@dataclass(frozen=True, slots=True)
class _Cut:
    rows: int  # of the rule table when it was cut
    bounds: tuple[str, ...]


class RuleBounds:
    """The bounds of every rule set; `read` gives the rows of a segment."""

    def __init__(self, read: Callable[[Segment], pa.Table]) -> None:
        self._read = read
        self._cuts: dict[str, _Cut] = {}

    def of(self, step: Step) -> tuple[str, ...]:
        """The bounds for a step; none where the rules are few or nothing puts them in order."""
        ruled = step.operator.core
        if not isinstance(ruled, Ruled):
            return ()
        index = rule_index(ruled)
        if index.line is None:
            return ()
        source = step.inputs[stream_of(ruled.rules)]
        segments = [s for s in (*source.tail, *source.new) if s.file]
        rows = sum(s.rows for s in segments)
        known = self._cuts.get(step.operator.id)
        if known is None or not known.rows / 2 <= rows <= known.rows * 2:
            if len(self._cuts) > KEPT_MAX:
                self._cuts.clear()
            known = _Cut(rows, self._cut(index, ruled, segments))
            self._cuts[step.operator.id] = known
        return known.bounds

    def _cut(self, index: RuleIndex, ruled: Ruled, segments: list[Segment]) -> tuple[str, ...]:
        assert index.line is not None
        parameter = index.line.parameter
        wanted = [f"c{parameter}", *(f"c{k}" for k in index.key_parameters)]
        tables = [self._read(s).select(wanted) for s in segments]
        if not tables:
            return ()
        table = pa.concat_tables(tables, promote_options="permissive")
        keys = [table[name].to_pylist() for name in wanted[1:]]
        groups = len(set(zip(*keys, strict=True))) if keys else 1
        if table.num_rows < RULES_A_KEY_MIN * max(1, groups):
            return ()
        values = sorted({v for v in table[wanted[0]].to_pylist() if _ordered(v)})
        step = max(1, len(values) // PLACES)
        type_ = ruled.rules.columns[parameter].type
        return tuple(_literal(v, type_) for v in values[step::step])


def _ordered(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _literal(value: Any, type_: str) -> str:
    """A value as Spark reads it back.

    >>> _literal(1.5, "double"), _literal(date(2020, 1, 2), "date")
    ("CAST('1.5' AS double)", "CAST('2020-01-02' AS date)")
    """
    text = value.isoformat() if isinstance(value, date) else repr(value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
    return f"CAST('{text}' AS {type_})"
