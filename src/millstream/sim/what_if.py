"""'What if I add a host, double this stream, lose that link': one question, one changed scenario.

A question is a short text, several joined by '+': `add-host`, `add-host=3`, `stream:s0=2`,
`queries=1.5`, `cut:h1-h2`, `slow-link:h1-h2=10`, `crash:h3`, `crash:h3@20`, `slow:h3=2`,
`bandwidth=2`, `policy:static`. Turns it into a scenario and a number of hosts to add; runs nothing.
A host's name may contain the signs of this notation: what is a known host is read as one.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from pydantic import ValidationError

from millstream.core.errors import UsageError
from millstream.sim.scenario import HOSTS_MAX, FaultPart, PolicyPart, Scenario, Strict

FORMS = (
    "add-host[=N], stream:NAME=FACTOR, queries=FACTOR, cut:HOST-HOST, slow-link:HOST-HOST=FACTOR, "
    "crash:HOST[@SECOND], slow:HOST=FACTOR, bandwidth=FACTOR, policy:NAME"
)
FAULTS = {"cut": "cut_link", "slow-link": "slow_link", "crash": "crash", "slow": "slow_host"}
LINKS = ("cut", "slow-link")
FACTOR_MAX = 1e6  # up or down; beyond it no figure means anything
# A '+' joins questions where another begins after it; elsewhere it is part of a name.
JOINT = re.compile(
    r"\+(?=\s*(?:add-host\s*(?:[=+]|$)|(?:queries|bandwidth)=|"
    r"(?:stream|cut|slow-link|crash|slow|policy):))"
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario as asked, and what no scenario field says."""

    scenario: Scenario
    hosts_more: int = 0
    stream_factors: tuple[tuple[str, float], ...] = ()


def host_names(variant: Variant) -> list[str]:
    """All hosts, the added ones last, each under the lowest free number."""
    scenario = variant.scenario
    names = [host.id for host in scenario.hosts]
    names = names or [f"h{n}" for n in range(scenario.cluster.hosts)]
    taken, number = set(names), 0
    for _ in range(variant.hosts_more):
        while f"h{number}" in taken:
            number += 1
        names.append(f"h{number}")
        number += 1
    return names


def ask(variant: Variant, question: str) -> Variant:
    """The variant with a question's changes.

    >>> base = Variant(Scenario(name="s"))
    >>> ask(base, "add-host=2 + stream:s0=2").stream_factors
    (('s0', 2.0),)
    """
    for part in JOINT.split(question):
        variant = _one(variant, part.strip())
    return variant


def _one(variant: Variant, part: str) -> Variant:
    kind = re.split("[:=]", part, maxsplit=1)[0]
    mark, rest = part[len(kind) : len(kind) + 1], part[len(kind) + 1 :]
    scenario = variant.scenario
    match kind, mark:
        case "add-host", "" | "=":
            more = variant.hosts_more + (_whole(rest, part) if mark else 1)
            return replace(variant, hosts_more=more)
        case "stream", ":" if rest:
            name, value = _valued(rest, part)
            return replace(variant, stream_factors=(*variant.stream_factors, (name, value)))
        case "queries", "=":
            return _with(variant, workload=_more_queries(scenario, _factor(rest, part), part))
        case "bandwidth", "=":
            wider = scenario.network.bandwidth_mbps * _factor(rest, part)
            return _with(variant, network=_changed(scenario.network, part, bandwidth_mbps=wider))
        case "policy", ":" if rest:
            return _with(variant, policy=PolicyPart(name=rest))
        case "cut" | "slow-link" | "crash" | "slow", ":" if rest:
            fault = _fault(kind, rest, part, set(host_names(variant)))
            return _with(variant, faults=[*scenario.faults, fault])
    raise _refusal(f"cannot read the question {part!r}")


def _with(variant: Variant, **changed: Any) -> Variant:
    return replace(variant, scenario=variant.scenario.model_copy(update=changed))


def _changed(record: Strict, part: str, **fields: Any) -> Any:
    """A copy with other fields, within the bounds of a scenario file."""
    try:
        return type(record).model_validate({**record.model_dump(), **fields})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(
            f"the question {part!r} goes too far",
            detail=f"{first['loc'][0]} would be {first['input']}: {first['msg'].lower()}",
        ) from error


def _more_queries(scenario: Scenario, factor: float, part: str) -> Any:
    if scenario.queries:
        raise UsageError("listed queries cannot be multiplied", hint="use [workload] to count them")
    now = scenario.workload
    return _changed(
        now,
        part,
        queries=max(1, round(now.queries * factor)),
        operators=max(1, round(now.operators * factor)),
    )


def _fault(kind: str, rest: str, part: str, hosts: Collection[str]) -> FaultPart:
    factor = 1.0
    if kind in ("slow", "slow-link"):
        rest, factor = _valued(rest, part)
    at_s, ends = 0.0, _ends(kind, rest, part, hosts)
    if ends is None and "@" in rest:
        place, _, second = rest.rpartition("@")
        rest, at_s = place, _second(second, part)
        ends = _ends(kind, rest, part, hosts)
    if ends is None and "=" in rest:
        raise _refusal(f"the question {part!r} takes no number")
    if ends is None:  # a host that is added later, or none: whoever runs it knows
        ends = rest.split("-") if kind in LINKS else [rest]
    return FaultPart(kind=FAULTS[kind], at_s=at_s, hosts=ends, factor=factor)


def _ends(kind: str, text: str, part: str, hosts: Collection[str]) -> list[str] | None:
    """The known host, or the two of a link 'A-B', where names may have dashes of their own."""
    if kind not in LINKS:
        return [text] if text in hosts else None
    dashes = [n for n, sign in enumerate(text) if sign == "-"]
    found = [
        [text[:n], text[n + 1 :]] for n in dashes if text[:n] in hosts and text[n + 1 :] in hosts
    ]
    if len(found) > 1:
        raise UsageError(
            f"the question {part!r} may mean several links",
            detail="; ".join(f"{a!r} and {b!r}" for a, b in found),
            hint="give the hosts other names, or write a [[faults]] part in the scenario",
        )
    return found[0] if found else None


def _valued(text: str, part: str) -> tuple[str, float]:
    """The name and the factor of 'NAME=FACTOR'."""
    name, _, value = text.rpartition("=")
    return name, _factor(value if name else "", part)


def _factor(text: str, part: str) -> float:
    number = _number(text)
    if number is None or number <= 0:
        raise _refusal(f"the question {part!r} needs a number above zero")
    if not 1 / FACTOR_MAX <= number <= FACTOR_MAX:
        within = f"from {1 / FACTOR_MAX:g} to {FACTOR_MAX:g}"
        raise _refusal(f"the question {part!r} needs a number {within}")
    return number


def _whole(text: str, part: str) -> int:
    number = _number(text)
    if number is None or not 1 <= number <= HOSTS_MAX or number != int(number):
        raise _refusal(f"the question {part!r} needs a whole number from 1 to {HOSTS_MAX}")
    return int(number)


def _second(text: str, part: str) -> float:
    number = _number(text)
    if number is None or not 0 <= number <= 1e9:
        raise _refusal(f"the question {part!r} needs a second of the run after '@'")
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _refusal(message: str) -> UsageError:
    return UsageError(message, hint=f"one of {FORMS}")
