"""Nexmark as a whole: q0 to q22 as Flink's users write them, and RisingWave's q101 to q108.

Each query beside plain SQL that gives its rows over the whole input (DuckDB, times as whole
microseconds in `date_time`).
"""

import random
from dataclasses import dataclass

from oracle.model import SECOND, Column, Row, Stream

BEGIN = 1_436_918_400 * SECOND  # 2015-07-15
CHANNELS = ("Apple", "Google", "Facebook", "Baidu", "channel-7", "channel-8")


@dataclass(frozen=True, slots=True)
class Whole:
    cql: str
    sql: str


def day(column: str) -> str:
    return f"strftime(make_timestamp({column}), '%Y-%m-%d')"


def minute(column: str) -> str:
    return f"strftime(make_timestamp({column}), '%H:%M')"


def windows(length_s: int, slide_s: int, table: str) -> str:
    """Rows of a table with the end of each window [e - length, e) that holds them."""
    length, slide = length_s * SECOND, slide_s * SECOND
    first = f"date_time - date_time % {slide} + {slide}"
    return (
        f"(SELECT *, unnest(generate_series({first}, date_time - date_time % {slide} + {length}, "
        f"{slide})) AS e FROM {table})"
    )


DURING = "b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires"
HOPS = "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
COUNTED = f"SELECT auction, count(*) AS num, e FROM {windows(10, 2, 'bid')} GROUP BY auction, e"
RANKS = """
       count(*) AS total_bids,
       count(*) FILTER (WHERE price < 10000) AS rank1_bids,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""
DISTINCT_RANKS = """,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions"""
CHANNEL_ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
PERCENTILES = ", ".join(
    f"percentile_disc({p}) WITHIN GROUP (ORDER BY price) AS p{n}"
    for n, p in (("01", "0.01"), ("10", "0.1"), ("50", "0.5"), ("90", "0.9"), ("99", "0.99"))
)
APPROXIMATE = PERCENTILES.replace("percentile_disc(", "approx_percentile(").replace(
    ") WITHIN", ", 0.01) WITHIN"
)
SIDE = "(VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (3, 'three')) AS s (k, value)"

QUERIES: dict[str, Whole] = {
    "q0": Whole(
        "SELECT auction, bidder, price, date_time, extra FROM bid",
        "SELECT auction, bidder, price, date_time, extra FROM bid",
    ),
    "q1": Whole(
        "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
        "SELECT auction, bidder, 0.908::DECIMAL(3,3) * price AS price, date_time, extra FROM bid",
    ),
    "q2": Whole(
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    ),
    "q3": Whole(
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P "
        "ON A.seller = P.id WHERE A.category = 10 AND "
        "(P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
        "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p "
        "ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    ),
    "q4": Whole(
        "SELECT Q.category, AVG(Q.final) AS mean FROM (SELECT MAX(B.price) AS final, A.category "
        "FROM auction A, bid B WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND "
        "A.expires GROUP BY A.id, A.category) Q GROUP BY Q.category",
        "SELECT category, avg(final) AS mean FROM (SELECT max(b.price) AS final, a.category "
        f"FROM auction a, bid b WHERE {DURING} GROUP BY a.id, a.category) GROUP BY category",
    ),
    "q5": Whole(
        "SELECT AuctionBids.auction, AuctionBids.num FROM ("
        "SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime "
        f"FROM {HOPS} GROUP BY auction, window_start, window_end) AS AuctionBids JOIN ("
        "SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime FROM ("
        "SELECT count(*) AS num, window_start AS starttime, window_end AS endtime "
        f"FROM {HOPS} GROUP BY auction, window_start, window_end) AS CountBids "
        "GROUP BY CountBids.starttime, CountBids.endtime) AS MaxBids "
        "ON AuctionBids.starttime = MaxBids.starttime AND "
        "AuctionBids.endtime = MaxBids.endtime AND AuctionBids.num >= MaxBids.maxn",
        f"SELECT auction, num FROM (SELECT *, max(num) OVER (PARTITION BY e) AS most FROM "
        f"({COUNTED})) WHERE num >= most",
    ),
    "q6": Whole(
        "SELECT Q.seller, AVG(Q.final) OVER (PARTITION BY Q.seller ORDER BY Q.date_time "
        "ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM (SELECT MAX(B.price) AS final, "
        "A.seller, max(B.date_time) AS date_time FROM auction AS A, bid AS B "
        "WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires "
        "GROUP BY A.id, A.seller) AS Q",
        "SELECT seller, avg(final) OVER (PARTITION BY seller ORDER BY date_time, final "
        "ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM (SELECT max(b.price) AS final, "
        f"a.seller, max(b.date_time) AS date_time FROM auction a, bid b WHERE {DURING} "
        "GROUP BY a.id, a.seller)",
    ),
    "q7": Whole(
        "SELECT B.auction, B.price, B.bidder, B.date_time, B.extra FROM bid B JOIN ("
        "SELECT MAX(price) AS maxprice, window_end AS date_time FROM "
        "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end) B1 ON B.price = B1.maxprice "
        "WHERE B.date_time BETWEEN B1.date_time - INTERVAL '10' SECOND AND B1.date_time",
        "SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b JOIN ("
        f"SELECT max(price) AS maxprice, e FROM {windows(10, 10, 'bid')} GROUP BY e) AS m "
        f"ON b.price = m.maxprice WHERE b.date_time BETWEEN e - {10 * SECOND} AND e",
    ),
    "q8": Whole(
        "SELECT P.id, P.name, P.starttime FROM (SELECT id, name, window_start AS starttime, "
        "window_end AS endtime FROM "
        "TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, "
        "window_start AS starttime, window_end AS endtime FROM "
        "TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY seller, window_start, window_end) A "
        "ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime",
        f"SELECT DISTINCT p.id, p.name, p.e - {10 * SECOND} AS starttime "
        f"FROM {windows(10, 10, 'person')} AS p JOIN {windows(10, 10, 'auction')} AS a "
        "ON p.id = a.seller AND p.e = a.e",
    ),
    "q9": Whole(
        "SELECT id, item_name, auction, bidder, price, bid_date_time FROM (SELECT A.*, "
        "B.auction, B.bidder, B.price, B.date_time AS bid_date_time, ROW_NUMBER() OVER "
        "(PARTITION BY A.id ORDER BY B.price DESC, B.date_time ASC) AS rownum "
        "FROM auction A, bid B WHERE A.id = B.auction AND "
        "B.date_time BETWEEN A.date_time AND A.expires) WHERE rownum <= 1",
        "SELECT id, item_name, auction, bidder, price, bid_date_time FROM (SELECT a.*, b.auction, "
        "b.bidder, b.price, b.date_time AS bid_date_time, row_number() OVER (PARTITION BY a.id "
        f"ORDER BY b.price DESC, b.date_time) AS n FROM auction a, bid b WHERE {DURING}) "
        "WHERE n <= 1",
    ),
    "q10": Whole(
        "SELECT auction, bidder, price, date_time, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd') "
        "AS d, DATE_FORMAT(date_time, 'HH:mm') AS m FROM bid",
        f"SELECT auction, bidder, price, date_time, extra, {day('date_time')} AS d, "
        f"{minute('date_time')} AS m FROM bid",
    ),
    "q11": Whole(
        "SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime "
        "FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), "
        "INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        "SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, "
        f"max(date_time) + {10 * SECOND} AS endtime FROM (SELECT *, sum(opens) OVER "
        "(PARTITION BY bidder ORDER BY date_time, pos) AS session FROM (SELECT *, coalesce("
        "date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time, pos) >= "
        f"{10 * SECOND}, TRUE)::INT AS opens FROM bid)) GROUP BY bidder, session",
    ),
    "q12": Whole(  # by the time of the rows: a time of the run would be another each time
        "SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime "
        "FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY bidder, window_start, window_end",
        f"SELECT bidder, count(*) AS bid_count, e - {10 * SECOND} AS starttime, e AS endtime "
        f"FROM {windows(10, 10, 'bid')} GROUP BY bidder, e",
    ),
    "q13": Whole(
        "SELECT B.auction, B.bidder, B.price, B.date_time, S.value FROM bid AS B JOIN "
        f"{SIDE} ON mod(B.auction, 5) = S.k",
        "SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid AS b JOIN "
        f"{SIDE} ON b.auction % 5 = s.k",
    ),
    "q14": Whole(  # count_char is the user's own function, which its DDL registers
        "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN HOUR(date_time) >= 8 AND "
        "HOUR(date_time) <= 18 THEN 'dayTime' WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 "
        "THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type, date_time, extra, "
        "count_char(extra, 'c') AS c_counts FROM bid "
        "WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
        "SELECT auction, bidder, 0.908::DECIMAL(3,3) * price AS price, CASE "
        "WHEN hour(make_timestamp(date_time)) BETWEEN 8 AND 18 THEN 'dayTime' "
        "WHEN hour(make_timestamp(date_time)) <= 6 OR hour(make_timestamp(date_time)) >= 20 "
        "THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type, date_time, extra, "
        "(length(extra) - length(replace(extra, 'c', '')))::INT AS c_counts FROM bid "
        "WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    ),
    "q15": Whole(
        f"SELECT DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day, {RANKS}{DISTINCT_RANKS} FROM bid "
        "GROUP BY DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        f"SELECT {day('date_time')} AS day, {RANKS}{DISTINCT_RANKS} FROM bid GROUP BY 1",
    ),
    "q16": Whole(
        "SELECT channel, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day, "
        f"max(DATE_FORMAT(date_time, 'HH:mm')) AS minute, {RANKS}{DISTINCT_RANKS} FROM bid "
        "GROUP BY channel, DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        f"SELECT channel, {day('date_time')} AS day, max({minute('date_time')}) AS minute, "
        f"{RANKS}{DISTINCT_RANKS} FROM bid GROUP BY 1, 2",
    ),
    "q17": Whole(
        f"SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day, {RANKS}, "
        "min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price, "
        "sum(price) AS sum_price FROM bid "
        "GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        f"SELECT auction, {day('date_time')} AS day, {RANKS}, min(price) AS min_price, "
        "max(price) AS max_price, avg(price) AS avg_price, sum(price)::BIGINT AS sum_price "
        "FROM bid GROUP BY 1, 2",
    ),
    "q18": Whole(
        "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, "
        "ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank_number "
        "FROM bid) WHERE rank_number <= 1",
        "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, "
        "row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, pos) AS n "
        "FROM bid) WHERE n <= 1",
    ),
    "q19": Whole(
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) "
        "AS rank_number FROM bid) WHERE rank_number <= 10",
        "SELECT * EXCLUDE (pos, ts_us) FROM (SELECT *, row_number() OVER (PARTITION BY auction "
        "ORDER BY price DESC, date_time, pos) AS rank_number FROM bid) WHERE rank_number <= 10",
    ),
    "q20": Whole(
        "SELECT auction, bidder, price, channel, url, B.date_time AS bid_time, item_name, "
        "description, initial_bid, reserve, A.date_time AS opened, expires, seller, category "
        "FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10",
        "SELECT auction, bidder, price, channel, url, b.date_time AS bid_time, item_name, "
        "description, initial_bid, reserve, a.date_time AS opened, expires, seller, category "
        "FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10",
    ),
    "q21": Whole(
        "SELECT auction, bidder, price, channel, CASE WHEN lower(channel) = 'apple' THEN '0' "
        "WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2' "
        f"WHEN lower(channel) = 'baidu' THEN '3' ELSE {CHANNEL_ID.upper()} END AS channel_id "
        f"FROM bid WHERE {CHANNEL_ID} <> '' OR "
        "lower(channel) IN ('apple', 'google', 'facebook', 'baidu')".replace(
            CHANNEL_ID.upper(), CHANNEL_ID
        ),
        "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' "
        "WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' "
        f"ELSE {CHANNEL_ID} END AS channel_id FROM bid WHERE {CHANNEL_ID} <> '' OR "
        "lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    ),
    "q22": Whole(
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, "
        "SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid",
        "SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1, "
        "string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3 FROM bid",
    ),
    "q101": Whole(
        "SELECT a.id AS auction_id, a.item_name AS item, b.max_price AS highest FROM auction a "
        "LEFT OUTER JOIN (SELECT b1.auction, MAX(b1.price) AS max_price FROM bid b1 "
        "GROUP BY b1.auction) b ON a.id = b.auction",
        "SELECT a.id AS auction_id, a.item_name AS item, b.max_price AS highest FROM auction a "
        "LEFT JOIN (SELECT auction, max(price) AS max_price FROM bid GROUP BY auction) b "
        "ON a.id = b.auction",
    ),
    "q102": Whole(
        "SELECT a.id AS auction_id, a.item_name AS item, COUNT(b.auction) AS bid_count "
        "FROM auction a JOIN bid b ON a.id = b.auction GROUP BY a.id, a.item_name "
        "HAVING COUNT(b.auction) >= (SELECT COUNT(*) / COUNT(DISTINCT auction) FROM bid)",
        "SELECT a.id AS auction_id, a.item_name AS item, count(*) AS bid_count "
        "FROM auction a JOIN bid b ON a.id = b.auction GROUP BY a.id, a.item_name "
        "HAVING count(*) >= (SELECT count(*) / count(DISTINCT auction) FROM bid)",
    ),
    "q103": Whole(
        "SELECT a.id AS auction_id, a.item_name AS item FROM auction a WHERE a.id IN "
        "(SELECT b.auction FROM bid b GROUP BY b.auction HAVING COUNT(*) >= 20)",
        "SELECT a.id AS auction_id, a.item_name AS item FROM auction a WHERE a.id IN "
        "(SELECT auction FROM bid GROUP BY auction HAVING count(*) >= 20)",
    ),
    "q104": Whole(
        "SELECT a.id AS auction_id, a.item_name AS item FROM auction a WHERE a.id NOT IN "
        "(SELECT b.auction FROM bid b GROUP BY b.auction HAVING COUNT(*) < 20)",
        "SELECT a.id AS auction_id, a.item_name AS item FROM auction a WHERE a.id NOT IN "
        "(SELECT auction FROM bid GROUP BY auction HAVING count(*) < 20)",
    ),
    "q105": Whole(
        "SELECT a.id AS auction_id, a.item_name AS item, COUNT(b.auction) AS bid_count "
        "FROM auction a JOIN bid b ON a.id = b.auction GROUP BY a.id, a.item_name "
        "ORDER BY bid_count DESC, auction_id LIMIT 5",
        "SELECT * FROM (SELECT a.id AS auction_id, a.item_name AS item, count(*) AS bid_count "
        "FROM auction a JOIN bid b ON a.id = b.auction GROUP BY a.id, a.item_name) "
        "ORDER BY bid_count DESC, auction_id LIMIT 5",
    ),
    "q106": Whole(
        "SELECT MIN(final) AS min_final FROM (SELECT auction.id, MAX(price) AS final "
        "FROM auction, bid WHERE bid.auction = auction.id AND "
        "bid.date_time BETWEEN auction.date_time AND auction.expires GROUP BY auction.id) AS t",
        f"SELECT min(final) AS min_final FROM (SELECT max(b.price) AS final FROM auction a, bid b "
        f"WHERE {DURING} GROUP BY a.id)",
    ),
    "q107": Whole(f"SELECT {APPROXIMATE} FROM bid", f"SELECT {PERCENTILES} FROM bid"),
    "q108": Whole(
        f"SELECT auction, {APPROXIMATE} FROM bid GROUP BY auction",
        f"SELECT auction, {PERCENTILES} FROM bid GROUP BY auction",
    ),
}

COLUMNS = {
    "person": {
        "id": "bigint", "name": "string", "city": "string", "state": "string",
        "date_time": "timestamp",
    },
    "auction": {
        "id": "bigint", "item_name": "string", "description": "string", "initial_bid": "bigint",
        "reserve": "bigint", "date_time": "timestamp", "expires": "timestamp", "seller": "bigint",
        "category": "bigint",
    },
    "bid": {
        "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "string",
        "url": "string", "date_time": "timestamp", "extra": "string",
    },
}  # fmt: skip


def streams(seed: int, bids: int) -> list[Stream]:
    """A minute of an auction house: every query finds something, bids come out of order."""
    dice = random.Random(seed)
    people, auctions = bids // 10, bids // 5
    made: dict[str, list[Row]] = {name: [] for name in COLUMNS}

    def at(share: float) -> int:
        return BEGIN + int(share * 60 * 1000) * 1000

    for i in range(people):
        state = dice.choice(("OR", "ID", "CA", "AZ", "WY"))
        time = at(i / people)
        made["person"].append(Row(time, (i, f"person {i}", f"city {i % 7}", state, time)))
    for i in range(auctions):
        time = at(i / auctions)
        lasts = dice.randrange(5, 30) * SECOND
        seller = dice.randrange(max(1, i * people // auctions - 4), i * people // auctions + 2)
        first = dice.randrange(1, 1000)
        made["auction"].append(
            Row(time, (3 * i, f"item {i}", f"thing {i % 5}", first, first * 2, time, time + lasts,
                       seller, 10 + i % 3))
        )  # fmt: skip
    for i in range(bids):
        share = i / bids
        time = at(share) - dice.choice((0, 0, 0, 500_000, 1_500_000))
        newest = int(share * auctions)
        auction = 3 * (
            dice.randrange(max(0, newest - 8), newest + 1) if dice.random() < 0.6 else 41
        )
        price = dice.choice((100, 10_000, 1_000_000, 3_000_000)) + i
        channel = dice.choice(CHANNELS)
        tail = f"&channel_id={i % 9}" if dice.random() < 0.5 else ""
        url = f"https://auctions.example/{i % 3}/{i % 5}/item.htm?query=1{tail}"
        extra = "".join(dice.choice("abc") for _ in range(5))
        made["bid"].append(
            Row(time, (auction, dice.randrange(people), price, channel, url, time, extra))
        )
    return [
        Stream(name, tuple(Column(n, t) for n, t in columns.items()), tuple(made[name]), 2 * SECOND)
        for name, columns in COLUMNS.items()
    ]
