"""The moment at which a query takes another's place: who reads what from then on.

All of it is one transaction. Readers get what the old query has given up to its last number, then
what its table differs in, then what the new one gives from its next number on; numbers only rise.
"""

from millstream.engine.changes.flow import ChangingFlow
from millstream.engine.query import (
    Query,
    culprits_of,
    given_up_of,
    history_of,
    replaced_by,
    restarts_of,
)
from millstream.store import faults
from millstream.store.consumers import Consumer, subscriber
from millstream.store.delivery import Result
from millstream.store.segments import Written
from millstream.store.sinks.result_line import (
    Former,
    formers_of,
    note_formers,
    with_formers,
)

READERS = ("subscriber", "sink", "changes")  # kinds of consumers that read a result


def put_in_place(
    engine: ChangingFlow, old: Query, new: Query, between: Written | None
) -> list[str]:
    """One query for another, under the engine's lock; gives files to go."""
    name = old.name
    paused = old.paused
    with engine.ledger.transaction() as ledger:
        _move_readers(engine, old, new, between)
        gone = _hand_operators(engine, old, new)
        ledger.change_query(name, new.cql, new.stream)
        if not paused:
            ledger.set_query_state(name, "running")
        for key in (culprits_of, given_up_of, history_of, replaced_by, restarts_of):
            ledger.drop_meta(key(name))
        engine.hosting.leave(new.name)
        engine.streams.layouts.forget_unused()
    state, reason = (old.state, old.reason) if paused else ("running", "")
    engine.queries[name] = Query(
        name, new.cql, new.plan, new.start, new.stream, new.operators, state, reason,
        here_since=old.here_since,
    )  # fmt: skip
    del engine.queries[new.name]
    result = Result(name, new.stream, new.plan.columns, new.plan.relation)
    for delivery in engine.deliveries:
        if delivery.result.query == name:
            delivery.result, delivery.formers = result, formers_of(engine.ledger, name)
    engine.histories.forget(name)
    engine.histories.forget(new.name)
    engine.pause_operators()
    engine.tell("replaced", engine.queries[name])
    return gone


def _move_readers(engine: ChangingFlow, old: Query, new: Query, between: Written | None) -> None:
    """Lets readers go on behind the last number of the old result (inside a transaction)."""
    ledger = engine.ledger
    until = _head(engine, old.stream)
    formers = [*formers_of(ledger, old.name), Former(old.stream, until, old.plan.columns)]
    joint = f"b:{old.name}:{until}"
    if between is not None and between.rows:
        ledger.add_stream(joint, "result")
        ledger.set_columns(joint, ledger.columns(old.stream))
        ledger.set_head(joint, until, 0, 0, 0)
        ledger.publish(joint, [between], 0)
        formers.append(Former(joint, until + 1, old.plan.columns))
    following = max(formers[-1].until, _head(engine, new.stream))
    ledger.skip_to(new.stream, following)
    head = ledger.stream(new.stream)
    assert head is not None
    for consumer in _readers(engine, old):
        if _reads_nothing(engine, old, consumer):
            ledger.drop_cursor(consumer, old.stream)
        elif formers[-1].stream == joint:
            ledger.set_cursor(consumer, joint, until, 0)
        ledger.set_cursor(consumer, new.stream, following, int(head["watermark"]))
    note_formers(ledger, old.name, formers)
    held = Consumer("table", new.name)
    ledger.drop_consumer(Consumer("table", old.name))
    if held in ledger.consumers(new.stream):
        place = ledger.cursor(held, new.stream)
        ledger.set_cursor(Consumer("table", old.name), new.stream, *place)
        ledger.drop_consumer(held)


def _readers(engine: ChangingFlow, query: Query) -> set[Consumer]:
    """Who reads a query's result, now or as soon as it is back."""
    attached = {d.consumer for d in engine.deliveries if d.result.query == query.name}
    own = _own_readers(engine, query.stream, query.name)
    return {*attached, *own, subscriber(query.name)}


def _reads_nothing(engine: ChangingFlow, query: Query, consumer: Consumer) -> bool:
    """Whether a query's own cursor stands for nobody: a table's changes go to sinks instead."""
    attached = [d.consumer for d in engine.deliveries if d.result.query == query.name]
    own = consumer == subscriber(query.name) and query.plan.relation
    return own and bool(attached) and consumer not in attached


def _hand_operators(engine: ChangingFlow, old: Query, new: Query) -> list[str]:
    """The query has the new operators; those that nobody uses any more are forgotten, but not the
    result that somebody has yet to read (inside a transaction). Gives files to go."""
    ownership = engine.hosting.ownership
    for operator in new.operators:
        ownership.host(old.name, operator)
        ownership.unhost(new.name, operator)
    leaving = [o for o in old.operators if o not in new.operators]
    for operator in leaving:
        ownership.unhost(old.name, operator)
    return engine.hosting.forget_unused(old.name, leaving, {old.stream})


def tidy(engine: ChangingFlow) -> None:
    """Forgets streams of former queries that everybody has read to their end."""
    for name in with_formers(engine.ledger):
        query = engine.queries.get(name)
        if query is None:
            continue  # not declared again yet
        formers = formers_of(engine.ledger, name)
        left = [f for f in formers if _unread(engine, f, name)]
        engine.maintenance.retain(f.stream for f in left)
        if len(left) == len(formers):
            continue
        gone: list[str] = []
        with engine.ledger.transaction() as ledger:
            for former in formers:
                if former not in left:
                    gone += _forget_former(engine, former, query)
            note_formers(ledger, name, left)
        for delivery in engine.deliveries:
            if delivery.result.query == name:
                delivery.formers = tuple(left)
        faults.reach("replace.tidied")
        engine.streams.remove(gone)


def drop_formers(engine: ChangingFlow, name: str) -> None:
    """A query goes, and with it what its result was made of before."""
    gone: list[str] = []
    with engine.ledger.transaction() as ledger:
        for former in formers_of(ledger, name):
            gone += _forget_former(engine, former, engine.queries[name])
        note_formers(ledger, name, ())
    engine.streams.remove(gone)


def _forget_former(engine: ChangingFlow, former: Former, query: Query) -> list[str]:
    """Lets go of a former stream, and of the stream itself where nobody else has it (inside a
    transaction); gives files to go."""
    ledger, stream = engine.ledger, former.stream
    for consumer in _own_readers(engine, stream, query.name):
        ledger.drop_cursor(consumer, stream)
    used = stream in engine.operators or any(q.stream == stream for q in engine.queries.values())
    if used or ledger.consumers(stream):
        return []
    engine.hosting.ownership.disown(stream)
    return ledger.drop_stream(stream)


def _unread(engine: ChangingFlow, former: Former, query: str) -> bool:
    """Whether a reader has yet to take rows of a former stream."""
    places = engine.ledger.consumers(former.stream)
    return any(
        former.segments(engine.ledger, places[reader].next)
        for reader in _own_readers(engine, former.stream, query)
    )


def _own_readers(engine: ChangingFlow, stream: str, query: str) -> list[Consumer]:
    """Those of a stream's consumers that read it as the result of a query."""
    listed = engine.ledger.consumers(stream)
    return [c for c in listed if c.kind in READERS and query in (c.name, c.name.rpartition(":")[0])]


def _head(engine: ChangingFlow, stream: str) -> int:
    row = engine.ledger.stream(stream)
    return 1 if row is None else int(row["next"])
