"""A table in a notebook that follows a result while it grows.

Draws with IPython's display where there is one, and draws nothing elsewhere; takes no row away from
whoever iterates.
"""

import importlib
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.session.notebook import rows_html

if TYPE_CHECKING:
    from millstream.session.query import QueryHandle

EVERY_SECONDS = 0.5


def follow(query: "QueryHandle", seconds: float, until_rows: int | None) -> pa.Table:
    """Shows the rows as they come; gives them as they are in the end."""
    loop = query._session.running_loop()
    handle = _display()
    end = time.monotonic() + seconds
    while True:
        done = loop.finished.is_set() or time.monotonic() >= end
        table = query.to_arrow(wait=False)
        if handle is not None:
            handle.update(_Html(rows_html(table.to_pylist())))
        if done or (until_rows is not None and table.num_rows >= until_rows):
            return table
        loop.finished.wait(EVERY_SECONDS)


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
