"""A table in a notebook that follows a result while it grows.

Draws with IPython's display where there is one, and draws nothing elsewhere; takes no row away from
whoever iterates.
"""

import importlib
import time
from typing import Any

import pyarrow as pa

from millstream.app.session.notebook import rows_html
from millstream.client.system import Reader

EVERY_SECONDS = 0.5


def follow(reader: Reader, seconds: float, until_rows: int | None) -> pa.Table | None:
    """Shows the rows as they come; gives them as they are in the end, None where there are none."""
    handle = _display()
    end = time.monotonic() + seconds
    shown: pa.Table | None = None
    while True:
        done = time.monotonic() >= end
        tables = [page.table for page in reader.pages(EVERY_SECONDS) if page.table is not None]
        if tables:
            kept = tables if shown is None else [shown, *tables]
            shown = pa.concat_tables(kept, promote_options="permissive")
            if handle is not None:
                handle.update(_Html(rows_html(shown.to_pylist())))
        rows = 0 if shown is None else shown.num_rows
        if done or reader.ended or (until_rows is not None and rows >= until_rows):
            return shown


class _Html:
    """Something that a notebook draws."""

    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _display() -> Any:
    """IPython's handle to what a cell shows; None outside of a notebook."""
    try:
        ipython = importlib.import_module("IPython")
        display = importlib.import_module("IPython.display").display
    except ImportError:
        return None
    if ipython.get_ipython() is None:
        return None
    return display(_Html("<p><i>no rows yet</i></p>"), display_id=True)
