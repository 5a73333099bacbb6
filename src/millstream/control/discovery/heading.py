"""Names of a separated file's columns: in its first line, below a title, or in a comment."""

import csv
import re
import unicodedata
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from millstream.control.discovery.column_types import column_type
from millstream.control.discovery.dialect import Dialect
from millstream.control.discovery.text_sample import TextSample
from millstream.control.discovery.times import spelling_of

TITLE_MAX = 20  # lines above the names of columns


def has_header(records: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns.

    >>> has_header([["city", "n"], ["Ulm", "1"]]), has_header([["Ulm", "1"], ["Bonn", "2"]])
    (True, False)
    """
    first = records[0]
    rest = [record for record in records[1:] if record != first]  # a header may come again
    names = [cell.strip() for cell in first]
    names = names[:-1] if names and not names[-1] else names  # a separator at the end
    if not names or not any(names):
        return False
    if any(name and column_type([name]).type not in ("string", "boolean") for name in names):
        return False
    columns = [[r[i] for r in rest if i < len(r)] for i in range(len(names))]
    types = [column_type(column) for column in columns]
    missing = not all(names[1:])  # the first column, of numbers, often has no name
    told = [t for t, n in zip(types, names, strict=True) if n or not missing]
    if any(t.type != "string" or t.times for t in told):
        return not any(t.times and spelling_of([n]) for t, n in zip(types, names, strict=True))
    if missing:
        return False
    repeated = len(set(names)) < len(names)
    return not repeated and not any(n in c for n, c in zip(names, columns, strict=True))


def title_lines(records: Sequence[Sequence[str]]) -> int:
    """How many of the first lines are no rows: a title and, below it, the names; 0 if none are.

    >>> title_lines([["Report", ""], ["at", "n"], ["2025-12-31", "1"], ["2026-01-01", "2"]])
    2
    >>> title_lines([["Ulm", "1"], ["Bonn", "2"]])
    0
    """
    width = max((len(record) for record in records[:TITLE_MAX]), default=0)
    for number in range(1, min(TITLE_MAX, len(records) - 1)):
        above, names = records[number - 1], [cell.strip() for cell in records[number]]
        title = sum(bool(cell.strip()) for cell in above) < len(names)
        if title and len(names) == width and all(names) and has_header(records[number:]):
            return number + 1
    return 0


def heading_in_comment(
    sample: TextSample, dialect: Dialect, records: Sequence[Sequence[str]]
) -> Sequence[str]:
    """Names that stand in the last line of a comment above the rows."""
    if not dialect.comment:
        return ()
    lines = takewhile(lambda line: line.startswith(dialect.comment), sample.lines)
    last = deque(lines, maxlen=1)
    text = last[0].lstrip(f"{dialect.comment} ") if last else ""
    names = next(csv.reader([text], delimiter=dialect.separator, quotechar=dialect.quote), [])
    named = len(names) == len(records[0]) and all(name.strip() for name in names)
    return names if named and has_header([names, *records]) else ()


def column_names(cells: Sequence[str]) -> list[str]:
    """Names that queries can write without quotes, each once.

    >>> column_names(["Größe (cm)", "Order Date", "order date", ""])
    ['Grosse_cm', 'Order_Date', 'order_date_2', 'c4']
    """
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        name = re.sub(r"\W+", "_", without_marks(cell)).strip("_") or f"c{number}"
        name = f"c_{name}" if name[0].isdigit() else name
        taken = {other.lower() for other in names}
        names.append(name if name.lower() not in taken else f"{name}_{number - 1}")
    return names


def without_marks(text: str) -> str:
    """Letters without what stands on and below them.

    >>> without_marks("Größe, relevé")
    'Grosse, releve'
    """
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(c for c in plain if not unicodedata.combining(c))
