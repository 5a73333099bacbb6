"""The message for a query from the beginning where the beginning is gone."""

from datetime import UTC, datetime, timedelta

FIRST = -(2**63)  # of all event times: nothing is gone
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def beginning_gone(start: int | None) -> str:
    """A sentence where a query from the beginning begins later than its streams; else empty.

    >>> beginning_gone(1_000_000)
    'rows before 1970-01-01T00:00:01Z are gone, as no query needed them: it begins there'
    >>> beginning_gone(None), beginning_gone(FIRST)
    ('', '')
    """
    if start is None or start <= FIRST:
        return ""
    try:
        moment = (EPOCH + timedelta(microseconds=start)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        moment = "the end"
    return f"rows before {moment} are gone, as no query needed them: it begins there"
