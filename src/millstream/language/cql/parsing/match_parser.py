"""MATCH_RECOGNIZE after an item of FROM: its clauses, and the pattern as text becomes a tree."""

import re
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from millstream.core.durations import microseconds
from millstream.core.errors import UsageError
from millstream.language.cql.parsing.foreign_windows import ForeignWindowParser
from millstream.language.cql.parsing.syntax import CqlSyntaxError, Span
from millstream.language.plan.row_patterns import (
    Choice,
    Pattern,
    Repeat,
    Sequence,
    Skip,
    Variable,
    least_rows,
)

WORD = "MATCH_RECOGNIZE"
MATCH_HINT = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(B.x) AS x PATTERN (A B+) "
    "WITHIN INTERVAL '1' MINUTE DEFINE A AS x > 10, B AS x < 10)"
)
SKIP_HINT = "PAST LAST ROW, TO NEXT ROW, TO FIRST a, TO LAST a"
PATTERN_HINT = "e.g. PATTERN (A (B | C)+ D? E{2,3})"
REFUSED = {
    "^": ("^, the beginning of a partition,", "before the first row PREV is NULL: DEFINE A AS "
          "PREV(x) IS NULL"),
    "$": ("$, the end of a partition,", "a stream has no end: leave it out"),
    "PERMUTE": ("PERMUTE", "every order by itself: PATTERN (A B | B A)"),
    "{": ("{- -}, rows that are left out,", "leave the braces out, and filter the rows by "
           "CLASSIFIER(): ALL ROWS PER MATCH, then WHERE role <> 'A'"),
}  # fmt: skip
INSTRUCTIONS_MAX = 1_000  # of a pattern with its counts spelled out
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<count>\{\s*\d*\s*(?:,\s*\d*\s*)?\})|(?P<sign>\S))"
)

AFTER_MEASURES = ("ONE", "ALL", "AFTER", "PATTERN")  # how the clause behind them begins


@dataclass(frozen=True, slots=True)
class Definition:
    """`A AS condition`."""

    name: str
    condition: exp.Expr
    span: Span


@dataclass(frozen=True, slots=True)
class MatchSyntax:
    """The clauses as written."""

    span: Span
    partition: tuple[exp.Expr, ...]
    order: tuple[exp.Expr, ...]
    measures: tuple[exp.Expr, ...]
    pattern: Pattern
    pattern_span: Span
    within_us: int | None
    skip: Skip
    skip_span: Span | None
    definitions: tuple[Definition, ...]
    all_rows: bool = False  # a match gives each of its rows
    unmatched: bool = False  # and rows of no match come beside them


class MatchParser(ForeignWindowParser):
    """Parses what stands after MATCH_RECOGNIZE."""

    def _at_match(self) -> bool:
        return self._texts_follow(WORD, "(")

    def _parse_match(self, item: exp.Expr) -> exp.Expr:
        """The item with the clauses around it, as a subquery of its own."""
        first = self._curr
        self._advance(2)
        partition = self._parse_partition_by()
        order = self._parse_order()
        if order is None:
            raise CqlSyntaxError(f"{WORD} needs ORDER BY ts", self._here(), MATCH_HINT)
        measures = self._parse_measures()
        all_rows, unmatched = self._parse_rows_per_match()
        if not measures and not all_rows:
            raise CqlSyntaxError(
                f"{WORD} needs MEASURES", self._here(), "name the results of a match: "
                "MEASURES FIRST(A.ts) AS begun, count(*) AS n",
            )  # fmt: skip
        skip, skip_span = self._parse_skip()
        if unmatched and skip.kind != "past last row":
            raise CqlSyntaxError(
                "WITH UNMATCHED ROWS where matches overlap", skip_span or self._here(),
                "AFTER MATCH SKIP PAST LAST ROW, with which each row is in one match or in none",
            )  # fmt: skip
        pattern, pattern_span = self._parse_pattern()
        within_us = self._parse_within()
        if self._texts_follow("SUBSET"):
            raise CqlSyntaxError(
                "SUBSET is not supported", self._here(), "name the variables: (A | B)"
            )
        definitions = self._parse_definitions()
        if not self._match(TokenType.R_PAREN):
            raise CqlSyntaxError(
                f"unexpected {self._curr.text if self._curr else 'end'} in {WORD}", self._here(),
                MATCH_HINT,
            )  # fmt: skip
        source = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item))
        made = exp.Subquery(this=source)
        span = Span(first.start, first.end)
        made.meta.update(start=span.start, end=self._prev.end)
        made.meta["match"] = MatchSyntax(
            span, tuple(partition), tuple(order.expressions), measures, pattern, pattern_span,
            within_us, skip, skip_span, definitions, all_rows, unmatched,
        )  # fmt: skip
        return made

    def _here(self) -> Span:
        spot = self._curr or self._prev
        return Span(spot.start, spot.end)

    def _parse_measures(self) -> tuple[exp.Expr, ...]:
        if not self._match_text_seq("MEASURES"):
            return ()
        return tuple(self._parse_csv(self._parse_measure))

    def _parse_measure(self) -> exp.Expr | None:
        """FINAL and RUNNING mean the same where a match gives one row."""
        final = False
        if self._match_texts(("FINAL", "RUNNING"), advance=False) and not self._follows(
            TokenType.DOT
        ):
            final = self._curr.text.upper() == "FINAL"
            self._advance()
        measure = self._parse_disjunction()
        named = self._match(TokenType.ALIAS) or not self._match_texts(AFTER_MEASURES, advance=False)
        name = self._parse_id_var(any_token=False) if named else None
        if name is None:
            spot = self._prev
            raise CqlSyntaxError(
                "a measure needs a name", Span(spot.start, spot.end), "LAST(A.x) AS x"
            )
        made = self.expression(exp.Alias(this=measure, alias=name))
        made.meta["final"] = final
        return made

    def _parse_rows_per_match(self) -> tuple[bool, bool]:
        """Whether a match gives all its rows, and rows of none come too.

        No match is empty, so that showing those is no matter.
        """
        if not self._match_text_seq("ALL", "ROWS", "PER", "MATCH"):
            self._match_text_seq("ONE", "ROW", "PER", "MATCH")
            return False, False
        unmatched = bool(self._match_text_seq("WITH", "UNMATCHED", "ROWS"))
        for word in ("SHOW", "OMIT"):
            self._match_text_seq(word, "EMPTY", "MATCHES")
        return True, unmatched

    def _parse_skip(self) -> tuple[Skip, Span | None]:
        first = self._curr
        if not self._match_text_seq("AFTER", "MATCH", "SKIP"):
            return Skip("past last row"), None
        if self._match_text_seq("PAST", "LAST", "ROW"):
            return Skip("past last row"), None
        if self._match_text_seq("TO", "NEXT", "ROW"):
            return Skip("to next row"), None
        if self._match_text_seq("TO"):
            last = not self._match_text_seq("FIRST")
            if last:
                self._match_text_seq("LAST")
            name = self._parse_id_var(any_token=True)
            if name is not None:
                kind = "to last" if last else "to first"
                return Skip(kind, name.name.upper()), Span(first.start, self._prev.end)  # type: ignore[arg-type]
        raise CqlSyntaxError("unknown AFTER MATCH SKIP", self._here(), SKIP_HINT)

    def _parse_pattern(self) -> tuple[Pattern, Span]:
        if not (self._match_text_seq("PATTERN") and self._match(TokenType.L_PAREN)):
            raise CqlSyntaxError(f"{WORD} needs PATTERN", self._here(), PATTERN_HINT)
        opening = self._prev
        depth = 1
        while self._curr and depth:
            kind = self._curr.token_type
            depth += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
            self._advance()
        if depth:
            raise CqlSyntaxError("PATTERN is not closed", Span(opening.start, opening.end), "add )")
        span = Span(opening.end + 1, self._prev.start - 1)
        return PatternReader(self.sql, span).read(), span

    def _parse_within(self) -> int | None:
        if not self._match_text_seq("WITHIN"):
            return None
        first: Token = self._curr
        while self._curr and not (
            self._match_texts(("DEFINE", "SUBSET"), advance=False)
            or self._curr.token_type == TokenType.R_PAREN
        ):
            self._advance()
        span = Span(first.start, self._prev.end)
        try:
            length_us = microseconds(self.sql[span.start : span.end + 1])
        except UsageError as mistake:
            raise CqlSyntaxError(mistake.message, span, mistake.hint) from None
        if length_us <= 0:
            raise CqlSyntaxError("WITHIN is not above zero", span, "WITHIN INTERVAL '1' MINUTE")
        return length_us

    def _parse_definitions(self) -> tuple[Definition, ...]:
        if not self._match_text_seq("DEFINE"):
            raise CqlSyntaxError(f"{WORD} needs DEFINE", self._here(), MATCH_HINT)
        return tuple(self._parse_csv(self._parse_definition))

    def _parse_definition(self) -> Definition:
        name = self._parse_id_var(any_token=True)
        span = Span(self._prev.start, self._prev.end)
        if name is None or not self._match(TokenType.ALIAS):
            raise CqlSyntaxError("expected a variable and AS", self._here(), "DEFINE A AS x > 10")
        condition = self._parse_disjunction()
        if condition is None:
            self.raise_error("expected a condition")
        assert condition is not None
        return Definition(name.name.upper(), condition, span)


class PatternReader:
    """A pattern from its text, by descent."""

    def __init__(self, source: str, span: Span) -> None:
        self._tokens: list[tuple[str, str, Span]] = []
        position, end = span.start, span.end + 1
        while found := _TOKEN.match(source, position, end):
            kind = str(found.lastgroup)
            at = Span(found.start(kind), found.end(kind) - 1)
            self._tokens.append((kind, found[kind], at))
            position = found.end()
        self._index, self._span = 0, span

    def read(self) -> Pattern:
        made = self._choice()
        if self._index < len(self._tokens):
            raise self._unexpected()
        if least_rows(made) == 0:
            raise CqlSyntaxError(
                "the pattern matches no row at all", self._span, "at least one row: A+ for A*"
            )
        if _length(made) > INSTRUCTIONS_MAX:
            raise CqlSyntaxError(
                f"the pattern is longer than {INSTRUCTIONS_MAX} rows with its counts spelled out",
                self._span, "A+ and a condition on count(A.x)",
            )  # fmt: skip
        return made

    def _sign(self) -> str:
        if self._index == len(self._tokens):
            return ""
        kind, text, _ = self._tokens[self._index]
        return kind if kind in ("name", "count") else text

    def _unexpected(self) -> CqlSyntaxError:
        if self._index == len(self._tokens):
            return CqlSyntaxError("the pattern ends too early", self._span, PATTERN_HINT)
        _, text, span = self._tokens[self._index]
        if text in REFUSED:
            word, hint = REFUSED[text]
            return CqlSyntaxError(f"{word} is not supported in a pattern", span, hint)
        return CqlSyntaxError(f"unexpected {text} in a pattern", span, PATTERN_HINT)

    def _choice(self) -> Pattern:
        parts = [self._sequence()]
        while self._sign() == "|":
            self._index += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Pattern:
        parts = [self._repeated()]
        while self._sign() in ("name", "("):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> Pattern:
        part = self._single()
        while (sign := self._sign()) in ("*", "+", "?", "count"):
            _, text, span = self._tokens[self._index]
            self._index += 1
            usual: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
            least, most = usual[sign] if sign in usual else _counts(text, span)
            greedy = self._sign() != "?"
            self._index += not greedy
            if least_rows(part) == 0:
                raise CqlSyntaxError(
                    "a part that may have no rows is repeated", span, "(A?)* is A*, (A* B)+ is fine"
                )
            part = Repeat(part, least, most, greedy)
        return part

    def _single(self) -> Pattern:
        if self._sign() == "name":
            _, text, _ = self._tokens[self._index]
            if text.upper() == "PERMUTE":
                raise self._unexpected()
            self._index += 1
            return Variable(text.upper())
        if self._sign() != "(":
            raise self._unexpected()
        self._index += 1
        inner = self._choice()
        if self._sign() != ")":
            raise self._unexpected()
        self._index += 1
        return inner


def _counts(text: str, span: Span) -> tuple[int, int | None]:
    """`{2}`, `{2,}`, `{2,3}`, `{,3}`."""
    low, comma, high = text.strip("{} ").partition(",")
    least = int(low) if low.strip() else 0
    most = (int(high) if high.strip() else None) if comma else least
    if not (low.strip() or high.strip()) or most == 0 or (most is not None and most < least):
        raise CqlSyntaxError(f"{text} is not a number of rows", span, "{2}, {2,}, {2,3}")
    return least, most


def _length(pattern: Pattern) -> int:
    """How long it is with its counts spelled out."""
    match pattern:
        case Variable():
            return 1
        case Sequence(parts) | Choice(parts):
            return sum(_length(part) for part in parts)
        case Repeat(part, least, most):
            return _length(part) * max(least + (most is None), most or 0)
