"""Which rows and columns of a shared file belong to which stream, as the ledger keeps it.

A layout is written down once for all files that a group of operators makes; segments name it by
its number.
"""

import json
import threading
from collections.abc import Mapping

from millstream.engine.ledger import Ledger
from millstream.errors import StateError
from millstream.share.together import Place


class Layouts:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.on_drop.append(self._forget_stream)
        self._known: dict[int, Mapping[str, Place]] = {}
        self._lock = threading.Lock()

    def number(self, places: Mapping[str, Place]) -> int:
        """The layout's number, new if need be (inside a transaction)."""
        text = json.dumps({s: [p.word, p.bit, dict(p.columns)] for s, p in sorted(places.items())})
        rows = self._ledger.rows("SELECT id FROM layouts WHERE text = ?", (text,))
        if rows:
            return int(rows[0]["id"])
        self._ledger.change("INSERT INTO layouts (text) VALUES (?)", (text,))
        return int(self._ledger.rows("SELECT id FROM layouts WHERE text = ?", (text,))[0]["id"])

    def places(self, number: int) -> Mapping[str, Place]:
        with self._lock:
            if number not in self._known:
                rows = self._ledger.rows("SELECT text FROM layouts WHERE id = ?", (number,))
                if not rows:
                    raise StateError(f"layout {number} is not in the ledger")
                told = json.loads(rows[0]["text"])
                self._known[number] = {s: Place(w, b, c) for s, (w, b, c) in told.items()}
            return self._known[number]

    def _forget_stream(self, stream: str) -> None:
        """Takes a dropped stream out of all layouts (inside a transaction).

        A stream of the same name may come again, and old rows are not its own.
        """
        with self._lock:
            self._known.clear()
        pattern = f'%"{stream}"%'
        for row in self._ledger.rows("SELECT * FROM layouts WHERE text LIKE ?", (pattern,)):
            told = json.loads(row["text"])
            told.pop(stream, None)
            text = json.dumps(told)
            self._ledger.change("UPDATE layouts SET text = ? WHERE id = ?", (text, row["id"]))

    def forget_unused(self) -> None:
        """Drops layouts that no segment names (inside a transaction)."""
        with self._lock:
            self._known.clear()
        self._ledger.change(
            "DELETE FROM layouts WHERE id NOT IN (SELECT tag FROM segments WHERE tag IS NOT NULL)"
        )
