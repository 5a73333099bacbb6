"""Nexmark q1, q3, q4, q5, q7, q8 in CQL; input and expected rows lie in tests/data/nexmark.

The expected files give one row a line in any order, without the result's time.
"""

import csv
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from oracle.cases.case import Case, Scene
from oracle.compare import microseconds
from oracle.model import (
    SECOND,
    WINDOW_START,
    Column,
    Item,
    Now,
    Query,
    Range,
    Row,
    Select,
    Source,
    Stream,
    Sub,
    agg,
    expr,
    item,
)

FOLDER = Path(__file__).parents[2] / "data" / "nexmark"
COLUMNS = {
    "person": {
        "id": "bigint",
        "name": "string",
        "email_address": "string",
        "credit_card": "string",
        "city": "string",
        "state": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
    "auction": {
        "id": "bigint",
        "item_name": "string",
        "description": "string",
        "initial_bid": "bigint",
        "reserve": "bigint",
        "date_time": "timestamp",
        "expires": "timestamp",
        "seller": "bigint",
        "category": "bigint",
        "extra": "string",
    },
    "bid": {
        "auction": "bigint",
        "bidder": "bigint",
        "price": "bigint",
        "channel": "string",
        "url": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
}
READERS: dict[str, Any] = {
    "bigint": int,
    "string": str,
    "timestamp": lambda text: microseconds(datetime.fromisoformat(text)),
    "double": float,
    "decimal": Decimal,
}


def load(name: str) -> Stream:
    columns = COLUMNS[name]
    rows = []
    with (FOLDER / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        for record in csv.DictReader(file):
            values = tuple(READERS[kind](record[column]) for column, kind in columns.items())
            rows.append(Row(values[list(columns).index("date_time")], values))
    return Stream(name, tuple(Column(n, t) for n, t in columns.items()), tuple(rows))


def expected(name: str, *kinds: str) -> tuple[tuple[Any, ...], ...]:
    """The rows of an expected file; columns are parted by tabs, in q7 by blanks."""
    found = []
    for line in (FOLDER / "expected" / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        fields = line.split("\t") if "\t" in line else line.split(" ", len(kinds) - 1)
        found.append(tuple(READERS[k](text) for k, text in zip(kinds, fields, strict=True)))
    return tuple(found)


TEN_SECONDS = Range(10 * SECOND, 10 * SECOND)
COUNTS = Select(
    (item("auction"), Item(agg("count(*)"), "num")),
    (Source("bid", window=Range(10 * SECOND, 2 * SECOND)),),
    keys=(expr("auction"),),
)
NEW_PEOPLE = Select(
    (item("id"), item("name"), Item(WINDOW_START, "starttime")),
    (Source("person", window=TEN_SECONDS),),
    keys=(expr("id"), expr("name")),
)
SELLERS = Select(
    (item("seller"),), (Source("auction", window=TEN_SECONDS),), keys=(expr("seller"),)
)


def _case(name: str, query: Query, cql: str, *kinds: str) -> Case:
    return Case(name, query, cql, expected(name, *kinds), timeless=True)


NEXMARK = Scene(
    "nexmark",
    tuple(load(name) for name in COLUMNS),
    (
        _case(
            "q1",
            Select(
                (
                    item("auction"),
                    item("bidder"),
                    item("0.908 * price", "price"),
                    item("date_time"),
                ),
                (Source("bid"),),
            ),
            "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
            "bigint",
            "bigint",
            "decimal",
            "timestamp",
        ),
        _case(
            "q3",
            Select(
                (item("p.name"), item("p.city"), item("p.state"), item("a.id")),
                (Source("auction", "a"), Source("person", "p")),
                where=expr("a.seller = p.id AND a.category = 10 AND p.state IN ('or', 'id', 'ca')"),
            ),
            "SELECT p.name, p.city, p.state, a.id FROM auction AS a, person AS p"
            " WHERE a.seller = p.id AND a.category = 10 AND p.state IN ('or', 'id', 'ca')",
            "string",
            "string",
            "string",
            "bigint",
        ),
        _case(
            "q4",
            Select(
                (item("q.category"), Item(agg("avg(q.final)"), "mean")),
                (
                    Sub(
                        Select(
                            (item("a.category"), Item(agg("max(b.price)"), "final")),
                            (Source("auction", "a"), Source("bid", "b")),
                            where=expr(
                                "a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
                            ),
                            keys=(expr("a.id"), expr("a.category")),
                        ),
                        "q",
                    ),
                ),
                keys=(expr("q.category"),),
            ),
            "SELECT q.category, avg(q.final) AS mean FROM"
            " (SELECT a.category, max(b.price) AS final FROM auction AS a, bid AS b"
            " WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires"
            " GROUP BY a.id, a.category) AS q GROUP BY q.category",
            "bigint",
            "double",
        ),
        _case(
            "q5",
            Select(
                (item("c.auction"), item("c.num")),
                (
                    Sub(COUNTS, "c", Now(), "counts"),
                    Sub(
                        Select(
                            (Item(agg("max(d.num)"), "most"),), (Sub(COUNTS, "d", Now(), "counts"),)
                        ),
                        "m",
                        Now(),
                    ),
                ),
                where=expr("c.num >= m.most"),
            ),
            "WITH counts AS (SELECT auction, count(*) AS num"
            " FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY auction)"
            " SELECT c.auction, c.num FROM counts AS c [NOW],"
            " (SELECT max(d.num) AS most FROM counts AS d [NOW]) AS m [NOW]"
            " WHERE c.num >= m.most",
            "bigint",
            "bigint",
        ),
        _case(
            "q7",
            Select(
                (item("b.auction"), item("b.price"), item("b.bidder"), item("b.date_time")),
                (
                    Source("bid", "b", Range(10 * SECOND)),
                    Sub(
                        Select(
                            (Item(agg("max(price)"), "most"),), (Source("bid", window=TEN_SECONDS),)
                        ),
                        "m",
                        Now(),
                    ),
                ),
                where=expr("b.price = m.most"),
            ),
            "SELECT b.auction, b.price, b.bidder, b.date_time FROM bid AS b [RANGE 10 SECONDS],"
            " (SELECT max(price) AS most FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]) AS m [NOW]"
            " WHERE b.price = m.most",
            "bigint",
            "bigint",
            "bigint",
            "timestamp",
        ),
        _case(
            "q8",
            Select(
                (item("p.id"), item("p.name"), item("p.starttime")),
                (Sub(NEW_PEOPLE, "p", Now()), Sub(SELLERS, "a", Now())),
                where=expr("p.id = a.seller"),
            ),
            "SELECT p.id, p.name, p.starttime FROM (SELECT id, name, window_start AS starttime"
            " FROM person [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY id, name) AS p [NOW],"
            " (SELECT seller FROM auction [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY seller)"
            " AS a [NOW] WHERE p.id = a.seller",
            "bigint",
            "string",
            "timestamp",
        ),
    ),
)
