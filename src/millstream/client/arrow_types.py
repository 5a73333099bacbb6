"""Arrow types of columns by their Spark names, without Spark: for results that have no rows."""

import pyarrow as pa

from millstream.store.delivery import Result

PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow_type(name: str) -> pa.DataType:
    """The type that rows of a column have in files.

    >>> arrow_type("array<struct<a:int,b:decimal(10,2)>>")
    ListType(list<element: struct<a: int32, b: decimal128(10, 2)>>)
    """
    text = name.strip()
    kind, _, rest = text.partition("<")
    inner = rest.removesuffix(">")
    match kind.lower():
        case "array":
            return pa.list_(pa.field("element", arrow_type(inner)))
        case "map":
            key, value = _parts(inner)
            return pa.map_(arrow_type(key), arrow_type(value))
        case "struct":
            fields = (part.partition(":") for part in _parts(inner) if part.strip())
            return pa.struct([pa.field(n.strip(" `"), arrow_type(t)) for n, _, t in fields])
    if text.lower().startswith("decimal"):
        digits = text.partition("(")[2].rstrip(") ").split(",") if "(" in text else ["10", "0"]
        return pa.decimal128(int(digits[0]), int(digits[1]) if len(digits) > 1 else 0)
    return PLAIN.get(text.lower(), pa.string())


def empty_table(result: Result) -> pa.Table:
    """Stored rows of a result, without a row."""
    fields = [pa.field(f"c{i}", arrow_type(f.type)) for i, f in enumerate(result.columns)]
    hidden = [pa.field("_ts", pa.int64()), pa.field("_op", pa.int8())]
    return pa.schema([*hidden, *fields]).empty_table()


def _parts(text: str) -> list[str]:
    """Splits at commas that stand in no brackets."""
    found, depth, begun = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            found.append(text[begun:at])
            begun = at + 1
    return [*found, text[begun:]]
