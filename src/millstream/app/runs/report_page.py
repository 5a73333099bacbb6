"""A finished run as one HTML file: what came out, what was shared and saved, what hurt.

Everything comes from what the run has left in its folder: its summary, its statistics, and the
first rows of its results.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from millstream.app.runs.summary import sharing_told

Row = Mapping[str, Any]
ROWS_SHOWN = 10
REASONS_SHOWN = 8
SLOWEST_SHOWN = 12
STYLE = """
:root { color-scheme: light dark;
  --soft: #68707c; --line: #d8dce2; --bad: #b3261e; --bar: #4f7cac; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; } td.number, th.number { text-align: right; }
.wide { overflow-x: auto; } .bad { color: var(--bad); } .soft { color: var(--soft); }
.bar { background: var(--bar); height: .6rem; display: block; min-width: 1px; }
"""


def report_page(title: str, summary: Mapping[str, Any], tables: Mapping[str, Sequence[Row]],
                out: Path) -> str:  # fmt: skip
    """The page; `tables` are the run's statistics, `out` is its folder."""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(_opening(summary))}</p>",
        *_warnings(summary),
        "<h2>What came out</h2>",
        *_results(summary, out),
        "<h2>What was shared and saved</h2>",
        *_shared(summary, tables),
        "<h2>What was slow</h2>",
        *_slow(tables),
        "<h2>What came in, late or rejected</h2>",
        *_streams(summary, out),
        *_goals(summary),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _opening(summary: Mapping[str, Any]) -> str:
    rows = sum(s["rows"] for s in summary["streams"].values())
    failed = sum(q["state"] == "failed" for q in summary["queries"].values())
    told = (
        f"{rows:,} rows of {len(summary['streams'])} streams, {len(summary['queries'])} queries, "
        f"{summary['seconds']:.1f} s, {summary['steps']:,} steps"
    )
    return f"{told}; {failed} failed" if failed else f"{told}; all queries are done"


def _warnings(summary: Mapping[str, Any]) -> Iterable[str]:
    for warning in summary.get("warnings", ()):
        told = f"{warning['what']}; {warning['cause']}. Change: {warning['change']}"
        yield f'<p class="bad"><strong>Warning:</strong> {escape(told)}</p>'


def _results(summary: Mapping[str, Any], out: Path) -> Iterable[str]:
    for name, query in summary["queries"].items():
        yield f"<h3>{escape(name)}</h3>"
        if query["state"] == "failed":
            yield f'<p class="bad">failed: {escape(str(query.get("reason", "")))}</p>'
            for culprit in query.get("culprits", ()):
                yield f'<p class="soft">{escape(str(culprit))}</p>'
            continue
        yield f'<p class="soft">{query["rows"]:,} rows in {escape(str(query["path"]))}</p>'
        first = first_rows(out / name, ROWS_SHOWN)
        if first:
            yield _table(list(first[0]), [list(row.values()) for row in first])


def _shared(summary: Mapping[str, Any], tables: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    """Work that served several queries at once, and what it would have cost one by one."""
    if told := sharing_told(summary):
        yield f"<p><strong>{escape(told)}</strong>.</p>"
    operators = tables.get("operators", ())
    shared = [(o, len(_names(o))) for o in operators if len(_names(o)) > 1]
    if not shared:
        if not told:
            yield "<p>No operator served more than one query.</p>"
        return
    yield f"<p>{len(shared)} of {len(operators)} operators served several queries at once:</p>"
    shared.sort(key=lambda pair: -pair[1])
    rows = [
        [f"×{count}", o.get("label", ""), _seconds(o), ", ".join(_names(o))]
        for o, count in shared[:SLOWEST_SHOWN]
    ]
    yield _table(["queries", "operator", "seconds", "for"], rows, {"seconds"})


def _slow(tables: Mapping[str, Sequence[Row]]) -> Iterable[str]:
    operators = sorted(tables.get("operators", ()), key=lambda o: -float(o.get("seconds", 0)))
    most = float(operators[0].get("seconds", 0)) if operators else 0.0
    if not most:
        yield "<p>Nothing took time.</p>"
        return
    rows = []
    for o in operators[:SLOWEST_SHOWN]:
        width = 100 * float(o.get("seconds", 0)) / most
        bar = _Html(f'<span class="bar" style="width:{width:.0f}%"></span>')
        steps = int(o.get("steps", 0))
        rows.append([o.get("label", ""), _seconds(o), bar, steps, o.get("rows_in", 0),
                     o.get("rows_out", 0), ", ".join(_names(o))])  # fmt: skip
    headings = ["operator", "seconds", "", "steps", "rows in", "rows out", "queries"]
    yield _table(headings, rows, {"seconds", "steps", "rows in", "rows out"})


def _streams(summary: Mapping[str, Any], out: Path) -> Iterable[str]:
    rows = [[n, s["rows"], s["late"], s["rejected"]] for n, s in summary["streams"].items()]
    yield _table(["stream", "rows", "late", "rejected"], rows, {"rows", "late", "rejected"})
    for name, stream in summary["streams"].items():
        if not stream["rejected"]:
            continue
        reasons = Counter(
            str(r.get("reason")) for r in first_rows(out / f"{name}.rejected", 10_000)
        )
        found = [[count, reason] for reason, count in reasons.most_common(REASONS_SHOWN)]
        if found:
            yield f"<h3>Why rows of {escape(name)} were rejected</h3>"
            yield _table(["rows", "reason"], found, {"rows"})


def _goals(summary: Mapping[str, Any]) -> Iterable[str]:
    goals = [g for g in summary.get("scheduling", {}).get("goals", ()) if g["limit"] is not None]
    if goals:
        yield "<h2>Goals</h2>"
        yield _table(["query", "goal"], [[g["query"] or "all", g["told"]] for g in goals])


class _Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Iterable[str] = ()
) -> str:
    right = [heading in set(numbers) for heading in headings]

    def line(tag: str, cells: Sequence[Any]) -> str:
        made = (
            f"<{tag}{_class(number)}>{_cell(cell)}</{tag}>"
            for cell, number in zip(cells, right, strict=False)
        )
        return f"<tr>{''.join(made)}</tr>"

    head, body = line("th", headings), "".join(line("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _class(number: bool) -> str:
    return ' class="number"' if number else ""


def _cell(value: Any) -> str:
    if isinstance(value, _Html):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return escape("" if value is None else str(value))


def _names(operator: Row) -> list[str]:
    """The queries of an operator; statistics keep them as one text."""
    queries = operator.get("queries", "")
    return [name for name in str(queries).split(", ") if name]


def _seconds(operator: Row) -> str:
    return f"{float(operator.get('seconds', 0)):.2f}"


def first_rows(folder: Path, most: int) -> list[dict[str, Any]]:
    """The first rows that a run has written into a folder, whatever their format."""
    found: list[dict[str, Any]] = []
    for file in sorted(folder.glob("part-*")) if folder.is_dir() else ():
        found += _read(file, most - len(found))
        if len(found) >= most:
            break
    return found[:most]


def _read(file: Path, most: int) -> list[dict[str, Any]]:
    try:
        if file.suffix == ".parquet":
            batch = next(pq.ParquetFile(file).iter_batches(batch_size=most), None)
            return [] if batch is None else list(batch.to_pylist())
        if file.suffix == ".json":
            return list(pa_json.read_json(file).slice(0, most).to_pylist())
        options = pa_csv.ParseOptions(newlines_in_values=True)
        return list(pa_csv.read_csv(file, parse_options=options).slice(0, most).to_pylist())
    except pa.ArrowInvalid:  # a file without rows
        return []
