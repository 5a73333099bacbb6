"""Admission with reuse in the manager: what is taken, where it goes, why something is refused."""

from dataclasses import replace
from typing import Any

import pytest

from millstream.control.admission.distances import distances_ms
from millstream.control.admission.estimates import CYCLE_S, estimates
from millstream.control.admission.planner import by_reuse
from millstream.control.admission.rules import Placed, Refused, Wait
from millstream.control.manager.state import (
    Figures,
    Live,
    ManagerState,
    OperatorRecord,
    Processor,
    Query,
    Statistics,
    StreamRecord,
)
from millstream.control.protocol.replies import Compiled, CompiledOperator


def processor(name: str, **properties: Any) -> Processor:
    return Processor(name, f"http://{name}", 1, properties)


def state_of(
    *processors: Processor,
    streams: dict[str, str],
    operators: tuple[OperatorRecord, ...] = (),
    queries: tuple[Query, ...] = (),
    statistics: Statistics | None = None,
) -> ManagerState:
    return ManagerState(
        processors={p.id: p for p in processors},
        live={p.id: Live(state="up") for p in processors},
        streams={n: StreamRecord(n, {"rate": 1_000}, place) for n, place in streams.items()},
        operators={o.id: o for o in operators},
        queries={q.name: q for q in queries},
        statistics=statistics or Statistics(),
    )


def operator(name: str, kind: str, *inputs: str, at: str = "") -> OperatorRecord:
    return OperatorRecord(f"o:{name}", kind, f"{kind} {name}", inputs, 100, {}, at)


def query(name: str, *operators: OperatorRecord, **more: Any) -> Query:
    return Query(
        name, "SELECT", operators=tuple(o.id for o in operators), result=operators[-1].id,
        sources=("a", "b"), **more,
    )  # fmt: skip


def ask(state: ManagerState, wanted: Query, *operators: OperatorRecord) -> Any:
    return by_reuse(state, wanted, {o.id: o for o in operators})


JOIN = operator("join", "join", "s:a", "s:b")


def test_a_query_goes_where_its_streams_are() -> None:
    state = state_of(processor("p1"), processor("p2"), streams={"a": "p2", "b": "p2"})
    verdict = ask(state, query("q", JOIN), JOIN)
    assert isinstance(verdict, Placed)
    assert verdict.table == {"o:join": "p2"}
    assert verdict.bandwidth == 0
    assert verdict.cpu == pytest.approx(0.02 + 2_000 * 2e-5)
    assert verdict.sentence.startswith("1 new operators on p2, 0 reused; about 0.060 CPU")


def test_what_runs_is_reused_and_stays() -> None:
    running = replace(JOIN, processor="p1")
    state = state_of(
        processor("p1"), processor("p2"), streams={"a": "p2", "b": "p2"}, operators=(running,)
    )
    top = operator("top", "map", "o:join")
    verdict = ask(state, query("q", running, top), running, top)
    assert isinstance(verdict, Placed)
    assert verdict.table == {"o:join": "p1", "o:top": "p1"}
    assert verdict.reused == ("o:join",)
    assert verdict.bandwidth == 0


def test_a_full_processor_sends_a_query_elsewhere() -> None:
    state = state_of(processor("p1", cpu=0.05), processor("p2"), streams={"a": "p1", "b": "p1"})
    verdict = ask(state, query("q", JOIN), JOIN)
    assert isinstance(verdict, Placed)
    assert verdict.table == {"o:join": "p2"}
    assert {(f["stream"], f["from"], f["to"]) for f in verdict.detail["crosses"]} == {
        ("s:a", "p1", "p2"), ("s:b", "p1", "p2"),
    }  # fmt: skip
    assert verdict.bandwidth == pytest.approx(2 * 1_000 * 64)


def test_a_refusal_names_the_resource_and_what_would_fit() -> None:
    state = state_of(processor("p1", cpu=0.05), streams={"a": "p1", "b": "p1"})
    verdict = ask(state, query("q", JOIN), JOIN)
    assert isinstance(verdict, Refused)
    assert (verdict.resource, verdict.host) == ("cpu", "p1")
    assert "0.06 needed, 0.045 free" in verdict.sentence
    assert "a smaller window" in verdict.fits
    assert "75%" in verdict.fits


def test_bandwidth_binds_too() -> None:
    state = state_of(
        processor("p1", cpu=0.05, bandwidth_out=100_000), processor("p2"),
        streams={"a": "p1", "b": "p1"},
    )  # fmt: skip
    verdict = ask(state, query("q", JOIN), JOIN)
    assert isinstance(verdict, Refused)
    assert verdict.resource in ("bandwidth_out", "cpu")


def test_measured_figures_win_and_what_was_promised_is_kept() -> None:
    running = replace(JOIN, processor="p1")
    figures = Figures(
        10.0, {"rows_in": 5_000, "rows_out": 100, "seconds": 3.0, "fixed_s": 0.25, "row_s": 1e-4},
        {"rows_in": 500.0, "rows_out": 10.0, "seconds": 0.9},
    )  # fmt: skip
    stream = Figures(10.0, {"rows": 1_000, "bytes": 20_000}, {"rows": 250.0})
    waiting = operator("map", "map", "s:a", at="p1")
    promised = query("old", waiting, admission={"estimates": {"o:map": [7, 70, 0.7]}})
    state = state_of(
        processor("p1"), streams={"a": "p1", "b": "p1"}, operators=(running, waiting),
        queries=(promised,),
        statistics=Statistics(operators={"o:join": figures}, streams={"s:a": stream}),
    )  # fmt: skip
    state = replace(state, streams={**state.streams, "a": StreamRecord("a", {}, "p1")})
    new = operator("new", "join", "s:a", "o:map")
    known = estimates(state, {"o:new": new})
    assert known["s:a"].bytes_out == 250 * 20
    # by its fixed and marginal cost at the streams' rates, not by how busy small batches kept it
    assert known["o:join"].cpu == pytest.approx(0.25 / CYCLE_S + 1_250 * 1e-4)
    assert known["o:join"].rows_out == pytest.approx(1_250 * 100 / 5_000)
    assert known["o:map"].cpu == 0.7
    assert known["o:new"].cpu == pytest.approx(0.25 / CYCLE_S + 257 * 1e-4)
    assert known["o:new"].rows_out == pytest.approx(257 * 100 / 5_000)
    full = replace(state, processors={"p1": processor("p1", cpu=1.0)})
    assert isinstance(ask(full, query("q", new), new), Refused)  # 0.9 - 0.7 - 0.175 are left
    roomy = replace(state, processors={"p1": processor("p1", cpu=1.2)})
    assert isinstance(ask(roomy, query("q", new), new), Placed)


def test_a_declared_rate_is_the_least_that_is_planned_for() -> None:
    """A source that an overloaded processor holds up looks slow, and must not make room."""
    slow = Statistics(streams={"s:a": Figures(10.0, {}, {"rows": 100.0})})
    fast = Statistics(streams={"s:a": Figures(10.0, {}, {"rows": 3_000.0})})
    state = state_of(processor("p1"), streams={"a": "p1"})
    assert estimates(replace(state, statistics=slow), {})["s:a"].rows_out == 1_000
    assert estimates(replace(state, statistics=fast), {})["s:a"].rows_out == 3_000
    burst = Statistics(streams={"s:a": Figures(10.0, {}, {"rows": 90_000.0}, {"rows": 2_000.0})})
    assert estimates(replace(state, statistics=burst), {})["s:a"].rows_out == 2_000


def test_files_without_a_rate_always_fit() -> None:
    state = state_of(processor("p1", cpu=0.0), streams={"a": "p1", "b": "p1"})
    assert isinstance(ask(state, query("q", JOIN), JOIN), Refused)
    files = {n: replace(s, table={"path": "x.csv"}) for n, s in state.streams.items()}
    verdict = ask(replace(state, streams=files), query("q", JOIN), JOIN)
    assert isinstance(verdict, Placed)
    assert "by pattern" in verdict.sentence
    late = query("q", JOIN, deliver_to="p1")  # a pattern knows no sites
    assert isinstance(ask(replace(state, streams=files), late, JOIN), Refused)


def test_a_stream_that_enters_nowhere_yet_is_waited_for() -> None:
    state = state_of(processor("p1"), streams={"a": "p1", "b": ""})
    assert ask(state, query("q", JOIN), JOIN) == Wait("stream b enters nowhere yet")


def test_rows_that_enter_cost_something_too() -> None:
    state = state_of(processor("p1", cpu=0.07), streams={"a": "p1", "b": "p1"})
    assert isinstance(ask(state, query("q", JOIN), JOIN), Placed)  # 0.06 of 0.063
    flowing = {n: replace(s, start_wanted=True) for n, s in state.streams.items()}
    assert isinstance(ask(replace(state, streams=flowing), query("q", JOIN), JOIN), Refused)


def measured(fixed_s: float, row_s: float) -> Figures:
    return Figures(9.0, {"rows_in": 9_000, "rows_out": 900, "fixed_s": fixed_s, "row_s": row_s})


def family(record: OperatorRecord, name: str) -> OperatorRecord:
    return replace(record, properties={"family": name})


def test_one_more_of_a_family_costs_a_share_and_a_new_job_all_of_the_fixed_part() -> None:
    """Four filters run in one job, and each was measured at its share of it."""
    four = [family(operator(f"m{i}", "map", "s:a", at="p1"), "map:x") for i in range(4)]
    state = state_of(
        processor("p1"), streams={"a": "p1"}, operators=tuple(four),
        statistics=Statistics(operators={o.id: measured(0.05, 1e-5) for o in four}),
    )  # fmt: skip
    more = family(operator("more", "map", "s:a"), "map:x")
    other = family(operator("other", "map", "s:a"), "map:y")
    alone = operator("alone", "distinct", "s:a")
    known = estimates(state, {o.id: o for o in (more, other, alone)})
    assert known["o:more"].cpu == pytest.approx(0.05 / CYCLE_S + 0.01)
    assert known["o:other"].cpu == pytest.approx(0.2 / CYCLE_S + 0.01)
    assert known["o:alone"].cpu == pytest.approx(0.1 / CYCLE_S + 0.02)  # by the catalog
    assert known["o:more"].rows_out == known["o:other"].rows_out == pytest.approx(100)


def test_counts_alone_are_split_by_the_usual_fixed_cost() -> None:
    """A processor that tells no cost lines, such as one of an older version."""
    counted = Figures(9.0, {"rows_in": 10_000, "rows_out": 1, "steps": 10, "seconds": 3.0})
    running = replace(JOIN, processor="p1")
    state = state_of(
        processor("p1"), streams={"a": "p1", "b": "p1"}, operators=(running,),
        statistics=Statistics(operators={"o:join": counted}),
    )  # fmt: skip
    assert estimates(state, {})["o:join"].cpu == pytest.approx(0.1 / CYCLE_S + 2_000 * 2e-4)


def test_results_are_wanted_somewhere_and_in_time() -> None:
    near = processor("near", site="north", **{"distance.far": 200, "distance.mid": 50})
    mid = processor("mid", **{"distance.far": 60})
    far = processor("far", site="south")
    state = state_of(near, mid, far, streams={"a": "near", "b": "near"})
    wanted = query("q", JOIN, deliver_to="south", latency_s=0.25)
    verdict = ask(state, wanted, JOIN)
    assert isinstance(verdict, Placed)
    assert verdict.detail["delay_ms"] <= 250
    late = ask(state, replace(wanted, latency_s=0.05), JOIN)
    assert isinstance(late, Refused)
    assert late.resource == "latency"
    nowhere = ask(state, replace(wanted, deliver_to="east"), JOIN)
    assert isinstance(nowhere, Wait)


def test_distances_from_what_is_given_and_measured() -> None:
    a = processor("a", **{"distance.b": 10})
    measured = Statistics(processors={"b": Figures(1.0, {"distance_ms.c": 5.0})})
    state = state_of(a, processor("b"), processor("c"), processor("d"), streams={},
                     statistics=measured)  # fmt: skip
    known = distances_ms(state, ["a", "b", "c", "d"])
    assert known is not None
    assert known[1, 0] == 10  # both directions
    assert known[0, 2] == 15  # over b
    assert known[0, 3] == 10  # nobody knows: as far as the farthest
    assert distances_ms(state_of(processor("x"), streams={}), ["x"]) is None


def compiled_query(*operators: OperatorRecord, ways: tuple[OperatorRecord, ...]) -> Query:
    def told(one: OperatorRecord) -> CompiledOperator:
        return CompiledOperator(one.id, one.kind, one.label, one.inputs, one.row_bytes)

    meaning = Compiled(
        tuple(map(told, operators)), operators[-1].id, (), False, (), ways=tuple(map(told, ways))
    )
    return query("q", *operators, compiled=meaning)


PART = operator("ab", "join", "s:a", "s:b")
WHOLE = operator("abc", "join", "s:a", "s:b", "s:c")
BY_PART = operator("abc", "join", "o:ab", "s:c")
PLACES = {"a": "p1", "b": "p1", "c": "p1"}


def test_a_join_is_computed_from_a_part_that_runs() -> None:
    running = replace(PART, processor="p1")
    other = Query("other", "SELECT", phase="running", operators=(running.id,), result=running.id)
    state = state_of(processor("p1"), streams=PLACES, operators=(running,), queries=(other,))
    wanted = compiled_query(WHOLE, ways=(PART, BY_PART))
    verdict = ask(state, wanted, WHOLE)
    assert isinstance(verdict, Placed)
    assert verdict.table == {"o:ab": "p1", "o:abc": "p1"}
    assert verdict.reused == ("o:ab",)
    (chosen,) = verdict.operators
    assert (chosen.inputs, chosen.another_way) == (("o:ab", "s:c"), True)
    assert verdict.detail["ways"] == {"o:abc": ["o:ab", "s:c"]}
    assert "joined by way of join ab" in verdict.sentence
    late = replace(wanted, avoided=("o:ab",))  # it began after the query
    verdict = ask(state, late, WHOLE)
    assert isinstance(verdict, Placed)
    assert set(verdict.table) == {"o:abc"}
    leaving = replace(state, queries={})  # nobody uses the part any more
    verdict = ask(leaving, wanted, WHOLE)
    assert isinstance(verdict, Placed)
    assert set(verdict.table) == {"o:abc"}


def test_two_joins_of_two_cost_less_than_one_of_three() -> None:
    state = state_of(processor("p1"), streams=PLACES)
    verdict = ask(state, compiled_query(WHOLE, ways=(PART, BY_PART)), WHOLE)
    assert isinstance(verdict, Placed)
    assert set(verdict.table) == {"o:ab", "o:abc"}
    assert verdict.cpu == pytest.approx(2 * 0.02 + (2_000 + 3_000) * 2e-5)
    alone = ask(state, query("q", WHOLE), WHOLE)
    assert isinstance(alone, Placed)
    assert alone.cpu == pytest.approx(3 * (0.02 + 3_000 * 2e-5))
