"""Fields of messages between processes, with their limits: they come from elsewhere."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

Name = Annotated[str, Field(min_length=1, max_length=300)]
Lineage = Annotated[str, Field(max_length=100)]
Text = Annotated[str, Field(max_length=1 << 18)]
Names = Annotated[tuple[Name, ...], Field(max_length=100_000)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
PAUSED = "paused: "  # how the reason of a query begins that somebody wants to rest
ASKED = "a user requested it"
Told = tuple[Count, Count]  # epoch and number of a manager's message
UNTOLD: Told = (0, 0)
NOWHERE = "-"  # the address of a processor that has not said where it is
Micros = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]  # event time since 1970, in us
Table = Annotated[dict[str, Any], Field(max_length=100_000)]
Properties = Annotated[dict[Name, str | int | float | bool | None], Field(max_length=200)]
Numbers = Annotated[dict[Name, float], Field(max_length=200)]
Many: Any = Field(max_length=100_000)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another processor, where it answers, and the least epoch of the stream that counts."""

    processor: Name
    url: Name
    epoch: Count = 0
