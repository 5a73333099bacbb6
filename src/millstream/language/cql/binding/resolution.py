"""Names of columns in the clauses of a select that see the rows of FROM."""

from sqlglot import exp

from millstream.core.suggestions import did_you_mean
from millstream.language.cql.binding.expressions import Resolve, span_of, with_fields
from millstream.language.cql.binding.scope import NameLookupError, Scope, is_time
from millstream.language.cql.functions import WHY_UNREPEATABLE, unrepeatable
from millstream.language.cql.parsing.parser import Text
from millstream.language.plan.expressions import Column, Expr, Time

COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Like, exp.Between)
TYPOGRAPHIC = "\u201c\u201d\u2018\u2019\u201e"


def resolver(text: Text, scope: Scope, clause: str) -> Resolve:
    """Resolves columns; anything else is left to the walk."""

    def resolve(node: exp.Expr) -> Expr | None:
        if isinstance(node, exp.Identifier):
            parts: list[exp.Expr] = [node]
        elif isinstance(node, exp.Column):
            parts = list(node.parts)
        else:
            return None
        if any(isinstance(part, exp.Star) for part in parts):
            return None
        try:
            return resolve_parts(scope, [part.name for part in parts], clause)
        except NameLookupError as mistake:
            only = parts[0].name if len(parts) == 1 else ""
            if only and unrepeatable(only, 0):
                raise text.error(
                    f"{only} is not deterministic", span_of(node), WHY_UNREPEATABLE
                ) from None
            hint = _beside(node, only) or mistake.hint
            known = any(word in mistake.message for word in ("did you mean", "is ambiguous"))
            if only and not known and _may_be_text(node, only):
                bare = only.strip(TYPOGRAPHIC)
                hint = f"put text in single quotes: '{bare}'" + (f"; {hint}" if hint else "")
            raise text.error(mistake.message, span_of(node), hint) from None

    return resolve


def _beside(node: exp.Expr, name: str) -> str:
    """A hint for a name that the same select list gives to another column."""
    select = node.find_ancestor(exp.Select)
    given = [] if select is None else [e.alias.lower() for e in select.expressions]
    if not name or name.lower() not in given:
        return ""
    return f"{name} is named in the same list: repeat its expression, or name it in a subquery"


def _may_be_text(node: exp.Expr, name: str) -> bool:
    """Whether an unknown name stands where a text could: compared, listed, or in odd quotes."""
    return isinstance(node.parent, COMPARED) or any(quote in name for quote in TYPOGRAPHIC)


def resolve_parts(scope: Scope, parts: list[str], clause: str) -> Expr:
    """`column`, `item.column`, and fields of structs behind either."""
    member = scope.member(parts[0]) if len(parts) > 1 else None
    if member is not None and not (scope.knows(parts[0]) and not _has(scope, member, parts[1])):
        return with_fields(scope.qualified(member, parts[1]), parts[2:])
    if len(parts) > 1 and not scope.knows(parts[0]) and not is_time(parts[0]):
        names = [m.name for m in scope.members if m.name]
        near = did_you_mean(parts[0], [*names, *(c.name for m in scope.members for c in m.columns)])
        raise NameLookupError(
            f"unknown stream or column {parts[0]}{near}",
            f"in FROM: {', '.join(names)}" if names else "",
        )
    if is_time(parts[0]):
        if scope.joined and clause in ("WHERE", "ON"):
            names = [f"{m.name}.ts" for m in scope.members if m.name]
            raise NameLookupError(
                f"ts is ambiguous in {clause} of a join", f"write {' or '.join(names)}"
            )
        return with_fields(Time(), parts[1:])
    return with_fields(scope.unqualified(parts[0]), parts[1:])


def means_outside(inner: Scope, outer: Scope, parts: list[str]) -> bool:
    """Whether `x.c` in a subquery is of an item around it, and not of the subquery's column x."""
    if len(parts) < 2 or inner.member(parts[0]) is not None:
        return False
    member = outer.member(parts[0])
    return member is not None and _has(outer, member, parts[1])


def _has(scope: Scope, member: object, name: str) -> bool:
    for candidate in scope.members:
        if candidate is member:
            return is_time(name) or any(c.name.lower() == name.lower() for c in candidate.columns)
    return False


class Positioned(exp.Expression):
    """A column of `*`, by its position in the row."""

    arg_types = {}  # noqa: RUF012  (sqlglot's own spelling)

    def __init__(self, position: int, star: exp.Expr) -> None:
        super().__init__()
        self.meta["position"] = position
        span = span_of(star)
        self.meta["start"], self.meta["end"] = span.start, span.end


def with_positions(resolve: Resolve) -> Resolve:
    """Resolves columns of `*` as well."""

    def both(node: exp.Expr) -> Expr | None:
        if isinstance(node, Positioned):
            return Column(node.meta["position"])
        return resolve(node)

    return both
