"""Examples in docstrings hold, in every module that has one."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "src", ROOT / "lab", ROOT / "bench")


def modules() -> list[str]:
    return sorted(
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if "tests" not in path.relative_to(folder).parts and ">>> " in path.read_text()
    )


@pytest.mark.parametrize("name", modules())
def test_examples_hold(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
