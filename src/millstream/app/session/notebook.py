"""How a query looks in a notebook: text, state, columns, the plan drawn, the latest rows.

HTML and SVG by hand, without scripts and without anything from elsewhere, so that a saved notebook
shows the same. Pure but for `live`, which draws again and again.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from millstream.language.plan.explain import describe
from millstream.language.plan.nodes import Node, inputs_of

ROWS_SHOWN = 10
BOX, GAP, LINE, CHARACTER = 46, 26, 15, 6.6
WIDTH_MAX = 52  # characters of a line in a box
STYLE = (
    "font:12px system-ui,sans-serif;border:1px solid rgba(128,128,128,.4);border-radius:8px;"
    "padding:10px 14px;display:inline-block;max-width:100%;box-sizing:border-box"
)


def query_html(
    name: str,
    state: str,
    cql: str,
    columns: Sequence[tuple[str, str]],
    root: Node | None,
    rows: Sequence[Mapping[str, Any]],
) -> str:
    """A query as a notebook shows it."""
    cells = ", ".join(f"{escape(n)} <i>{escape(t)}</i>" for n, t in columns)
    return (
        f'<div style="{STYLE}"><div>query <b>{escape(name)}</b> ({escape(state)})</div>'
        f"<pre>{escape(cql.strip())}</pre><div>{cells}</div>"
        f"{plan_svg(root) if root is not None else ''}{rows_html(rows)}</div>"
    )


def rows_html(rows: Sequence[Mapping[str, Any]], rows_max: int = ROWS_SHOWN) -> str:
    """The last rows as a table.

    >>> rows_html([{"n": 1}])
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    """
    if not rows:
        return "<p><i>no rows yet</i></p>"
    shown = rows[-rows_max:]
    head = "".join(f"<th>{escape(str(name))}</th>" for name in shown[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(v))}</td>" for v in row.values()) + "</tr>"
        for row in shown
    )
    more = len(rows) - len(shown)
    note = f"<p><i>the last {len(shown)} of {len(rows)} rows</i></p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    return "null" if value is None else str(value)


def plan_svg(root: Node) -> str:
    """The plan as boxes: streams at the bottom, the result at the top."""
    places: dict[str, tuple[float, int, Node]] = {}
    edges: list[tuple[str, str]] = []
    width = _put(root, 0, 0.0, places, edges)
    depth = max(level for _, level, _ in places.values()) + 1
    height = depth * (BOX + GAP) - GAP + 8
    parts = []
    for above, below in edges:
        x1, y1 = _anchor(places[above], bottom=True)
        x2, y2 = _anchor(places[below], bottom=False)
        parts.append(f'<path d="M{x2:.0f} {y2:.0f} L{x1:.0f} {y1:.0f}" fill="none"/>')
    boxes = [_box(centre, level, node) for centre, level, node in places.values()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        'style="max-width:100%" font-family="system-ui,sans-serif" font-size="11">'
        f'<g stroke="#7a8a84" stroke-width="1.3">{"".join(parts)}</g>{"".join(boxes)}</svg>'
    )


def _texts(node: Node) -> tuple[str, str]:
    kind, detail = describe(node)
    return kind, detail if len(detail) <= WIDTH_MAX else detail[: WIDTH_MAX - 1] + "…"


def _box_width(node: Node) -> float:
    return max(90.0, max(len(text) for text in _texts(node)) * CHARACTER + 20)


def _put(
    node: Node,
    level: int,
    left: float,
    places: dict[str, tuple[float, int, Node]],
    edges: list[tuple[str, str]],
) -> float:
    """Places a node over its inputs; gives the width it needs. Shared parts are drawn once each."""
    key = f"{len(places)}"
    places[key] = (0.0, level, node)
    width = 0.0
    for child in inputs_of(node):
        edges.append((key, f"{len(places)}"))
        width += _put(child, level + 1, left + width, places, edges) + 14
    width = max(width - 14 if width else 0.0, _box_width(node) + 6)
    places[key] = (left + width / 2, level, node)
    return width


def _anchor(place: tuple[float, int, Node], *, bottom: bool) -> tuple[float, float]:
    centre, level, _ = place
    return centre, 4 + level * (BOX + GAP) + (BOX if bottom else 0)


def _box(centre: float, level: int, node: Node) -> str:
    kind, detail = _texts(node)
    width, top = _box_width(node), 4 + level * (BOX + GAP)
    colour = {"stream": "#5d6b66", "join": "#9a5aa8", "aggregate": "#14806f"}.get(kind, "#4f7cac")
    text = 'text-anchor="middle" fill="currentColor"'
    name, words = escape(kind), escape(detail)
    return (
        f'<rect x="{centre - width / 2:.0f}" y="{top}" width="{width:.0f}" height="{BOX}" rx="7" '
        f'fill="none" stroke="{colour}" stroke-width="1.6"/>'
        f'<text x="{centre:.0f}" y="{top + LINE + 3}" {text} font-weight="600">{name}</text>'
        f'<text x="{centre:.0f}" y="{top + 2 * LINE + 4}" {text}>{words}</text>'
    )
