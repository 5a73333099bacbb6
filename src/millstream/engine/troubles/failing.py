"""Steps that fail by a cause which is not their rows': tried again, and given up by name.

A step alone pauses after each failure. If it fails again and again while others succeed, it is the
cause, and its queries fail by name. If no step succeeds, the machine is the cause, and the loop
ends. If there is no other step, an empty job shows whether the machine works.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf

RESTS_S = (0.5, 2.0)  # after the first failures; the next one decides
Verdict = OneOf["rest", "fail", "end"]


@dataclass(slots=True)
class _Failures:
    count: int
    steps: int  # that others had done at the first of them
    until: float


class Failing:
    """Of one loop: which operators have failed, how often, and until when they rest."""

    def __init__(self) -> None:
        self._known: dict[str, _Failures] = {}

    def failed(self, operator: str, steps: int, works: Callable[[], bool]) -> Verdict:
        """What becomes of an operator whose step has failed alone, after so many good steps.

        `works` tries the machine out.
        """
        now = time.monotonic()
        known = self._known.setdefault(operator, _Failures(0, steps, now))
        known.count += 1
        if known.count <= len(RESTS_S):
            known.until = now + RESTS_S[known.count - 1]
            return "rest"
        del self._known[operator]
        return "fail" if steps > known.steps or (not self._known and works()) else "end"

    def succeeded(self, operator: str) -> None:
        self._known.pop(operator, None)

    def resting(self) -> set[str]:
        now = time.monotonic()
        return {o for o, known in self._known.items() if now < known.until}

    def count(self, operator: str) -> int:
        known = self._known.get(operator)
        return 0 if known is None else known.count

    @property
    def waits(self) -> bool:
        """Whether somebody is yet to be tried again."""
        return bool(self._known)

    def forget_all_but(self, operators: "set[str]") -> None:
        """Operators that are gone need not be tried again."""
        for gone in self._known.keys() - operators:
            del self._known[gone]
