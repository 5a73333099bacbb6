"""A client of a real manager names a source: the processor where it enters says whether it may."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.client.manager_client import ManagerClient
from millstream.control.definitions.source_rules import SourceRules
from millstream.core.errors import UsageError
from millstream.edge.http.roles import Role, role_token
from millstream.edge.http.serving import Server
from millstream.edge.manager.app import ManagerServer
from millstream.edge.manager.settings import ManagerSettings
from millstream.edge.processor.app import ProcessorServer, ProcessorSettings
from plain_plane import PlainPlane

SECRET = "a secret of the test"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ManagerServer]:
    """A manager whose state machine runs, with one processor that only answers."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n1\n")
    found = ManagerServer(tmp_path / "m", ManagerSettings(port=0, token=SECRET))
    rules = SourceRules((tmp_path / "data",))
    settings = ProcessorSettings(token=SECRET, rules=rules)
    processor = ProcessorServer("p1", tmp_path / "p1", PlainPlane(), settings)
    answering = Server(processor.app())
    answering.start()
    served = Server(found.app)
    served.start()
    found.url = served.url
    with ManagerClient(served.url) as client:  # the keyring knows the token
        join = {"id": "p1", "url": answering.url, "epoch": 1, "properties": {}}
        client.ask("POST", f"{served.url}/processors", join)
    yield found
    served.stop()
    answering.stop()
    processor.stop()
    found.close()


def table(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "columns": {"a": "long"}, "time": "timestamp_seconds(a)", **more}


def test_a_client_names_what_the_processor_allows(manager: ManagerServer, tmp_path: Path) -> None:
    inside, outside = str(tmp_path / "data" / "a.csv"), str(tmp_path / "b.csv")
    clean = {"cleanSource": "delete"}
    with ManagerClient(manager.url, token=role_token(SECRET, Role.SUBMIT)) as client:
        client.declare(table("good", path=inside))
        with pytest.raises(UsageError, match="in no folder that clients may read") as error:
            client.declare(table("bad", path=outside))
        assert str(tmp_path / "data") in error.value.detail
        assert "--allow-folder" in error.value.hint
        with pytest.raises(UsageError, match="option cleanSource is not open"):
            client.declare(table("bad", source="spark", format="csv", options=clean))
        with pytest.raises(UsageError, match="bad"):  # asked before anybody remembers it
            client.declare({**table("bad", path=inside), "columns": {"a": "no type of Spark's"}})
        assert set(client.streams()) == {"good"}
    with ManagerClient(manager.url, token=SECRET) as owner:
        owner.declare(table("mine", path=outside))  # who owns the cluster names what it likes
        assert set(owner.streams()) == {"good", "mine"}


def test_nobody_is_told_a_password(manager: ManagerServer, tmp_path: Path) -> None:
    options = {"Password": "hunter2", "kafka.sasl.jaas.config": "env:JAAS", "header": True}
    named = table("s", path=str(tmp_path / "b.csv"), options=options)
    with ManagerClient(manager.url, token=SECRET) as owner:
        owner.declare(named)
        owner.declare(named)  # the same as before
        told = owner.streams()["s"]["table"]["options"]
        assert told == {**options, "Password": "(hidden)"}
        for path in ("/streams", "/status", "/decisions", "/queries", "/placement"):
            assert "hunter2" not in owner.ask("GET", owner.url + path).text, path
