"""One node of the decentralised scheme: `step(state, event) -> (state, commands)`.

Seed 002, section 3. Puts partners, load information, decision and selection together. It decides
whom to partner with, what to tell, when to ask for load and which fragments to hand over; it never
sends, moves or reads a clock. `protocol` is the contract with its driver.
"""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import assert_never

from millstream.decide.balance import decision, load_information, partners
from millstream.decide.balance.decision import Demand, KnownLoad
from millstream.decide.balance.load_information import LoadInformation
from millstream.decide.balance.partners import Limits, Partners
from millstream.decide.balance.protocol import (
    Command,
    Event,
    FragmentsRead,
    LoadReport,
    LoadRequest,
    LoadShifted,
    Move,
    PartnerAnswer,
    PartnerEnd,
    PartnerRequest,
    Probe,
    ProbeAnswer,
    ReadFragments,
    Received,
    RefreshDue,
    RoundStarted,
    Send,
    WindowClosed,
)
from millstream.decide.balance.selection import SELECTIONS, Transfer, arriving, choose

Commands = tuple[Command, ...]
NOTHING: Commands = ()
Known = MappingProxyType[str, KnownLoad]
Served = MappingProxyType[str, int]  # who asked -> its last round that was served


@dataclass(frozen=True, slots=True)
class Settings:
    """The seed's parameters; those it does not give are marked."""

    window_s: float = 0.1  # tau
    round_s: float = 1.0  # Delta
    kappa: float = 1.2
    alpha: float = 0.9
    limits: Limits = field(default_factory=Limits)
    selection: str = "flow_aware"
    overloaded: float = 0.9  # not in the seed: from here on a node looks beyond its partners
    probe_max: int = 3  # not in the seed: probes a round
    refresh_s: float = 10.0  # not in the seed
    silence_s_max: float = 3.0  # not in the seed: a load report at least this often


@dataclass(frozen=True, slots=True)
class Node:
    """All that a node remembers."""

    name: str
    seed: int = 0
    cpu: float = 1.0
    draws: int = 0
    partners: Partners = field(default_factory=Partners)
    known: Known = field(default_factory=lambda: MappingProxyType({}))
    own: LoadInformation = field(default_factory=LoadInformation)
    round: int = 0
    load_at_round_start: float = 0.0
    exported: float = 0.0  # in this round
    demands: tuple[Demand, ...] = ()
    served: Served = field(default_factory=lambda: MappingProxyType({}))


def step(node: Node, event: Event, settings: Settings) -> tuple[Node, Commands]:
    """What a node makes of an event."""
    match event:
        case WindowClosed():
            return _window(node, event, settings)
        case RoundStarted():
            return _round(node, settings)
        case RefreshDue():
            return _refresh(node, event, settings)
        case Received():
            return _message(node, event, settings)
        case FragmentsRead():
            return _serve(node, event, settings)
        case LoadShifted():
            return replace(node, own=load_information.shifted(node.own, event.change)), NOTHING
        case _:
            assert_never(event)


def _window(node: Node, event: WindowClosed, settings: Settings) -> tuple[Node, Commands]:
    own, told = load_information.closed_window(
        node.own,
        event.load,
        event.now_s,
        alpha=settings.alpha,
        kappa=settings.kappa,
        silence_s_max=settings.silence_s_max,
    )
    commands: Commands = _reports(node, own) if told else NOTHING
    if node.demands:
        commands += (ReadFragments(),)
    return replace(node, own=own), commands


def _reports(node: Node, own: LoadInformation) -> Commands:
    report = LoadReport(own.load, own.windows, node.cpu)
    return tuple(Send(partner, report) for partner in sorted(node.partners.all))


def _round(node: Node, settings: Settings) -> tuple[Node, Commands]:
    node = replace(node, round=node.round + 1, load_at_round_start=node.own.load, exported=0.0)
    wish = decision.generate_request(node.own.load, node.known, settings.kappa, node.cpu)
    if wish is not None:
        return node, (Send(wish.of, LoadRequest(wish.amount, node.round)),)
    if decision.all_overloaded(node.own.load, node.known, settings.overloaded):
        return _probe(node, settings)
    return node, NOTHING


def _probe(node: Node, settings: Settings) -> tuple[Node, Commands]:
    near = node.partners.all | node.partners.waiting
    strangers = [other for other in node.partners.others if other not in near]
    commands: list[Command] = []
    while strangers and len(commands) < settings.probe_max:
        node, n = _draw(node, len(strangers))
        commands.append(Send(strangers.pop(n), Probe(node.round)))
    return node, tuple(commands)


def _draw(node: Node, below: int) -> tuple[Node, int]:
    """Chance as a value: the same node in the same state always draws the same."""
    text = f"{node.seed}/{node.name}/{node.draws}".encode()
    number = int.from_bytes(blake2b(text, digest_size=8).digest(), "big")
    return replace(node, draws=node.draws + 1), number % below


def _seek(node: Node, settings: Settings) -> tuple[Node, Commands]:
    drawn = node

    def draw(below: int) -> int:
        nonlocal drawn
        drawn, number = _draw(drawn, below)
        return number

    found, requests = partners.seek(node.partners, settings.limits, draw)
    request = PartnerRequest(node.own.load, node.cpu)
    return replace(drawn, partners=found), tuple(Send(to, request) for to in requests)


def _refresh(node: Node, event: RefreshDue, settings: Settings) -> tuple[Node, Commands]:
    patience_s = 3 * settings.silence_s_max  # three lost reports in a row are a dead partner
    silent = sorted(
        partner
        for partner in node.partners.all
        if partner not in node.known or event.now_s - node.known[partner].heard_s > patience_s
    )
    again = partners.refreshed(node.partners, event.neighbours, event.others, silent)
    node = _forget(replace(node, partners=again), silent)
    node, commands = _seek(node, settings)
    return node, (*(Send(partner, PartnerEnd()) for partner in silent), *commands)


def _forget(node: Node, gone: list[str]) -> Node:
    return replace(
        node,
        partners=partners.without(node.partners, gone),
        known=MappingProxyType({k: v for k, v in node.known.items() if k not in gone}),
    )


def _heard(node: Node, sender: str, known: KnownLoad) -> Node:
    return replace(node, known=MappingProxyType({**node.known, sender: known}))


def _message(node: Node, event: Received, settings: Settings) -> tuple[Node, Commands]:
    sender, message, now_s = event.sender, event.message, event.now_s
    match message:
        case LoadReport():
            return _report(node, sender, message, now_s)
        case LoadRequest():
            return _demand(node, sender, message)
        case PartnerRequest():
            return _partner_request(node, event, message, settings)
        case PartnerAnswer():
            return _partner_answer(node, event, message, settings)
        case PartnerEnd():
            return _seek(_forget(node, [sender]), settings)
        case Probe():
            return node, (Send(sender, ProbeAnswer(node.own.load, message.number)),)
        case ProbeAnswer():
            return _probe_answer(node, sender, message, settings)
        case _:
            assert_never(message)


def _report(node: Node, sender: str, report: LoadReport, now_s: float) -> tuple[Node, Commands]:
    if sender not in node.partners.all:
        # An answer to our own request may still be under way; else the sender is mistaken.
        waiting = sender in node.partners.waiting
        return node, NOTHING if waiting else (Send(sender, PartnerEnd()),)
    last = node.known.get(sender)
    if last is not None and report.number <= last.number:
        return node, NOTHING  # repeated or overtaken; a restarted sender first asks anew, from zero
    return _heard(node, sender, KnownLoad(report.load, report.cpu, report.number, now_s)), NOTHING


def _demand(node: Node, sender: str, request: LoadRequest) -> tuple[Node, Commands]:
    asked_before = any(d.sender == sender and d.number >= request.number for d in node.demands)
    if node.served.get(sender) == request.number or asked_before:
        return node, NOTHING
    demand = Demand(sender, request.amount, request.number)
    return replace(node, demands=(*node.demands, demand)), NOTHING


def _partner_request(
    node: Node, event: Received, request: PartnerRequest, settings: Settings
) -> tuple[Node, Commands]:
    welcome = request.probed and node.own.load < settings.overloaded
    found, accepted = partners.consider(
        node.partners, event.sender, settings.limits, welcome=welcome
    )
    node = replace(node, partners=found)
    if accepted:
        node = _heard(node, event.sender, KnownLoad(request.load, request.cpu, 0, event.now_s))
    return node, (Send(event.sender, PartnerAnswer(accepted, node.own.load, node.cpu)),)


def _partner_answer(
    node: Node, event: Received, answer: PartnerAnswer, settings: Settings
) -> tuple[Node, Commands]:
    if event.sender not in node.partners.waiting:
        if answer.accepted and event.sender not in node.partners.all:
            return node, (Send(event.sender, PartnerEnd()),)  # it came too late to be wanted
        return node, NOTHING
    found = partners.answered(node.partners, event.sender, accepted=answer.accepted)
    node = replace(node, partners=found)
    if answer.accepted:
        node = _heard(node, event.sender, KnownLoad(answer.load, answer.cpu, 0, event.now_s))
    return _seek(node, settings)


def _probe_answer(
    node: Node, sender: str, answer: ProbeAnswer, settings: Settings
) -> tuple[Node, Commands]:
    late = answer.number != node.round
    near = sender in node.partners.all or sender in node.partners.waiting
    if late or near or answer.load >= settings.overloaded:
        return node, NOTHING
    node, made_room = _make_room(node, settings)
    waiting = node.partners.waiting | {sender}
    node = replace(node, partners=replace(node.partners, waiting=waiting))
    return node, (*made_room, Send(sender, PartnerRequest(node.own.load, node.cpu, probed=True)))


def _make_room(node: Node, settings: Settings) -> tuple[Node, Commands]:
    """Drops the heaviest own partner if the group is full: it cannot help now."""
    group = node.partners.asked
    if len(group) + len(node.partners.waiting) < settings.limits.asked_max or not group:
        return node, NOTHING
    heaviest = min(
        group, key=lambda name: (-node.known[name].load if name in node.known else 0.0, name)
    )
    return _forget(node, [heaviest]), (Send(heaviest, PartnerEnd()),)


def _serve(node: Node, event: FragmentsRead, settings: Settings) -> tuple[Node, Commands]:
    key = SELECTIONS.get(settings.selection)
    here = {fragment.id: fragment for fragment in event.fragments}
    exported, change = node.exported, 0.0
    commands: list[Command] = []
    served = dict(node.served)
    for demand in decision.in_order(node.demands):
        served[demand.sender] = demand.number
        limit = min(demand.amount, decision.export_budget(node.load_at_round_start, exported))
        transfer = Transfer(node.name, demand.sender)
        chosen = choose(here.values(), transfer, limit, key)
        for fragment in chosen:
            del here[fragment.id]
        for fragment, there in zip(chosen, arriving(chosen, here.values()), strict=True):
            exported += fragment.load
            change -= fragment.load
            reason = (
                f"{demand.sender} asked for {demand.amount:.3f}; {settings.selection} gives "
                f"{fragment.load:.3f} of {node.own.load:.3f}"
            )
            commands.append(Move(fragment.id, demand.sender, fragment.load, reason, there))
    node = replace(
        node,
        exported=exported,
        demands=(),
        served=MappingProxyType(served),
        own=load_information.shifted(node.own, change),
    )
    return node, tuple(commands)
