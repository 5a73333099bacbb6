"""What a client may name as a source: nothing leads out of the folders."""

from pathlib import Path
from typing import Any

import pytest

from millstream.control.definitions.source_rules import SourceRules
from millstream.core.errors import UsageError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / ".ssh").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("data/a.csv", "data/deep/b.csv", "data/.ssh/key.csv", "other/secret.csv"):
        (tmp_path / name).write_text("a\n1\n")
    (tmp_path / "data" / "out.csv").symlink_to(tmp_path / "other" / "secret.csv")
    (tmp_path / "data" / "away").symlink_to(tmp_path / "other")
    (tmp_path / "data" / "in.csv").symlink_to(tmp_path / "data" / "a.csv")
    (tmp_path / "data" / "loop").symlink_to(tmp_path / "data" / "loop")
    return tmp_path / "data"


def table(**more: Any) -> dict[str, Any]:
    return {"name": "s", "columns": {"a": "int"}, "time": "a", **more}


@pytest.mark.parametrize("path", ["a.csv", "deep", "deep/b.csv", "in.csv", "deep/../a.csv"])
def test_paths_that_stay_inside(data: Path, path: str) -> None:
    rules = SourceRules((data,))
    rules.check(table(path=f"{data}/{path}"))
    rules.check(table(path=f"{data}/i*.csv"))
    rules.check(table(source="spark", format="csv", options={"path": f"{data}/{path}"}))


@pytest.mark.parametrize("path", ["", "*.csv", "[o]ut.csv", "???.csv"])
def test_links_among_the_files_of_a_folder_lead_out(data: Path, path: str) -> None:
    rules = SourceRules((data,))
    with pytest.raises(UsageError, match="in no folder that clients may read"):
        rules.check(table(path=f"{data}/{path}"))
    (data / "out.csv").unlink()
    rules.check(table(path=f"{data}/{path}"))


def test_links_anywhere_below_lead_out_where_spark_reads(data: Path) -> None:
    (data / "deep" / "down").mkdir()
    (data / "deep" / "down" / "far").symlink_to(data.parent / "other")
    named = table(source="spark", format="csv", path=f"{data}/deep")
    with pytest.raises(UsageError, match="in no folder that clients may read"):
        SourceRules((data,)).check(named)
    SourceRules((data,)).check(table(path=f"{data}/deep"))  # which reads no folders below
    (data / "deep" / "down" / "far").unlink()
    (data / "deep" / "down" / "round").symlink_to(data / "deep")
    SourceRules((data,)).check(named)


@pytest.mark.parametrize("path", ["[.]ssh", "[.]ssh/*", "?ssh/*", "*", "*/key.csv", "*.csv"])
def test_patterns_of_spark_match_hidden_folders(data: Path, path: str) -> None:
    named = table(source="spark", format="text", path=f"{data}/{path}")
    with pytest.raises(UsageError, match="is a pattern that clients may not name") as error:
        SourceRules((data,)).check(named)
    assert "pathGlobFilter" in error.value.hint
    if "/" in path:
        with pytest.raises(UsageError, match="is a pattern that clients may not name"):
            SourceRules((data,)).check(table(path=f"{data}/{path}"))


@pytest.mark.parametrize("name", ["ledger.db", "manager.db", "ledger.db-water", "replica.json"])
def test_homes_are_not_for_clients(data: Path, name: str) -> None:
    home = data / "deep" / "home"
    (home / "segments").mkdir(parents=True)
    for file in (home / name, home / "segments" / "1.parquet", home / "output.log"):
        file.write_text("x")
    rules = SourceRules((data,))
    for path in (home / name, home / "output.log", home / "segments", home / "segments/*.parquet"):
        with pytest.raises(UsageError, match="belongs to a processor or a manager"):
            rules.check(table(path=str(path)))
    rules.check(table(path=f"{data}/deep"))
    with pytest.raises(UsageError, match="belongs to a processor or a manager"):
        rules.check(table(source="spark", format="parquet", path=f"{data}/deep"))


def test_tokens_and_keys_are_not_for_clients(data: Path) -> None:
    for closed in (data / "a.csv", data / "deep"):
        rules = SourceRules((data,), closed=(closed,))
        for path in ("a.csv", "deep/b.csv", "in.csv", "a*"):
            belongs = (path == "deep/b.csv") == (closed == data / "deep")
            if not belongs:
                rules.check(table(path=f"{data}/{path}"))
                continue
            with pytest.raises(UsageError, match="belongs to a processor or a manager"):
                rules.check(table(path=f"{data}/{path}"))
    rules = SourceRules((data / "deep",), closed=(data,))
    rules.check(table(path=f"{data}/deep/b.csv"))  # its owner says so


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "{}/../other/secret.csv", "{}/out.csv", "{}/away/secret.csv", "{}/loop",
     "{}/away/*", "{}/*/../../other", "{}/{{a,../../other/secret}}.csv", "file:///etc/passwd",
     "hdfs://far/x", "{}-beside/x", "etc/passwd", "x" * 5000, "/", "{}/\0"],
)  # fmt: skip
def test_paths_that_lead_out(data: Path, path: str) -> None:
    there = path.format(data) if "{" in path else path
    for named in (
        table(path=there),
        table(source="spark", format="csv", path=there),
        table(source="spark", format="csv", options={"PATH": there}),
    ):
        with pytest.raises(UsageError, match="in no folder that clients may read") as error:
            SourceRules((data,)).check(named)
        assert str(data) in error.value.detail
        assert "--allow-folder" in error.value.hint


def test_hidden_files_are_not_for_clients(data: Path) -> None:
    with pytest.raises(UsageError, match="is hidden"):
        SourceRules((data,)).check(table(path=f"{data}/.ssh/key.csv"))
    SourceRules((data / ".ssh",)).check(table(path=f"{data}/.ssh/key.csv"))  # its owner says so


@pytest.mark.parametrize(
    "option",
    ["cleanSource", "sourceArchiveDir", "paths", "checkpointLocation", "CLEANSOURCE",
     "kafka.bootstrap.servers", "badRecordsPath"],
)  # fmt: skip
def test_options_are_open_by_name(data: Path, option: str) -> None:
    named = table(source="spark", format="csv", path=f"{data}/deep", options={option: "delete"})
    with pytest.raises(UsageError, match=f"option {option} is not open"):
        SourceRules((data,)).check(named)
    SourceRules((data,), options=(option.upper(),)).check(named)


def test_formats_are_open_by_name(data: Path) -> None:
    kafka = table(source="spark", format="kafka", options={"kafka.security.protocol": "SSL"})
    with pytest.raises(UsageError, match="format kafka is not open to clients"):
        SourceRules((data,)).check(kafka)
    SourceRules((data,), ("kafka",), ("kafka.*",)).check(kafka)
    SourceRules().check(table(source="spark", format="rate", options={"rowsPerSecond": 5}))
    SourceRules().check(table(source="http"))


@pytest.mark.parametrize("value", ["env:PASSWORD", "file:/etc/shadow"])
def test_a_client_names_no_secret(data: Path, value: str) -> None:
    named = table(path=f"{data}/a.csv", options={"nullValue": value})
    with pytest.raises(UsageError, match="refers to a secret"):
        SourceRules((data,)).check(named)


@pytest.mark.parametrize("option", ["rowsPerSecond", "ROWSPERBATCH"])
def test_rows_that_are_made_up_have_a_rate(option: str) -> None:
    for good in (1, "1000000", 0):
        SourceRules().check(table(source="spark", format="rate", options={option: good}))
    for bad in (10**12, "1000001", "1e12", "9" * 5000, -1, "", None):
        with pytest.raises(UsageError, match="is a number up to 1,000,000"):
            SourceRules().check(table(source="spark", format="rate", options={option: bad}))


@pytest.mark.parametrize("option", ["numPartitions", "maxColumns", "maxCharsPerColumn"])
def test_a_client_asks_for_no_buffer_that_fills_the_memory(option: str) -> None:
    rules = SourceRules((Path("/"),))
    for value in ("2000000000", "-2", "x", "1e9", ""):
        with pytest.raises(UsageError, match="is a number up to"):
            rules.check(table(source="spark", format="rate", options={option: value}))
    rules.check(table(source="spark", format="rate", options={option: "100"}))
    rules.check(table(source="spark", format="rate", options={"maxCharsPerColumn": -1}))
