"""Windows in brackets: `[RANGE 1 MINUTE SLIDE 5 SECONDS]`, `[PARTITION BY k ROWS 10]`, `[NOW]`."""

import re

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.core.durations import UNITS_US, microseconds
from millstream.core.errors import UsageError
from millstream.language.cql.parsing.calendar_windows import CALENDAR_HINT, calendar_of, is_calendar
from millstream.language.cql.parsing.placed_parser import PlacedParser
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span, WindowSyntax

SLIDING = re.compile(r"\b(EVERY|SLIDING|SLIDES|STEP|HOP|ADVANCE BY|ADVANCE)\b", re.IGNORECASE)
RANGE_HINT = (
    "windows are [RANGE 10 SECONDS], [RANGE 1 MINUTE SLIDE 5 SECONDS], [ROWS 10], "
    "[PARTITION BY k ROWS 10], [SESSION 10 MINUTES], [CUMULATE 1 DAY SLIDE 1 HOUR], [NOW], "
    "[UNBOUNDED]"
)
ALIGN_HINT = (
    "[RANGE 10 SECONDS SLIDE 4 SECONDS ALIGN START] puts the starts of windows at multiples of "
    "SLIDE, ALIGN END their ends"
)

ROWS_MAX = 2**31 - 1  # Spark counts the rows of a window in 32 bits


class WindowParser(PlacedParser):
    """Parses what stands in brackets after an item of FROM."""

    def _parse_window_brackets(self) -> WindowSyntax | None:
        if not self._match(TokenType.L_BRACKET):
            return None
        opening = self._prev
        if not any(t.token_type == TokenType.R_BRACKET for t in self._tokens[self._index :]):
            raise CqlSyntaxError(
                "the window's bracket is not closed", Span(opening.start, opening.end), "add ]"
            )
        window = self._parse_window_body(opening)
        if not self._match(TokenType.R_BRACKET):
            spot = self._curr
            raise CqlSyntaxError(
                f"unexpected {spot.text} in a window", Span(spot.start, spot.end), RANGE_HINT
            )
        return window

    def _parse_window_body(self, opening: Token) -> WindowSyntax:
        partition: list[exp.Expr] = []
        first = self._curr
        if self._match(TokenType.PARTITION_BY) or self._match_text_seq("PARTITION", "BY"):
            partition = self._parse_csv(self._parse_bitwise)
            if not self._match_text_seq("ROWS", advance=False):
                raise CqlSyntaxError(
                    "PARTITION BY needs ROWS", Span(first.start, self._prev.end), RANGE_HINT
                )
        kind = self._curr.text.upper() if self._curr else ""
        self._advance()
        slide_us, slide_span, length_us, count = None, None, 0, 0
        if is_calendar(self._window_text()):
            return self._parse_calendar(opening, kind)
        if kind == "RANGE" and self._match_text_seq("UNBOUNDED"):
            kind = "UNBOUNDED"
        elif kind == "RANGE":
            length_us, _ = self._parse_duration("RANGE")
        elif kind == "ROWS" and self._match_text_seq("UNBOUNDED"):
            kind = "UNBOUNDED"
        elif kind == "ROWS":
            count = self._parse_row_count()
        elif kind in ("SESSION", "CUMULATE"):
            length_us, _ = self._parse_duration(kind)
        elif kind not in ("NOW", "UNBOUNDED"):
            raise CqlSyntaxError(
                "an empty window" if kind == "]" else f"unknown window {kind}",
                Span(first.start, max(first.start, self._prev.end)), RANGE_HINT,
            )  # fmt: skip
        if self._match_text_seq("SLIDE"):
            slide_us, slide_span = self._parse_duration("SLIDE")
        align, align_span = self._parse_align()
        offset_us, offset_span = 0, None
        if self._match_text_seq("OFFSET"):
            offset_us, offset_span = self._parse_duration("OFFSET")
        return WindowSyntax(
            kind.lower(), Span(opening.start, self._curr.end if self._curr else self._prev.end),
            length_us, count, tuple(partition), slide_us, slide_span, align,
            align_span or offset_span, offset_us,
        )  # fmt: skip

    def _parse_window_spec(self) -> dict[str, str | exp.Expr | None]:
        """An edge of OVER's frame; a length may stand without INTERVAL, as in brackets."""
        self._match(TokenType.BETWEEN)
        number, unit = self._curr, self._next
        if not (number and number.token_type == TokenType.NUMBER) or not (
            unit and unit.text.lower() in UNITS_US
        ):
            return super()._parse_window_spec()
        self._advance(2)
        amount = exp.Literal.string(number.text)
        length = self.expression(exp.Interval(this=amount, unit=exp.Var(this=unit.text)))
        length.meta["start"] = number.start
        side = self._prev.text if self._match_texts(self.WINDOW_SIDES) else None
        return {"value": length, "side": side}

    def _window_text(self) -> str:
        """What is left before the bracket that closes the window."""
        tokens = self._tokens[self._index :]
        end = next((t.start for t in tokens if t.token_type == TokenType.R_BRACKET), 0)
        return self.sql[self._curr.start : end] if self._curr and end else ""

    def _parse_calendar(self, opening: Token, kind: str) -> WindowSyntax:
        text = self._window_text()
        while self._curr and self._curr.token_type != TokenType.R_BRACKET:
            self._advance()
        span = Span(opening.start, self._curr.end if self._curr else self._prev.end)
        if kind != "RANGE":
            raise CqlSyntaxError(f"{kind} by a calendar", span, CALENDAR_HINT)
        return WindowSyntax("calendar", span, calendar=calendar_of(text, span))

    def _parse_align(self) -> tuple[str, Span | None]:
        """ALIGN START or ALIGN END, if it is there."""
        if not self._match_text_seq("ALIGN"):
            return "", None
        keyword = self._prev
        if not self._match_text_seq("START") and not self._match_text_seq("END"):
            raise CqlSyntaxError(
                "ALIGN needs START or END", Span(keyword.start, keyword.end), ALIGN_HINT
            )
        return self._prev.text.lower(), Span(keyword.start, self._prev.end)

    def _parse_row_count(self) -> int:
        spot = self._curr
        self._advance()
        text = spot.text if spot else ""
        if not text.isdigit() or not 1 <= int(text) <= ROWS_MAX:
            raise CqlSyntaxError(
                f"a window of {text or 'no'} rows",
                Span(spot.start, spot.end), f"ROWS takes a whole number from 1 to {ROWS_MAX}",
            )  # fmt: skip
        return int(text)

    def _parse_duration(self, word: str) -> tuple[int, Span]:
        """The text up to SLIDE, ALIGN, OFFSET or the bracket, read as a length of time."""
        keyword, first = self._prev, self._curr
        while (
            self._curr
            and self._curr.token_type != TokenType.R_BRACKET
            and not self._match_text_seq("SLIDE", advance=False)
            and not self._match_text_seq("ALIGN", advance=False)
            and not self._match_text_seq("OFFSET", advance=False)
        ):
            self._advance()
        if self._prev is keyword:
            raise CqlSyntaxError(
                f"{word} needs a length of time", Span(keyword.start, keyword.end), RANGE_HINT
            )
        span = Span(first.start, self._prev.end)
        text = self.sql[span.start : span.end + 1]
        try:
            length_us = microseconds(text)
        except UsageError as mistake:
            hint = mistake.hint
            if other := SLIDING.search(text):
                hint = f"write SLIDE in the place of {other[0]}"
            raise CqlSyntaxError(mistake.message, span, hint) from None
        if length_us <= 0:
            raise CqlSyntaxError(
                f"{word} {text} is not above zero", span,
                "use [NOW] for rows of the same instant" if word == "RANGE" else "",
            )  # fmt: skip
        return length_us, span
