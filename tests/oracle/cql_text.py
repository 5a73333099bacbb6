"""A query of the oracle's model as CQL text, the way a user would write it."""

import re

from oracle.model import (
    DAY,
    HOUR,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    Emit,
    FromItem,
    Now,
    Partner,
    Query,
    Range,
    Rows,
    Select,
    Source,
    Sub,
    Unbounded,
    Union,
    Window,
)

UNITS = (
    ("DAY", DAY),
    ("HOUR", HOUR),
    ("MINUTE", MINUTE),
    ("SECOND", SECOND),
    ("MILLISECOND", MILLISECOND),
    ("MICROSECOND", MICROSECOND),
)
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KEYWORDS = frozenset({"order", "select", "group", "range", "rows", "table", "from", "timestamp"})


def name_text(name: str) -> str:
    """An identifier, in backticks where it needs them.

    >>> name_text("speed"), name_text("order"), name_text("größe")
    ('speed', '`order`', '`größe`')
    """
    plain = PLAIN.fullmatch(name) and name.lower() not in KEYWORDS
    return name if plain else f"`{name}`"


def length_text(length: int) -> str:
    """A length of time in its largest whole unit.

    >>> length_text(90_000_000), length_text(60_000_000), length_text(1_500)
    ('90 SECONDS', '1 MINUTE', '1500 MICROSECONDS')
    """
    unit, size = next((unit, size) for unit, size in UNITS if length % size == 0)
    count = length // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}S"


def window_text(window: Window) -> str:
    match window:
        case Range(length, None):
            return f"[RANGE {length_text(length)}]"
        case Range(length, slide, align_start):
            assert slide is not None
            align = " ALIGN START" if align_start else ""
            return f"[RANGE {length_text(length)} SLIDE {length_text(slide)}{align}]"
        case Now():
            return "[NOW]"
        case Unbounded(None):
            return "[UNBOUNDED]"
        case Unbounded(slide):
            assert slide is not None
            return f"[UNBOUNDED SLIDE {length_text(slide)}]"
        case Rows(count, ()):
            return f"[ROWS {count}]"
        case Rows(count, partition):
            return f"[PARTITION BY {', '.join(map(name_text, partition))} ROWS {count}]"


def _from_text(source: FromItem) -> str:
    match source:
        case Source(stream, None):
            words = [name_text(stream)]
        case Source(stream, alias):
            assert alias is not None
            words = [name_text(stream), "AS", name_text(alias)]
        case Sub(query, alias, _, None):
            words = [f"({_body_text(query)})", "AS", name_text(alias)]
        case Sub(_, alias, _, name):
            assert name is not None
            words = [name_text(name)]
            if alias != name:
                words += ["AS", name_text(alias)]
    if source.window is not None:
        words.append(window_text(source.window))
    return " ".join(words)


def _select_text(select: Select) -> str:
    entries = []
    for entry in select.items:
        column = entry.expr.cql.rpartition(".")[2].strip("`")
        text = entry.expr.cql
        entries.append(text if column == entry.name else f"{text} AS {name_text(entry.name)}")
    froms = [_from_text(source) for source in select.sources]
    if select.on:
        word = f"{select.outer} JOIN" if select.outer else "JOIN"
        joins = [
            f"{word} {text} ON {on.cql}" for text, on in zip(froms[1:], select.on, strict=True)
        ]
        from_clause = " ".join([froms[0], *joins])
    else:
        from_clause = ", ".join(froms)
    clauses = [
        f"SELECT {'DISTINCT ' if select.distinct else ''}{', '.join(entries)}",
        f"FROM {from_clause}",
    ]
    conditions = [select.where.cql] if select.where is not None else []
    if select.partner is not None:
        conditions = [f"({text})" for text in conditions] + [_partner_text(select.partner)]
    if conditions:
        clauses.append(f"WHERE {' AND '.join(conditions)}")
    if select.keys:
        clauses.append(f"GROUP BY {', '.join(key.cql for key in select.keys)}")
    if select.having is not None:
        clauses.append(f"HAVING {select.having.cql}")
    return " ".join(clauses)


def _partner_text(partner: Partner) -> str:
    where = "" if partner.on is None else f" WHERE {partner.on.cql}"
    rest = f"FROM {_from_text(partner.source)}{where}"
    word = "NOT " if partner.negated else ""
    if partner.values is None:
        return f"{word}EXISTS (SELECT 1 {rest})"
    ours, theirs = partner.values
    return f"{ours.cql} {word}IN (SELECT {theirs.cql} {rest})"


def _body_text(query: Query) -> str:
    match query:
        case Select():
            return _select_text(query)
        case Union(branches):
            return " UNION ALL ".join(_body_text(branch) for branch in branches)
        case Emit(kind, inner):
            return f"{kind} ({_body_text(inner)})"


def named_subqueries(query: Query) -> dict[str, Query]:
    """Subqueries that stand in the WITH clause, innermost first."""
    found: dict[str, Query] = {}
    match query:
        case Select():
            for source in query.sources:
                if isinstance(source, Sub):
                    found |= named_subqueries(source.query)
                    if source.name is not None:
                        found[source.name] = source.query
        case Union(branches):
            for branch in branches:
                found |= named_subqueries(branch)
        case Emit(_, inner):
            found |= named_subqueries(inner)
    return found


def cql_text(query: Query) -> str:
    """The whole query, on one line."""
    named = [f"{name_text(n)} AS ({_body_text(q)})" for n, q in named_subqueries(query).items()]
    return (f"WITH {', '.join(named)} " if named else "") + _body_text(query)
