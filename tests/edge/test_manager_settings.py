"""What may be changed while a manager runs, and how a mistake is told."""

from typing import Any

import pytest

from millstream.control.manager.state import Settings
from millstream.core.errors import UsageError
from millstream.edge.manager.settings import AMOUNTS, STRATEGIES, SWITCHES, changed, read_weights


def test_strategies_switches_and_amounts_change_and_nothing_else_does() -> None:
    known = Settings()
    asked = {
        "policy": "degradation", "placer": "sqpr", "redistribute": not known.redistribute,
        "replace_gain": 1, "percent_difference": 25, "moves_max": 2,
    }  # fmt: skip
    new = changed(known, asked)
    assert (new.policy, new.placer) == ("degradation", "sqpr")
    assert new.redistribute is not known.redistribute
    assert (new.replace_gain, new.parameters.percent_difference) == (1.0, 25.0)
    assert new.parameters.moves_max == 2
    assert new.parameters.check_s == known.parameters.check_s
    assert (new.pattern, new.cost_model) == (known.pattern, known.cost_model)
    assert changed(new, {}) == new


@pytest.mark.parametrize("key", [*AMOUNTS])
@pytest.mark.parametrize("value", ["5", None, True, [1], -1e7, 1e9, float("nan"), float("inf")])
def test_an_amount_that_is_none_is_told(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{key} is ") as caught:
        changed(Settings(), {key: value})
    assert "number from" in caught.value.hint


def test_moves_come_in_whole_numbers() -> None:
    with pytest.raises(UsageError) as caught:
        changed(Settings(), {"moves_max": 1.5})
    assert caught.value.hint == "a whole number from 1 to 1000"


@pytest.mark.parametrize("key", SWITCHES)
def test_a_switch_is_on_or_off(key: str) -> None:
    with pytest.raises(UsageError, match=f"^{key} is 'yes'") as caught:
        changed(Settings(), {key: "yes"})
    assert caught.value.hint == "true or false"


@pytest.mark.parametrize("key", [*STRATEGIES])
def test_an_unknown_strategy_is_told(key: str) -> None:
    with pytest.raises(UsageError, match="nosuch"):
        changed(Settings(), {key: "nosuch"})


def test_an_unknown_setting_is_told_with_all_that_there_are() -> None:
    with pytest.raises(UsageError, match="unknown setting 'polcy'") as caught:
        changed(Settings(), {"polcy": "degradation"})
    assert all(name in caught.value.hint for name in (*STRATEGIES, *SWITCHES, *AMOUNTS))


def test_weights_are_read_from_a_command_line() -> None:
    assert read_weights("") == {}
    assert read_weights("balance=-1") == {"weight_balance": -1.0}
    for wrong in ("networ=2", "network", "network=much", "network=nan", "cpu=-1"):
        with pytest.raises(UsageError) as caught:
            read_weights(wrong)
        assert caught.value.hint
