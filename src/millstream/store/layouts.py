"""Which rows and columns of a shared file belong to which stream, as the ledger keeps it.

A layout is written down once for all files that a group of operators makes; segments name it by
its number.
"""

import json
from collections.abc import Mapping

from millstream.core.errors import StateError
from millstream.language.share.shared_plan import Place
from millstream.store.ledger import Ledger

REMEMBERED_MAX = 1_000
TEXTS_MAX = 100


class Layouts:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.on_drop.append(self._forget_stream)
        # changed only by who holds the ledger's lock: one lock, so that no two wait for each other
        self._known: dict[int, Mapping[str, Place]] = {}
        self._texts: dict[int, tuple[Mapping[str, Place], str]] = {}  # by who the places are
        self._last = 0

    def number(self, places: Mapping[str, Place]) -> int:
        """The layout's number, new if need be (inside a transaction)."""
        text = self._text(places)
        rows = self._ledger.rows("SELECT id FROM layouts WHERE text = ?", (text,))
        if rows:
            return int(rows[0]["id"])
        # a number is never given again: files that were merged may still be read under it
        self._last = self._greatest() + 1
        self._ledger.change("INSERT INTO layouts VALUES (?, ?)", (self._last, text))
        return self._last

    def _text(self, places: Mapping[str, Place]) -> str:
        """What is written down; steps of one group come with the same places again and again."""
        known = self._texts.get(id(places))
        if known is None or known[0] is not places:
            told = {s: [p.word, p.bit, dict(p.columns)] for s, p in sorted(places.items())}
            known = (places, json.dumps(told))
            if len(self._texts) > TEXTS_MAX:
                self._texts.clear()
            self._texts[id(places)] = known
        return known[1]

    def _greatest(self) -> int:
        """The greatest number that was given since the ledger was opened, or is in it."""
        (most,) = self._ledger.rows("SELECT coalesce(max(id), 0) AS id FROM layouts")
        return max(self._last, int(most["id"]))

    def places(self, number: int) -> Mapping[str, Place]:
        known = self._known.get(number)
        if known is not None:
            return known
        with self._ledger.alone():
            rows = self._ledger.rows("SELECT text FROM layouts WHERE id = ?", (number,))
            if rows:
                self._known[number] = _read(rows[0]["text"])
            if number not in self._known:
                raise StateError(f"layout {number} is not in the ledger")
            return self._known[number]

    def _forget_stream(self, stream: str) -> None:
        """Takes a dropped stream out of all layouts (inside a transaction).

        A stream of the same name may come again, and old rows are not its own.
        """
        for number, places in list(self._known.items()):
            if stream in places:
                self._known[number] = {s: p for s, p in places.items() if s != stream}
        pattern = f'%"{stream}"%'
        for row in self._ledger.rows("SELECT * FROM layouts WHERE text LIKE ?", (pattern,)):
            told = json.loads(row["text"])
            told.pop(stream, None)
            text = json.dumps(told)
            self._ledger.change("UPDATE layouts SET text = ? WHERE id = ?", (text, row["id"]))
            self._known.pop(int(row["id"]), None)  # read anew, also if this is undone

    def forget_unused(self) -> None:
        """Drops layouts that no segment names (inside a transaction).

        A step under way may still read files that were merged meanwhile: it is answered from
        memory.
        """
        self._last = self._greatest()  # those that go may still be known under their numbers
        unused = "id NOT IN (SELECT tag FROM segments WHERE tag IS NOT NULL)"
        for row in self._ledger.rows(f"SELECT * FROM layouts WHERE {unused}"):
            self._known.setdefault(int(row["id"]), _read(row["text"]))
        for number in sorted(self._known)[:-REMEMBERED_MAX]:
            del self._known[number]
        self._ledger.change(f"DELETE FROM layouts WHERE {unused}")


def _read(text: str) -> Mapping[str, Place]:
    return {s: Place(w, b, c) for s, (w, b, c) in json.loads(text).items()}
