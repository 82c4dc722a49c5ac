"""Every record keeps its id and its source time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.channels.envelope import RECORD_ID, SOURCE_TIME, enveloped, kept
from penstock.channels.schemas import carried_schema, fitted
from penstock.errors import ConfigurationError

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def records(spark):
    return spark.createDataFrame(
        [("a", NOON, 1, "x y"), ("b", NOON, 2, "z")],
        "record_id string, source_time timestamp, number long, text string",
    )


def _widening_functions():
    from pyspark.sql import functions as sql

    return {
        "a projection": lambda df: df.select((sql.col("number") * 2).alias("twice")),
        "two projections": lambda df: df.select("number").select((sql.col("number") + 1).alias("next")),
        "a filter behind a projection": lambda df: df.select("number").filter("number > 0"),
        "a user's Python function": lambda df: df.select(
            sql.udf(lambda n: n + 1, "long")("number").alias("n")
        ),
        "an exploded list": lambda df: df.select(sql.explode(sql.split("text", " ")).alias("word")),
        "SQL on an alias": lambda df: df.alias("t").selectExpr("t.number AS n"),
    }


@pytest.mark.parametrize("case", sorted(_widening_functions()))
def test_a_stateless_operator_that_selects_its_own_columns_gets_the_envelope_back(records, case):
    result = kept(_widening_functions()[case](records), "op", stateful=False)

    assert {RECORD_ID, SOURCE_TIME} <= set(result.columns)
    assert {(row[RECORD_ID], row[SOURCE_TIME].astimezone(UTC)) for row in result.collect()} == {
        ("a", NOON),
        ("b", NOON),
    }


def test_an_operator_that_keeps_the_envelope_is_left_as_it_is(records):
    result = records.filter("number = 1")

    assert kept(result, "op", stateful=False) is result


def test_an_aggregation_makes_new_ids_that_are_the_same_when_it_runs_again(records):
    counted = kept(records.groupBy("text").count(), "counting", stateful=True)

    first, again = ({row[RECORD_ID] for row in counted.collect()} for _ in range(2))
    assert first == again
    assert len(first) == 2
    assert all(name.startswith("counting-") for name in first)


def test_an_aggregation_that_gives_a_source_time_keeps_it(records):
    from pyspark.sql import functions as sql

    newest = records.groupBy("text").agg(sql.max("source_time").alias("source_time"))

    assert {row[SOURCE_TIME].astimezone(UTC) for row in kept(newest, "op", stateful=True).collect()} == {NOON}


def test_a_stateless_streaming_operator_that_cannot_be_widened_is_told_by_name(spark, tmp_path):
    streaming = spark.readStream.schema(carried_schema("number long", "s")).json(str(tmp_path))
    mapped = streaming.mapInPandas(lambda batches: batches, "number long")

    with pytest.raises(ConfigurationError, match=r"operator mapping.*record_id and source_time"):
        kept(mapped, "mapping", stateful=False)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(NOON, "timestamp"), (int(NOON.timestamp() * 1000), "long"), (NOON.isoformat(), "string")],
)
def test_a_source_may_give_its_time_as_timestamp_milliseconds_or_text(spark, value, kind):
    given = spark.createDataFrame([(7, value)], f"record_id long, source_time {kind}")

    row = enveloped(given, "numbers").collect()[0]

    assert row[RECORD_ID] == "7"
    assert abs((row[SOURCE_TIME].astimezone(UTC) - NOON).total_seconds()) < 0.001


def test_a_source_without_ids_gets_ids_of_its_content(spark):
    given = spark.createDataFrame([("x",), ("y",), ("x",)], "text string")

    ids = [row[RECORD_ID] for row in enveloped(given, "texts").orderBy("text").collect()]

    assert ids[0] == ids[1] != ids[2]


def test_records_are_made_to_fit_the_declared_columns(records):
    fitting = fitted(records, "number int, text string", "operator op")

    assert fitting.columns == ["record_id", "source_time", "number", "text"]
    assert dict(fitting.dtypes)["number"] == "int"


def test_a_missing_column_is_told_with_what_was_given(records):
    with pytest.raises(ConfigurationError, match=r"operator op: its schema declares colour.*number, text"):
        fitted(records, "colour string", "operator op")


def test_an_unreadable_schema_is_told_with_an_example(spark):
    with pytest.raises(
        ConfigurationError, match=r'schema of op: expected columns.*"word string, count long"'
    ):
        carried_schema("number of things", "op")
