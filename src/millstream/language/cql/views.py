"""Names of queries and views in FROM: a text is made whole by the definitions that it needs.

`FROM errors` means the query in its place. The definitions stand as CREATE VIEW behind the query,
in the same text: whoever compiles it, now or on another processor after a move, needs nothing
else, and places in the user's own text stay what they are. Dropping a query takes nothing from
those that read it: they share its operators as long as both run.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from sqlglot import exp

from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.histories import instant_text
from millstream.language.cql.parsing.parser import (
    CreateQuery,
    CreateStream,
    CreateView,
    SelectStatement,
    parse,
    parse_query,
    split,
)
from millstream.language.plan.sql_text import quoted

WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
REPLACE = re.compile(r"\bOR\s+REPLACE\b", re.IGNORECASE)
Find = Callable[[str], str | None]  # the text of a query or view by its name


def names_read(tree: exp.Expr) -> Iterator[str]:
    """Every name that stands in a FROM, names of WITH included."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            yield table.this.name


def whole_text(cql: str, find: Find) -> str:
    """The text with the definitions of all queries and views that it reads.

    `find` knows queries and views, and no name of a stream: a stream goes before them. A text that
    cannot be read is left for the parser to complain about.
    """
    if not any(find(name) is not None for name in _words(cql)):
        return cql
    try:
        given, body = _parts(cql)
    except UsageError:
        return cql
    known = dict(given)
    _gather(body, find, known, ())
    for definition in list(given.values()):
        _gather(definition, find, known, ())
    added = [f"CREATE VIEW {quoted(n)} AS {t}" for n, t in known.items() if n not in given]
    return cql if not added else "\n;\n".join([cql.rstrip(), *added])


def own_text(cql: str) -> str:
    r"""A query without the definitions that it was made whole with.

    >>> own_text("SELECT a FROM v\n;\nCREATE VIEW v AS SELECT a FROM s")
    'SELECT a FROM v'
    """
    return cql.partition("\n;\n")[0].strip()


@lru_cache(maxsize=8192)  # snapshots ask for every query once a second
def reads_of(cql: str) -> tuple[str, ...]:
    r"""The queries and views that a whole text reads, directly or through others.

    >>> reads_of("SELECT a FROM v\n;\nCREATE VIEW `v` AS SELECT a FROM s")
    ('v',)
    """
    if "CREATE VIEW" not in cql.upper():
        return ()
    try:
        return tuple(sorted(_parts(cql)[0]))
    except UsageError:
        return ()


def replacing(cql: str) -> str | None:
    """The text of a query that takes the place of the one with its name; None for any other text.

    >>> replacing("CREATE OR REPLACE QUERY q AS SELECT a FROM s")
    'CREATE QUERY q AS SELECT a FROM s'
    >>> replacing("CREATE OR REPLACE QUERY q FROM HISTORY UNTIL '2024-05-01' AS SELECT a FROM s")
    "CREATE QUERY q FROM HISTORY UNTIL '2024-05-01T00:00:00Z' AS SELECT a FROM s"
    >>> replacing("CREATE QUERY q AS SELECT a FROM s") is None
    True
    """
    if not REPLACE.search(cql):
        return None
    try:
        pieces = split(cql)
        made = [statement for piece in pieces for statement in parse(piece)]
    except UsageError:
        return None  # the parser complains when it is compiled
    for place, statement in enumerate(made):
        if isinstance(statement, CreateQuery) and statement.replaces:
            named = f"CREATE QUERY {_name(statement.name)}{_history(pieces[place])}"
            pieces[place] = f"{named} AS {body_of(pieces[place])}"
            return "\n;\n".join(pieces)
    return None


def without_history(cql: str) -> str:
    r"""A query over live rows alone, as it would be without FROM HISTORY.

    >>> without_history("CREATE QUERY q FROM HISTORY AS SELECT a FROM v;CREATE VIEW v AS SELECT 1")
    'SELECT a FROM v\n;\nCREATE VIEW `v` AS SELECT 1'
    """
    if "HISTORY" not in cql.upper() or parse_query(cql).history is None:
        return cql
    views, body = _parts(cql)
    return "\n;\n".join([body, *(f"CREATE VIEW {quoted(n)} AS {t}" for n, t in views.items())])


def _history(piece: str) -> str:
    """What a statement says of the history that its query begins with."""
    history = parse_query(piece).history
    if history is None:
        return ""
    until = "" if history.until_us is None else f" UNTIL '{instant_text(history.until_us)}'"
    return f" FROM HISTORY{until}"


def name_of(cql: str) -> str:
    """The name that a text gives its query; empty where it gives none."""
    try:
        made = [s for s in parse(cql) if isinstance(s, CreateQuery)]
    except UsageError:
        return ""
    return made[0].name if len(made) == 1 else ""


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else quoted(name)


def _words(cql: str) -> set[str]:
    return {plain or ticked.replace("``", "`") for ticked, plain in WORD.findall(cql)}


def _gather(body: str, find: Find, known: dict[str, str], above: tuple[str, ...]) -> None:
    """Adds what a body reads, and what that reads, to the bodies known by name."""
    (statement,) = parse(body)
    assert isinstance(statement, SelectStatement)
    for name in dict.fromkeys(names_read(statement.tree)):
        if name in known:
            continue
        text = find(name)
        if text is None:
            continue
        if name in above:
            raise UsageError(
                f"{' reads '.join((*above[above.index(name) :], name))}",
                hint="queries cannot read each other in a circle",
            )
        try:
            own, inner = _parts(text)
        except CqlError:
            continue  # its own author hears of it
        for view, definition in own.items():
            if known.setdefault(view, definition) != definition:
                raise UsageError(
                    f"view {view} means two things",
                    detail=f"query {name} was made with another {view} than this text",
                    hint="give one of them another name",
                )
        _gather(inner, find, known, (*above, name))
        known[name] = inner


def _parts(cql: str) -> tuple[dict[str, str], str]:
    """The bodies of a text's views by name, and the body of its query."""
    views: dict[str, str] = {}
    bodies: list[str] = []
    for piece in split(cql):
        (statement,) = parse(piece)
        if isinstance(statement, CreateStream):
            raise UsageError("expected a query, found CREATE STREAM")
        if isinstance(statement, CreateView):
            views[statement.name] = body_of(piece)
        else:
            bodies.append(body_of(piece))
    if len(bodies) != 1:
        raise UsageError(f"expected one query, found {len(bodies)}")
    return views, bodies[0]


def body_of(piece: str) -> str:
    """The query of a statement, without CREATE ... AS."""
    (statement,) = parse(piece)
    if isinstance(statement, CreateQuery | CreateView):
        span = statement.select.span
        assert span is not None
        body = piece[span.start : span.end + 1]
        rules = statement.rules if isinstance(statement, CreateQuery) else ""
        return f"{body} FOR EACH {quoted(rules)}" if rules else body
    return piece.strip()
