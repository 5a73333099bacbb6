"""An active run, as others may inspect and control it.

Another job file can be put in place of its own (`millstream apply`). Goals of quality of service
can be changed in three ways: by editing `[qos]` of the job file, by `millstream qos DIR`, and by
the holder of this object, such as the HTTP endpoint. Commands send requests as small files in the
run's folder, answered by files. Changed goals are kept in the folder and hold when the run
continues after a stop, until the job file's own `[qos]` changes. Goals never change a result.
"""

import os
import time
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.app.config import Job, load_job
from millstream.app.config.job_file import JobFileError
from millstream.app.runs.checking import check_job
from millstream.app.runs.display import Display
from millstream.app.runs.job_edits import JobEdits
from millstream.control.definitions.qos_table import quality_of, specification_of, table_of
from millstream.core.errors import MillstreamError, UsageError
from millstream.core.json_files import read_json, write_whole
from millstream.core.lock import locked
from millstream.decide.schedule.goal_text import MAY_DROP
from millstream.decide.schedule.quality import DEFAULT, Quality
from millstream.engine.scheduling.figures import scheduling_figures
from millstream.engine.scheduling.goals import change_goals, set_quality

if TYPE_CHECKING:
    from millstream.engine.engine import Engine
    from millstream.engine.loop import Loop

KEPT = "qos.json"
LIVE = "live.json"
WISHES = "wishes"
APPLY = "apply"  # the key of a wish for another job file
KEEP = "keep_results"  # with it: queries that have changed go on with their results
DRY_RUN = "dry_run"  # with it: only what would become of them
RESTART = "restart"  # and of one for a failed query to go on
PAUSE, RESUME = "pause", "resume"  # and of those for a query to rest and to go on
WISH_KEYS = ("goals", "template", MAY_DROP, "query", "weight", "forget")
LOOK_SECONDS = 0.5
LIVE_SECONDS = 2.0


class LiveRun:
    """One run between its first and its last step."""

    def __init__(
        self, edits: JobEdits, home: Path, engine: "Engine", loop: "Loop", shown: Display
    ) -> None:
        self.edits, self.home, self.engine, self.loop = edits, home, engine, loop
        job = edits.job
        self.url = ""  # of its endpoint, where it has one
        self._shown = shown
        self._file_seen = _modified(job.path)
        self._file_goals: Quality = job.engine.get("quality", DEFAULT)
        self._told: dict[str, bool | None] = {}
        self._starving: frozenset[str] = frozenset()
        self._next_look = self._next_live = 0.0
        for unread in (home / WISHES).glob("*.answer"):  # whoever asked has given up
            unread.unlink(missing_ok=True)
        self._restore()

    @property
    def job(self) -> Job:
        """The job as it stands now."""
        return self.edits.job

    def status(self) -> dict[str, Any]:
        """The engine's figures and those of its scheduling."""
        return {**self.engine.status(), "scheduling": self.scheduling()}

    def scheduling(self) -> dict[str, Any]:
        return scheduling_figures(self.loop)

    def apply(self, path: Path, *, keep: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Makes the run one of an edited job file, or tells what would become of its queries; all
        its mistakes are told before."""
        job = load_job(path)
        checked = check_job(job, self.engine.compiler.analyzer)
        if checked.mistakes:
            raise JobFileError(checked.mistakes)
        if dry_run:
            return self.edits.foretell(job, self._foretold)
        done = self.edits.apply(job, keep=keep)
        self._file_seen = 0  # its goals may have changed with it
        return done

    def _foretold(self, cql: str, query: str) -> list[str]:
        try:
            told = self.engine.foretell(cql, query)
        except UsageError as error:
            return [f"query {query} would be registered anew: {error.message}"]
        return [] if told is None else told.lines()

    def restart(self, name: str) -> dict[str, Any]:
        """Lets a failed query go on where it failed."""
        self.engine.restart_query(name)
        self.loop.wake()
        self._shown.say(f"query {name} is restarted")
        return {"restarted": name}

    def pause(self, name: str, wanted: bool) -> dict[str, Any]:
        """Lets a query rest, or go on where it stood."""
        if name not in self.engine.queries:
            raise UsageError(f"there is no query {name}")
        self.edits.pause(name, wanted)
        self.loop.wake()
        self._shown.say(f"query {name} {'is paused' if wanted else 'continues'}")
        return {"query": name, "paused": wanted}

    # -- goals ----------------------------------------------------------------------------------

    def change_goals(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        """Goals as `{"goals": "delay <= 2s", "query": "errors", "weight": 2}`; gives how all stand.

        `template` or a list of goals in place of the line; `forget` drops a query's own goals.
        """
        query, weight = _checked_wish(wish)
        given = {k: v for k, v in wish.items() if k in ("goals", "template", MAY_DROP)}
        specification = specification_of(given) if given else None
        with self.engine.lock:
            quality = change_goals(self.engine, specification, query, weight)
            self._keep(quality)
        return self.scheduling()

    def _keep(self, quality: Quality) -> None:
        kept = {"qos": table_of(quality), "instead_of": table_of(self._file_goals)}
        write_whole(self.home / KEPT, kept)

    def _restore(self) -> None:
        """Goals that were changed before a stop, unless the job file's have changed since."""
        kept = read_json(self.home / KEPT)
        if kept is None or kept.get("instead_of") != table_of(self._file_goals):
            return
        names = [q.name for q in self.job.queries]
        set_quality(self.engine, quality_of(kept["qos"], names))
        self._shown.say("goals of quality as they were changed before the stop")

    def _look_at_job_file(self) -> None:
        """Takes over `[qos]` of the job file when somebody has edited it."""
        seen = _modified(self.job.path)
        if seen == self._file_seen:
            return
        self._file_seen = seen
        try:
            table = tomllib.loads(self.job.path.read_text(encoding="utf-8")).get("qos")
            names = [q.name for q in self.job.queries]
            quality = DEFAULT if table is None else quality_of(table, names)
            if quality == self._file_goals:
                return
            set_quality(self.engine, quality)
        except (OSError, ValueError, AttributeError, MillstreamError) as error:
            first = str(error).split("\n", maxsplit=1)[0]
            self._shown.say(f"[qos] of {self.job.path.name} was not taken over: {first}")
            return
        self._file_goals = quality
        (self.home / KEPT).unlink(missing_ok=True)
        self._shown.say(f"goals of quality taken over from {self.job.path.name}")

    # -- now and then ---------------------------------------------------------------------------

    def look(self) -> None:
        """Called by the run: wishes, the job file, limits met or not, somebody starving."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._look_at_job_file()
        self._answer_wishes()
        figures = self.scheduling()
        self._tell_goals(figures)
        if now >= self._next_live:
            self._next_live = now + LIVE_SECONDS
            write_whole(self.home / LIVE, self._live(figures))

    def _live(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        return {"pid": os.getpid(), "url": self.url, "at": time.time(), "scheduling": figures}

    def _answer_wishes(self) -> None:
        for file in sorted((self.home / WISHES).glob("*.wish")):
            try:
                answer = self._obeyed(read_json(file) or {})
            except MillstreamError as error:
                answer = {"error": error.message, "detail": error.detail, "hint": error.hint}
                self._shown.say(f"what was asked for is refused: {error.message}")
            write_whole(file.with_suffix(".answer"), answer)
            file.unlink(missing_ok=True)

    def _obeyed(self, wish: Mapping[str, Any]) -> dict[str, Any]:
        if APPLY in wish:
            dry_run = bool(wish.get(DRY_RUN))
            done = self.apply(Path(str(wish[APPLY])), keep=bool(wish.get(KEEP)), dry_run=dry_run)
            if dry_run:
                return done
            self._shown.say(f"the job is now that of {wish[APPLY]}")
            return done
        if RESTART in wish:
            return self.restart(str(wish[RESTART]))
        for key in (PAUSE, RESUME):
            if key in wish:
                return self.pause(str(wish[key]), key == PAUSE)
        answer = self.change_goals(wish)
        self._shown.say("goals of quality changed")
        return answer

    def _tell_goals(self, figures: Mapping[str, Any]) -> None:
        """Says once when a limit is met or no longer, and who begins to starve."""
        for goal in figures["goals"]:
            whose = f" of query {goal['query']}" if goal["query"] else ""
            key = f"{goal['query']}/{goal['statistic']}/{goal['limit']}"
            before = self._told.get(key)
            if goal["met"] is not None and goal["met"] != before:
                self._told[key] = goal["met"]
                if before is not None or not goal["met"]:
                    self._shown.say(f"goal{whose}: {goal['told']}")
        starving = frozenset(figures["starving"])
        for label in sorted(starving - self._starving):
            waited = figures["starving"][label]
            self._shown.say(f"operator {label} starves: its rows were passed over for {waited:g} s")
        self._starving = starving

    def close(self) -> None:
        """The run ends or stops: nobody answers here any more."""
        (self.home / LIVE).unlink(missing_ok=True)


# -- from another process -----------------------------------------------------------------------


def leave_wish(home: Path, wish: Mapping[str, Any]) -> Path:
    """Puts a wish into a run's folder; gives the file that will hold the answer."""
    if wish.keys().isdisjoint((APPLY, RESTART, PAUSE, RESUME)):
        _checked_wish(wish)
    folder = home / WISHES
    folder.mkdir(exist_ok=True)
    name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
    write_whole(folder / f"{name}.wish", wish)
    return folder / f"{name}.answer"


def answered(
    home: Path, wish: Mapping[str, Any], seconds_max: float, *, keep: bool = False
) -> dict[str, Any] | None:
    """What a run that goes on answers to a wish; UsageError where it refuses. None where it does
    not answer in time: with `keep`, the next run finds the wish."""
    answer_file = leave_wish(home, wish)
    deadline = time.monotonic() + seconds_max
    while locked(home) and time.monotonic() < deadline:
        answer = read_json(answer_file)
        if answer is not None:
            answer_file.unlink(missing_ok=True)
            if "error" in answer:
                raise UsageError(answer["error"], detail=answer["detail"], hint=answer["hint"])
            return answer
        time.sleep(0.1)
    if not keep:
        answer_file.with_suffix(".wish").unlink(missing_ok=True)
    return None


def live_figures(home: Path) -> dict[str, Any] | None:
    """What a run has last told of itself; None where none goes on."""
    return read_json(home / LIVE)


def _checked_wish(wish: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """The query and the weight of a wish; UsageError where it is none."""
    for key in wish:
        if key not in WISH_KEYS:
            raise UsageError(f"unknown key {key}", hint=f"one of {', '.join(WISH_KEYS)}")
    query, weight, forget = wish.get("query"), wish.get("weight"), wish.get("forget", False)
    if query is not None and not isinstance(query, str):
        raise UsageError("query is the name of a query")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise UsageError("weight is a number")
    given = "goals" in wish or "template" in wish
    if forget is True and (given or query is None):
        raise UsageError("forget takes a query and no goals")
    if not given and forget is not True and (weight is None or query is not None):
        raise UsageError("no goals are given", hint='"delay <= 2s", or the name of a template')
    return query, None if weight is None else float(weight)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
