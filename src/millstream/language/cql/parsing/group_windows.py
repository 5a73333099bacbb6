"""Windows in GROUP BY: Flink's and Spark's functions become the window of the item of FROM.

`GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)` and `GROUP BY window(ts, '10 seconds')` say of a group
what CQL says of the stream. The tree is changed in place: the item gets the window, the key becomes
`window_end`, which is a group already, and what names the window's bounds becomes `window_start` or
`window_end`.
"""

from sqlglot import exp

from millstream.core.durations import microseconds
from millstream.core.errors import UsageError
from millstream.language.cql.parsing.foreign_windows import (
    cumulating,
    session_of,
    window_of_lengths,
)
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span, WindowSyntax, span_of

GROUP_FUNCTIONS = ("tumble", "hop", "window", "session", "session_window", "cumulate")
BOUNDS = {"start": "window_start", "end": "window_end"}
JOIN_HINT = "join in a subquery: FROM (SELECT ... FROM a JOIN b ON ...) [RANGE ... SLIDE ...]"
WITHIN_HINT = "give each its window: a [RANGE 5 SECONDS] JOIN b [RANGE 5 SECONDS] ON ... JOIN ..."
HINTS = {
    "tumble": "TUMBLE(ts, INTERVAL '10' SECOND)",
    "hop": "HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND), the slide before the size",
    "window": "window(ts, '10 seconds'), window(ts, '10 seconds', '5 seconds')",
    "session": "SESSION(ts, INTERVAL '10' MINUTE)",
    "cumulate": "CUMULATE(ts, INTERVAL '10' MINUTE, INTERVAL '1' HOUR), the step before the size",
}


def settle_windows(tree: exp.Expr, source: str) -> None:
    """Gives every select of a tree the windows that its GROUP BY names."""
    for select in list(tree.find_all(exp.Select)):
        _settle_within(select)
        _settle(select, source)
        _settle_sessions(select)


def _settle_within(select: exp.Select) -> None:
    """ksqlDB's `a JOIN b WITHIN 5 SECONDS ON ...` is a join of two windows of that length."""
    clause = select.args.get("from_")
    if clause is None:
        return
    joins = [*(clause.this.args.get("joins") or ()), *(select.args.get("joins") or ())]
    for join in joins:
        if "within" not in join.this.meta:
            continue
        windows: tuple[WindowSyntax, WindowSyntax] = join.this.meta.pop("within")
        sides = (clause.this, join.this)
        if len(joins) > 1:
            raise CqlSyntaxError("WITHIN among several joins", windows[0].span, WITHIN_HINT)
        if any("window" in side.meta for side in sides):
            raise CqlSyntaxError("WITHIN beside a window", windows[0].span, "keep one of the two")
        for side, window in zip(sides, windows, strict=True):
            side.meta["window"] = window


def _settle(select: exp.Select, source: str) -> None:
    item = select.args["from_"].this if select.args.get("from_") is not None else None
    own: WindowSyntax | None = item.meta.get("window") if item is not None else None
    if own is not None and own.spelled.startswith("WINDOW"):
        _rename_bounds(select)
    group = select.args.get("group")
    keys = [] if group is None else [k for k in group.expressions if _window_call(k, select)]
    calls = [_window_call(key, select) for key in keys]
    if group is not None and group.args.get("all"):
        called = (c for item in select.expressions for c in item.find_all(exp.Anonymous))
        calls += [_window_call(call, select) for call in called]
    calls = [call for call in calls if call is not None]
    if not calls:
        _refuse_bounds_alone(select)
        return
    first = calls[0]
    assert first is not None
    for other in calls[1:]:
        if other != first:
            raise CqlSyntaxError("two windows in GROUP BY", _place(other), "group by one of them")
    if item is None or select.args.get("joins") or item.args.get("joins"):
        raise CqlSyntaxError(f"{first.name} in GROUP BY over a join", _place(first), JOIN_HINT)
    if own is not None:
        raise CqlSyntaxError(
            f"{first.name} in GROUP BY over a stream with a window", _place(first),
            "keep one of the two windows",
        )  # fmt: skip
    item.meta["window"] = _window(first, source)
    item.meta["window_time"] = first.expressions[0]
    name = _alias(first, select)
    first = first.copy()
    for clause in (*select.expressions, *_clauses(select)):
        _name_bounds(clause, first, name)
    for key in keys:
        key.replace(_bound("end", key))


def _settle_sessions(select: exp.Select) -> None:
    """A session begins with its first row; a table function's PARTITION BY is that of GROUP BY."""
    item = select.args["from_"].this if select.args.get("from_") is not None else None
    window: WindowSyntax | None = item.meta.get("window") if item is not None else None
    if window is None or window.kind != "session":
        return
    group = select.args.get("group")
    keys = [] if group is None else list(group.expressions)
    names = {key.name.lower() for key in keys} - {"window_start", "window_end"}
    if window.by is not None and names != set(window.by):
        raise CqlSyntaxError(
            f"PARTITION BY of {window.spelled} that is not GROUP BY", window.span,
            "sessions are those of each group: name the same columns in both",
        )  # fmt: skip
    for key in keys:
        if key.name.lower() == "window_start":
            key.replace(_bound("end", key))
    for clause in (*select.expressions, *_clauses(select)):
        for node in list(clause.find_all(exp.Column)):
            if len(node.parts) == 1 and node.name.lower() == "window_start":
                time = _placed(exp.Column(this=_placed(exp.to_identifier("ts"), node)), node)
                made = _placed(exp.Anonymous(this="min", expressions=[time]), node)
                if isinstance(node.parent, exp.Select):
                    label = exp.to_identifier("window_start")
                    made = _placed(exp.Alias(this=made, alias=label), node)
                node.replace(made)


def _clauses(select: exp.Select) -> list[exp.Expr]:
    return [c for c in (select.args.get("having"),) if c is not None]


def _window_call(key: exp.Expr | None, select: exp.Select) -> exp.Anonymous | None:
    """A window's function, by itself, by its alias, or by its place in the select list."""
    if isinstance(key, exp.Anonymous) and key.name.lower() in GROUP_FUNCTIONS:
        return key if key.expressions else None
    chosen: exp.Expr | None = None
    if isinstance(key, exp.Literal) and not key.is_string and key.this.isdigit():
        place = int(key.this) - 1
        chosen = select.expressions[place] if 0 <= place < len(select.expressions) else None
    elif isinstance(key, exp.Column) and len(key.parts) == 1:
        named = (e for e in select.expressions if isinstance(e, exp.Alias))
        chosen = next((e for e in named if e.alias.lower() == key.name.lower()), None)
    if chosen is None:
        return None
    return _window_call(chosen.unalias(), select) if not isinstance(chosen, exp.Column) else None


def _alias(call: exp.Anonymous, select: exp.Select) -> str:
    """What the select list calls the window; without a name of its own as Spark calls it."""
    for item in select.expressions:
        if isinstance(item, exp.Alias) and item.this == call:
            return item.alias.lower()
    return call.name.lower() if call.name.lower() == "session_window" else "window"


def _window(call: exp.Anonymous, source: str) -> WindowSyntax:
    word, args = call.name.lower(), call.expressions
    if word in ("session", "session_window"):
        return session_of(call.name, _place(call), [_length(arg, source) for arg in args[1:]])
    most = {"tumble": 3, "hop": 4, "window": 4, "cumulate": 4}[word]
    least = 3 if word in ("hop", "cumulate") else 2
    if not least <= len(args) <= most:
        raise CqlSyntaxError(
            f"{call.name} takes {least} to {most} arguments", _place(call), HINTS[word]
        )
    lengths = [_length(arg, source) for arg in args[1:]]
    if word == "cumulate":
        return cumulating(call.name, _place(call), lengths[1], lengths[0], sum(lengths[2:]))
    if word == "hop":
        slide_us, size_us, offset_us = lengths[0], lengths[1], sum(lengths[2:])
    elif word == "window":
        size_us, offset_us = lengths[0], sum(lengths[2:])
        slide_us = lengths[1] if len(lengths) > 1 else size_us
    else:
        size_us, slide_us, offset_us = lengths[0], lengths[0], sum(lengths[1:])
    return window_of_lengths(call.name, _place(call), size_us, slide_us, offset_us)


def _length(node: exp.Expr, source: str) -> int:
    span = span_of(node)
    if isinstance(node, exp.Interval):  # its word stands before its parts
        start = source.lower().rfind("interval", 0, span.start + 1)
        span = Span(start if start >= 0 else span.start, span.end)
    try:
        return microseconds(source[span.start : span.end + 1])
    except UsageError as mistake:
        raise CqlSyntaxError(mistake.message, span, mistake.hint) from None


def _name_bounds(clause: exp.Expr, call: exp.Anonymous, name: str) -> None:
    """Replaces what stands for the window's bounds, below a clause or in place of it."""
    for node in list(clause.walk(prune=lambda n: isinstance(n, exp.Subquery))):
        made = _made(node, call, name)
        if made is None:
            continue
        parent = node.parent
        if isinstance(parent, exp.Select):
            label = {"window_start": "start", "window_end": "end"}.get(made.name, name)
            if isinstance(node, exp.Column | exp.Dot) or not isinstance(made, exp.Column):
                made = _placed(exp.Alias(this=made, alias=exp.to_identifier(label)), node)
        node.replace(made)


def _made(node: exp.Expr, call: exp.Anonymous, name: str) -> exp.Expr | None:
    if isinstance(node, exp.Dot) and node.this == call and node.expression.name.lower() in BOUNDS:
        return _bound(node.expression.name.lower(), node)
    if isinstance(node, exp.Column) and len(node.parts) == 2:
        first, second = (part.name.lower() for part in node.parts)
        return _bound(second, node) if first == name and second in BOUNDS else None
    if isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() == name:
        return _both(node)
    if not isinstance(node, exp.Anonymous):
        return None
    if node == call and not (isinstance(node.parent, exp.Dot) and node.arg_key == "this"):
        return _both(node)
    word, _, bound = node.name.lower().partition("_")
    if word == call.name.lower() and bound in BOUNDS:
        if node.expressions != call.expressions:
            raise CqlSyntaxError(
                f"{node.name} of another window than that of GROUP BY", _place(node),
                f"repeat the arguments of {call.name}, or write window_{bound}",
            )  # fmt: skip
        return _bound(bound, node)
    return None


def _both(node: exp.Expr) -> exp.Expr:
    """Spark's window itself: a struct of both bounds."""
    parts: list[exp.Expr] = []
    for word in BOUNDS:
        parts += [exp.Literal.string(word), _bound(word, node)]
    return _placed(exp.Anonymous(this="named_struct", expressions=parts), node)


def _bound(word: str, node: exp.Expr) -> exp.Expr:
    return _placed(exp.Column(this=_placed(exp.to_identifier(BOUNDS[word]), node)), node)


def _placed(made: exp.Expr, node: exp.Expr) -> exp.Expr:
    span = span_of(node)
    made.meta.update(start=span.start, end=span.end)
    return made


def _place(node: exp.Expr | None) -> Span:
    if node is None:
        return Span(0, 0)
    known: Span | None = node.meta.get("name")
    return known or span_of(node)


def _rename_bounds(select: exp.Select) -> None:
    """ksqlDB's WINDOWSTART and WINDOWEND."""
    for clause in (*select.expressions, *_clauses(select)):
        for node in list(clause.find_all(exp.Column)):
            word = node.name.lower()
            if len(node.parts) == 1 and word in ("windowstart", "windowend"):
                node.replace(_bound(word.removeprefix("window"), node))


def _refuse_bounds_alone(select: exp.Select) -> None:
    """TUMBLE_START and its kin without TUMBLE in GROUP BY; other functions of that family."""
    for clause in (*select.expressions, *_clauses(select)):
        for node in clause.find_all(exp.Anonymous):
            word, _, bound = node.name.lower().partition("_")
            if word not in ("tumble", "hop", "session") or not bound:
                continue
            if bound in BOUNDS:
                hint = f"group by it: GROUP BY {HINTS.get(word, HINTS['tumble'])}"
                raise CqlSyntaxError(
                    f"{node.name} without {word.upper()} in GROUP BY", _place(node), hint
                )
