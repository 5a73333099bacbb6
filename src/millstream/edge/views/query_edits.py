"""Who keeps the queries of a run: what is registered while it goes on, and what may be dropped."""

from typing import Protocol


class QueryEdits(Protocol):
    """A run's queries, as a dashboard changes them."""

    def register(self, name: str, cql: str) -> None: ...

    def drop(self, name: str) -> None: ...

    def pause(self, name: str, wanted: bool) -> None: ...

    def droppable(self, name: str) -> bool: ...
