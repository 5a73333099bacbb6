"""The last rows of each stream that were late or malformed, with reasons, for whoever looks on.

Named as their output folders are: `STREAM.late`, `STREAM.rejected`. A run hands such rows over to
files and forgets them, so that they are looked at before.
"""

from typing import TYPE_CHECKING

from millstream.edge.views.recent import ROWS_KEPT, LatestRows

if TYPE_CHECKING:
    from millstream.engine.engine import Engine

LATE, REJECTED = ".late", ".rejected"


class KeptRejects:
    """Reads what an engine has put aside; keeps the latest of it."""

    def __init__(self, engine: "Engine", latest: LatestRows) -> None:
        self._engine, self._latest = engine, latest
        self._seen: dict[str, int] = {}

    def name_of(self, stream: str) -> str:
        """How rows of a stream of the ledger are named here; empty where they are no rejects."""
        kind, _, name = stream.partition(":")
        ending = {"l": LATE, "r": REJECTED}.get(kind)
        return f"{name}{ending}" if ending and name in self._engine.appenders else ""

    def stream_of(self, name: str) -> str:
        """The other way round."""
        for kind, ending in (("l", LATE), ("r", REJECTED)):
            stream = name.removesuffix(ending)
            if name.endswith(ending) and stream in self._engine.appenders:
                return f"{kind}:{stream}"
        return ""

    def look(self, stream: str) -> None:
        """Keeps what has come of a stream of rejects since the last look."""
        from millstream.language.share.dataflow import REJECTED_NAMES  # noqa: PLC0415
        from millstream.store.delivery import user_table  # noqa: PLC0415

        engine, name = self._engine, self.name_of(stream)
        malformed = name.endswith(REJECTED)
        declared = engine.catalog.stream(stream.partition(":")[2]).columns
        names = list(REJECTED_NAMES) if malformed else [f.name for f in declared]
        with engine.streams.removals.reading():
            seen = self._seen.get(stream, 0)
            for segment in engine.ledger.segments(stream, seen + 1):
                self._seen[stream] = segment.last
                if not segment.rows:
                    continue
                stored = engine.store.read(segment)
                kept = stored.slice(max(0, stored.num_rows - ROWS_KEPT))
                table = user_table(kept, names, timed=not malformed)
                rows = [tuple(row.values()) for row in table.to_pylist()]
                self._latest.add(name, table.column_names, rows, stored.num_rows - kept.num_rows)
