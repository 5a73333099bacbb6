"""A query of the oracle's model as DuckDB SQL over whole input tables.

Every FROM item and every query becomes one common table expression, a *flow*: columns `ts` and
`_until` (the interval in which the row is in the relation), `_counts` (until when an aggregate
counts it: a range ends an instant earlier), `_pos` (its source position, or null) and the user's
columns. A query whose result is a relation is evaluated at given instants instead:
its flow has `_e` in place of the interval. Each rule of the semantics is one small piece of SQL.

Input tables are named as the streams and have columns `pos`, `ts_us` and the stream's own.
"""

from dataclasses import dataclass, field

from oracle.lifetimes_sql import lifetimes_sql
from oracle.model import (
    FOREVER,
    Emit,
    Expr,
    FromItem,
    Item,
    Now,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Stream,
    Sub,
    Unbounded,
    Union,
    Window,
    columns_of,
    streams_of,
)
from oracle.nature import Nature, grouping_of, item_nature, query_nature, shift_of


@dataclass(frozen=True, slots=True)
class Evaluation:
    """SQL that gives a query's result; `ts` is absent from the columns of a relation."""

    sql: str
    columns: tuple[str, ...]
    relation: bool


def quoted(name: str) -> str:
    """
    >>> quoted("order")
    '"order"'
    """
    return '"' + name.replace('"', '""') + '"'


def evaluation(query: Query, streams: dict[str, Stream]) -> Evaluation:
    """SQL for a whole query over the whole input."""
    writer = _Writer(streams)
    columns = columns_of(query)
    relation = query_nature(query).relation
    if relation:
        at_the_end = writer.add(f"SELECT {FOREVER} AS _e", "instants")
        flow = writer.table(query, at_the_end)
        final = f"SELECT {_listed(columns)} FROM {flow}"
    else:
        flow = writer.flow(query)
        final = f"SELECT {', '.join([*map(quoted, columns), 'ts'])} FROM {flow}"
    parts = ",\n".join(f"{name} AS (\n  {text}\n)" for name, text in writer.parts.items())
    return Evaluation(f"WITH {parts}\n{final}", columns, relation)


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(map(quoted, columns))


def _first_multiple(instant: str, slide: int) -> str:
    """The least multiple of slide at or after an instant; remainders may be negative."""
    return f"({instant} + ((-({instant})) % {slide} + {slide}) % {slide})"


def _all(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


@dataclass(slots=True)
class _Writer:
    streams: dict[str, Stream]
    parts: dict[str, str] = field(default_factory=dict)

    def add(self, text: str, hint: str) -> str:
        for name, present in self.parts.items():
            if present == text:
                return name
        name = f"_{hint}_{len(self.parts)}"
        self.parts[name] = text
        return name

    # Base streams

    def accepted(self, name: str) -> str:
        """Rows that have a time and are not late, judged row by row in order of arrival."""
        stream = self.streams[name]
        columns = _listed(tuple(column.name for column in stream.columns))
        judged = (
            f"SELECT *, coalesce(ts_us < max(ts_us) OVER (ORDER BY pos ROWS BETWEEN UNBOUNDED"
            f" PRECEDING AND 1 PRECEDING) - {stream.lateness}, false) AS _late"
            f" FROM {quoted(name)}"
        )
        return self.add(
            f"SELECT ts_us AS ts, {FOREVER} AS _until, {FOREVER} AS _counts, pos AS _pos, {columns}"
            f" FROM ({judged}) WHERE ts_us IS NOT NULL AND NOT _late",
            "rows",
        )

    def span(self, query: Query) -> str:
        """The first and the last time of all base streams of a query."""
        times = [f"SELECT ts FROM {self.accepted(name)}" for name in sorted(streams_of(query))]
        return f"(SELECT min(ts) AS _first, max(ts) AS _last FROM ({' UNION ALL '.join(times)}))"

    def columns(self, source: FromItem) -> tuple[str, ...]:
        match source:
            case Source():
                return tuple(column.name for column in self.streams[source.stream].columns)
            case Sub():
                return columns_of(source.query)

    # FROM items

    def item(self, source: FromItem) -> str:
        """The flow of a FROM item that is no relation."""
        match source:
            case Source():
                flow = self.accepted(source.stream)
                return self.windowed(flow, source.window or Unbounded(), source)
            case Sub():
                flow = self.flow(source.query)
                if source.window is not None:
                    return self.windowed(flow, source.window, source)
                if query_nature(source.query).shape == "result":
                    return self.windowed(flow, Unbounded(), source)
                return flow

    def windowed(self, flow: str, window: Window, source: FromItem) -> str:
        counts = "_until"
        match window:
            case Range(length):
                until, counts = f"ts + {length} + 1", f"ts + {length}"
            case Now():
                until = "ts + 1"
            case Unbounded():
                until = f"{FOREVER}"
            case Rows(count, partition):
                by = f"PARTITION BY {_listed(partition)} " if partition else ""
                order = self.order((source,), "")
                until = f"coalesce(lead(ts, {count}) OVER ({by}ORDER BY {order}), {FOREVER})"
        # Rows pushed out at their own time have empty intervals and are never visible.
        seen = f"SELECT * REPLACE ({until} AS _until) FROM {flow}"
        return self.add(
            f"SELECT * REPLACE ({counts} AS _counts) FROM ({seen}) WHERE ts < _until", "window"
        )

    def order(self, sources: tuple[FromItem, ...], start: str) -> str:
        """(ts, position), or (ts, all columns left to right) where there is no position.

        A stream's own time is the first of its columns (`harness.files_of`).
        """
        if len(sources) == 1 and item_nature(sources[0]).positioned:
            label = f"{quoted(sources[0].label)}." if start else ""
            return f"{label}ts, {label}_pos"
        columns = [
            (f"{quoted(source.label)}." if start else "") + quoted(column)
            for source in sources
            for column in (*(["ts"] if isinstance(source, Source) else []), *self.columns(source))
        ]
        return ", ".join(f"{text} ASC NULLS FIRST" for text in [start or "ts", *columns])

    # Queries that give streams

    def flow(self, query: Query) -> str:
        match query:
            case Select():
                if query.by_lifetime:
                    flow = self.add(lifetimes_sql(query, self.item, self.entries), "partners")
                else:
                    flow = self.grouped(query) if query.aggregated else self.selected(query)
                return self.distinct(flow, columns_of(query)) if query.distinct else flow
            case Union():
                return self.union(query)
            case Emit():
                nature = query_nature(query.query)
                if nature.relation:
                    return self.relation_emitted(query, nature)
                return self.emitted(query, nature)

    def joined(self, select: Select) -> tuple[str, list[str], str, str]:
        """FROM text, conditions, start and end of the intersection of a select's inputs."""
        return self.joined_until(select, "_until")

    def joined_until(self, select: Select, end: str) -> tuple[str, list[str], str, str]:
        """The same with intervals that end at the given column."""
        flows = [f"{self.item(s)} AS {quoted(s.label)}" for s in select.sources]
        labels = [quoted(source.label) for source in select.sources]
        conditions = [f"({on.sql})" for on in select.on]
        if select.where is not None:
            conditions.append(f"({select.where.sql})")
        if len(labels) == 1:
            return flows[0], conditions, f"{labels[0]}.ts", f"{labels[0]}.{end}"
        start = f"greatest({', '.join(f'{label}.ts' for label in labels)})"
        until = f"least({', '.join(f'{label}.{end}' for label in labels)})"
        return ", ".join(flows), [f"{start} < {until}", *conditions], start, until

    def selected(self, select: Select) -> str:
        from_text, conditions, start, until = self.joined(select)
        single = len(select.sources) == 1
        position = f"{quoted(select.sources[0].label)}._pos" if single else "NULL::BIGINT"
        counts = self.joined_until(select, "_counts")[3]
        entries = [f"{start} AS ts", f"{until} AS _until", f"{counts} AS _counts"]
        entries += [f"{position} AS _pos", *self.entries(select, {})]
        return self.add(f"SELECT {', '.join(entries)} FROM {from_text}{_all(conditions)}", "select")

    def entries(self, select: Select, tokens: dict[str, str]) -> list[str]:
        items: list[Item] = [entry for entry in select.items if entry.name != "ts"]
        return [f"{_filled(entry.expr, tokens)} AS {quoted(entry.name)}" for entry in items]

    def grouped(self, select: Select) -> str:
        """An aggregate over bounded windows; one row for each group that has rows."""
        inputs = [item_nature(source) for source in select.sources]
        grouping = grouping_of(inputs)
        from_text, conditions, start, until = self.joined_until(
            select, "_counts" if grouping == "snapshot" else "_until"
        )
        slide = next((nature.slide for nature in inputs if nature.slide), None) or inputs[0].step
        shift = shift_of(inputs)
        window_start = "_e"
        match grouping:
            case "sliding":  # windows [e - length, e) that contain the row
                length = inputs[0].length
                ends = _ends(f"{start} + 1", f"{start} + {length}", slide, shift)
                from_text += f", LATERAL (SELECT {ends} AS _e, _e + {slide} AS _next) AS _w"
                window_start = f"_e - {length}"
            case "instant":
                from_text += f", LATERAL (SELECT {start} AS _e, {start} + 1 AS _next) AS _w"
            case "change":
                from_text += f", {self.changes(select)} AS _w"
                conditions += [f"{start} <= _e", f"_e < {until}"]
                conditions += [
                    f"({key.sql}) IS NOT DISTINCT FROM _k{number}"
                    for number, key in enumerate(select.keys)
                ]
            case "snapshot":  # all parts of the row happened in their [e - range, e)
                lengths: frozenset[int] = frozenset().union(*(n.ranges for n in inputs))
                window_start = f"_e - {max(lengths, default=0)}"
                last = until
                if all(nature.endless for nature in inputs):
                    from_text += f", {self.span(select)} AS _span"
                    cap = _first_multiple("_last", slide)
                    last = f"(CASE WHEN {until} = {FOREVER} THEN {cap} ELSE {until} END)"
                ends = _ends(f"{start} + 1", last, slide, shift)
                from_text += f", LATERAL (SELECT {ends} AS _e, _e + {slide} AS _next) AS _w"
            case "running":
                raise ValueError("a relation where a stream is wanted")
        tokens = {
            "$order": self.order(select.sources, start),
            "$window_start": window_start,
            "$window_end": "_e",
        }
        entries = ["_e AS ts", "_next AS _until", "_next AS _counts", "NULL::BIGINT AS _pos"]
        entries += self.entries(select, tokens)
        return self.add(
            f"SELECT {', '.join(entries)} FROM {from_text}{_all(conditions)}"
            f" GROUP BY {', '.join(['_e', '_next', *(key.sql for key in select.keys)])}"
            f"{_having(select, tokens)}",
            "aggregate",
        )

    def changes(self, select: Select) -> str:
        """For each group the instants at which a row enters or leaves it, and the next one."""
        from_text, conditions, start, until = self.joined(select)
        keys = [f"_k{number}" for number, _ in enumerate(select.keys)]
        computed = [f"({key.sql}) AS _k{number}" for number, key in enumerate(select.keys)]
        entered = self.add(
            f"SELECT {', '.join([f'{start} AS _enters', f'{until} AS _leaves', *computed])}"
            f" FROM {from_text}{_all(conditions)}",
            "members",
        )
        instants = (
            f"SELECT {', '.join(['_enters AS _e', *keys])} FROM {entered}"
            f" UNION SELECT {', '.join(['_leaves AS _e', *keys])} FROM {entered}"
            f" WHERE _leaves < {FOREVER}"
        )
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        return self.add(
            f"SELECT *, coalesce(lead(_e) OVER ({by}ORDER BY _e), {FOREVER}) AS _next"
            f" FROM ({instants})",
            "changes",
        )

    def distinct(self, flow: str, columns: tuple[str, ...]) -> str:
        """Intervals of equal rows merge where they overlap or touch."""
        by = f"PARTITION BY {_listed(columns)} ORDER BY ts, _until"
        before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
        starts = (
            f"SELECT *, CASE WHEN ts <= max(_until) OVER ({by} {before}) THEN 0 ELSE 1 END AS _new"
            f" FROM {flow}"
        )
        islands = f"SELECT *, sum(_new) OVER ({by} ROWS UNBOUNDED PRECEDING) AS _island FROM"
        return self.add(
            f"SELECT min(ts) AS ts, max(_until) AS _until, max(_until) AS _counts,"
            f" NULL::BIGINT AS _pos, {_listed(columns)}"
            f" FROM ({islands} ({starts})) GROUP BY _island, {_listed(columns)}",
            "distinct",
        )

    def union(self, union: Union) -> str:
        names = columns_of(union)
        branches = []
        for branch in union.branches:
            renamed = [
                f"{quoted(old)} AS {quoted(new)}"
                for old, new in zip(columns_of(branch), names, strict=True)
            ]
            kept = ["ts", "_until", "_counts", "NULL::BIGINT AS _pos", *renamed]
            branches.append(f"SELECT {', '.join(kept)} FROM {self.flow(branch)}")
        return self.add(" UNION ALL ".join(branches), "union")

    def emitted(self, emit: Emit, nature: Nature) -> str:
        flow = self.flow(emit.query)
        columns = _listed(columns_of(emit.query))
        if emit.kind == "ISTREAM" or (emit.kind == "RSTREAM" and nature.instant):
            ends = f"{FOREVER} AS _until, {FOREVER} AS _counts"
            return self.add(f"SELECT * REPLACE ({ends}) FROM {flow}", "istream")
        none = f"{FOREVER} AS _until, {FOREVER} AS _counts, NULL::BIGINT AS _pos"
        if emit.kind == "DSTREAM":
            return self.add(
                f"SELECT _until AS ts, {none}, {columns} FROM {flow} WHERE _until < {FOREVER}",
                "dstream",
            )
        slide = nature.step
        cap = _first_multiple("_last", slide)
        last = f"CASE WHEN _until = {FOREVER} THEN {cap} ELSE _until - 1 END"
        return self.add(
            f"SELECT {_ends('ts', f'({last})', slide, nature.shift)} AS ts, {none}, {columns}"
            f" FROM {flow}, {self.span(emit.query)}",
            "rstream",
        )

    # Queries that give relations

    def table(self, query: Query, instants: str) -> str:
        """A relation's rows at each of the given instants."""
        match query:
            case Select():
                flow = self.running(query, instants)
                if not query.distinct:
                    return flow
                return self.add(f"SELECT DISTINCT * FROM {flow}", "distinct")
            case Union():
                branches = [f"SELECT * FROM {self.table(b, instants)}" for b in query.branches]
                return self.add(" UNION ALL ".join(branches), "union")
            case Emit():
                raise ValueError("a stream where a relation is wanted")

    def running(self, select: Select, instants: str) -> str:
        inputs = [item_nature(source) for source in select.sources]
        if inputs[0].relation:
            (source,) = select.sources
            assert isinstance(source, Sub)
            from_text = f"{self.table(source.query, instants)} AS {quoted(source.label)}"
            conditions = [] if select.where is None else [f"({select.where.sql})"]
            start = f"{quoted(source.label)}._e"
        else:
            from_text, conditions, start, _ = self.joined(select)
            from_text += f", {instants} AS _i"
            conditions.append(f"{start} <= _i._e")
        instant = start if inputs[0].relation else "_i._e"
        tokens = {"$order": self.order(select.sources, start)}
        entries = [f"{instant} AS _e", *self.entries(select, tokens)]
        text = f"SELECT {', '.join(entries)} FROM {from_text}{_all(conditions)}"
        if select.aggregated:
            text += f" GROUP BY {', '.join([instant, *(key.sql for key in select.keys)])}"
            text += _having(select, tokens)
        return self.add(text, "table")

    def relation_emitted(self, emit: Emit, nature: Nature) -> str:
        """What entered, left or stood in a relation at each multiple of the slide."""
        slide = nature.step
        first, last = _first_multiple("_first", slide), _first_multiple("_last", slide)
        instants = self.add(
            f"SELECT {_series(first, last, slide)} AS _e FROM {self.span(emit.query)}", "instants"
        )
        columns = _listed(columns_of(emit.query))
        table = self.table(emit.query, instants)
        now = f"SELECT _e, {columns} FROM {table}"
        before = f"SELECT _e + {slide} AS _e, {columns} FROM {table}"
        before += f" WHERE _e + {slide} IN (SELECT _e FROM {instants})"
        match emit.kind:
            case "ISTREAM":
                changed = f"{now} EXCEPT ALL ({before})"
            case "DSTREAM":
                changed = f"{before} EXCEPT ALL ({now})"
            case "RSTREAM":
                changed = now
        return self.add(
            f"SELECT _e AS ts, {FOREVER} AS _until, {FOREVER} AS _counts, NULL::BIGINT AS _pos,"
            f" {columns} FROM ({changed})",
            emit.kind.lower(),
        )


def _ends(first: str, last: str, slide: int, shift: int) -> str:
    """Window ends between two instants: multiples of slide, or `shift` behind them."""
    if not shift:
        return _series(_first_multiple(first, slide), last, slide)
    starts = _series(_first_multiple(f"{first} - {shift}", slide), f"{last} - {shift}", slide)
    return f"{starts} + {shift}"


def _series(first: str, last: str, slide: int) -> str:
    return f"unnest(generate_series({first}, {last}, {slide}))"


def _filled(expression: Expr, tokens: dict[str, str]) -> str:
    text = expression.sql
    for token, replacement in tokens.items():
        text = text.replace(token, replacement)
    return text


def _having(select: Select, tokens: dict[str, str]) -> str:
    return "" if select.having is None else f" HAVING {_filled(select.having, tokens)}"
