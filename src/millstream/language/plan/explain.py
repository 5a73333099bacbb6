"""A plan as text and as JSON: stable, readable, one line a node.

Columns appear under their names (`name#position` where two share one), windows in people's units,
and every node with the beginning of its fingerprint: equal ones are the same stream.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from millstream.language.plan.calls import spoken, unpacked
from millstream.language.plan.expressions import (
    Call,
    Column,
    Expr,
    Literal,
    Time,
    columns_of,
    conjuncts,
    transform,
)
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Distinct,
    Emit,
    Filter,
    Join,
    Matched,
    Node,
    Over,
    Plan,
    Project,
    Ranked,
    Ruled,
    Semijoin,
    Source,
    Union,
    Unnest,
    Windowed,
    inputs_of,
)
from millstream.language.plan.row_patterns import written
from millstream.language.plan.rule_index import rule_index
from millstream.language.plan.schema import Field, Schema
from millstream.language.plan.sql_text import DATED, sql
from millstream.language.plan.walks import windows_of
from millstream.language.plan.windows import (
    BEGINNING,
    FOREVER,
    Calendar,
    Change,
    Grouping,
    Instant,
    Now,
    OverFrame,
    Range,
    Rows,
    Running,
    Session,
    Sliding,
    Snapshot,
    Unbounded,
    Window,
)

SHORT = 8  # characters of a fingerprint
WINDOWS_A_ROW_MAX = 10_000  # range / slide above which explain warns
SLIDE_USUAL_US = 1_000_000  # that of a RANGE without SLIDE
UNITS_US = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
    ("microsecond", 1),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def explain(plan: Plan) -> str:
    """The plan, the result's columns, notes and warnings."""
    kind = "table, told by its changes" if plan.relation else "stream"
    columns = ", ".join([*(f"{f.name} {f.type}" for f in plan.columns), "ts timestamp"])
    lines = [f"result ({kind}): {columns}", *_lines(plan.root, 0)]
    lines += [f"note: {text}" for text in notes(plan)]
    lines += [f"warning: {text}" for text in warnings(plan)]
    return "\n".join(lines)


def explain_json(plan: Plan) -> dict[str, Any]:
    """The same for a script."""
    return {
        "result": [
            *({"name": f.name, "type": f.type} for f in plan.columns),
            {"name": "ts", "type": "timestamp"},
        ],
        "relation": plan.relation,
        "fingerprint": plan.fingerprint,
        "plan": _tree(plan.root),
        "notes": list(notes(plan)),
        "warnings": list(warnings(plan)),
    }


def warnings(plan: Plan) -> Iterator[str]:
    """What costs more than its author may think."""
    for node in _walk(plan.root):
        if isinstance(node, Matched) and node.spec.within is None:
            yield (
                "MATCH_RECOGNIZE without WITHIN keeps the rows of an unfinished match until later "
                "rows of its partition decide it; add WITHIN INTERVAL '10' MINUTE after PATTERN"
            )
        if not isinstance(node, Aggregate):
            continue
        length, slide = _extent(node)
        if slide and length // slide > WINDOWS_A_ROW_MAX:
            yield (
                f"each row is in {length // slide:,} windows ({duration(length)} by "
                f"{duration(slide)}); give a longer SLIDE"
            )


def notes(plan: Plan) -> Iterator[str]:
    """What a reader may take for something else."""
    aggregates = [node for node in _walk(plan.root) if isinstance(node, Aggregate)]
    yield from dict.fromkeys(_usual_slide(aggregates))
    for node in aggregates:
        ranges, slide = _windows(node)
        uneven = [length for length in ranges if slide and length % slide]
        if uneven:
            whole = f"RANGE {duration(uneven[0])} is not a multiple of SLIDE {duration(slide)}"
            yield f"{whole}: windows {_alignment(node, ranges, slide)}"


def _usual_slide(aggregates: Iterable[Aggregate]) -> Iterator[str]:
    """What a window gives whose SLIDE is the usual second, and how to have one result a window."""
    for node in aggregates:
        match node.grouping:
            case Sliding(length, slide, cumulates=False) if slide == SLIDE_USUAL_US < length:
                written, spoken = duration(length).upper(), duration(length).removeprefix("1 ")
                yield (
                    f"a result every second, each over the last {spoken}; for one every {spoken}: "
                    f"[RANGE {written} SLIDE {written}]"
                )
            case _:
                pass


def _alignment(node: Aggregate, ranges: list[int], slide: int) -> str:
    """Which ends of windows lie at multiples of SLIDE, and what else there is."""
    grouping = node.grouping
    if isinstance(grouping, Sliding | Snapshot) and grouping.offset:
        if grouping.offset != grouping.length % slide:
            return f"end {duration(grouping.offset)} after multiples of SLIDE (OFFSET)"
        return "start at multiples of SLIDE (ALIGN START); with ALIGN END they end there"
    if len({length % slide for length in ranges}) > 1:
        other = "ALIGN START needs the same RANGE for all"
    else:
        other = "with ALIGN START they start there"
    return f"end at multiples of SLIDE (ALIGN END); {other}"


def _extent(node: Aggregate) -> tuple[int, int]:
    """Length and slide of the longest windows of an aggregate, in microseconds."""
    ranges, slide = _windows(node)
    return max(ranges, default=0), slide


def _windows(node: Aggregate) -> tuple[list[int], int]:
    """Lengths of an aggregate's windows, shortest first, and its slide, in microseconds."""
    match node.grouping:
        case Sliding(length, slide):
            return [length], slide
        case Snapshot(slide):
            ranges = {w.length for w in windows_of(node.input) if isinstance(w, Range)}
            return sorted(ranges), slide
        case _:
            return [], 0


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in inputs_of(node):
        yield from _walk(child)


def _lines(node: Node, depth: int) -> Iterator[str]:
    operator, detail = describe(node)
    words = f"{operator} {detail}".strip()
    yield f"{'  ' * depth}{words}  #{node.fingerprint[:SHORT]}"
    for child in inputs_of(node):
        yield from _lines(child, depth + 1)


def _tree(node: Node) -> dict[str, Any]:
    operator, detail = describe(node)
    return {
        "operator": operator,
        "detail": detail,
        "fingerprint": node.fingerprint,
        "columns": [{"name": f.name, "type": f.type} for f in node.schema],
        "inputs": [_tree(child) for child in inputs_of(node)],
    }


def describe(node: Node) -> tuple[str, str]:
    """A node's operator and what it does."""
    match node:
        case Source(stream=stream, start=start):
            return "stream", stream if start == BEGINNING else f"{stream} from {instant(start)}"
        case Filter(input=inner, predicate=predicate):
            return "filter", condition(predicate, inner.schema)
        case Project(input=inner, columns=columns, fields=fields):
            return "project", ", ".join(
                _named(f.name, readable(c, inner.schema))
                for f, c in zip(fields, columns, strict=True)
            )
        case Union():
            return "union", "all"
        case Unnest(input=inner, array=array, fields=fields):
            names = ", ".join(f.name for f in fields)
            kind = ", outer" if node.outer else ""
            return "unnest", f"{readable(array, inner.schema)} as {names}{kind}"
        case Ruled(input=inner, rules=rules, predicate=predicate):
            named = (*inner.schema, *(Field(f":{f.name}", f.type) for f in rules.schema))
            asked = f" on {condition(predicate, named)}" if predicate else ""
            return "rules", f"each row with every rule that holds{asked}; {_found_by(node, named)}"
        case Windowed(input=inner, window=window):
            return "window", window_text(window, inner.schema)
        case Join(predicate=predicate):
            return "join", f"on {condition(predicate, node.schema)}" if predicate else "all pairs"
        case Semijoin(inputs=(left, right), predicate=predicate, anti=anti):
            words = f"on {condition(predicate, (*left.schema, *right.schema))}" if predicate else ""
            return ("antijoin" if anti else "semijoin"), words or "any row"
        case Aggregate():
            return "aggregate", _aggregate(node)
        case Distinct():
            return "distinct", ""
        case Ranked(input=inner):
            keys = [readable(key, inner.schema) for key in node.partition]
            order = [f"{readable(key, inner.schema)} {way}" for key, way in node.order]
            by = f" by {', '.join(keys)}" if keys else ""
            rows = "of all rows so far" if node.running else "of each instant"
            most = f", up to {node.limit}" if node.limit is not None else ""
            return "rank", f"{node.function} {rows}{by} in order of {', '.join(order)}{most}"
        case Over():
            return "over", _over(node)
        case Matched():
            return "match", _matched(node)
        case Emit(kind=kind, slide=slide):
            return kind, f"every {duration(slide)}" if kind == "rstream" else ""
        case _:
            raise TypeError(f"not a plan node: {node!r}")


def _matched(node: Matched) -> str:
    spec = node.spec
    keys = [readable(key, node.input.schema) for key in node.keys]
    by = f" by {', '.join(keys)}" if keys else ""
    within = "" if spec.within is None else f" within {duration(spec.within)}"
    after = " ".join((spec.skip.kind, spec.skip.variable)).strip()
    rows = "" if node.finals is None else "all rows of "
    rows = "all rows, those in a match of " if node.unmatched else rows
    return f"{rows}({written(spec.pattern)}){by}{within}, then {after}"


def _found_by(node: Ruled, schema: Schema) -> str:
    """How the rules of a row are found."""
    index = rule_index(node)
    ways = [f"by {condition(key, schema)}" for key in index.keys]
    if index.line is not None:
        ways.append(f"by the order of {readable(index.line.value, schema)}")
    return f"found {', then '.join(ways)}" if ways else "every rule is asked"


def _named(name: str, text: str) -> str:
    return name if name == text else f"{name} = {text}"


def _aggregate(node: Aggregate) -> str:
    schema = node.input.schema
    keys = [readable(key, schema) for key in node.keys]
    calls = ", ".join(_call(call, schema) for call in node.calls) or "groups"
    by = f" by {', '.join(keys)}" if keys else ""
    start = "" if node.start == BEGINNING else f" from {instant(node.start)}"
    return f"{calls}{by} {grouping_text(node.grouping)}{start}"


def _over(node: Over) -> str:
    schema = node.input.schema
    calls = (
        f"{_call(call, schema)} of {frame_text(frame)}"
        for call, frame in zip(node.calls, node.frames, strict=True)
    )
    keys = ", ".join(readable(key, schema) for key in node.partition)
    order = ", ".join(f"{readable(key, schema)} {way}" for key, way in node.order)
    by = f" by {keys}" if keys else ""
    return f"{', '.join(calls)}{by}{f' in order of {order}' if order else ''}"


def frame_text(frame: OverFrame) -> str:
    """
    >>> frame_text(OverFrame("rows", -2)), frame_text(OverFrame("time", -2_000_000, 1))
    ('rows -2 to 0', 'time -2 seconds to 1 microsecond')
    >>> frame_text(OverFrame("rows", BEGINNING))
    'all rows up to it'
    >>> frame_text(OverFrame("peers", BEGINNING)), frame_text(OverFrame("rows", -1, FOREVER))
    ('all rows up to it and its peers', 'rows -1 to the last')
    >>> frame_text(OverFrame("rows", BEGINNING, FOREVER))
    'all rows'
    >>> frame_text(OverFrame("rows", BEGINNING, 2))
    'rows the first to 2'
    >>> frame_text(OverFrame("values", BEGINNING, 5)), frame_text(OverFrame("doubles", -500_000))
    ('values the first to +5', 'values -0.5 to +0')
    """
    if frame.by == "peers":
        return "all rows up to it and its peers"
    if frame.by == "rows" and (frame.last == FOREVER or (frame.unbounded and frame.last)):
        if frame.unbounded and frame.last == FOREVER:
            return "all rows"
        first = "the first" if frame.unbounded else str(frame.first)
        return f"rows {first} to {'the last' if frame.last == FOREVER else frame.last}"
    if frame.unbounded and frame.by in ("rows", "time"):
        return f"all {'rows' if frame.by == 'rows' else 'times'} up to it"
    if frame.by == "rows":
        return f"rows {frame.first} to {frame.last}"
    if frame.by in ("values", "doubles"):
        unit = 1 if frame.by == "values" else 1_000_000
        last = "the last" if frame.last == FOREVER else f"{frame.last / unit:+g}"
        first = "the first" if frame.unbounded else f"{frame.first / unit:+g}"
        return f"values {first} to {last}"
    ends = (f"{'-' if us < 0 else ''}{duration(abs(us))}" for us in (frame.first, frame.last))
    return f"time {' to '.join(ends)}"


def _call(call: AggregateCall, schema: Schema) -> str:
    parts = {name: readable(part, schema) for name, part in unpacked(call.argument).items()}
    argument = "*" if call.argument is None else readable(call.argument, schema)
    text = f"{call.function}({'DISTINCT ' if call.distinct else ''}{argument})"
    if parts:
        distinct = "DISTINCT " if call.distinct else ""
        text = spoken(call.function, {**parts, "v": f"{distinct}{parts['v']}"})
    if call.condition is None:
        return text
    return f"{text} where {condition(call.condition, schema)}"


def grouping_text(grouping: Grouping) -> str:
    match grouping:
        case Sliding(length, slide, offset, cumulates=True):
            moved = f" offset {duration(offset)}" if offset else ""
            return f"over up to {duration(length)} every {duration(slide)}{moved}"
        case Sliding(length, slide, offset):
            moved = _aligned(offset, length % slide)
            return f"over {duration(length)} every {duration(slide)}{moved}"
        case Instant():
            return "at each instant"
        case Change():
            return "at each change"
        case Snapshot(slide, length, offset):
            moved = _aligned(offset, length % slide)
            return f"of what is there every {duration(slide)}{moved}"
        case Running():
            return "so far"
        case Session(gap):
            return f"in sessions {duration(gap)} apart"
        case Calendar(unit, length, slide, zone, offset):
            moved = f" offset {duration(offset)}" if offset else ""
            lengths = (f"{n} {unit}{'' if n == 1 else 's'}" for n in (length, slide))
            return f"over {' every '.join(lengths)}{moved} in {zone}"
        case _:
            assert_never(grouping)


def _aligned(offset: int, of_starts: int) -> str:
    """Where ends lie; aligned starts lie `of_starts` before them."""
    if offset not in (0, of_starts):
        return f" offset {duration(offset)}"
    return " align start" if offset else ""


def window_text(window: Window, schema: Schema) -> str:
    match window:
        case Range(length, half_open):
            return f"range {duration(length)}{', end not included' if half_open else ''}"
        case Now():
            return "now"
        case Unbounded():
            return "unbounded"
        case Rows(count, partition):
            keys = ", ".join(readable(key, schema) for key in partition)
            return f"rows {count}" + (f" partition by {keys}" if keys else "")
        case _:
            assert_never(window)


def condition(predicate: Expr, schema: Schema) -> str:
    """A predicate with one level of conjunction spelled out."""
    return " AND ".join(_bare(readable(term, schema)) for term in conjuncts(predicate)) or "TRUE"


def readable(expr: Expr, schema: Schema) -> str:
    """An expression over column names.

    >>> from millstream.language.plan.schema import Field
    >>> readable(Column(1), (Field("host", "string"), Field("bytes", "bigint")))
    'bytes'
    """
    names = {i: _column_name(i, schema) for i in columns_of(expr)}

    def name(part: Expr) -> Expr | None:
        if isinstance(part, Column):
            return Literal(names[part.index], "name")
        if isinstance(part, Call) and part.name == DATED:
            return part.args[0]
        return Literal("ts", "name") if isinstance(part, Time) else None

    return sql(transform(expr, name))


def _column_name(index: int, schema: Schema) -> str:
    name = schema[index].name
    twice = sum(f.name == name for f in schema) > 1
    return f"{name}#{index}" if twice else name


def _bare(text: str) -> str:
    """Without the parentheses around the whole."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def duration(length_us: int) -> str:
    """
    >>> duration(120_000_000), duration(1_500_000), duration(1_000_000)
    ('2 minutes', '1500 milliseconds', '1 second')
    """
    for unit, size in UNITS_US:
        count, left = divmod(length_us, size)
        if left == 0 and count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "0 seconds"


def instant(time_us: int) -> str:
    """
    >>> instant(0)
    '1970-01-01T00:00:00+00:00'
    """
    try:
        return (EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} us"
