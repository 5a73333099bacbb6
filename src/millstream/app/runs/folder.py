"""The output folder of a run: whose it is, what job it belongs to, whether it is finished.

`DIR/.millstream` holds the engine's home, a lock, the job's digest and, at the end, the summary.
Decides whether a run may begin, continues, or was finished before; never starts Spark.
"""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.app.config import Job
from millstream.app.config.job_changes import JobChanges, KnownQuery, changes_of
from millstream.core.errors import StateError, UsageError
from millstream.core.json_files import read_sealed, write_sealed
from millstream.core.lock import FolderLock
from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import StreamDefinition
from millstream.language.share.dataflow import base_stream
from millstream.store.arrivals.file_source import list_files, verify_unchanged
from millstream.store.integrity.delivered import ENDING as DIGESTS
from millstream.store.integrity.seal import broken, damaged
from millstream.store.integrity.set_aside import FOLDER as SET_ASIDE

STATE = ".millstream"
RESTARTS = "restarts.json"
KEPT = "kept.json"  # what an edited job need not compute again
REMEDY = "put the file back from a copy, or run the job again into an empty --out folder"
FORMAT_PART = "the output format (--format)"
NEW_RUN = (
    "millstream apply FILE --run DIR takes changed queries over; --fresh begins anew; "
    "or choose another --out folder, or undo the change"
)


class RunFolder:
    """One output folder, locked while this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.home = self.path / STATE
        self._lock = FolderLock(self.home, self.path)

    def __enter__(self) -> "RunFolder":
        self._lock.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    # -- whose job ------------------------------------------------------------------------------

    def claim(self, job: Job, kind: str) -> None:
        """Checks that the folder is the job's own, or nobody's."""
        parts = job_parts(job, kind)
        record = self._read("job.json")
        if record is None:
            self._refuse_foreign(job)
            self.forget()
            return
        changed = _first_difference(record["parts"], parts)
        if changed:
            raise StateError(
                f"{self.path} holds a run of another job: {changed} since it began", hint=NEW_RUN
            )

    def record(self, job: Job, kind: str) -> None:
        """Makes the folder the job's own, before its first row is read."""
        if not self.recorded():
            self.amend(job, kind)

    def amend(self, job: Job, kind: str) -> None:
        """The job as it stands in its file now."""
        queries = {q.name: {"cql": q.cql, "paused": q.paused} for q in job.queries}
        known = {"registered": self.registered(), "pauses": self.pauses()}
        write_sealed(
            self.home / "job.json", {"parts": job_parts(job, kind), "queries": queries} | known
        )

    def changes(self, job: Job) -> JobChanges:
        """What a job file changes of the job that this folder holds."""
        record = self._read("job.json")
        if record is None:
            raise UsageError(
                f"{self.path} is not a folder of a run", hint="the --out folder of a run"
            )
        streams = {
            name.removeprefix("stream "): digest
            for name, digest in record["parts"].items()
            if name.startswith("stream ")
        }
        known = {n: KnownQuery(**q) for n, q in record.get("queries", {}).items()}
        digests = {s.name: _digest(_stream_meaning(s)) for s in job.streams}
        found = changes_of(job, known, streams, digests)
        parts = job_parts(job, self.kind())
        moved = tuple(
            f"{part} has changed, and rows have gone to it: begin anew with run --fresh"
            for part in sorted({*parts, *record["parts"]})
            if part.startswith("the sink of query ")
            and part.rpartition(" ")[2] in known
            and part.rpartition(" ")[2] in {q.name for q in job.queries}
            and parts.get(part) != record["parts"].get(part)
        )
        return replace(found, refused=(*found.refused, *moved))

    def kind(self) -> str:
        """The format of results."""
        return str((self._read("job.json") or {"parts": {}})["parts"].get(FORMAT_PART, "parquet"))

    def registered(self) -> dict[str, str]:
        """Queries that people registered while the job ran, by name."""
        return dict((self._read("job.json") or {}).get("registered", {}))

    def register(self, queries: Mapping[str, str]) -> None:
        write_sealed(
            self.home / "job.json", (self._read("job.json") or {}) | {"registered": dict(queries)}
        )

    def pauses(self) -> dict[str, bool]:
        """Queries that people let rest, or go on, whatever the job file says."""
        return dict((self._read("job.json") or {}).get("pauses", {}))

    def note_pauses(self, pauses: Mapping[str, bool]) -> None:
        write_sealed(self.home / "job.json", (self._read("job.json") or {}) | {"pauses": pauses})

    def taken(self, name: str) -> bool:
        """Whether results of that name lie here already."""
        return any((self.path / f"{name}{end}").exists() for end in ("", ".changes"))

    def put_aside(self, name: str) -> None:
        """Keeps the results of a query that ends, under another name."""
        for end in ("", ".changes"):
            found, number = self.path / f"{name}{end}", 1
            while (aside := self.path / f"{name}{end}.old-{number}").exists():
                number += 1
            if found.is_dir():
                found.rename(aside)
            digests = self.path / f".{found.name}{DIGESTS}"
            if digests.exists():  # of the files that have gone with the folder
                digests.rename(self.path / f".{aside.name}{DIGESTS}")
        if name in (kept := self.kept()):
            self.keep({n: q for n, q in kept.items() if n != name})

    def begin_anew(self) -> None:
        """Forgets the run in this folder and what it wrote; other files stay."""
        record = self._read("job.json") or {"parts": {}}
        names = [*record.get("registered", ())]
        for part in record["parts"]:
            kind, _, name = part.partition(" ")
            names += [name] if kind in ("query", "stream") else []
        for name in names:
            for end in ("", ".changes", ".late", ".rejected"):
                shutil.rmtree(self.path / f"{name}{end}", ignore_errors=True)
                (self.path / f".{name}{end}{DIGESTS}").unlink(missing_ok=True)
        for name in ("job.json", "summary.json", RESTARTS, KEPT):
            (self.home / name).unlink(missing_ok=True)
        self.forget()

    def recorded(self) -> bool:
        return (self.home / "job.json").exists()

    def forget(self) -> None:
        """Removes the state of a job that never began."""
        for file in self.home.glob("ledger.db*"):
            file.unlink()
        self._remove_state()

    def _remove_state(self) -> None:
        for name in ("segments", "staging", "warehouse", SET_ASIDE):
            shutil.rmtree(self.home / name, ignore_errors=True)

    def _refuse_foreign(self, job: Job) -> None:
        """Never writes among files of somebody else."""
        names = [f"{q.name}{end}" for q in job.queries for end in ("", ".changes")]
        names += [f"{s.name}{end}" for s in job.streams for end in (".rejected", ".late")]
        for name in names:
            target = self.path / name
            if target.exists() and not (target.is_dir() and not any(target.iterdir())):
                raise UsageError(
                    f"{target} exists and was not written by this job",
                    hint="choose an empty --out folder",
                )

    def verify_input(self, job: Job) -> None:
        """Refuses to report or go on over other input than was read; starts no Spark."""
        ledger = self.home / "ledger.db"
        if not ledger.exists():
            return
        db = sqlite3.connect(f"{ledger.as_uri()}?mode=ro", uri=True)
        try:
            for stream in job.streams:
                if stream.source.get("source", "file") != "file":
                    continue
                found = "SELECT path, identity FROM source_files WHERE stream = ? ORDER BY number"
                recorded = db.execute(found, (base_stream(stream.name),)).fetchall()
                verify_unchanged(stream.name, recorded)
                begun = "SELECT 1 FROM ingests WHERE stream = ?"
                seen = recorded or db.execute(begun, (base_stream(stream.name),)).fetchall()
                if not seen or stream.source.get("follow"):
                    continue
                known = {path for path, _ in recorded}
                fresh = [p for p in list_files(stream) if str(p) not in known]
                if fresh:
                    raise StateError(
                        f"stream {stream.name}: {fresh[0]} was not there when this run began",
                        hint=NEW_RUN,
                    )
        except sqlite3.DatabaseError as error:
            if broken(error):
                raise damaged(ledger, str(error)) from None
            return  # killed before the ledger had its tables: nothing was read
        finally:
            db.close()

    # -- the end --------------------------------------------------------------------------------

    def finished(self, job: Job) -> dict[str, Any] | None:
        """The summary of a run that came to its end before; None where it has to go on."""
        summary = self._read("summary.json")
        if summary is None:
            return None
        for query in job.queries:
            done = summary["queries"].get(query.name, {}).get("state") == "done"
            if done and not (self.path / query.name).is_dir():
                raise StateError(
                    f"this run is finished, but its results {self.path / query.name} are gone",
                    hint=f"remove {self.home} to compute them again",
                )
        return summary

    def finish(self, summary: Mapping[str, Any], *, keep_state: bool = False) -> None:
        """Records the end; what was only needed to go on is removed, unless somebody may."""
        write_sealed(self.home / "summary.json", summary)
        (self.home / KEPT).unlink(missing_ok=True)  # they stand in the summary
        if not keep_state:
            self._remove_state()

    def reopen(self, query: str) -> None:
        """Lets a failed query of a finished run go on when the run is started again."""
        known = self.summary()["queries"]
        if query not in known:
            raise UsageError(f"there is no query {query}{did_you_mean(query, list(known))}")
        if known[query]["state"] != "failed":
            raise UsageError(f"query {query} has not failed", detail="its run is finished")
        if not known[query].get("restartable"):
            raise UsageError(
                f"query {query} cannot continue where it failed",
                detail="its unread input is no longer kept",
                hint="begin anew with run --fresh",
            )
        write_sealed(self.home / RESTARTS, {"queries": [*self.restarts(), query]})
        (self.home / "summary.json").unlink()

    def reopen_for(self, job: Job, changes: JobChanges) -> None:
        """Makes a finished run one of an edited job: what has not changed stays as it is, the rest
        is computed when the run is started again, from the same files."""
        summary, kind = self.summary(), self.kind()
        anew = {*changes.dropped, *(q.name for _, q in changes.changed)}
        anew |= {n for n, q in summary["queries"].items() if q["state"] != "done"}
        if wanted := [q.name for q in job.queries if q.name in anew or q in changes.added]:
            self._refuse_rows_that_are_gone(job, wanted[0])
            self.verify_input(job)
        for name in sorted(anew):
            self.put_aside(name)
        kept = {n: q for n, q in summary["queries"].items() if n not in anew}
        if not wanted:
            write_sealed(self.home / "summary.json", summary | {"queries": kept})
            self.amend(job, kind)
            return
        self.keep(kept)
        for stream in job.streams:  # they are told again
            for end in (".late", ".rejected"):
                shutil.rmtree(self.path / f"{stream.name}{end}", ignore_errors=True)
                (self.path / f".{stream.name}{end}{DIGESTS}").unlink(missing_ok=True)
        self.forget()
        (self.home / "summary.json").unlink()  # the last but one: before it all can be done again
        self.amend(job, kind)

    def _refuse_rows_that_are_gone(self, job: Job, query: str) -> None:
        for stream in job.streams:
            if stream.source.get("source", "file") != "file":
                raise StateError(
                    f"the run in {self.path} is finished, and rows of {stream.name} are gone",
                    detail=f"they came from elsewhere: {query} could not be computed from them",
                    hint="take what is new or changed out of the file, or begin anew with run "
                    "--fresh",
                )

    def kept(self) -> dict[str, Any]:
        """Queries that a run before has finished and that are not computed again."""
        return dict((self._read(KEPT) or {}).get("queries", {}))

    def keep(self, queries: Mapping[str, Any]) -> None:
        write_sealed(self.home / KEPT, {"queries": dict(queries)})

    def restarts(self) -> list[str]:
        """Failed queries that somebody wants to go on when the run does."""
        return list((self._read(RESTARTS) or {}).get("queries", ()))

    def restarted(self) -> None:
        """They do."""
        (self.home / RESTARTS).unlink(missing_ok=True)

    def summary(self) -> dict[str, Any]:
        """What the run did; StateError where it has not come to its end."""
        found = self._read("summary.json") if self.path.is_dir() else None
        if found is None:
            raise StateError(
                f"there is no finished run in {self.path}", hint="give the --out folder of a run"
            )
        return found

    # -- files ----------------------------------------------------------------------------------

    def _read(self, name: str) -> dict[str, Any] | None:
        return read_sealed(self.home / name, REMEDY)


def job_parts(job: Job, kind: str) -> dict[str, str]:
    """What a run's result depends on, part by part, as digests.

    Comments, order and engine settings are not part of a job's meaning.
    """
    parts = {FORMAT_PART: kind}
    for stream in job.streams:
        parts[f"stream {stream.name}"] = _digest(_stream_meaning(stream))
    for query in job.queries:
        parts[f"query {query.name}"] = _digest([query.cql, query.from_beginning])
        if query.sink is not None:  # whom one logs in as, and where the server is, may change
            place = query.sink.options.get("table", query.sink.options.get("path"))
            target = [query.sink.kind, place, query.sink.key]
            parts[f"the sink of query {query.name}"] = _digest(target)
    return parts


def _stream_meaning(stream: StreamDefinition) -> list[Any]:
    source = {k: v for k, v in stream.source.items() if k != "rate"}  # when, not what
    columns = [[f.name, f.type] for f in stream.columns]
    limits = [stream.lateness_us, stream.idle_us, stream.max_ahead_us]
    return [columns, stream.time, limits, source]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _first_difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What changed, in words; empty where nothing did."""
    for name in before:
        if name not in now:
            return f"{name} was removed"
        if before[name] != now[name]:
            return f"{name} has changed"
    for name in now:
        if name not in before:
            return f"{name} was added"
    return ""
