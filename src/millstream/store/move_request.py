"""What the new owner of operators is told: which, from whom, and who will read their streams."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.engine.hosting import HostedText
from millstream.store.ownership import Place


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What a new owner is told."""

    move: str
    texts: tuple[HostedText, ...]  # of every query that uses the operators
    inputs: Mapping[str, tuple[Place, int]]  # owners, with epochs, of what is read from outside
    old: Place
    consumers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(sorted({o for text in self.texts for o in text.operators}))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "MoveRequest":
        return MoveRequest(
            data["move"],
            tuple(HostedText(**{**t, "operators": tuple(t["operators"])}) for t in data["texts"]),
            {s: (Place(**place), epoch) for s, (place, epoch) in data["inputs"].items()},
            Place(**data["old"]),
            {s: tuple(names) for s, names in data["consumers"].items()},
        )
