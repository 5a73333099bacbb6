"""What may follow at the prompt: commands and their names, and else what may follow in a query."""

import re
from collections.abc import Mapping

from millstream.language.cql.parsing.completion import Known, candidates, fitting

COMMANDS: Mapping[str, str] = {
    r"\d": "streams and queries; \\d NAME describes one",
    r"\explain": "what a query means: \\explain SELECT ...",
    r"\tail": "results of a query as they come: \\tail NAME; Ctrl-C ends it",
    r"\alarms": "what needs attention, since when, and what to do",
    r"\restart": "continue a failed query where it failed: \\restart NAME",
    r"\pause": "let a query rest; its rows are kept: \\pause NAME",
    r"\resume": "resume it: \\resume NAME",
    r"\drop": "end a query: \\drop NAME",
    r"\push": 'a row for a stream without source: \\push NAME {"column": 1}',
    r"\i": "statements of a file: \\i FILE",
    r"\?": "this list",
    r"\q": "leave",
}
# Words that people know from other shells, and the command that each is.
SPOKEN: tuple[tuple[str, str], ...] = (
    (r"(?:help|\?)", r"\?"),
    (r"(?:exit|quit|bye)", r"\q"),
    (r"show\s+alarms", r"\alarms"),
    (r"show(?:\s+(?:streams|queries|tables|all))?", r"\d"),
    (r"desc(?:ribe)?(?:\s+(?:stream|query|table))?\s+(?P<rest>\S+)", r"\d"),
    (r"drop(?:\s+query)?\s+(?P<rest>\S+)", r"\drop"),
    (r"restart(?:\s+query)?\s+(?P<rest>\S+)", r"\restart"),
    (r"(?:pause|suspend)(?:\s+query)?\s+(?P<rest>\S+)", r"\pause"),
    (r"resume(?:\s+query)?\s+(?P<rest>\S+)", r"\resume"),
    (r"explain\s+(?P<rest>.+)", r"\explain"),
)
OF_QUERIES = (r"\tail", r"\restart", r"\pause", r"\resume", r"\drop")
NAMED = (r"\d", *OF_QUERIES, r"\push")  # commands that take a name


def as_command(text: str) -> str:
    r"""A text that is a command in other words, as that command; empty where it is none.

    >>> as_command("SHOW QUERIES;"), as_command("describe requests"), as_command("exit")
    ('\\d', '\\d requests', '\\q')
    >>> as_command("SELECT a FROM s;"), as_command("EXPLAIN SELECT a FROM s;")
    ('', '\\explain SELECT a FROM s')
    """
    bare = text.strip().rstrip(";").strip()
    for pattern, command in SPOKEN:
        if found := re.fullmatch(pattern, bare, re.IGNORECASE | re.DOTALL):
            rest = found.groupdict().get("rest") or ""
            return f"{command} {rest}".strip()
    return ""


def at_prompt(before: str, known: Known) -> tuple[str, list[str]]:
    r"""The beginning of the word at the cursor, and what it may become.

    >>> at_prompt(r"\tail e", Known({"requests": ("host", "status")}, ("errors",)))
    ('e', ['errors'])
    """
    if before.lstrip().startswith("\\"):
        return _after_command(before.lstrip(), known)
    return candidates(before, known)


def _after_command(text: str, known: Known) -> tuple[str, list[str]]:
    command, space, rest = text.partition(" ")
    if not space:
        return command, [c for c in COMMANDS if c.startswith(command)]
    if command == r"\explain":
        return candidates(rest, known)
    if command in NAMED and " " not in rest:
        streams = () if command in OF_QUERIES else known.streams
        queries = () if command == r"\push" else known.queries
        return rest, fitting(rest, sorted([*streams, *queries]))
    return "", []
