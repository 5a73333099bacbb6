"""Which fragments leave first, and how many."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.decide.balance.protocol import FragmentView
from millstream.decide.balance.selection import (
    SELECTIONS,
    TOGETHER_MAX,
    Transfer,
    arriving,
    choose,
    flow_aware,
    flow_class,
    flow_subclass,
)

A_TO_B = Transfer("a", "b")


def view(name: str, native: str, at: tuple[str, ...] = (), load: float = 0.1) -> FragmentView:
    return FragmentView(name, load, 1000.0, native, at)


@pytest.mark.parametrize(("native", "expected"), [("b", 1), ("c", 2), ("a", 3)])
def test_classes_by_where_the_stream_arrives(native: str, expected: int) -> None:
    assert flow_class(view("f", native), A_TO_B) == expected


@pytest.mark.parametrize(
    ("at", "expected"), [(("b",), 1), (("a", "b"), 2), (("c",), 3), ((), 3), (("a", "c"), 4)]
)
def test_subclasses_by_where_the_neighbours_run(at: tuple[str, ...], expected: int) -> None:
    assert flow_subclass(view("f", "x", at), A_TO_B) == expected


def test_flow_aware_orders_by_class_then_subclass_then_density() -> None:
    fragments = [
        view(f"{native}{n}{load}", native, at, load)
        for native, (n, at), load in itertools.product(
            "bca", enumerate([("b",), ("a", "b"), (), ("a",)]), [0.2, 0.1]
        )
    ]
    expected = [fragment.id for fragment in fragments]
    shuffled = fragments[5:] + fragments[:5]
    ordered = sorted(shuffled, key=lambda fragment: flow_aware(fragment, A_TO_B))
    assert [fragment.id for fragment in ordered] == expected


def test_intermediate_prefers_foreign_elementary_only_density() -> None:
    native, foreign = view("n", "a", load=0.3), view("f", "c", load=0.1)
    pick = {
        name: choose([native, foreign], A_TO_B, 0.3, SELECTIONS.get(name))
        for name in ("elementary", "intermediate")
    }
    assert pick["elementary"] == [native]
    assert pick["intermediate"] == [foreign]


views = st.lists(
    st.builds(
        FragmentView,
        st.uuids().map(str),
        st.floats(0, 0.3),
        st.floats(0, 1e6),
        st.sampled_from("abc"),
        st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(tuple),
    ),
    max_size=12,
)


@pytest.mark.parametrize("name", SELECTIONS.names())
@given(fragments=views, limit=st.floats(0, 1))
def test_every_selection_is_total_deterministic_and_within_the_limit(
    name: str, fragments: list[FragmentView], limit: float
) -> None:
    key = SELECTIONS.get(name)
    chosen = choose(fragments, A_TO_B, limit, key)
    assert chosen == choose(list(reversed(fragments)), A_TO_B, limit, key)
    assert sum(fragment.load for fragment in chosen) <= limit + 1e-9
    left = [f for f in fragments if f not in chosen and f.load > 0]
    room = limit - sum(fragment.load for fragment in chosen)
    assert all(fragment.load > room - 1e-9 for fragment in left)  # as much as possible


def in_job(name: str, load: float, alone: float, job: str = "j") -> FragmentView:
    return FragmentView(name, load, 1000.0, "x", (), jobs=((job, alone),))


def test_a_shared_job_is_split_only_where_nothing_else_fits() -> None:
    members = [in_job(f"m{n}", 0.05, 0.2) for n in range(6)]
    single = view("s", "x", load=0.1)
    assert choose([*members, single], A_TO_B, 0.2, flow_aware) == [single]
    assert choose(members, A_TO_B, 0.2, flow_aware) == members[:4]
    pair = in_job("z", 0.05, 0.16, "k")
    assert choose([*members, pair], A_TO_B, 0.09, flow_aware) == [pair], "loses least"
    assert choose(members, A_TO_B, 0.08, flow_aware) == [], "0.25 there for 0.05 here"
    assert choose(members, A_TO_B, 0.09, flow_aware) == members[:1]


def test_companions_of_one_that_leaves_cost_no_more_than_here() -> None:
    members = [in_job(f"m{n}", 0.05, 0.1) for n in range(3)]
    other = in_job("o", 0.05, 0.1, "k")
    assert choose([*members, other], A_TO_B, 0.3, flow_aware) == members


def test_what_shares_a_job_leaves_together_where_it_fits() -> None:
    """Half of a job there and half here would be its fixed cost twice: the sum of loads grows."""
    light = [in_job(f"l{n}", 0.04, 0.1) for n in range(3)]
    heavy = [in_job(f"h{n}", 0.09, 0.2, "k") for n in range(3)]
    assert choose([*heavy, *light], A_TO_B, 0.2, flow_aware) == light, "the whole of one job"
    assert arriving(light, heavy) == [0.04] * 3, "no more there than here"
    assert choose([*heavy, *light], A_TO_B, 0.4, flow_aware) == [*heavy, *light]
    split = choose([*heavy, *light], A_TO_B, 0.1, flow_aware)
    assert len(split) == 1
    rest = [f for f in (*heavy, *light) if f not in split]
    assert arriving(split, rest)[0] > split[0].load, "a part of a job begins it anew"
    wide = [in_job(f"w{n:02}", 0.01, 0.1) for n in range(TOGETHER_MAX + 1)]
    assert len(choose(wide, A_TO_B, 0.2, flow_aware)) < len(wide), "a move stays short"


def test_of_equal_ones_the_worst_served_leaves_first() -> None:
    key = SELECTIONS.get("ratio_aware")
    well = FragmentView("a", 0.1, 10.0, "c", (), "q", 2.0)
    badly = FragmentView("b", 0.1, 1000.0, "c", (), "r", 9.0)
    home = FragmentView("c", 0.1, 1000.0, "b", (), "s", 1.0)
    order = sorted([well, badly, home], key=lambda f: key(f, A_TO_B))
    assert [f.id for f in order] == ["c", "b", "a"]
