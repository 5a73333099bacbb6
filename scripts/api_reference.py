"""Writes docs/API.md from the docstrings of what `import millstream` offers.

    python scripts/api_reference.py          rewrite the page
    python scripts/api_reference.py --check  exit 1 where it is not current

Public names, their public methods and properties, signatures as they stand in the code.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millstream
from millstream.app.session.query import QueryHandle
from millstream.app.session.rules import RuleSet

PAGE = Path(__file__).parents[1] / "docs" / "API.md"
HEAD = """\
# Python API

*`scripts/api_reference.py` makes this page from the docstrings; change those, not this page.*

Python programs use `millstream.Session` and the query that `session.query(...)` returns. Errors are
`millstream.MillstreamError`: a message, a detail and a hint.
"""


def page() -> str:
    """The whole page."""
    found: list[tuple[str, Any]] = [
        ("millstream.Session", millstream.Session),
        ("QueryHandle", QueryHandle),
        ("RuleSet", RuleSet),
        ("millstream.dashboard", millstream.dashboard),
        ("millstream.MillstreamError", millstream.MillstreamError),
        ("millstream.CqlError", millstream.CqlError),
    ]
    return "\n".join([HEAD, *(line for name, value in found for line in _entry(name, value))])


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"## `{name}{_signature(value)}`\n"
    yield f"{_words(value)}\n"
    if not inspect.isclass(value):
        return
    for member, found in inspect.getmembers_static(value):
        if member.startswith("_") or not _words(found):
            continue
        if isinstance(found, property):
            yield f"### `{member}`\n"
        elif inspect.isfunction(found):
            yield f"### `{member}{_signature(found)}`\n"
        else:
            continue
        yield f"{_words(found)}\n"


def _signature(value: Any) -> str:
    """Parameters with their types as they are written, without self."""
    signature = inspect.signature(value)
    shown = [p for p in signature.parameters.values() if p.name != "self"]
    text = str(signature.replace(parameters=shown)).removesuffix(" -> None")
    text = re.sub(r"(->|:) '([^']*)'", r"\1 \2", text)  # types that are written as texts
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)  # their names without modules


def _words(value: Any) -> str:
    """The docstring; examples as a block of code."""
    text = inspect.getdoc(value) or ""
    lines, coded = [], False
    for line in text.splitlines():
        code = line.startswith((">>>", "...", "    ")) or (coded and bool(line.strip()))
        if code != coded:
            lines.append("```text" if code else "```")
        lines.append(line)
        coded = code
    return "\n".join([*lines, "```"] if coded else lines).strip()


def main() -> None:
    text = page()
    if "--check" in sys.argv:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(0 if current else f"{PAGE.name} is not current: run {Path(__file__).name}")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
