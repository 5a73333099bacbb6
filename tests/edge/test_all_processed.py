"""When a processor has processed all that came: watching the system itself never ends, and does not
count; everything else does, on the way to other processors too."""

from types import SimpleNamespace
from typing import Any

from millstream.edge.processor.all_processed import about_the_system, settled
from millstream.language.plan.nodes import Source
from millstream.language.plan.schema import Field
from millstream.store.consumers import Cursor, remote, subscriber

COLUMNS = (Field("ts", "timestamp"), Field("n", "int"))


def query(stream: str, *operators: str) -> Any:
    return SimpleNamespace(plan=SimpleNamespace(root=Source(stream, COLUMNS)), operators=operators)


class Given:
    """A processor with an operator over a stream, and one over rows about steps."""

    def __init__(self) -> None:
        self.pending: dict[str, int] = {}  # by operator
        self.consumers: dict[str, dict[str, tuple[int, int]]] = {}
        inputs = {"o:1": ("s:a",), "o:2": ("s:sys.steps",), "o:3": ("o:2",)}
        self.engine: Any = SimpleNamespace(
            ingests={},
            operators={o: SimpleNamespace(id=o, inputs=i) for o, i in inputs.items()},
            queries={"mine": query("a", "o:1"), "watch": query("sys.steps", "o:2", "o:3")},
            paused_operators=set(),
            pending=lambda o: {"x": self.pending.get(o.id, 0)},
        )
        self.receiver = SimpleNamespace(behind={})


def processor() -> Any:
    given: Any = Given()
    heads = [{"id": s, "next": 5} for s in ("s:a", "s:sys.steps", "o:1", "o:2")]
    given.engine.ledger = SimpleNamespace(
        streams=lambda: heads, consumers=lambda stream: given.consumers.get(stream, {})
    )
    return given


def test_rows_that_wait_count_unless_they_tell_of_the_system() -> None:
    given = processor()
    assert about_the_system(given.engine) == {"o:2", "o:3"}
    assert settled(given)
    given.pending = {"o:2": 9, "o:3": 9}
    assert settled(given)
    given.pending["o:1"] = 1
    assert not settled(given)
    given.engine.paused_operators.add("o:1")
    assert settled(given)


def test_rows_on_their_way_count_unless_they_tell_of_the_system() -> None:
    given = processor()
    given.receiver.behind = {"s:sys.steps": 3, "o:2": 1}
    assert settled(given)
    given.receiver.behind["s:a"] = 1
    assert not settled(given)
    given.receiver.behind = {}
    given.consumers |= {"o:2": {remote("p2"): Cursor(4, 0)}}
    given.consumers |= {"s:sys.steps": {remote("p2"): Cursor(4, 0)}}
    assert settled(given)
    given.consumers["o:1"] = {remote("p2"): Cursor(5, 0), subscriber("mine"): Cursor(1, 0)}
    assert settled(given)
    given.consumers["o:1"][remote("p3")] = Cursor(4, 0)
    assert not settled(given)


def test_an_operator_that_others_share_counts() -> None:
    given = processor()
    given.engine.queries["both"] = query("a", "o:1", "o:3")
    given.pending = {"o:3": 1}
    assert not settled(given)
