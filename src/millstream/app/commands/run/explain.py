"""`millstream explain` and `millstream validate`: what queries mean, without running them.

Both start Spark for its analyser alone, in a folder that is thrown away; neither reads a row.
"""

import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from millstream.app.config import Job, inspect_job, load_job
from millstream.app.config.job_file import JobFileError
from millstream.app.runs.checking import check_job
from millstream.core.errors import CqlError, UsageError
from millstream.core.suggestions import did_you_mean
from millstream.decide.schedule.goal_text import wish
from millstream.decide.schedule.quality import Quality
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.binding.streams import bind_time
from millstream.language.cql.catalog import Catalog
from millstream.language.cql.parsing.parser import (
    CreateQuery,
    CreateStream,
    CreateView,
    parse,
    parse_query,
    split,
)
from millstream.language.cql.views import body_of, whole_text
from millstream.language.plan.explain import explain as plan_text
from millstream.language.plan.explain import explain_json, warnings
from millstream.language.plan.nodes import Plan
from millstream.language.share.dataflow import compile_plan
from millstream.language.share.matching import (
    DEFAULT,
    MATCHINGS,
    Match,
    Matching,
    Running,
    match_all,
)

JobPath = Annotated[Path | None, typer.Argument(help="A job file (TOML).")]


def register(app: typer.Typer) -> None:
    app.command("explain")(explain)
    app.command("validate")(validate)


def explain(
    job: JobPath = None,
    query: Annotated[str | None, typer.Argument(help="One query of it; else all.")] = None,
    cql: Annotated[
        str | None,
        typer.Option(
            help="A query over the job's streams; without a job, after CREATE STREAM; - is stdin."
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the plans of queries in a stable text form."""
    if job is None and cql is None:
        raise UsageError("nothing to explain", hint="give a job file, or --cql")
    text = sys.stdin.read() if cql == "-" else cql
    loaded = load_job(job) if job is not None else None
    if loaded is not None and text is None and query is not None:
        _require(query, [q.name for q in loaded.queries])
    everything: dict[str, Plan] = {}  # all queries of the job, for what one of them shares
    with analyzer() as spark:
        if text is not None:
            plans = _plans_of_text(text, loaded, spark)
            if loaded is not None and loaded.queries:
                everything = _plans_of_job(loaded, spark) | plans
        else:
            assert loaded is not None
            everything = _plans_of_job(loaded, spark)
            plans = {n: p for n, p in everything.items() if query is None or n == query}
    chosen = loaded.engine.get("sharing", DEFAULT) if loaded is not None else DEFAULT
    matching = MATCHINGS.get(str(chosen))
    shared = _shared(everything or plans, matching) if len(everything or plans) > 1 else {}
    goals = _goals(loaded, plans)
    if json_output:
        answer = {
            name: explain_json(plan)
            | ({"sharing": _lines(shared[name])} if shared else {})
            | ({"goals": goals[name]} if goals else {})
            for name, plan in plans.items()
        }
        typer.echo(json.dumps(answer, indent=2))
        return
    for number, (name, plan) in enumerate(plans.items()):
        typer.echo(("\n" if number else "") + f"{name}\n{plan_text(plan)}")
        if shared:
            typer.echo("sharing (with the queries before it)")
            for match in shared[name]:
                typer.echo(f"  {match.told()}")
        for line in goals.get(name, ()):
            typer.echo(f"goal {line}")


def _goals(job: Job | None, names: Iterable[str]) -> dict[str, list[str]]:
    """What `[qos]` of the job wants of each query; how goals stand, a running job knows."""
    quality = None if job is None else job.engine.get("quality")
    if not isinstance(quality, Quality):
        return {}
    found = {}
    for name in names:
        weight, specification = quality.of(name)
        whose = "its own" if name in quality.by_query else "of all queries"
        found[name] = [f"{wish(goal)} ({whose}, weight {weight:g})" for goal in specification.goals]
        if specification.may_drop:
            found[name].append("may_drop: rows that have missed the limit of delay are dropped")
    return found


def _shared(plans: Mapping[str, Plan], matching: Matching) -> dict[str, list[Match]]:
    """What each query reuses of those before it."""
    running: dict[str, Running] = {}
    found = {}
    for name, plan in plans.items():
        operators = compile_plan(plan)
        found[name] = match_all(operators, running, matching)
        for operator in operators:
            known = running.get(operator.id)
            users = (*known.queries, name) if known else (name,)
            running[operator.id] = Running(operator, users)
    return found


def _lines(matches: Sequence[Match]) -> list[dict[str, Any]]:
    return [
        {
            "operator": m.operator.id,
            "how": m.how,
            "queries": list(m.queries),
            "words": m.told(),
        }
        for m in matches
    ]


def _require(name: str, known: list[str]) -> None:
    if name not in known:
        near = did_you_mean(name, known)
        raise UsageError(f"unknown query {name}{near}", hint=f"one of {', '.join(known)}")


def _plans_of_job(job: Job, spark: Analyzer) -> dict[str, Plan]:
    checked = check_job(job, spark)
    if checked.mistakes:
        raise JobFileError(checked.mistakes)
    return dict(checked.plans)


def _plans_of_text(text: str, job: Job | None, spark: Analyzer) -> dict[str, Plan]:
    """Plans of the statements of a text, in order."""
    catalog = Catalog(job.streams) if job is not None else Catalog()
    known = {q.name: q.cql for q in job.queries} if job is not None else {}
    plans: dict[str, Plan] = {}
    statements = parse(text)  # as a whole first: a mistake stands where it does in the text
    for statement, piece in zip(statements, split(text), strict=True):
        if isinstance(statement, CreateStream):
            bind_time(statement.definition, spark)
            catalog = catalog.with_stream(statement.definition)
            known.pop(statement.definition.name, None)
        elif isinstance(statement, CreateView):
            known[statement.name] = body_of(piece)
        else:
            name, whole = f"query {len(plans) + 1}", whole_text(piece, known.get)
            select = statement.select if isinstance(statement, CreateQuery) else statement
            if isinstance(statement, CreateQuery):
                name = statement.name
                known[name] = whole
            plans[name] = bind(select if whole == piece else parse_query(whole), catalog, spark)
    if not plans:
        raise UsageError("the text has no query", hint="add SELECT ...")
    return plans


def validate(
    job: Annotated[Path, typer.Argument(help="A job file (TOML).")],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a job file and all its queries; report every mistake at once."""
    loaded, mistakes = inspect_job(job)
    plans: dict[str, Plan] = {}
    if loaded is not None:
        with analyzer() as spark:
            checked = check_job(loaded, spark)
        mistakes, plans = list(checked.mistakes), dict(checked.plans)
    if json_output:
        answer = {"valid": not mistakes, "errors": [_told(m) for m in mistakes]}
        typer.echo(json.dumps(answer | {"queries": _shown(plans)}, indent=2))
    else:
        _print_verdict(job, loaded, mistakes, plans)
    if mistakes:
        raise typer.Exit(2)


def _print_verdict(
    path: Path, job: Job | None, mistakes: list[UsageError], plans: dict[str, Plan]
) -> None:
    for name, plan in plans.items():
        for text in warnings(plan):
            typer.echo(f"warning: query {name}: {text}", err=True)
    if mistakes:
        typer.echo("\n\n".join(f"error: {m}" for m in mistakes), err=True)
        count = len(mistakes)
        typer.echo(f"\n{path}: {count} mistake{'s' if count > 1 else ''}", err=True)
    elif job is not None:
        streams = "1 stream" if len(job.streams) == 1 else f"{len(job.streams)} streams"
        queries = "1 query" if len(job.queries) == 1 else f"{len(job.queries)} queries"
        typer.echo(f"{path}: {streams}, {queries}, no mistake")


def _told(error: UsageError) -> dict[str, Any]:
    where = {"line": error.line, "column": error.column} if isinstance(error, CqlError) else {}
    return {"message": error.message, "hint": error.hint, **where}


def _shown(plans: dict[str, Plan]) -> dict[str, Any]:
    return {
        name: {"fingerprint": plan.fingerprint, "relation": plan.relation,
               "warnings": list(warnings(plan))}
        for name, plan in plans.items()
    }  # fmt: skip


@contextmanager
def analyzer() -> Iterator[Analyzer]:
    """Spark's analyser; uses the session that runs, or starts a small one and ends it."""
    from millstream.spark.analyzer import SparkAnalyzer  # noqa: PLC0415
    from millstream.spark.attached import attached_session, inside  # noqa: PLC0415
    from millstream.spark.collecting import local  # noqa: PLC0415
    from millstream.spark.session import is_ours, running, session  # noqa: PLC0415

    user = running()
    if user is not None and not is_ours(user):
        own = attached_session(user)
        with inside(own):
            yield SparkAnalyzer(own)
        return
    with tempfile.TemporaryDirectory(prefix="millstream-") as scratch:
        log = Path(scratch) / "spark.log"
        settings = {"spark.sql.warehouse.dir": local(f"{scratch}/warehouse")}
        spark = user or session("local[1]", settings, log=log)
        yield SparkAnalyzer(spark)
        if user is None:
            spark.stop()
