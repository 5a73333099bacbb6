"""Windows as Flink, RisingWave, Spark and ksqlDB write them, read into the windows of CQL.

Decided here: which words begin one of them, and which window of CQL each is. Table functions,
`WINDOW TUMBLING (...)` and `JOIN ... WITHIN` stand in FROM and are read by the parser; windows in
GROUP BY are found in the tree (`group_windows.py`). What has no counterpart is refused under its
own name.
"""

from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.core.durations import microseconds
from millstream.core.errors import UsageError
from millstream.language.cql.parsing.create_parser import CreateParser
from millstream.language.cql.parsing.syntax import (
    CqlSyntaxError,
    RefinementSyntax,
    Span,
    WindowSyntax,
)

TABLE_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
TABLE_HINTS = {
    "TUMBLE": "TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
    "HOP": "TABLE(HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)), "
    "the slide before the size",
    "CUMULATE": "TABLE(CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' MINUTE, "
    "INTERVAL '1' HOUR)), the step before the size",
    "SESSION": "TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE))",
}
KSQL_HINT = (
    "WINDOW TUMBLING (SIZE 10 SECONDS), or WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS)"
)
LATENESS_HINT = (
    "lateness belongs to the stream: "
    "CREATE STREAM s (...) WITH (time = 'ts', lateness = '10 seconds')"
)
ARGUMENT_NAMES = ("DATA", "TIMECOL", "SIZE", "SLIDE", "STEP", "OFFSET", "GAP")
# Words that may follow `window` where it is Spark's function or its column, not a clause.
AFTER_A_NAME = frozenset(
    {TokenType.L_PAREN, TokenType.DOT, TokenType.COMMA, TokenType.FROM, TokenType.ALIAS}
    | {TokenType.R_PAREN, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.GT}
    | {TokenType.LTE, TokenType.GTE, TokenType.IS, TokenType.SEMICOLON, TokenType.HAVING}
)


def mark_window_names(tokens: list[Token]) -> None:
    """`window(...)`, `window.start`, `window` and `SESSION(...)` are names."""
    for token, after in zip(tokens, [*tokens[1:], None], strict=False):
        if token.token_type is TokenType.WINDOW and (
            after is None or after.token_type in AFTER_A_NAME
        ):
            token.token_type = TokenType.VAR
        called = after is not None and after.token_type is TokenType.L_PAREN
        if called and token.text.upper() == "SESSION":
            token.token_type = TokenType.VAR


def sized(word: str, span: Span, size_us: int, slide_us: int, offset_us: int = 0) -> WindowSyntax:
    """Windows that start at multiples of their slide, as all other systems have them."""
    if slide_us > size_us:
        raise CqlSyntaxError(
            f"{word} with windows further apart than they are long", span,
            "rows between two windows would count in none; give a slide up to the size",
        )  # fmt: skip
    align = "start" if size_us % slide_us else ""  # else starts and ends lie there both
    return WindowSyntax(
        "range", span, size_us, slide_us=slide_us, slide_span=span,
        align=align, align_span=span, offset_us=offset_us % slide_us, spelled=word,
    )  # fmt: skip


class ForeignWindowParser(CreateParser):
    """Reads others' windows in FROM."""

    # -- TABLE(TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND)) ------------------------

    def _parse_table_function(self) -> exp.Expr | None:
        """A window as a table function, with or without TABLE( around it."""
        start = self._curr
        wrapped = self._texts_follow("TABLE", "(")
        if not wrapped and not any(self._texts_follow(name, "(") for name in TABLE_FUNCTIONS):
            return None
        if wrapped:
            self._advance(2)
        name = self._curr
        word = name.text.upper() if name else ""
        if word not in TABLE_FUNCTIONS or not (self._next and self._next.text == "("):
            spot = name or start
            raise CqlSyntaxError(
                f"unknown table function {spot.text}", Span(spot.start, spot.end),
                f"windows are {', '.join(TABLE_FUNCTIONS[:2])}: {TABLE_HINTS['TUMBLE']}",
            )  # fmt: skip
        self._advance(2)
        item, by = self._function_data(word)
        time = self._function_time(word)
        lengths = self._function_lengths(word)
        self._expect_closing(word)
        if wrapped:
            self._expect_closing(word)
        span = Span(start.start, self._prev.end)
        window = self._of_function(word, span, lengths)
        item.meta["window"] = replace(window, by=by)
        item.meta["window_time"] = time
        return item

    def _texts_follow(self, *texts: str) -> bool:
        here = self._tokens[self._index : self._index + len(texts)]
        return [t.text.upper() for t in here] == list(texts)

    def _skip_argument_name(self) -> str:
        """`SIZE =>`, if it is there."""
        if self._next and self._next.text == "=>" and self._curr:
            name = self._curr.text.upper()
            if name not in ARGUMENT_NAMES:
                self.raise_error(f"unknown argument {self._curr.text}")
            self._advance(2)
            return name
        return ""

    def _function_data(self, word: str) -> tuple[exp.Expr, tuple[str, ...] | None]:
        """The stream or subquery, and the columns by which sessions are told apart."""
        self._skip_argument_name()
        self._match_text_seq("TABLE")
        item = self._parse_from_item()
        by = None
        if self._match_text_seq("PARTITION", "BY") or self._match(TokenType.PARTITION_BY):
            spot = self._prev
            if word != "SESSION":
                raise CqlSyntaxError(
                    f"PARTITION BY in {word}", Span(spot.start, spot.end),
                    "groups are those of GROUP BY: leave it out",
                )  # fmt: skip
            keys = [self._parse_column()]
            while (
                self._curr
                and not self._texts_follow(",", "DESCRIPTOR")
                and self._match(TokenType.COMMA)
            ):
                keys.append(self._parse_column())
            by = tuple(key.name.lower() for key in keys if key is not None)
        self._expect_comma(word)
        return item, by

    def _function_time(self, word: str) -> exp.Expr:
        """`DESCRIPTOR(ts)`; RisingWave names the column alone."""
        self._skip_argument_name()
        wrapped = self._match_text_seq("DESCRIPTOR", "(")
        if not wrapped and not self._follows(TokenType.COMMA):
            self.raise_error("expected DESCRIPTOR(ts)")
        time = self._parse_column()
        if wrapped:
            self._match_r_paren()
        self._expect_comma(word)
        assert time is not None
        return time

    def _function_lengths(self, word: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        while True:
            name = self._skip_argument_name()
            found.append((name, self._length_until_comma(word)))
            if not self._match(TokenType.COMMA):
                return found

    def _length_until_comma(self, word: str) -> int:
        first = self._curr
        while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            self._advance()
        if not first or self._curr is first:
            self.raise_error(f"expected a length of time in {word}")
        return self._length(Span(first.start, self._prev.end))

    def _length(self, span: Span) -> int:
        try:
            return microseconds(self.sql[span.start : span.end + 1])
        except UsageError as mistake:
            raise CqlSyntaxError(mistake.message, span, mistake.hint) from None

    def _expect_comma(self, word: str) -> None:
        if not self._match(TokenType.COMMA):
            spot = self._curr or self._prev
            raise CqlSyntaxError(
                f"expected a comma in {word}", Span(spot.start, spot.end), TABLE_HINTS[word]
            )

    def _expect_closing(self, word: str) -> None:
        if not self._match(TokenType.R_PAREN):
            spot = self._curr or self._prev
            raise CqlSyntaxError(
                f"the parenthesis of {word} is not closed", Span(spot.start, spot.end),
                TABLE_HINTS[word],
            )  # fmt: skip

    def _of_function(self, word: str, span: Span, lengths: list[tuple[str, int]]) -> WindowSyntax:
        if word == "SESSION":
            return session_of(word, span, [length for _, length in lengths])
        first = "STEP" if word == "CUMULATE" else "SLIDE"
        order = ("SIZE", "OFFSET") if word == "TUMBLE" else (first, "SIZE", "OFFSET")
        named = {
            name or usual: length for (name, length), usual in zip(lengths, order, strict=False)
        }
        needed = order[:-1]
        if len(lengths) > len(order) or any(part not in named for part in needed):
            raise CqlSyntaxError(
                f"{word} takes {' and '.join(needed)}, and perhaps OFFSET", span, TABLE_HINTS[word]
            )
        if word == "CUMULATE":
            return cumulating(word, span, named["SIZE"], named["STEP"], named.get("OFFSET", 0))
        return window_of_lengths(
            word, span, named["SIZE"], named.get("SLIDE"), named.get("OFFSET", 0)
        )

    # -- WINDOW TUMBLING (SIZE 10 SECONDS) ---------------------------------------------------

    def _parse_trailing_window(self) -> WindowSyntax | None:
        """ksqlDB's window after an item of FROM."""
        if not self._texts_follow("WINDOW"):
            return None
        kind = self._next.text.upper() if self._next else ""
        if kind not in ("TUMBLING", "HOPPING", "SESSION"):
            return None
        first = self._curr
        self._advance(2)
        word = f"WINDOW {kind}"
        if not self._match(TokenType.L_PAREN):
            raise CqlSyntaxError(
                f"{word} needs its size", Span(first.start, self._prev.end), KSQL_HINT
            )
        if kind == "SESSION":
            gap = self._length_until_comma(word)
            self._expect_closing("SESSION")
            return session_of(word, Span(first.start, self._prev.end), [gap])
        lengths = self._ksql_lengths(word)
        span = Span(first.start, self._prev.end)
        wanted = {"SIZE"} if kind == "TUMBLING" else {"SIZE", "ADVANCE"}
        if set(lengths) != wanted:
            raise CqlSyntaxError(f"{word} takes {' and '.join(sorted(wanted))}", span, KSQL_HINT)
        return window_of_lengths(word, span, lengths["SIZE"], lengths.get("ADVANCE"))

    def _ksql_lengths(self, word: str) -> dict[str, int]:
        found: dict[str, int] = {}
        while True:
            spot = self._curr
            name = spot.text.upper() if spot else ""
            if name in ("GRACE", "RETENTION"):
                raise CqlSyntaxError(
                    f"{name} in a window is not supported", Span(spot.start, spot.end),
                    LATENESS_HINT,
                )  # fmt: skip
            if name not in ("SIZE", "ADVANCE"):
                self.raise_error(f"expected SIZE or ADVANCE BY in {word}")
            self._advance()
            if name == "ADVANCE":
                self._match_text_seq("BY")
            found[name] = self._length_until_comma(word)
            if self._match(TokenType.R_PAREN):
                return found
            self._match(TokenType.COMMA)

    def _follows(self, kind: TokenType) -> bool:
        return bool(self._next and self._next.token_type == kind)

    # -- JOIN b WITHIN 5 SECONDS ON ... ------------------------------------------------------

    def _at_within(self) -> bool:
        after = self._next.token_type if self._next else None
        return self._texts_follow("WITHIN") and after in (TokenType.NUMBER, TokenType.L_PAREN)

    def _parse_joined_within(self) -> tuple[WindowSyntax, WindowSyntax] | None:
        """ksqlDB's span of a join: the windows of its left and its right side.

        `WITHIN (2 SECONDS, 5 SECONDS)`: a right row may be so much older, so much younger.
        """
        if not self._at_within():
            return None
        first = self._curr
        self._advance()
        if self._match(TokenType.L_PAREN):
            older = self._length_until_comma("WITHIN")
            if not self._match(TokenType.COMMA):
                self.raise_error("expected two lengths, as in WITHIN (2 SECONDS, 5 SECONDS)")
            younger = self._length_until_comma("WITHIN")
            self._match_r_paren()
        else:
            start = self._curr.start
            while self._curr and not self._texts_follow("ON") and not self._texts_follow("GRACE"):
                self._advance()
            older = younger = self._length(Span(start, self._prev.end))
        span = Span(first.start, self._prev.end)
        if self._texts_follow("GRACE"):
            spot = self._curr
            raise CqlSyntaxError(
                "GRACE in a join is not supported", Span(spot.start, spot.end), LATENESS_HINT
            )
        left, right = (
            WindowSyntax("range", span, length, spelled="WITHIN") for length in (younger, older)
        )
        return left, right

    # -- EMIT CHANGES, EMIT FINAL, WATERMARK -------------------------------------------------

    def _at_refinement(self) -> bool:
        return any(
            self._texts_follow("EMIT", *rest)
            for rest in (("CHANGES",), ("FINAL",), ("ON", "WINDOW"))
        )

    def _parse_refinement(self) -> RefinementSyntax | None:
        """`EMIT CHANGES`, `EMIT FINAL`, `EMIT ON WINDOW CLOSE` at the end of a query."""
        if not self._at_refinement():
            return None
        first = self._curr
        self._advance(2)
        kind = "changes" if self._prev.text.upper() == "CHANGES" else "final"
        if self._prev.text.upper() == "ON":
            self._advance()
            if not self._match_text_seq("CLOSE"):
                self.raise_error("expected CLOSE")
        return RefinementSyntax(kind, Span(first.start, self._prev.end))

    def _refuse_watermark(self) -> None:
        """`FROM s WATERMARK ts DELAY OF ...`: a query cannot change when rows are late."""
        if self._texts_follow("WATERMARK") and any(
            t.text.upper() == "DELAY" for t in self._tokens[self._index : self._index + 4]
        ):
            spot = self._curr
            raise CqlSyntaxError(
                "WATERMARK in a query is not supported", Span(spot.start, spot.end), LATENESS_HINT
            )

    def _parse_from_item(self) -> exp.Expr:
        raise NotImplementedError


def session_of(word: str, span: Span, lengths: list[int]) -> WindowSyntax:
    if len(lengths) != 1 or lengths[0] <= 0:
        raise CqlSyntaxError(f"{word} takes one gap, above zero", span, TABLE_HINTS["SESSION"])
    return WindowSyntax("session", span, lengths[0], spelled=word)


def window_of_lengths(
    word: str, span: Span, size_us: int, slide_us: int | None, offset_us: int = 0
) -> WindowSyntax:
    if size_us <= 0 or (slide_us is not None and slide_us <= 0):
        raise CqlSyntaxError(f"{word} needs lengths above zero", span, "e.g. INTERVAL '10' SECOND")
    return sized(word, span, size_us, slide_us or size_us, offset_us)


def cumulating(
    word: str, span: Span, size_us: int, step_us: int, offset_us: int = 0
) -> WindowSyntax:
    """Windows that begin together and grow by steps up to their size."""
    if step_us <= 0 or size_us <= 0 or size_us % step_us:
        raise CqlSyntaxError(
            f"{word} needs a size that is a multiple of its step", span, TABLE_HINTS["CUMULATE"]
        )
    return WindowSyntax(
        "cumulate", span, size_us, slide_us=step_us, slide_span=span, offset_us=offset_us % size_us,
        spelled=word,
    )  # fmt: skip
