"""How the rules that a row may meet are found without asking each of them.

Equalities between the row and a parameter are keys of a hash. A comparison of a value with a
parameter puts the rules on a line, cut at some bounds into places: a row looks at the places that
its value can reach. A value between two parameters is at one place, and a rule at all that its
interval covers. Whatever the bounds are, no rule is missed; they decide how many are asked in vain.
"""

from dataclasses import dataclass
from typing import Literal as OneOf

from millstream.language.plan.expressions import (
    MIRRORED,
    Call,
    Column,
    Expr,
    columns_of,
    conjuncts,
    total,
    uses_time,
)
from millstream.language.plan.nodes import Ruled

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp")
ABOVE, BELOW = (">", ">="), ("<", "<=")


@dataclass(frozen=True, slots=True)
class Line:
    """A value of the row compared with parameters: `above` one, `below` another, or either.

    Parameters are positions in the rule table.
    """

    value: Expr
    above: int | None
    below: int | None

    @property
    def kind(self) -> OneOf["above", "below", "between"]:
        if self.above is not None and self.below is not None:
            return "between"
        return "above" if self.below is None else "below"

    @property
    def parameter(self) -> int:
        """The parameter whose values the bounds are taken from."""
        chosen = self.above if self.above is not None else self.below
        assert chosen is not None
        return chosen


@dataclass(frozen=True, slots=True)
class RuleIndex:
    keys: tuple[Expr, ...]  # conjuncts, over the columns of both
    key_parameters: tuple[int, ...]  # parameters that stand alone in a key
    line: Line | None


def rule_index(node: Ruled) -> RuleIndex:
    """What of the predicate finds rules; a conjunct that can raise does not."""
    width = len(node.input.schema)
    keys: list[Expr] = []
    parameters: list[int] = []
    tests: dict[Expr, dict[str, int]] = {}
    for term in conjuncts(node.predicate):
        if not isinstance(term, Call) or not total(term) or len(term.args) != 2:
            continue
        left, right = term.args
        sides = (_side(left, width), _side(right, width))
        if sides == ("rule", "row"):
            left, right = right, left
        elif sides != ("row", "rule"):
            continue
        name = term.name if sides[0] == "row" else MIRRORED.get(term.name, term.name)
        if name in ("=", "<=>"):
            keys.append(term)
            parameters += [right.index - width] if isinstance(right, Column) else []
        elif name in (*ABOVE, *BELOW) and isinstance(right, Column):
            type_ = node.schema[right.index].type
            if type_ in NUMBERS or type_.startswith("decimal"):
                way = "above" if name in ABOVE else "below"
                tests.setdefault(left, {}).setdefault(way, right.index - width)
    # a value that is bounded on both sides tells most
    chosen = max(tests.items(), key=lambda found: len(found[1]), default=None)
    line = None
    if chosen is not None:
        line = Line(chosen[0], chosen[1].get("above"), chosen[1].get("below"))
    return RuleIndex(tuple(keys), tuple(parameters), line)


def _side(expr: Expr, width: int) -> str:
    """Whose columns an expression reads."""
    read = columns_of(expr)
    if not read:
        return "row" if uses_time(expr) else ""
    if all(c < width for c in read):
        return "row"
    return "rule" if all(c >= width for c in read) and not uses_time(expr) else ""
