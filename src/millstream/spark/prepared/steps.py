"""Steps of few rows: the plan of the same operators is made once and runs again over other rows.

Building, analysing and planning a small job takes ten times as long as running it. Steps of the
same operators differ in their rows and in a few numbers, so a plan over hoppers serves them all:
new rows and tails are taken from memory, or from their files, and put into the hoppers. The
operators' own logic builds the plan, as for any other step. What cannot be prepared goes the
ordinary way.
"""

import threading

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from millstream.engine.ports import TrainStep
from millstream.spark.prepared.hoppers import HopperFullError, SmallSession
from millstream.spark.prepared.plans import (
    MEMBERS_FEW,
    Computed,
    Key,
    PreparedPlan,
    UnpreparedError,
    key_of,
    small,
)
from millstream.spark.reading import Schemas
from millstream.store.segments import SegmentStore

PLANS_KEPT_MAX = 300
FAILURES_MAX = 3  # of a plan, after which its steps are left to the ordinary way
KEYS_KEPT_MAX = 10_000
CANCELLED = "SPARK_JOB_CANCELLED"


class PreparedSteps:
    """Plans of an engine's small steps."""

    def __init__(self, session: SmallSession, files: SegmentStore, schemas: Schemas) -> None:
        self._session, self._files, self._schemas = session, files, schemas
        self._plans: dict[Key, PreparedPlan] = {}
        self._failures: dict[Key, int] = {}
        self._seen: set[Key] = set()
        self._lock = threading.Lock()

    def compute(self, job: TrainStep) -> Computed | None:
        """The rows of a step, or None where it has to go the ordinary way.

        The first step of operators does: many have no second one. Not so that of many members,
        whose plan costs more than all else: it is made once. A step that fails goes that way too:
        it fails there with the reason, or gets through.
        """
        if not small(job):
            return None
        key = key_of(job)
        if key not in self._seen:
            if len(self._seen) > KEYS_KEPT_MAX:
                self._seen.clear()
                self._failures.clear()
            self._seen.add(key)
            if len(job.steps) <= MEMBERS_FEW:
                return None
        if self._failures.get(key, 0) >= FAILURES_MAX:
            return None
        try:
            try:
                return self._plan_of(key, job).run(job)
            except HopperFullError:
                self._drop(key)
                return self._plan_of(key, job).run(job)  # its hoppers are made for these rows
        except UnpreparedError:
            self._failures[key] = FAILURES_MAX
        except (Py4JError, PySparkException, NotImplementedError, TypeError, ValueError) as error:
            if CANCELLED in str(error):
                raise  # its time is over: no other way would be quicker
            self._failures[key] = self._failures.get(key, 0) + 1
            self._drop(key)
        return None

    def _drop(self, key: Key) -> None:
        with self._lock:
            self._plans.pop(key, None)

    def _plan_of(self, key: Key, job: TrainStep) -> PreparedPlan:
        with self._lock:
            found = self._plans.pop(key, None)
            if found is not None and found.generation == self._session.generation:
                self._plans[key] = found  # those used last stand last
                return found
        made = PreparedPlan(self._session, self._files, self._schemas, job)
        with self._lock:
            self._plans[key] = made
            while len(self._plans) > PLANS_KEPT_MAX:
                self._plans.pop(next(iter(self._plans)))
        return made
