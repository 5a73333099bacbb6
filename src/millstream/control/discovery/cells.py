"""The columns of a separated file: types that go together, and what can be told of the others."""

from collections.abc import Sequence

from millstream.control.discovery.column_types import ColumnType, all_thousands, column_type
from millstream.control.discovery.time_column import Seen, name_sql

SIGNS = "%$€£'"  # that stand in numbers


def columns_of(names: Sequence[str], body: Sequence[Sequence[str]]) -> list[Seen]:
    cells = [[r[i] if i < len(r) else "" for r in body] for i in range(len(names))]
    return [Seen(n, column_type(v), v) for n, v in zip(names, cells, strict=True)]


def more_types(some: Sequence[Seen], others: Sequence[Seen]) -> bool:
    """Whether more columns are something else than texts."""

    def typed(seen: Sequence[Seen]) -> int:
        return sum(s.type.type != "string" or s.type.times is not None for s in seen)

    return typed(some) > typed(others)


def numbers_with_signs(seen: Sequence[Seen]) -> list[str]:
    """Columns that stay texts although numbers can be made of them."""
    notes = []
    for column in seen:
        present = [v.strip() for v in column.values if v.strip()]
        plain = column.type.type == "string" and not column.type.times and bool(present)
        signs = {sign for v in present for sign in SIGNS if sign in v} if plain else set()
        bare = [v.translate({ord(sign): None for sign in SIGNS}) for v in present]
        type_ = column_type(bare).type if len(signs) == 1 else "string"
        if type_ not in ("bigint", "double"):
            continue
        (sign,) = signs
        text = "''" if sign == "'" else sign
        notes.append(
            f"{column.name} is text: CAST(replace({name_sql(column.name)}, '{text}', '') AS DOUBLE)"
            " makes numbers of it"
        )
    return notes


def thousands(seen: Sequence[Seen], separator: str) -> list[Seen]:
    """Between commas `"12,000"` is twelve thousand, unless another column has decimals so."""
    commas = [s for s in seen if s.type.comma]
    grouped = [s for s in commas if separator == "," and all_thousands(s.values)]
    if not grouped or len(grouped) < len(commas):
        return list(seen)
    plain = ColumnType("decimal(18,0)")
    return [Seen(s.name, plain, s.values) if s in grouped else s for s in seen]


def one_word_for_nothing(seen: Sequence[Seen]) -> list[Seen]:
    """Spark knows one text for no value: columns with another one stay texts."""
    words = [s.type.no_value for s in seen if s.type.no_value]
    chosen = max(set(words), key=words.count) if words else ""
    kept = []
    for s in seen:
        other = s.type.no_value not in ("", chosen)
        kept.append(Seen(s.name, ColumnType("string"), s.values) if other else s)
    return kept
