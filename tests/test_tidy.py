"""Style that a tool does not check: rooms, cycles, sizes, where heavy libraries may be imported."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "millstream"
BESIDE = (ROOT / "lab" / "millstream_lab", ROOT / "bench" / "millstream_bench")

# From the ground up. A room imports itself and the rooms in rows before its own; every import
# counts, under TYPE_CHECKING and inside functions too.
ROOMS = (
    ("core",),
    ("language",),
    ("decide",),
    ("control",),
    ("store",),
    ("engine",),
    ("spark",),
    ("client",),
    ("edge",),
    ("sim",),
    ("app",),
    ("testing", "datasource"),
)
LEVEL = {name: level for level, row in enumerate(ROOMS) for name in row}
# Heavy libraries live behind one door each.
DOORS = {
    "pyspark": ("spark", "datasource"),
    "highspy": ("decide",),
    "ortools": ("decide",),
    "fastapi": ("edge",),
    "uvicorn": ("edge",),
    "httpx": ("client",),
    "sqlglot": ("language",),
    "openpyxl": ("app",),
    "prompt_toolkit": ("app",),
    "prometheus_client": ("edge",),
    "matplotlib": ("sim",),
    "confluent_kafka": ("engine", "store"),  # topics as sources, topics as targets
    "psycopg": ("store", "edge"),  # tables as targets, what managers share
    "deltalake": ("store",),
    "pyiceberg": ("store",),
    "selenium": (),
    "duckdb": (),
}
# Modules outside the room of Spark that open an engine in this process.
OPEN_SPARK = ("millstream.app.runs.local_run", "millstream.app.runs.local_system")
LONGEST_MODULE = 600  # lines
MOST_MODULES = 15  # side by side in one folder

MODULES = sorted(SOURCE.rglob("*.py"))
ALL = MODULES + sorted(path for folder in BESIDE for path in folder.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def dotted(path: Path) -> str:
    top = next(folder for folder in (SOURCE, *BESIDE) if folder in path.parents)
    parts = (top.name, *path.relative_to(top).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> frozenset[str]:
    """Every name that a module imports, wherever in it the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_downwards(path: Path) -> None:
    here = room(path)
    names = {name.split(".")[0] for name in imported(path)}
    assert not names & {folder.name for folder in BESIDE}, "the package does not know its lab"
    if here == "__init__":
        return
    assert here in LEVEL, f"{here} is no room"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "millstream" and len(parts) > 1 and parts[1] in LEVEL:
            there = parts[1]
            assert there == here or LEVEL[there] < LEVEL[here], f"{path} imports {name}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = _graph()
    cycles = [sorted(part) for part in _strong_parts(graph) if len(part) > 1]
    assert cycles == []


def _graph() -> dict[str, set[str]]:
    modules = {dotted(path): path for path in ALL}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        targets = {target for target in imported(path) if target in modules}
        # `from package import module` names the package too; its __init__ is not meant then
        meant = {t for t in targets if not any(other.startswith(f"{t}.") for other in targets)}
        graph[name] = meant - {name}
    return graph


def _strong_parts(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Strongly connected parts (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    for root, first in graph.items():
        if root in index:
            continue
        work = [(root, iter(sorted(first)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            name, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    part = set(stack[stack.index(name) :])
                    del stack[stack.index(name) :]
                    yield part
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                work.append((target, iter(sorted(graph[target]))))
            elif target in stack:
                low[name] = min(low[name], index[target])


@pytest.mark.parametrize("library", sorted(DOORS))
def test_heavy_libraries_have_one_door(library: str) -> None:
    for path in MODULES:
        if any(name.split(".")[0] == library for name in imported(path)):
            assert room(path) in DOORS[library], f"{path} imports {library}"


def test_all_but_the_data_plane_is_imported_without_spark() -> None:
    """A client needs none, and a processor's streams and its choices can be tested without."""
    theirs = ("spark", "datasource")
    names = sorted({dotted(path) for path in MODULES if room(path) not in theirs} - {*OPEN_SPARK})
    program = "import importlib, sys\nsys.modules['pyspark'] = sys.modules['py4j'] = None\n"
    program += f"for name in {names}: importlib.import_module(name)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ALL, ids=label)
def test_modules_fit_on_a_few_screens_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_MODULE
    assert ast.get_docstring(ast.parse(text)), "a module opens with what it decides"


def test_folders_fit_on_one_screen() -> None:
    counts: dict[Path, int] = {}
    for path in ALL:
        if path.name != "__init__.py":
            counts[path.parent] = counts.get(path.parent, 0) + 1
    assert {label(f): n for f, n in counts.items() if n > MOST_MODULES} == {}


def test_every_module_of_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by name: of two with one name it collects one."""
    names = [p.name for top in ("tests", "lab", "bench") for p in (ROOT / top).rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
