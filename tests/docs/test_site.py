"""The documentation holds together: pages, links, pictures, commands; little is not run."""

import re
from pathlib import Path

import pytest
from doc_runner import REASON, blocks_of

from millstream.app import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "design" not in p.parts)
NOT_RUN_MAX = 12  # blocks of the whole site


def names(pages: list[Path]) -> list[str]:
    return [str(p.relative_to(DOCS)) for p in pages]


def test_the_site_names_every_page_once() -> None:
    nav = re.findall(r":\s+(\S+\.md)\s*$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(names(PAGES))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "//" in target:
            continue
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_little_is_not_run_and_each_says_why() -> None:
    left = [(p.name, b.line) for p in PAGES for b in blocks_of(p) if not b.runs]
    assert len(left) <= NOT_RUN_MAX, left
    for page in PAGES:
        for block in blocks_of(page):
            if not block.runs:
                assert REASON in block.before, f"{page.name}:{block.line}"


def test_every_command_and_its_exit_codes_are_documented() -> None:
    text = (DOCS / "commands.md").read_text()
    for name in cli.LazyGroup(name="millstream").list_commands(None):
        assert f"`millstream {name}" in text, name
    for code in (0, 1, 2, 3, 70, 130, 143):
        assert f"| {code} |" in text
