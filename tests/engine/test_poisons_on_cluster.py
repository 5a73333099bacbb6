"""Poisons that a client sends beside good queries of a cluster: each is refused, failed or parked
by name, costs its processor at most two restarts, and the others' rows equal DuckDB's."""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from poison_life import BASE, BATCH, DEEP, STEP_US, good_oracle, good_text, rows_of

from millstream.client.http import told_error
from millstream.client.keyring import user_token
from millstream.client.manager_client import ManagerClient
from millstream.client.pushing import posted
from millstream.core.errors import MillstreamError
from millstream.edge.http.roles import Role, role_token
from millstream.edge.peers.local_cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.soak]
GOOD = 6
PATIENCE_S = 150.0
RESTARTS_MAX = 2
EVIL = "regexp_replace(repeat('a', 60), '(.*a){20}b', '')"
POISONS = {
    "cross": "SELECT a.v FROM ev [UNBOUNDED] a, ev [UNBOUNDED] b",
    "nesting": f"SELECT {'(' * DEEP}v{')' * DEEP} AS n FROM ev",
    "chain": f"SELECT v{' + 1' * DEEP} AS n FROM ev",
    "cast": "SELECT CAST(concat('x', CAST(k AS STRING)) AS INT) AS n FROM ev",
    "folded": "SELECT v, length(repeat('x', 2000000000)) AS n FROM ev",
    "schema": "SELECT schema_of_json(repeat('[', 2000000000)) AS n FROM ev",
    "format": "SELECT format_string('%1999999999d', v) AS n FROM ev",
    "sequence": "SELECT size(sequence(1, v * 100000000)) AS n FROM ev",
    "analysed": f"SELECT schema_of_json({EVIL}) AS x FROM ev",
    "planned": f"SELECT v, {EVIL} AS x FROM ev",
    "regex": "SELECT concat(repeat('a', 60), CAST(v AS STRING)) RLIKE '(.*a){20}b' AS q FROM ev",
}
HARMLESS = ("nesting", "chain", "format")


class Ward:
    """A cluster of one processor that is fed all the time."""

    def __init__(self, folder: Path) -> None:
        options = ("--step-seconds", "10")
        self.cluster = LocalCluster(
            folder, 1, spark="local[2]", heap="900m", processor_options=options
        )
        self.batch, self._stop = 0, threading.Event()
        self.troubles: list[str] = []
        self._feeder = threading.Thread(target=self._feed)

    def start(self) -> None:
        self.cluster.start()
        columns = {"k": "int", "v": "int", "at": "timestamp"}
        table = {"name": "ev", "columns": columns, "time": "at", "source": "push"}
        self.client = ManagerClient(self.cluster.url, token=role_token(user_token(), Role.SUBMIT))
        self.client.declare(table, start=True)
        for number in range(GOOD):
            told = self.client.submit(f"good{number}", good_text(number), from_beginning=True)
            assert told["state"] == "running", told
        self._feeder.start()

    def stop(self) -> None:
        self._stop.set()
        if self._feeder.is_alive():
            self._feeder.join()
        self.cluster.stop()

    def _feed(self) -> None:
        while not self._stop.is_set():
            rows = [{**r, "at": r["at"].isoformat()} for r in rows_of(self.batch)]
            try:
                posted(self.client, "ev", rows, "feeder", self.batch + 1)
                self.batch += 1
            except MillstreamError as error:
                self.troubles.append(str(error))
            self._stop.wait(0.5)

    @property
    def restarts(self) -> int:
        return self.cluster.processors[0].starts - 1

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.cluster.watch()
            time.sleep(0.2)

    def poisoned(self, name: str) -> dict[str, Any]:
        began, restarts, query = time.monotonic(), self.restarts, f"bad_{name}"
        state, reason = "", ""
        told: list[str] = []

        def submit() -> None:
            try:
                answer = self.client.submit(query, POISONS[name], wait_s=PATIENCE_S)
                told.extend([str(answer)] * (answer["state"] == "refused"))
            except MillstreamError as error:
                told.append(str(error))

        asking = threading.Thread(target=submit)
        asking.start()
        while not state and time.monotonic() < began + PATIENCE_S:
            self.wait(0.5)
            if told:
                state, reason = "refused", told[0]
            known = {q["name"]: q for q in self._queries()}.get(query, {})
            if known.get("state") in ("failed", "parked", "refused"):
                state, reason = known["state"], known.get("reason", "")
            elif name in HARMLESS and time.monotonic() > began + 15:
                state = "fine"
        seconds = time.monotonic() - began
        asking.join(60)
        self.wait(3.0)
        for _ in range(60):
            try:
                self.client.drop(query, wait_s=5)
            except MillstreamError as error:
                if "there is no query" in str(error):
                    break
                self.wait(1.0)
            else:
                break
        return {"poison": name, "state": state, "reason": reason[:150], "seconds": round(seconds),
                "restarts": self.restarts - restarts}  # fmt: skip

    def _queries(self) -> list[dict[str, Any]]:
        try:
            return self.client.queries()
        except MillstreamError:
            return []

    def finish(self) -> None:
        """All rows are in, and the stream is at its end."""
        self._stop.set()
        self._feeder.join()
        url = self.client.entrance("ev")["url"]
        answer = self.client.send("POST", f"{url}/streams/ev/end", {})
        assert answer.status_code == 200, told_error(answer)

    def rows(self, query: str) -> Iterator[dict[str, Any]]:
        url, after = self.cluster.processors[0].url, 0
        while True:
            told = self.client.ask(
                "GET", f"{url}/queries/{query}/rows", params={"after": after, "wait": 10}, wait_s=10
            ).json()
            yield from told["rows"]
            after = told["next"]
            if told["ended"]:
                return


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    found = Ward(tmp_path / "cluster")
    try:
        found.start()
        yield found
    finally:
        found.stop()


def test_poisons_beside_good_queries_of_a_cluster(ward: Ward) -> None:
    found = []
    for name in os.environ.get("MILLSTREAM_POISONS", ",".join(POISONS)).split(","):
        found.append(ward.poisoned(name))
        print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    ward.wait(5)
    ward.finish()
    db = duckdb.connect()
    db.execute(
        f"CREATE TABLE ev AS SELECT (i % 7)::INT AS k, (i * 37 % 101)::INT AS v, "
        f"{BASE} + i * {STEP_US} AS us FROM range({ward.batch * BATCH}) t(i)"
    )
    for number in range(GOOD):
        columns = [d[0] for d in db.execute(good_oracle(number)).description]
        wanted = Counter(db.fetchall())
        rows = Counter(tuple(row[c] for c in columns) for row in ward.rows(f"good{number}"))
        assert rows == wanted, number
    for outcome in found:
        assert outcome["state"] in ("refused", "failed", "parked", "fine"), outcome
        assert outcome["restarts"] <= RESTARTS_MAX, outcome
        assert outcome["reason"] or outcome["state"] == "fine", outcome
