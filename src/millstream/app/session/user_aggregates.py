"""Aggregates in Python as functions of Spark: over rows, over partial states, and at the end.

A state travels between steps, so it is kept as JSON: plain values, lists and dictionaries. What
Spark calls is made here; `spark/operators/aggregates.py` makes parts of a plan of the calls.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.core.errors import UsageError

STATE_HINT = "None, True, numbers, texts, lists, and dictionaries with texts as keys"


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """`accumulate(state, value)` and `merge(state, other)` give a state, `finish` the result."""

    zero: Any
    accumulate: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None = None

    def checked(self, name: str) -> "UserAggregate":
        """Refuses a beginning that cannot be kept."""
        for part in ("accumulate", "merge", *(("finish",) if self.finish is not None else ())):
            if not callable(getattr(self, part)):
                raise UsageError(f"aggregate {name}: {part} is not a function")
        try:
            same = json.loads(json.dumps(self.zero)) == self.zero
        except (TypeError, ValueError):
            same = False
        if not same:
            raise UsageError(
                f"aggregate {name}: its zero {self.zero!r} cannot be kept as JSON",
                hint=f"a state is made of {STATE_HINT}",
            )
        return self

    def over_rows(self) -> Callable[[Sequence[Any] | None], str]:
        """All values of a group as one state."""
        zero, accumulate = json.dumps(self.zero), self.accumulate

        def rows(values: Sequence[Any] | None) -> str:
            state = json.loads(zero)
            for value in values or ():
                if isinstance(value, tuple):  # several arguments
                    state = accumulate(state, *value)
                else:
                    state = accumulate(state, value)
            return json.dumps(state)

        return rows

    def over_states(self) -> Callable[[Sequence[str | None] | None], str]:
        """Several states as one."""
        zero, merge = json.dumps(self.zero), self.merge

        def parts(states: Sequence[str | None] | None) -> str:
            found = [json.loads(s) for s in states or () if s is not None]
            state = found[0] if found else json.loads(zero)
            for other in found[1:]:
                state = merge(state, other)
            return json.dumps(state)

        return parts

    def at_the_end(self) -> Callable[[str | None], Any]:
        zero, finish = json.dumps(self.zero), self.finish

        def end(state: str | None) -> Any:
            value = json.loads(zero if state is None else state)
            return value if finish is None else finish(value)

        return end
