"""Which way an operator's rows are computed here: the usual one of its text, or another.

A manager may have a join computed from joins of some of its inputs (`share/join_orders.py`). The
way is told with the operator and lies in the ledger for as long as the operator is here; every
other operator of a text is taken the usual way, because its columns are the same whatever the way.
"""

import json
from collections.abc import Mapping

from millstream.control.protocol.commands import Host
from millstream.engine.ports import CompiledQuery
from millstream.language.share.dataflow import Operator
from millstream.language.share.join_orders import by_ways, other_ways
from millstream.store.ledger import Ledger

KEY = "way:"  # and an operator's id: its inputs, where they are not the usual ones
KEPT_MAX = 1_000


class Ways:
    """Operators of texts, each by its way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._others: dict[tuple[str, ...], tuple[Operator, ...]] = {}

    def others(self, compiled: CompiledQuery) -> tuple[Operator, ...]:
        """Parts of its joins, and other ways to compute what its operators give."""
        key = tuple(o.id for o in compiled.operators)
        if key not in self._others:
            if len(self._others) >= KEPT_MAX:
                self._others.clear()
            self._others[key] = other_ways(compiled.operators)
        return self._others[key]

    def meant(self, compiled: CompiledQuery, text: Host) -> dict[str, Operator]:
        """The operators of a text by id, producers first: those here by their way."""
        usual = {o.id: o for o in compiled.operators}
        ways = {**self.here(text.operators), **text.ways}
        if not ways and all(o in usual for o in text.operators):
            return usual
        wanted = (compiled.stream, *text.operators)
        return by_ways(usual.values(), self.others(compiled), ways, wanted)

    def here(self, operators: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """The ways of operators of which the ledger knows another than the usual one."""
        rows = self._ledger.rows(
            "SELECT key, value FROM meta WHERE key >= ? AND key < ?", (KEY, KEY[:-1] + ";")
        )
        kept = {row["key"].removeprefix(KEY): row["value"] for row in rows}
        return {name: tuple(json.loads(kept[name])) for name in operators if name in kept}

    def keep(self, ways: Mapping[str, tuple[str, ...]]) -> None:
        """Notes ways of operators that come here (inside a transaction)."""
        for name, inputs in ways.items():
            self._ledger.set_meta(KEY + name, json.dumps(inputs))

    def forget(self, operator: str) -> None:
        self._ledger.drop_meta(KEY + operator)
