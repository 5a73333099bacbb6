"""`FOR SYSTEM_TIME AS OF a.ts`: another spelling of a lookup.

`a JOIN t FOR SYSTEM_TIME AS OF a.ts ON ...` gives each row of a what the table t has at its own
instant: `a [NOW] JOIN t ON ...`. The tree is rewritten to that.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from millstream.language.cql.binding.expressions import span_of
from millstream.language.cql.binding.from_item import Item
from millstream.language.cql.binding.joins.asof import is_row_time
from millstream.language.cql.binding.relations import Lifetime
from millstream.language.cql.parsing.parser import Text
from millstream.language.cql.parsing.syntax import WindowSyntax
from millstream.language.plan.nodes import Constants

HINT = "name the time of a stream before it: a JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k"
CURRENT_HINT = "say which row is current: b [PARTITION BY k ROWS 1] FOR SYSTEM_TIME AS OF a.ts"


def as_instants(text: Text, items: Sequence[exp.Expr], times: Mapping[str, str]) -> None:
    """Gives `[NOW]` to the items whose time another item is taken as of."""
    for place, item in enumerate(items):
        time: exp.Expr | None = item.meta.get("as_of")
        if time is None:
            continue
        named = [i for i in items[:place] if _owns(i, time, times)]
        if not named:
            raise text.error("FOR SYSTEM_TIME AS OF no row's time", span_of(time), HINT)
        own: WindowSyntax | None = named[0].meta.get("window")
        if own is not None and own.kind != "now":
            raise text.error(
                "a lookup by rows that stay", own.span, "leave out the window, or give [NOW]"
            )
        named[0].meta["window"] = WindowSyntax("now", span_of(time))


def _owns(item: exp.Expr, time: exp.Expr, times: Mapping[str, str]) -> bool:
    if not isinstance(time, exp.Column) or not is_row_time(time, times):
        return False
    return time.table.lower() == item.alias_or_name.lower()


def refuse_without_version(text: Text, items: Sequence[Item]) -> None:
    """A stream without a window has all its rows at every instant, not a current one."""
    for item in items:
        versioned = item.lifetime is Lifetime.CHANGES or item.window is not None
        if "as_of" in item.node.meta and not versioned and not isinstance(item.rows, Constants):
            raise text.error(
                "FOR SYSTEM_TIME AS OF over a stream", span_of(item.node), CURRENT_HINT
            )
