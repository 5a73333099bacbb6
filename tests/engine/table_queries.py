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
LOOKUPS: dict[str, Both] = {}
