"""A headless Chromium for measuring and testing pages; nothing else in the project needs one.

Fresh profile, nothing in the background, loopback only.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.core.errors import UsageError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars",
    "--proxy-server=direct://",
)  # fmt: skip
HINT = "Debian: apt-get install chromium chromium-driver; and pip install selenium"


def missing() -> str:
    """What a browser test lacks here; empty where there is everything."""
    if _program(BROWSERS) is None:
        return "there is no Chromium"
    if _program(("chromedriver",)) is None:
        return "there is no chromedriver"
    try:
        import selenium  # noqa: F401, PLC0415
    except ImportError:
        return "selenium is not installed"
    return ""


def _program(names: tuple[str, ...]) -> str | None:
    return next((found for n in names if (found := shutil.which(n))), None)


@contextmanager
def browser(width: int = 1360, height: int = 850) -> Iterator[Any]:
    """A driver (Selenium's) that is ended, and its profile removed, afterwards."""
    lacking = missing()
    if lacking:
        raise UsageError(lacking, hint=HINT)
    from selenium import webdriver  # noqa: PLC0415
    from selenium.webdriver.chrome.service import Service  # noqa: PLC0415

    options = webdriver.ChromeOptions()
    options.binary_location = _program(BROWSERS) or ""
    with tempfile.TemporaryDirectory(prefix="millstream-browser-") as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        service = Service(_program(("chromedriver",)), log_output=os.devnull)
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()
