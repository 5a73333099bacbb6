"""The reference of the Python API is what the docstrings say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_current() -> None:
    script = str(ROOT / "scripts" / "api_reference.py")
    told = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr


def test_the_page_has_what_people_need() -> None:
    text = (ROOT / "docs" / "API.md").read_text()
    for name in ("stream(", "query(", "push(", "wait(", "to_arrow(", "explain(", "drop("):
        assert f"`{name}" in text, name
