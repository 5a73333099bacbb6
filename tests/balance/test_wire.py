"""Messages survive the way as JSON, and nonsense does not."""

import json
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.balance.protocol import Message
from millstream.balance.wire import KINDS, from_json, to_json
from millstream.errors import UsageError


@given(st.sampled_from(sorted(KINDS)).flatmap(lambda name: st.builds(KINDS[name])))
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    numbers = [value for value in to_json(message).values() if isinstance(value, float)]
    if not all(isfinite(number) for number in numbers):  # a load is never that
        with pytest.raises(UsageError):
            from_json(to_json(message))
        return
    assert from_json(json.loads(json.dumps(to_json(message)))) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "not a balancing message"),
        ({"kind": "Hello"}, "not a balancing message"),
        ({"kind": "Probe"}, "lacks a field"),
        ({"kind": "Probe", "number": "3"}, "is no int"),
        ({"kind": "Probe", "number": 2.5}, "is no int"),
        ({"kind": "Probe", "number": float("inf")}, "is no int"),
        ({"kind": "Probe", "number": True}, "is no int"),
        ({"kind": "Probe", "number": 1, "more": 2}, "no field 'more'"),
        ({"kind": "PartnerAnswer", "accepted": 1, "load": 0.1}, "is no bool"),
        ({"kind": "LoadReport", "load": None, "number": 1}, "is no float"),
    ],
)
def test_nonsense_is_refused(data: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_json(data)
