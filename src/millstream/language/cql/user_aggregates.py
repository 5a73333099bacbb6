"""Aggregates that users have registered: where they stand in a text, and what a call means.

Names are looked up once for a query; the result is attached to its node, so that every search for
aggregates also finds those of users. In plans a call is `name@version`, so that a new version
shares nothing with an old one; the `@` is there without a version too.
"""

from functools import reduce

from sqlglot import exp

from millstream.language.cql.aggregate_calls import Asked, CallError
from millstream.language.cql.catalog import Catalog, UserFunction
from millstream.language.cql.functions import AGGREGATES
from millstream.language.cql.literals import string
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import span_of
from millstream.language.plan.expressions import Call, Literal
from millstream.language.plan.nodes import AggregateCall

NULL = Literal("NULL", "void")
MARK = "user_aggregate"


def mark_aggregates(text: Text, tree: exp.Expr, catalog: Catalog) -> None:
    """Hangs what users have registered on the calls of it."""
    if not any(f.aggregate for f in catalog.functions):
        return
    for node in tree.find_all(exp.Anonymous):
        known = catalog.function(node.name)
        if known is None or not known.aggregate:
            continue
        node.meta[MARK] = known
        select = node.find_ancestor(exp.Select)
        if select is not None and select.meta.get("of_sets"):
            raise text.error(
                f"aggregate {node.name} with several groupings", span_of(node),
                "write a query for each GROUP BY, and UNION ALL between them",
            )  # fmt: skip


def function_of(call: exp.Anonymous) -> str:
    """What the algebra calls an aggregate; empty where it is none."""
    known: UserFunction | None = call.meta.get(MARK)
    return AGGREGATES.get(call.name.lower(), "") if known is None else aggregate_name(known)


def aggregate_name(known: UserFunction) -> str:
    return f"{known.name}@{known.version}"


def user_call(known: UserFunction, asked: Asked) -> AggregateCall:
    """A call over the rows in which every argument has a value."""
    for word, written in (("DISTINCT", asked.distinct), ("ORDER BY", bool(asked.order)),
                          ("IGNORE NULLS", asked.skips_nulls)):  # fmt: skip
        if written:
            raise CallError(f"{known.name} does not take {word}", "leave it out")
    args, function, where = asked.args, aggregate_name(known), asked.where
    if len(args) == 1:
        ((argument, type_),) = args
        return AggregateCall(function, argument, known.returns, type_, False, where)
    missing = reduce(lambda a, b: Call("or", (a, b)), (Call("is_null", (arg,)) for arg, _ in args))
    named = [part for i, (arg, _) in enumerate(args) for part in (string(f"a{i}"), arg)]
    row = Call("if", (missing, NULL, Call("named_struct", tuple(named))))
    fields = ",".join(f"a{i}:{type_}" for i, (_, type_) in enumerate(args))
    return AggregateCall(function, row, known.returns, f"struct<{fields}>", False, where)
