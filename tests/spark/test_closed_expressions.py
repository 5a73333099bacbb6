"""What an expression of a client might reach besides its rows: this process's secrets, files,
addresses, and Java's time, all by Spark itself."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from millstream.app.session.session import Session
from millstream.core.errors import MillstreamError, UsageError
from millstream.language.cql.analyzer import UnansweredError

pytestmark = pytest.mark.spark
AT = datetime(2024, 1, 1, tzinfo=UTC)
SECRET = "a secret of the test"
EVIL = "regexp_replace(repeat('a', 60), '(.*a){20}b', '')"  # constants that run away


@contextmanager
def session_over(spark: Any, folder: Path, rows: list[str]) -> Iterator[Session]:
    with Session(folder, spark=spark) as session:
        session.stream("s", columns={"v": "string", "at": "timestamp"}, time="at")
        session.push("s", [{"v": v, "at": AT} for v in rows])
        yield session


def answers(session: Session, name: str, cql: str) -> list[Any]:
    query = session.query(cql, name=name, from_beginning=True)
    session.finish("s")
    return query.to_arrow().drop_columns(["ts"]).to_pylist()


@pytest.mark.parametrize("kind", ["env:PATH", "system:user.dir", "spark.app.name"])
def test_a_text_is_never_a_variable(spark: Any, tmp_path: Path, kind: str) -> None:
    text = f"${{{kind}}}"
    cql = (
        f"SELECT '{text}' AS a, concat('{text}', v) AS b, v = '{text}' AS c, "
        f"named_struct('{text}', 1) AS d FROM s WHERE v LIKE '%{text}'"
    )
    with session_over(spark, tmp_path, [text, "x"]) as session:
        assert answers(session, "q", cql) == [{"a": text, "b": text * 2, "c": True, "d": {text: 1}}]


def test_a_name_and_a_time_are_never_variables(spark: Any, tmp_path: Path) -> None:
    name = "${env:PATH}"
    with Session(tmp_path, spark=spark) as session:
        time = f"IF(`{name}` = '{name}', at, NULL)"
        session.stream("s", columns={name: "string", "at": "timestamp"}, time=time)
        session.push("s", [{name: name, "at": AT}])
        assert answers(session, "q", f"SELECT `{name}` AS a FROM s") == [{"a": name}]


class Listener:
    """Notes who connects."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.came = 0
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while True:
            try:
                self.socket.accept()[0].close()
            except OSError:
                return
            self.came += 1

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/x"


def test_xml_names_no_files_and_no_addresses(spark: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    listener = Listener()
    texts = [
        f'<!DOCTYPE a [<!ENTITY x SYSTEM "{target}">]><a>&x;</a>'
        for target in (f"file://{secret}", listener.url)
    ]
    texts += [f'<!DOCTYPE a SYSTEM "{listener.url}"><a>y</a>']
    texts += [f'<!DOCTYPE a [<!ENTITY % p SYSTEM "{listener.url}"> %p;]><a>y</a>']
    reads = {
        "xpath": "xpath_string(v, '/a')",
        "xml": "from_xml(v, 'a STRING, _VALUE STRING')",
    }
    for name, expression in reads.items():
        for number, text in enumerate(texts):
            before = listener.came
            with session_over(spark, tmp_path / f"{name}{number}", [text]) as session:
                try:
                    found = answers(session, "q", f"SELECT {expression} AS x FROM s")
                except MillstreamError as error:
                    found = [str(error)]
                assert SECRET not in str(found), (name, text)
                assert listener.came == before, (name, text, found)
                print(name, text, found)
    listener.socket.close()


@pytest.mark.parametrize(
    "expression",
    ["from_xml(v, 'a STRING', map('rowValidationXSDPath', '/etc/passwd'))",
     "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
     "from_avro(CAST(v AS BINARY), '\"string\"', map('avroSchemaUrl', 'file:///etc/passwd'))",
     "from_json(v, 'a INT', map_from_arrays(array('mode'), array('FAILFAST')))",
     "from_csv(v, 'a INT', map(concat('mo', 'de'), 'FAILFAST'))",
     "to_json(named_struct('a', v), map('Pretty', 'true', 'path', '/tmp'))"],
)  # fmt: skip
def test_options_of_functions_are_those_that_say_how_a_text_is_read(
    spark: Any, tmp_path: Path, expression: str
) -> None:
    with session_over(spark, tmp_path, []) as session:
        for cql in (f"SELECT {expression} AS x FROM s", f"SELECT v FROM s WHERE {expression} = v"):
            with pytest.raises(UsageError, match="has no option"):
                session.query(cql, name="q")
        with pytest.raises(UsageError, match="has no option"):
            session.stream("t", columns={"v": "string"}, time=f"to_timestamp({expression})")


def test_options_that_say_how_a_text_is_read(spark: Any, tmp_path: Path) -> None:
    cql = (
        "SELECT from_json(v, 'a INT', map('allowSingleQuotes', 'true', 'mode', 'PERMISSIVE')).a "
        "AS a, to_json(named_struct('b', 1), map('ignoreNullFields', 'false')) AS b, "
        "from_csv('1;2', 'x INT, y INT', map('sep', ';')).y AS c FROM s"
    )
    with session_over(spark, tmp_path, ["{'a': 3}"]) as session:
        assert answers(session, "q", cql) == [{"a": 3, "b": '{"b":1}', "c": 2}]


# Each in a process of its own: it costs Java its life.
ASKING = """
import json, sys
from millstream.app.session.session import Session
from millstream.spark import deadlines
deadlines.QUESTION_S, deadlines.GRACE_S, deadlines.LOOK_S = 10.0, 2.0, 0.2
with Session(sys.argv[1], "local[1]") as session:
    try:
        session.stream("s", columns={"v": "string", "at": "timestamp"}, time=sys.argv[2])
        session.query(sys.argv[3], name="q")
        print(json.dumps("taken"))
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]), flush=True)
        os._exit(0)
"""


def asked(folder: Path, time: str, cql: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", ASKING, str(folder), time, cql], check=False, timeout=240,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("time", "cql"),
    [("at", f"SELECT schema_of_json({EVIL}) AS x FROM s"),
     ("at", f"SELECT substring_index(v, '.', length({EVIL})) AS x FROM s"),
     (f"to_timestamp(v, {EVIL})", "SELECT v FROM s")],
)  # fmt: skip
def test_constants_that_run_away_cost_one_process_and_are_refused_by_the_next(
    tmp_path: Path, time: str, cql: str
) -> None:
    kind, told = asked(tmp_path, time, cql)
    assert kind == UnansweredError.__name__, told
    kind, told = asked(tmp_path, time, cql)
    assert kind == UsageError.__name__, told
    assert "is not read again" in told
    assert asked(tmp_path, "at", "SELECT v FROM s") == "taken"


# The same for rows: a stream's time that runs away over what a client posts.
POSTING = """
import json, os, sys
from millstream.app.session.session import Session
from millstream.spark import deadlines
deadlines.GRACE_S, deadlines.LOOK_S = 2.0, 0.2
with Session(sys.argv[1], "local[2]", settings={"step_seconds_max": 5.0}) as session:
    time = "IF(concat(repeat('a', 60), v) RLIKE '(.*a){20}b', NULL, at)"
    columns = {"v": "string", "at": "timestamp"}
    session.stream("s", columns=columns, time=time)
    session.stream("good", columns=columns, time="coalesce(at, at)")
    row = [{"v": "x", "at": "2024-01-01T00:00:00Z"}]
    told = []
    if len(sys.argv) > 2:
        told.append(session.push("good", row).rows)
    try:
        session.push("s", row)
    except Exception as error:
        told.append([type(error).__name__, str(error)])
    print(json.dumps(told), flush=True)
    os._exit(0)
"""


@pytest.mark.soak
def test_a_time_that_runs_away_costs_one_process_and_stops_its_stream(tmp_path: Path) -> None:
    def posted(*more: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", POSTING, str(tmp_path), *more], check=False, timeout=240,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.stdout, done.stderr[-2000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    ((kind, told),) = posted()
    assert kind == UsageError.__name__, told
    assert "take too long to read" in told
    rows, (kind, told) = posted("again")
    assert rows == 1
    assert kind == UsageError.__name__, told
    assert "is not read" in told
