"""What can be kept: types that files hold, and keys whose values can be told apart.

Results and what operators keep between steps are written to files; the values of keys are compared.
"""

import re
from collections.abc import Sequence

from sqlglot import exp

from millstream.language.cql.analyzer import AnalysisFailure, Analyzer
from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.known_types import PLAIN
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.types import TOKEN
from millstream.language.plan.schema import Schema

KEY_HINT = "leave it out, take a part of it, or make it a text with to_json"


def refuse_unwritable(text: Text, type_: str, node: exp.Expr) -> None:
    """Refuses what could be computed but not kept."""
    reason = unwritable(type_)
    if reason is not None:
        why, hint = reason
        raise text.error(f"{type_} cannot be stored: {why}", span_of(node), hint)


def unwritable(type_: str) -> tuple[str, str] | None:
    """Why values of a type cannot be written, and what to do about it; None where they can.

    >>> unwritable("array<void>")[0], unwritable("struct<a:int,b:struct<A:int,a:int>>")[0]
    ('what is in it has no type', 'it has two fields named a')
    >>> unwritable("void"), unwritable("struct<void:int,`interval`:map<int,date>>")
    (None, None)
    """
    if re.match(r"interval(?: year| month|$)", type_):
        return "it is an interval of months", "take its length in days or seconds"
    tokens = TOKEN.findall(type_)
    open_: list[set[str] | None] = []  # for each bracket the fields of a struct, else None
    for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        if token == "<":
            open_.append(set() if before == "struct" else None)
            if after == ">":
                return "it has no fields", "give it one, or leave it out"
        elif token == ">":
            open_.pop()
        elif after == ":" and open_ and (fields := open_[-1]) is not None:
            if token.lower() in fields:
                return f"it has two fields named {token}", "names match in any case; rename one"
            fields.add(token.lower())
        elif token == "void" and open_:
            return "what is in it has no type", "cast it, e.g. CAST(array() AS array<int>)"
        elif token == "interval" and after in ("year", "month", ",", ">"):
            return "it holds intervals of months", "take their length in days or seconds"
    return None


def refuse_incomparable(
    text: Text, analyzer: Analyzer, clause: str, keys: Schema, nodes: Sequence[exp.Expr]
) -> None:
    """Refuses keys of types without an order, such as maps: equal ones could not be found."""
    asked = [i for i, key in enumerate(keys) if key.type not in PLAIN]
    try:
        analyzer.analyse(keys, [f"max(c{i})" for i in asked], aggregates=True)
    except AnalysisFailure as failure:
        at = asked[failure.index]
        raise text.error(
            f"{clause}: values of {keys[at].name} ({keys[at].type}) cannot be compared",
            span_of(nodes[at]), KEY_HINT,
        ) from None  # fmt: skip
