"""A declared stream as the table that a job file would have: JSON for a manager and processors."""

from typing import Any

from millstream.cql.catalog import StreamDefinition


def table_of(definition: StreamDefinition) -> dict[str, Any]:
    """The stream's table with its name; paths are absolute, so that it means the same elsewhere.

    >>> from millstream.plan.schema import Field
    >>> stream = StreamDefinition("a", (Field("x", "int"),), "x", 5, source={"source": "push"})
    >>> table_of(stream)["lateness"], table_of(stream)["columns"]
    ('5 us', {'x': 'int'})
    """
    source = dict(definition.source)
    table: dict[str, Any] = {
        "name": definition.name,
        "columns": {field.name: field.type for field in definition.columns},
        "time": definition.time,
        **source,
    }
    if source.get("source") == "spark":
        table["options"] = dict(source.get("options", {}))
    for key, length in (
        ("lateness", definition.lateness_us),
        ("idle", definition.idle_us),
        ("max_ahead", definition.max_ahead_us),
    ):
        if length:
            table[key] = f"{length} us"
    return table
