"""Results of large input against DuckDB's, without holding either in memory.

Rows of filters and joins are compared by their number and by a sum over digests of rows, which no
order changes. Means are compared one by one, as near as doubles come that were added in another
order. Joins are made a piece of time at a time.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from millstream_bench.large.workload import CHUNK, Asked, Part
from millstream_bench.throughput.mix import START_US

JOIN_US = 5_000_000
TOLERANCE = 1e-9
Digest = tuple[int, int]  # rows, sum over their digests


class Oracle:
    """DuckDB over the files of both streams, and over files of results."""

    def __init__(self, data: Path, part: Part, rows: int, scratch: Path) -> None:
        self._part, self._rows = part, rows
        self._db = duckdb.connect()
        self._db.execute("SET TimeZone = 'UTC'")
        self._db.execute("SET memory_limit = '3GB'")
        self._db.execute(f"SET temp_directory = '{scratch}'")
        for stream in part.streams:
            self._db.execute(
                f'CREATE VIEW {stream} AS SELECT epoch_us("at") AS t, k, g, v, "at" AS stamp '
                f"FROM read_parquet('{data}/{stream}/*.parquet')"
            )

    def close(self) -> None:
        self._db.close()

    def differences(self, asks: Sequence[Asked], results: Path) -> dict[str, tuple[int, int]]:
        """For each query how many rows it gave, and how many differ (at least one if any does)."""
        found: dict[str, tuple[int, int]] = {}
        for kind, theirs in (("filter", self._filters), ("join", self._joins)):
            mine = [a for a in asks if a.kind == kind]
            if mine:
                for ask, expected in zip(mine, theirs([a.limit for a in mine]), strict=True):
                    got = self._digest_of(results / ask.name, kind)
                    wrong = max(1, abs(got[0] - expected[0])) if got != expected else 0
                    found[ask.name] = (got[0], wrong)
        for ask in asks:
            if ask.kind in ("average", "day"):
                found[ask.name] = self._means(ask, results / ask.name)
        return found

    # -- filters and joins ----------------------------------------------------------------------

    def _filters(self, limits: Sequence[float]) -> list[Digest]:
        return self._digests(f"SELECT {_DIGEST['filter']} AS d, v FROM a", limits)

    def _joins(self, limits: Sequence[float]) -> list[Digest]:
        found = [(0, 0)] * len(limits)
        last = START_US + self._rows * (1_000_000 // self._part.rows_a_second)
        step = CHUNK * (1_000_000 // self._part.rows_a_second)
        for begin in range(START_US, last, step):
            x = _times("a", begin, begin + step)
            y = _times("b", begin - JOIN_US, begin + step + JOIN_US)
            near = (
                f"SELECT x.t, y.t AS bt, x.k, x.v, y.v AS bv FROM "
                f"(SELECT *, t // {JOIN_US} AS place FROM {x} WHERE v > {min(limits)}) AS x JOIN "
                f"(SELECT *, t // {JOIN_US} + unnest([-1, 0, 1]) AS place FROM {y}) AS y "
                f"ON x.k = y.k AND x.place = y.place AND abs(x.t - y.t) <= {JOIN_US}"
            )
            piece = self._digests(f"SELECT {_DIGEST['join']} AS d, v FROM ({near})", limits)
            found = [(n + m, s + t) for (n, s), (m, t) in zip(found, piece, strict=True)]
        return found

    def _digests(self, rows: str, limits: Sequence[float]) -> list[Digest]:
        """Of rows with a digest `d` and a value `v`: those above each limit."""
        sums = ", ".join(
            f"count(*) FILTER (v > {c}), coalesce(sum(d::HUGEINT) FILTER (v > {c}), 0)"
            for c in limits
        )
        (told,) = self._db.execute(f"SELECT {sums} FROM ({rows})").fetchall()
        return [(int(told[i]), int(told[i + 1])) for i in range(0, len(told), 2)]

    def _digest_of(self, folder: Path, kind: str) -> Digest:
        if not any(folder.glob("*.parquet")):
            return (0, 0)
        rows = f"SELECT {_OF[kind]} FROM read_parquet('{folder}/*.parquet')"
        told = self._db.execute(
            f"SELECT count(*), coalesce(sum({_DIGEST[kind]}::HUGEINT), 0) FROM ({rows})"
        ).fetchone()
        assert told is not None
        return int(told[0]), int(told[1])

    # -- means ----------------------------------------------------------------------------------

    def _means(self, ask: Asked, folder: Path) -> tuple[int, int]:
        if not any(folder.glob("*.parquet")):
            return (0, 1)
        theirs = self._tumbled(ask.limit) if ask.kind == "average" else self._days(ask.limit)
        ours = f"SELECT g, mean, epoch_us(ts) AS t FROM read_parquet('{folder}/*.parquet')"
        near = f"abs(o.mean - x.mean) <= {TOLERANCE} * greatest(1, abs(x.mean))"
        told = self._db.execute(
            f"SELECT count(o.t), count(*) FILTER (o.t IS NULL OR x.t IS NULL OR NOT {near}) "
            f"FROM ({ours}) AS o FULL JOIN ({theirs}) AS x ON o.g = x.g AND o.t = x.t"
        ).fetchone()
        assert told is not None
        rows = self._db.execute(f"SELECT count(*) FROM ({ours})").fetchone()
        assert rows is not None
        return int(rows[0]), int(told[1]) + abs(int(rows[0]) - int(told[0]))

    def _tumbled(self, limit: float) -> str:
        """Means of ten seconds, every five."""
        panes = (
            f"SELECT g, t - t % 5000000 AS pane, sum(v) AS s, count(*) AS n FROM a WHERE v > "
            f"{limit} GROUP BY ALL"
        )
        return (
            "SELECT g, pane + later AS t, sum(s) / sum(n) AS mean FROM "
            f"(SELECT *, unnest([5000000, 10000000]) AS later FROM ({panes})) GROUP BY g, t"
        )

    def _days(self, limit: float) -> str:
        """Means of a day, every second in which some window of the group holds a row.

        Sums up to each second, exact; what lies between two of them is a window.
        """
        second, day = 1_000_000, 86_400 * 1_000_000
        last = START_US + (self._rows - 1) * (1_000_000 // self._part.rows_a_second)
        ends = (
            f"SELECT g, t FROM range(0, {self._part.sites}) AS gs(g), "
            f"range({START_US} + {second}, {last - last % second + second + day}, {second}) "
            "AS ts(t)"
        )
        sums = (
            "SELECT g, pane, sum(s) OVER w AS s, sum(n) OVER w AS n FROM (SELECT g, t - t % "
            f"{second} + {second} AS pane, sum(v::DECIMAL(38, 15)) AS s, count(*) AS n FROM a "
            f"WHERE v > {limit} GROUP BY ALL) WINDOW w AS (PARTITION BY g ORDER BY pane)"
        )
        return (
            "SELECT e.g, e.t, (upto.s - coalesce(before.s, 0))::DOUBLE / "
            f"(upto.n - coalesce(before.n, 0)) AS mean FROM ({ends}) AS e "
            f"ASOF JOIN ({sums}) AS upto ON e.g = upto.g AND e.t >= upto.pane "
            f"ASOF LEFT JOIN ({sums}) AS before ON e.g = before.g AND e.t - {day} >= before.pane "
            "WHERE upto.n > coalesce(before.n, 0)"
        )


# rows as ours gives them, and their digests; `at` is a word of DuckDB's own
_OF = {
    "filter": 'epoch_us("at") AS t, k, v',
    "join": 'epoch_us("at") AS t, epoch_us(bt) AS bt, k, v, bv',
}
_DIGEST = {"filter": "hash(t, k, v)", "join": "hash(t, bt, k, v, bv)"}


def _times(stream: str, begin: int, end: int) -> str:
    return (
        f"(SELECT * FROM {stream} WHERE stamp >= make_timestamptz({begin}) "
        f"AND stamp < make_timestamptz({end}))"
    )
