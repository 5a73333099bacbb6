"""A browser on a dashboard, for tests that click.

`MILLSTREAM_SCREENSHOTS=write` rewrites the pictures of docs/images. Where there is no Chromium the
tests are skipped, except where `MILLSTREAM_BROWSER=required` is set, as CI does.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream_bench.pages import browser as chromium

IMAGES = Path(__file__).parents[2] / "docs" / "images"
LACKING = chromium.missing()
BROWSER_MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        bool(LACKING) and os.environ.get("MILLSTREAM_BROWSER") != "required",
        reason=f"{LACKING}; {chromium.HINT}",
    ),
]
PATIENCE_S = 60.0


class Page:
    """A browser on a dashboard: clicks, waits, looks."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url
        driver.get_log("browser")  # what the page before complained of is not of this one

    def open(self, fragment: str = "#/") -> None:
        self.driver.get("about:blank")
        self.driver.get(self.url + fragment)

    def find(self, selector: str) -> Any:
        return self.until(lambda: self.driver.find_element("css selector", selector), selector)

    def click(self, selector: str) -> None:
        """Clicks once it can be clicked: a click on a disabled button does nothing."""

        def clicked() -> bool:
            found = self.find(selector)
            if not found.is_enabled():
                return False
            found.click()
            return True

        self.until(clicked, f"a click on {selector}")

    def text(self, selector: str) -> str:
        return str(self.until(lambda: self.find(selector).text, selector))

    def shows(self, words: str, selector: str = "main") -> None:
        self.until(lambda: words in self.text(selector), f"{words!r} in {selector}")

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def accept(self, words: str) -> None:
        """Answers yes to a question that has these words."""
        question = self.until(lambda: self.driver.switch_to.alert, "a question")
        assert words in question.text
        question.accept()

    def until(self, look: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        from selenium.common.exceptions import WebDriverException  # noqa: PLC0415

        end = time.monotonic() + patience_s
        while True:
            try:
                found = look()
                if found:
                    return found
            except WebDriverException:
                pass  # drawn anew meanwhile, or not there yet
            assert time.monotonic() < end, f"{what} did not appear"
            time.sleep(0.05)

    def picture(self, name: str) -> None:
        """For the README; elsewhere only that one can be taken."""
        taken = self.driver.get_screenshot_as_png()
        if os.environ.get("MILLSTREAM_SCREENSHOTS") == "write":
            IMAGES.mkdir(parents=True, exist_ok=True)
            (IMAGES / f"{name}.png").write_bytes(taken)
        assert len(taken) > 10_000

    def complaints(self) -> list[str]:
        """What the browser has to complain of; requests to elsewhere are among it.

        A browser that is slow with the page asks for an icon of its own accord, and gets none.
        """
        told = [str(e["message"]) for e in self.driver.get_log("browser")]
        return [line for line in told if "/favicon.ico " not in line]
