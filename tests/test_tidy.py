"""Style that a tool does not check: layers, sizes, where heavy libraries may be imported."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "millstream"

# From the bottom up. A package may import itself and what stands in rows below its own.
LAYERS = (
    ("errors", "names"),
    ("registry",),
    ("plan",),
    ("cql",),
    ("share", "place", "schedule", "balance"),
    ("control",),
    ("sim", "store"),
    ("engine",),
    ("spark",),
    ("config",),
    ("client",),
    ("runs",),
    ("session",),
    ("server",),
    ("lab", "bench"),
    ("demo", "shell"),
    ("commands",),
    ("cli",),
)
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}
# Heavy libraries live behind one door each.
DOORS = {
    "pyspark": ("spark", "bench"),
    "py4j": ("spark",),
    "highspy": ("place",),
    "ortools": ("place",),
    "fastapi": ("server",),
    "uvicorn": ("server",),
    "httpx": ("client",),
    "sqlglot": ("cql",),
    "openpyxl": ("runs",),
    "prompt_toolkit": ("commands",),
    "prometheus_client": ("server",),
    "selenium": ("bench",),
    "duckdb": (),
}
LONGEST_MODULE = 600  # lines
# Everything else is imported where Spark is not installed; `store` and `engine` above all.
NEEDS_SPARK = ("spark", "bench", "lab")
# Here no module imports another that imports it, not even in a function or for a type.
ACYCLIC = ("store", "engine", "spark")

MODULES = sorted(SOURCE.rglob("*.py"))


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    here = package(path)
    if here == "__init__":
        return
    assert here in LEVEL, f"{here} has no layer"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "millstream" and len(parts) > 1 and parts[1] in LEVEL:
            there = parts[1]
            assert there == here or LEVEL[there] < LEVEL[here], f"{path} imports {name}"


@pytest.mark.parametrize("library", sorted(DOORS))
def test_heavy_libraries_have_one_door(library: str) -> None:
    for path in MODULES:
        if any(name.split(".")[0] == library for name in imported(path)):
            assert package(path) in DOORS[library], f"{path} imports {library}"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_cycle_of_imports_of_any_kind() -> None:
    """Imports for types and in functions count: they hide cycles, they do not undo them."""
    modules = {module_name(p): p for p in MODULES if package(p) in ACYCLIC}
    imports = {name: imported(path) & modules.keys() - {name} for name, path in modules.items()}
    while True:  # who needs nobody that is left, or whom nobody needs, is in no cycle
        wanted = {name for needed in imports.values() for name in needed}
        free = {
            n for n, needed in imports.items() if n not in wanted or not needed & imports.keys()
        }
        if not free:
            break
        imports = {name: needed for name, needed in imports.items() if name not in free}
    knots = {name: sorted(needed & imports.keys()) for name, needed in imports.items()}
    assert knots == {}, "these modules need each other"


def test_all_but_the_data_plane_is_imported_without_spark() -> None:
    """A client needs none, and a processor's streams and its choices can be tested without."""
    names = sorted(module_name(p) for p in MODULES if package(p) not in NEEDS_SPARK)
    program = "import importlib, sys\nsys.modules['pyspark'] = sys.modules['py4j'] = None\n"
    program += f"for name in {names}: importlib.import_module(name)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_modules_fit_on_a_few_screens_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_MODULE
    assert ast.get_docstring(ast.parse(text)), "a module opens with what it decides"
