"""The joins of AJoin's experiments: ad-hoc, of two to four streams, in windows of few seconds.

Every query joins a chain of streams by one key and selects rows of the first by a limit of its own;
chains begin at different streams, so that some share a join of two and others nothing.
"""

from millstream_bench.rules.scenarios import Mix

STREAMS = ("a", "b", "c", "d")
SECONDS = (1, 2, 3)


def chain_of(number: int) -> tuple[tuple[str, ...], int]:
    """The streams of a query, and its window in seconds.

    >>> chain_of(0), chain_of(1), chain_of(5)
    ((('a', 'b'), 1), (('b', 'c', 'd'), 1), (('b', 'c', 'd', 'a'), 2))
    """
    first, size = number % len(STREAMS), 2 + number % 3
    chain = tuple(STREAMS[(first + i) % len(STREAMS)] for i in range(size))
    return chain, SECONDS[number // 3 % len(SECONDS)]


def cql(number: int, limit: float) -> str:
    chain, seconds = chain_of(number)
    window = f"[RANGE {seconds} SECOND{'S' if seconds > 1 else ''}]"
    joined = "".join(
        f" JOIN {stream} AS x{i} {window} ON x0.k = x{i}.k"
        for i, stream in enumerate(chain)
        if i > 0
    )
    return f"SELECT {_columns(chain)} FROM {chain[0]} AS x0 {window}{joined} WHERE x0.v > {limit}D"


def duckdb_sql(number: int, limit: float, start_us: int) -> str:
    """The same over tables; the time comes last."""
    chain, seconds = chain_of(number)
    text = f"SELECT {_columns(chain)}, greatest({_all(chain, 't')}) AS t FROM {chain[0]} AS x0"
    for i, stream in enumerate(chain[1:], start=1):
        near = _all(chain[: i + 1], "t")
        text += (
            f" JOIN {stream} AS x{i} ON x0.k = x{i}.k AND greatest({near}) <= "
            f"least({near}) + INTERVAL {seconds} SECOND"
        )
    begun = " AND ".join(f"x{i}.t >= make_timestamptz({start_us})" for i in range(len(chain)))
    return f"{text} WHERE x0.v > {limit} AND {begun}"


def _columns(chain: tuple[str, ...]) -> str:
    values = ", ".join(f"x{i}.v AS v{i}" for i in range(len(chain)))
    return f"x0.k, {values}, greatest({_all(chain, 'sent')}) AS sent"


def _all(chain: tuple[str, ...], column: str) -> str:
    return ", ".join(f"x{i}.{column}" for i in range(len(chain)))


JOINS = Mix(cql, duckdb_sql, STREAMS)
