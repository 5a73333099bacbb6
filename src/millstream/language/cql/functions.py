"""Names that decide how a call is bound: aggregates, and functions that no query may call.

Those that may be called stand in `spark_functions.py`; what they mean is Spark's to know.
"""

from millstream.language.cql.literals import plain_text
from millstream.language.plan.expressions import Call, Expr, Literal

# Aggregates of the language, under Spark's names, and what the algebra calls them.
AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "first": "first",
    "first_value": "first",
    "last": "last",
    "last_value": "last",
    # conditions
    "count_if": "count_if",
    "countif": "count_if",
    "bool_and": "bool_and",
    "every": "bool_and",
    "bool_or": "bool_or",
    "some": "bool_or",
    "any": "bool_or",
    # one of the values
    "any_value": "any_value",
    "max_by": "max_by",
    "arg_max": "max_by",
    "min_by": "min_by",
    "arg_min": "min_by",
    "mode": "mode",
    "histogram": "histogram",
    # all of the values
    "array_agg": "array_agg",
    "collect_list": "array_agg",
    "collect_set": "collect_set",
    "string_agg": "string_agg",
    "listagg": "string_agg",
    "group_concat": "string_agg",
    # bits
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    # quantiles
    "median": "percentile_cont",
    "percentile": "percentile_cont",
    "percentile_cont": "percentile_cont",
    "percentile_disc": "percentile_disc",
    "percentile_approx": "percentile_disc",
    "approx_percentile": "percentile_disc",
    # distinct values, nearly
    "approx_count_distinct": "approx_count_distinct",
    "approx_distinct": "approx_count_distinct",
    # pairs
    "corr": "corr",
    "covar_pop": "covar_pop",
    "covar_samp": "covar_samp",
    "regr_count": "regr_count",
    **{
        name: name
        for name in (
            "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy", "regr_slope",
            "regr_intercept", "regr_r2",
        )
    },
}  # fmt: skip
# Aggregates that Spark or others have and this language has not, with what to write instead.
OTHER_AGGREGATES = {
    "kurtosis": "avg(power(x, 4)) and its kin, from moments",
    "skewness": "avg(power(x, 3)) and its kin, from moments",
    "histogram_numeric": "histogram(floor(x / 10))",
    "product": "exp(sum(ln(x))) for numbers above zero",
    "try_sum": "sum(CAST(x AS decimal(38,0)))",
    "try_avg": "avg(CAST(x AS double))",
    "count_min_sketch": "approx_count_distinct(x), or count(*) with GROUP BY",
    "hll_sketch_agg": "approx_count_distinct(x)",
    "hll_union_agg": "approx_count_distinct(x)",
    "kll_sketch_agg_bigint": "percentile_approx(x, 0.5)",
    "kll_sketch_agg_double": "percentile_approx(x, 0.5)",
    "bitmap_construct_agg": "collect_set(x)",
    "bitmap_or_agg": "bit_or(x)",
    "map_agg": "collect_list(struct(k, v))",
    "latest_by_offset": "last(x)",
    "earliest_by_offset": "first(x)",
    "topk": "slice(sort_array(array_agg(x), FALSE), 1, 3)",
    **dict.fromkeys(("json_arrayagg", "json_agg", "jsonb_agg"), "to_json(array_agg(x))"),
    "collect": "array_agg(x), or histogram(x) for each value with its number",
    "topkdistinct": "slice(sort_array(collect_set(x), FALSE), 1, 3)",
    **dict.fromkeys(("count_distinct", "uniq", "uniqexact"), "count(DISTINCT x)"),
}
# Functions of others that Spark has under no other name, with what to write instead.
INSTEAD = {
    "quantile": "percentile(x, 0.9)",
    "as_value": "leave it out: a key may be selected more than once",
    "is_json": "get_json_object(j, '$') IS NOT NULL",
    "row": "struct(a, b); for IN without it: (a, b) IN (SELECT x, y FROM t)",
    "regexp_match": "regexp_extract(k, 'a(b)', 1)",
    "top": "the largest of a window: ORDER BY ... DESC LIMIT 3",
    "match_rowtime": "ts, the time of the match's last row",
    "window_time": "window_end - INTERVAL '1' MICROSECOND, or ts, the window's end",
    **dict.fromkeys(("json_build_object", "jsonb_build_object"), "to_json(named_struct('k', k))"),
    **dict.fromkeys(
        ("timestamptostring", "format_timestamp", "format_date"), "date_format(ts, 'yyyy-MM-dd')"
    ),
    **dict.fromkeys(
        ("stringtotimestamp", "parse_timestamp"), "to_timestamp(text, 'yyyy-MM-dd HH:mm:ss')"
    ),
    **dict.fromkeys(
        ("tumblingwindow", "hoppingwindow", "slidingwindow"),
        "windows: s [RANGE 10 SECONDS SLIDE 5 SECONDS], with GROUP BY k",
    ),
    "tostartofhour": "date_trunc('HOUR', ts)",
    "convert": "CAST(x AS STRING)",
    "safe_cast": "TRY_CAST(x AS INT)",
    "truncate": "floor(x * 10) / 10, or round(x, 1)",
    "json_exists": "get_json_object(j, '$.a') IS NOT NULL",
    **dict.fromkeys(
        ("json_object_agg", "jsonb_object_agg"),
        "to_json(map_from_entries(array_agg(struct(k, v))))",
    ),
    "age": "the difference of two times is x - y",
    "generate_series": "FROM s, UNNEST(sequence(1, 3)) AS t(x)",
    "time_bucket": "windows: s [RANGE 10 SECONDS SLIDE 10 SECONDS]; or window_start of them",
    "date_bin": "windows: s [RANGE 10 SECONDS SLIDE 10 SECONDS]; or window_start of them",
    "strftime": "date_format(ts, 'yyyy-MM-dd')",
    "proctime": "ts, the time of the row",
    "next": "give the next row a variable of its own: PATTERN (A B), then B.x",
    **dict.fromkeys(("tumble_rowtime", "hop_rowtime", "session_rowtime"), "ts, the window's end"),
}
STRUCTS_ONLY = frozenset({"window_time"})  # takes a struct that only Spark's own plans have
# Depend on when or where they run, though Spark calls some of them deterministic.
UNREPEATABLE = frozenset(
    {"now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp"}
    | {
        "current_timezone",
        "localtime",
        "current_path",
        "current_user",
        "user",
        "session_user",
        "current_catalog",
    }
    | {
        "current_database",
        "current_schema",
        "version",
        "uuid",
        "rand",
        "random",
        "randn",
        "randstr",
    }
    | {"uniform", "shuffle", "monotonically_increasing_id", "spark_partition_id"}
    | {"input_file_name", "input_file_block_start", "input_file_block_length"}
    | {"raise_error", "assert_true", "getdate"}
)
# Reach what is not the query's: classes of Java, files that a call names, Spark's own tables.
REACHING = frozenset(
    {"reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf"}
    | {"collations", "python_worker_logs", "sql_keywords"}
)
WHY_REACHING = "a query reads its streams and nothing else"
# Which argument of a function holds options, and those that say how a text is read or written.
# Others name files and addresses: `rowValidationXSDPath` of XML, `avroSchemaUrl` of Avro.
OPTIONS_AT = {
    "from_json": 2, "from_csv": 2, "from_xml": 2, "from_avro": 2, "schema_of_json": 1,
    "schema_of_csv": 1, "schema_of_xml": 1, "schema_of_avro": 1, "to_json": 1, "to_csv": 1,
    "to_xml": 1,
}  # fmt: skip
# Which argument holds a type. As JSON it may carry defaults: expressions that no list has seen.
SCHEMA_AT = {"from_json": 1, "from_csv": 1, "from_xml": 1, "variant_get": 2, "try_variant_get": 2}
SCHEMAS = frozenset({"schema_of_json", "schema_of_csv", "schema_of_xml"})  # that give one
OPTIONS = frozenset(
    {
        "allowbackslashescapinganycharacter", "allowcomments", "allownonnumericnumbers",
        "allownumericleadingzeros", "allowsinglequotes", "allowunquotedcontrolchars",
        "allowunquotedfieldnames", "arrayelementname", "attributeprefix", "charset",
        "chartoescapequoteescaping", "columnnameofcorruptrecord", "comment", "dateformat",
        "declaration", "delimiter", "dropfieldifallnull", "emptyvalue",
        "enabledatetimeparsingfallback", "enablestableidentifiersforuniontype", "encoding",
        "enforceschema", "escape", "escapequotes", "excludeattribute", "header", "ignorenamespace",
        "ignoreleadingwhitespace", "ignorenullfields", "ignoresurroundingspaces",
        "ignoretrailingwhitespace", "inferschema", "linesep", "locale", "maxcharspercolumn",
        "maxcolumns", "mode", "multiline", "nanvalue", "negativeinf", "nullvalue", "positiveinf",
        "preferdate", "prefersdecimal", "pretty", "primitivesasstring", "quote", "quoteall",
        "recursivefieldmaxdepth", "roottag", "rowtag", "samplingratio", "sep",
        "singlevariantcolumn", "sortkeys", "stableidentifierprefixforuniontype", "timeformat",
        "timestampformat", "timestampntzformat", "timezone", "unescapedquotehandling", "valuetag",
        "wildcardcolname", "writenonasciicharacterascodepoint",
    }
)  # fmt: skip
# The same, when called with fewer arguments than these: the clock, and a random vector.
UNREPEATABLE_BELOW = {"unix_timestamp": 1, "to_unix_timestamp": 1, "aes_encrypt": 5}
WHY_UNREPEATABLE = (
    "a step must give the same rows when it is repeated; the time of a row is ts, and the rows of "
    "the last hour are s [RANGE 1 HOUR]"
)


def unrepeatable(name: str, arguments: int) -> bool:
    lower = name.lower()
    return lower in UNREPEATABLE or arguments < UNREPEATABLE_BELOW.get(lower, 0)


def plain_schema(schema: Expr) -> bool:
    """Whether a type is written out as SQL has it, or found in a text.

    >>> plain_schema(Literal("'a INT'", "string")), plain_schema(Literal("'{}'", "string"))
    (True, False)
    """
    if isinstance(schema, Call):
        return schema.name in SCHEMAS
    if not isinstance(schema, Literal) or schema.type != "string":
        return False
    first = plain_text(schema).strip()[:1]
    return not first or first.isalnum() or first in "_`"


def unknown_option(options: Expr) -> str | None:
    """The first option of a call that nobody allows; an empty text for one that shows no name.

    >>> mode, path = Literal("'mode'", "string"), Literal("'avroSchemaUrl'", "string")
    >>> unknown_option(Call("map", (mode, path))), unknown_option(Call("map", (path, mode)))
    (None, 'avroSchemaUrl')
    """
    if not isinstance(options, Call) or options.name != "map":
        return ""
    names = (plain_text(n) if isinstance(n, Literal) else "" for n in options.args[::2])
    return next((name for name in names if name.lower() not in OPTIONS), None)
