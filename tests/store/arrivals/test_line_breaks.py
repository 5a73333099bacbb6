"""Whether rows stand one a line: exactly as a reader of RFC 4180 finds, whatever the blocks."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.store.arrivals import line_breaks
from millstream.store.arrivals.line_breaks import cells_span_lines, holds_an_array
from millstream.store.arrivals.malformed import CsvForm

cells = st.text(alphabet='ab",\n', max_size=6)


@given(st.lists(st.lists(cells, min_size=1, max_size=3), min_size=1, max_size=5), st.integers(1, 9))
def test_what_a_writer_of_csv_breaks_over_lines_is_seen(rows: list[list[str]], block: int) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    path = Path("written.csv")
    blocks = [
        text.getvalue().encode()[i : i + block] for i in range(0, len(text.getvalue()), block)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_breaks, "_blocks", lambda _: iter(blocks))
        seen = cells_span_lines(path, CsvForm())
    assert seen == any("\n" in cell for row in rows for cell in row)


@pytest.mark.parametrize(
    ("text", "form", "spans"),
    [
        ('1,"a\nb"\n', CsvForm(), True),
        ('1,"a\nb\n2,c\n', CsvForm(), False),  # a stray quote hurts its own line
        ('1,5" pipe\n2,c\n', CsvForm(), False),
        ('1,"say \\"hi\\""\n', CsvForm(escape="\\"), False),
        ("1,'a\nb'\n", CsvForm(quote="'", escape="'"), True),
        ("1,'a\nb'\n", CsvForm(), False),
        ("", CsvForm(), False),
    ],
)
def test_cells_over_lines(text: str, form: CsvForm, spans: bool, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert cells_span_lines(tmp_path / "a.csv", form) is spans
    assert cells_span_lines(tmp_path / "a.csv.gz", form) is spans


@pytest.mark.parametrize(
    ("content", "array"),
    [(b' \n[{"a": 1}]', True), (b'{"a": [1]}', False), (b"\xef\xbb\xbf[", True), (b"", False),
     ("[{}]".encode("utf-16"), True)],
)  # fmt: skip
def test_rows_in_one_array(content: bytes, array: bool, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert holds_an_array(tmp_path / "a.json") is array
