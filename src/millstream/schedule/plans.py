"""The shape of the running plan: who feeds whom, from leaf to root.

Built from operator views, pure, and never changed: a plan that changes is a new shape. Paths are
bounded in number, so that a dense graph costs no more than a large tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from millstream.schedule.protocol import OperatorView

PATHS_MAX = 4096


@dataclass(frozen=True, slots=True)
class PlanShape:
    """Operators in topological order, with depth counted from the leaves."""

    order: tuple[str, ...]
    producers: dict[str, tuple[str, ...]]
    consumers: dict[str, tuple[str, ...]]
    depth: dict[str, int] = field(default_factory=dict)

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(name for name in self.order if not self.producers[name])

    @property
    def roots(self) -> tuple[str, ...]:
        return tuple(name for name in self.order if not self.consumers[name])

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Every way from a leaf to a root, at most `PATHS_MAX` of them, in a fixed order."""
        left = PATHS_MAX
        for leaf in self.leaves:
            stack: list[tuple[str, ...]] = [(leaf,)]
            while stack and left:
                path = stack.pop()
                onward = self.consumers[path[-1]]
                if not onward:
                    left -= 1
                    yield path
                stack.extend((*path, consumer) for consumer in reversed(onward))


def shape_of(views: Sequence[OperatorView]) -> PlanShape:
    """The shape of these operators; edges to operators not among them are left out.

    >>> shape = shape_of([OperatorView("a", 0, consumers=("b",)), OperatorView("b", 0)])
    >>> shape.order, shape.leaves, shape.roots, list(shape.paths())
    (('a', 'b'), ('a',), ('b',), [('a', 'b')])
    """
    known = {view.id for view in views}
    feeds: dict[str, list[str]] = {view.id: [] for view in views}
    for view in views:  # either end may name the edge
        for consumer in view.consumers:
            if consumer in known and consumer not in feeds[view.id]:
                feeds[view.id].append(consumer)
    for view in views:
        for producer in view.producers:
            if producer in known and view.id not in feeds[producer]:
                feeds[producer].append(view.id)
    fed_by: dict[str, list[str]] = {view.id: [] for view in views}
    for producer, consumers in feeds.items():
        for consumer in consumers:
            fed_by[consumer].append(producer)
    return _sorted_shape([view.id for view in views], fed_by, feeds)


def _sorted_shape(
    ids: Sequence[str], fed_by: dict[str, list[str]], feeds: dict[str, list[str]]
) -> PlanShape:
    waiting = {name: len(fed_by[name]) for name in ids}
    ready = [name for name in ids if not waiting[name]]
    order: list[str] = []
    depth: dict[str, int] = {}
    while ready:
        name = ready.pop(0)
        order.append(name)
        depth[name] = 1 + max((depth[producer] for producer in fed_by[name]), default=-1)
        for consumer in feeds[name]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    if len(order) < len(ids):
        circle = sorted(set(ids) - set(order))
        raise ValueError(f"operators feed themselves: {', '.join(circle)}")
    return PlanShape(
        tuple(order),
        {name: tuple(fed_by[name]) for name in order},
        {name: tuple(feeds[name]) for name in order},
        depth,
    )
