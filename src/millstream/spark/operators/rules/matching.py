"""Each new row with the rules that hold for it: a join by keys and places, never all with all.

A rule holds from its row's time to that of the next row with its name. The places on a line of
values are found by binary search over bounds that stand in the plan; a row goes to those that its
value can reach, or a rule to those that its interval covers (`language/plan/rule_index.py`).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from millstream.language.cql.rule_tables import REMOVED
from millstream.language.plan.expressions import Column, conjuncts, total
from millstream.language.plan.nodes import Ruled, Source
from millstream.language.plan.rule_index import Line, rule_index
from millstream.language.plan.sql_text import predicate_sql, sql
from millstream.language.plan.windows import FOREVER
from millstream.language.share.dataflow import stream_of
from millstream.spark.frames import Frame, lower
from millstream.spark.operators.base import Answer, Output, Step

SINCE, GONE = "_since", "_gone"  # when a rule begins to hold, and when no more
AT, PLACE = "_at", "_place"  # the places of rows and of rules


class RulesLogic:
    def evaluate(self, step: Step) -> Answer:
        ruled = step.operator.core
        assert isinstance(ruled, Ruled)
        side = stream_of(ruled.rules)
        outputs: tuple[Output, ...] = ()
        if any(i.fresh for s, i in step.inputs.items() if s != side):
            rows = lower(
                ruled.input,
                lambda leaf: step.read(stream_of(leaf), step.inputs[stream_of(leaf)].new),
            )
            met = _met(ruled, rows, _rules(step, ruled.rules, rows.width), step)
            frame = lower(step.operator.node, lambda _: met)
            outputs = (Output(step.operator.id, frame),)
        return Answer(outputs, step.after, {})


def _rules(step: Step, table: Source, width: int) -> DataFrame:
    """Rules with the time in which they hold; columns follow those of a row."""
    source = step.inputs[stream_of(table)]
    frame = step.read(source.stream, (*source.tail, *source.new))
    names = [f.name for f in table.columns]
    following = f"lead(_ts, 1, {FOREVER}L) OVER (PARTITION BY c0 ORDER BY _ts, _pos)"
    columns = [f"c{i} AS c{width + i}" for i in range(len(names))]
    data = frame.data.selectExpr(f"_ts AS {SINCE}", f"{following} AS {GONE}", *columns)
    ended = f"coalesce(c{width + names.index(REMOVED)}, FALSE)"
    return data.where(f"NOT {ended} AND {SINCE} < {GONE}")


def _met(ruled: Ruled, rows: Frame, rules: DataFrame, step: Step) -> Frame:
    index, terms = rule_index(ruled), conjuncts(ruled.predicate)
    kept = [h for h in rows.hidden if h != "_pos"]  # several rows come from one
    own = [*kept, *(f"c{i}" for i in range(rows.width))]
    at, place = _places(index.line, step.bounds, rows.width)
    left = rows.data.selectExpr(*own, f"{at} AS {AT}")
    right = rules.selectExpr("*", f"{place} AS {PLACE}")
    if step.prepared:  # in one piece, which needs no exchange
        left, right = left.coalesce(1), right.coalesce(1).hint("shuffle_hash")
    else:
        right = right.hint("broadcast")
    conditions = [f"{AT} = {PLACE}", f"{SINCE} <= _ts", f"_ts < {GONE}"]
    conditions += [sql(term) for term in terms if total(term)]
    data = left.join(right, F.expr(" AND ".join(conditions)))
    if not all(total(term) for term in terms):
        # those that can raise: again in the order in which they stand, behind their guards
        data = data.where(predicate_sql(ruled.predicate))
    columns = [f"c{i}" for i in range(len(ruled.schema))]
    return Frame(data, (), 0).select({h: h for h in kept}, columns)


def _places(line: Line | None, bounds: Sequence[str], width: int) -> tuple[str, str]:
    """Where a row looks for rules, and where a rule is found, as SQL."""
    if line is None or not bounds:
        return "0", "0"
    value = sql(line.value)
    if line.kind == "between":
        assert line.above is not None
        assert line.below is not None
        low, high = (_place(_rule(width, p), bounds, ">") for p in (line.above, line.below))
        covered = f"IF({low} <= {high}, sequence({low}, {high}), array())"
        return _place(value, bounds, ">"), f"explode({covered})"
    way = ">" if line.kind == "above" else "<"
    ordered = bounds if line.kind == "above" else list(reversed(bounds))
    reached = _place(value, ordered, f"{way}=")
    return f"explode(sequence(0, {reached}))", _place(_rule(width, line.parameter), ordered, way)


def _rule(width: int, parameter: int) -> str:
    return sql(Column(width + parameter))


def _place(value: str, bounds: Sequence[str], way: str) -> str:
    """How many bounds a value lies beyond: binary search, 0 for NULL."""

    def search(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        beyond, before = search(middle + 1, high), search(low, middle)
        return f"IF({value} {way} {bounds[middle]}, {beyond}, {before})"

    return search(0, len(bounds))
