"""Mistakes in the TOML of a job file, all at once and in words of the file, not of its parser.

The parser stops at the first. So a line that it cannot read is told, mended in the likeliest way
and read again, until the rest can be read or a line cannot be mended.
"""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

MISTAKES_MAX = 20
TYPOGRAPHIC = "\u201c\u201d\u201e\u2018\u2019"
TRUE_OR_FALSE = "true and false are written small"
UNCLOSED = "the text is not closed on its line"
WHAT_TOML_IS = 'the file is TOML: [table], key = "text", key = 12, key = { a = "x" }'
PAIR = re.compile(r"^(\s*[\w.\"-]+\s*=\s*)(.*?)(\s*)$")
COLON = re.compile(r"^(\s*[\w.-]+)\s*:\s*(\S.*)$")
TITLE = re.compile(r"^\s*(\[+[^\]#]*?)\s*(#.*)?$")  # of a table, not closed
TWICE = re.compile(r"^(\s*\[.*?)(\]+)(.*)$")
WORD = re.compile(r"\b(True|TRUE|False|FALSE)\b")
WORD_AS_VALUE = re.compile(r"(?<==)(\s*)(?!(?:true|false)\b)([A-Za-z_][\w()<>]*)(?=\s*[,}])")
COMMA_LEFT_OUT = re.compile(r"""(["'\w}\]])\s+(?=[\w"-]+\s*=)""")
PATH_TEXT = re.compile(r'"([^"\']*\\[^"\']*)"')
LONG_TEXT = '"""'


@dataclass(frozen=True, slots=True)
class TomlMistake:
    """Where something is wrong, counted from 1, what, and how to write it."""

    line: int
    column: int
    message: str
    hint: str


def parsed(text: str) -> tuple[dict[str, Any] | None, str, list[TomlMistake]]:
    """The values, the text that they are of (mended where it had to be), and its mistakes.

    >>> _, mended, (mistake,) = parsed("a = hello there")
    >>> mended, mistake.message
    ('a = "hello there"', 'hello there has no quotes')
    """
    mistakes: list[TomlMistake] = []
    while True:
        try:
            return tomllib.loads(text), text, mistakes
        except tomllib.TOMLDecodeError as error:
            if mistake := _endless(text, error):
                return None, text, [*mistakes, mistake]
            line, column = _place(text, error)
            lines = text.split("\n")
            written = lines[line - 1] if line <= len(lines) else ""
            told, mended = _told(written, error)
            if mistakes and mistakes[-1].line == line:  # mending it was of no use
                return None, text, mistakes
            if mistakes and mistakes[-1].line == line - 1 and not PAIR.match(written):
                return None, text, mistakes  # the rest of a text that was not closed
            mistakes.append(TomlMistake(line, _column(written, told, column), *told))
            if mended is None or len(mistakes) >= MISTAKES_MAX:
                return None, text, mistakes
            lines[line - 1] = mended
            text = "\n".join(lines)


def _place(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, int]:
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    if found:
        return int(found[1]), int(found[2])
    lines = text.splitlines() or [""]  # at the end of the document
    return len(lines), len(lines[-1]) + 1


def _endless(text: str, error: tomllib.TOMLDecodeError) -> TomlMistake | None:
    """A text in three quotes that goes on to the end of the file: told where it begins."""
    if text.count(LONG_TEXT) % 2 == 0 or not str(error).startswith("Unterminated string"):
        return None
    before = text[: text.rindex(LONG_TEXT)]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    hint = "three quotes at its end as well"
    return TomlMistake(line, column, "the text in three quotes is not closed", hint)


def _told(line: str, error: tomllib.TOMLDecodeError) -> tuple[tuple[str, str], str | None]:
    """What is wrong with a line and how to write it, and the line mended; None where nobody can."""
    found = PAIR.match(line)
    key, value = (found[1], found[2]) if found else ("", "")
    bare = value.strip(TYPOGRAPHIC + "\"'").replace('"', "'")
    if any(quote in value for quote in TYPOGRAPHIC) and value[:1] in TYPOGRAPHIC:
        mended = f'{key}"{bare}"'
        return ("TOML does not accept typographic quotes", mended.strip()), mended
    if value.startswith('"') and not value.startswith('"""') and value.count('"') == 1:
        mended = f'{key}"{value[1:]}"'
        hint = f'{mended.strip()}, or three quotes (""") around a text of several lines'
        return (UNCLOSED, hint), mended
    if WORD.fullmatch(value):
        mended = key + value.lower()
        return (TRUE_OR_FALSE, mended.strip()), mended
    if found and value and not re.match(r"[\"'\[{]", value) and _is_value_missing(error):
        mended = f'{key}"{bare}"'
        return (f"{value} has no quotes", mended.strip()), mended
    if told := _other_spelling(line, key, value, str(error)):
        return told
    what = re.sub(r"\s*\(at .*\)$", "", str(error))
    return (what[:1].lower() + what[1:], WHAT_TOML_IS), None


def _other_spelling(
    line: str, key: str, value: str, error: str
) -> tuple[tuple[str, str], str | None] | None:
    """What is spelt as other languages spell it, or is defined here again."""
    if "\\" in error and PATH_TEXT.search(line):
        mended = PATH_TEXT.sub(lambda text: f"'{text[1]}'", line)
        message = "a backslash between double quotes has a meaning of its own"
        return (message, f"{mended.strip()}, between single quotes"), mended
    if key and WORD.search(value) and error.startswith("Invalid value"):
        mended = key + WORD.sub(lambda word: word[0].lower(), value)
        return (TRUE_OR_FALSE, mended.strip()), mended
    if key and value.startswith("{") and value.endswith("}") and (told := _in_braces(key, value)):
        return told
    if key and value.startswith("[") and "=" in value and value.endswith("]"):
        mended = f"{key}{{{value[1:-1]}}}"
        return ("keys with values stand in braces", mended.strip()), mended
    if key and value.startswith("{") and "}" not in value:
        hint = "write it on one line, or as a table of its own: [streams.NAME.options]"
        return ("a table in braces must end on its line", hint), None
    if error.startswith("Cannot overwrite") and key:
        name = key.split("=", maxsplit=1)[0].strip()
        return (f"{name} is given twice", "keep one of them"), ""
    if error.startswith("Cannot declare") and (found := TWICE.match(line)):
        mended = f"{found[1]}_2{found[2]}"
        message = f"{found[1].strip()}{found[2]} is defined here again"
        return (message, f"another name, as {mended.strip()}, or one of them"), mended
    if line.lstrip().startswith("{"):
        return ("the file looks like JSON; a job file is TOML", WHAT_TOML_IS), None
    if line.rstrip().endswith(":"):
        return ("the file looks like YAML; a job file is TOML", WHAT_TOML_IS), None
    if line.lstrip().startswith(("//", "--", ";")):
        mended = f"# {line.lstrip().lstrip('/-;').lstrip()}"
        return ("a comment begins with #", mended), mended
    if found := COLON.match(line):
        mended = f"{found[1]} = {found[2].rstrip(',')}"
        return ("a key and its value have = between them", mended.strip()), mended
    if (found := TITLE.match(line)) and line.lstrip().startswith("["):
        closing = "]" * (2 if found[1].startswith("[[") else 1)
        mended = found[1] + closing
        return ("the name of the table is not closed", mended), mended
    return None


def _in_braces(key: str, value: str) -> tuple[tuple[str, str], str] | None:
    """A word without quotes, or a comma left out, between braces.

    >>> _in_braces("columns = ", "{ at = timestamp, n = \\"int\\" }")[0]
    ('timestamp has no quotes', 'columns = { at = "timestamp", n = "int" }')
    >>> _in_braces("columns = ", '{ a = "int" b = "int" }')[0]
    ('a comma is missing', 'columns = { a = "int", b = "int" }')
    """
    words = [found[2] for found in WORD_AS_VALUE.finditer(value)]
    if words:
        mended = key + WORD_AS_VALUE.sub(r'\1"\2"', value)
        verb = "has no quotes" if len(words) == 1 else "have no quotes"
        return (f"{' and '.join(words)} {verb}", mended.strip()), mended
    with_commas = COMMA_LEFT_OUT.sub(r"\1, ", value)
    if with_commas == value:
        return None
    return ("a comma is missing", (key + with_commas).strip()), key + with_commas


def _is_value_missing(error: tomllib.TOMLDecodeError) -> bool:
    words = str(error)
    return words.startswith(("Invalid value", "Expected newline", "Invalid date or datetime"))


def _column(line: str, told: tuple[str, str], column: int) -> int:
    """Where to point: at the value, where the value as a whole is what is wrong."""
    found = PAIR.match(line)
    whole = found and told[0] != UNCLOSED and told[1] != WHAT_TOML_IS
    return len(found[1]) + 1 if found and whole else column
