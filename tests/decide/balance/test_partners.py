"""Algorithm 1: whom to ask, whom to accept."""

from millstream.decide.balance.partners import (
    Limits,
    Partners,
    answered,
    consider,
    refreshed,
    seek,
    without,
)

OTHERS = tuple("bcdefgh")


def first(below: int) -> int:
    return 0


def test_neighbours_come_first_by_factor_and_no_more_than_the_limit() -> None:
    partners = Partners(neighbours=("c", "b", "d"), others=OTHERS)
    partners, asked = seek(partners, Limits(2, 1), first)
    assert asked == ("c", "b")
    assert partners.waiting == {"c", "b"}
    assert partners.asked == frozenset()


def test_a_refusal_goes_on_with_the_next_an_acceptance_does_not() -> None:
    partners, _ = seek(Partners(neighbours=("c", "b", "d"), others=OTHERS), Limits(2, 1), first)
    partners, asked = seek(answered(partners, "c", accepted=True), Limits(2, 1), first)
    assert asked == ()
    partners, asked = seek(answered(partners, "b", accepted=False), Limits(2, 1), first)
    assert asked == ("d",)
    assert partners.asked == {"c"}


def test_strangers_are_tried_at_random_when_neighbours_are_used_up() -> None:
    partners = Partners(neighbours=("c",), others=OTHERS)
    partners, asked = seek(partners, Limits(3, 2, random_tries_max=2), lambda below: below - 1)
    assert asked == ("c", "h", "g")
    partners = answered(answered(partners, "h", accepted=False), "g", accepted=False)
    partners, asked = seek(partners, Limits(3, 2, random_tries_max=2), first)
    assert asked == ()  # MaximumTry is reached


def test_one_who_asked_us_before_becomes_our_own_partner_without_a_message() -> None:
    partners = Partners(accepted=frozenset("c"), neighbours=("c",), others=OTHERS)
    partners, asked = seek(partners, Limits(1, 1, random_tries_max=0), first)
    assert asked == ()
    assert partners.asked == {"c"}
    assert partners.accepted == frozenset()


def test_requests_are_accepted_up_to_the_limit_of_the_second_group() -> None:
    limits = Limits(2, 1)
    partners, yes = consider(Partners(), "b", limits)
    assert yes
    assert partners.accepted == {"b"}
    again, yes = consider(partners, "b", limits)  # repeated message
    assert yes
    assert again == partners
    same, yes = consider(partners, "c", limits)
    assert not yes
    assert same == partners
    more, yes = consider(partners, "c", limits, welcome=True)  # it probed us and we have room
    assert yes
    assert more.accepted == {"b", "c"}


def test_two_who_ask_each_other_are_partners_in_the_first_group() -> None:
    partners, yes = consider(Partners(waiting=frozenset("b")), "b", Limits(2, 0))
    assert yes
    assert partners.asked == {"b"}
    assert partners.waiting == frozenset()


def test_an_answer_nobody_waits_for_changes_nothing() -> None:
    assert answered(Partners(), "b", accepted=True) == Partners()


def test_a_refresh_forgets_the_silent_and_the_unanswered() -> None:
    partners = Partners(frozenset("bc"), frozenset("d"), frozenset("e"), 7)
    partners = refreshed(partners, ("x",), OTHERS, ["c", "d"])
    assert (partners.asked, partners.accepted) == (frozenset("b"), frozenset())
    assert (partners.waiting, partners.cursor) == (frozenset(), 0)


def test_without() -> None:
    partners = without(Partners(frozenset("bc"), frozenset("d"), frozenset("e")), "bde")
    assert partners.all == {"c"}
    assert partners.waiting == frozenset()


def test_no_partners_at_all_when_the_limit_is_zero() -> None:
    assert Limits.of(0) == Limits(0, 0)
    _, asked = seek(Partners(neighbours=("b",), others=OTHERS), Limits.of(0), first)
    assert asked == ()
