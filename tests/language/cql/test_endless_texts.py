"""Completion of very long texts: any reader may ask for it, in the process that handles rows."""

import pytest

from millstream.language.cql.parsing.completion import Known, candidates

KNOWN = Known({f"stream{n}": ("host", "status") for n in range(100)}, ("errors",))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sign", ["9", "a.", ".", "é", "[", ",", "FROM "])
def test_a_text_without_end_is_answered(sign: str) -> None:
    for before in (sign * 200_000, "SELECT " + sign * 200_000 + " x.y", sign * 200_000 + " ho"):
        candidates(before, KNOWN)
    assert candidates(f"{sign * 200_000};SELECT host FROM err", KNOWN) == ("err", ["errors"])
