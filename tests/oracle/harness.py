"""The seam between oracle and engine: what a runner must do, and how its answer is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from oracle.cases.case import Case, Scene
from oracle.compare import difference, report
from oracle.cql_text import cql_text
from oracle.evaluate import Answer, Oracle, arrow_type
from oracle.model import Query, Stream, columns_of
from oracle.nature import query_nature

Rows = list[dict[str, Any]]
Batches = Mapping[str, Sequence[int]]


class Runner(Protocol):
    """Runs queries over finite streams to their end and gives all result rows.

    `batches` gives for each stream the sizes of the files its rows are cut into, in order; they sum
    to the number of its rows. A result row is a dict of the select list's columns and `ts` as
    integer microseconds; of a relation, the rows of its final table (a `ts` there is ignored).
    Timestamps in other columns may be datetimes (UTC) or integer microseconds.
    """

    def run(
        self, streams: Sequence[Stream], queries: Mapping[str, str], batches: Batches
    ) -> dict[str, Rows]: ...


@dataclass(frozen=True, slots=True)
class Example:
    """Made-up streams, the files they are cut into, and queries over them: one dataflow."""

    streams: tuple[Stream, ...]
    batches: Batches
    queries: tuple[Query, ...]

    def texts(self) -> dict[str, str]:
        return {f"q{number}": cql_text(query) for number, query in enumerate(self.queries)}


def whole(streams: Sequence[Stream]) -> dict[str, list[int]]:
    """Every stream as a single file."""
    return {stream.name: [len(stream.rows)] for stream in streams}


def cut(streams: Sequence[Stream], size: int) -> dict[str, list[int]]:
    """Every stream in files of at most `size` rows.

    >>> from oracle.model import Row, Stream
    >>> cut([Stream("s", (), (Row(0, ()),) * 5)], 2)
    {'s': [2, 2, 1]}
    """
    return {
        stream.name: [
            min(size, len(stream.rows) - start) for start in range(0, len(stream.rows), size)
        ]
        for stream in streams
    }


def files_of(stream: Stream, sizes: Sequence[int]) -> list[pa.Table]:
    """The tables of a stream's files: `ts` and the columns, times as UTC timestamps."""
    assert sum(sizes) == len(stream.rows), stream.name
    moment = pa.timestamp("us", tz="UTC")
    data = {"ts": pa.array([row.ts for row in stream.rows], pa.int64()).cast(moment)}
    for number, column in enumerate(stream.columns):
        values = pa.array([row.values[number] for row in stream.rows], arrow_type(column.type))
        data[column.name] = values.cast(moment) if column.type == "timestamp" else values
    table = pa.table(data)
    starts = [sum(sizes[:number]) for number, _ in enumerate(sizes)]
    return [table.slice(start, size) for start, size in zip(starts, sizes, strict=True)]


def expected_rows(case: Case) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The columns that a case's expected rows tell, and the rows."""
    columns = list(columns_of(case.query))
    if not (case.timeless or query_nature(case.query).relation):
        columns.append("ts")
    return columns, list(case.expected)


def _inputs(streams: Sequence[Stream]) -> dict[str, list[tuple[Any, ...]]]:
    return {s.name: [(row.ts, *row.values) for row in s.rows] for s in streams}


def disagreement(scene: Scene, case: Case, actual: Rows) -> str | None:
    """How an answer differs from the rows worked out by hand; None if it does not."""
    columns, rows = expected_rows(case)
    expected = [dict(zip(columns, row, strict=True)) for row in rows]
    found = difference(expected, actual, columns)
    if not found:
        return None
    inputs = _inputs(scene.streams)
    return report(found, columns, cql=case.cql, sql="(expected rows are by hand)", inputs=inputs)


def disagreement_with_oracle(
    streams: Sequence[Stream], query: Query, answer: Answer, actual: Rows
) -> str | None:
    """How an answer differs from the oracle's; None if it does not."""
    columns = [*answer.evaluation.columns, *([] if answer.evaluation.relation else ["ts"])]
    found = difference(answer.rows, actual, columns)
    if not found:
        return None
    return report(
        found,
        columns,
        cql=cql_text(query),
        sql=answer.evaluation.sql,
        inputs=_inputs(streams),
    )


def judge(example: Example, results: Mapping[str, Rows]) -> list[str]:
    """All disagreements of a dataflow's results with the oracle."""
    problems = []
    with Oracle({stream.name: stream for stream in example.streams}) as oracle:
        for name, query in zip(example.texts(), example.queries, strict=True):
            answer = oracle.answer(query)
            problem = disagreement_with_oracle(example.streams, query, answer, results[name])
            if problem is not None:
                problems.append(problem)
    return problems
