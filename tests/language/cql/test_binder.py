"""What the golden texts do not show: starts, versions, limits, positions of names."""

import pytest

from language.cql.binding import SMALL, Binding
from millstream.core.errors import CqlError, UsageError
from millstream.language.cql.analyzer import Analyzer
from millstream.language.cql.binding.streams import bind_time
from millstream.language.cql.catalog import Catalog, StreamDefinition, UserFunction
from millstream.language.plan.expressions import Call, Cast, Column
from millstream.language.plan.nodes import Aggregate, Join, Node, Source, inputs_of, sources_of
from millstream.language.plan.schema import Field
from millstream.language.plan.windows import Sliding

pytestmark = pytest.mark.spark


def nodes(node: Node) -> list[Node]:
    return [node, *(n for child in inputs_of(node) for n in nodes(child))]


def test_the_start_is_in_every_source_and_aggregate(binding: Binding) -> None:
    text = (
        "SELECT a.n FROM (SELECT k, count(*) AS n FROM r [RANGE 5 s] GROUP BY k) [NOW] a,"
        " s [NOW] b WHERE a.k = b.k"
    )
    plan = binding.plan(text, start=7)
    assert {s.start for s in sources_of(plan.root)} == {7}
    assert [n.start for n in nodes(plan.root) if isinstance(n, Aggregate)] == [7]
    assert plan.fingerprint != binding.fingerprint(text)


def test_a_functions_version_is_part_of_the_meaning(analyzer: Analyzer) -> None:
    prints = {
        version: Binding(analyzer, SMALL.with_function(UserFunction("mask", version))).fingerprint(
            "SELECT mask(k) AS m FROM r"
        )
        for version in ("1", "2")
    }
    assert prints["1"] != prints["2"]


def test_an_unregistered_function_is_unknown(binding: Binding) -> None:
    with pytest.raises(CqlError, match=r"unknown function masc; did you mean mask\?"):
        binding.plan("SELECT masc(k) AS m FROM r")


def test_a_user_function_that_is_not_deterministic_is_refused(
    spark: object, analyzer: Analyzer
) -> None:
    from pyspark.sql.functions import udf  # noqa: PLC0415

    spark.udf.register("dice", udf(lambda: 4, "int").asNondeterministic())  # type: ignore[attr-defined]
    with pytest.raises(CqlError, match="dice is not deterministic"):
        Binding(analyzer, SMALL.with_function(UserFunction("dice"))).plan(
            "SELECT dice() AS d FROM r"
        )


def test_result_columns_keep_the_users_names(binding: Binding) -> None:
    plan = binding.plan("SELECT v AS a, w, v + 1 FROM r")
    assert [(f.name, f.type) for f in plan.columns] == [
        ("a", "int"), ("w", "bigint"), ("v + 1", "int"),
    ]  # fmt: skip
    assert not plan.relation
    assert binding.plan("SELECT count(*) AS n FROM r").relation


def test_a_relation_becomes_a_stream(binding: Binding) -> None:
    assert not binding.plan("ISTREAM(SELECT k, count(*) AS n FROM r GROUP BY k)").relation


def test_hundreds_of_conjuncts_and_values(binding: Binding) -> None:
    many = " AND ".join(f"v <> {i}" for i in range(500))
    values = ", ".join(str(i) for i in range(2000))
    plan = binding.plan(f"SELECT k FROM r WHERE {many} OR v IN ({values})")
    assert plan.fingerprint
    assert binding.plan(f"SELECT k FROM r WHERE {many}").fingerprint


def test_deep_expressions_are_refused(binding: Binding) -> None:
    deep = " + ".join(["v"] * 1000)
    with pytest.raises(CqlError, match=r"nest"):
        binding.plan(f"SELECT {deep} AS n FROM r")


def test_many_joined_streams(binding: Binding) -> None:
    items = ", ".join(f"r s{i} [RANGE {i + 1} s]" for i in range(8))
    where = " AND ".join(f"s{i}.k = s{i + 1}.k" for i in range(7))
    (join,) = [
        n for n in nodes(binding.plan(f"SELECT s0.v FROM {items} WHERE {where}").root)
        if isinstance(n, Join)
    ]  # fmt: skip
    assert len(join.inputs) == 8


def test_the_slide_defaults_to_a_second(binding: Binding) -> None:
    plan = binding.plan("SELECT count(*) AS n FROM r [RANGE 1 DAY]")
    assert isinstance(plan.root, Aggregate)
    assert plan.root.grouping == Sliding(86_400_000_000, 1_000_000)
    assert isinstance(plan.root.input, Source)


STREAM_COLUMNS = (Field("at", "bigint"), Field("ts", "string"), Field("day", "date"))


def stream(time: str) -> StreamDefinition:
    return StreamDefinition("s", STREAM_COLUMNS, time)


def test_the_time_of_a_stream(analyzer: Analyzer) -> None:
    assert bind_time(stream("timestamp_seconds(at)"), analyzer) == Call(
        "timestamp_seconds", (Column(0),)
    )
    assert bind_time(stream("to_timestamp(ts)"), analyzer) == Call(
        "to_timestamp", (Call("dated", (Column(1),)),)
    )
    assert bind_time(stream("day"), analyzer) == Cast(Column(2), "timestamp")


@pytest.mark.parametrize(
    ("time", "message", "hint"),
    [
        ("at", "the time of stream s is bigint, not a timestamp", "timestamp_seconds(at)"),
        ("ts", "the time of stream s is string, not a timestamp", "to_timestamp(ts)"),
        ("dya", "the time of stream s: unknown column dya; did you mean day?", "columns: at"),
        ("f(", "the time of stream s: expected ), but the text ends", ""),
        ("now()", "the time of stream s: now is not deterministic", "repeated"),
        ("timestamp_second(at)", "unknown function timestamp_second; did you mean", ""),
    ],
)
def test_a_bad_time_is_refused(analyzer: Analyzer, time: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind_time(stream(time), analyzer)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_names_in_another_case_unless_ambiguous(analyzer: Analyzer) -> None:
    columns = (
        Field("a", "int"),
        Field("A", "string"),
        Field("Bee", "int"),
        Field("at", "timestamp"),
    )
    binding = Binding(analyzer, Catalog((StreamDefinition("s", columns, "at"),)))
    assert [f.type for f in binding.plan("SELECT a, A AS text, BEE FROM S").columns] == [
        "int", "string", "int",
    ]  # fmt: skip
    columns = (Field("Aa", "int"), Field("aA", "string"), Field("at", "timestamp"))
    binding = Binding(analyzer, Catalog((StreamDefinition("s", columns, "at"),)))
    with pytest.raises(CqlError, match="column aa is ambiguous"):
        binding.plan("SELECT aa FROM s")
