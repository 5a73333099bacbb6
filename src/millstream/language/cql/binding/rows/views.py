"""Views of a text: each is bound once, before whatever reads it, and is used like a name of WITH.

A view is the query in its place: what two queries read through it has one fingerprint and is
computed once.
"""

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from millstream.language.cql.binding.relations import Bound
from millstream.language.cql.parsing.parser import CreateView, Text
from millstream.language.cql.views import names_read

BindQuery = Callable[[exp.Expr, dict[str, Bound]], Bound]


def bound_views(text: Text, views: Sequence[CreateView], bind: BindQuery) -> dict[str, Bound]:
    """All views by name; refused where two have one name, or they read each other in a circle."""
    by_name: dict[str, CreateView] = {}
    for view in views:
        if view.name in by_name:
            raise text.error(f"view {view.name} is defined twice", view.span, "rename one of them")
        by_name[view.name] = view
    bound: dict[str, Bound] = {}
    for name in by_name:
        _bind(text, name, by_name, (), bound, bind)
    return bound


def _bind(
    text: Text,
    name: str,
    views: Mapping[str, CreateView],
    above: tuple[str, ...],
    bound: dict[str, Bound],
    bind: BindQuery,
) -> None:
    if name in bound:
        return
    view = views[name]
    if name in above:
        circle = " reads ".join((*above[above.index(name) :], name))
        raise text.error(f"view {circle}", view.span, "a view reads streams, or views before it")
    for other in names_read(view.select.tree):
        if other in views:
            _bind(text, other, views, (*above, name), bound, bind)
    bound[name] = bind(view.select.tree, dict(bound))
