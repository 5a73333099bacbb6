"""One envelope for all who talk: messages survive the way as JSON, and nonsense does not."""

import json
from math import isfinite
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.control.coordinators.zones import Tree, TreeOperator, TreeSource
from millstream.control.protocol.envelope import (
    OF_MANAGERS,
    OF_PROCESSORS,
    Envelope,
    Introduce,
    Message,
    PlaceTree,
    ReadShare,
    TakePart,
    Unreachable,
    read_replies,
    written,
)
from millstream.control.protocol.replies import Done, Refusal, TreePlaced, TreeShare
from millstream.core.codec import from_json, to_bytes, to_json
from millstream.core.errors import UsageError
from millstream.decide.balance import protocol as balancing

TREE = Tree("t", (TreeSource("s", "p1", 1.0),), (TreeOperator("o", ("s",), 0.5),), "o")
loads = st.floats()
speeds = st.floats(1e-6, 1e6)
numbers = st.integers(-(1 << 61), 1 << 61)
NEWS = st.one_of(
    st.builds(balancing.PartnerRequest, loads, speeds, st.booleans()),
    st.builds(balancing.PartnerAnswer, st.booleans(), loads, speeds),
    st.builds(balancing.PartnerEnd),
    st.builds(balancing.LoadReport, loads, numbers, speeds),
    st.builds(balancing.LoadRequest, loads, numbers),
    st.builds(balancing.Probe, numbers),
    st.builds(balancing.ProbeAnswer, loads, numbers),
)


def of_processor(*messages: Message) -> Envelope:
    return Envelope(7, 0, "p2", messages, "p1", "processor")


def back(envelope: Envelope) -> Envelope:
    return from_json(Envelope, json.loads(to_bytes(envelope)))


@given(NEWS)
def test_every_message_of_partners_comes_back_as_it_was(message: balancing.Message) -> None:
    amounts = [getattr(message, name, 0.0) for name in ("load", "amount")]
    if not all(map(isfinite, amounts)):  # a load is never that
        with pytest.raises(UsageError):
            back(of_processor(message))
        return
    assert back(of_processor(message)).messages == (message,)


def test_what_goes_with_messages_comes_back_as_it_was() -> None:
    envelope = of_processor(
        Introduce("http://p1", ("s:a",)), TakePart({"p1": "http://p1"}), Unreachable("p3"),
        ReadShare("t"),
    )  # fmt: skip
    assert back(envelope) == envelope
    asking = Envelope(3, 0, "p2", (PlaceTree(TREE, {"p1": "http://p1"}, levels=2),))
    assert back(asking) == asking


def test_every_message_has_a_word_of_its_own_and_somebody_who_says_it() -> None:
    kinds = get_args(Message)
    words = {kind: kind.__dataclass_fields__["do"].default for kind in kinds}
    assert len(set(words.values())) == len(kinds)
    assert set(kinds) == {*OF_MANAGERS, *OF_PROCESSORS}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "malformed"),
        ({"do": "hello"}, "malformed"),
        ({"do": "probe"}, "number"),
        ({"do": "probe", "number": "3"}, "integer"),
        ({"do": "probe", "number": 2.5}, "integer"),
        ({"do": "probe", "number": float("inf")}, "integer"),
        ({"do": "probe", "number": True}, "integer"),
        ({"do": "probe", "number": 1, "more": 2}, "more"),
        ({"do": "partner_answer", "accepted": 1, "load": 0.1}, "boolean"),
        ({"do": "load_report", "load": None, "number": 1}, "number"),
        ({"do": "partner_request", "load": 0.1, "cpu": 0}, "cpu"),
        ({"do": "stop"}, "a processor does not say stop"),
    ],
)
def test_nonsense_is_refused(data: object, message: str) -> None:
    body: dict[str, Any] = {**to_json(of_processor()), "messages": [data]}
    with pytest.raises(UsageError, match=message):
        from_json(Envelope, body)


def test_a_manager_does_not_speak_as_a_partner() -> None:
    with pytest.raises(UsageError, match="a manager does not say probe"):
        Envelope(1, 1, "p", (balancing.Probe(1),))


def test_there_is_one_reply_for_each_message_of_its_kind() -> None:
    envelope = of_processor(ReadShare("t"), balancing.Probe(1), ReadShare("u"))
    share = TreeShare(("o",), {"MAP": 2}, 1, 3, 4)
    replies = (share, Done(), Refusal("busy", "later"))
    assert read_replies(envelope, json.loads(written(replies))) == replies
    placed = TreePlaced({"o": "p1"}, 2.0, None, 1, {"MAP": 2}, 1, 0)
    asking = Envelope(1, 0, "p", (PlaceTree(TREE, {}),))
    assert read_replies(asking, json.loads(written([placed]))) == (placed,)
    for answer in ({}, {"replies": None}, json.loads(written(replies[:2])), [], None):
        with pytest.raises(UsageError, match="number of replies"):
            read_replies(envelope, answer)  # type: ignore[arg-type]
