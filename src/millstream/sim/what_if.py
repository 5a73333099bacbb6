"""'What if I add a host, double this stream, lose that link': one question, one changed scenario.

A question is a short text, several joined by '+': `add-host`, `add-host=3`, `stream:s0=2`,
`queries=1.5`, `cut:h1-h2`, `slow-link:h1-h2=10`, `crash:h3`, `crash:h3@20`, `slow:h3=2`,
`bandwidth=2`, `policy:static`. Turns it into a scenario and a number of hosts to add; runs nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

from millstream.errors import UsageError
from millstream.sim.scenario import FaultPart, PolicyPart, Scenario

FORMS = (
    "add-host[=N], stream:NAME=FACTOR, queries=FACTOR, cut:HOST-HOST, slow-link:HOST-HOST=FACTOR, "
    "crash:HOST[@SECOND], slow:HOST=FACTOR, bandwidth=FACTOR, policy:NAME"
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario as asked, and what no scenario field says."""

    scenario: Scenario
    hosts_more: int = 0
    stream_factors: tuple[tuple[str, float], ...] = ()


def ask(variant: Variant, question: str) -> Variant:
    """The variant with a question's changes.

    >>> base = Variant(Scenario(name="s"))
    >>> ask(base, "add-host=2 + stream:s0=2").stream_factors
    (('s0', 2.0),)
    """
    for part in question.split("+"):
        variant = _one(variant, part.strip())
    return variant


def _one(variant: Variant, part: str) -> Variant:
    head, _, value = part.partition("=")
    kind, _, target = head.partition(":")
    scenario = variant.scenario
    match kind:
        case "add-host":
            return replace(
                variant, hosts_more=variant.hosts_more + int(_number(value or "1", part))
            )
        case "stream" if target:
            factor = (target, _number(value, part))
            return replace(variant, stream_factors=(*variant.stream_factors, factor))
        case "queries":
            return _with(variant, workload=_more_queries(scenario, _number(value, part)))
        case "bandwidth":
            wider = scenario.network.bandwidth_mbps * _number(value, part)
            network = scenario.network.model_copy(update={"bandwidth_mbps": wider})
            return _with(variant, network=network)
        case "policy" if target:
            return _with(variant, policy=PolicyPart(name=target))
        case "cut" | "slow-link" | "crash" | "slow" if target:
            fault = _fault(kind, target, value, part)
            return _with(variant, faults=[*scenario.faults, fault])
    raise UsageError(f"cannot read the question {part!r}", hint=f"one of {FORMS}")


def _with(variant: Variant, **changed: Any) -> Variant:
    return replace(variant, scenario=variant.scenario.model_copy(update=changed))


def _more_queries(scenario: Scenario, factor: float) -> Any:
    if scenario.queries:
        raise UsageError("listed queries cannot be multiplied", hint="use [workload] to count them")
    part = scenario.workload
    return part.model_copy(
        update={
            "queries": round(part.queries * factor),
            "operators": round(part.operators * factor),
        }
    )


def _fault(kind: str, target: str, value: str, part: str) -> FaultPart:
    place, _, second = target.partition("@")
    at_s = _number(second, part) if second else 0.0
    if kind in ("cut", "slow-link"):
        ends = place.split("-")
        if kind == "cut":
            return FaultPart(kind="cut_link", at_s=at_s, hosts=ends)
        return FaultPart(kind="slow_link", at_s=at_s, hosts=ends, factor=_number(value, part))
    if kind == "crash":
        return FaultPart(kind="crash", at_s=at_s, hosts=[place])
    return FaultPart(kind="slow_host", at_s=at_s, hosts=[place], factor=_number(value, part))


def _number(text: str, part: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number <= 0:
        raise UsageError(f"the question {part!r} needs a number above zero", hint=f"one of {FORMS}")
    return number
