"""Families of plug-ins that a user chooses from by name.

A registry maps names to members; it never discovers anything by importing. The member's name is
what stands in job files and on the command line.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

from millstream.core.errors import UsageError

T = TypeVar("T")


class Registry(Generic[T]):
    """Named members of one family.

    >>> colours: Registry[int] = Registry("colour")
    >>> colours.add("red", 1)
    1
    >>> colours.get("red"), colours.names()
    (1, ('red',))
    """

    def __init__(self, family: str) -> None:
        self.family = family
        self._members: dict[str, T] = {}

    def add(self, name: str, member: T) -> T:
        if name in self._members:
            raise ValueError(f"{self.family} {name!r} is registered twice")
        self._members[name] = member
        return member

    def member(self, name: str) -> Callable[[T], T]:
        """Use as a decorator over a class or function."""
        return lambda member: self.add(name, member)

    def get(self, name: str) -> T:
        if not isinstance(name, str) or name not in self._members:  # a file may hold anything
            near = get_close_matches(str(name), self._members, 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(self.names())}"
            raise UsageError(f"unknown {self.family} {name!r}", hint=hint)
        return self._members[name]

    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(self._members.items())
