"""The columns of a separated file: types that go together, and what can be told of the others."""

import re
from collections.abc import Sequence

from millstream.control.discovery.column_types import ColumnType, all_thousands, column_type
from millstream.control.discovery.time_column import Seen, name_sql

QUOTE = "'"
SIGNS = f"%$€£{QUOTE}"  # that stand in numbers
NO_SIGNS = {ord(sign): None for sign in SIGNS}
BETWEEN_THOUSANDS = re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d{3}(?!\d))")


def columns_of(names: Sequence[str], body: Sequence[Sequence[str]]) -> list[Seen]:
    cells = [[r[i] if i < len(r) else "" for r in body] for i in range(len(names))]
    return [Seen(n, column_type(v), v) for n, v in zip(names, cells, strict=True)]


def more_types(some: Sequence[Seen], others: Sequence[Seen]) -> bool:
    """Whether more columns are something else than texts."""

    def typed(seen: Sequence[Seen]) -> int:
        return sum(s.type.type != "string" or s.type.times is not None for s in seen)

    return typed(some) > typed(others)


def numbers_with_signs(seen: Sequence[Seen]) -> list[str]:
    """Columns that stay texts although numbers can be made of them.

    >>> numbers_with_signs([Seen("v", ColumnType("string"), ["1 234,50 €", "7,00 €"])])[0][:59]
    "v is text: CAST(replace(regexp_replace(v, '[^0-9,-]', ''), "
    >>> numbers_with_signs([Seen("phone", ColumnType("string"), ["49 30 123", "49 30 124"])])
    []
    """
    notes = []
    for column in seen:
        present = [v.strip() for v in column.values if v.strip()]
        plain = column.type.type == "string" and not column.type.times and bool(present)
        signs = {sign for v in present for sign in SIGNS if sign in v} if plain else set()
        bare = [BETWEEN_THOUSANDS.sub("", v).translate(NO_SIGNS).strip() for v in present]
        type_ = column_type(bare) if plain and bare != present else ColumnType("string")
        name = name_sql(column.name)
        if type_.comma:
            number = f"replace(regexp_replace({name}, '[^0-9,-]', ''), ',', '.')"
        elif type_.type not in ("bigint", "double"):
            continue
        elif len(signs) == 1 and not any(BETWEEN_THOUSANDS.search(v) for v in present):
            (sign,) = signs
            number = f"replace({name}, '{sign.replace(QUOTE, QUOTE * 2)}', '')"
        else:
            number = f"regexp_replace({name}, '[^0-9.-]', '')"
        notes.append(f"{column.name} is text: CAST({number} AS DOUBLE) makes numbers of it")
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
