"""Operators: one module a kind, each a pure function of new rows and reachable tails."""

from millstream.language.share.dataflow import Kind
from millstream.spark.operators.base import Logic
from millstream.spark.operators.calendars.local_windows import CalendarLogic
from millstream.spark.operators.distinct import DistinctLogic
from millstream.spark.operators.intervals import IntervalLogic
from millstream.spark.operators.joining import JoinLogic
from millstream.spark.operators.mapping import MapLogic
from millstream.spark.operators.matching.logic import MatchLogic
from millstream.spark.operators.over.neighbours import OverLogic
from millstream.spark.operators.panes import CombineLogic, PartialLogic
from millstream.spark.operators.ranking import RankLogic
from millstream.spark.operators.rules.matching import RulesLogic
from millstream.spark.operators.running import RunningLogic
from millstream.spark.operators.running_emit import RunningEmitLogic
from millstream.spark.operators.semijoins import SemijoinLogic
from millstream.spark.operators.sessions import SessionLogic
from millstream.spark.operators.tables.joining import TableJoinLogic
from millstream.spark.operators.tables.neighbours import TableOverLogic
from millstream.spark.operators.tables.ranking import TableRankLogic
from millstream.spark.operators.tables.semijoins import TableSemijoinLogic

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
    "over": OverLogic(),
    "calendar": CalendarLogic(),
    "match": MatchLogic(),
    "table_join": TableJoinLogic(),
    "table_semijoin": TableSemijoinLogic(),
    "table_rank": TableRankLogic(),
    "table_over": TableOverLogic(),
    "rules": RulesLogic(),
}

__all__ = ["LOGIC", "Logic"]
