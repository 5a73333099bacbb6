"""Queries of Nexmark, as ours reads them and as plain Structured Streaming does, and their rows.

Those that plain Spark cannot answer as a stream that only grows (updates of tables, ranks, joins of
aggregates) have no text for it; what ours gives for them is compared with DuckDB's in the tests of
the engine (`tests/engine/test_nexmark.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

BEGIN_US = 1_436_918_400_000_000  # 2015-07-15
SHARES = {"person": 1, "auction": 3, "bid": 46}  # of fifty events, as Nexmark has them
EVENTS_A_SECOND = 1_000
CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-7", "channel-8")
STATES = ("OR", "ID", "CA", "AZ", "WY")
COLUMNS = {
    "person": {
        "id": "bigint", "name": "string", "city": "string", "state": "string",
        "date_time": "timestamp",
    },
    "auction": {
        "id": "bigint", "item_name": "string", "initial_bid": "bigint", "date_time": "timestamp",
        "expires": "timestamp", "seller": "bigint", "category": "bigint",
    },
    "bid": {
        "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string",
        "url": "string", "date_time": "timestamp", "extra": "string",
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    ours: str
    plain: str  # over views of the same names; empty where it cannot
    streams: tuple[str, ...] = ("bid",)


def _both(text: str, *streams: str) -> NexmarkQuery:
    return NexmarkQuery(text, text, streams or ("bid",))


CHANNEL = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
PRICED = "CAST(0.908 AS DECIMAL(3,3)) * price"
TUMBLE = "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
WINDOW = "window_start AS starttime, window_end AS endtime"
PLAIN_WINDOW = "window.start AS starttime, window.end AS endtime"
QUERIES: dict[str, NexmarkQuery] = {
    "q0": _both("SELECT auction, bidder, price, date_time, extra FROM bid"),
    "q1": _both(f"SELECT auction, bidder, {PRICED} AS price, date_time, extra FROM bid"),
    "q2": _both("SELECT auction, price FROM bid WHERE auction % 123 = 0"),
    "q3": _both(
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P "
        "ON A.seller = P.id WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
        "auction",
        "person",
    ),
    "q5a": NexmarkQuery(  # its first half: bids of an auction in sliding windows
        f"SELECT auction, count(*) AS num, {WINDOW} FROM {HOP} "
        "GROUP BY auction, window_start, window_end",
        f"SELECT auction, count(*) AS num, {PLAIN_WINDOW} FROM bid "
        "GROUP BY auction, window(date_time, '10 seconds', '2 seconds')",
    ),
    "q7a": NexmarkQuery(  # the highest price of each ten seconds
        f"SELECT max(price) AS price, {WINDOW} FROM {TUMBLE} GROUP BY window_start, window_end",
        f"SELECT max(price) AS price, {PLAIN_WINDOW} FROM bid "
        "GROUP BY window(date_time, '10 seconds')",
    ),
    "q10": _both(
        "SELECT auction, bidder, price, date_time, extra, date_format(date_time, 'yyyy-MM-dd') "
        "AS d, date_format(date_time, 'HH:mm') AS m FROM bid"
    ),
    "q11": NexmarkQuery(
        f"SELECT bidder, count(*) AS bid_count, {WINDOW} FROM TABLE(SESSION(TABLE bid "
        "PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY bidder, window_start, window_end",
        "SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, "
        "session_window.end AS endtime FROM bid "
        "GROUP BY bidder, session_window(date_time, '10 seconds')",
    ),
    "q12": NexmarkQuery(
        f"SELECT bidder, count(*) AS bid_count, {WINDOW} FROM {TUMBLE} "
        "GROUP BY bidder, window_start, window_end",
        f"SELECT bidder, count(*) AS bid_count, {PLAIN_WINDOW} FROM bid "
        "GROUP BY bidder, window(date_time, '10 seconds')",
    ),
    "q14": _both(
        f"SELECT auction, bidder, {PRICED} AS price, CASE WHEN hour(date_time) BETWEEN 8 AND 18 "
        "THEN 'dayTime' WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' "
        "ELSE 'otherTime' END AS bid_time_type, date_time, "
        "length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid "
        f"WHERE {PRICED} > 1000000 AND {PRICED} < 50000000"
    ),
    "q20": _both(
        "SELECT B.auction, B.bidder, B.price, A.item_name, A.initial_bid, A.seller "
        "FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10",
        "bid",
        "auction",
    ),
    "q21": _both(
        "SELECT auction, bidder, price, channel, CASE WHEN lower(channel) = 'apple' THEN '0' "
        "WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2' "
        f"WHEN lower(channel) = 'baidu' THEN '3' ELSE {CHANNEL} END AS channel_id FROM bid "
        f"WHERE {CHANNEL} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"
    ),
    "q22": _both(
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, "
        "split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid"
    ),
}


def tables(events: int, pieces: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """The events of an auction house, in order of time, in so many pieces."""
    random = np.random.default_rng(seed)
    for piece in range(pieces):
        first, last = events * piece // pieces, events * (piece + 1) // pieces
        numbers = np.arange(first, last, dtype=np.int64)
        place = numbers % sum(SHARES.values())
        people = SHARES["person"]
        chosen = {
            "person": numbers[place < people],
            "auction": numbers[(place >= people) & (place < people + SHARES["auction"])],
            "bid": numbers[place >= people + SHARES["auction"]],
        }
        yield {name: _MADE[name](mine, random) for name, mine in chosen.items()}


def _times(numbers: np.ndarray, later_us: int | np.ndarray = 0) -> pa.Array:
    at = BEGIN_US + numbers * (1_000_000 // EVENTS_A_SECOND) + later_us
    return pa.array(at.astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))


def _of(words: tuple[str, ...], numbers: np.ndarray) -> pa.Array:
    return pa.array(np.asarray(words, dtype=object)[numbers % len(words)])


def _people(numbers: np.ndarray, _: np.random.Generator) -> pa.Table:
    ids = numbers // 50
    return pa.table(
        {
            "id": ids,
            "name": [f"person {i}" for i in ids],
            "city": [f"city {i % 7}" for i in ids],
            "state": _of(STATES, ids),
            "date_time": _times(numbers),
        }
    )


def _auctions(numbers: np.ndarray, random: np.random.Generator) -> pa.Table:
    ids = numbers // 50 * 3 + numbers % 50 - 1
    size = len(ids)
    return pa.table(
        {
            "id": ids,
            "item_name": [f"item {i}" for i in ids],
            "initial_bid": random.integers(1, 1_000, size),
            "date_time": _times(numbers),
            "expires": _times(numbers, random.integers(5, 30, size) * 1_000_000),
            "seller": np.maximum(0, numbers // 50 - random.integers(0, 20, size)),
            "category": random.integers(10, 15, size),
        }
    )


def _bids(numbers: np.ndarray, random: np.random.Generator) -> pa.Table:
    size = len(numbers)
    newest = numbers // 50 * 3 + 2
    tails = np.where(random.random(size) < 0.5, "&channel_id=5", "").tolist()
    return pa.table(
        {
            "auction": np.maximum(0, newest - random.integers(0, 100, size)),
            "bidder": np.maximum(0, numbers // 50 - random.integers(0, 1_000, size)),
            "price": (10 ** random.uniform(2, 8, size)).astype(np.int64),
            "channel": _of(CHANNELS, random.integers(0, len(CHANNELS), size)),
            "url": [
                f"https://auctions.example/{n % 3}/{n % 5}/item.htm?query=1{tail}"
                for n, tail in zip(numbers.tolist(), tails, strict=True)
            ],
            "date_time": _times(numbers),
            "extra": _of(("abcab", "cccab", "bbaab", "ccccc"), random.integers(0, 4, size)),
        }
    )


_MADE = {"person": _people, "auction": _auctions, "bid": _bids}
