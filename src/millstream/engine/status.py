"""Figures of a running engine, for displays and scripts."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from millstream.engine.changes.history import Histories
from millstream.engine.costs import query_costs
from millstream.engine.dataflow import Dataflow
from millstream.language.plan.windows import BEGINNING, FOREVER
from millstream.language.share.dataflow import base_stream
from millstream.store.consumers import Consumer


def status(flow: Dataflow, histories: Histories) -> Mapping[str, Any]:
    """Streams, operators, queries and what sharing saves, as plain values."""
    ledger = flow.ledger
    counters = ledger.counters()
    streams = {row["id"]: row for row in ledger.streams()}
    costs = query_costs(flow)
    statistics = ledger.operator_statistics()
    ratios = flow.path_times.ratios()
    shed = flow.shedding.rows_by_query(statistics)

    def behind(consumer: Consumer | str, stream: str) -> int:
        following, _ = ledger.cursor(consumer, stream)
        return sum(s.rows for s in ledger.segments(stream, following))

    return {
        "streams": {
            name: {
                "rows": streams[base_stream(name)]["rows"],
                "late": counters.get(f"late:{name}", 0),
                "rejected": counters.get(f"rejected:{name}", 0),
                "watermark": mark(streams[base_stream(name)]["watermark"]),
                "ended": bool(ledger.ingest_position(base_stream(name)).get("ended")),
            }
            for name in flow.appenders
        },
        "operators": {
            operator.id: {
                "label": operator.label,
                "kind": operator.kind,
                "queries": sorted(q.name for q in flow.queries_of(operator.id)),
                "backlog": sum(behind(operator.id, s) for s in operator.inputs),
                **_figures(statistics.get(operator.id)),
            }
            for operator in list(flow.operators.values())
        },
        "queries": {
            query.name: {
                "state": query.state,
                "reason": query.reason,
                "culprits": query.culprits,
                "restartable": query.restartable,
                "rows": streams[query.stream]["rows"] if query.stream in streams else 0,
                "shed": shed.get(query.name, 0),
                "relation": query.plan.relation,
                "own_s": round(costs[query.name].own_s, 3),
                "shared_s": round(costs[query.name].shared_s, 3),
                "watermark": mark(streams[query.stream]["watermark"])
                if query.stream in streams
                else None,
                **(ratios[query.name].figures() if query.name in ratios else {}),
                **histories.figures(query),
            }
            for query in flow.queries.values()
        },
        "sharing": flow.savings.saved().figures(),
    }


def _figures(row: Any) -> dict[str, Any]:
    if row is None:
        return {"rows_in": 0, "rows_out": 0, "steps": 0, "seconds": 0.0}
    return {k: row[k] for k in ("rows_in", "rows_out", "steps", "seconds")}


def mark(watermark: int) -> str | None:
    """A watermark for people: ISO time, `end`, or nothing yet."""
    if watermark == BEGINNING:
        return None
    if watermark == FOREVER:
        return "end"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=watermark)
    return moment.isoformat().replace("+00:00", "Z")
