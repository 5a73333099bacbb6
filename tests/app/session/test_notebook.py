"""What notebooks show, and that the example runs from its first cell to its last."""

import ast
import doctest
import json
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import pytest

from millstream.app.session import notebook
from millstream.app.session.notebook import plan_svg, query_html, rows_html
from millstream.language.cql.binding.binder import bind
from millstream.language.cql.catalog import Catalog, StreamDefinition
from millstream.language.cql.parsing.parser import parse_query
from millstream.language.plan.nodes import Plan
from millstream.language.plan.schema import Field

ROOT = Path(__file__).parents[3]
STREAM = StreamDefinition("s", (Field("at", "long"), Field("n", "int")), "timestamp_seconds(at)")


@pytest.fixture
def plan(spark: Any) -> Plan:
    from millstream.spark.analyzer import SparkAnalyzer  # noqa: PLC0415

    text = "SELECT a.n FROM s [RANGE 1 MINUTE] a JOIN s [ROWS 2] b ON a.n = b.n WHERE a.n < 5"
    return bind(parse_query(text), Catalog((STREAM,)), SparkAnalyzer(spark))


def test_rows_are_escaped_and_bounded() -> None:
    shown = rows_html([{"<b>": f"<script>{n}"} for n in range(30)], 5)
    assert "<script>" not in shown
    assert "&lt;b&gt;" in shown
    assert shown.count("<tr>") == 6
    assert "the last 5 of 30 rows" in shown
    assert "no rows yet" in rows_html([])


@pytest.mark.spark
def test_the_plan_is_drawn_with_every_node_and_edge(plan: Plan) -> None:
    drawn = Xml.fromstring(plan_svg(plan.root))
    space = "{http://www.w3.org/2000/svg}"
    boxes, lines = drawn.findall(f".//{space}rect"), drawn.findall(f".//{space}path")
    assert len(lines) == len(boxes) - 1  # a tree
    words = [t.text for t in drawn.findall(f".//{space}text")]
    assert words.count("stream") == 2
    assert "join" in words
    wide = float(drawn.attrib["width"])
    for box in boxes:
        assert 0 <= float(box.attrib["x"]) <= wide - float(box.attrib["width"]) + 1
    shown = query_html("q<", "running", "SELECT '<'", [("n", "int")], plan.root, [{"n": 1}])
    assert "q&lt;" in shown
    assert "<td>1</td>" in shown


@pytest.mark.spark
def test_the_example_runs(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell; what the last expression of a cell shows is drawn as a notebook does."""
    monkeypatch.chdir(ROOT)
    book = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())
    names: dict[str, Any] = {}
    shown: list[str] = []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []  # kept without results, so that nothing in it is stale
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
            shown.append(getattr(value, "_repr_html_", value.__repr__)())
    assert "<svg" in shown[0]
    assert "mph" in shown[0]


def test_examples_in_the_text() -> None:
    assert doctest.testmod(notebook).failed == 0
