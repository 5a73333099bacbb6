"""What can go wrong, told in three parts: primary, detail, hint.

    MillstreamError
      UsageError        the user's mistake: a command, a setting, a job file
        CqlError        ... in a query's text, with line and column
      BadRowsError      rows of a stream do not count, and that is not wanted
      ResourceError     a disk, memory or quota is exhausted
      StateError        what lies on disk does not fit what was asked
        RefusedError    ... another process, or this one, will not do it; a code says why
        DamageError     ... it is not what was written: bytes were lost or changed
      AwayError         another process does not answer
      InternalError     our own bug: please report

The command line prints any of these without a traceback; `exit_code` is what it exits with.
"""

EXCERPT_MAX = 160  # characters of a line that are shown around a mistake


class MillstreamError(Exception):
    """Base of all errors that reach a user."""

    exit_code = 1

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(self.detail)
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)


class UsageError(MillstreamError):
    """The user's mistake."""

    exit_code = 2


class CqlError(UsageError):
    """A mistake in a query's text, with its place.

    `source` is the text, `line` and `column` count from 1, `length` is the length to underline.
    """

    def __init__(
        self, message: str, *, source: str, line: int, column: int, length: int = 1, hint: str = ""
    ) -> None:
        self.source, self.line, self.column, self.length = source, line, column, max(1, length)
        super().__init__(message, detail=self.underlined(), hint=hint)

    def underlined(self) -> str:
        """The offending line with a mark below the spot."""
        lines = self.source.split("\n")
        text = lines[min(self.line, len(lines)) - 1].replace("\t", " ").replace("\r", " ")
        number, column = f"{self.line}", self.column
        if len(text) > EXCERPT_MAX:
            first = max(0, min(column - 1 - EXCERPT_MAX // 3, len(text) - EXCERPT_MAX))
            before, after = "…" * (first > 0), "…" * (first + EXCERPT_MAX < len(text))
            text = f"{before}{text[first : first + EXCERPT_MAX]}{after}"
            column += len(before) - first
        room = max(1, min(self.length, len(text) - column + 1))
        return (
            f"  at line {self.line}, column {self.column}\n"
            f"  {number} | {text}\n"
            f"  {' ' * len(number)} | {' ' * (column - 1)}{'^' * room}"
        )


class BadRowsError(MillstreamError):
    """Rows of a stream were rejected or late, and that is not wanted."""

    exit_code = 4


class ResourceError(MillstreamError):
    """Something ran out."""

    exit_code = 3


class StateError(MillstreamError):
    """What lies on disk does not fit what was asked."""

    exit_code = 2


class RefusedError(StateError):
    """Another process, or this one, will not: `code` says why to programs."""

    def __init__(self, code: str, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.code = code


class MovedError(RefusedError):
    """Rows of a stream enter at another processor by now; nothing of what was brought is kept."""

    def __init__(self, stream: str, processor: str) -> None:
        super().__init__(
            "moved",
            f"rows of stream {stream} enter at processor {processor} now",
            hint="send them there under the same number",
        )


class DamageError(StateError):
    """Bytes on disk are not those that were written; `file` is where."""

    exit_code = 5

    def __init__(self, message: str, *, file: str, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.file = file


class AwayError(MillstreamError):
    """Another process does not answer; asked again later it may."""


class InternalError(MillstreamError):
    """Our own bug."""

    exit_code = 70
