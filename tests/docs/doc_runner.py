"""Runs a page of documentation: files are written, commands and programs carried out.

    ```csv title="doors.csv"     a file of that name (toml, json and csv alike)
    ```sh                        every line is run and must succeed, unless it says `# exits with N`
    ```console                   lines with `$` are run; they print what stands below, all of it
    ```python                    run in this process; names last for the page
    ```sql                       must be a right query, as far as the language goes
    ... &                        a process in the background, awaited until it says where it listens
    export NAME=VALUE            for the rest of the page
    ... not-run                  not run; the paragraph before says `Not run by the tests` and why

`millstream` runs in this process, so that pages share one Spark session.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console_blocks import difference, missing, rewritten

from millstream.app import cli
from millstream.language.cql.parsing.parser import parse

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
REASON = "Not run by the tests"
LISTINGS = ("", "text")  # what is shown, not run
READY = ("try:",)  # how a process in the background begins its last line before it works
_BACKGROUND: list[subprocess.Popen[str]] = []


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block and where it stands."""

    language: str
    info: str
    text: str
    line: int
    before: str  # the paragraph above

    @property
    def title(self) -> str:
        found = re.search(r'title="([^"]+)"', self.info)
        return found[1] if found else ""

    @property
    def runs(self) -> bool:
        return "not-run" not in self.info.split()


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split(maxsplit=1)
        above = text[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
        indent = len(match["indent"])
        body = "".join(line[indent:] for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start()) + 1
        found.append(
            Block(words[0] if words else "", words[1] if words[1:] else "", body, line, above)
        )
    return found


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """Variables and processes of a page end with it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        while _BACKGROUND:
            process = _BACKGROUND.pop()
            process.terminate()
            process.wait(90)
            if process.stdout is not None:
                process.stdout.close()
        os.environ.clear()
        os.environ.update(before)


def _in_background(words: list[str], place: str) -> str:
    """Starts a command that goes on; comes back when it has said that it is there."""
    program = [sys.executable, "-c", "from millstream.app.cli import main; main()", *words[1:]]
    process = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path.cwd()
    )
    _BACKGROUND.append(process)
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if line.startswith(READY):
            return said
    raise AssertionError(f"{place}: {' '.join(words)} ended\n{said}")


def run_page(page: Path, folder: Path) -> int:
    """Carries out all blocks of a page in a folder; gives their number."""
    names: dict[str, Any] = {"__name__": "page"}
    ran = 0
    with inside(folder), _surroundings():
        for block in blocks_of(page):
            place = f"{page.name}:{block.line}"
            if not block.runs:
                assert REASON in block.before, f"{place}: say why it is not run"
                continue
            if block.language in LISTINGS:
                continue
            _run(block, names, place, page)
            ran += 1
    return ran


def _run(block: Block, names: dict[str, Any], place: str, page: Path) -> None:
    if block.title:
        Path(block.title).parent.mkdir(parents=True, exist_ok=True)
        Path(block.title).write_text(block.text, encoding="utf-8")
    match block.language:
        case "toml":
            tomllib.loads(block.text)
        case "json":
            json.loads(block.text)
        case "csv":
            assert block.title, f"{place}: a file needs a title"
        case "sql":
            parse(block.text)
        case "python":
            exec(compile(block.text, place, "exec"), names)
        case "sh":
            for command in _commands(block.text):
                _carry_out(command, place)
        case "console":
            _console(block.text, place, page, excerpt="excerpt" in block.info.split())
        case other:
            raise AssertionError(f"{place}: blocks of {other!r} are not known")


def _commands(text: str) -> list[str]:
    joined = text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip() and line.strip()[0] != "#"]


def _console(text: str, place: str, page: Path, *, excerpt: bool) -> None:
    """Every command prints what stands below it, all of it (`console_blocks` has the rule)."""
    folder, told = Path.cwd(), []
    blocks: list[tuple[str, list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            blocks.append((line[2:], []))
        else:
            blocks[-1][1].append(line)
    for command, wanted in blocks:
        printed = _carry_out(command, place)
        told.append((command, printed))
        if os.environ.get("MILLSTREAM_CONSOLE") != "write":
            compared = missing if excerpt else difference
            wrong = compared(wanted, printed.splitlines(), folder)
            assert not wrong, f"{place}: {command}: {wrong}; it printed\n{printed}"
    if os.environ.get("MILLSTREAM_CONSOLE") == "write" and not excerpt:
        rewritten(page, text, told, folder)


def _carry_out(command: str, place: str) -> str:
    """What a command printed, errors included; it must exit as it says."""
    command, _, remark = command.partition("   #")
    expected = re.search(r"exits with (\d+)", remark)
    wanted = int(expected[1]) if expected else 0
    words = shlex.split(command)
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value
        return ""
    if words[-1] == "&":
        return _in_background(words[:-1], place)
    if Path(words[0]).name == "millstream":
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = cli.run(words[1:])
        printed = out.getvalue()
    else:
        answer = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=300
        )
        code, printed = answer.returncode, answer.stdout + answer.stderr
    assert code == wanted, f"{place}: {command} exited with {code}\n{printed}"
    return printed
