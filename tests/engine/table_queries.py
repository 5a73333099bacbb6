"""Queries over tables that change, each in CQL and as DuckDB's SQL over the rows so far."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Both:
    """One query twice. A table is compared at every watermark, a stream at its end."""

    cql: str
    sql: str
    table: bool = True


TA = "(SELECT id, last(k) AS k, sum(v) AS v FROM a GROUP BY id)"
TB = "(SELECT id, last(k) AS k, max(w) AS w FROM b GROUP BY id)"
CURRENT = "a [PARTITION BY id ROWS 1]"
DUCK = {
    TA: "(SELECT id, last(k ORDER BY ts, pos) AS k, sum(v) AS v FROM a GROUP BY id)",
    TB: "(SELECT id, last(k ORDER BY ts, pos) AS k, max(w) AS w FROM b GROUP BY id)",
    CURRENT: "(SELECT DISTINCT ON (id) id, k, v FROM a ORDER BY id, ts DESC, pos DESC)",
}


def same(text: str) -> Both:
    """A query that reads alike in both but for its tables."""
    sql = text
    for cql, duck in DUCK.items():
        sql = sql.replace(cql, duck)
    return Both(text, sql)


JOINED = f"SELECT x.id AS i, y.id AS j, x.v, y.w FROM {TA} x {{kind}} JOIN {TB} y ON {{on}}"
TABLES = {
    "inner": same(JOINED.format(kind="", on="x.k = y.k")),
    "theta": same(JOINED.format(kind="", on="x.v < y.w")),
    "left": same(JOINED.format(kind="LEFT", on="x.k = y.k AND x.v > y.w")),
    "right": same(JOINED.format(kind="RIGHT", on="x.k = y.k")),
    "full": same(JOINED.format(kind="FULL", on="x.k = y.k AND x.id <> y.id")),
    "using": same(f"SELECT k, x.v, y.w FROM {TA} x FULL JOIN {TB} y USING (k)"),
    "chain": same(
        f"SELECT x.id AS i, y.id AS j, z.id AS l FROM {TA} x LEFT JOIN {TB} y ON x.k = y.k"
        f" LEFT JOIN {TA} z ON z.id = y.id"
    ),
    "in": same(f"SELECT id, v FROM {TA} x WHERE k IN (SELECT k FROM {TB} y WHERE w > 1)"),
    "not_in": same(f"SELECT id, v FROM {TA} x WHERE k NOT IN (SELECT k FROM {TB} y WHERE w > 4)"),
    "exists": same(
        f"SELECT id FROM {TA} x WHERE EXISTS (SELECT 1 FROM {TB} y WHERE y.k = x.k AND y.w > x.v)"
    ),
    "not_exists": same(
        f"SELECT id FROM {TA} x WHERE NOT EXISTS (SELECT 1 FROM {TB} y WHERE y.k = x.k)"
        f" AND id IN (SELECT id FROM {TB} y)"
    ),
    "counted": same(
        f"SELECT k, count(*) AS n, sum(y.w) AS w FROM {TA} x LEFT JOIN {TB} y USING (k) GROUP BY k"
    ),
    "stream_beside": same(f"SELECT s.id, s.v, y.w FROM a s LEFT JOIN {TB} y ON s.k = y.k"),
    "stream_in": same(f"SELECT s.id, s.v FROM a s WHERE s.k NOT IN (SELECT k FROM {TB} y)"),
    "current": same(f"SELECT c.id, c.v, y.w FROM {CURRENT} c JOIN {TB} y ON c.k = y.k"),
}
GROUPED = "(SELECT k, count(*) AS n FROM a GROUP BY k)"
MORE_TABLES = {
    "limit": same(f"SELECT id, v FROM {TA} x ORDER BY v DESC, id LIMIT 2"),
    "rank": same(
        f"SELECT id, k, v FROM {TA} x QUALIFY RANK() OVER (PARTITION BY k ORDER BY v DESC) <= 1"
    ),
    "dense": same(
        "SELECT id, r FROM (SELECT id, DENSE_RANK() OVER (ORDER BY v) AS r"
        f" FROM {TA} x) t WHERE r < 3"
    ),
    "over_rank": same(
        f"SELECT sum(v) AS total FROM (SELECT id, v FROM {TA} x ORDER BY v DESC, id LIMIT 2) t"
        " HAVING count(*) > 0"
    ),
    "first_rows": Both(
        "SELECT id, v, w FROM (SELECT id, k, w, w + 1 AS v,"
        " ROW_NUMBER() OVER (PARTITION BY k ORDER BY w DESC) AS r FROM b) t WHERE r <= 2",
        "SELECT id, w + 1, w FROM b QUALIFY ROW_NUMBER() OVER"
        " (PARTITION BY k ORDER BY w DESC, ts, pos) <= 2",
    ),
    "stream_limit": Both(
        "SELECT id, v FROM a ORDER BY v LIMIT 3",
        "SELECT id, v FROM a ORDER BY v, ts, pos LIMIT 3",
    ),
    "distinct_on": Both(
        "SELECT DISTINCT ON (id) id, v FROM a ORDER BY id, v DESC",
        "SELECT DISTINCT ON (id) id, v FROM a ORDER BY id, v DESC, ts, pos",
    ),
    "distinct_on_table": same(f"SELECT DISTINCT ON (k) k, id FROM {TA} x ORDER BY k, v DESC, id"),
    "except": same(f"SELECT k FROM {TA} x EXCEPT SELECT k FROM {TB} y"),
    "intersect": same(f"SELECT k FROM {TA} x INTERSECT SELECT k FROM {TB} y"),
    "except_all": same(f"SELECT k FROM {TA} x EXCEPT ALL SELECT k FROM {TB} y"),
    "intersect_all": same(f"SELECT k FROM {TA} x INTERSECT ALL SELECT k FROM b"),
    "except_streams": same("SELECT id, k FROM a EXCEPT SELECT id, k FROM b"),
    "above_average": same(f"SELECT id, v FROM {TA} x WHERE v > (SELECT avg(w) FROM {TB} y)"),
    "with_value": same(
        f"SELECT id, (SELECT max(w) FROM {TB} y) - v AS d, (SELECT count(*) FROM b) AS n"
        f" FROM {TA} x"
    ),
    "correlated": same(
        f"SELECT id, (SELECT count(*) FROM {TB} y WHERE y.k = x.k AND y.w > 1) AS n FROM {TA} x"
        f" WHERE v >= (SELECT min(w) FROM {TB} z WHERE z.id = x.id)"
    ),
    "pivot": Both(
        f"SELECT id, one, two FROM {TA} x PIVOT (count(*) FOR k IN (1 AS one, 2 AS two))",
        "SELECT id, count(*) FILTER (WHERE k = 1), count(*) FILTER (WHERE k = 2) FROM"
        f" {DUCK[TA]} GROUP BY id, v",
    ),
    "value_of_nothing": same(
        f"SELECT id, (SELECT count(*) + 1 FROM {TB} y WHERE y.k = x.v) AS n, (SELECT count(*) / 2.0"
        f" FROM b WHERE b.w > 100) AS h, (SELECT max(w) + count(*) FROM b WHERE b.w > 100) AS m"
        f" FROM {TA} x"
    ),
    "first_value": same(
        f"SELECT id, (SELECT y.id FROM {TB} y ORDER BY w DESC, y.id LIMIT 1) AS best FROM {TA} x"
    ),
}
BY_KEY = "PARTITION BY k ORDER BY v, id"
OVER_TABLES = {
    "over_rows": same(
        f"SELECT id, k, avg(v) OVER ({BY_KEY} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m"
        f" FROM {TA} x"
    ),
    "over_peers": same(
        "SELECT id, sum(v) OVER (ORDER BY v) AS s, count(*) OVER (PARTITION BY k ORDER BY v DESC"
        f" RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n FROM {TA} x"
    ),
    "over_whole": same(
        f"SELECT id, v - max(v) OVER (PARTITION BY k) AS d, LAG(v, 1, -1) OVER ({BY_KEY}) AS b,"
        f" LEAD(id) OVER ({BY_KEY}) AS f, last_value(id) OVER (ORDER BY v DESC, id"
        " ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS l,"
        f" count(*) FILTER (WHERE v > 5) OVER (ORDER BY id ROWS 2 PRECEDING) AS c FROM {TA} x"
    ),
    "over_groups": same(
        "SELECT k, sum(v) AS s, sum(count(*)) OVER (ORDER BY count(*) DESC, k NULLS FIRST) AS n"
        " FROM a GROUP BY k"
    ),
    "over_range": same(
        "SELECT id, sum(v) OVER (ORDER BY v RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s,"
        " count(*) OVER (PARTITION BY k ORDER BY v DESC RANGE BETWEEN CURRENT ROW AND 3 FOLLOWING)"
        " AS n, max(id) OVER (ORDER BY v RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS m,"
        f" min(v) OVER (ORDER BY CAST(v AS DOUBLE) / 2 RANGE 0.5 PRECEDING) AS w FROM {TA} x"
    ),
    "over_qualify": same(f"SELECT id, v FROM {TA} x QUALIFY v > avg(v) OVER (PARTITION BY k)"),
    "over_over": same(
        f"SELECT id, m FROM (SELECT id, sum(v) OVER ({BY_KEY}) AS m FROM {TA} x) t"
        " ORDER BY m DESC, id LIMIT 2"
    ),
}
GROUPED_VALUES = {
    "having_value": same(
        f"SELECT k, count(*) AS n FROM {TA} x GROUP BY k"
        " HAVING count(*) >= (SELECT count(*) / count(DISTINCT id) FROM b)"
    ),
    "having_correlated": same(
        f"SELECT k, sum(v) AS s FROM {TA} x GROUP BY k"
        f" HAVING sum(v) > (SELECT count(*) FROM {TB} y WHERE y.k = x.k)"
    ),
    "value_beside_groups": same(
        f"SELECT k, sum(v) - (SELECT max(w) FROM {TB} y WHERE y.k = x.k) AS s,"
        f" (SELECT min(w) FROM b) AS m FROM {TA} x GROUP BY k"
    ),
    "divided_by_value": Both(
        f"SELECT id, v DIV (SELECT count(*) FROM b WHERE w > 3) AS p, v DIV abs(v - 4) AS q,"
        f" v % (SELECT sum(w) - 9 FROM b) AS r FROM {TA} x",
        "SELECT id, v // nullif((SELECT count(*) FROM b WHERE w > 3), 0),"
        f" v // nullif(abs(v - 4), 0), v % nullif((SELECT sum(w) - 9 FROM b), 0) FROM {DUCK[TA]} x",
    ),
    "fails_in_passing": Both(
        "SELECT id, CAST(v * 20 AS TINYINT) AS t, w * 1000000000 AS b, CAST(CASE WHEN v > 4 THEN"
        " 'many' ELSE '1' END AS INT) + 1 AS c, sum(CAST(v * 20 AS TINYINT)) OVER () AS s"
        " FROM (SELECT id, sum(v) AS v, max(v) AS w FROM a GROUP BY id) x",
        "SELECT id, TRY_CAST(v * 20 AS TINYINT), CASE WHEN w < 3 THEN w * 1000000000 END,"
        " CASE WHEN v <= 4 THEN 2 END, sum(TRY_CAST(v * 20 AS TINYINT)) OVER ()"
        " FROM (SELECT id, sum(v) AS v, max(v) AS w FROM a GROUP BY id) x",
    ),
    "value_in_on": same(
        f"SELECT x.id, x.v, y.w FROM {TA} x JOIN {TB} y ON x.k = y.k"
        " AND x.v >= (SELECT avg(v) FROM a)"
    ),
}
# streams whose rows never leave, where a match may always still come: tables of all rows so far
WHOLE_STREAMS = {
    "streams_left": same("SELECT x.id, x.v, y.w FROM a x LEFT JOIN b y ON x.k = y.k AND x.v > y.w"),
    "streams_full": same("SELECT x.id AS i, y.id AS j FROM a x FULL JOIN b y ON x.k = y.k"),
    "streams_theta": same("SELECT x.id, y.w FROM a x LEFT JOIN b y ON x.v < y.w AND x.id = 1"),
    "streams_current": same(
        f"SELECT c.id, c.v, y.w FROM {CURRENT} c LEFT JOIN b y ON c.k = y.k AND y.w > 2"
    ),
    "streams_chain": same(
        "SELECT x.id, y.w, z.v FROM a x JOIN b y ON x.k = y.k AND x.id = y.id"
        " LEFT JOIN a z ON z.id = y.w"
    ),
    "streams_not_exists": same(
        "SELECT id, v FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE y.k = x.k AND y.w > x.v)"
    ),
    "streams_not_in": same("SELECT id, v FROM a WHERE v NOT IN (SELECT w FROM b WHERE id = 2)"),
    "streams_anti": Both(
        "SELECT x.id, x.k FROM a x LEFT ANTI JOIN b y ON x.k = y.k",
        "SELECT x.id, x.k FROM a x ANTI JOIN b y ON x.k = y.k",
    ),
    "two_asked": same(
        "SELECT id, v FROM a x WHERE EXISTS (SELECT 1 FROM b y WHERE y.k = x.k)"
        " AND id NOT IN (SELECT w FROM b WHERE w IS NOT NULL)"
    ),
    "two_met": same(
        "SELECT id, v FROM a x WHERE k IN (SELECT k FROM b) AND v IN (SELECT w FROM b WHERE w > 1)"
    ),
    "counted_exists": same(
        "SELECT k, count(*) AS n FROM a x WHERE EXISTS"
        " (SELECT 1 FROM b y WHERE y.id = x.id AND y.w >= x.v) GROUP BY k"
    ),
    "counted_left": same(
        "SELECT x.k, count(*) AS n, count(y.w) AS m, max(y.w) AS w"
        " FROM a x LEFT JOIN b y ON x.k = y.k GROUP BY x.k"
    ),
    "none_there": same("SELECT id, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE w > 100)"),
    "some_there": same("SELECT id, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE w = 0)"),
    "decimals": Both(
        "SELECT k, round(CAST(avg(CAST(v AS DECIMAL(12,2))) AS DOUBLE), 3) AS m,"
        " CAST(sum(CAST(v AS DECIMAL(6,1)) * 3) AS DOUBLE) AS s FROM a GROUP BY k",
        "SELECT k, round(avg(v), 3), sum(v * 3)::DOUBLE FROM a GROUP BY k",
    ),
}
# for each row of b the table a had at its instant
AT = (
    "(SELECT n.pos AS at, x.id, last(x.k ORDER BY x.ts, x.pos) AS k, sum(x.v) AS v"
    " FROM b n JOIN a x ON x.ts <= n.ts GROUP BY n.pos, x.id)"
)
LOOKUPS = {
    "lookup": Both(
        f"SELECT n.id, n.w, x.v FROM b [NOW] n JOIN {TA} x ON x.k = n.k",
        f"SELECT n.id, n.w, x.v FROM b n JOIN {AT} x ON x.at = n.pos AND x.k = n.k",
        table=False,
    ),
    "lookup_left": Both(
        f"SELECT n.id, n.w, x.v FROM b [NOW] n LEFT JOIN {TA} x ON x.id = n.id AND x.v > 3",
        f"SELECT n.id, n.w, x.v FROM b n LEFT JOIN {AT} x"
        " ON x.at = n.pos AND x.id = n.id AND x.v > 3",
        table=False,
    ),
    "lookup_not_in": Both(
        f"SELECT id, w FROM b [NOW] n WHERE k NOT IN (SELECT k FROM {TA} x WHERE v > 4)",
        f"SELECT id, w FROM b n WHERE k NOT IN (SELECT k FROM {AT} x WHERE x.at = n.pos AND v > 4)",
        table=False,
    ),
    "window_having": Both(
        "SELECT k, count(*) AS n FROM a [RANGE 2 SECONDS SLIDE 2 SECONDS] GROUP BY k"
        " HAVING count(*) >= (SELECT count(*) / 4 FROM b) AND max(v) > (SELECT max(w) - 3 FROM b"
        " [RANGE 2 SECONDS SLIDE 2 SECONDS])",
        "SELECT k, n FROM (SELECT k, count(*) AS n, max(v) AS v, ts // 2000000 * 2000000 + 2000000"
        " AS e FROM a GROUP BY ALL) x WHERE n >= (SELECT count(*) / 4 FROM b WHERE ts <= e) AND v >"
        " (SELECT max(w) - 3 FROM b WHERE ts >= e - 2000000 AND ts < e)",
        table=False,
    ),
    "window_except": Both(
        "SELECT k FROM (SELECT k FROM a [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k) x [NOW]"
        " EXCEPT SELECT k FROM (SELECT k FROM b [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k) y"
        " [NOW]",
        "SELECT k FROM (SELECT k, ts // 3000000 AS e FROM a EXCEPT SELECT k, ts // 3000000 FROM b)",
        table=False,
    ),
    "window_intersect_all": Both(
        "SELECT many FROM (SELECT k, count(*) > 1 AS many FROM a [RANGE 3 SECONDS SLIDE 3 SECONDS]"
        " GROUP BY k) x [NOW] INTERSECT ALL SELECT many FROM (SELECT k, count(*) > 1 AS many FROM b"
        " [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k) y [NOW]",
        "SELECT many FROM (SELECT count(*) > 1 AS many, ts // 3000000 AS e FROM a GROUP BY k, e"
        " INTERSECT ALL SELECT count(*) > 1, ts // 3000000 AS e FROM b GROUP BY k, e)",
        table=False,
    ),
    "lookup_system_time": Both(
        f"SELECT n.id, n.w, x.v FROM b n LEFT JOIN {TA} FOR SYSTEM_TIME AS OF n.ts AS x"
        " ON x.id = n.id",
        f"SELECT n.id, n.w, x.v FROM b n LEFT JOIN {AT} x ON x.at = n.pos AND x.id = n.id",
        table=False,
    ),
    "lookup_value": Both(
        "SELECT id, w, (SELECT sum(v) FROM a x WHERE x.id = n.id) AS s,"
        " (SELECT count(*) FROM a) AS c FROM b [NOW] n",
        "SELECT id, w, (SELECT sum(v) FROM a x WHERE x.id = n.id AND x.ts <= n.ts),"
        " (SELECT count(*) FROM a x WHERE x.ts <= n.ts) FROM b n",
        table=False,
    ),
    "window_value": Both(
        "SELECT id, w, (SELECT max(v) FROM a [RANGE 3 SECONDS SLIDE 3 SECONDS]) AS m FROM b [NOW]",
        "SELECT id, w, (SELECT max(v) FROM a WHERE a.ts < n.ts - n.ts % 3000000"
        " AND a.ts >= n.ts - n.ts % 3000000 - 3000000) FROM b n",
        table=False,
    ),
}
