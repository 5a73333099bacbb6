"""Changes of the queries of a run: what is registered while it runs, and what may be dropped."""

from typing import Protocol


class QueryEdits(Protocol):
    """A run's queries, as a dashboard changes them."""

    def register(self, name: str, cql: str) -> None: ...

    def drop(self, name: str) -> None: ...

    def pause(self, name: str, wanted: bool) -> None: ...

    def droppable(self, name: str) -> bool: ...
