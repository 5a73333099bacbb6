"""Running operators as fragments: what stays together, where its stream enters, who is near."""

import random

from millstream.decide.balance.protocol import FragmentView
from millstream.decide.balance.running import (
    RunningOperator,
    Surroundings,
    base_of,
    neighbours,
    running_fragments,
    view,
)


def operator(name: str, *inputs: str, load: float = 0.1, queries: tuple[str, ...] = ("q",)):  # type: ignore[no-untyped-def]
    return RunningOperator(f"o:{name}", inputs, load, 10.0, queries)


def test_a_path_from_a_stream_upwards_is_one_fragment() -> None:
    chain = [operator("c", "o:b"), operator("a", "s:x"), operator("b", "o:a")]
    (found,) = running_fragments(chain, {})
    assert found.names == ("o:a", "o:b", "o:c")
    assert found.inputs == ("s:x",)


def test_a_join_stays_with_the_side_that_gives_most_rows() -> None:
    sides = [operator("l", "s:x"), operator("r", "s:y"), operator("j", "o:l", "o:r")]
    more_left = running_fragments(sides, {"o:l": 9.0, "o:r": 2.0})
    more_right = running_fragments(sides, {"o:l": 2.0, "o:r": 9.0})
    assert {f.names for f in more_left} == {("o:l", "o:j"), ("o:r",)}
    assert {f.names for f in more_right} == {("o:r", "o:j"), ("o:l",)}


def test_what_several_read_leaves_alone() -> None:
    shared = [operator("f", "s:x"), operator("u", "o:f"), operator("v", "o:f")]
    assert {f.names for f in running_fragments(shared, {})} == {("o:f",), ("o:u",), ("o:v",)}


def test_readers_of_one_base_stream_are_fragments_of_their_own() -> None:
    both = [operator("u", "s:x"), operator("v", "s:x")]
    assert len(running_fragments(both, {"s:x": 5.0})) == 2


def test_every_operator_is_in_one_fragment() -> None:
    chance = random.Random(5)
    for _ in range(200):
        made = []
        for n in range(chance.randrange(1, 12)):
            below = [f"o:{m}" for m in range(n)] + ["s:x", "s:y"]
            made.append(operator(str(n), *chance.sample(below, chance.randrange(1, 3))))
        rows = {o.id: chance.random() for o in made}
        chance.shuffle(made)
        found = running_fragments(made, rows)
        assert sorted(n for f in found for n in f.names) == sorted(o.id for o in made)
        for fragment in found:
            place = {name: n for n, name in enumerate(fragment.names)}
            for one in fragment.operators:
                assert all(place[s] < place[one.id] for s in one.inputs if s in place)


def test_a_fragment_as_the_selection_sees_it() -> None:
    around = Surroundings(
        "me",
        rows={"s:x": 10.0, "o:far": 4.0, "s:y": 1.0},
        made_at={"o:far": "p2"},
        read_at={"o:b": {"p3"}},
        entered_at={"s:x": "p1", "s:y": "p2"},
        inputs={"o:far": ("s:y", "s:x")},
    )
    lower, upper = operator("a", "s:x", load=0.2), operator("b", "o:a", "o:far", load=0.3)
    (found,) = running_fragments([lower, upper], {"o:a": 9.0, "o:far": 4.0})
    seen = view(found, around)
    assert seen == FragmentView("o:b", 0.5, 20.0, "p1", ("p2", "p3"), "q", 0.0)
    (alone,) = running_fragments([operator("z", "o:far")], {})
    assert base_of(alone, around) == "s:x", "down through operators elsewhere, by most rows"
    assert view(alone, around).native == "p1"


def test_readers_here_are_neighbours_here() -> None:
    around = Surroundings("me", readers={"o:f": {"o:u", "o:v"}, "s:x": {"o:f"}})
    shared = [operator("f", "s:x"), operator("u", "o:f"), operator("v", "o:f")]
    seen = {f.id: view(f, around) for f in running_fragments(shared, {})}
    assert all(v.neighbours_at == ("me",) for v in seen.values())
    assert seen["o:f"].native == "me", "a stream of which nothing is known counts as one of ours"


def test_whom_fragments_have_most_to_do_with_comes_first() -> None:
    views = [
        FragmentView("a", 0.1, 0.0, "p2", ("p1", "me")),
        FragmentView("b", 0.1, 0.0, "p1", ("p1",)),
        FragmentView("c", 0.1, 0.0, "me", ()),
    ]
    assert neighbours(views, "me") == ("p1", "p2")
