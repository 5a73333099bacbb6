"""The way a join is computed, from the planner's choice to the processor, and back to a manager
that has lost its memory."""

from dataclasses import replace

from millstream.control.manager import plans
from millstream.control.manager.connections import blueprint, increments
from millstream.control.manager.state import (
    Live,
    ManagerState,
    Processor,
    Query,
    Settings,
    StreamRecord,
)
from millstream.control.manager.turn import Turn
from millstream.control.protocol.commands import Compile, Host
from millstream.control.protocol.replies import (
    Compiled,
    CompiledOperator,
    HostedQuery,
    Inventory,
)
from millstream.control.recovery import learning
from millstream.language.plan.windows import BEGINNING

CQL = "SELECT ... FROM a, b, c"
WHOLE = CompiledOperator("o:abc", "join", "abc", ("s:a", "s:b", "s:c"))
PART = CompiledOperator("o:ab", "join", "ab", ("s:a", "s:b"))
BY_PART = replace(WHOLE, inputs=("o:ab", "s:c"))
MEANING = Compiled(
    (WHOLE,), "o:abc", (("n", "int"),), False, ("s:a", "s:b", "s:c"), ways=(PART, BY_PART)
)
NOTHING = Inventory(dict.fromkeys("abc", True), tuple("abc"), {}, {}, {}, {}, {}, {})
WAYS = {"o:abc": ("o:ab", "s:c")}


def state(*queries: Query) -> ManagerState:
    return ManagerState(
        settings=Settings(placer="sqpr"),
        processors={"p1": Processor("p1", "http://p1", 1)},
        live={"p1": Live(state="up", actual=NOTHING)},
        streams={n: StreamRecord(n, {"rate": 1_000}, "p1") for n in "abc"},
        queries={q.name: q for q in queries},
    )


def test_the_way_that_was_chosen_is_what_is_hosted() -> None:
    asked = Query("q", CQL, phase="compiling", compiled=MEANING, sources=MEANING.sources)
    turn = Turn(state(asked), 1.0)
    plans._bound(turn, turn.query("q", start=BEGINNING), MEANING)
    assert turn.state.queries["q"].operators == ("o:abc",)
    plans.advance(turn)
    placed = turn.state.queries["q"]
    assert placed.phase == "deploying"
    assert placed.operators == ("o:ab", "o:abc")
    assert placed.readable == ("o:ab",)
    assert turn.state.operators["o:abc"].inputs == ("o:ab", "s:c")
    commands = increments(turn.state, blueprint(turn.state), "p1")
    (host,) = [c for c in commands if isinstance(c, Host)]
    assert set(host.operators) == {"o:ab", "o:abc"}
    assert host.ways == {"o:ab": ("s:a", "s:b"), **WAYS}
    assert host.result


def test_a_manager_without_memory_learns_the_way_from_who_runs_it() -> None:
    turn = Turn(state(), 1.0)
    other = HostedQuery(CQL, 7, ("o:ab",))
    learning._learn_queries(turn, replace(NOTHING, queries={"q": other}))
    plans.compiled(turn, Compile(CQL), MEANING)
    assert turn.state.queries["q"].operators == ("o:abc",), "nobody has told otherwise yet"
    told = HostedQuery(CQL, 7, ("o:abc",), True, ways=WAYS)
    learning._learn_queries(turn, replace(NOTHING, queries={"q": told}))
    assert turn.state.queries["q"].phase == "compiling", "what it has is asked again"
    plans.compiled(turn, Compile(CQL), MEANING)
    found = turn.state.queries["q"]
    assert (found.phase, found.operators) == ("deploying", ("o:ab", "o:abc"))
    record = turn.state.operators["o:abc"]
    assert (record.inputs, record.another_way) == (("o:ab", "s:c"), True)


def test_a_part_that_is_on_its_way_out_is_not_read() -> None:
    asked = Query("q", CQL, phase="placing", compiled=MEANING, sources=MEANING.sources)
    turn = Turn(state(asked), 1.0)
    plans._bound(turn, turn.query("q", start=BEGINNING), MEANING)
    gone = plans.record_of(PART)
    turn.put(replace(gone, processor="p1"))  # placed, and no query uses it
    plans.advance(turn)
    assert turn.state.queries["q"].operators == ("o:abc",)
