"""Job files: what is read from them, and how every mistake is told."""

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.app.config import inspect_job, load_job
from millstream.app.config.job_file import ENGINE_KEYS, JobFileError
from millstream.app.config.toml_places import places_of, string_origins
from millstream.control.definitions.qos_table import quality_of, table_of
from millstream.core.errors import CqlError, UsageError
from millstream.decide.schedule import TEMPLATES, Quality, ScheduleSettings, Specification
from millstream.decide.schedule.goal_text import specification_from_text
from millstream.language.cql.parsing.parser import parse_query

GOOD = """\
# a comment
[streams.requests]
path     = "requests.tsv"
options  = { sep = "\\t", header = true }
columns  = { host = "string", at = "long", status = "int" }
time     = "timestamp_seconds(at)"
lateness = "5 seconds"

[queries.errors]
cql = "SELECT host FROM requests WHERE status >= 500"
"""


VIEWED = (
    GOOD
    + """
[views.busy]
cql = "SELECT host FROM errors"

[queries.again]
cql = "SELECT host FROM busy"
"""
)


def test_queries_read_views_and_each_other(folder: Path) -> None:
    (folder / "job.toml").write_text(VIEWED)
    errors, again = load_job(folder / "job.toml").queries
    assert errors.cql == "SELECT host FROM requests WHERE status >= 500"
    assert again.cql.split("\n;\n") == [
        "SELECT host FROM busy",
        "CREATE VIEW `errors` AS SELECT host FROM requests WHERE status >= 500",
        "CREATE VIEW `busy` AS SELECT host FROM errors",
    ]
    late = CqlError("wrong", source=again.cql, line=3, column=20)
    assert "query again: in what it reads: wrong" in str(again.located(late))
    (folder / "job.toml").write_text(VIEWED.replace("views.busy", "views.again"))
    with pytest.raises(JobFileError, match="there is a view again"):
        load_job(folder / "job.toml")
    (folder / "job.toml").write_text(VIEWED.replace('cql = "SELECT host FROM errors"', "sql = 1"))
    with pytest.raises(JobFileError, match="unknown key sql"):
        load_job(folder / "job.toml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "requests.tsv").write_text("host\tat\tstatus\n")
    return tmp_path


def job_file(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> tuple[UsageError, ...]:
    with pytest.raises(JobFileError) as caught:
        load_job(job_file(folder, text))
    return caught.value.mistakes


def test_a_good_file(folder: Path) -> None:
    job = load_job(job_file(folder, GOOD))
    (stream,) = job.streams
    assert stream.name == "requests"
    assert [(f.name, f.type) for f in stream.columns] == [
        ("host", "string"), ("at", "bigint"), ("status", "int"),
    ]  # fmt: skip
    assert stream.lateness_us == 5_000_000
    assert stream.source["path"] == str(folder / "requests.tsv")
    assert stream.source["format"] == "csv"
    assert stream.source["options"] == {"sep": "\t", "header": True}
    assert [(q.name, q.cql) for q in job.queries] == [
        ("errors", "SELECT host FROM requests WHERE status >= 500")
    ]


def test_paths_are_relative_to_the_job_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    job = load_job(job_file(folder, GOOD))
    assert Path(job.streams[0].source["path"]).is_file()


def test_engine_settings_are_those_of_the_engine() -> None:
    from millstream.engine.settings import EngineSettings  # noqa: PLC0415

    names = {f.name for f in fields(EngineSettings)}
    assert set(ENGINE_KEYS) - {"spark"} <= names


def test_settings_of_engine_and_spark(folder: Path) -> None:
    text = GOOD + '[engine]\nbatch_rows = 10\nspark = { "spark.ui.enabled" = true }\n'
    job = load_job(job_file(folder, text))
    assert job.engine == {"batch_rows": 10}
    assert job.spark == {"spark.ui.enabled": "true"}


def test_quality_and_schedule(folder: Path) -> None:
    text = (
        GOOD
        + """
[qos]
goals = [
  { statistic = "delay", minimise = 0.6, limit = 2 },
  { statistic = "output_rate", maximise = 0.4 },
]
[qos.queries.errors]
template = "fresh"
weight = 2
[schedule]
algorithm = "chain"
ratio = 0.5
"""
    )
    job = load_job(job_file(folder, text))
    quality = job.engine["quality"]
    assert quality.overall.goals[0].limit == 2
    assert quality.by_query["errors"][0] == 2
    assert quality.by_query["errors"][1].name == "fresh"
    schedule = job.engine["schedule"]
    assert (schedule.candidates, schedule.selector, schedule.ratio) == (("chain",), "fixed", 0.5)
    lines = '[qos]\ngoals = "delay <= 2s, output_rate 0.4"\n'
    job = load_job(job_file(folder, GOOD + lines))
    assert job.engine["quality"].overall == Specification(quality.overall.goals)
    assert job.engine["schedule"] == ScheduleSettings()  # goals bring the selector


@pytest.mark.parametrize("text", ["fresh", "delay <= 2s, output_rate 0.4", "queue_rows"])
def test_tables_of_goals_say_all(text: str) -> None:
    quality = Quality(specification_from_text(text), 2.0, {"q": (0.5, TEMPLATES.get("small"))})
    again = quality_of(table_of(quality), ["q"])
    assert (again.goals, again.weight) == (quality.goals, quality.weight)
    assert table_of(again) == table_of(quality)


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


# text, line, column, words of the message, words of the hint
MISTAKES: dict[str, tuple[str, int, int, str, str]] = {
    "syntax": (GOOD.replace("[queries.errors]", "[queries.errors"), 9, 16, "is not closed",
               "[queries.errors]"),
    "unclosed text": (GOOD.rstrip()[:-1], 10, 53, "not closed", "three quotes"),
    "section": (replaced("[queries.", "[querys."), 9, 2, "did you mean queries?", ""),
    "no queries": (GOOD.partition("[queries")[0], 1, 1, "the job has no queries", "cql"),
    "unknown key": (replaced("lateness", "latenes"), 7, 1, "did you mean lateness?", ""),
    "unknown key, none near": (replaced("lateness", "zzz"), 7, 1, "unknown key zzz", "lateness"),
    "option as a key": (
        replaced("lateness = \"5 seconds\"", 'quote = "x"'), 7, 1, "key quote",
        'options = { quote = "x" }',
    ),
    "duration": (replaced("5 seconds", "5 parsecs"), 7, 12, "unit of time parsecs", "10 SECONDS"),
    "duration type": (replaced('"5 seconds"', "5"), 7, 12, "length of time", "5 seconds"),
    "months": (replaced("5 seconds", "1 month"), 7, 12, "month", "30 DAYS"),
    "negative": (replaced("5 seconds", "-5 seconds"), 7, 12, "negative", "5 seconds"),
    "no file": (replaced("requests.tsv", "request.tsv"), 3, 12, "did you mean requests.tsv", "job"),
    "no path": (replaced('path     = "requests.tsv"\n', ""), 2, 2, "has no path", "path ="),
    "format": (
        replaced("options ", 'format = "cvs"\noptions '), 4, 10, "did you mean csv?", "parquet",
    ),
    "options": (
        replaced('{ sep = "\\t", header = true }', '"x"'), 4, 12, "options is a table", "sep",
    ),
    "type": (replaced('"long"', '"lnog"'), 5, 36, "unknown type lnog", "long"),
    "type of type": (replaced('"long"', "3"), 5, 36, "is a text", "columns"),
    "columns": (replaced('columns  = { host = "string", at = "long", status = "int" }\n', ""),
                2, 2, "has no columns", "columns ="),
    "no time": (replaced('time     = "timestamp_seconds(at)"\n', ""), 2, 2, "has no time", "time"),
    "cql type": (
        replaced('"SELECT host FROM requests WHERE status >= 500"', "[1]"), 10, 7, "text", "SELECT",
    ),
    "no cql": (replaced("cql =", "cpl ="), 10, 1, "did you mean cql?", ""),
    "name": (replaced("[queries.errors]", '[queries."a/b"]'), 9, 2, "slash", "folder"),
    "name of ours": (replaced("[queries.errors]", '[queries."a.late"]'), 9, 2, "ends", "folder"),
    "table": (replaced("[queries.errors]\ncql", "[queries]\ncql"), 10, 7, "is a table", "cql"),
    "setting": (GOOD + "[engine]\nbatch_row = 1\n", 12, 1, "did you mean batch_rows?", ""),
    "setting's type": (GOOD + '[engine]\nslots = "2"\n', 12, 9, "whole number", ""),
    "setting's word": (GOOD + "[engine]\nsharing = 5\n", 12, 11, "sharing is a word", ""),
    "setting's choice": (
        GOOD + '[engine]\nsharing = "exakt"\n', 12, 11, "did you mean exact?", "subsuming",
    ),
    "setting's seconds": (GOOD + "[engine]\npace_s = true\n", 12, 10, "number of seconds", ""),
    "setting below 0": (GOOD + "[engine]\npace_s = -1\n", 12, 10, "pace_s is -1", "at least 0"),
    "setting's value": (GOOD + "[engine]\nslots = 0\n", 12, 9, "slots is 0", "at least 1"),
    "template": (GOOD + '[qos]\ntemplate = "frehs"\n', 12, 12, "template 'frehs'", "fresh"),
    "goals": (GOOD + '[qos]\ntemplate = "fresh"\ngoals = []\n', 11, 2, "either", "balanced"),
    "qos query": (
        GOOD + '[qos.queries.eror]\ntemplate = "fresh"\n', 11, 2, "did you mean", "errors",
    ),
    "goal line": (GOOD + '[qos]\ngoals = "dealy <= 2s"\n', 12, 9, "'dealy'", "delay"),
    "goal kind": (GOOD + "[qos]\ngoals = 1\n", 12, 9, "a line or a list", "delay <= 2s"),
    "goal": (GOOD + '[qos]\ngoals = [{ statistic = "dealy", minimise = 1.0 }]\n',
             12, 24, "'dealy'", "delay"),
    "weights": (GOOD + '[qos]\ngoals = [{ statistic = "delay", minimise = 0.5 }]\n',
                12, 9, "sum to 1", "delay 0.5"),
    "algorithm": (GOOD + '[schedule]\nalgorithm = "chian"\n', 12, 13, "'chian'", "chain"),
    "schedule": (GOOD + "[schedule]\nrato = 1\n", 11, 2, "setting 'rato'", "ratio"),
    "weight's type": (GOOD + '[qos]\nweight = "x"\n', 12, 10, "weight is a number", ""),
    "algorithm's type": (GOOD + "[schedule]\nalgorithm = 5\n", 12, 13, "algorithm is a", "chain"),
    "candidates": (GOOD + "[schedule]\ncandidates = 5\n", 12, 14, "candidates is a list", "fifo"),
    "candidate": (GOOD + "[schedule]\ncandidates = [1]\n", 12, 14, "is a list of names", "fifo"),
    "one candidate": (GOOD + '[schedule]\ncandidates = "fifo"\n', 12, 14, "is a list", "fifo"),
    "selector": (GOOD + "[schedule]\nselector = 5\n", 12, 12, "selector is a text", "selector ="),
    "slots": (GOOD + "[schedule]\nslots = 1.5\n", 12, 9, "slots is a whole number", "slots = 1"),
    "slots below 1": (GOOD + "[schedule]\nslots = 0\n", 12, 9, "above 0", ""),
    "adapt": (
        GOOD + '[schedule]\nadapt_workload = "no"\n', 12, 18, "is true or false", "= true",
    ),
    "seed": (GOOD + '[schedule]\nseed = "x"\n', 12, 8, "seed is a whole number", "seed = 0"),
    "start": (GOOD + "[schedule]\nstart_s = nan\n", 12, 11, "is a finite number", "= 5.0"),
    "statistics": (GOOD + "[schedule]\nstatistics_s = inf\n", 12, 16, "finite", "= 1.0"),
    "patience": (GOOD + "[schedule]\npatience_s = nan\n", 12, 14, "finite", ""),
    "trace": (GOOD + "[schedule]\ntrace_length = 1.5\n", 12, 16, "whole number", "10000"),
    "decay_by": (GOOD + "[schedule]\ndecay_by = 5\n", 12, 12, "decay_by", "time or choices"),
    "huge weight": (
        GOOD + f'[qos]\ntemplate = "fresh"\nweight = {10**400}\n', 13, 10, "too large", "64 bits",
    ),
    "huge rate": (
        replaced("lateness", f"rate = {10**400}\nlateness"), 7, 8, "too large", "64 bits",
    ),
    "huge setting": (GOOD + f"[engine]\nslots = {hex(16**5000)}\n", 12, 9, "too large", "64 bits"),
    "huge in a list": (
        GOOD + f"[schedule]\ncandidates = [{10**400}]\n", 12, 15, "too large", "64 bits",
    ),
    "many digits": (
        replaced("lateness", f"rate = {'1' * 5000}\nlateness"), 7, 8, "too large", "64 bits",
    ),
    "endless rate": (replaced("lateness", "rate = inf\nlateness"), 7, 8, "rows a second", "1000"),
    "great rate": (replaced("lateness", "rate = 1e300\nlateness"), 7, 8, "rows a second", "1000"),
    "long path": (replaced("requests.tsv", "x" * 300), 3, 12, "name too long", "job file"),
    "rate": (replaced("lateness", "rate = 0\nlateness"), 7, 8, "rows a second", "1000"),
    "follow a file": (replaced("lateness", "follow = true\nlateness"), 7, 10, "folder", "path"),
    "source": (replaced("lateness", 'source = "htp"\nlateness'), 7, 10, "did you mean http?", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_told_with_their_place(folder: Path, case: str) -> None:
    text, line, column, message, hint = MISTAKES[case]
    first = mistakes(folder, text)[0]
    assert isinstance(first, CqlError)
    assert (first.line, first.column) == (line, column)
    assert f"job.toml:{line}:{column}: " in first.message
    assert message in first.message
    assert hint in first.hint
    assert "^" in str(first)
    assert isinstance(first, UsageError)
    assert first.exit_code == 2


def test_all_mistakes_at_once(folder: Path) -> None:
    text = replaced("5 seconds", "5 parsecs").replace("time     =", "tyme     =")
    assert len(mistakes(folder, text)) == 3  # unknown key, no time, duration


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="no such file"):
        load_job(tmp_path / "none.toml")
    (tmp_path / "sales.toml").write_text("")
    with pytest.raises(JobFileError, match=r"did you mean sales\.toml\?"):
        load_job(tmp_path / "sale.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(JobFileError, match="not UTF-8"):
        load_job(tmp_path / "latin.toml")
    with pytest.raises(JobFileError, match="directory"):
        load_job(tmp_path)
    with pytest.raises(JobFileError, match="name too long"):
        load_job(tmp_path / ("x" * 300))
    with pytest.raises(JobFileError, match="name too long"):
        load_job(tmp_path / ("x" * 300) / "job.toml")


@pytest.mark.parametrize("depth", [150, 400, 5_000, 100_000])
def test_a_file_may_not_be_nested_without_end(folder: Path, depth: int) -> None:
    for nested in ("[" * depth + "]" * depth, "{a=" * depth + "1" + "}" * depth):
        path = job_file(folder, f"{GOOD}[engine]\nspark = {{ a = {nested} }}\n")
        job, told = inspect_job(path)
        assert job is not None or "nested too deeply" in str(told[0])


def test_a_goals_number_may_come_from_json() -> None:
    with pytest.raises(UsageError, match="weight is too large"):
        quality_of({"template": "fresh", "weight": 10**400}, [])


def test_no_end_is_no_limit_where_there_may_be_none(folder: Path) -> None:
    job = load_job(job_file(folder, GOOD + "[schedule]\nstarvation_wait_s = inf\n"))
    assert job.engine["schedule"].starvation_wait_s is None


def test_windows_line_ends(folder: Path) -> None:
    path = folder / "job.toml"
    path.write_bytes(GOOD.replace("500", "5x0").replace("\n", "\r\n").encode())
    query = load_job(path).queries[0]
    assert query.located(_cql_error(query.cql, "5x0")).message.startswith(f"{path}:10:")


def _cql_error(cql: str, spot: str) -> CqlError:
    before = cql[: cql.index(spot)]
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1
    return CqlError("here", source=cql, line=line, column=column, length=len(spot))


STRINGS = {
    "basic": ('cql = "SELECT x"', 1, 15),
    "escape": ('cql = "SELECT \\"a\\" x"', 1, 21),
    "unicode escape": ('cql = "SELECT \\u00e9 x"', 1, 22),
    "literal": ("cql = 'SELECT \"\\t\" x'", 1, 20),
    "long": ('cql = """\nSELECT\n  x\n"""', 3, 3),
    "long, same line": ('cql = """SELECT x"""', 1, 17),
    "long literal": ("cql = '''\nSELECT\n  x'''", 3, 3),
    "line ending backslash": ('cql = """\nSELECT \\\n    x"""', 3, 5),
    "dotted": ('cql."b" = 1\ncql.cql = "SELECT x"', 2, 19),
}


@pytest.mark.parametrize("case", STRINGS)
def test_a_querys_error_stands_at_its_place_in_the_file(case: str) -> None:
    text, line, column = STRINGS[case]
    path = ("cql", "cql") if case == "dotted" else ("cql",)
    value: Any = tomllib.loads(text)
    for key in path:
        value = value[key]
    places = places_of(text)
    offset = places.inside(path, value.index("x"))
    assert text[offset] == "x"
    assert places.line_column(offset) == (line, column)


def test_cql_syntax_errors_are_located(folder: Path) -> None:
    text = GOOD.replace(
        '"SELECT host FROM requests WHERE status >= 500"',
        '"""\nSELECT host\n  FROM WHERE requests"""',
    )
    query = load_job(job_file(folder, text)).queries[0]
    with pytest.raises(CqlError) as caught:
        parse_query(query.cql)
    told = query.located(caught.value)
    assert isinstance(told, CqlError)
    assert told.line == 12
    assert "query errors: " in told.message
    assert "FROM WHERE requests" in told.detail


def test_parquet_tells_its_own_columns(tmp_path: Path) -> None:
    table = pa.table(
        {
            "at": pa.array([0], pa.timestamp("us", tz="UTC")),
            "n": pa.array([1], pa.uint32()),
            "tags": pa.array([["a"]], pa.list_(pa.string())),
            "kind": pa.array(["a"]).dictionary_encode(),
            "plain": pa.array([0], pa.timestamp("us")),
        }
    )
    pq.write_table(table, tmp_path / "events.parquet")
    text = '[streams.e]\npath = "events.parquet"\ntime = "at"\n[queries.q]\ncql = "SELECT n FROM e"'
    (stream,) = load_job(job_file(tmp_path, text)).streams
    assert [(f.name, f.type) for f in stream.columns] == [
        ("at", "timestamp"), ("n", "bigint"), ("tags", "array<string>"), ("kind", "string"),
        ("plain", "timestamp_ntz"),
    ]  # fmt: skip


def test_a_broken_parquet_file_needs_declared_columns(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_bytes(b"PAR1 nothing")
    text = '[streams.e]\npath = "events.parquet"\ntime = "at"\n[queries.q]\ncql = "SELECT n FROM e"'
    (first, *_) = mistakes(tmp_path, text)
    assert "events.parquet cannot be read" in first.message
    assert "columns =" in first.hint


def test_text_has_one_column_by_itself(tmp_path: Path) -> None:
    (tmp_path / "lines.log").write_text("a\n")
    text = (
        '[streams.e]\npath = "lines.log"\ntime = "to_timestamp(value)"\n'
        '[queries.q]\ncql = "SELECT value FROM e"'
    )
    (stream,) = load_job(job_file(tmp_path, text)).streams
    assert [(f.name, f.type) for f in stream.columns] == [("value", "string")]


def test_a_folder_takes_its_format_from_its_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "_SUCCESS").write_text("")
    (tmp_path / "in" / "a.jsonl").write_text("")
    text = (
        '[streams.e]\npath = "in"\ncolumns = { at = "timestamp" }\ntime = "at"\nfollow = true\n'
        '[queries.q]\ncql = "SELECT 1 FROM e"'
    )
    (stream,) = load_job(job_file(tmp_path, text)).streams
    assert stream.source["format"] == "json"
    assert stream.source["follow"] is True


KEYS = st.text("abcxyz_-09", min_size=1, max_size=4) | st.text(
    "a .\"'\\é#[", min_size=1, max_size=4
)


def quoted(text: str) -> str:
    escaped = "".join(
        f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 or ord(c) == 127 else c for c in text
    )
    return f'"{escaped}"'


@given(st.dictionaries(KEYS, st.text(max_size=12), min_size=1, max_size=4), st.booleans())
def test_every_key_and_value_is_found(values: dict[str, str], inline: bool) -> None:
    pairs = [f"{quoted(k)} = {quoted(v)}" for k, v in values.items()]
    text = "t = { " + ", ".join(pairs) + " }" if inline else "[t] # c\n" + " # x\n".join(pairs)
    assert tomllib.loads(text) == {"t": values}
    places = places_of(text)
    for key, value in values.items():
        place = places.found["t", key]
        assert text[place.key : place.key_end] == quoted(key)
        assert text[place.value : place.value_end] == quoted(value)
        origins = string_origins(text, place.value, place.value_end)
        assert len(origins) == len(value) + 1


def test_every_key_is_documented() -> None:
    from millstream.control.definitions.stream_table import KEYS as STREAM_KEYS  # noqa: PLC0415

    text = (Path(__file__).parents[3] / "docs" / "JOBS.md").read_text()
    for key in (*STREAM_KEYS, *ENGINE_KEYS):
        assert f"| `{key}` |" in text, key


@pytest.mark.parametrize(
    ("wrong", "told", "hint"),
    [
        ("cql = SELECT host FROM requests", "SELECT host FROM requests has no quotes",
         'cql = "SELECT host FROM requests"'),
        ("cql = \u201cSELECT host FROM requests\u201d", "typographic quotes",
         'cql = "SELECT host FROM requests"'),
        ('cql = "SELECT host FROM requests', "not closed", "three quotes"),
        ('cql = "SELECT host\nFROM requests"', "not closed", "three quotes"),
    ],
)  # fmt: skip
def test_quotes_that_are_missing_or_odd_are_told(
    folder: Path, wrong: str, told: str, hint: str
) -> None:
    text = replaced('cql = "SELECT host FROM requests WHERE status >= 500"', wrong)
    (only,) = mistakes(folder, text)
    assert told in only.message
    assert hint in only.hint


@pytest.mark.parametrize(
    ("right", "wrong", "told", "hint"),
    [
        ("header = true", "header = True", "written small", "header = true"),
        ('"requests.tsv"', '"C:\\data\\requests.tsv"', "a backslash", r"'C:\data\requests.tsv'"),
        ("[streams.requests]", "[streams.requests", "is not closed", "[streams.requests]"),
        ('path     = "', 'path: "', "= between them", "requests.tsv"),
        ('{ sep = "\\t", header = true }', "[ header = true ]", "in braces", "{ header = true }"),
        ('path     = "', 'time = "at"\npath = "', "time is given twice", "keep one"),
        ("[queries.errors]", "[queries.errors]\n[queries.errors]", "here again", "errors_2"),
        ('{ sep = "\\t", header = true }', "{ header = true,\n}", "end on its line", "one line"),
        ('cql = "', 'cql = """', "three quotes is not closed", "at its end"),
        ("[streams.requests]", '{"streams": {}}', "looks like JSON", "TOML"),
        ("[streams.requests]", "streams:", "looks like YAML", "TOML"),
        ("[streams.requests]", "// mine\n[streams.requests]", "begins with #", "# mine"),
        ('path     = "', 'header = TRUE\npath = "', "written small", "header = true"),
        ('{ sep = "\\t", header = true }', "{ sep = tab, header = true }", "tab has no", '"tab"'),
        ('{ sep = "\\t", header = true }', '{ sep = "\\t" header = true }', "a comma", '", header'),
    ],
)
def test_what_is_spelt_as_elsewhere_is_told_with_toml_s_spelling(
    folder: Path, right: str, wrong: str, told: str, hint: str
) -> None:
    first = mistakes(folder, replaced(right, wrong))[0]
    assert told in first.message
    assert hint in first.hint


def test_a_job_file_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    (folder / "job.toml").write_text(GOOD, encoding="utf-8-sig")
    assert load_job(folder / "job.toml").queries


def test_mistakes_of_the_toml_and_of_the_job_are_told_together(folder: Path) -> None:
    text = replaced('"5 seconds"', "5 seconds").replace('"requests.tsv"', "other.tsv")
    text = text.replace('status >= 500"', 'status >= 500"\ncpl = 3')
    told = [str(m.message).split(": ", 1)[1] for m in mistakes(folder, text)]
    assert told[0] == "other.tsv has no quotes"
    assert told[1] == "5 seconds has no quotes"
    assert any("no such file or folder: other.tsv" in m for m in told)
    assert any("unknown key cpl" in m for m in told)
