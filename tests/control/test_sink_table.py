"""The table of a sink: what it needs, and that no secret stands in the open."""

from pathlib import Path
from typing import Any

import pytest

from millstream.control.definitions.sink_table import ALLOWED, NEEDED, read_sink, sink_of
from millstream.core.errors import UsageError
from millstream.store.sinks.opening import SINKS

RIGHT = {"type": "postgres", "dsn": "postgresql://me@host/db", "table": "t", "key": ["a", "b"]}


def test_a_right_one() -> None:
    found = sink_of(RIGHT)
    assert (found.kind, found.key) == ("postgres", ("a", "b"))
    assert found.options == {"dsn": "postgresql://me@host/db", "table": "t"}


def test_every_kind_can_be_opened() -> None:
    assert set(SINKS.names()) == set(NEEDED) == set(ALLOWED)


@pytest.mark.parametrize(
    ("change", "path", "told"),
    [
        ({"type": None}, (), "a sink has no type"),
        ({"type": "postgre"}, ("type",), "unknown type of sink 'postgre'; did you mean postgres?"),
        ({"type": 7}, ("type",), "unknown type of sink 7"),
        ({"table": None}, (), "the sink has no table"),
        ({"table": ""}, ("table",), "table is a text"),
        ({"dsn": 5}, ("dsn",), "dsn is a text"),
        ({"key": "a"}, ("key",), "key is a list of columns"),
        ({"key": ["a", "a"]}, ("key",), "a column is twice in key"),
        ({"keys": ["a"]}, ("keys",), "unknown key keys; did you mean key?"),
        ({"password": "hunter2"}, ("password",), "a password is written in plain text"),
        ({"dsn": "postgresql://me:hunter2@h/db"}, ("dsn",), "a password is written in plain text"),
        ({"dsn": "host=h password=hunter2"}, ("dsn",), "a password is written in plain text"),
    ],
)
def test_mistakes(change: dict[str, Any], path: tuple[str, ...], told: str) -> None:
    table = {k: v for k, v in (RIGHT | change).items() if v is not None}
    definition, (mistake,) = read_sink(table, Path())
    assert definition is None
    assert (mistake.path, mistake.message) == (path, told)
    assert "hunter2" not in mistake.hint
    with pytest.raises(UsageError):
        sink_of(table)


def test_secrets_by_reference_are_right() -> None:
    assert read_sink({**RIGHT, "dsn": "env:DSN", "password": "file:/run/secret"}, Path())[1] == []


def test_paths_are_relative_to_the_job(tmp_path: Path) -> None:
    found, _ = read_sink({"type": "delta", "path": "t"}, tmp_path)
    assert found is not None
    assert found.options["path"] == str(tmp_path / "t")
    found, _ = read_sink({"type": "delta", "path": "s3://b/t"}, tmp_path)
    assert found is not None
    assert found.options["path"] == "s3://b/t"


KAFKA = {
    "type": "kafka",
    "topic": "t",
    "options": {"bootstrap.servers": "b:9092", "enable.idempotence": True, "linger.ms": 5},
}


def test_options_of_a_client_go_to_its_library() -> None:
    assert sink_of(KAFKA).options == {
        "topic": "t", "bootstrap.servers": "b:9092", "enable.idempotence": "true", "linger.ms": "5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "path", "told"),
    [
        (None, (), "the sink has no options"),
        ("b:9092", ("options",), "options is a table"),
        ({}, ("options",), "the sink has no bootstrap.servers"),
        ({"bootstrap.servers": ["b"]}, ("options", "bootstrap.servers"),
         "option bootstrap.servers is a text, a number or true or false"),
        ({"bootstrap.servers": "b", "sasl.password": "hunter2"}, ("options", "sasl.password"),
         "a secret is written in plain text"),
    ],
)  # fmt: skip
def test_mistakes_in_options(options: Any, path: tuple[str, ...], told: str) -> None:
    table = {k: v for k, v in (KAFKA | {"options": options}).items() if v is not None}
    definition, (mistake,) = read_sink(table, Path())
    assert definition is None
    assert (mistake.path, mistake.message) == (path, told)
    assert "hunter2" not in mistake.hint
