"""Outer joins, IN and EXISTS over windows as DuckDB SQL: by lifetime, row by row.

A row meets another if their intervals have an instant in common and the condition holds. An outer
join adds to the pairs each row that met nobody, at the end of its interval, with nulls for the
other side. IN and EXISTS give a row once, at the first instant at which it meets somebody; NOT IN
and NOT EXISTS give it once, at the end of its interval, if it met nobody. A row that is there
for an instant alone is given at that instant.
"""

from collections.abc import Callable

from oracle.model import FOREVER, FromItem, Select
from oracle.nature import item_nature

HIDDEN = f"{FOREVER} AS _until, {FOREVER} AS _counts, NULL::BIGINT AS _pos"
Entries = Callable[[Select, dict[str, str]], list[str]]


def lifetimes_sql(select: Select, flow: Callable[[FromItem], str], entries: Entries) -> str:
    """The rows of a select with an outer join, or with IN or EXISTS in its condition."""
    texts = ", ".join([HIDDEN, *entries(select, {})])
    return (
        _outer(select, flow, texts) if select.partner is None else _partnered(select, flow, texts)
    )


def _named(label: str) -> str:
    return '"' + label.replace('"', '""') + '"'


def _meet(one: str, other: str) -> str:
    return f"{one}.ts < {other}._until AND {other}.ts < {one}._until"


def _end(source: FromItem) -> str:
    label = _named(source.label)
    return f"{label}.ts" if item_nature(source).instant else f"{label}._until"


def _outer(select: Select, flow: Callable[[FromItem], str], texts: str) -> str:
    left, right = select.sources
    a, b = _named(left.label), _named(right.label)
    (on,) = select.on
    met = f"{_meet(a, b)} AND ({on.sql})"
    where = "" if select.where is None else f" AND ({select.where.sql})"
    found = [
        f"SELECT greatest({a}.ts, {b}.ts) AS ts, {texts}"
        f" FROM {flow(left)} AS {a}, {flow(right)} AS {b} WHERE {met}{where}"
    ]
    sides = [(left, right)] if select.outer in ("LEFT", "FULL") else []
    sides += [(right, left)] if select.outer in ("RIGHT", "FULL") else []
    for kept, missing in sides:
        nobody = f"(SELECT * FROM {flow(missing)} LIMIT 0) AS {_named(missing.label)}"
        found.append(
            f"SELECT {_end(kept)} AS ts, {texts}"
            f" FROM {flow(kept)} AS {_named(kept.label)} LEFT JOIN {nobody} ON TRUE"
            f" WHERE NOT EXISTS (SELECT 1 FROM {flow(missing)} AS {_named(missing.label)}"
            f" WHERE {met}){where}"
        )
    return " UNION ALL ".join(found)


def _partnered(select: Select, flow: Callable[[FromItem], str], texts: str) -> str:
    (ours,) = select.sources
    partner = select.partner
    assert partner is not None
    a, b = _named(ours.label), _named(partner.source.label)
    theirs = f"{flow(partner.source)} AS {b}"
    inside = _meet(a, b) + ("" if partner.on is None else f" AND ({partner.on.sql})")
    where = "" if select.where is None else f" AND ({select.where.sql})"
    if partner.negated and partner.values is not None:
        one, other = partner.values
        kept = f"({one.sql}) NOT IN (SELECT {other.sql} FROM {theirs} WHERE {inside})"
    elif partner.negated:
        kept = f"NOT EXISTS (SELECT 1 FROM {theirs} WHERE {inside})"
    else:
        if partner.values is not None:
            one, other = partner.values
            inside += f" AND ({one.sql}) = ({other.sql})"
        first = f"(SELECT min(greatest({a}.ts, {b}.ts)) FROM {theirs} WHERE {inside})"
        return (
            f"SELECT {first} AS ts, {texts} FROM {flow(ours)} AS {a}"
            f" WHERE {first} IS NOT NULL{where}"
        )
    return f"SELECT {_end(ours)} AS ts, {texts} FROM {flow(ours)} AS {a} WHERE {kept}{where}"
