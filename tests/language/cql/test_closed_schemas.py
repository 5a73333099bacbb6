"""A type that a call is given as JSON may carry defaults, which Spark computes: any expression."""

import json

import pytest

from language.cql.binding import Binding
from language.cql.test_endless_texts import Numbers
from millstream.core.errors import CqlError

FIELD = {"name": "a", "type": "string", "metadata": {"EXISTS_DEFAULT": "current_user()"}}
HIDDEN = json.dumps({"type": "struct", "fields": [{**FIELD, "nullable": True}]})
CALLS = (
    "from_json(k, {})",
    "from_csv(k, {})",
    "from_xml(k, {})",
    "variant_get(parse_json(k), '$', {})",
    "try_variant_get(parse_json(k), '$', {})",
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "schema",
    [f"'{HIDDEN}'", f"'\n {HIDDEN}'", f"concat('{HIDDEN}', '')", f"'\\u007b{HIDDEN[1:]}'",
     "'\"string\"'", "k", f"upper('{HIDDEN}')"],
)  # fmt: skip
def test_a_type_as_json_is_refused(call: str, schema: str) -> None:
    for text in ("SELECT {} AS x FROM r", "SELECT v FROM r WHERE {} = 1"):
        with pytest.raises(CqlError, match="takes no such type"):
            Binding(Numbers()).plan(text.format(call.format(schema)))


@pytest.mark.parametrize(
    "schema", ["'a INT'", "'`a b` INT'", "'_a INT'", "' a STRUCT<b: INT>'", "'ARRAY<INT>'"]
)
def test_a_type_as_sql_has_it_is_taken(schema: str) -> None:
    for call in CALLS:
        assert Binding(Numbers()).plan(f"SELECT {call.format(schema)} AS x FROM r").columns
    found = "SELECT from_json(k, schema_of_json('[1]')) AS x FROM r"
    assert Binding(Numbers()).plan(found).columns
