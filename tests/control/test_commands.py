"""Messages between manager and processors: JSON there and back, limits, the seed's requests."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.control.moves.table import Phase
from millstream.control.protocol import commands as c
from millstream.control.protocol import envelope as protocol
from millstream.control.protocol import records
from millstream.control.protocol import replies as r
from millstream.core import codec
from millstream.core.errors import UsageError

PEER = records.Peer("p2", "http://127.0.0.1:7002", 3)
EXAMPLES: tuple[c.Command, ...] = (
    c.Declare({"name": "a", "path": "/data/a.csv", "columns": {"x": "int"}}, ingest=True),
    c.StartStream("a"),
    c.Forget("a"),
    c.Compile("SELECT x FROM a"),
    c.Hold("q", ("s:a",)),
    c.Release("q", ("s:a",)),
    c.Host("q", "SELECT x FROM a", -1, ("o:1", "o:2"), result=True),
    c.Unhost("q", ("o:1",)),
    c.Expect("o:1", "p2"),
    c.Unexpect("o:1", "p2"),
    c.Connect("o:1", PEER),
    c.TakeFrom("o:1", PEER),
    c.Disconnect("o:1"),
    c.Prepare("m1", (c.Host("q", "t", 0, ("o:1",)),), {"s:a": PEER}, PEER),
    c.Progress("m1"),
    c.Seal("m1", ("o:1",), PEER),
    c.TakeOver("m1"),
    c.Undo("m1"),
    c.Complete("m1"),
    c.Acquaint((PEER,)),
    c.Configure(schedule={"algorithm": "chain"}, properties={"site": "Worcester"}),
    c.Report(7, 20.0),
    c.TakeInventory(),
    c.Reset(),
    c.Stop(),
    c.KeepReplicas(3, 1, (PEER,), (c.Home(PEER, 4, "fence"),)),
)
REPLIES: tuple[tuple[c.Command, r.Reply], ...] = (
    (c.StartStream("a"), r.Done()),
    (
        c.Compile("t"),
        r.Compiled(
            (r.CompiledOperator("o:1", "map", "x > 1", ("s:a",), 12, {"window_s": 2.5}),),
            "o:1", (("x", "int"),), False, ("s:a",),
        ),
    ),
    (c.Hold("q", ("s:a",)), r.Held({"s:a": r.StreamMark(5, 1, 9)})),
    (c.Expect("o:1", "p2"), r.Expected(4, 1)),
    (c.Progress("m"), r.Progressed(Phase.READY, 12, True)),
    (c.Seal("m", ("o:1",), PEER), r.Sealed({"o:1": r.SealedStream(7, 2, {"s:a": 4})})),
    (c.Report(), r.Reported(3, {"o:1": {"rows_in": 5}}, {}, {}, {"load": 0.5})),
    (
        c.TakeInventory(),
        r.Inventory(
            {"a": True}, ("a",), {"q": r.HostedQuery("t", 3, ("o:1",), True)}, {"o:1": 2},
            {"q": ("s:a",)}, {"s:a": ("p2",)}, {"o:9": PEER},
            {"m": r.MoveRecord("old", Phase.SEALED, ("o:1",), "p2")},
        ),
    ),
    (c.KeepReplicas(), r.Replicas(3, ("p2",), True, {"p4": r.KeptHome(2, 1, 77, "fenced")})),
    (c.Stop(), r.Refusal("stale", "an older manager", "epoch 1 < 2", "none")),
)  # fmt: skip


def decoded(data: Any) -> protocol.Envelope:
    return codec.from_json(protocol.Envelope, data)


def answered(command: c.Command, reply: r.Reply) -> r.Reply:
    envelope = protocol.Envelope(1, 1, "p", (command,))
    (found,) = protocol.read_replies(envelope, json.loads(protocol.written([reply])))
    return found


def test_every_command_has_an_example() -> None:
    assert {type(e) for e in EXAMPLES} == set(get_args(c.Command))


def test_messages_survive_the_wire() -> None:
    for number, example in enumerate(EXAMPLES, 1):
        envelope = protocol.Envelope(2, number, "p1", (example, example))
        assert decoded(json.loads(codec.to_bytes(envelope))) == envelope


@pytest.mark.parametrize(("command", "reply"), REPLIES, ids=lambda r: type(r).__name__)
def test_replies_survive_the_wire(command: c.Command, reply: r.Reply) -> None:
    assert answered(command, reply) == reply


def test_a_joining_processor_survives_the_wire() -> None:
    join = c.Join("p1", "http://127.0.0.1:1", 4, {"cpu": 2, "site": "here", "anything": None})
    assert codec.from_json(c.Join, json.loads(json.dumps(codec.to_json(join)))) == join


def test_the_seeds_requests_are_recognisable() -> None:
    text = c.__doc__ or ""
    for request in (
        "Activate", "DeActivate", "SendData", "ReceiveData", "StopSend", "StopReceive",
        "SendStatistics", "Shutdown", "Restart", "STARTSTREAM",
    ):  # fmt: skip
        assert request in text


def test_only_questions_and_who_follows_travel_without_a_number() -> None:
    protocol.Envelope(1, 0, "p", (c.Compile("t"), c.Progress("m"), c.Report(), c.TakeInventory()))
    for example in EXAMPLES:
        if not isinstance(example, c.UNNUMBERED):
            with pytest.raises(UsageError):
                protocol.Envelope(1, 0, "p", (example,))


MALFORMED: tuple[Any, ...] = (
    None,
    [],
    {"epoch": 1, "number": 1, "to": "p"},
    {"epoch": 1, "number": 1, "to": "p", "messages": [{"do": "explode"}]},
    {"epoch": 1, "number": 1, "to": "p", "messages": [{"do": "host", "query": "q"}]},
    {"epoch": -1, "number": 1, "to": "p", "messages": []},
    {"epoch": 1, "number": 1, "to": "", "messages": []},
    {"epoch": 1, "number": 1, "to": "p", "messages": [{"do": "stop"}] * 1001},
    {"epoch": 1, "number": 1, "to": "p", "messages": [{"do": "forget", "stream": "x" * 999}]},
    {"epoch": 1, "number": 0, "to": "p", "messages": [{"do": "stop"}]},
)  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_malformed_or_too_large_is_the_senders_mistake(data: Any) -> None:
    with pytest.raises(UsageError):
        decoded(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_no_message_brings_a_traceback(data: Any) -> None:
    with pytest.raises(UsageError):
        decoded({"epoch": 1, "number": 1, "to": "p", "messages": [data]})


def test_an_inventory_may_be_large() -> None:
    """A processor that owns thousands of operators, or once did, is still understood."""
    many = {f"o:{number}": 1 for number in range(6_000)}
    handed = dict.fromkeys(many, PEER)
    told = r.Inventory({}, (), {}, many, {}, {}, {}, {}, handed)
    assert answered(c.TakeInventory(), told) == told
