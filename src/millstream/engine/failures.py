"""Tells a query's own mistake on its data from trouble with the machine."""

import re

from pyspark.errors import PySparkException

DATA_STATES = ("22",)  # SQLSTATE class 22: data exceptions


def data_error(error: Exception) -> str | None:
    """One sentence where the data broke an expression (a cast, a division); else None.

    Anything else, such as a full disk or a lost executor, is not the query's fault.
    """
    text = str(error)
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    match = re.search(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] (.*?)(?: SQLSTATE: (\w+)|\n|$)", text)
    found = state or (match[3] if match else None)
    if not found or not str(found).startswith(DATA_STATES):
        return None
    message = match[2] if match else text.split("\n", maxsplit=1)[0]
    return re.split(r"\. (?:Use|If|To) ", message)[0].strip()
