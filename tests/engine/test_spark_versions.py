"""The oracle's judgement on every other Spark that the package allows: the newest of each minor.

Each is installed once beside the pinned one, in a folder of the environment, and stands before it
on the path of a process of its own. The oldest is pinned too, and judges the rows worked out by
hand in every run of the tests: what it lacks is what new code is most likely to use.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = ("4.0", "4.1", "4.2")
OLDEST = (
    "pyspark==4.0.5"
    " --hash=sha256:a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6\n"
    "py4j==0.10.9.9"
    " --hash=sha256:c7c26e4158defb37b0bb124933163641a2ff6e3a3913f7811b0ddbe07ed61533\n"
)
JUDGED = (
    "tests/engine/test_oracle_cases.py",
    "tests/engine/test_oracle_properties.py",
    "tests/engine/test_local_cluster.py",
    "tests/engine/test_every_kind.py",
    "tests/engine/test_prepared_steps.py",
    "tests/app/session/test_attach.py",
)
# sockets that older PySparks leave for the collector are not ours to close
QUIET = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")


def installed(version: str, wanted: Path | None = None) -> Path:
    """A folder with that Spark; `wanted` is a file of pinned requirements."""
    folder = Path(sys.prefix) / "other-sparks" / version
    if not (folder / "pyspark").exists():
        pinned = ("--require-hashes", "-r", str(wanted)) if wanted else (f"pyspark=={version}.*",)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--no-build-isolation", "--target", str(folder), *pinned],
            check=True,
        )  # fmt: skip
    return folder


def judge(version: str, folder: Path, *tests: str) -> None:
    """Tests in a process of their own, whose Spark is of that version."""
    path = [str(folder), *(str(ROOT / part) for part in ("src", "lab", "bench"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    told = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert told.startswith(f"{version}."), "this Spark comes first on the path"
    # the tests around this one note elsewhere which of them failed
    own = ("-p", "no:xdist", "-o", f"cache_dir={folder}-tests", "-m", "not soak")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, *own, *tests],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(1800)  # it may have to be fetched first
def test_the_oldest_gives_the_rows_worked_out_by_hand(tmp_path: Path) -> None:
    wanted = tmp_path / "oldest.txt"
    wanted.write_text(OLDEST)
    version = OLDEST.partition("==")[2].partition(" ")[0]
    try:
        folder = installed(version, wanted)
    except subprocess.CalledProcessError:
        if os.environ.get("MILLSTREAM_SPARKS") == "required":
            raise
        pytest.skip(f"PySpark {version} cannot be installed here")
    judge(version.rpartition(".")[0], folder, "tests/engine/test_oracle_cases.py", "-k", "whole")


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.process
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("version", OTHERS)
def test_the_oracle_agrees_on(version: str) -> None:
    judge(version, installed(version), *JUDGED)
