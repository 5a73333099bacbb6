"""The placer of a cluster without a manager: fragments at their delegation nodes (seed 002, 3.1).

Cuts a query by the rates that are measured or expected, and puts each fragment where the rows of
its stream enter; only communication counts here, balancing moves fragments later. Operators that
run already stay where they are, and what is new of their fragment joins them there. Every answer
has passed the checker of the distribution limit.
"""

from collections.abc import Mapping

from millstream.control.admission.estimates import estimates
from millstream.control.admission.rules import PLACERS, Placed, Refused, Verdict, Wait, answers
from millstream.control.manager.state import NOBODY, ManagerState, OperatorRecord, Query
from millstream.core.errors import UsageError
from millstream.decide.balance.model.compiled_fragments import (
    OperatorFragment,
    compiled_fragments,
    distribution_limit,
    limit_problems,
)
from millstream.language.cql.system_streams import PREFIX

FRAGMENTS = "fragments"


@PLACERS.member(FRAGMENTS)
def by_fragments(
    state: ManagerState, query: Query, operators: Mapping[str, OperatorRecord]
) -> Verdict:
    """Each fragment at the delegation node of its stream."""
    own = [s for s in query.sources if s.removeprefix("s:").startswith(PREFIX)]
    if own:
        return Refused(
            "no_manager", "", f"rows of {own[0].removeprefix('s:')} come from a manager",
            "start one with millstream manager --join URL",
        )  # fmt: skip
    rates = {name: known.bytes_out for name, known in estimates(state, operators).items()}
    try:
        cut = compiled_fragments(query.name, list(operators.values()), rates)
    except UsageError as error:
        return Wait(str(error))
    table: dict[str, str] = {}
    for fragment in cut:
        place = _place_of(state, fragment, operators)
        if not answers(state, place):
            stream = fragment.stream.removeprefix("s:")
            return Wait(
                f"rows of {stream} enter at {place or 'no processor'}, which does not answer"
            )
        table |= {name: operators[name].processor or place for name in fragment.operators}
    reused = tuple(name for name, record in operators.items() if record.processor != NOBODY)
    wrong = limit_problems(query.name, operators.values(), table, reused.__contains__)
    if wrong:
        return Wait("; ".join(wrong))
    return Placed(table, _sentence(cut, table, operators, len(reused)), reused)


def _place_of(
    state: ManagerState, fragment: OperatorFragment, operators: Mapping[str, OperatorRecord]
) -> str:
    """Where its last running operator is; else its delegation node."""
    running = [operators[name].processor for name in fragment.operators]
    stream = state.streams.get(fragment.stream.removeprefix("s:"))
    native = stream.processor if stream is not None else NOBODY
    return next((place for place in reversed(running) if place != NOBODY), native)


def _sentence(
    cut: tuple[OperatorFragment, ...],
    table: Mapping[str, str],
    operators: Mapping[str, OperatorRecord],
    shared: int,
) -> str:
    places = ", ".join(sorted(set(table.values())))
    many = f"{len(cut)} fragments" if len(cut) != 1 else "1 fragment"
    limit = distribution_limit(operators.values())
    told = f"{many} on {places}, at most {limit} processors"
    return f"{told}; {shared} operators run already" if shared else told
