"""Spark agrees with arrays; it needs Java, and is slow to start."""

import shutil

import numpy as np
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")
pytest.importorskip("pyspark")

from log_sources import random_rows

from twofold import Gate, logs, metrics
from twofold.logs import _spark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore"),  # of PySpark, about versions of pandas
]


@pytest.fixture(autouse=True)
def few_partitions(monkeypatch):
    """Small tables need no more partitions than show that their sums are merged."""
    monkeypatch.setattr(_spark, "FEWEST_PARTS", 3)


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("twofold")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def frame_of(spark, rows):
    import pandas as pd

    return spark.createDataFrame(pd.DataFrame(rows))


def assert_equal(found, reference):
    for name in reference:
        if name in found:
            assert found[name] == pytest.approx(reference[name], abs=1e-12, nan_ok=True), name


def test_spark_agrees_with_arrays(spark):
    rows = random_rows(n=400)
    frame = frame_of(spark, rows).repartition(2)
    arrays = {name: rows[name] for name in ("correct", "conf", "is_id")}
    found = logs.evaluate(frame, conf_ood="conf_ood", ood_share=0.4)
    assert_equal(found, metrics.evaluate(**arrays, conf_ood=rows["conf_ood"], ood_share=0.4))
    binned = logs.evaluate(frame, exact=False, bins=20, metrics=["aurc"])
    assert binned.bounds["aurc"].low <= metrics.aurc(**arrays) <= binned.bounds["aurc"].high


def test_groups_nulls_and_odd_names(spark):
    rows = random_rows(n=400)
    rows["conf"][:5] = [np.inf, -np.inf, np.nan, 0.0, -0.0]
    rows["a.b `c"] = [None if name == "m3" else name for name in rows.pop("model")]
    result = logs.evaluate(frame_of(spark, rows), by=["a.b `c", "conf > 0"], nan="reject", resamples=10)
    groups = []
    for name, conf in zip(rows["a.b `c"], rows["conf"], strict=True):
        groups.append((name, None if np.isnan(conf) else bool(conf > 0)))  # NaN of pandas is null in Spark
    assert set(result) == set(groups)
    for key, found in result.items():
        own = np.array([group == key for group in groups])
        arrays = {name: rows[name][own] for name in ("correct", "conf", "is_id")}
        assert_equal(found, metrics.evaluate(**arrays, nan="reject"))
        if "aurc" not in found.reasons:
            assert found.intervals["aurc"].low <= found.intervals["aurc"].high


def test_groups_of_two_confidences_and_counts_in_cells(spark):
    rows = random_rows(n=400, ties=False)
    rows["model"] = [None if name == "m3" else name for name in rows["model"]]
    frame = frame_of(spark, rows).repartition(3)
    both = logs.evaluate(frame, conf_ood="conf_ood", by="model", resamples=10, ood_share=0.2)
    cells = logs.evaluate(frame, exact=False, bins=20, by="model")
    assert set(both) == set(cells) == set(rows["model"])
    for key, found in both.items():
        own = np.array([name == key for name in rows["model"]])
        arrays = {name: rows[name][own] for name in ("correct", "conf", "is_id")}
        reference = metrics.evaluate(**arrays, conf_ood=rows["conf_ood"][own], ood_share=0.2)
        assert {"ds_f1", "ds_aurc"} <= set(found) & set(reference)
        assert_equal(found, reference)
        assert (found.n, found.n_ood) == (reference.n, reference.n_ood)
        assert found.intervals["aurc"].low <= found.intervals["aurc"].high
        exact = metrics.evaluate(**arrays)
        for name, bound in cells[key].bounds.items():
            assert bound.low - 1e-12 <= exact[name] <= bound.high + 1e-12, name


def test_nan_compares_as_in_arrays(spark):
    rows = random_rows(n=100)
    rows["conf"][::5] = np.nan
    text = "SELECT *, CASE WHEN conf IS NULL THEN double('NaN') ELSE conf END AS c FROM rows"
    frame_of(spark, rows).createOrReplaceTempView("rows")  # NaN of pandas is null in Spark
    frame = spark.sql(text)
    assert frame.filter("isnan(c)").count() == 20
    conf = rows["conf"]
    for text, kept in {
        "c > 0": conf > 0,
        "not c > 0": ~(conf > 0),
        "c <> c": conf != conf,
        "c = c": conf == conf,
    }.items():
        assert logs.evaluate(frame, conf="conf_ood", where=text, metrics=["accuracy"]).n == kept.sum(), text


def test_cards_and_verdicts(spark):
    rows = random_rows(n=500)
    gate = Gate.fit_confidences(rows["correct"], rows["conf"], rows["conf_ood"], is_id=rows["is_id"])
    frame = frame_of(spark, rows)
    reference = gate.card_confidences(rows["correct"], rows["conf"], rows["conf_ood"], is_id=rows["is_id"])
    assert logs.card(gate, frame).report.to_dict() == reference.to_dict()
    added = logs.apply(gate, frame)
    expected = gate.decide_confidences(rows["conf"], rows["conf_ood"]).verdict
    assert sorted(row["verdict"] for row in added.collect()) == sorted(expected)
