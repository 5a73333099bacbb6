"""Examples in docstrings hold."""

import doctest
from types import ModuleType

import pytest

from millstream.cql import (
    durations,
    known_types,
    literals,
    parser,
    patterns,
    scope,
    storing,
    suggestions,
    times_of_text,
    types,
)
from millstream.plan import explain, expressions, fingerprint, sql_text, windows

MODULES = (durations, known_types, literals, parser, patterns, scope, storing, suggestions)
TYPES = (times_of_text, types)
PLAN_MODULES = (explain, expressions, fingerprint, sql_text, windows)


@pytest.mark.parametrize("module", MODULES + TYPES + PLAN_MODULES, ids=lambda m: m.__name__)
def test_examples_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
