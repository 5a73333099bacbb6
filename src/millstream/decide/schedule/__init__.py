"""Which operator runs next: statistics, QoS, one algorithm a module, selectors."""

from millstream.decide.schedule.facts import Choice, Delivery, OperatorView, StepReport, Switch
from millstream.decide.schedule.quality import TEMPLATES, Goal, Quality, Specification
from millstream.decide.schedule.scheduler import Scheduler
from millstream.decide.schedule.settings import ScheduleSettings, settings_from

__all__ = [
    "TEMPLATES",
    "Choice",
    "Delivery",
    "Goal",
    "OperatorView",
    "Quality",
    "ScheduleSettings",
    "Scheduler",
    "Specification",
    "StepReport",
    "Switch",
    "settings_from",
]
