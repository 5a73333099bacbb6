"""Near misses: what a misspelt name was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The most similar choice, in its own spelling.

    >>> nearest("statsu", ["host", "status"])
    'status'
    """
    by_lower = {choice.lower(): choice for choice in sorted(choices, reverse=True)}
    found = get_close_matches(name.lower(), sorted(by_lower), 1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """` did you mean status?`, as the second half of a message; empty where nothing is near."""
    near = nearest(name, choices)
    return f"; did you mean {near}?" if near else ""
