"""Types in one spelling."""

import pytest

from millstream.core.errors import UsageError
from millstream.language.cql.types import canonical


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LONG", "bigint"),
        ("Integer", "int"),
        ("short", "smallint"),
        ("byte", "tinyint"),
        ("real", "float"),
        ("bool", "boolean"),
        ("decimal", "decimal(10,0)"),
        ("NUMERIC(4)", "decimal(4,0)"),
        ("decimal( 10 , 2 )", "decimal(10,2)"),
        ("varchar(20)", "string"),
        ("timestamp_ltz", "timestamp"),
        ("array<long>", "array<bigint>"),
        ("map<string, array<int>>", "map<string,array<int>>"),
        ("struct<a: long, B: struct<c:int>>", "struct<a:bigint,B:struct<c:int>>"),
        ("struct<a int, `b c` string>", "struct<a:int,`b c`:string>"),
        ("struct<`größe`: double>", "struct<`größe`:double>"),
        ("interval day to second", "interval day to second"),
    ],
)
def test_one_spelling(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "intt", "array", "array<>", "array<int", "array<int,int>", "map<int>", "decimal(x)"),
        *("struct<a>", "int int", "int)", "decimal(1", "int; drop", "struct<a:int,>"),
        f"decimal({'9' * 5000},0)",
    ],
)
def test_unknown_types_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical(text)
    assert caught.value.message.startswith("unknown type")
    assert caught.value.hint


def test_a_type_without_end_is_refused() -> None:
    for text in ("array<" * 5000 + "int" + ">" * 5000, "struct<a:" * 5000):
        with pytest.raises(UsageError, match="at most 50 deep"):
            canonical(text)
    assert canonical("array<" * 49 + "int" + ">" * 49)


def test_the_hint_knows_near_names() -> None:
    with pytest.raises(UsageError, match="did you mean timestamp") as caught:
        canonical("timestmp")
    assert caught.value.hint == "did you mean timestamp?"
