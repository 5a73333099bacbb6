"""What a measure asks of the rows of a match."""

from dataclasses import dataclass

from millstream.language.plan.nodes import AggregateCall


@dataclass(frozen=True, slots=True)
class Measured:
    """A call of a measure, with the rows of a match that it is over."""

    call: AggregateCall
    variable: str | None  # None: all rows
    nth: int | None = None  # only the row at this place ...
    back: bool = False  # ... counted from the last one
    final: bool = False  # over the whole match, where each of its rows is told
