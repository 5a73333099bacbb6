"""Whole made-up dataflows: streams, the files they are cut into, and queries over them."""

from hypothesis import strategies as st

from oracle.generate_queries import QueryMaker
from oracle.generate_streams import batch_sizes, stream_sets
from oracle.harness import Example

FEWEST, MOST = 5, 12  # queries of a dataflow


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """One dataflow. Now and then it has fewer queries: there a failing example shrinks to."""
    streams = draw(stream_sets())
    batches = {s.name: draw(batch_sizes(len(s.rows))) for s in streams}
    few = draw(st.integers(0, 9)) == 0
    count = draw(st.integers(1, FEWEST) if few else st.integers(FEWEST, MOST))
    maker = QueryMaker(draw, streams)
    return Example(streams, batches, tuple(maker.query() for _ in range(count)))
