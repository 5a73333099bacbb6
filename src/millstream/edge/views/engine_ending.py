"""What is left of a system for people when it has ended."""

from dataclasses import replace

from millstream.control.snapshot.alarms import judged
from millstream.control.snapshot.model import Snapshot


def final(last: Snapshot, state: str) -> Snapshot:
    """What is left to see of a system that has ended: nothing moves any more."""
    done = "done" if state == "finished" else state
    queries = tuple(
        replace(
            q, state=done if q.state == "running" else q.state, rows_per_s=0.0, load_own=0.0,
            load_shared=0.0,
        )
        for q in last.queries
    )  # fmt: skip
    streams = tuple(replace(s, rows_per_s=0.0) for s in last.streams)
    operators = tuple(
        replace(o, rows_in_per_s=0.0, rows_out_per_s=0.0, load=0.0) for o in last.operators
    )
    edges = tuple(replace(e, rows_per_s=0.0, bytes_per_s=0.0) for e in last.edges)
    overview = replace(last.overview, state=state, rows_in_per_s=0.0, rows_out_per_s=0.0)
    processors = tuple(replace(p, state=state, load=0.0, steps_per_s=0.0) for p in last.processors)
    ended = replace(
        last, overview=overview, queries=queries, streams=streams, operators=operators,
        edges=edges, processors=processors,
    )  # fmt: skip
    return judged(ended)
