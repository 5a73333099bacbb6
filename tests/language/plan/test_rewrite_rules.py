"""Each rewrite rule: what it changes, and what it must leave alone; no Spark."""

from millstream.language.plan.expressions import Call, Column, Expr, Literal, Time
from millstream.language.plan.nodes import (
    Aggregate,
    AggregateCall,
    Emit,
    Filter,
    Join,
    Node,
    Project,
    Source,
    Windowed,
)
from millstream.language.plan.rewrite import (
    flatten_joins,
    merge_filters,
    merge_project_into_aggregate,
    merge_projects,
    pull_project_above_window,
    pull_projects_above_join,
    push_filter_into_join,
    push_filter_through_project,
    push_filter_through_window,
    rewrite,
    settle_symmetric_columns,
)
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import Now, Range, Rows, Running, Unbounded

COLUMNS = (Field("a", "int"), Field("b", "int"))
S, T = Source("s", COLUMNS), Source("t", COLUMNS)
A, B = Column(0), Column(1)
ONE = Literal("1", "int")
RAISING = Call("/", (A, B))  # division can fail, so its place matters


def equal(left: Expr, right: Expr) -> Expr:
    return Call("=", (left, right))


def swapped(node: Node) -> Project:
    return Project(node, (B, A), (COLUMNS[1], COLUMNS[0]))


def raising(node: Node) -> Project:
    return Project(node, (RAISING, B), (Field("x", "double"), COLUMNS[1]))


def joined(*inputs: Node, on: Expr | None = None) -> Join:
    return Join(inputs, on)


def test_filters_merge_inner_first() -> None:
    both = merge_filters(Filter(Filter(S, equal(A, ONE)), equal(B, ONE)))
    assert both == Filter(S, Call("and", (equal(A, ONE), equal(B, ONE))))


def test_a_filter_passes_a_projection_that_cannot_raise() -> None:
    pushed = push_filter_through_project(Filter(swapped(S), equal(A, ONE)))
    assert isinstance(pushed, Project)
    assert pushed.input == Filter(S, equal(B, ONE))
    stays = Filter(raising(S), equal(B, ONE))
    assert push_filter_through_project(stays) is stays


def test_a_filter_passes_a_window_of_time_only() -> None:
    pushed = push_filter_through_window(Filter(Windowed(S, Range(5)), equal(A, ONE)))
    assert pushed == Windowed(Filter(S, equal(A, ONE)), Range(5))
    stays = Filter(Windowed(S, Rows(5)), equal(A, ONE))
    assert push_filter_through_window(stays) is stays


def test_conjuncts_go_to_the_input_they_read() -> None:
    left, right = Windowed(S, Now()), Windowed(T, Now())
    where = Call("and", (equal(A, ONE), equal(Column(3), ONE), equal(A, Column(2))))
    pushed = push_filter_into_join(Filter(joined(left, right), where))
    assert isinstance(pushed, Join)
    assert pushed.predicate == equal(A, Column(2))
    assert pushed.inputs == (
        Windowed(Filter(S, equal(A, ONE)), Now()),
        Windowed(Filter(T, equal(B, ONE)), Now()),
    )


def test_a_guard_stays_before_what_it_guards() -> None:
    left, right = Windowed(S, Now()), Windowed(T, Now())
    guard, guarded = Call("<>", (Column(2), ONE)), Call(">", (RAISING, ONE))
    pushed = push_filter_into_join(Filter(joined(left, right), Call("and", (guard, guarded))))
    assert isinstance(pushed, Join)
    assert pushed.predicate == guarded  # not into the left input: the guard reads the right one


def test_projections_merge_where_the_inner_one_cannot_raise() -> None:
    twice = merge_projects(swapped(swapped(S)))
    assert isinstance(twice, Project)
    assert twice.columns == (A, B)
    stays = swapped(raising(S))
    assert merge_projects(stays) is stays


def test_a_projection_moves_above_a_window() -> None:
    moved = pull_project_above_window(Windowed(swapped(S), Rows(2, (A,))))
    assert moved == swapped(Windowed(S, Rows(2, (B,))))
    timed = Project(S, (A, Time()), (COLUMNS[0], Field("ts", "timestamp")))
    assert isinstance(pull_project_above_window(Windowed(timed, Range(5))), Project)
    for stays in (
        Windowed(raising(S), Range(5)),
        # ties of rows without a position are told apart by all their columns
        Windowed(swapped(Emit(joined(S, T), "istream", 1)), Rows(2)),
    ):
        assert pull_project_above_window(stays) is stays


def test_projections_move_above_a_join() -> None:
    moved = pull_projects_above_join(
        joined(swapped(Windowed(S, Now())), Windowed(T, Now()), on=equal(A, Column(2)))
    )
    assert isinstance(moved, Project)
    assert moved.columns == (Column(1), Column(0), Column(2), Column(3))
    assert moved.input == joined(Windowed(S, Now()), Windowed(T, Now()), on=equal(B, Column(2)))


def test_an_inputs_time_stays_below_the_join() -> None:
    timed = Project(Windowed(S, Now()), (A, Time()), (COLUMNS[0], Field("ts", "timestamp")))
    stays = joined(timed, Windowed(T, Now()))
    assert pull_projects_above_join(stays) is stays
    stays = joined(raising(Windowed(S, Now())), Windowed(T, Now()))
    assert pull_projects_above_join(stays) is stays


def test_joins_of_joins_are_one() -> None:
    windows = [Windowed(s, Range(i + 1)) for i, s in enumerate((S, T, S))]
    inner = joined(*windows[1:], on=equal(A, Column(2)))
    flat = flatten_joins(joined(windows[0], inner, on=equal(A, Column(2))))
    assert flat == Join(
        tuple(windows), Call("and", (equal(Column(2), Column(4)), equal(A, Column(2))))
    )


def aggregate(rows: Node, function: str = "sum") -> Aggregate:
    call = AggregateCall(function, A, "bigint", "int", condition=equal(B, ONE))
    return Aggregate(rows, (B,), (call,), Running(), (COLUMNS[1], Field("n", "bigint")))


def test_an_aggregate_reads_through_a_projection() -> None:
    merged = merge_project_into_aggregate(aggregate(swapped(S)))
    assert isinstance(merged, Aggregate)
    assert merged.input == S
    assert merged.keys == (A,)
    assert (merged.calls[0].argument, merged.calls[0].condition) == (B, equal(A, ONE))


def test_first_and_last_keep_the_order_of_columns_without_positions() -> None:
    over_stream = aggregate(swapped(S), "first")
    assert merge_project_into_aggregate(over_stream) is not over_stream
    over_join = aggregate(swapped(Emit(S, "rstream", 1)), "first")
    assert merge_project_into_aggregate(over_join) is over_join
    stays = aggregate(raising(S))
    assert merge_project_into_aggregate(stays) is stays


def test_columns_of_a_symmetric_self_join() -> None:
    windows = (Windowed(S, Now()), Windowed(S, Now()))
    join = Join(windows, equal(A, Column(2)))
    left = Project(join, (Column(1),), (COLUMNS[1],))
    right = Project(join, (Column(3),), (COLUMNS[1],))
    assert settle_symmetric_columns(left) == settle_symmetric_columns(right)
    lopsided = Join(windows, Call("<", (A, Column(3))))
    left = Project(lopsided, (Column(1),), (COLUMNS[1],))
    right = Project(lopsided, (Column(3),), (COLUMNS[1],))
    assert settle_symmetric_columns(left) != settle_symmetric_columns(right)


def test_rewriting_again_changes_nothing() -> None:
    inner = joined(swapped(Windowed(S, Range(2))), Windowed(T, Unbounded()), on=equal(A, B))
    once = rewrite(Filter(swapped(Filter(inner, equal(A, ONE))), equal(B, Column(1))))
    assert rewrite(once) is once
