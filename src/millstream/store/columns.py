"""Columns of a stream as the ledger keeps them: the JSON text of a schema, as Spark writes it."""

import json
from collections.abc import Mapping


def columns_text(types: Mapping[str, str]) -> str:
    """The text of columns of plain types.

    >>> columns_text({"_ts": "long"})
    '{"fields":[{"metadata":{},"name":"_ts","nullable":true,"type":"long"}],"type":"struct"}'
    """
    fields = [
        {"metadata": {}, "name": name, "nullable": True, "type": kind}
        for name, kind in types.items()
    ]
    table = {"fields": fields, "type": "struct"}
    return json.dumps(table, separators=(",", ":"), sort_keys=True)


def column_names(text: str) -> list[str]:
    """The names in such a text.

    >>> column_names(columns_text({"_ts": "long", "c0": "string"}))
    ['_ts', 'c0']
    """
    return [field["name"] for field in json.loads(text)["fields"]]
