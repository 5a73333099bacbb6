"""The walks of docs/ARCHITECTURE.md lead through functions that exist, and through few modules."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "millstream"
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
HOP = re.compile(r"^\| (\d+) \| `([\w/]+\.py)` `([\w.]+)` \|", re.MULTILINE)
WALKS = {
    "A row, from file to sink": 20,
    "A query, registered on a cluster": 16,
    "A move": 18,
}


def hops(title: str) -> list[tuple[int, str, str]]:
    section = TEXT.split(f"### {title}\n", 1)[1].split("\n#", 1)[0]
    return [(int(number), path, name) for number, path, name in HOP.findall(section)]


def defined(path: Path) -> set[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            inside = (n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}.{n.name}" for n in inside)
    return names


@pytest.mark.parametrize("title", WALKS)
def test_every_hop_is_there(title: str) -> None:
    found = hops(title)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert len(found) > 10
    for _, path, name in found:
        assert name in defined(SOURCE / path), f"{path} has no {name}"


@pytest.mark.parametrize(("title", "modules_max"), WALKS.items())
def test_a_walk_is_read_in_one_sitting(title: str, modules_max: int) -> None:
    assert len({path for _, path, _ in hops(title)}) <= modules_max
