"""The parser under the dialect: places of nodes, plain messages, and no silent gaps."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from millstream.core.durations import UNITS_US
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "JOIN", "UNION", "PARTITION")
WINDOW_WORDS = ("RANGE", "ROWS", "SLIDE")
WINDOW_ENDS = (*CLAUSES, "ORDER", "LIMIT", "AS", "ON", ",")
CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET)
TEXT_HINT = "put text in single quotes: 'U%'"
# What others write, by the word that does not fit, and what to write instead.
INSTEAD = {
    "**": "power(a, b)",
    "~": "k RLIKE 'pattern'",
    ":": "a part of a JSON text is j -> 'b' ->> 'c', or JSON_VALUE(j, '$.b.c')",
    "EMIT": "leave it out: windows are given once they are final, tables as they change",
    "MATCH_CONDITION": "put the condition in ON: ASOF JOIN t ON s.k = t.k AND s.ts >= t.ts",
    "UNPIVOT": "UNNEST(array(struct('v' AS name, v AS value), ...)) AS t(u), then u.name",
    "JSON_OBJECT": "to_json(named_struct('k', k))",
    "LATERAL": "FROM s, UNNEST(array) AS t(x); of a JSON text UNNEST(from_json(j, 'array<int>'))",
    "GENERATE_SERIES": "FROM s, UNNEST(sequence(1, 3)) AS t(x)",
    "APPLY": "FROM s, UNNEST(array) AS t(x); of a JSON text UNNEST(from_json(j, 'array<int>'))",
    "KEEP": "max_by(x, y): the x of the row with the greatest y",
    "SAMPLE": "a window: SELECT k, sum(v) AS v FROM s [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k",
}
# The same, where only the word itself tells: others write it in other places too.
INSTEAD_HERE = {
    "TO": "date_trunc('HOUR', ts); rounded up: date_trunc('HOUR', ts) + INTERVAL '1' HOUR",
    "VALUES": "constants beside a stream: FROM s JOIN (VALUES (1, 'a')) AS t (k, n) ON s.k = t.k",
    "PARTITION BY": "leave it out: rows are grouped where they are used, by GROUP BY k or "
    "[PARTITION BY k ROWS 1]",
    "LIMIT": "a stream has no end: ORDER BY ts LIMIT 10 before EMIT gives the first rows",
    "&&": "AND",
    "??": "coalesce(a, b)",
    "!": "NOT k RLIKE 'pattern'",
}
# Statements of others, and what does the same here.
STATEMENTS = {
    "INSERT": "CREATE QUERY name AS SELECT ...; the job file says where its rows go: "
    "[queries.name.sink]",
    **dict.fromkeys(
        ("UPDATE", "DELETE", "MERGE", "UPSERT"),
        "push a row that says so to a stream with a key: CREATE STREAM s (...) WITH (source = "
        "'push', time = 'at', key = 'id', op = 'what')",
    ),
    **dict.fromkeys(
        ("SET", "RESET", "USE"), "settings are in the job file; the start of a query is its own: "
        "CREATE QUERY name FROM BEGINNING AS SELECT ..."
    ),
    **dict.fromkeys(
        ("DROP", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "PAUSE", "RESUME"),
        "a command of `millstream shell`, one to a line",
    ),
}  # fmt: skip
T = TypeVar("T")
E = TypeVar("E", bound=exp.Expr)


class PlacedParser(SparkParser):
    """Spark's parser, whose nodes know where they stand and whose lists have no holes."""

    def expression(
        self, instance: E, token: Token | None = None, comments: list[str] | None = None
    ) -> E:
        made = super().expression(instance, token, comments)
        if "start" not in made.meta and self._prev:
            starts = [c.meta["start"] for c in made.iter_expressions() if "start" in c.meta]
            made.meta["start"] = min([*starts, self._prev.start])
            made.meta["end"] = self._prev.end
        return made

    def raise_error(self, message: str, token: Any = None) -> None:
        spot = token or self._curr
        if spot:
            hint = self._meant_before() or self._instead() if spot is self._curr else ""
            if not hint and _keyword_for_column(message, spot):
                hint = f"a column of that name goes in backquotes: `{spot.text}`"
            raise CqlSyntaxError(_readable(message, spot.text), Span(spot.start, spot.end), hint)
        end = len(self.sql.rstrip())
        hint = TEXT_HINT if self._prev and self._prev.token_type == TokenType.MOD else ""
        raise CqlSyntaxError(_readable(message, ""), Span(end, end), hint)

    def _meant_before(self) -> str:
        """A misspelt keyword is taken for a name, and what follows it does not fit."""
        before, here = self._prev, self._curr
        if here and (window := self._window_without_brackets()):
            return f"put the window in brackets after its stream: [{window}]"
        if before and here and before.token_type == TokenType.NUMBER and _unit(here):
            return f"a length of time is written INTERVAL {before.text} {here.text}"
        if here and here.text == "=>":
            return "write >="
        if hint := self._function_in_from():
            return hint
        if before and before.token_type == TokenType.MOD:
            return TEXT_HINT
        if before and here and before.text.upper() == "TOP":
            return f"the largest of a window: ORDER BY ... DESC LIMIT {here.text}"
        if not before or before.token_type != TokenType.VAR:
            return ""
        if before.text.upper() == "GROUP":
            return "GROUP BY"
        near = get_close_matches(before.text.upper(), CLAUSES, 1, cutoff=0.75)
        return f"did you mean {near[0]} instead of {before.text}?" if near else ""

    def _function_in_from(self) -> str:
        """`FROM f(x)` and `FROM schema.s`: what stands behind a name in FROM, and before it."""
        before = self._tokens[max(0, self._index - 2) : self._index + 1]
        if len(before) < 3 or before[0].token_type not in (TokenType.FROM, TokenType.JOIN):
            return ""
        name, here = before[1].text, before[2]
        if here.token_type == TokenType.L_PAREN:
            return INSTEAD["GENERATE_SERIES"]
        if here.token_type == TokenType.DOT:
            return f"a stream has one name, without {name}: FROM s"
        return ""

    def _window_without_brackets(self) -> str:
        """The text of a window that stands bare or in parentheses; empty where there is none."""
        at = self._index
        if self._curr.token_type == TokenType.L_PAREN:
            at += 1
        elif self._prev and self._prev.text.upper() in WINDOW_WORDS:
            at -= 1
        first = self._tokens[at] if at < len(self._tokens) else None
        if first is None or first.text.upper() not in WINDOW_WORDS:
            return ""
        last = first
        for token in self._tokens[at + 1 :]:
            if token.text.upper().split()[0] in WINDOW_ENDS or token.token_type in CLOSING:
                break
            last = token
        return str(self.sql[first.start : last.end + 1])

    def _instead(self) -> str:
        """What to write instead of a construct of others that has just begun."""
        near = [t.text.upper() for t in self._tokens[max(0, self._index - 3) : self._index + 1]]
        if near[-3:-1] == ["*", "*"]:
            return INSTEAD["**"]
        if near[-2:] == ["TIMESTAMP", "BY"]:
            return "leave it out: CREATE STREAM s (...) WITH (time = 'at') says it once for all"
        if near and near[-1] in INSTEAD_HERE:
            return INSTEAD_HERE[near[-1]]
        return next((INSTEAD[word] for word in reversed(near) if word in INSTEAD), "")

    def _parse_csv(
        self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA
    ) -> list[T]:
        first = parse_method()
        items = [] if first is None else [first]
        while self._match(sep):
            comma = self._prev
            item = parse_method()
            if item is None:
                raise CqlSyntaxError(
                    "expected something after the comma", Span(comma.start, comma.end)
                )
            items.append(item)
        return items


def _unit(token: Any) -> bool:
    return token.text.lower() in UNITS_US


def _keyword_for_column(message: str, token: Any) -> bool:
    """Whether a word of SQL stands where a column could."""
    wanted = message.startswith(("expected the columns", "Expected END after CASE", "Required "))
    return wanted and bool(token.text.isidentifier()) and token.token_type != TokenType.VAR


def _readable(message: str, token: str) -> str:
    """sqlglot's wording made plain."""
    found = f", found {token}" if token else ", but the text ends"
    if message == "Expected TYPE after CAST":
        return f"unknown type {token}"
    if message == "Expected END after CASE":
        return "CASE is not closed by END"
    if message.startswith(("Expecting ", "Expected ", "expected ")):
        return "expected " + message.split(" ", 1)[1] + found
    if message.startswith("Required "):
        return "expected an expression" + found
    if "Unexpected token" in message:
        return f"unexpected {token}" if token else "the text ends too early"
    return message[:1].lower() + message[1:]
