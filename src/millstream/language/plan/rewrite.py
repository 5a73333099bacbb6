"""Plans in canonical form: rules in one visible order, each a function from node to node.

A rule returns the very same object where it changes nothing. `rewrite` applies all rules bottom-up
and checks after every rule that the types of the columns are unchanged.
"""

from collections.abc import Callable
from dataclasses import replace

from millstream.core.errors import InternalError
from millstream.language.plan.calls import BY_ORDER
from millstream.language.plan.equalities import chain_equalities
from millstream.language.plan.expressions import (
    Column,
    Expr,
    columns_of,
    conjunction,
    conjuncts,
    shift,
    substitute,
    total,
    uses_time,
)
from millstream.language.plan.keys import expression_key, predicate_key
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    Node,
    Over,
    Project,
    Ruled,
    Semijoin,
    Source,
    Union,
    Windowed,
    canonical_order,
    is_relation,
    symmetries,
    with_inputs,
)
from millstream.language.plan.ranks import limit_ranks
from millstream.language.plan.windows import Rows

Rule = Callable[[Node], Node]


def merge_filters(node: Node) -> Node:
    """Filter over Filter becomes one, the inner conjuncts first."""
    if isinstance(node, Filter) and isinstance(node.input, Filter):
        terms = conjuncts(node.input.predicate) + conjuncts(node.predicate)
        merged = conjunction(terms)
        return node.input.input if merged is None else Filter(node.input.input, merged)
    return node


def drop_true_filters(node: Node) -> Node:
    """A filter without conjuncts is its input."""
    if isinstance(node, Filter) and not conjuncts(node.predicate):
        return node.input
    return node


def push_filter_through_project(node: Node) -> Node:
    """Filter over Project becomes Project over Filter, where no column raises."""
    if isinstance(node, Filter) and isinstance(node.input, Project):
        below = node.input
        if all(total(c) for c in below.columns):
            predicate = substitute(node.predicate, below.columns)
            return Project(push_filter_through_project(Filter(below.input, predicate)),
                           below.columns, below.fields)  # fmt: skip
    return node


def push_filter_through_window(node: Node) -> Node:
    """A filter may run before a window of time, never before a window of rows."""
    if isinstance(node, Filter) and isinstance(node.input, Windowed):
        below = node.input
        if not isinstance(below.window, Rows):
            inner = Filter(below.input, node.predicate)
            return Windowed(settle_filter(inner), below.window)
    return node


def push_filter_into_join(node: Node) -> Node:
    """Conjuncts over one input go to that input; the others become the join's predicate.

    One that can raise moves only if all before it moved to the same input.
    """
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return node
    join = node.input
    if uses_time(node.predicate):  # the time of the joined row exists only above the join
        return node
    terms = conjuncts(join.predicate) + conjuncts(node.predicate)
    return _with_predicate(join, terms) or node


def push_filter_into_rules(node: Node) -> Node:
    """Conjuncts over the row alone run before rules are looked for; others choose the rules.

    One that can raise moves below only if all before it did.
    """
    if not (isinstance(node, Filter) and isinstance(node.input, Ruled)):
        return node
    ruled = node.input
    width = len(ruled.input.schema)
    below: list[Expr] = []
    kept: list[Expr] = list(conjuncts(ruled.predicate))
    for term in conjuncts(node.predicate):
        of_row = all(c < width for c in columns_of(term))
        (below if of_row and (total(term) or not kept) else kept).append(term)
    rows = settle_filter(_filtered(ruled.input, below)) if below else ruled.input
    return Ruled(rows, ruled.rules, conjunction(tuple(kept)))


def settle_join_predicate(node: Node) -> Node:
    """The same for conjuncts of the join's own predicate."""
    if not isinstance(node, Join):
        return node
    return _with_predicate(node, conjuncts(node.predicate)) or node


def _with_predicate(join: Join, terms: tuple[Expr, ...]) -> Node | None:
    """The join with each term where it belongs; None where nothing moves and nothing is new."""
    owner: list[int] = []
    starts: list[int] = []
    for position, child in enumerate(join.inputs):
        starts.append(len(owner))
        owner += [position] * len(child.schema)
    moved: dict[int, list[Expr]] = {}
    kept: list[Expr] = []
    places: list[int | None] = []
    for term in terms:
        owners = {owner[c] for c in columns_of(term)}
        place = owners.pop() if len(owners) == 1 else None
        if not total(term) and any(p != place for p in places):
            place = None
        places.append(place)
        if place is None:
            kept.append(term)
        else:
            moved.setdefault(place, []).append(term)
    if not moved and len(kept) == len(conjuncts(join.predicate)):
        return None
    inputs = tuple(
        settle_filter(_filtered(child, [shift(t, -starts[p]) for t in moved[p]]))
        if p in moved
        else child
        for p, child in enumerate(join.inputs)
    )
    return Join(inputs, conjunction(tuple(kept)))


def settle_semijoin_predicate(node: Node) -> Node:
    """Conjuncts over the second input alone go there, where nothing that can raise stands before.

    Those over the first stay: a row of it that fails them meets nobody, and may be wanted for that.
    """
    if not isinstance(node, Semijoin):
        return node
    left, right = node.inputs
    width = len(left.schema)
    terms = conjuncts(node.predicate)
    first = next((i for i, t in enumerate(terms) if not total(t)), len(terms))
    moved = [t for t in terms[:first] if columns_of(t) and min(columns_of(t)) >= width]
    if not moved:
        return node
    kept = conjunction(tuple(t for t in terms if t not in moved))
    below = settle_filter(_filtered(right, [shift(t, -width) for t in moved]))
    return Semijoin((left, below), kept, node.anti)


def _filtered(child: Node, terms: list[Expr]) -> Node:
    predicate = conjunction(tuple(terms))
    return child if predicate is None else Filter(child, predicate)


def push_filter_into_union(node: Node) -> Node:
    """Filter over Union becomes Union of filters."""
    if isinstance(node, Filter) and isinstance(node.input, Union):
        return Union(tuple(settle_filter(Filter(i, node.predicate)) for i in node.input.inputs))
    return node


def merge_projects(node: Node) -> Node:
    """Project over Project becomes one, where the inner one is used but does not raise."""
    if isinstance(node, Project) and isinstance(node.input, Project):
        below = node.input
        if all(total(c) for c in below.columns):
            columns = tuple(substitute(c, below.columns) for c in node.columns)
            return Project(below.input, columns, node.fields)
    return node


def positional(node: Node) -> bool:
    """Whether rows carry a position, so that ties in time do not depend on their columns."""
    match node:
        case Source():
            return True
        case Filter() | Project() | Windowed() | Over():
            return positional(node.input)
        case _:
            return False


def pull_project_above_window(node: Node) -> Node:
    """Window over Project becomes Project over Window, so that windows of one stream are one.

    A window of rows sees ties by position, or else by all columns, which then must stay.
    """
    if not (isinstance(node, Windowed) and isinstance(node.input, Project)):
        return node
    below, window = node.input, node.window
    if not all(total(c) for c in below.columns):
        return node
    if isinstance(window, Rows):
        if not positional(below):
            return node
        window = Rows(window.count, tuple(substitute(e, below.columns) for e in window.partition))
    return Project(Windowed(below.input, window), below.columns, below.fields)


def pull_project_above_over(node: Node) -> Node:
    """OVER over Project becomes Project over OVER, so that OVER of one stream is one.

    Rows without a position are told apart by all their columns, which then must stay; those of
    tables have none.
    """
    if not (isinstance(node, Over) and isinstance(node.input, Project)):
        return node
    below = node.input
    if not all(total(c) for c in below.columns) or not positional(below):
        return node
    calls = tuple(_reading(call, below.columns) for call in node.calls)
    keys = tuple(substitute(key, below.columns) for key in node.partition)
    width = len(below.input.schema)
    added = tuple(Column(width + i) for i in range(len(calls)))
    made = Over(below.input, keys, calls, node.frames)
    return Project(made, (*below.columns, *added), node.schema)


def pull_projects_above_join(node: Node) -> Node:
    """Projections of a join's inputs move above it, except those that read an input's time."""
    if not isinstance(node, Join) or not any(_movable(i) for i in node.inputs):
        return node
    inputs: list[Node] = []
    columns: list[Expr] = []
    width = 0
    for child in node.inputs:
        if isinstance(child, Project) and _movable(child):
            inputs.append(child.input)
            columns += [shift(c, width) for c in child.columns]
        else:
            inputs.append(child)
            columns += [Column(width + i) for i in range(len(child.schema))]
        width += len(inputs[-1].schema)
    moved = tuple(columns)
    predicate = None if node.predicate is None else substitute(node.predicate, moved)
    return Project(Join(tuple(inputs), predicate), moved, node.schema)


def _movable(node: Node) -> bool:
    return isinstance(node, Project) and all(total(c) and not uses_time(c) for c in node.columns)


def merge_project_into_aggregate(node: Node) -> Node:
    """Aggregate over Project reads the columns below; those by order only where ties allow it."""
    if not (isinstance(node, Aggregate) and isinstance(node.input, Project)):
        return node
    below = node.input
    by_order = any(c.function in BY_ORDER for c in node.calls)
    if not all(total(c) for c in below.columns) or (by_order and not positional(below)):
        return node
    return replace(_with_columns(node, below.columns), input=below.input)


def drop_idle_projects(node: Node) -> Node:
    """A projection that keeps every column in place is its input."""
    if isinstance(node, Project):
        same = tuple(Column(i) for i in range(len(node.input.schema)))
        if node.columns == same:
            return node.input
    return node


def flatten_joins(node: Node) -> Node:
    """A join of joins is one join of all inputs: intervals intersect in any order."""
    if isinstance(node, Join) and any(isinstance(i, Join) for i in node.inputs):
        inputs: list[Node] = []
        inner: list[Expr] = []
        start = 0
        for child in node.inputs:
            if isinstance(child, Join):
                inputs += child.inputs
                inner += [shift(t, start) for t in conjuncts(child.predicate)]
            else:
                inputs.append(child)
            start += len(child.schema)
        return Join(tuple(inputs), conjunction((*inner, *conjuncts(node.predicate))))
    return node


def order_join_inputs(node: Node) -> Node:
    """Inputs stand in canonical order; a projection above restores the columns' order."""
    if not isinstance(node, Join):
        return node
    order = canonical_order(node)
    if order == tuple(range(len(node.inputs))):
        return node
    starts, width = [], 0
    for child in node.inputs:
        starts.append(width)
        width += len(child.schema)
    old_at: list[int] = [starts[p] + c for p in order for c in range(len(node.inputs[p].schema))]
    new_of = {old: new for new, old in enumerate(old_at)}
    to_new = tuple(Column(new_of[i]) for i in range(width))
    predicate = None if node.predicate is None else substitute(node.predicate, to_new)
    return Project(Join(tuple(node.inputs[p] for p in order), predicate), to_new, node.schema)


def settle_symmetric_columns(node: Node) -> Node:
    """Columns over a self-join whose inputs can change places are those with the least text."""
    if not isinstance(node, Project | Aggregate) or not isinstance(node.input, Join):
        return node
    join = node.input
    if isinstance(node, Aggregate) and any(c.function in BY_ORDER for c in node.calls):
        return node  # ties are told apart by the columns' order
    best, least = node, _columns_key(node)
    for order in symmetries(join)[1:]:
        starts, width = [], 0
        for child in join.inputs:
            starts.append(width)
            width += len(child.schema)
        new_of = {
            starts[old] + c: starts[place] + c
            for place, old in enumerate(order)
            for c in range(len(join.inputs[old].schema))
        }
        moved = _with_columns(node, tuple(Column(new_of[i]) for i in range(width)))
        if _columns_key(moved) < least:
            best, least = moved, _columns_key(moved)
    return best


def _with_columns(node: Project | Aggregate, columns: tuple[Expr, ...]) -> Project | Aggregate:
    """The same node reading its input through other columns."""
    if isinstance(node, Project):
        return replace(node, columns=tuple(substitute(c, columns) for c in node.columns))
    calls = tuple(_reading(call, columns) for call in node.calls)
    return replace(node, keys=tuple(substitute(k, columns) for k in node.keys), calls=calls)


def _reading(call: AggregateCall, columns: tuple[Expr, ...]) -> AggregateCall:
    """The same call over other columns."""
    return replace(
        call,
        argument=call.argument and substitute(call.argument, columns),
        condition=call.condition and substitute(call.condition, columns),
    )


def _columns_key(node: Project | Aggregate) -> tuple[str, ...]:
    if isinstance(node, Project):
        return tuple(expression_key(c) for c in node.columns)
    return (
        *(expression_key(k) for k in node.keys),
        *(f"{c.argument and expression_key(c.argument)}|{predicate_key(c.condition)}"
          for c in node.calls),
    )  # fmt: skip


FILTER_RULES: tuple[Rule, ...] = (
    merge_filters,
    drop_true_filters,
    push_filter_through_project,
    push_filter_through_window,
    push_filter_into_join,
    push_filter_into_rules,
    push_filter_into_union,
)
RULES: tuple[Rule, ...] = (
    pull_project_above_window,
    pull_project_above_over,
    pull_projects_above_join,
    flatten_joins,
    settle_join_predicate,
    settle_semijoin_predicate,
    order_join_inputs,
    chain_equalities,
    *FILTER_RULES,
    merge_projects,
    merge_project_into_aggregate,
    settle_symmetric_columns,
    drop_idle_projects,
    limit_ranks,
)
PASSES_MAX = 20


def settle_filter(node: Node) -> Node:
    """Pushes one filter as far down as it goes."""
    if is_relation(node):
        return merge_filters(node)
    for rule in FILTER_RULES:
        node = rule(node)
    return node


def rewrite(node: Node) -> Node:
    """The canonical form of a plan."""
    for _ in range(PASSES_MAX):
        changed = _once(node)
        if changed is node:
            return node
        node = changed
    return node


def _once(node: Node) -> Node:
    node = with_inputs(node, _once)
    for rule in RULES:
        changed = rule(node)
        if changed is not node and [f.type for f in changed.schema] != [
            f.type for f in node.schema
        ]:
            raise InternalError(f"rewrite rule {rule.__name__} changed the types of a plan")
        node = changed
    return node


def starting_at(node: Node, start: int) -> Node:
    """The same plan over rows from a start on; rules are never cut."""
    match node:
        case Source():
            return replace(node, start=start)
        case Ruled():
            return replace(node, input=starting_at(node.input, start))
        case Aggregate():
            return replace(node, input=starting_at(node.input, start), start=start)
        case _:
            return with_inputs(node, lambda below: starting_at(below, start))


def read_by(node: Node, reader: str) -> Node:
    """The same plan for one reader alone: no part of it is equal to another reader's."""
    if isinstance(node, Source):
        return replace(node, reader=reader)
    return with_inputs(node, lambda below: read_by(below, reader))
