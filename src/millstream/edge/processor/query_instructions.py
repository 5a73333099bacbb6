"""When a manager last had a query hosted here, and when one had it dropped, by (epoch, number).

A manager with an empty home learns from processors what runs. A processor that was away while a
query was dropped still has it. Those that dropped it remember this, and a query that was dropped
after it was last hosted stays dropped. A query of the same name that came later was hosted later.
"""

from millstream.control.protocol.commands import Host, Prepare, Unhost
from millstream.control.protocol.records import UNTOLD, Told
from millstream.store.ledger import Ledger

HOSTED, DROPPED = "hosted_at:", "dropped_at:"
DROPPED_KEPT = 1000  # those that were dropped before are forgotten


class ToldQueries:
    """What one ledger has of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def note(self, command: object, at: Told) -> None:
        """Before a command is carried out: a crash between the two changes nothing."""
        match command:
            case Host():
                self._host(command.query, at)
            case Prepare():
                for host in command.hosts:
                    self._host(host.query, at)
            case Unhost(dropped=True):
                self._drop(command.query, at)

    def _host(self, query: str, at: Told) -> None:
        if self._of(HOSTED).get(query, UNTOLD) < at:
            with self._ledger.transaction() as ledger:
                ledger.set_meta(HOSTED + query, _text(at))

    def _drop(self, query: str, at: Told) -> None:
        with self._ledger.transaction() as ledger:
            ledger.drop_meta(HOSTED + query)
            ledger.set_meta(DROPPED + query, _text(at))
            known = sorted(self.dropped().items(), key=lambda one: one[1])
            for gone, _ in known[: max(0, len(known) - DROPPED_KEPT)]:
                ledger.drop_meta(DROPPED + gone)

    def hosted(self) -> dict[str, Told]:
        return self._of(HOSTED)

    def dropped(self) -> dict[str, Told]:
        return self._of(DROPPED)

    def _of(self, kind: str) -> dict[str, Told]:
        rows = self._ledger.rows(
            "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ?", (len(kind), kind)
        )
        return {r["key"].removeprefix(kind): _told(r["value"]) for r in rows}


def _text(at: Told) -> str:
    return f"{at[0]} {at[1]}"


def _told(text: str) -> Told:
    epoch, number = text.split()
    return int(epoch), int(number)
