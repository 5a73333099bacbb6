"""Files for deployment: they can be read, and every command and option in them exists."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.app.cli import _commands_of, command_modules

DEPLOY = Path(__file__).parents[1] / "deploy"
MANIFESTS = sorted(DEPLOY.rglob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))

# -- the part of YAML that the manifests use ------------------------------------------------------


def documents(text: str) -> list[Any]:
    """Mappings and sequences by indentation, scalars, lists as JSON, literal blocks."""
    return [_Lines(part).document() for part in re.split(r"^---$", text, flags=re.MULTILINE)]


class _Lines:
    def __init__(self, text: str) -> None:
        kept = [line for line in text.split("\n") if line.strip() and not _comment(line)]
        assert not [line for line in kept if "\t" in line]
        self._lines = kept

    def document(self) -> Any:
        found = self._block(0)
        assert not self._lines, f"cannot read {self._lines[0]!r}"
        return found

    def _indent(self) -> int:
        return len(self._lines[0]) - len(self._lines[0].lstrip()) if self._lines else -1

    def _block(self, indent: int) -> Any:
        assert self._indent() == indent, f"{self._lines[:1]} is not indented by {indent}"
        if self._lines[0].lstrip().startswith("- "):
            return self._sequence(indent)
        return self._mapping(indent)

    def _sequence(self, indent: int) -> list[Any]:
        found = []
        while self._indent() == indent and self._lines[0].lstrip().startswith("- "):
            rest = self._lines[0].lstrip()[2:]
            if re.match(r"[\w.-]+:( |$)", rest):
                self._lines[0] = " " * (indent + 2) + rest
                found.append(self._mapping(indent + 2))
            else:
                self._lines.pop(0)
                found.append(_scalar(rest))
        return found

    def _mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._indent() == indent:
            match = re.fullmatch(r"([\w./-]+):(?: (.+))?", self._lines[0].strip())
            assert match, f"cannot read {self._lines[0]!r}"
            assert match[1] not in found, f"{match[1]} stands there twice"
            self._lines.pop(0)
            if match[2] == "|":
                found[match[1]] = "\n".join(self._literal(indent + 2))
            elif match[2] is not None:
                found[match[1]] = _scalar(match[2])
            else:
                found[match[1]] = self._block(self._inner(indent))
        return found

    def _inner(self, indent: int) -> int:
        """Deeper, or a sequence that stands right below its key."""
        listed = self._lines and self._lines[0].lstrip().startswith("- ")
        assert self._indent() >= indent + (not listed), "a key without a value"
        return self._indent()

    def _literal(self, indent: int) -> Iterator[str]:
        while self._indent() >= indent:
            yield self._lines.pop(0)[indent:]


def _comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _scalar(text: str) -> Any:
    if text[0] in '["{':
        return json.loads(text)
    assert not text.startswith(("'", "&", "*", "!", ">", "|", "@", "%")), text
    assert ": " not in text, text
    assert " #" not in text, text
    return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)


def test_the_reader_reads_and_refuses() -> None:
    text = (
        'a: 1\nb:\n  - c: x y\n    d: ["e", "f"]\n  - plain\ng: |\n  h: i\n    j\nk:\n  l: true\n'
    )
    (found,) = documents(text)
    assert found == {"a": 1, "b": [{"c": "x y", "d": ["e", "f"]}, "plain"], "g": "h: i\n  j",
                     "k": {"l": True}}  # fmt: skip
    for wrong in ("a: 1\n  b: 2\n", "a: 1\na: 2\n", "a\n", "a:\nb: 1\n", "a: [x]\n"):
        with pytest.raises((AssertionError, ValueError)):
            documents(wrong)


# -- commands -------------------------------------------------------------------------------------


def check_command(arguments: list[str]) -> None:
    """A command line of ours; values are taken by kind, numbers must be numbers."""
    name, *rest = arguments
    commands = {
        n: c for module in command_modules().values() for n, c in _commands_of(module).items()
    }
    assert name in commands, f"there is no command {name}"
    shown = [re.sub(r"\$\{?\(?\w+\)?\}?|%i", "x", argument) for argument in rest]
    commands[name].make_context(name, shown)


def containers(found: Any) -> Iterator[dict[str, Any]]:
    """Everything that names an image, wherever it stands."""
    if isinstance(found, dict):
        if "image" in found:
            yield found
        for value in found.values():
            yield from containers(value)
    elif isinstance(found, list):
        for value in found:
            yield from containers(value)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_manifests_are_read_and_their_commands_exist(path: Path) -> None:
    for document in documents(path.read_text()):
        assert isinstance(document, dict)
        if "kubernetes" in path.parts:
            assert {"apiVersion", "kind", "metadata"} <= document.keys()
        for container in containers(document):
            if container["image"] == "millstream":
                check_command(container.get("args") or container["command"])


def test_kubernetes_names_what_there_is() -> None:
    found = [d for p in MANIFESTS if "kubernetes" in p.parts for d in documents(p.read_text())]
    services = {d["metadata"]["name"] for d in found if d["kind"] == "Service"}
    for document in found:
        if document["kind"] not in ("StatefulSet", "Deployment"):
            continue
        spec = document["spec"]
        pod = spec["template"]
        assert spec["selector"]["matchLabels"] == pod["metadata"]["labels"]
        if document["kind"] == "StatefulSet":
            assert spec["serviceName"] in services
        volumes = {v["name"] for v in pod["spec"]["volumes"]}
        volumes |= {c["metadata"]["name"] for c in spec.get("volumeClaimTemplates", ())}
        for container in pod["spec"]["containers"]:
            ports = {port["name"] for port in container["ports"]}
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["port"] in ports
            text = " ".join(container.get("args", ()))
            for host in re.findall(r"http://(?:\$\(\w+\)\.)?([\w-]+):", text):
                assert host in services, host


def test_compose_names_what_there_is() -> None:
    (found,) = documents((DEPLOY / "compose.yaml").read_text())
    for name, service in found["services"].items():
        assert set(service.get("depends_on", ())) <= found["services"].keys(), name
        assert set(service.get("secrets", ())) <= found["secrets"].keys(), name
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in found["volumes"], name
        for host in re.findall(r"http://([\w-]+):", " ".join(service.get("command", ()))):
            assert host in found["services"], host


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_have_sections_and_commands_that_exist(path: Path) -> None:
    section, entries = "", {}
    for line in path.read_text().splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            assert section, line
            entries[section, key] = value
    assert {s for s, _ in entries} == {"Unit", "Service", "Install"}
    program, *arguments = shlex.split(entries["Service", "ExecStart"])
    assert program.endswith("/bin/millstream")
    check_command(arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_itself_takes_the_units(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name.replace("@.", "@p1.")
    unit.write_text(path.read_text().replace("/opt/millstream/bin/millstream", sys.executable))
    told = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    ).stderr
    assert not [line for line in told.splitlines() if unit.name in line or str(unit) in line], told


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
def test_kubernetes_itself_reads_the_manifests(tmp_path: Path) -> None:
    paths = [path for path in MANIFESTS if "kubernetes" in path.parts]
    for path in paths:
        (tmp_path / path.name).write_text(path.read_text())
    listed = "".join(f"- {path.name}\n" for path in paths)
    (tmp_path / "kustomization.yaml").write_text(f"resources:\n{listed}")
    told = subprocess.run(
        ["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    ours = [d for path in paths for d in documents(path.read_text())]
    assert told.stdout.count("\nkind: ") == len(ours), "as we read them"


def test_a_command_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError):
        check_command(["conductor"])
    with pytest.raises(Exception, match="No such option"):
        check_command(["manager", "--home", "x", "--colour", "red"])
    with pytest.raises(Exception, match="a valid integer"):
        check_command(["manager", "--home", "x", "--port", "many"])


def test_the_image_is_built_from_what_there_is() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    stages = {match[1] for line in lines if (match := re.search(r" AS (\w+)$", line))}
    for line in lines:
        if match := re.fullmatch(r"COPY (?:--from=(\w+) )?(.+) \S+", line):
            if match[1]:
                assert match[1] in stages
            else:
                assert all((DEPLOY.parent / name).exists() for name in match[2].split())
    assert any(line.startswith("USER ") for line in lines), "not as root"
    assert 'ENTRYPOINT ["millstream"]' in lines
