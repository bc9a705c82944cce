"""`evaluate`: the same values as the metrics themselves, from one sort, and a result one can keep."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import twofold
from twofold import metrics
from twofold.errors import InvalidInput, UnknownName
from twofold.metrics.evaluate import EvaluatedSamples, ResampledMetrics

STANDARD = [
    "accuracy",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
]
WITH_ID = ["aurc_id", "f1", "auroc_ood", "fpr95_ood", "fpr95_unsafe_ood"]
WITH_TWO = ["ds_f1", "ds_aurc"]


def samples(n=60, seed=0, levels=9):
    rng = np.random.default_rng(seed)
    is_id = rng.random(n) < 0.6
    is_id[:3] = True, True, False
    correct = is_id & (rng.random(n) < 0.7)
    correct[:2] = True, False
    return correct, rng.integers(0, levels, n) / 4, rng.integers(0, levels, n) / 4, is_id


def expected(name, correct, conf, is_id=None, conf_ood=None, ood_share=None):
    """The value by the metric's own function; a suffix _ood means ID against OOD."""
    known = np.ones(len(correct), bool) if is_id is None else is_id
    if name == "accuracy":
        return correct[known].mean()
    record = metrics.info(name)
    if record.task == "ood":
        return metrics.info(record.failure_form).value(is_id, conf if conf_ood is None else conf_ood)
    have = {
        "correct": correct,
        "truth": correct,
        "conf": conf,
        "conf_id": conf,
        "conf_ood": conf_ood,
        "is_id": is_id,
    }
    settings = {}
    if ood_share is not None:
        assert "ood_share" in inspect.signature(record.function).parameters
        settings["ood_share"] = ood_share
    return record.value(**{a: have[a] for a in record.arrays if have.get(a) is not None}, **settings)


# -------------------------------------------------------------------------------- values


def test_the_standard_sets():
    correct, conf, conf_ood, is_id = samples()
    assert list(metrics.evaluate(correct, conf)) == STANDARD
    assert list(metrics.evaluate(correct, conf, is_id=is_id)) == STANDARD + WITH_ID
    both = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood)
    assert list(both) == STANDARD + WITH_ID + WITH_TWO
    assert twofold.evaluate is metrics.evaluate


@pytest.mark.parametrize("only", [None, "all"])
@pytest.mark.parametrize("arrays", ["conf", "is_id", "both"])
def test_every_value_is_that_of_the_metric_itself(arrays, only):
    for seed in range(4):
        correct, conf, conf_ood, is_id = samples(seed=seed)
        given = {} if arrays == "conf" else {"is_id": is_id}
        if arrays == "both":
            given["conf_ood"] = conf_ood
        result = metrics.evaluate(correct, conf, only=only, **given)
        assert not result.reasons
        for name, got in result.items():
            assert type(got) is float
            assert got == pytest.approx(expected(name, correct, conf, **given), abs=1e-12), name


def test_all_means_every_metric_these_arrays_allow():
    correct, conf, conf_ood, is_id = samples()
    needs = {n: set(metrics.info(n).arrays) for n in metrics.names()}
    everything = {n for n in needs if not needs[n] & {"labels", "logits", "prob", "passes"}} | {"accuracy"}
    of_pairs, of_ood = {"ds_f1", "ds_aurc"}, set(metrics.names("ood"))
    assert {"auroc_ood", "fpr95_ood"} < of_ood < everything
    got = set(metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, only="all"))
    assert got == everything
    got = set(metrics.evaluate(correct, conf, is_id=is_id, only="all"))
    assert got == everything - of_pairs
    got = set(metrics.evaluate(correct, conf, only="all"))
    assert got == everything - of_pairs - of_ood - {"joint_aurc", "joint_augrc", "oscr"}
    got = set(metrics.evaluate(correct, conf, prob=np.full(len(conf), 0.5), is_id=is_id, only="all"))
    assert got == everything - of_pairs | {"ece", "mce", "smooth_ece"}


def test_calibration_is_of_id_samples_alone():
    correct, conf, _, is_id = samples()
    prob = np.linspace(0, 1, len(conf))
    got = metrics.evaluate(correct, conf, is_id=is_id, prob=prob, ood_share=0.3, only=["ece", "mce"])
    assert got["ece"] == metrics.ece(correct[is_id], prob[is_id])
    assert got["mce"] == metrics.mce(correct[is_id], prob[is_id])
    assert metrics.evaluate(correct, conf, prob=prob, only="ece")["ece"] == metrics.ece(correct, prob)
    nobody = metrics.evaluate([False, False], [1.0, 2.0], is_id=[False, False], prob=[0.5, 0.5], only="ece")
    assert nobody.reasons == {"ece": "ece needs at least one ID sample"}
    with pytest.raises(InvalidInput, match=r"prob must be in \[0, 1\], got 1.5 in row 0"):
        metrics.evaluate([True], [1.0], prob=[1.5], only="ece")
    with pytest.raises(InvalidInput, match="prob has 1 rows but correct has 2"):
        metrics.evaluate([True, False], [1.0, 2.0], prob=[0.5])


@pytest.mark.parametrize("with_two", [False, True], ids=["one score", "two scores"])
def test_an_ood_share_is_the_one_of_the_metric(with_two):
    for seed in range(3):
        correct, conf, conf_ood, is_id = samples(seed=seed)
        given = {"is_id": is_id, "ood_share": 0.2} | ({"conf_ood": conf_ood} if with_two else {})
        names = [
            "aurc",
            "eaurc",
            "naurc",
            "augrc",
            "eaugrc",
            "achievable_aurc",
            "f1",
            "aurc_id",
            "joint_aurc",
        ]
        names += ["joint_augrc", *(WITH_TWO if with_two else [])]
        result = metrics.evaluate(correct, conf, only=names, **given)
        assert result.ood_share == 0.2
        for name in names:
            assert result[name] == pytest.approx(expected(name, correct, conf, **given), abs=1e-12), name


@pytest.mark.parametrize("with_two", [False, True], ids=["one score", "two scores"])
def test_an_ood_share_means_copies_for_every_metric(with_two):
    """OOD samples of weight 3 are three copies each; ID against OOD (suffix _ood) takes samples as they are."""
    for seed in range(3):
        correct, conf, conf_ood, is_id = samples(seed=seed)
        inside, outside = int(is_id.sum()), int((~is_id).sum())
        share = 3 * outside / (inside + 3 * outside)
        times = np.where(is_id, 1, 3)
        extra = {"conf_ood": conf_ood} if with_two else {}
        got = metrics.evaluate(correct, conf, is_id=is_id, ood_share=share, only="all", **extra)
        want = metrics.evaluate(
            *(np.repeat(a, times) for a in (correct, conf)),
            is_id=np.repeat(is_id, times),
            only="all",
            **{k: np.repeat(v, times) for k, v in extra.items()},
        )
        assert list(got) == list(want)
        assert set(got.reasons) <= {"autc"}  # it has no form with a share, and says so
        wrong = {
            name: (got[name], want[name])
            for name in got
            if name not in ("eaurc", "naurc", "prr", *got.reasons)
            and not name.endswith("_ood")
            and got[name] != pytest.approx(want[name], abs=1e-12)
        }
        assert not wrong
        for name in [n for n in got if n.endswith("_ood")]:
            assert got[name] == pytest.approx(expected(name, correct, conf, is_id, **extra), abs=1e-12)


def test_an_ood_share_does_not_move_a_roc_curve_by_rounding():
    """All failures are OOD samples, so one weight scales a whole class: rates stay, 19 of 20 stay 0.95."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        is_id, conf = np.repeat([True, False], 20), rng.permutation(40) * 1.0
        names = ["auroc", "fpr95", "fpr95_unsafe", "detection_error"]
        names += [f"{n}_ood" for n in names]  # every failure is OOD, so both forms are the same
        result = metrics.evaluate(is_id, conf, is_id=is_id, ood_share=float(rng.random()), only=names)
        for name in names:
            want = metrics.info(name).value(is_id, conf)
            assert result[name] == pytest.approx(want, abs=1e-12), (seed, name)


def test_an_ood_share_of_zero_leaves_the_id_samples():
    correct, conf = np.array([True, False, False, True]), np.array([0.9, 0.7, 0.95, 0.3])
    is_id = np.array([True, True, False, True])
    got = metrics.evaluate(correct, conf, is_id=is_id, ood_share=0.0)
    want = metrics.evaluate(correct[is_id], conf[is_id])
    for name in STANDARD:
        assert got[name] == pytest.approx(want[name], abs=1e-12)


# -------------------------------------------------------------------------------- choosing metrics


def test_only_some():
    correct, conf, _, is_id = samples()
    result = metrics.evaluate(correct, conf, is_id=is_id, only=["f1", "aupr_ood", "accuracy"])
    assert list(result) == ["f1", "aupr_ood", "accuracy"]
    assert list(metrics.evaluate(correct, conf, only="aurc")) == ["aurc"]
    assert list(metrics.evaluate(correct, conf, only=(n for n in ("aurc", "auroc")))) == ["aurc", "auroc"]


def test_none_at_all():
    empty = metrics.evaluate([True, False], [1.0, 0.0], only=[])
    assert len(empty) == 0
    assert "2 samples" in str(empty)


def test_an_unknown_name_suggests_the_nearest():
    correct, conf, _, is_id = samples()
    with pytest.raises(UnknownName, match=r"no metric 'aucr'; did you mean .*'aurc'"):
        metrics.evaluate(correct, conf, only=["aurc", "aucr"])
    with pytest.raises(UnknownName, match=r"no metric 'auroc_oood'; did you mean 'auroc_ood'"):
        metrics.evaluate(correct, conf, is_id=is_id, only=["auroc_oood"])


def test_a_metric_whose_arrays_are_missing_says_so():
    correct, conf, _, is_id = samples()
    with pytest.raises(InvalidInput, match="ds_f1 needs conf_id and conf_ood, which evaluate was not given"):
        metrics.evaluate(correct, conf, is_id=is_id, only=["ds_f1"])
    with pytest.raises(InvalidInput, match="oscr needs is_id, which evaluate was not given"):
        metrics.evaluate(correct, conf, only=["oscr"])
    with pytest.raises(InvalidInput, match="nll needs labels and logits, which evaluate was not given"):
        metrics.evaluate(correct, conf, only=["nll"])
    with pytest.raises(InvalidInput, match="conf_ood needs is_id"):
        metrics.evaluate(correct, conf, conf_ood=conf)


def test_an_ood_metric_without_is_id_says_what_is_missing():
    correct, conf, _, _ = samples()
    with pytest.raises(InvalidInput, match="auroc_ood needs is_id"):
        metrics.evaluate(correct, conf, only=["auroc_ood"])


# -------------------------------------------------------------------------------- undefined values


def test_one_class_gives_nan_with_the_reason():
    result = metrics.evaluate([True, True], [0.2, 0.1])
    undefined = set(STANDARD) - {"accuracy", "aurc", "eaurc", "augrc"}
    assert set(result.reasons) == undefined
    for name in STANDARD:
        assert math.isnan(result[name]) == (name in undefined)
    assert "no unsafe (False) sample" in result.reasons["auroc"]
    result = metrics.evaluate([True, False], [0.2, 0.1], is_id=[True, True])
    assert set(result.reasons) == {"auroc_ood", "fpr95_ood", "fpr95_unsafe_ood"}


@pytest.mark.parametrize("with_two", [False, True], ids=["one score", "two scores"])
def test_only_ood_samples_give_nan_with_the_reason(with_two):
    conf = np.array([0.2, 0.1, 0.1])
    extra = {"conf_ood": conf} if with_two else {}
    result = metrics.evaluate([False] * 3, conf, is_id=[False] * 3, **extra)
    assert result["aurc"] == 1.0
    assert (result.n, result.n_id, result.n_ood) == (3, 0, 3)
    for name in ["accuracy", *WITH_ID, *(WITH_TWO if with_two else [])]:
        assert math.isnan(result[name]), name
        assert result.reasons[name], name


def test_infinite_confidences_are_legal_whatever_is_computed():
    """Only autc cannot use them; it alone is undefined."""
    correct, conf, conf_ood, is_id = samples()
    conf[:2], conf_ood[:3] = np.inf, -np.inf
    plain = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood)
    assert not plain.reasons
    result = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, only="all")
    assert set(result.reasons) == {"autc", "autc_ood"}


# -------------------------------------------------------------------------------- NaN


def test_rejected_nan_is_counted():
    correct, conf, conf_ood, is_id = samples()
    lowest, lowest_ood = conf.copy(), conf_ood.copy()
    conf[[4, 9]], lowest[[4, 9]] = np.nan, -np.inf
    conf_ood[[9, 11]], lowest_ood[[9, 11]] = np.nan, -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the count is in the result, so no warning is needed
        one = metrics.evaluate(correct, conf, is_id=is_id, nan="reject")
        two = metrics.evaluate(correct, conf, is_id=is_id, conf_ood=conf_ood, nan="reject")
    assert (one.nan_rejected, two.nan_rejected) == (2, 3)  # rows, not entries
    assert dict(one) == dict(metrics.evaluate(correct, lowest, is_id=is_id))
    assert dict(two) == dict(metrics.evaluate(correct, lowest, is_id=is_id, conf_ood=lowest_ood))
    assert "2 with NaN confidence ranked lowest" in str(one)
    with pytest.raises(InvalidInput, match=r"conf has NaN in row 4 \(2 of 60 rows\)"):
        metrics.evaluate(correct, conf, is_id=is_id)
    with pytest.raises(InvalidInput, match=r"conf_ood has NaN in row 9 \(2 of 60 rows\)"):
        metrics.evaluate(correct, lowest, is_id=is_id, conf_ood=conf_ood)


# -------------------------------------------------------------------------------- the result


def test_the_result_is_a_mapping_with_attributes():
    correct, conf, _, is_id = samples()
    result = metrics.evaluate(correct, conf, is_id=is_id)
    assert len(result) == len(STANDARD + WITH_ID)
    assert result.aurc == result["aurc"] == dict(result)["aurc"]
    assert "aurc" in result
    assert "aucr" not in result
    assert (result.n, result.n_id, result.n_ood) == (60, int(is_id.sum()), int((~is_id).sum()))
    with pytest.raises(UnknownName, match=r"no metric in this evaluation 'aucr'; did you mean .*'aurc'"):
        result["aucr"]
    with pytest.raises(AttributeError, match="has no 'aucr'"):
        result.aucr  # noqa: B018
    assert dict(copy.copy(result)) == dict(pickle.loads(pickle.dumps(result))) == dict(result)


def test_to_dict_and_strict_json():
    result = metrics.evaluate([True, True], [np.inf, 0.1], is_id=[True, True])
    data = result.to_dict()
    assert data["n"] == data["n_id"] == 2
    assert (data["n_ood"], data["nan_rejected"], data["ood_share"]) == (0, 0, None)
    assert list(data["metrics"]) == list(result)
    assert data["reasons"] == result.reasons

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    read = json.loads(result.to_json(), parse_constant=refuse)
    assert read["metrics"]["auroc"] is None
    assert "auroc" in read["reasons"]
    assert read["metrics"]["aurc"] == result.aurc
    assert "\n" not in result.to_json(indent=None)
    assert result.to_json() == json.dumps(read, indent=2)
    data["metrics"]["aurc"] = 99.0  # a copy
    assert result.aurc != 99.0


def test_to_pandas():
    result = metrics.evaluate([True, True], [0.2, 0.1])
    series = result.to_pandas()
    assert isinstance(series, pd.Series)
    assert series.dtype == np.float64
    assert list(series.index) == list(result)
    assert series["aurc"] == result.aurc
    assert math.isnan(series["auroc"])


def test_the_text_names_directions_and_reasons():
    text = str(metrics.evaluate([True, True, False], [0.2, 0.1, 0.3], is_id=[True, True, True]))
    first, *rows, last = text.splitlines()
    assert first == "3 samples (3 ID, 0 OOD)"
    assert last == "aurc, eaurc, augrc: coverage of all samples; aurc_id: coverage of ID samples"
    by_name = {row.split()[0]: row for row in rows}
    assert list(by_name) == STANDARD + WITH_ID
    assert by_name["aurc"].split() == ["aurc", "↓", "0.61111"]  # (1 + 1/2 + 1/3) / 3
    assert "↑" in by_name["accuracy"]
    assert "↑" in by_name["auroc"]
    assert "undefined: " in by_name["auroc_ood"]


def test_bad_arrays_are_refused_at_the_door():
    with pytest.raises(InvalidInput, match="conf has 3 rows but correct has 2"):
        metrics.evaluate([True, False], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match="correct must be False on OOD samples, got True in row 0"):
        metrics.evaluate([True, False], [1.0, 2.0], is_id=[False, True])
    with pytest.raises(InvalidInput, match="is empty"):
        metrics.evaluate([], [])
    with pytest.raises(InvalidInput, match="at least one of each"):
        metrics.evaluate([True, False], [1.0, 2.0], ood_share=0.5)
    with pytest.raises(InvalidInput, match=r"ood_share must be in \[0, 1\), got 1.0"):
        metrics.evaluate([True, False], [1.0, 2.0], is_id=[True, False], ood_share=1.0)


# -------------------------------------------------------------------------------- intervals and resamples


@pytest.mark.parametrize("with_two", [False, True], ids=["one score", "two scores"])
@pytest.mark.parametrize("share", [None, 0.2])
def test_intervals_are_of_the_values_of_evaluate(share, with_two):
    correct, conf, conf_ood, is_id = samples()
    given = {"is_id": is_id, "ood_share": share} | ({"conf_ood": conf_ood} if with_two else {})
    result = metrics.evaluate(correct, conf, only="all", **given)
    done = []
    table = metrics.intervals(correct, conf, only="all", n=20, done=lambda: done.append(1), **given)
    assert list(table) == list(result)
    assert len(done) == len(table)
    for name, interval in table.items():
        if name in result.reasons:
            assert math.isnan(interval.value)
            assert math.isnan(interval.low)
        else:
            assert interval.value == pytest.approx(result[name], abs=1e-12), name
            assert interval.low <= interval.high


@pytest.mark.parametrize("with_two", [False, True], ids=["one score", "two scores"])
@pytest.mark.parametrize("share", [None, 0.2])
def test_resampled_metrics_are_those_of_the_drawn_rows(share, with_two):
    correct, conf, conf_ood, is_id = samples()
    everything = EvaluatedSamples(correct, conf, is_id, conf_ood if with_two else None, ood_share=share)
    names = ["accuracy", "aurc", "f1", "auroc", "auroc_ood", "fpr95_ood", "autc_ood", "oscr"]
    resampled = ResampledMetrics(everything, names, {})
    for seed in range(3):
        weights = np.random.default_rng(seed).poisson(1.0, len(conf)).astype(np.uint8)
        drawn = everything[np.repeat(np.arange(len(conf)), weights)]
        got = resampled.values(weights)
        assert list(got) == names
        for name in names:
            assert got[name] == pytest.approx(drawn.value(name), abs=1e-12), name


def test_a_resample_without_a_value_is_nan():
    samples = EvaluatedSamples(np.array([True, False]), np.array([1.0, 0.0]))
    got = ResampledMetrics(samples, ["auroc", "aurc"], {}).values(np.array([2, 0], np.uint8))
    assert math.isnan(got["auroc"])
    assert got["aurc"] == 0.0
