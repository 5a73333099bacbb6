"""Which figures of operators processors are asked for: those that somebody reads.

Planning and the pages have theirs; a cost model names what it needs, and only that is sent (D-CAPE,
section 6.1). What takes time to work out, such as the rows that an operator's windows still reach,
is asked for where the cost model, a bound on the state of what may move, or the re-placement by
distance reads it.
"""

from math import inf

from millstream.control.manager.state import ManagerState
from millstream.control.protocol.commands import Command, Configure
from millstream.decide.balance.cost_models import COST_MODELS

# planning and admission; the pages of operators; how long moves have kept operators waiting
PLANNING = ("rows_in", "rows_out", "seconds", "steps", "fixed_s", "row_s")
PAGES = ("queue_rows", "queue_bytes", "waiting_since")
MOVES = ("pause_s", "handover_s", "first_step_s")
# from what a manager works out what a cost model names
MADE_OF = {
    "rows_in_per_s": "rows_in", "rows_out_per_s": "rows_out", "cpu_s_per_s": "seconds",
    "late_rows": "queue_rows",
}  # fmt: skip


def wanted(state: ManagerState) -> tuple[str, ...]:
    """The figures of operators that somebody reads."""
    settings = state.settings
    named = [MADE_OF.get(s, s) for s in COST_MODELS.get(settings.cost_model).statistics]
    bounds = settings.parameters
    if bounds.state_rows_min > 0 or bounds.state_rows_max < inf:
        named.append("state_rows")
    if settings.replace_s > 0:
        named.append("state_bytes")
    return tuple(sorted({*PLANNING, *PAGES, *MOVES, *named}))


def commands_for(state: ManagerState, processor: str) -> tuple[Command, ...]:
    """What has still to be said to a processor."""
    live, names = state.live[processor], wanted(state)
    return () if live.measured == names else (Configure(statistics=names),)
