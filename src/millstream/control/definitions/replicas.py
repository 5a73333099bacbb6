"""How many processors may be asked to have the same: 1, 2 or 3."""

from millstream.core.errors import UsageError

REPLICAS_MAX = 3
REPLICAS_HINT = "replicas = 2"


def replicas_problem(value: object) -> str:
    """What is wrong with a number of replicas, if anything is.

    >>> replicas_problem(2), replicas_problem("2")
    ('', "replicas are 1, 2 or 3, not '2'")
    """
    fits = type(value) is int and 1 <= value <= REPLICAS_MAX
    return "" if fits else f"replicas are 1, 2 or 3, not {value!r}"


def needs_a_cluster(what: str, replicas: int) -> UsageError:
    """One processor alone has nobody to keep a copy."""
    return UsageError(
        f"{what} asks for {replicas} replicas, and there is one processor",
        hint="run it on a cluster (millstream up), or leave replicas out",
    )
