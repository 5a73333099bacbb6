"""Real processors in network namespaces: what plans promise, and what the links carry.

Minutes on a small machine, and three Spark sessions: `make soak`. Skipped with the reason where
namespaces are not allowed.
"""

from pathlib import Path

import pytest

from millstream_lab.namespaces import why_impossible
from millstream_lab.network.processors import compare

pytestmark = [pytest.mark.soak, pytest.mark.process]


def test_bytes_on_the_links_are_those_that_were_promised(tmp_path: Path) -> None:
    reason = why_impossible()
    if reason:
        pytest.skip(reason)
    home, best = compare(tmp_path, ("baseline", "optimal_tree"), progress=print)
    assert set(home.placement.values()) == {"home"}
    assert "home" not in best.placement.values()
    for one in (home, best):
        assert abs(one.off) <= 0.10, one
        assert one.results > 0
        assert one.median_delay_ms is not None
        assert one.median_delay_ms >= one.promised_delay_ms, one
    assert best.measured_bytes_per_s < 0.6 * home.measured_bytes_per_s
