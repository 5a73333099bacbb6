"""Checkers must be able to fail: each sees the wrong it is there for."""

from dataclasses import replace

import numpy as np
import pytest
from small_clusters import setting

from millstream.sim.cluster.checkers import CHECKERS, View, all_checkers
from millstream.sim.cluster.cluster import Cluster
from millstream.sim.cluster.moves import MoveRecord


class Grab:
    """A checker that keeps what it sees."""

    def __init__(self) -> None:
        self.views: list[View] = []

    def look(self, view: View) -> list[object]:
        copies = {
            name: getattr(view, name).copy()
            for name in ("waiting", "under_way", "sent", "results", "stream_rows", "unit_host")
        }
        served = view.served_total_s.copy()
        self.views.append(replace(view, served_total_s=served, moves=list(view.moves), **copies))
        return []


@pytest.fixture(scope="module")
def views() -> list[View]:
    grab = Grab()
    Cluster(setting(duration_s=3.0), [], [grab], 1).run()  # type: ignore[list-item]
    return grab.views


def names(checker: str, *seen: View) -> set[str]:
    judge = CHECKERS.get(checker)()
    return {problem.checker for view in seen for problem in judge.look(view)}


def test_all_are_content_with_a_good_run(views: list[View]) -> None:
    for checker in all_checkers():
        assert [p for view in views for p in checker.look(view)] == []


def test_a_lost_row_is_seen(views: list[View]) -> None:
    view = views[-1]
    assert names("rows_kept", replace(view, waiting=view.waiting * 0)) == {"rows_kept"}
    assert names("rows_kept", replace(view, results=view.results * 1.001)) == {"rows_kept"}
    negative = view.waiting.copy()
    negative[0] -= 1
    assert names("rows_kept", replace(view, waiting=negative)) == {"rows_kept"}


def move(view: View, source: str, target: str, outcome: str = "done") -> MoveRecord:
    unit = view.flow.units[0].id
    return MoveRecord(1, unit, source, target, 1.0, 1.1, 0.0, outcome, "")


def test_a_unit_that_is_not_where_the_log_says_is_seen(views: list[View]) -> None:
    first, later = views[0], views[1]
    home = first.flow.hosts[first.unit_host[0]]
    other = next(host for host in first.flow.hosts if host != home)
    assert names("one_owner", first, replace(later, moves=[move(first, home, other)]))
    wrong_start = replace(later, moves=[move(first, other, home)])
    assert names("one_owner", first, wrong_start) == {"one_owner"}
    undone = replace(later, moves=[move(first, home, other, "undone: ...")])
    assert names("one_owner", first, undone) == set()


def test_too_much_work_and_work_while_down_are_seen(views: list[View]) -> None:
    a, b = views[0], views[1]
    fast = replace(b, served_total_s=a.served_total_s + 1)
    assert names("within_capacity", a, fast) == {"within_capacity"}
    down = np.zeros(len(a.host_up), dtype=bool)
    dead = (replace(a, host_up=down), replace(b, host_up=down))
    assert names("within_capacity", *dead) == {"within_capacity"}
    flood = replace(b, carried_bytes=a.carried_bytes + 1e9)
    assert names("within_capacity", a, flood) == {"within_capacity"}


def test_a_query_on_too_many_hosts_is_seen(views: list[View]) -> None:
    view = views[0]
    one_stream = int(np.flatnonzero(np.bincount(view.flow.path_query) == 1)[0])
    queries = view.flow.unit_query.copy()
    queries[np.flatnonzero(queries != one_stream)[:3]] = one_stream
    spread = np.arange(len(view.unit_host)) % len(view.flow.hosts)
    broken = replace(view, flow=replace(view.flow, unit_query=queries), unit_host=spread)
    assert names("distribution_limit", broken) == {"distribution_limit"}


def test_a_move_with_a_dead_end_is_seen(views: list[View]) -> None:
    view = views[0]
    up = view.host_up.copy()
    up[1] = False
    assert names("live_hosts_only", replace(view, host_up=up, moves=[move(view, "h0", "h1")]))
