"""Cases with rows worked out by hand from the semantics: they judge the oracle and the engine."""

from oracle.cases.aggregates import AGGREGATED
from oracle.cases.case import Case, Scene
from oracle.cases.joins import JOINS, THREE_WAY
from oracle.cases.nested import NESTED
from oracle.cases.nexmark import NEXMARK
from oracle.cases.partners import PARTNERS
from oracle.cases.readings import READINGS
from oracle.cases.times import BEFORE_1970, EDGES, EMPTY, GAP, LATE
from oracle.cases.traffic import TRAFFIC
from oracle.cases.values import VALUES
from oracle.cases.windows import WINDOWS

SCENES: tuple[Scene, ...] = (
    TRAFFIC,
    READINGS,
    AGGREGATED,
    NESTED,
    JOINS,
    THREE_WAY,
    PARTNERS,
    LATE,
    EDGES,
    BEFORE_1970,
    GAP,
    EMPTY,
    VALUES,
    WINDOWS,
    NEXMARK,
)

__all__ = ["SCENES", "Case", "Scene"]
