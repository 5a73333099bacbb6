"""A registered query as its processor has it."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.control.protocol.records import ASKED, PAUSED
from millstream.language.plan.nodes import Plan
from millstream.store.ledger import Ledger

DAMAGED = "damaged: "  # how the reason of a query begins that a damaged file has parked
STOPPED = "stopped: "  # and of one whose stream has no source any more
QueryEvent = Literal[
    "registered", "taken up", "delivered", "replaced", "failed", "restarted", "dropped"
]
LIVE = ("running", "parked")  # states of queries that run, or will by themselves
DEATHS = "deaths:"  # where the ledger counts how often Java died, by operator


@dataclass(slots=True)
class Query:
    """A registered query and what it needs."""

    name: str
    cql: str
    plan: Plan
    start: int
    stream: str
    operators: tuple[str, ...]
    state: str = "running"
    reason: str = ""
    culprits: list[dict[str, Any]] = field(default_factory=list)  # the rows behind a failure
    here_since: float = field(default_factory=time.time)  # when this process took it up
    given_up: bool = False  # whether it has failed for good: its operators' places are gone

    @property
    def kept(self) -> bool:
        """Whether its operators keep their cursors and states: it runs, or could go on."""
        return not self.given_up

    @property
    def restartable(self) -> bool:
        """Whether it has failed and can go on where it was."""
        return self.state == "failed" and self.kept

    @property
    def damaged(self) -> bool:
        """Whether it waits for a file that somebody has to put back."""
        return self.state == "parked" and self.reason.startswith(DAMAGED)

    @property
    def stopped(self) -> bool:
        """Whether it waits for a source that somebody has to put right."""
        return self.state == "parked" and self.reason.startswith(STOPPED)

    @property
    def paused(self) -> bool:
        """Whether it rests because somebody wants it so."""
        return self.state == "parked" and self.reason.startswith(PAUSED)


def culprits_of(query: str) -> str:
    """Where the ledger keeps the rows that broke a query."""
    return f"culprits:{query}"


def restarts_of(query: str) -> str:
    """Where the ledger counts how often a policy has restarted a query, and when last."""
    return f"restarts:{query}"


def restarted_of(query: str) -> str:
    """Where the ledger notes how often a manager has had a query restarted."""
    return f"restarted:{query}"


def restarted(ledger: Ledger, query: str) -> int:
    """How often a manager has had a query restarted here."""
    return int(ledger.meta(restarted_of(query)) or 0)


def pauses_of(query: str) -> str:
    """Where the ledger counts how often a query was told to rest or to go on."""
    return f"pauses:{query}"


def pauses(ledger: Ledger, query: str) -> int:
    """How often a query was told to rest or to go on; odd: it is to rest."""
    return int(ledger.meta(pauses_of(query)) or 0)


def state_in_force(ledger: Ledger, query: str, state: str, reason: str) -> tuple[str, str]:
    """A query that would run rests where somebody wants that, and one that rests goes on where
    nobody does; what keeps it for another reason comes first."""
    resting = pauses(ledger, query) % 2 == 1
    if resting and state == "running":
        return "parked", f"{PAUSED}{ASKED}"
    if not resting and state == "parked" and reason.startswith(PAUSED):
        return "running", ""
    return state, reason


def replaced_by(query: str) -> str:
    """Where the ledger keeps the text with which a query is to go on."""
    return f"replacing:{query}"


def history_of(query: str) -> str:
    """Where the ledger keeps the numbers of base streams that a query's history ends before."""
    return f"history:{query}"


def alone_of(query: str) -> str:
    """Where the ledger notes that a query shares no operator: what others have of the past that it
    begins with is not whole any more."""
    return f"alone:{query}"


def deaths_of(operator: str) -> str:
    """Where the ledger counts how often Java has died while an operator was in a step."""
    return f"{DEATHS}{operator}"


def given_up_of(query: str) -> str:
    """Where the ledger notes that a failed query cannot go on."""
    return f"given-up:{query}"
