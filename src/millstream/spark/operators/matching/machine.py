"""The machine that finds matches, as it runs in Spark's Python workers.

Spark hands over the rows of each partition in order, with what hangs on a row alone computed
already: whether it may be each variable (`b<n>`), and the values of leaves (`l<n>`). The machine
takes one row after another, goes back where it fails, and stops where only rows that are still to
come can decide. This module travels to the workers as it is, so it imports nothing of the package.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from millstream.spark.operators.matching.terms import FOLDS, evaluated, start_of, value_of

Program = tuple[tuple[str, int, int], ...]
Path = tuple[int, int, Any, tuple[Any, ...]]  # row, variable, the path before, carried values


class UndecidedError(Exception):
    """Only rows that are still to come can tell."""


@dataclass(frozen=True)
class Orders:
    """What to look for, in plain values."""

    program: Program
    names: tuple[str, ...]  # of the variables
    own: tuple[bool, ...]  # which variables have a column b<n>
    others: tuple[tuple[Any, ...], ...]  # terms of each variable
    leaves: tuple[tuple[str, int, int, str], ...]  # kind, variable or -1, offset, type
    within: int | None
    skip: str
    skip_variable: int
    context: int  # decided rows that are kept before the first undecided one
    after: int  # all rows before this time are there
    ended: bool  # no more rows will come
    payload: tuple[str, ...]  # columns that are handed on
    unmatched: bool = False  # whether rows of no match are told, too


def finder(orders: Orders, *, state: bool) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """A function for `mapInArrow`: the rows of matches, or those that the next step needs."""

    def find(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = list(batches)
        if not pieces:
            return
        rows = pa.Table.from_batches(pieces)
        search = Search(orders, rows)
        made = search.state() if state else search.matches()
        if made is not None:
            yield from made.to_batches()

    return find


class Search:
    """The rows of one task: whole partitions, one after the other."""

    def __init__(self, orders: Orders, rows: pa.Table) -> None:
        self.orders, self.rows = orders, rows
        self.times: list[int] = rows.column("_ts").to_pylist()
        self.own = [
            rows.column(f"b{v}").to_pylist() if has else None for v, has in enumerate(orders.own)
        ]
        self.leaves = [rows.column(f"l{i}").to_pylist() for i in range(len(orders.leaves))]
        self.free = not any(orders.others)  # whether no condition hangs on the path
        first = rows.column("_first").to_pylist()
        begins = [i for i, opens in enumerate(first) if opens]
        self.partitions = list(pairwise([*begins, rows.num_rows]))
        self.decided = rows.column("_decided").to_pylist()
        self.counts = rows.column("_count").to_pylist()

    # -- what comes out ---------------------------------------------------------------------

    def matches(self) -> pa.Table | None:
        taken: list[int] = []
        told: list[tuple[Any, ...]] = []
        for low, high in self.partitions:
            walk = Walk(self, low, high)
            for number, path in walk.paths():
                taken += [row for row, _ in path]
                told += self._told(number, path)
            if self.orders.unmatched:
                taken += walk.passed
                told += [(None, None, 0, 0, 0, 0)] * len(walk.passed)
        if not taken:
            return None
        names = ("_class", "_match", "_nth", "_back", "_place", "_place_back")
        kinds = (pa.string(), pa.int64(), pa.int32(), pa.int32(), pa.int32(), pa.int32())
        columns = zip(names, kinds, zip(*told, strict=True), strict=True)
        made = self.rows.select(list(self.orders.payload)).take(pa.array(taken, pa.int64()))
        for name, kind, values in columns:
            made = made.append_column(name, pa.array(values, kind))
        return made

    def _told(self, number: int, path: list[tuple[int, int]]) -> Iterator[tuple[Any, ...]]:
        """For each row: variable, match, and its places from both ends."""
        totals: dict[int, int] = {}
        for _, variable in path:
            totals[variable] = totals.get(variable, 0) + 1
        nth: dict[int, int] = {}
        for place, (_, variable) in enumerate(path):
            here = nth.get(variable, 0)
            nth[variable] = here + 1
            yield (
                self.orders.names[variable], number, here, totals[variable] - 1 - here,
                place, len(path) - 1 - place,
            )  # fmt: skip

    def state(self) -> pa.Table | None:
        """Rows from the first undecided one on, and as many before it as are looked at."""
        if self.orders.ended:
            return None
        taken: list[int] = []
        decided: list[bool] = []
        counts: list[int] = []
        for low, high in self.partitions:
            walk = Walk(self, low, high)
            for _ in walk.paths():
                pass
            kept = range(max(low, walk.at - self.orders.context), high)
            taken += kept
            decided += [row < walk.at for row in kept]
            counts += [walk.number] * len(kept)
        if not taken:
            return None
        made = self.rows.select(list(self.orders.payload)).take(pa.array(taken, pa.int64()))
        made = made.append_column("_decided", pa.array(decided, pa.bool_()))
        return made.append_column("_count", pa.array(counts, pa.int64()))

    # -- one attempt ------------------------------------------------------------------------

    def attempt(self, start: int, end: int, failed: set[tuple[int, int]]) -> Path | None:
        """The preferred match that begins at a row, or None.

        `failed` has instructions and rows from which earlier attempts have led to nothing.
        """
        program, times, within = self.orders.program, self.times, self.orders.within
        limit = None if within is None else times[start] + within
        waiting: list[tuple[int, int, Path | None]] = [(0, start, None)]
        tried: set[tuple[int, int]] = set()
        while waiting:
            at, row, path = waiting.pop()
            while True:
                kind, a, b = program[at]
                if kind == "fork":
                    waiting.append((b, row, path))
                    at = a
                elif kind == "jump":
                    at = a
                elif kind == "match":
                    return path
                else:
                    if self.free:
                        if (at, row) in tried or (at, row) in failed:
                            break
                        tried.add((at, row))
                    if row == end and not self._complete(limit):
                        raise UndecidedError
                    if row == end or (limit is not None and times[row] >= limit):
                        break
                    path = self._taken(a, row, path)
                    if path is None:
                        break
                    at, row = at + 1, row + 1
        if within is None:  # another row to begin with leads to nothing from there either
            failed |= tried
        return None

    def _complete(self, limit: int | None) -> bool:
        """Whether no row before the limit is still to come."""
        return self.orders.ended or (limit is not None and limit <= self.orders.after)

    def _taken(self, variable: int, row: int, path: Path | None) -> Path | None:
        """The path with one more row, where that may be the variable."""
        own = self.own[variable]
        if own is not None and not own[row]:
            return None
        leaves = self.orders.leaves
        carried = tuple(start_of(kind) for kind, _, _, _ in leaves) if path is None else path[3]
        if leaves:
            carried = tuple(
                FOLDS[kind](before, self.leaves[i][row], offset)
                if owner in (-1, variable)
                else before
                for i, ((kind, owner, offset, _), before) in enumerate(
                    zip(leaves, carried, strict=True)
                )
            )
        for term in self.orders.others[variable]:
            if evaluated(term, lambda i: value_of(leaves[i], carried[i])) is not True:
                return None
        return row, variable, path, carried


class Walk:
    """The search through one partition: from which row on it goes on, and how many it has found."""

    def __init__(self, search: Search, low: int, high: int) -> None:
        self.search, self.high = search, high
        self.at, self.number = low, 0
        self.passed: list[int] = []  # rows at which no match begins, and that are in none before
        while self.at < high and search.decided[self.at]:
            self.number = search.counts[self.at]
            self.at += 1

    def paths(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Each match: its number, and its rows with their variables, in order."""
        failed: set[tuple[int, int]] = set()
        while self.at < self.high:
            try:
                found = self.search.attempt(self.at, self.high, failed)
            except UndecidedError:
                return
            if found is None:
                self.passed.append(self.at)
                self.at += 1
                continue
            path: list[tuple[int, int]] = []
            here: Path | None = found
            while here is not None:
                path.append((here[0], here[1]))
                here = here[2]
            path.reverse()
            self.number += 1
            self.at = self._next(path)
            yield self.number, path

    def _next(self, path: list[tuple[int, int]]) -> int:
        """The row after which the search goes on; never the one at which the match began."""
        first, last = path[0][0], path[-1][0]
        orders = self.search.orders
        if orders.skip == "past last row":
            return last + 1
        rows = [row for row, variable in path if variable == orders.skip_variable]
        if orders.skip == "to next row" or not rows:
            return first + 1
        return max(first + 1, rows[0] if orders.skip == "to first" else rows[-1])
