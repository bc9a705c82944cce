"""Metrics of tables equal those of arrays, on every engine."""

import csv
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

from log_sources import ENGINES, as_believed_file, as_source, random_rows

from twofold import logs, metrics
from twofold.errors import InvalidInput, UnknownName
from twofold.logs import _duckdb, pairs
from twofold.logs.tables import open_table

TOLERANCE = 1e-12


def assert_equal(result, reference):
    for name, value in reference.items():
        if name not in result:
            continue
        if math.isnan(value):
            assert math.isnan(result[name]), name
            assert result.reasons[name] == reference.reasons[name]
        else:
            assert result[name] == pytest.approx(value, abs=TOLERANCE, rel=TOLERANCE), name
    assert (result.n, result.n_id, result.n_ood) == (reference.n, reference.n_id, reference.n_ood)


def arrays_of(rows, keep=slice(None)):
    return {name: np.asarray(rows[name])[keep] for name in ("correct", "conf", "is_id")}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_agrees_with_arrays(engine, tmp_path):
    rows = random_rows()
    source = as_source(rows, engine, tmp_path / "rows")
    assert_equal(logs.evaluate(source), metrics.evaluate(**arrays_of(rows)))
    shared = logs.evaluate(source, ood_share=0.3)
    assert_equal(shared, metrics.evaluate(**arrays_of(rows), ood_share=0.3))


@pytest.mark.parametrize("engine", ["parquet", "duckdb", "polars", "pandas", "dask"])
def test_groups_agree_with_arrays(engine, tmp_path):
    rows = random_rows()
    result = logs.evaluate(as_source(rows, engine, tmp_path / "rows"), by=["model", "conf > 0"])
    model, positive = np.array(rows["model"]), rows["conf"] > 0
    assert list(result) == sorted(set(zip(model.tolist(), positive.tolist(), strict=True)))
    for key, found in result.items():
        own = (model == key[0]) & (positive == key[1])
        assert_equal(found, metrics.evaluate(**arrays_of(rows, own)))


def joint_of(rows, keep=slice(None)):
    return [np.asarray(rows[name])[keep] for name in ("correct", "conf", "conf_ood", "is_id")]


@pytest.mark.parametrize("engine", ["parquet", "lazy", "pandas", "pyarrow", "dask"])
@pytest.mark.parametrize("share", [None, 0.4])
def test_two_confidences_agree_with_arrays(engine, share, tmp_path):
    rows = random_rows()
    found = logs.evaluate(as_source(rows, engine, tmp_path / "rows"), conf_ood="conf_ood", ood_share=share)
    reference = metrics.evaluate(**arrays_of(rows), conf_ood=rows["conf_ood"], ood_share=share)
    assert {"ds_f1", "ds_aurc", "auroc_ood"} <= set(found) & set(reference)
    assert_equal(found, reference)
    monotone = metrics.ds_aurc(*joint_of(rows), monotone=True, ood_share=share)
    assert found.ds_aurc_monotone == pytest.approx(monotone, abs=TOLERANCE)
    assert found.bounds == {}


@pytest.mark.parametrize("engine", ["parquet", "lazy", "pandas", "pyarrow", "dask"])
def test_groups_of_two_confidences(engine, tmp_path):
    rows = random_rows()
    rows["model"] = [None if name == "m2" else name for name in rows["model"]]
    source = as_source(rows, engine, tmp_path / "rows")
    result = logs.evaluate(source, conf_ood="conf_ood", by=["model", "conf > 0"], resamples=20, ood_share=0.3)
    model, positive = np.array(rows["model"]), rows["conf"] > 0
    assert set(result) == set(zip(model.tolist(), positive.tolist(), strict=True))
    for key, found in result.items():
        own = (model == key[0]) & (positive == key[1])
        reference = metrics.evaluate(**arrays_of(rows, own), conf_ood=rows["conf_ood"][own], ood_share=0.3)
        assert_equal(found, reference)
        monotone = metrics.ds_aurc(*joint_of(rows, own), monotone=True, ood_share=0.3)
        assert found.ds_aurc_monotone == pytest.approx(monotone, abs=TOLERANCE)
        assert found.intervals["aurc"].low <= found.intervals["aurc"].high


@pytest.mark.parametrize("engine", ["parquet", "dask"])
def test_groups_without_id_rows_have_no_joint_metrics(engine, tmp_path):
    rows = random_rows()
    rows["model"] = ["inside" if known else "outside" for known in rows["is_id"]]
    result = logs.evaluate(as_source(rows, engine, tmp_path / "rows"), conf_ood="conf_ood", by="model")
    assert math.isnan(result["outside"].ds_aurc)
    assert "is_id is False everywhere" in result["outside"].reasons["ds_aurc"]
    assert result["inside"].ds_f1 > 0


@pytest.mark.parametrize("share", [None, 0.0, 0.7])
@pytest.mark.parametrize("n", [50, 3000])
@pytest.mark.parametrize("engine", ["duckdb", "pyarrow"])
def test_bounds_of_both_areas_hold(engine, n, share, monkeypatch):
    monkeypatch.setattr(pairs, "CELLS", 24)
    monkeypatch.setattr(pairs, "ROWS_OF_AREA", 10)
    monkeypatch.setattr(pairs, "ROWS_AT_ONCE", 40)
    for seed in range(4):
        rows = random_rows(n=n, ties=False, seed=seed)
        rows["conf_ood"] = rows["conf_ood"].round(1)  # ties in one confidence do no harm
        found = logs.evaluate(as_source(rows, engine, None), conf_ood="conf_ood", ood_share=share)
        for name, monotone in (("ds_aurc", False), ("ds_aurc_monotone", True)):
            area = metrics.ds_aurc(*joint_of(rows), monotone=monotone, ood_share=share)
            bound = found.bounds[name]
            assert bound.low - TOLERANCE <= area <= bound.high + TOLERANCE
            assert bound.low <= bound.value <= bound.high
        if n == 3000:
            assert found.bounds["ds_aurc"].high - found.bounds["ds_aurc"].low < 0.2


@pytest.mark.parametrize("engine", ["duckdb", "pyarrow"])
def test_ds_aurc_of_many_tied_rows_is_left_to_its_monotone_form(engine, monkeypatch):
    monkeypatch.setattr(pairs, "CELLS", 24)
    monkeypatch.setattr(pairs, "ROWS_OF_AREA", 10)
    monkeypatch.setattr(pairs, "ROWS_AT_ONCE", 40)
    found = logs.evaluate(as_source(random_rows(), engine, None), conf_ood="conf_ood")
    assert math.isnan(found.ds_aurc)
    assert "see ds_aurc_monotone" in found.reasons["ds_aurc"]
    assert found.bounds["ds_aurc_monotone"].low <= found.ds_aurc_monotone


CONFIDENCES = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, 1.0, math.inf, -math.inf]), st.floats(allow_nan=False, allow_subnormal=True)
)
ROWS = st.lists(
    st.tuples(
        st.booleans(), st.booleans(), CONFIDENCES | st.sampled_from([None, math.nan]), st.sampled_from(["a", "b", None])
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("engine", ["duckdb", "polars", "pandas", "pyarrow", "dask"])
def test_made_up_tables_agree_with_arrays(engine, tmp_path_factory):
    count = 6 if engine == "dask" else 40

    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(ROWS)
    def agree(made):
        inside = [known for _, known, _, _ in made]
        right = [correct and known for correct, known, _, _ in made]
        conf = np.array([math.nan if value is None else value for _, _, value, _ in made])
        group = [value for _, _, _, value in made]
        columns = {"correct": right, "conf": conf, "is_id": inside, "g": group}
        source = as_source(columns, engine, tmp_path_factory.getbasetemp())
        by_group = logs.evaluate(source, by="g", nan="reject")
        for key in set(group):
            own = np.array([value == key for value in group])
            reference = metrics.evaluate(np.array(right)[own], conf[own], is_id=np.array(inside)[own], nan="reject")
            assert_equal(by_group[key], reference)
            assert by_group[key].nan_rejected == reference.nan_rejected
        whole = metrics.evaluate(right, conf, is_id=inside, nan="reject")
        assert_equal(logs.evaluate(source, nan="reject"), whole)

    agree()


def test_batches_of_a_stream_may_end_anywhere(tmp_path, monkeypatch):
    rows = random_rows(n=5000, groups=3)
    source = as_source(rows, "parquet", tmp_path / "rows")
    reference = metrics.evaluate(**arrays_of(rows))
    sums = logs.ordered.OrderedSums
    conf = -np.sort(-rows["conf"])
    order = np.argsort(-rows["conf"], kind="stable")
    kind = (3 - 2 * rows["is_id"].astype(int) - rows["correct"]).astype(np.int8)[order]
    totals = np.bincount(np.minimum(kind, 2), minlength=3)[None]
    for size in (1, 2, 7, 333):
        stream = sums(totals, None)
        for start in range(0, len(conf), size):
            stream.update(conf[start : start + size], kind[start : start + size])
        stream.finish()
        value = logs.ordered.metric_value("aurc", totals[0], None, stream.sums[0])
        assert value == pytest.approx(reference["aurc"], abs=TOLERANCE)
    monkeypatch.setattr(_duckdb, "BATCH", 1)
    assert_equal(logs.evaluate(source), reference)


def test_rows_out_of_order_are_an_error():
    stream = logs.ordered.OrderedSums(np.array([[3, 0, 0]]), None)
    stream.update(np.array([0.1, 0.9, 0.2]), np.zeros(3, np.int8))
    with pytest.raises(InvalidInput, match=r"out of order: confidence 0\.9 after 0\.1"):
        stream.finish()


@pytest.mark.parametrize("kinds", [[0, 0], [0, 0, 0, 0], [0, 0, 1]])
def test_rows_that_do_not_match_their_counts_are_an_error(kinds):
    stream = logs.ordered.OrderedSums(np.array([[3, 0, 0]]), None)
    stream.update(np.zeros(len(kinds)), np.array(kinds, np.int8))
    with pytest.raises(InvalidInput, match="changed while it was read"):
        stream.finish()


@pytest.mark.parametrize(("cells", "rows_at_once"), [(16, 100), (64, 1000), (128, 4000)])
@pytest.mark.parametrize("ties", [False, True])
def test_refined_ds_f1_is_exact(cells, rows_at_once, ties, monkeypatch):
    monkeypatch.setattr(pairs, "CELLS", cells)
    monkeypatch.setattr(pairs, "ROWS_AT_ONCE", rows_at_once)
    rows = random_rows(n=6000, ties=ties, seed=cells)
    source = as_source(rows, "duckdb", None)
    for share in (None, 0.5):
        found = logs.evaluate(source, conf_ood="conf_ood", metrics=["ds_f1", "ds_aurc_monotone"], ood_share=share)
        arguments = rows["correct"], rows["conf"], rows["conf_ood"], rows["is_id"]
        assert found.ds_f1 == pytest.approx(metrics.ds_f1(*arguments, ood_share=share).value, abs=TOLERANCE)
        assert "ds_f1" not in found.bounds
        area = metrics.ds_aurc(*arguments, monotone=True, ood_share=share)
        point = metrics.Bounded(found.ds_aurc_monotone, found.ds_aurc_monotone, found.ds_aurc_monotone)
        bound = found.bounds.get("ds_aurc_monotone", point)  # cells of one value each are exact
        assert bound.low - TOLERANCE <= area <= bound.high + TOLERANCE


@pytest.mark.parametrize("engine", ["parquet", "pyarrow", "dask"])
@pytest.mark.parametrize("share", [None, 0.0, 0.6])
def test_counts_in_cells_bound_every_metric(engine, share, tmp_path):
    rows = random_rows(n=2000, ties=False)
    source = as_source(rows, engine, tmp_path / "rows")
    reference = metrics.evaluate(**arrays_of(rows), ood_share=share)
    for bins in (2, 50, 65_536):
        found = logs.evaluate(source, exact=False, bins=bins, ood_share=share)
        assert set(found.bounds) >= {"aurc", "augrc", "auroc", "average_precision", "fpr95", "fpr95_unsafe", "f1"}
        for name, bound in found.bounds.items():
            assert bound.low - TOLERANCE <= reference[name] <= bound.high + TOLERANCE, name
            assert bound.low <= found[name] <= bound.high
    assert found.bounds["aurc"].error < 1e-9  # as many cells as rows


@pytest.mark.parametrize("engine", ["parquet", "duckdb", "lazy", "pandas", "pyarrow", "dask"])
def test_counts_in_cells_bound_every_metric_of_groups(engine, tmp_path):
    rows = random_rows(n=1500, ties=False)
    rows["conf"][:7] = [math.inf, -math.inf, 0.0, -0.0, math.nan, math.nan, 1e300]
    rows["model"] = [None if name == "m2" else name for name in rows["model"]]
    source = as_source(rows, engine, tmp_path / "rows")
    for bins in (2, 30):
        result = logs.evaluate(source, exact=False, bins=bins, by="model", nan="reject")
        assert list(result) == ["m0", "m1", "m3", None]
        for key, found in result.items():
            own = np.array([name == key for name in rows["model"]])
            reference = metrics.evaluate(**arrays_of(rows, own), nan="reject")
            assert (found.n, found.n_ood) == (reference.n, reference.n_ood)
            assert found.nan_rejected == reference.nan_rejected
            for name, bound in found.bounds.items():
                assert bound.low - TOLERANCE <= reference[name] <= bound.high + TOLERANCE, name
    with pytest.raises(InvalidInput, match="NaN"):
        logs.evaluate(source, exact=False, by="model")


def test_many_groups_share_the_cells(monkeypatch):
    from twofold.logs import cells

    monkeypatch.setattr(cells, "CELLS_OF_ALL", 40)
    rows = random_rows(n=800, ties=False)
    result = logs.evaluate(as_source(rows, "duckdb", None), exact=False, by="model", metrics=["aurc"])
    for key, found in result.items():
        own = np.array(rows["model"]) == key
        bound = found.bounds["aurc"]
        assert bound.low <= metrics.aurc(**arrays_of(rows, own)) <= bound.high
        assert 1e-4 < bound.high - bound.low < 0.2  # ten cells


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_found_as_by_bisection(seed):
    from twofold.logs._kernels import count_cells
    from twofold.logs.cells import Cuts

    rng = np.random.default_rng(seed)
    special = [-np.inf, np.inf, 0.0, -0.0, 5e-324, 1e308, -1e308, np.nan]
    conf = np.concatenate((rng.normal(size=3000) ** 3, np.repeat(0.25, 500), special))
    edges = np.unique(np.concatenate((rng.choice(conf[:3500], 300), [-np.inf, np.inf][:seed])))
    cuts = Cuts.at(edges)
    kind = rng.choice([0, 1, 3], len(conf)).astype(np.int8)
    code = rng.integers(0, 3, len(conf))
    counts = np.zeros(3 * 4 * (len(edges) + 1), np.uint32)
    missing, invalid = count_cells(conf, kind, code, *cuts.lookup, np.empty(64, np.int64), counts)
    expected = np.zeros((3, len(edges) + 1, 4), np.uint32)
    ranked = np.where(np.isnan(conf), -np.inf, conf)
    np.add.at(expected, (code, np.searchsorted(edges, ranked, side="right"), kind), 1)
    assert np.array_equal(counts.reshape(expected.shape), expected)
    assert (missing, invalid) == (1, 0)


def test_an_error_in_one_thread_ends_the_scan():
    from twofold.logs import cells, tables

    def fail(batches):
        for _ in batches:
            raise InvalidInput("stop here")
        return ()

    source = as_source(random_rows(n=5000), "duckdb", None)
    with tables.open_table(source) as table, pytest.raises(InvalidInput, match="stop here"):
        cells.fold(table, ("conf",), fail, workers=3)


def test_intervals_are_close_to_those_of_rows():
    rows = random_rows(n=1500)
    found = logs.evaluate(as_source(rows, "duckdb", None), conf_ood="conf_ood", resamples=400)
    reference = metrics.intervals(
        **arrays_of(rows), conf_ood=rows["conf_ood"], only=["aurc", "augrc", "f1", "auroc_ood"], n=400
    )
    for name, interval in reference.items():
        width = interval.high - interval.low
        assert found.intervals[name].low == pytest.approx(interval.low, abs=0.2 * width)
        assert found.intervals[name].high == pytest.approx(interval.high, abs=0.2 * width)


# What is wrong with rows


@pytest.mark.parametrize("engine", ["duckdb", "pandas", "pyarrow", "polars", "dask"])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("conf", math.nan, "NaN"),
        ("correct", None, "correct must be booleans or 0/1"),
        ("correct", 2, "correct must be booleans or 0/1"),
        ("is_id", None, "is_id must be booleans or 0/1"),
    ],
)
def test_bad_rows_are_an_error(engine, column, value, message):
    columns = {"correct": [1, 0, 0], "conf": [0.9, 0.5, 0.1], "is_id": [1, 1, 0]}
    columns[column] = [*columns[column][:2], value]
    with pytest.raises(InvalidInput, match=message):
        logs.evaluate(as_source(columns, engine, None))


@pytest.mark.parametrize("engine", ["duckdb", "pyarrow"])
def test_correct_ood_rows_empty_tables_and_wrong_types_are_errors(engine):
    wrong = {"correct": [True, True], "conf": [0.9, 0.5], "is_id": [True, False]}
    with pytest.raises(InvalidInput, match="correct must be False on OOD samples"):
        logs.evaluate(as_source(wrong, engine, None))
    rows = {"correct": [True, False], "conf": [0.9, 0.5], "text": ["a", "b"]}
    with pytest.raises(InvalidInput, match=r"no row|is empty"):
        logs.evaluate(as_source(rows, engine, None), where="conf > 1")
    with pytest.raises(InvalidInput, match=r"conf must hold numbers|must be floats"):
        logs.evaluate(as_source(rows, engine, None), conf="text")
    with pytest.raises(InvalidInput, match="correct must"):
        logs.evaluate(as_source(rows, engine, None), correct="text")
    with pytest.raises(UnknownName, match="no column 'confi'; did you mean 'conf'"):
        logs.evaluate(as_source(rows, engine, None), conf="confi")
    with pytest.raises(InvalidInput, match="ood_share"):
        logs.evaluate(as_source(rows, engine, None), ood_share=0.5)
    with pytest.raises(UnknownName, match="aurcc"):
        logs.evaluate(as_source(rows, engine, None), metrics=["aurcc"])


def test_labels_and_predictions_make_correct_and_is_id(tmp_path):
    columns = {"label": [0, 1, 1, -1], "prediction": [0, 1, 0, 0], "conf_id": [0.9, 0.8, 0.3, 0.2]}
    for engine in ("duckdb", "pandas", "polars"):
        found = logs.evaluate(as_source(columns, engine, tmp_path))
        reference = metrics.evaluate([1, 1, 0, 0], columns["conf_id"], is_id=[1, 1, 1, 0])
        assert_equal(found, reference)
        source = as_source(columns, engine, tmp_path)
        assert_equal(logs.evaluate(source, correct="label = prediction"), reference)
        assert logs.evaluate(source, correct="label = prediction", is_id="true").n_ood == 0
        assert logs.evaluate(source, correct="label = prediction", is_id="label <> 1 or prediction = 1").n_ood == 1


def test_labels_that_are_no_whole_numbers_say_nothing_about_ood(tmp_path):
    columns = {"label": ["a", "-1"], "prediction": ["a", "b"], "conf": [0.9, 0.8]}
    for engine in ("duckdb", "pandas"):
        assert logs.evaluate(as_source(columns, engine, tmp_path)).n_ood == 0


EVIL = ['a"b', "x'); DROP TABLE rows; --", "a.b", "select", "ü n\tï", "c; copy (select 1) to 'stolen'", "`a`"]


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("engine", ["parquet", "query", "polars", "dask"])
def test_column_names_are_never_run(name, engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = random_rows(n=60)
    renamed = {name: rows["conf"], f"{name} right": rows["correct"], f"{name} model": rows["model"]}
    source = as_source(renamed, engine, tmp_path / "rows")
    result = logs.evaluate(source, correct=f"{name} right", conf=name, by=f"{name} model", metrics=["aurc"])
    for key, found in result.items():
        own = np.array(rows["model"]) == key
        expected = metrics.aurc(rows["correct"][own], rows["conf"][own])
        assert found.aurc == pytest.approx(expected, abs=TOLERANCE)
    assert not list(tmp_path.glob("*stolen*"))
    if engine == "query":
        assert source[0].sql("SELECT count(*) FROM rows").fetchall() == [(60,)]


@pytest.mark.parametrize("name", ["*", "^co.*$"])
def test_names_that_are_patterns_to_engines_are_errors(name):
    for engine in ("query", "polars"):
        with pytest.raises(InvalidInput, match="rename it first"):
            logs.evaluate(as_source(random_rows(n=20) | {name: np.zeros(20)}, engine, None), conf=name)


@pytest.mark.parametrize(
    "text", ["1; drop table rows", "(select 1)", "read_csv('/etc/passwd')", "conf >", "((((", "'", "conf conf", ""]
)
def test_texts_that_are_no_expressions_are_errors(text):
    with pytest.raises((InvalidInput, UnknownName)):
        logs.evaluate(as_source(random_rows(n=20), "duckdb", None), where=text or " ")


@pytest.mark.parametrize("engine", ["duckdb", "polars", "pandas", "pyarrow"])
@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("conf > 0.5 and not model = 'm1'", lambda r: (r["conf"] > 0.5) & (np.array(r["model"]) != "m1")),
        ("model in ('m1', 'm2') or conf <= -1e-1", lambda r: np.isin(r["model"], ["m1", "m2"]) | (r["conf"] <= -0.1)),
        ("-conf * 2 + 1 < abs(conf) / 3 - (1 - 2)", lambda r: -r["conf"] * 2 + 1 < abs(r["conf"]) / 3 + 1),
        ("conf is not null", lambda r: np.ones(len(r["conf"]), bool)),
        ('"conf" <> 0.1', lambda r: r["conf"] != 0.1),
    ],
)
def test_expressions(engine, text, function):
    rows = random_rows()
    found = logs.evaluate(as_source(rows, engine, None), where=text, metrics=["aurc"])
    assert_equal(found, metrics.evaluate(**arrays_of(rows, function(rows)), only=["aurc"]))


NAN_EXPRESSIONS = {
    "conf > 0": lambda c, o: c > 0,
    "not conf > 0": lambda c, o: ~(c > 0),
    "conf >= conf_ood": lambda c, o: c >= o,
    "conf < 0.5 or conf_ood <= 0": lambda c, o: (c < 0.5) | (o <= 0),
    "conf = conf": lambda c, o: c == c,
    "conf <> conf": lambda c, o: c != c,
    "conf != conf_ood": lambda c, o: c != o,
    "abs(conf) + 1 > conf_ood * 2": lambda c, o: np.abs(c) + 1 > o * 2,
    "exp(conf) / 2 <= 1 and not -conf = 0.3": lambda c, o: (np.exp(c) / 2 <= 1) & ~(-c == 0.3),
    "conf in (0.1, 0.2) or conf_ood > 1": lambda c, o: np.isin(c, [0.1, 0.2]) | (o > 1),
}


@pytest.mark.parametrize("engine", ["parquet", "dataset", "duckdb", "polars", "lazy", "pandas", "pyarrow", "dask"])
def test_nan_compares_as_in_arrays(engine, tmp_path):
    rows = random_rows(n=200)
    rows["conf"][::5] = math.nan
    rows["conf_ood"][::7] = math.nan
    rows["one"] = np.ones(200)
    source = as_source(rows, engine, tmp_path / "rows")
    for text, function in NAN_EXPRESSIONS.items():
        kept = function(rows["conf"], rows["conf_ood"])
        if not kept.any():
            continue
        found = logs.evaluate(source, conf="one", where=text, metrics=["accuracy"])
        assert found.n == kept.sum(), text
        assert found.accuracy == pytest.approx(np.mean(rows["correct"][kept & rows["is_id"]])), text
        groups = logs.evaluate(source, conf="one", by=text, metrics=["accuracy"])
        assert {key: one.n for key, one in groups.items()} == {True: kept.sum(), False: (~kept).sum()}, text


def test_nan_that_statistics_of_files_leave_out_is_found(tmp_path):
    rows = random_rows(n=100)
    rows["conf"][3] = math.nan
    path = as_source(rows, "parquet", tmp_path / "rows")
    for options in ({}, {"exact": False}, {"by": "model"}, {"exact": False, "by": "model"}):
        with pytest.raises(InvalidInput, match="NaN or null in 1 of 100 rows"):
            logs.evaluate(path, **options)
    rejected = logs.evaluate(path, nan="reject")
    assert_equal(rejected, metrics.evaluate(**arrays_of(rows), nan="reject"))
    assert rejected.nan_rejected == 1


def believing_relation(rows, path):
    """Read a Parquet file as callers do."""
    return pytest.importorskip("duckdb").connect().read_parquet(as_believed_file(rows, path))


def test_nan_that_statistics_leave_out_is_found_in_relations_over_files(tmp_path):
    rows = random_rows(n=100)
    rows["conf"][3] = math.nan
    relation = believing_relation(rows, tmp_path / "rows.parquet")
    for options in ({}, {"exact": False}, {"by": "model"}, {"exact": False, "by": "model"}):
        with pytest.raises(InvalidInput, match="NaN or null in 1 of 100 rows"):
            logs.evaluate(relation, **options)
    rejected = logs.evaluate(relation, nan="reject")
    assert_equal(rejected, metrics.evaluate(**arrays_of(rows), nan="reject"))
    assert rejected.nan_rejected == 1


def test_hidden_nan_is_an_error_if_an_engine_does_not_find_it(tmp_path, monkeypatch):
    from twofold.logs import tables

    rows = random_rows(n=100)
    rows["conf"][3] = math.nan
    relation = believing_relation(rows, tmp_path / "rows.parquet")
    monkeypatch.setattr(tables, "_keep_from_statistics", lambda relation: relation)
    for options in ({}, {"exact": False}, {"nan": "reject"}):
        with pytest.raises(InvalidInput, match="can_have_nan = true"):
            logs.evaluate(relation, **options)


def test_relations_keep_their_values_and_types():
    first = "(-0.0::DOUBLE, 'inf'::FLOAT, {'x': 1.5::DOUBLE}, [0.5::FLOAT], 1.25::DECIMAL(4, 2))"
    missing = "(NULL, NULL, NULL, NULL, NULL)"
    no_number = "('nan', 'nan', {'x': 'nan'::DOUBLE}, ['nan'::FLOAT], 2)"
    query = f'SELECT * FROM (VALUES {first}, {missing}, {no_number}) t(a, "b""c", d, e, f)'
    relation = pytest.importorskip("duckdb").connect().sql(query)
    with open_table(relation) as table:
        kept = table.frame.to_native()
        assert (kept.columns, kept.types) == (relation.columns, relation.types)
        assert repr(kept.fetchall()) == repr(relation.fetchall())


def test_relations_with_two_columns_of_one_name_are_rejected():
    relation = pytest.importorskip("duckdb").connect().sql("SELECT true AS correct, 0.5 AS conf, 0.9 AS conf")
    with pytest.raises(InvalidInput, match="two columns of the table are called conf"):
        logs.evaluate(relation)


@pytest.mark.parametrize("kind", ["scan", "relation", "believed"])
def test_nan_compares_as_in_arrays_in_scans_of_files(kind, tmp_path):
    rows = random_rows(n=200)
    rows["conf"][::5] = math.nan
    rows["one"] = np.ones(200)
    path = as_source(rows, "parquet", tmp_path / "rows")
    source = pytest.importorskip("polars").scan_parquet(path)
    if kind == "relation":
        query = f"SELECT * FROM read_parquet('{path}', can_have_nan = true)"
        source = pytest.importorskip("duckdb").connect().sql(query)
    if kind == "believed":
        source = believing_relation(rows, tmp_path / "rows.parquet")
    for text, kept in {"conf > 0": rows["conf"] > 0, "not conf < 1e9": ~(rows["conf"] < 1e9)}.items():
        assert logs.evaluate(source, conf="one", where=text, metrics=["accuracy"]).n == kept.sum()


# Files


def test_a_folder_that_grows_gives_the_rows_of_its_start(tmp_path, monkeypatch):
    rows = random_rows()
    folder = tmp_path / "rows"
    as_source(rows, "parquet", folder)
    original = _duckdb.ordered_batches

    def write_another_file(*arguments):
        (folder / "9.parquet").write_bytes((folder / "0.parquet").read_bytes())
        return original(*arguments)

    monkeypatch.setattr(_duckdb, "ordered_batches", write_another_file)
    assert_equal(logs.evaluate(folder), metrics.evaluate(**arrays_of(rows)))
    monkeypatch.undo()
    assert logs.evaluate(folder).n > len(rows["conf"])


def test_a_file_that_changes_is_an_error(tmp_path, monkeypatch):
    folder = tmp_path / "rows"
    as_source(random_rows(), "parquet", folder)
    original = _duckdb.ordered_batches

    def replace_file(*arguments):
        (folder / "1.parquet").write_bytes((folder / "0.parquet").read_bytes())
        os.utime(folder / "1.parquet", ns=(1, 1))
        return original(*arguments)

    monkeypatch.setattr(_duckdb, "ordered_batches", replace_file)
    with pytest.raises(InvalidInput, match="changed while it was read"):
        logs.evaluate(folder)


def test_links_missing_and_damaged_files_are_errors(tmp_path):
    with pytest.raises(InvalidInput, match="no Parquet, CSV or JSON-lines file matches"):
        logs.evaluate(tmp_path / "*.parquet")
    as_source(random_rows(), "parquet", tmp_path / "rows")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "rows" / "0.parquet")
    with pytest.raises(InvalidInput, match="not a regular file"):
        logs.evaluate(tmp_path / "link.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(InvalidInput, match="cannot be read"):
        logs.evaluate(tmp_path / "bad.parquet")
    (tmp_path / "rows" / "more.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="several formats"):
        logs.evaluate(tmp_path / "rows")
    with pytest.raises(InvalidInput, match="must end in"):
        logs.evaluate(__file__)
    with pytest.raises(InvalidInput, match="got int"):
        logs.evaluate(3)


def test_names_of_files_are_not_patterns(tmp_path):
    rows = random_rows(n=40)
    as_source(rows, "parquet", tmp_path / "a[0]*")
    (tmp_path / "a0").mkdir()
    (tmp_path / "a0" / "0.parquet").write_bytes(b"not read")
    assert logs.evaluate(tmp_path / "a[0]*").n == 40


KILLED = """
import sys, numpy as np, pyarrow as pa, pyarrow.parquet as pq
from twofold import logs
from twofold.logs import _duckdb
from twofold.logs.tables import open_table
original = _duckdb._read
def slow(*arguments):
    for batch in original(*arguments):
        print("streaming", flush=True)
        sys.stdin.readline()
        yield batch
_duckdb._read = slow
logs.evaluate(sys.argv[1], memory="200MB")
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_query_leaves_nothing_behind(how, tmp_path):
    as_source(random_rows(n=20_000, ties=False), "parquet", tmp_path / "rows")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch)}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "rows")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdout.readline() == b"streaming\n"
        assert len(list(scratch.iterdir())) == 1
        process.send_signal(how)
    if how == signal.SIGKILL:  # what it could not remove, the next one does
        done = subprocess.run(
            [sys.executable, "-c", "from twofold import logs; import sys; logs.evaluate(sys.argv[1])", command[-1]],
            env=environment,
            check=True,
            capture_output=True,
        )
        assert done.returncode == 0
    assert not list(scratch.iterdir())


def test_folders_of_running_processes_stay(tmp_path, monkeypatch):
    from twofold.logs import tables

    monkeypatch.setattr(tables.tempfile, "tempdir", str(tmp_path))
    own = tmp_path / f"twofold-logs-{os.getpid()}-abc"
    own.mkdir()
    (tmp_path / "twofold-logs-other").mkdir()
    tables._remove_leftovers()
    assert own.exists()
    assert (tmp_path / "twofold-logs-other").exists()


# Results


def test_groups_print_and_convert_as_one_table():
    result = logs.evaluate(as_source(random_rows(), "pyarrow", None), by="model", metrics=["accuracy", "aurc"])
    lines = str(result).splitlines()
    assert lines[0].split() == ["model", "n", "accuracy", "↑", "aurc", "↓"]
    assert len(lines) == 1 + len(result)
    assert result.to_pandas().loc["m1", "aurc"] == result["m1"].aurc
    assert result.to_arrow()["n"].to_pylist() == [one.n for one in result.values()]
    with pytest.raises(UnknownName, match="no group 'm9'"):
        result["m9"]
    import json

    content = json.loads(result.to_json())
    assert content["by"] == ["model"]
    assert content["groups"][0]["group"] == ["m0"]


def test_results_are_small_and_escaped_in_notebooks():
    rows = random_rows()
    rows["<b>model"] = [f"<script>{name}</script>" for name in rows.pop("model")]
    source = as_source(rows, "pyarrow", None)
    result = logs.evaluate(source, resamples=10, is_id="is_id")
    assert len(repr(result)) < 250
    assert repr(result).startswith("TableEvaluation(300 samples")
    assert "interval" in result._repr_html_()
    binned = logs.evaluate(source, exact=False, bins=5)
    assert "exact value in" in binned._repr_html_()
    groups = logs.evaluate(source, by="<b>model", metrics=["aurc"])
    assert repr(groups) == "GroupedEvaluation(300 rows in 4 groups by <b>model)"
    html = groups._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;m1&lt;/script&gt;" in html
    many = logs.evaluate(as_source(random_rows(n=3000, groups=900), "pyarrow", None), by="model", metrics=["aurc"])
    assert len(many._repr_html_()) < 20_000
    assert "more" in many._repr_html_()


def test_many_groups_are_one_query(tmp_path):
    rows = random_rows(n=3000, groups=500)
    before = time.perf_counter()
    result = logs.evaluate(as_source(rows, "parquet", tmp_path / "rows"), by="model")
    assert len(result) == len(set(rows["model"]))
    assert time.perf_counter() - before < 60


def test_groups_whose_hashes_collide_are_kept_apart(tmp_path, monkeypatch):
    rows = random_rows(n=400)
    source = as_source(rows, "duckdb", None)
    expected = logs.evaluate(source, by="model", metrics=["aurc"])

    original = _duckdb.group_order

    def by_columns(counted, groups):
        found, _ = original(counted, groups)
        found.sort(key=lambda row: row["g0"])
        return found, tuple(groups)

    monkeypatch.setattr("twofold.logs._duckdb.group_order", by_columns)
    again = logs.evaluate(source, by="model", metrics=["aurc"])
    assert {key: one.aurc for key, one in again.items()} == {key: one.aurc for key, one in expected.items()}


def test_nothing_is_written_beside_the_table(tmp_path):
    source = as_source(random_rows(), "parquet", tmp_path / "rows")
    before = sorted(Path(tmp_path).rglob("*"))
    logs.evaluate(source)
    assert sorted(Path(tmp_path).rglob("*")) == before


@pytest.mark.parametrize("name", ["logs", "logs_growth", "logs_spark"])
def test_the_page_shows_what_was_measured(name):
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "logs.md").read_text(encoding="utf-8")
    with open(root / "results" / f"{name}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert f"| {row['value']}" in page, row
        if row["target"] != "-":
            limit = float(row["target"].split()[1])
            assert float(row["value"]) <= limit, row
