"""MATCH_RECOGNIZE by brute force: an interpreter over whole partitions, and made-up queries.

Written against the rules of docs/CQL.md, not against the package: a pattern is a nested tuple, all
ways to match it are enumerated in order of preference, and the first one that the conditions allow
is the match. A condition is CQL beside a Python function of the rows matched so far.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oracle.model import Row, Stream

SECOND = 1_000_000
Pattern = tuple[
    Any, ...
]  # ("row", name), ("all", parts), ("any", parts), ("many", part, n, m, greedy)
Taken = list[tuple[str, int]]  # variable and row of each row matched, in order


@dataclass(frozen=True, slots=True)
class Seen:
    """What a condition or a measure sees: a partition's rows, and those that were taken."""

    rows: Sequence[Mapping[str, Any]]
    taken: Taken

    def of(self, variable: str | None, column: str) -> list[Any]:
        return [self.rows[i][column] for v, i in self.taken if variable in (None, v)]

    def first(self, variable: str | None, column: str, n: int = 0) -> Any:
        values = self.of(variable, column)
        return values[n] if len(values) > n else None

    def last(self, variable: str | None, column: str, n: int = 0) -> Any:
        values = self.of(variable, column)
        return values[-1 - n] if len(values) > n else None

    def before(self, row: int, column: str, n: int = 1) -> Any:
        """A value n rows before a row of the partition."""
        return self.rows[row - n][column] if row >= n else None

    @property
    def here(self) -> int:
        return self.taken[-1][1]


def known(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


def total(values: list[Any]) -> Any:
    return sum(known(values)) if known(values) else None


def mean(values: list[Any]) -> Any:
    return sum(known(values)) / len(known(values)) if known(values) else None


def less(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a < b


Judge = Callable[[Seen], bool]


@dataclass(frozen=True, slots=True)
class Search:
    """A query: its text's parts, and how to judge them."""

    keys: tuple[str, ...]
    pattern: Pattern
    conditions: Mapping[str, tuple[str, Judge]]
    measures: Mapping[str, tuple[str, Callable[[Seen, int], Any]]]
    within: int | None
    skip: tuple[str, str]  # kind and variable
    all_rows: bool = False  # each row of a match is told
    finals: frozenset[str] = frozenset()  # measures over the whole match, where that is so
    unmatched: bool = False  # and so is each row of none

    @property
    def cql(self) -> str:
        clauses = []
        if self.keys:
            clauses.append(f"PARTITION BY {', '.join(self.keys)}")
        clauses.append("ORDER BY ts MEASURES")
        clauses.append(
            ", ".join(
                f"{'FINAL ' if n in self.finals else ''}{text} AS {n}"
                for n, (text, _) in self.measures.items()
            )
        )
        rows = "ALL ROWS" if self.all_rows else "ONE ROW"
        rows += " PER MATCH" + (" WITH UNMATCHED ROWS" if self.unmatched else "")
        clauses.append(f"{rows} AFTER MATCH SKIP {' '.join(self.skip).strip()}")
        clauses.append(f"PATTERN ({spelled(self.pattern)})")
        if self.within is not None:
            clauses.append(f"WITHIN INTERVAL '{self.within / SECOND:g}' SECOND")
        defined = ", ".join(f"{n} AS {text}" for n, (text, _) in self.conditions.items())
        return f"SELECT * FROM s MATCH_RECOGNIZE ({' '.join(clauses)} DEFINE {defined}) AS m"


def spelled(pattern: Pattern) -> str:
    match pattern:
        case "row", name:
            return str(name)
        case "all", parts:
            return " ".join(f"({spelled(p)})" if p[0] == "any" else spelled(p) for p in parts)
        case "any", parts:
            return " | ".join(spelled(p) for p in parts)
        case "many", part, least, most, greedy:
            signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
            sign = signs.get((least, most)) or f"{{{least},{'' if most is None else most}}}"
            return f"({spelled(part)}){sign}{'' if greedy else '?'}"
    raise ValueError(pattern)


def ways(pattern: Pattern, taken: Taken, row: int, end: int, allows: Any) -> Iterator[Taken]:
    """All ways to match from a row on, the preferred ones first."""
    match pattern:
        case "row", name:
            if row < end and allows(name, [*taken, (name, row)]):
                yield [*taken, (name, row)]
        case "all", parts:
            if not parts:
                yield taken
                return
            for made in ways(parts[0], taken, row, end, allows):
                further = row + len(made) - len(taken)
                yield from ways(("all", parts[1:]), made, further, end, allows)
        case "any", parts:
            for part in parts:
                yield from ways(part, taken, row, end, allows)
        case "many", part, least, most, greedy:
            if least == 0 and not greedy:
                yield taken
            if most is None or most > 0:
                rest = ("many", part, max(0, least - 1), most and most - 1, greedy)
                for made in ways(part, taken, row, end, allows):
                    yield from ways(rest, made, row + len(made) - len(taken), end, allows)
            if least == 0 and greedy:
                yield taken


def matches(search: Search, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, Taken]]:
    """The matches of one partition, numbered."""

    def allows(name: str, taken: Taken) -> bool:
        judge = search.conditions.get(name)
        return judge is None or judge[1](Seen(rows, taken))

    at, number = 0, 0
    while at < len(rows):
        end = len(rows)
        if search.within is not None:
            limit = rows[at]["ts"] + search.within
            end = next((i for i in range(at, len(rows)) if rows[i]["ts"] >= limit), len(rows))
        found = next(ways(search.pattern, [], at, end, allows), None)
        if found is None:
            at += 1
            continue
        number += 1
        yield number, found
        kind, name = search.skip
        own = [i for v, i in found if v == name]
        if kind == "PAST LAST ROW":
            at = found[-1][1] + 1
        elif kind == "TO NEXT ROW" or not own:
            at += 1
        else:
            at = max(at + 1, own[0] if kind == "TO FIRST" else own[-1])


def on_time(stream: Stream) -> Iterator[Row]:
    """The rows of a stream that are not late."""
    latest = None
    for row in stream.rows:
        if latest is None or row.ts >= latest - stream.lateness:
            yield row
        latest = row.ts if latest is None else max(latest, row.ts)


def expected(search: Search, stream: Stream) -> list[dict[str, Any]]:
    """The rows that a query must give, over the rows of a stream that are not late."""
    names = [c.name for c in stream.columns]
    partitions: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in on_time(stream):
        values = dict(zip(names, row.values, strict=True)) | {"ts": row.ts}
        partitions.setdefault(tuple(values[k] for k in search.keys), []).append(values)
    told = []
    for key, rows in partitions.items():
        rows.sort(key=lambda r: r["ts"])  # stable: equal times stay as they came
        matched: set[int] = set()
        for number, taken in matches(search, rows):
            seen = Seen(rows, taken)
            matched |= {row for _, row in taken}
            if search.all_rows:
                told += each_row(search, seen, number)
                continue
            made = {n: measure(seen, number) for n, (_, measure) in search.measures.items()}
            told.append(dict(zip(search.keys, key, strict=True)) | made
                        | {"ts": rows[taken[-1][1]]["ts"]})  # fmt: skip
        left = [row for i, row in enumerate(rows) if i not in matched] if search.unmatched else []
        told += [dict(row) | dict.fromkeys(search.measures) for row in left]
    return told


def each_row(search: Search, whole: Seen, number: int) -> Iterator[dict[str, Any]]:
    """The rows of a match, with measures over those up to each, or over all."""
    for end in range(1, len(whole.taken) + 1):
        so_far = Seen(whole.rows, whole.taken[:end])
        made = {
            n: measure(whole if n in search.finals else so_far, number)
            for n, (_, measure) in search.measures.items()
        }
        yield dict(whole.rows[so_far.here]) | made


# -- made-up queries ------------------------------------------------------------------------------

MEASURES: dict[str, tuple[str, Callable[[Seen, int], Any]]] = {
    "begun": ("unix_micros(FIRST(ts))", lambda s, _: s.first(None, "ts")),
    "ended": ("unix_micros(LAST(B.ts))", lambda s, _: s.last("B", "ts")),
    "n": ("count(*)", lambda s, _: len(s.taken)),
    "n_a": ("count(A.*)", lambda s, _: len(s.of("A", "ts"))),
    "n_v": ("count(A.v)", lambda s, _: len(known(s.of("A", "v")))),
    "total": ("sum(B.v)", lambda s, _: total(s.of("B", "v"))),
    "middle": ("avg(x)", lambda s, _: mean(s.of(None, "x"))),
    "top": ("max(B.x) + 1", lambda s, _: max(known(s.of("B", "x")), default=-1e9) + 1
            if known(s.of("B", "x")) else None),
    "last_a": ("A.v", lambda s, _: s.last("A", "v")),
    "v": ("v", lambda s, _: s.last(None, "v")),
    "second": ("FIRST(v, 1)", lambda s, _: s.first(None, "v", 1)),
    "second_b": ("FIRST(B.v, 1)", lambda s, _: s.first("B", "v", 1)),
    "last_but_one": ("LAST(A.x, 1)", lambda s, _: s.last("A", "x", 1)),
    "earlier": ("PREV(FIRST(x), 2)", lambda s, _: s.before(s.taken[0][1], "x", 2)),
    "who": ("CLASSIFIER()", lambda s, _: s.taken[-1][0]),
    "number": ("MATCH_NUMBER()", lambda _, number: number),
}  # fmt: skip


def row_conditions(name: str) -> list[tuple[str, Judge]]:
    """Conditions on the row at hand and the rows before it in the partition."""
    return [
        ("v > 1", lambda s: less(1, s.last(None, "v"))),
        (f"{name}.v <= 2", lambda s: not less(2, s.last(None, "v"))
         and s.last(None, "v") is not None),
        ("v IS NULL OR x > 0", lambda s: s.last(None, "v") is None or less(0, s.last(None, "x"))),
        ("x > PREV(x)", lambda s: less(s.before(s.here, "x"), s.last(None, "x"))),
        (f"{name}.x < PREV({name}.x, 2) OR PREV(x, 2) IS NULL",
         lambda s: s.before(s.here, "x", 2) is None
         or less(s.last(None, "x"), s.before(s.here, "x", 2))),
    ]  # fmt: skip


def match_conditions(name: str, other: str) -> list[tuple[str, Judge]]:
    """Conditions on what was matched before."""
    return [
        (f"x > {other}.x", lambda s: less(s.last(other, "x"), s.last(None, "x"))),
        (f"{other}.v IS NULL OR v <> LAST({other}.v)",
         lambda s: s.last(other, "v") is None or (s.last(None, "v") is not None
                                                  and s.last(None, "v") != s.last(other, "v"))),
        (f"coalesce(sum({name}.v), 0) < 5", lambda s: (total(s.of(name, "v")) or 0) < 5),
        ("count(*) <= 4", lambda s: len(s.taken) <= 4),
        (f"v IS NOT NULL AND x + 0.5 > avg({name}.x)",
         lambda s: s.last(None, "v") is not None
         and less(mean(s.of(name, "x")), s.last(None, "x") + 0.5)),
        ("ts - FIRST(ts) <= INTERVAL '4' SECOND",
         lambda s: s.last(None, "ts") - s.first(None, "ts") <= 4 * SECOND),
        (f"LAST({name}.x, 1) IS NULL OR x <= LAST({name}.x, 1)",
         lambda s: s.last(name, "x", 1) is None
         or not less(s.last(name, "x", 1), s.last(None, "x"))),
        (f"v >= min({other}.v) OR PREV(LAST({other}.v)) IS NULL",
         lambda s: (bool(known(s.of(other, "v"))) and s.last(None, "v") is not None
                    and s.last(None, "v") >= min(known(s.of(other, "v"))))
         or _before_last(s, other) is None),
    ]  # fmt: skip


def _before_last(seen: Seen, variable: str) -> Any:
    rows = [i for v, i in seen.taken if v == variable]
    return seen.before(rows[-1], "v") if rows else None


def random_pattern(dice: random.Random, depth: int = 0) -> Pattern:
    """At least one row, and no part that may have none under a repetition."""
    choice = dice.random()
    if depth >= 2 or choice < 0.25:
        return ("row", dice.choice("ABC"))
    if choice < 0.6:
        parts = [random_pattern(dice, depth + 1) for _ in range(dice.choice((2, 2, 3)))]
        parts[1] = _perhaps(dice, parts[1], may_be_empty=True)
        return ("all", tuple(parts))
    if choice < 0.75:
        return ("any", tuple(random_pattern(dice, depth + 1) for _ in range(2)))
    return _perhaps(dice, random_pattern(dice, depth + 1), may_be_empty=False)


def _perhaps(dice: random.Random, part: Pattern, *, may_be_empty: bool) -> Pattern:
    if _may_be_empty(part):
        return part
    counts = [(1, None), (2, 3), (2, None), (1, 2)]
    if may_be_empty:
        counts += [(0, None), (0, 1)]
    least, most = dice.choice(counts)
    return ("many", part, least, most, dice.random() < 0.7)


def _may_be_empty(pattern: Pattern) -> bool:
    return pattern[0] == "many" and pattern[2] == 0


def random_search(dice: random.Random) -> Search:
    pattern: Pattern = ("all", (("row", "A"), _perhaps(dice, ("row", "B"), may_be_empty=True)))
    if dice.random() < 0.8:
        pattern = random_pattern(dice)
    names = sorted({"A", "B", "C"} & set(spelled(pattern)))
    conditions = {}
    for name in names:
        menu = row_conditions(name) + match_conditions(name, dice.choice(names))
        conditions[name] = dice.choice(menu)
        if dice.random() < 0.5:
            one, two = dice.choice(row_conditions(name)), dice.choice(menu)
            conditions[name] = (f"({one[0]}) AND ({two[0]})", _both(one[1], two[1]))
    if len(names) > 1 and dice.random() < 0.3:
        del conditions[names[-1]]  # any row
    skips = [("PAST LAST ROW", ""), ("TO NEXT ROW", "")]
    skips += [(kind, dice.choice(names)) for kind in ("TO FIRST", "TO LAST")]
    usable = {n: m for n, m in MEASURES.items() if _spoken(m[0]) <= set(names)}
    measures = dict(dice.sample(sorted(usable.items()), min(5, len(usable))))
    keys = dice.choice((("k",), ("k",), ()))
    within = dice.choice((None, 3 * SECOND, 5 * SECOND, 8 * SECOND, 1 * SECOND))
    return Search(keys, pattern, conditions, measures, within, dice.choice(skips))


def random_rows(dice: random.Random) -> Search:
    """A query that tells all rows of its matches; measures have other names than columns."""
    made = random_search(dice)
    names = set(spelled(made.pattern)) & {"A", "B", "C"}
    usable = {f"m_{n}": m for n, m in MEASURES.items() if _spoken(m[0]) <= names}
    measures = dict(dice.sample(sorted(usable.items()), min(6, len(usable))))
    finals = frozenset(n for n in measures if dice.random() < 0.3)
    return replace(made, measures=measures, all_rows=True, finals=finals)


def _both(one: Judge, two: Judge) -> Judge:
    return lambda s: one(s) and two(s)


def _spoken(text: str) -> set[str]:
    return {name for name in "ABC" if f"{name}." in text}
