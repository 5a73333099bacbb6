"""The oracle's judgement on every other Spark that the package allows: the newest of each minor.

Each is installed once beside the pinned one, in a folder of the environment, and stands before it
on the path of a process of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = ("4.0", "4.1", "4.2")
JUDGED = (
    "tests/engine/test_oracle_cases.py",
    "tests/engine/test_oracle_properties.py",
    "tests/engine/test_local_cluster.py",
    "tests/engine/test_prepared_steps.py",
    "tests/app/session/test_attach.py",
)
# sockets that older PySparks leave for the collector are not ours to close
QUIET = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")


def installed(version: str) -> Path:
    folder = Path(sys.prefix) / "other-sparks" / version
    if not (folder / "pyspark").exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--no-build-isolation", "--target", str(folder), f"pyspark=={version}.*"],
            check=True,
        )  # fmt: skip
    return folder


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize("version", OTHERS)
def test_the_oracle_agrees_on(version: str) -> None:
    path = [str(installed(version)), *(str(ROOT / part) for part in ("src", "lab", "bench"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    told = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert told.startswith(f"{version}."), "this Spark comes first on the path"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, "-m", "not soak", *JUDGED],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
