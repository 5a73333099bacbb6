"""Operators: one module a kind, each a pure function of new rows and reachable tails."""

from millstream.engine.operators.base import Logic
from millstream.engine.operators.distinct import DistinctLogic
from millstream.engine.operators.intervals import IntervalLogic
from millstream.engine.operators.joining import JoinLogic
from millstream.engine.operators.mapping import MapLogic
from millstream.engine.operators.panes import CombineLogic, PartialLogic
from millstream.engine.operators.running import RunningLogic
from millstream.engine.operators.running_emit import RunningEmitLogic
from millstream.share.dataflow import Kind

LOGIC: dict[Kind, Logic] = {
    "map": MapLogic(),
    "join": JoinLogic(),
    "partial": PartialLogic(),
    "combine": CombineLogic(),
    "interval": IntervalLogic(),
    "distinct": DistinctLogic(),
    "running": RunningLogic(),
    "running_emit": RunningEmitLogic(),
}
# Kinds that read their own output back: it is kept, and its compaction keeps what they need.
SELF_READING: frozenset[Kind] = frozenset({"distinct", "running"})

__all__ = ["LOGIC", "SELF_READING", "Logic"]
