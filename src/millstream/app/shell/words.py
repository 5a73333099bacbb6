"""What may follow at the prompt: commands and their names, and else what may follow in a query."""

from collections.abc import Mapping

from millstream.language.cql.completion import Known, candidates, fitting

COMMANDS: Mapping[str, str] = {
    r"\d": "streams and queries; \\d NAME tells of one",
    r"\explain": "what a query means: \\explain SELECT ...",
    r"\tail": "results of a query as they come: \\tail NAME; Ctrl-C ends it",
    r"\drop": "end a query: \\drop NAME",
    r"\push": 'a row for a stream without source: \\push NAME {"column": 1}',
    r"\i": "statements of a file: \\i FILE",
    r"\?": "this list",
    r"\q": "leave",
}
NAMED = (r"\d", r"\tail", r"\drop", r"\push")  # commands that take a name


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
        streams = () if command in (r"\tail", r"\drop") else known.streams
        queries = () if command == r"\push" else known.queries
        return rest, fitting(rest, sorted([*streams, *queries]))
    return "", []
