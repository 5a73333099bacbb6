"""Queries of set cost and selectivity, for experiments on the real engine (seed 001, section 6.1).

Selectivity is a draw by hash from the row itself, so that every run and every plan passes the same
rows; cost is text that is hashed for each row, so that Spark cannot guess the answer. The engine
folds a filter over a filter into one operator, so that lines of unary operators, as in the seed's
first plan, exist in virtual time only; joins and aggregates stay operators of their own.
"""

DRAWS = 1_000_000
BYTES_A_MICROSECOND = 300  # that SHA-512 gets through in Java on a core of today, about
TEXT_BYTES = 6  # of a number as text


def passes(selectivity: float, number: int, *columns: str) -> str:
    """A predicate that lets this part of all rows through; another part for each number.

    >>> passes(0.25, 3, "k", "v")
    'pmod(xxhash64(k, v, 3), 1000000) < 250000'
    """
    return f"pmod(xxhash64({', '.join((*columns, str(number)))}), {DRAWS}) < " + str(
        round(selectivity * DRAWS)
    )


def work(cost_us: float, column: str) -> str:
    """A predicate that is always true and costs so much for each row.

    >>> work(10, "v")
    'length(sha2(repeat(cast(v AS string), 500), 512)) > 0'
    """
    times = max(1, round(cost_us * BYTES_A_MICROSECOND / TEXT_BYTES))
    return f"length(sha2(repeat(cast({column} AS string), {times}), 512)) > 0"


def unary(stream: str, cost_us: float, selectivity: float, number: int) -> str:
    """A filter over a stream with columns k and v; its cost falls on rows that pass only.

    >>> unary("a", 10, 0.5, 7)[:44]
    'SELECT k, v FROM a WHERE pmod(xxhash64(k, v,'
    """
    return (
        f"SELECT k, v FROM {stream} WHERE {passes(selectivity, number, 'k', 'v')}"
        f" AND {work(cost_us, 'v')}"
    )


def join(left: str, right: str, window: str, selectivity: float, number: int) -> str:
    """A window join on k; `selectivity` is of its candidate pairs.

    >>> join("a", "b", "1 SECOND", 0.1, 2)[:60]
    'SELECT l.k, l.v AS x, r.v AS y FROM a [RANGE 1 SECOND] l JOI'
    """
    return (
        f"SELECT l.k, l.v AS x, r.v AS y FROM {left} [RANGE {window}] l"
        f" JOIN {right} [RANGE {window}] r ON l.k = r.k + {number}"
        f" WHERE {passes(selectivity, number, 'l.v', 'r.v')}"
    )
