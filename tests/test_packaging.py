"""What an installed wheel holds and needs: few libraries, Spark and others by extras.

An environment of its own is made of links to exactly the libraries that an install would bring; pip
installs the wheel there, and would tell if one were missing.
"""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from millstream.core.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
DEPENDENCIES_MAX = 10
INSTALLED_MB_MAX = 60
IMPORTED_AS = {
    "prometheus-client": "prometheus_client",
    "prompt-toolkit": "prompt_toolkit",
    "confluent-kafka": "confluent_kafka",
    "paho-mqtt": "paho",
    "nats-py": "nats",
    "opentelemetry-api": "opentelemetry",
}
BROUGHT_ALONG = {
    "starlette": "fastapi",
    "h11": "uvicorn",
    "py4j": "pyspark",
    "grpc": "pyspark",  # pyspark[connect]
    "cycler": "matplotlib",
}


def test_the_base_install_is_small_and_pins_nothing() -> None:
    names = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert len(names) <= DEPENDENCIES_MAX
    assert not names & {canonicalize_name(name) for name in EXTRAS}
    everything = [
        *PROJECT["dependencies"],
        *(line for lines in OPTIONAL.values() for line in lines),
    ]
    assert not [line for line in everything if "==" in line]


def test_every_spark_from_4_0_to_4_3_will_do() -> None:
    (spark,) = (r for r in map(Requirement, OPTIONAL["spark"]) if r.name == "pyspark")
    for version in ("4.0.0", "4.0.1", "4.1.1", "4.2.0", "4.3.0", "4.3.9"):
        assert spark.specifier.contains(version), version
    for version in ("3.5.6", "4.4.0", "5.0.0"):
        assert not spark.specifier.contains(version), version


def test_each_extra_brings_the_library_that_names_it() -> None:
    for library, extra in EXTRAS.items():
        wanted = BROUGHT_ALONG.get(library, library)
        brought = {IMPORTED_AS.get(n, n) for n in (Requirement(r).name for r in OPTIONAL[extra])}
        assert wanted in brought, f"{library} of {extra}"


def test_development_pins_all_that_the_extras_name_and_no_registry() -> None:
    text = (ROOT / "constraints.txt").read_text()
    pinned = {canonicalize_name(n) for n in re.findall(r"^([A-Za-z0-9_.-]+)==", text, re.MULTILINE)}
    wanted = {Requirement(line).name for lines in OPTIONAL.values() for line in lines}
    wanted |= {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {canonicalize_name(name) for name in wanted} - {"millstream"} <= pinned
    for path in ("constraints.txt", "pyproject.toml", "Makefile", "scripts/setup.sh"):
        assert not re.search(r"https?://", (ROOT / path).read_text()), path


def test_what_is_imported_is_declared_and_extras_are_asked_for_late() -> None:
    base = {Requirement(line).name for line in PROJECT["dependencies"]}
    base = {IMPORTED_AS.get(name, name) for name in base}
    for path in sorted((ROOT / "src" / "millstream").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for library, early in _imports(tree):
            if library in sys.stdlib_module_names or library == "millstream":
                continue
            known = BROUGHT_ALONG.get(library, library)
            assert known in base or known in EXTRAS, f"{path} imports {library}"
            if known in EXTRAS and early:
                sparks = "spark" in path.parts or path.name == "datasource.py"
                assert sparks, f"{path} imports {library} at once"


def _imports(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Libraries, and whether they are loaded with the module."""
    early = set(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node in early) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node in early


# -- the wheel itself -----------------------------------------------------------------------------


def _closure(names: Sequence[str]) -> set[str]:
    """Distributions that an install of these brings, as they are installed here."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(wanted.name))
    return found


def _link(names: Sequence[str], target: Path) -> None:
    """Makes the files of installed distributions visible in another folder."""
    for name in _closure(names):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (target / top).exists():
                (target / top).symlink_to(source)


@pytest.mark.spark
@pytest.mark.process
def test_the_wheel_runs_an_own_file_in_an_environment_of_its_own(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(tmp_path), str(_copy(tmp_path / "source"))],
        check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("millstream-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    _link([Requirement(line).name for line in PROJECT["dependencies"]], site)
    _install(python, str(wheel))
    own = [path for top in site.glob("millstream*") for path in top.rglob("*")]
    assert sum(path.stat().st_size for path in own) < INSTALLED_MB_MAX << 20
    (tmp_path / "n.csv").write_text("1,10\n2,20\n3,30\n")
    (tmp_path / "n.toml").write_text(
        '[streams.n]\npath = "n.csv"\ncolumns = { at = "long", n = "int" }\n'
        'time = "timestamp_seconds(at)"\n[queries.large]\ncql = "SELECT n FROM n WHERE n > 10"\n'
    )

    def millstream(*arguments: str) -> "subprocess.CompletedProcess[str]":
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            [python.parent / "millstream", *arguments],
            cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    told = millstream("--help")
    assert told.returncode == 0, told.stderr
    assert "manager" in told.stdout
    told = millstream("run", "n.toml", "--out", "out")
    assert told.returncode != 0
    assert "this needs pyspark, which is not installed" in told.stderr
    assert "pip install 'millstream[spark]'" in told.stderr
    _link([Requirement(line).name for line in OPTIONAL["spark"]], site)
    _install(python, f"{wheel}[spark]")
    told = millstream("run", "n.toml", "--out", "out", "--format", "csv")
    assert told.returncode == 0, told.stderr
    rows = "".join(p.read_text() for p in (tmp_path / "out" / "large").glob("*.csv"))
    assert "20" in rows
    assert "30" in rows


def _install(python: Path, wheel: str) -> None:
    """As users do; what it wants must be there already, because pip may ask nobody for it."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
         "--isolated", "--disable-pip-version-check", wheel],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _copy(target: Path) -> Path:
    """The checkout's sources: a build leaves folders beside them."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    (target / "src").mkdir()
    ignored = "__pycache__"
    for path in (ROOT / "src" / "millstream").rglob("*"):
        if path.is_file() and ignored not in path.parts:
            made = target / path.relative_to(ROOT)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_bytes(path.read_bytes())
    return target
