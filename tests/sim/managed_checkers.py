"""What must be true of a managed cluster, whatever went wrong: judges a run from its ledgers.

Checkers read the processors' ledgers and the log of all commits, and compare the manager's picture
with them; they share no code with the manager. Each gives sentences, none where all is well.
"""

from collections.abc import Iterator

from millstream.control.moves.table import UNDER_WAY
from millstream.sim.managed.managed_cluster import ManagedCluster


def always(cluster: ManagedCluster) -> list[str]:
    """True at every moment: one owner a stream, numbers without gap or repeat."""
    return [*cluster.truth.faults, *_owners(cluster)]


def in_the_end(cluster: ManagedCluster) -> list[str]:
    """True when all faults are over and time has passed."""
    return [
        *always(cluster),
        *_moves_over(cluster),
        *_places(cluster),
        *_everything_read(cluster),
        *_nothing_left(cluster),
    ]


def misled(cluster: ManagedCluster) -> list[str]:
    """True when all faults are over and time has passed: what its manager wants to rest rests at
    every processor, and nothing else does."""
    found = []
    for name, processor in cluster.processors.items():
        for query in processor.processor.engine.queries.values():
            wanted = cluster.state.queries.get(query.name)
            if wanted is not None and wanted.phase == "running" and query.paused != wanted.paused:
                found.append(f"{query.name} at {name} is {query.state}, wanted {wanted.pauses}")
    return found


def _owners(cluster: ManagedCluster) -> Iterator[str]:
    owners: dict[str, list[str]] = {}
    for name, processor in cluster.processors.items():
        for stream in processor.owned():
            owners.setdefault(stream, []).append(name)
    for stream, names in owners.items():
        if len(names) > 1:
            yield f"{stream} is owned by {' and '.join(names)}"


def _moves_over(cluster: ManagedCluster) -> Iterator[str]:
    for move in cluster.state.moves.values():
        if not move.over:
            yield f"move {move.id} is still {move.phase}"
    for name, processor in cluster.processors.items():
        for role in ("old", "new"):
            for known in processor.ownership.moves(role, UNDER_WAY):
                yield f"{name} has move {known.id} as {role}, {known.phase}"


def _places(cluster: ManagedCluster) -> Iterator[str]:
    """Validity: every operator of a running query exactly once, where the manager believes."""
    for query in cluster.state.queries.values():
        if query.phase != "running":
            yield f"query {query.name} is {query.phase}: {query.reason}"
            continue
        for operator in query.operators:
            hosts = [
                name
                for name, p in cluster.processors.items()
                if operator in p.ownership.hosted().get(query.name, ())
            ]
            if hosts != [cluster.state.operators[operator].processor]:
                believed = cluster.state.operators[operator].processor
                yield f"{operator} of {query.name} is on {hosts}, believed on {believed}"


def _everything_read(cluster: ManagedCluster) -> Iterator[str]:
    """Every operator has read each input from where it began to its end, each segment once."""
    logs = {stream: lives[-1] for stream, lives in cluster.truth.logs.items()}
    for name, rows in cluster.sources.items():
        came = sum(len(segment) for segment in logs.get(f"s:{name}", []))
        stream = cluster.state.streams.get(name)
        if stream is not None and stream.start_wanted and came != rows:
            yield f"stream {name}: {came} of {rows} rows came"
    for query in cluster.state.queries.values():
        if query.phase != "running":
            continue
        whole = query.start is not None and query.start <= 1
        for operator in query.operators:
            record = cluster.state.operators[operator]
            for source in record.inputs:
                yield from _read(operator, source, logs, whole=whole)
        got = cluster.received.get(query.name, {})
        given = dict(enumerate(logs.get(query.result, []), 1))
        if got != {n: rows for n, rows in given.items() if n >= min(got, default=len(given) + 1)}:
            yield f"the subscriber of {query.name} has other rows than were published"
        if given and not got and whole:
            yield f"the subscriber of {query.name} has nothing"


def _read(
    operator: str, source: str, logs: dict[str, list[tuple[str, ...]]], *, whole: bool
) -> Iterator[str]:
    given = [
        f"{source}|{number}|{row}"
        for number, segment in enumerate(logs.get(source, []), 1)
        for row in segment
    ]
    read = [
        row for segment in logs.get(operator, []) for row in segment
        if row.startswith(f"{source}|")
    ]  # fmt: skip
    if read != given[len(given) - len(read) :]:
        yield f"{operator} read other rows of {source} than came, or in another order"
    elif whole and len(read) < len(given):
        yield f"{operator} missed the first rows of {source}"
    elif read and len(read) < len(given):
        before = given[len(given) - len(read) - 1]
        if before.split("|")[1] == read[0].split("|")[1]:
            yield f"{operator} began within a segment of {source}"


def _nothing_left(cluster: ManagedCluster) -> Iterator[str]:
    """No hold, file, copy or operator that nobody needs."""
    running = [q for q in cluster.state.queries.values() if q.phase == "running"]
    used = {o for q in running for o in q.operators}
    for name, processor in cluster.processors.items():
        for query in processor.ledger.consumers_of("deployment"):
            yield f"{name} still holds streams for {query}"
        for operator in processor.operators() - used:
            yield f"{name} still hosts {operator}"
        if set(processor.processor.engine.store.files()) != processor.ledger.named_files():
            yield f"{name} has other files than its ledger names"
        reads = {
            s for q in running for o in q.operators
            if cluster.state.operators[o].processor == name
            for s in cluster.state.operators[o].inputs
        }  # fmt: skip
        for stream in {copy.stream for copy in processor.ownership.copies()} - reads:
            yield f"{name} still pulls {stream}"
