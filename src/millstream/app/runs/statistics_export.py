"""Statistics to a spreadsheet and to parquet when a run ends.

The thesis records statistics in a spreadsheet for quick analysis when a query is done (D-CAPE,
section 4.3). Here they are what the engine's status and the ledger have: streams, operators,
queries, and a summary. `statistics_of` gives plain tables, `export_statistics` writes them:
`statistics.xlsx` with a sheet for each, and `NAME.parquet` beside it. A manager or a processor
exports its own tables with the same function. Nothing here measures.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.core.errors import UsageError
from millstream.core.extras import told_where_missing

Tables = Mapping[str, Sequence[Mapping[str, Any]]]  # sheet -> rows with equal keys

KINDS = {  # of figures, and what names them
    "streams": "stream",
    "processors": "processor",  # of a cluster
    "operators": "operator",
    "queries": "query",
}
KEPT = "statistics.json"  # in a run's home: so that a finished run can be exported again
SPREADSHEET = "statistics.xlsx"
ROWS_MAX = 1_048_575  # of a sheet, below its heading; parquet has all
_TEXT_MAX = 32_767  # of a cell


def statistics_of(
    status: Mapping[str, Any], summary: Mapping[str, Any] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Tables from a system's figures and a run's summary.

    >>> tables = statistics_of({"streams": {"s": {"rows": 3}}, "operators": {}, "queries": {}})
    >>> tables["streams"]
    [{'stream': 's', 'rows': 3}]
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    if summary is not None:
        plain = {k: v for k, v in summary.items() if isinstance(v, str | int | float)}
        tables["summary"] = [plain]
    for kind, heading in KINDS.items():
        if kind in status or kind != "processors":
            tables[kind] = [
                {heading: name, **{k: _plain(v) for k, v in figures.items()}}
                for name, figures in status.get(kind, {}).items()
            ]
    return tables


def keep_statistics(tables: Tables, home: Path) -> None:
    """Notes the tables in a run's home."""
    (home / KEPT).write_text(json.dumps(tables, default=str), encoding="utf-8")


def kept_statistics(home: Path) -> Tables:
    """What `keep_statistics` noted."""
    try:
        tables: Tables = json.loads((home / KEPT).read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(
            "this run has no statistics to export",
            detail=f"{home / KEPT} is not there",
            hint="runs note their statistics when they end; run it again into a new folder",
        ) from None
    return tables


def check_export_folder(folder: Path) -> None:
    """Refuses a folder that cannot be written before a long run begins."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot export to {folder}", detail=str(error)) from None


def export_statistics(tables: Tables, folder: Path) -> tuple[Path, ...]:
    """Writes the tables; gives the files. Files of the same names are replaced."""
    check_export_folder(folder)
    written = [folder / SPREADSHEET]
    _write_spreadsheet(tables, written[0])
    for name, rows in tables.items():
        if not rows:
            continue
        path = folder / f"{name}.parquet"
        columns = _columns(rows)
        arrays = {column: [row.get(column) for row in rows] for column in columns}
        pq.write_table(pa.table({c: _array(values) for c, values in arrays.items()}), path)
        written.append(path)
    return tuple(written)


def _array(values: list[Any]) -> Any:
    """A column; one whose values are of several kinds becomes text."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


def _write_spreadsheet(tables: Tables, path: Path) -> None:
    with told_where_missing():  # slow to import; only exports pay for it
        from openpyxl import Workbook  # noqa: PLC0415
        from openpyxl.cell import WriteOnlyCell  # noqa: PLC0415
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE  # noqa: PLC0415
        from openpyxl.styles import Font  # noqa: PLC0415

    book = Workbook(write_only=True)
    for name, rows in tables.items():
        sheet = book.create_sheet(name[:31])
        sheet.freeze_panes = "A2"
        columns = _columns(rows)

        def cell(value: Any, *, heading: bool = False, sheet: Any = sheet) -> Any:
            if not isinstance(value, str):
                return value
            made = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub("?", value)[:_TEXT_MAX])
            made.data_type = "s"  # text that begins with = is no formula
            if heading:
                made.font = Font(bold=True)
            return made

        sheet.append([cell(column, heading=True) for column in columns])
        for row in rows[:ROWS_MAX]:
            sheet.append([cell(row.get(column)) for column in columns])
    if not book.sheetnames:
        book.create_sheet("empty")
    book.save(path)


def _columns(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _plain(value: Any) -> Any:
    """Values a cell can hold: lists and mappings become text."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    return value
