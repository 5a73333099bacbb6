"""What lies under a node of a plan: the rule tables, the windows. Reads plans; decides nothing."""

from collections.abc import Iterator

from millstream.language.plan.nodes import (
    Filter,
    Join,
    Node,
    Project,
    Ruled,
    Source,
    Union,
    Windowed,
    inputs_of,
)
from millstream.language.plan.windows import Window


def rule_tables_of(node: Node) -> tuple[Source, ...]:
    """The rule tables under a node: they say nothing about how far its rows have come."""
    found = (node.rules,) if isinstance(node, Ruled) else ()
    return (*found, *(table for below in inputs_of(node) for table in rule_tables_of(below)))


def windows_of(node: Node) -> Iterator[Window]:
    """The windows that the intervals of a node's rows come from."""
    match node:
        case Windowed(window=window):
            yield window
        case Filter() | Project() | Join() | Union():
            for below in inputs_of(node):
                yield from windows_of(below)
        case _:
            pass
