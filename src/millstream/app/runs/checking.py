"""A job's streams and queries against the language, before anything runs.

Gives the plan of every query that is right and the mistakes of all that are not, each at its place
in the job file. Needs an analyser for types; writes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from millstream.app.config import Job
from millstream.core.errors import UsageError
from millstream.language.cql.analyzer import Analyzer, UnansweredError
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.binding.joins.products import unasked_product
from millstream.language.cql.binding.streams import bind_time
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.nodes import Plan


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at a whole job found."""

    catalog: Catalog
    plans: Mapping[str, Plan]
    mistakes: tuple[UsageError, ...]


def check_job(job: Job, analyzer: Analyzer) -> Checked:
    """Binds every stream's time and every query."""
    catalog = Catalog()
    mistakes: list[UsageError] = []
    for stream in job.streams:
        try:
            check_time(stream, analyzer)
        except UsageError as error:
            mistakes.append(job.time_mistake(stream.name, error))
            if isinstance(error, UnansweredError):  # there is nobody left to ask
                return Checked(catalog, {}, tuple(mistakes))
        catalog = catalog.with_stream(stream)
    plans: dict[str, Plan] = {}
    for query in job.queries:
        try:
            statement = parse_query(query.cql)
            plans[query.name] = bind(statement, catalog, analyzer)
            if refusal := unasked_product(statement, plans[query.name]):
                raise refusal
        except UsageError as error:
            mistakes.append(query.located(error))
            if isinstance(error, UnansweredError):
                break
    return Checked(catalog, plans, tuple(mistakes))


def check_time(stream: StreamDefinition, analyzer: Analyzer) -> None:
    """A text column may be the time: what cannot be read as one is a rejected row."""
    at = stream.time_column
    if at is not None and stream.columns[at].type == "string":
        return
    bind_time(stream, analyzer)
