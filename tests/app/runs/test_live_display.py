"""The table on a terminal while a job runs: all of it is seen, whatever the terminal's size."""

import io

from rich.console import Console

from millstream.app.runs.display import LiveDisplay

NAMES = [f"a_query_with_quite_a_long_name_{n}" for n in range(40)]
QUERY = {"rows": 12_345, "watermark": "2024-05-01T08:00:00Z", "state": "running"}
STATUS = {
    "streams": {"s": {"rows": 1_234_567, "watermark": "2024-05-01T08:00:00Z", "ended": False}},
    "operators": {"o": {"backlog": 12_345}},
    "queries": dict.fromkeys(NAMES, QUERY),
    "scheduling": {"goals": [{"query": "", "told": "delay 2 s: not met", "limit": 1}]},
}


def test_many_queries_leave_room_for_the_goals() -> None:
    for height, shown in ((24, 18), (100, 30), (5, 3)):
        out = io.StringIO()
        display = LiveDisplay(Console(file=out, force_terminal=True, width=80, height=height))
        display.show(STATUS, 77)
        table = display._live.get_renderable()
        display.close()
        console = Console(file=io.StringIO(), width=80, height=height)
        lines = [line.rstrip() for line in _text(console, table)]
        assert sum("a_query" in line for line in lines) == shown
        assert lines[-2:] == [f"... and {40 - shown} queries more", "delay 2 s: not met"]
        assert height < 10 or len(lines) < height


def _text(console: Console, what: object) -> list[str]:
    with console.capture() as captured:
        console.print(what)
    return captured.get().splitlines()
