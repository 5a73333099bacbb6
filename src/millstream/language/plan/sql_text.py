"""Expressions as Spark SQL text. Column i is `c<i>`, the event time comes from `_ts`."""

from typing import assert_never

from millstream.language.plan.expressions import (
    COMPARISONS,
    Call,
    Cast,
    Column,
    Expr,
    Lambda,
    Literal,
    Parameter,
    Time,
    conjuncts,
    total,
)

INFIX = frozenset({*COMPARISONS, "+", "-", "*", "/", "%", "||", "and", "or", "like", "ilike"}) | {
    "rlike",
    "div",
    "&",
    "|",
    "^",
}

DATED = "dated"  # a text as it is, or one that is no timestamp where it does not begin with a year
YEAR_FIRST = r"'^[\\x00-\\x20\\x7F]*[-+]?[0-9]{4}'"  # Spark skips those signs as well


def sql(expr: Expr) -> str:
    """The expression as Spark reads it.

    >>> sql(Call("and", (Call(">", (Column(0), Literal("1", "int"))), Call("is_null", (Time(),)))))
    '((c0 > 1) AND (timestamp_micros(_ts) IS NULL))'
    """
    match expr:
        case Column(index):
            return f"c{index}"
        case Time():
            return "timestamp_micros(_ts)"
        case Literal(text, _):
            return text
        case Cast(arg, type_, lenient):
            return f"{'try_cast' if lenient else 'CAST'}({sql(arg)} AS {type_})"
        case Lambda(parameters, body):
            names = ", ".join(quoted(p) for p in parameters)
            return f"{names if len(parameters) == 1 else f'({names})'} -> {sql(body)}"
        case Parameter(name):
            return quoted(name)
        case Call(name, args):
            return _call(name, tuple(sql(arg) for arg in args))
        case _:
            assert_never(expr)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def dated_sql(text: str) -> str:
    """SQL of a text that Spark's cast to a timestamp reads the same way on every day.

    A time of day alone ('12:30') would become one of the day of the run.
    """
    return f"(CASE WHEN {text} RLIKE {YEAR_FIRST} THEN {text} ELSE {text} || ' (no date)' END)"


def _call(name: str, args: tuple[str, ...]) -> str:
    if name in INFIX and len(args) >= 2:
        return "(" + f" {name.upper()} ".join(args) + ")"
    match name:
        case "not":
            return f"(NOT {args[0]})"
        case "-" | "+" | "~":
            return f"({name} {args[0]})"
        case "is_null":
            return f"({args[0]} IS NULL)"
        case "is_not_null":
            return f"({args[0]} IS NOT NULL)"
        case "in":
            return f"({args[0]} IN ({', '.join(args[1:])}))"
        case "case":  # condition, value, condition, value, ..., default
            pairs = zip(args[0:-1:2], args[1:-1:2], strict=True)
            arms = " ".join(f"WHEN {c} THEN {v}" for c, v in pairs)
            return f"(CASE {arms} ELSE {args[-1]} END)"
        case "element":
            return f"{args[0]}[{args[1]}]"
        case "field":
            return f"{args[0]}.{args[1]}"
        case "interval":
            return f"INTERVAL {args[0]} {args[1]}"
        case "extract":
            return f"EXTRACT({args[0]} FROM {args[1]})"
        case "like_escape":
            return f"({args[0]} LIKE {args[1]} ESCAPE {args[2]})"
        case "dated":
            return dated_sql(args[0])
        case _:  # a user function is called `name@version` in plans
            return f"{name.partition('@')[0]}({', '.join(args)})"


def predicate_sql(predicate: Expr | None) -> str:
    """A predicate whose raising conjuncts run only where those before them are true.

    Spark may reorder or push down the terms of a conjunction; CASE keeps the order.

    >>> from millstream.language.plan.expressions import Literal as L
    >>> guard = Call("<>", (Column(1), L("0", "int")))
    >>> ratio = Call(">", (Call("/", (Column(0), Column(1))), L("2", "int")))
    >>> predicate_sql(Call("and", (guard, ratio)))
    '(CASE WHEN (c1 <> 0) THEN ((c0 / c1) > 2) ELSE FALSE END)'
    """
    terms = conjuncts(predicate)
    for position, term in enumerate(terms):
        if not total(term) and position > 0:
            before = " AND ".join(sql(t) for t in terms[:position])
            after = predicate_sql(_rest(terms[position:]))
            return f"(CASE WHEN {before} THEN {after} ELSE FALSE END)"
        if not total(term) and len(terms) > 1:
            after = predicate_sql(_rest(terms[1:]))
            return f"(CASE WHEN {sql(term)} THEN {after} ELSE FALSE END)"
    return " AND ".join(sql(t) for t in terms) if terms else "TRUE"


def _rest(terms: tuple[Expr, ...]) -> Expr:
    return Call("and", terms) if len(terms) > 1 else terms[0]
