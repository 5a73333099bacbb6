"""Operators: one module a kind, each a pure function of new rows and reachable tails."""

from millstream.language.share.dataflow import Kind
from millstream.spark.operators.base import Logic
from millstream.spark.operators.distinct import DistinctLogic
from millstream.spark.operators.intervals import IntervalLogic
from millstream.spark.operators.joining import JoinLogic
from millstream.spark.operators.mapping import MapLogic
from millstream.spark.operators.panes import CombineLogic, PartialLogic
from millstream.spark.operators.ranking import RankLogic
from millstream.spark.operators.rules.matching import RulesLogic
from millstream.spark.operators.running import RunningLogic
from millstream.spark.operators.running_emit import RunningEmitLogic
from millstream.spark.operators.semijoins import SemijoinLogic
from millstream.spark.operators.sessions import SessionLogic

LOGIC: dict[Kind, Logic] = {
    "map": MapLogic(),
    "join": JoinLogic(),
    "semijoin": SemijoinLogic(),
    "partial": PartialLogic(),
    "combine": CombineLogic(),
    "interval": IntervalLogic(),
    "distinct": DistinctLogic(),
    "running": RunningLogic(),
    "running_emit": RunningEmitLogic(),
    "session": SessionLogic(),
    "rank": RankLogic(),
    "rules": RulesLogic(),
}

__all__ = ["LOGIC", "Logic"]
