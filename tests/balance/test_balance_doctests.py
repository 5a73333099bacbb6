"""The examples in the modules' docstrings hold."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import millstream.balance

MODULES = sorted(path.stem for path in Path(millstream.balance.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(import_module(f"millstream.balance.{name}")).failed == 0
