"""Two scores and two thresholds: exact metrics against brute force over all pairs, grids against counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_inputs import pair
from oracles import (
    best_f1,
    counts,
    empirical,
    least_risks,
    least_risks_by_rows,
    published_area,
    published_f1,
    running_risks,
)

from twofold import metrics
from twofold.errors import InvalidInput

# Section 1.7 of the SURE+ paper's sheet: six ID samples, then three OOD ones
CORRECT = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0], bool)
IS_ID = np.arange(9) < 6
S_ID = np.array([0.95, 0.90, 0.80, 0.70, 0.60, 0.40, 0.85, 0.55, 0.30])
S_OOD = np.array([5.0, 1.0, 4.0, 3.0, 2.0, -1.0, 0.0, 2.5, -2.0])


def continuous_pair(inside, outside, seed, accuracy=0.77):
    """No ties: a score that sees mistakes and a score that sees OOD samples."""
    rng = np.random.default_rng(seed)
    is_id = np.arange(inside + outside) < inside
    correct = is_id & (rng.random(inside + outside) < accuracy)
    conf_id = rng.normal(size=len(is_id)) + 1.2 * correct + 0.4 * is_id
    conf_ood = rng.normal(size=len(is_id)) + 1.5 * is_id
    return correct, conf_id, conf_ood, is_id


def ood_weight(is_id, share):
    inside = int(is_id.sum())
    return 1.0 if share is None else share / (1 - share) * inside / (len(is_id) - inside)


# -------------------------------------------------------------------------------- the sheet's unit vector


def test_unit_vector_exact():
    best = metrics.ds_f1(CORRECT, S_ID, S_OOD, IS_ID)
    assert best.value == pytest.approx(8 / 11)
    assert (best.tau_id, best.tau_ood) == (0.60, 1.0)
    assert (best.true_accept, best.accepted, best.accepted_id, best.accepted_ood) == (4, 5, 5, 0)
    assert best.precision == pytest.approx(0.8)
    assert best.recall == pytest.approx(4 / 6)
    assert best.risk == pytest.approx(0.2)
    assert best.coverage == pytest.approx(5 / 6)
    assert best.method == "exact"
    curve = metrics.ds_risk_coverage_curve(CORRECT, S_ID, S_OOD, IS_ID)
    assert curve.risk == pytest.approx([0, 0, 0, 0.25, 0.2, 0.5])
    assert curve.coverage == pytest.approx(np.arange(1, 7) / 6)
    assert metrics.ds_aurc(CORRECT, S_ID, S_OOD, IS_ID) == pytest.approx(0.158333, abs=5e-7)
    assert metrics.ds_aurc(CORRECT, S_ID, S_OOD, IS_ID, monotone=True) == pytest.approx((0.2 + 0.2 + 0.5) / 6)
    for score, area in ((S_ID, 0.247222), (S_OOD, 0.261111)):
        assert metrics.f1(CORRECT, score, IS_ID).value == pytest.approx(2 / 3)
        assert metrics.aurc_id(CORRECT, score, IS_ID) == pytest.approx(area, abs=5e-7)
    # without the OOD samples: the mean form, and the trapezoid from 1/n to 1 of the released code
    only = S_ID[IS_ID], CORRECT[IS_ID]
    assert metrics.aurc(only[1], only[0]) == pytest.approx(0.130556, abs=5e-7)
    risks = running_risks((~only[1]).astype(float))  # the vector is sorted already
    flat = metrics.aurc(only[1], only[0], estimator="trapezoid") - risks[0] / 6
    assert flat == pytest.approx(0.102778, abs=5e-7)


def test_unit_vector_published():
    for first, second, want in (
        (S_ID, S_OOD, (0.666667, 0.332333, 0.727273, 0.234000)),
        (S_ID, S_ID, (0.666667, 0.318167, 0.666667, 0.323167)),
    ):
        got = (
            metrics.f1(CORRECT, second, IS_ID, method="published").value,
            metrics.aurc(CORRECT, second, is_id=IS_ID, coverage="id", estimator="published"),
            metrics.ds_f1(CORRECT, first, second, IS_ID, method="published").value,
            metrics.ds_aurc(CORRECT, first, second, IS_ID, method="published"),
        )
        assert got == pytest.approx(want, abs=5.1e-7)


# -------------------------------------------------------------------------------- DS-F1, exactly


@pytest.mark.parametrize("levels", [2, 4, 12])
def test_ds_f1_and_its_thresholds_against_all_pairs(levels):
    """Value and tie-break: fewest accepted, then largest tau_id, then largest tau_ood; all ID scores."""
    for seed in range(70):
        correct, conf_id, conf_ood, is_id = pair(3 + seed % 14, seed, levels)
        value, accepted, taus = best_f1(correct, [conf_id, conf_ood], is_id)
        got = metrics.ds_f1(correct, conf_id, conf_ood, is_id)
        assert got.value == pytest.approx(value, abs=1e-14)
        if not correct.any():
            assert (got.value, got.tau_id, got.tau_ood, got.accepted) == (0.0, math.inf, math.inf, 0)
            continue
        assert got.accepted == accepted
        assert (got.tau_id, got.tau_ood) == taus
        passed = (conf_id >= got.tau_id) & (conf_ood >= got.tau_ood)
        assert (got.true_accept, got.accepted_id, got.accepted_ood) == counts(correct, is_id, passed)
        assert got.value == 2 * got.true_accept / (got.accepted + is_id.sum())
        assert got.precision == got.true_accept / got.accepted
        assert got.recall == got.true_accept / is_id.sum()
        assert got.risk == 1 - got.precision
        assert got.coverage == got.accepted_id / is_id.sum()


@pytest.mark.parametrize("levels", [3, 12])
def test_f1_and_its_threshold_against_all_thresholds(levels):
    for seed in range(60):
        correct, conf, _, is_id = pair(3 + seed % 14, seed, levels)
        value, accepted, taus = best_f1(correct, [conf], is_id)
        got = metrics.f1(correct, conf, is_id)
        assert got.value == pytest.approx(value, abs=1e-14)
        if correct.any():
            assert (got.accepted, got.threshold) == (accepted, *taus)
            passed = conf >= got.threshold
            assert (got.true_accept, got.accepted_id, got.accepted_ood) == counts(correct, is_id, passed)
            assert got.threshold in conf[correct]
        else:
            assert (got.threshold, got.accepted) == (math.inf, 0)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.8])
def test_f1_and_ds_f1_with_an_ood_share(share):
    for seed in range(50):
        correct, conf_id, conf_ood, is_id = pair(6 + seed % 12, seed, 6)
        if is_id.all():
            continue
        weight = ood_weight(is_id, share)
        for got, confs in (
            (metrics.ds_f1(correct, conf_id, conf_ood, is_id, ood_share=share), [conf_id, conf_ood]),
            (metrics.f1(correct, conf_ood, is_id, ood_share=share), [conf_ood]),
        ):
            assert got.value == pytest.approx(best_f1(correct, confs, is_id, weight)[0], abs=1e-12)
            if correct.any():
                taus = [got.tau_id, got.tau_ood] if len(confs) == 2 else [got.threshold]
                passed = np.all([c >= t for c, t in zip(confs, taus, strict=True)], axis=0)
                right, known, outside = counts(correct, is_id, passed)
                assert (got.true_accept, got.accepted_id) == (right, known)  # whole numbers stay whole
                assert got.accepted_ood == pytest.approx(weight * outside)
                assert got.accepted == pytest.approx(known + weight * outside)


def test_the_tie_break_with_a_weight_that_is_exact():
    """Four ID samples, two OOD ones and a share of 1/2: an OOD sample weighs exactly 2."""
    for seed in range(120):
        rng = np.random.default_rng(seed)
        is_id = np.array([True] * 4 + [False] * 2)
        correct = is_id & (rng.random(6) < 0.7)
        conf_id, conf_ood = rng.integers(0, 3, (2, 6)) / 2
        if correct.any():
            value, accepted, taus = best_f1(correct, [conf_id, conf_ood], is_id, 2.0)
            got = metrics.ds_f1(correct, conf_id, conf_ood, is_id, ood_share=0.5)
            assert got.value == pytest.approx(value, abs=1e-14)
            assert (got.accepted, got.tau_id, got.tau_ood) == (accepted, *taus)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from("rwo"), st.integers(0, 4), st.sampled_from([-math.inf, -1.5, 0.0, 2.0, math.inf])),
        min_size=1,
        max_size=12,
    )
)
def test_any_samples(samples):
    """Right, wrong and OOD samples; infinite scores; one sample; no OOD; no right answer."""
    kinds, conf_id, conf_ood = (np.array(c) for c in zip(*samples, strict=True))
    correct, is_id = kinds == "r", kinds != "o"
    if not is_id.any():
        with pytest.raises(InvalidInput, match="at least one ID sample"):
            metrics.ds_f1(correct, conf_id, conf_ood, is_id)
        return
    value, accepted, taus = best_f1(correct, [conf_id, conf_ood], is_id)
    got = metrics.ds_f1(correct, conf_id, conf_ood, is_id)
    assert (got.value, got.accepted) == (pytest.approx(value), accepted)
    if value:
        assert (got.tau_id, got.tau_ood) == taus
    for monotone in (False, True):
        want = least_risks(correct, [conf_id, conf_ood], is_id, monotone=monotone)
        curve = metrics.ds_risk_coverage_curve(correct, conf_id, conf_ood, is_id, monotone=monotone)
        assert curve.risk == pytest.approx(want, abs=1e-14)


def test_ds_f1_on_a_larger_set_against_rows():
    """700 ID samples: all pairs by cumulative sums."""
    correct, conf_id, conf_ood, is_id = continuous_pair(700, 600, 0)
    best = 0.0
    order = np.argsort(-conf_id)
    right, known = correct[order], is_id[order]
    for tau in conf_ood[is_id]:
        passed = conf_ood[order] >= tau
        best = max(best, (2 * np.cumsum(right & passed) / (np.cumsum(passed) + known.sum())).max())
    assert metrics.ds_f1(correct, conf_id, conf_ood, is_id).value == pytest.approx(best, abs=1e-14)


# -------------------------------------------------------------------------------- DS-AURC, exactly


@pytest.mark.parametrize("share", [None, 0.2, 0.75])
@pytest.mark.parametrize("levels", [2, 4, 12])
def test_ds_aurc_against_all_pairs(levels, share):
    """Pairs of all scores, OOD ones too: thresholds at ID scores must suffice."""
    for seed in range(40):
        correct, conf_id, conf_ood, is_id = pair(4 + seed % 10, seed, levels)
        if share is not None and is_id.all():
            continue
        weight = ood_weight(is_id, share)
        for monotone in (False, True):
            want = least_risks(correct, [conf_id, conf_ood], is_id, weight, monotone)
            arrays = correct, conf_id, conf_ood, is_id
            curve = metrics.ds_risk_coverage_curve(*arrays, monotone=monotone, ood_share=share)
            assert curve.risk == pytest.approx(want, abs=1e-12)
            assert curve.monotone is monotone
            got = metrics.ds_aurc(*arrays, monotone=monotone, ood_share=share)
            assert got == pytest.approx(math.fsum(want) / len(want), abs=1e-12)


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("monotone", [False, True])
def test_thresholds_of_the_curve_attain_what_it_says(monotone, share):
    for seed in range(60):
        correct, conf_id, conf_ood, is_id = pair(30, seed, 8)
        weight = ood_weight(is_id, share)
        curve = metrics.ds_risk_coverage_curve(correct, conf_id, conf_ood, is_id, monotone=monotone, ood_share=share)
        attained = []
        for k, (tau_id, tau_ood, risk) in enumerate(zip(curve.tau_id, curve.tau_ood, curve.risk, strict=True), 1):
            right, known, outside = counts(correct, is_id, (conf_id >= tau_id) & (conf_ood >= tau_ood))
            assert known >= k
            assert risk == pytest.approx(1 - right / (known + weight * outside), abs=1e-12)
            assert tau_id in conf_id[is_id]
            assert tau_ood in conf_ood[is_id]
            attained.append(known)
        if not monotone:  # a level without a pair repeats the next attained one
            for k, known in enumerate(attained, 1):
                assert known == k or attained[k] == known
        else:
            assert (np.diff(curve.risk) >= 0).all()


@pytest.mark.parametrize(
    ("inside", "outside", "levels", "share"),
    [
        (300, 200, None, None),
        (700, 500, None, None),
        (700, 500, 40, None),
        (1500, 1200, None, 0.7),
        (1800, 50, 500, None),
        (150, 4000, None, None),  # many samples on a line
    ],
)
def test_pruning_loses_nothing(inside, outside, levels, share):
    """The kernel skips squares of pairs; an unpruned sweep over every row finds the same risks."""
    arrays = list(continuous_pair(inside, outside, inside))
    if levels:
        for i in (1, 2):
            arrays[i] = np.round(arrays[i] * levels / 8)
    want = least_risks_by_rows(*arrays, ood_weight(arrays[3], share))
    curve = metrics.ds_risk_coverage_curve(*arrays, ood_share=share)
    assert curve.risk == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("share", [None, 0.6])
@pytest.mark.parametrize("kind", ["equal", "nearly equal", "saturated", "perfect", "one level"])
def test_pruning_loses_nothing_where_many_pairs_are_as_good(kind, share):
    """Pairs that accept the same samples, long ties and thresholds at the ends: the bounds meet what they exceed."""
    correct, conf_id, conf_ood, is_id = continuous_pair(900, 700, 3)
    rng = np.random.default_rng(4)
    if kind == "equal":
        conf_ood = conf_id
    elif kind == "nearly equal":
        conf_ood = conf_id + 1e-3 * rng.normal(size=len(conf_id))
    elif kind == "saturated":
        conf_id = np.minimum(conf_id, np.median(conf_id))
        conf_ood = np.minimum(conf_ood, np.quantile(conf_ood, 0.8))
    elif kind == "perfect":
        conf_id, conf_ood = conf_id + 100 * correct, conf_ood + 100 * is_id
    else:
        conf_ood = np.zeros(len(conf_id))
    want = least_risks_by_rows(correct, conf_id, conf_ood, is_id, ood_weight(is_id, share))
    curve = metrics.ds_risk_coverage_curve(correct, conf_id, conf_ood, is_id, ood_share=share)
    assert curve.risk == pytest.approx(want, abs=1e-12)


def test_the_cells_that_are_searched_grow_like_n_log_n(monkeypatch):
    """A larger world leaves about as many cells of each size, relative to n over their side."""
    from twofold.metrics import _envelope_kernels

    visited = []

    def count(*arguments):
        cells, size = arguments[5:7]
        visited.append(len(cells) * size)
        return refine(*arguments)

    refine = _envelope_kernels.refine_envelope
    monkeypatch.setattr(_envelope_kernels, "refine_envelope", count)
    densest = []
    for n in (2_000, 8_000):
        visited.clear()
        metrics.ds_aurc(*continuous_pair(n, n, 0))
        densest.append(max(visited) / n)
    assert densest[1] < 1.5 * densest[0]  # 4 if every cell were searched


def test_pruning_loses_nothing_when_scores_fight():
    """Scores that rank against each other, and a useless one: the best pairs are far from both axes."""
    rng = np.random.default_rng(0)
    n = 2200
    is_id = np.arange(n) < 1600
    correct = is_id & (rng.random(n) < 0.5)
    rank = rng.permutation(n).astype(float)
    for conf_ood in (-rank + rng.normal(0, 50, n), rng.permutation(n).astype(float)):
        want = least_risks_by_rows(correct, rank, conf_ood, is_id)
        got = metrics.ds_risk_coverage_curve(correct, rank, conf_ood, is_id)
        assert got.risk == pytest.approx(want, abs=1e-12)


# -------------------------------------------------------------------------------- laws


def test_the_two_scores_are_symmetric():
    for seed in range(40):
        correct, conf_id, conf_ood, is_id = pair(25, seed, 6)
        one = metrics.ds_f1(correct, conf_id, conf_ood, is_id)
        two = metrics.ds_f1(correct, conf_ood, conf_id, is_id)
        assert (one.value, one.accepted, one.true_accept) == (two.value, two.accepted, two.true_accept)
        for monotone in (False, True):
            areas = {
                metrics.ds_aurc(correct, a, b, is_id, monotone=monotone)
                for a, b in ((conf_id, conf_ood), (conf_ood, conf_id))
            }
            assert len(areas) == 1


@pytest.mark.parametrize("share", [None, 0.6])
def test_two_scores_are_never_worse_than_one(share):
    for seed in range(60):
        correct, conf_id, conf_ood, is_id = pair(20, seed, 3 + seed % 10)
        arrays = correct, conf_id, conf_ood, is_id
        both, area = (
            metrics.ds_f1(*arrays, ood_share=share),
            metrics.ds_aurc(*arrays, monotone=True, ood_share=share),
        )
        for conf in (conf_id, conf_ood):
            assert both.value >= metrics.f1(correct, conf, is_id, ood_share=share).value - 1e-12
            assert area <= metrics.aurc_id(correct, conf, is_id, ood_share=share) + 1e-12
        assert area <= metrics.ds_aurc(*arrays, ood_share=share) + 1e-12


def test_the_plain_form_is_below_either_score_without_ties():
    for seed in range(10):
        arrays = continuous_pair(60, 40, seed)
        area = metrics.ds_aurc(*arrays)
        for conf in arrays[1:3]:
            assert area <= metrics.aurc_id(arrays[0], conf, arrays[3]) + 1e-12


def test_the_plain_form_can_exceed_a_single_score_with_ties():
    """Why `monotone` exists: the other score can accept the wrong one of three tied samples alone."""
    correct, conf_id, conf_ood = [True, True, False], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0]
    assert metrics.aurc_id(correct, conf_id) == pytest.approx(1 / 3)
    assert metrics.ds_aurc(correct, conf_id, conf_ood) == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)
    assert metrics.ds_aurc(correct, conf_id, conf_ood, monotone=True) == pytest.approx(1 / 3)


def test_one_score_twice_without_ood_is_the_classical_area():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        correct, conf = rng.random(40) < 0.7, rng.permutation(40).astype(float)
        want = empirical((~correct).astype(float).tolist(), conf)
        assert metrics.ds_aurc(correct, conf, conf) == pytest.approx(want, abs=1e-12)
        assert metrics.ds_aurc(correct, conf, np.zeros(40)) == pytest.approx(want, abs=1e-12)
        assert metrics.ds_f1(correct, conf, conf).value == metrics.f1(correct, conf).value


@pytest.mark.parametrize("method", ["exact", "grid"])
def test_increasing_maps_change_nothing(method):
    correct, conf_id, conf_ood, is_id = continuous_pair(300, 200, 1)
    before = (
        metrics.ds_f1(correct, conf_id, conf_ood, is_id, method=method).value,
        metrics.ds_aurc(correct, conf_id, conf_ood, is_id, method=method),
    )
    for change in (np.exp, lambda x: x**3, lambda x: x - 15, lambda x: 1e300 * x):
        assert before == (
            metrics.ds_f1(correct, change(conf_id), conf_ood, is_id, method=method).value,
            metrics.ds_aurc(correct, change(conf_id), conf_ood, is_id, method=method),
        )
        assert before == (
            metrics.ds_f1(correct, conf_id, change(conf_ood), is_id, method=method).value,
            metrics.ds_aurc(correct, conf_id, change(conf_ood), is_id, method=method),
        )


# -------------------------------------------------------------------------------- degenerate sets


def test_no_id_error():
    """All ID answers right: accept exactly the ID samples when a score separates them."""
    is_id = np.array([True] * 4 + [False] * 3)
    best = metrics.ds_f1(is_id, [4, 3, 2, 1, 1.5, 2.5, 3.5], [1, 1, 1, 1, 0, 0, 0], is_id)
    assert (best.value, best.accepted, best.tau_id, best.tau_ood) == (1.0, 4, 1.0, 1.0)
    assert metrics.ds_aurc(is_id, [4, 3, 2, 1, 1.5, 2.5, 3.5], [1, 1, 1, 1, 0, 0, 0], is_id) == 0.0


def test_no_right_id_answer():
    correct, is_id, conf = [False] * 4, [True, True, False, False], [4.0, 3.0, 2.0, 1.0]
    best = metrics.ds_f1(correct, conf, conf, is_id)
    assert (best.value, best.tau_id, best.tau_ood) == (0.0, math.inf, math.inf)
    assert (best.accepted, best.risk, best.coverage, best.precision, best.recall) == (0, 0, 0, 0, 0)
    one = metrics.f1(correct, conf, is_id)
    assert (one.value, one.threshold, one.accepted) == (0.0, math.inf, 0)
    for method in ("grid", "published"):
        assert metrics.ds_f1(correct, conf, conf, is_id, method=method).tau_id == math.inf
        assert metrics.f1(correct, conf, is_id, method=method).threshold == math.inf
    curve = metrics.ds_risk_coverage_curve(correct, conf, conf, is_id)
    assert curve.risk.tolist() == [1.0, 1.0]
    assert metrics.ds_aurc(correct, conf, conf, is_id) == 1.0


@pytest.mark.parametrize("right", [True, False])
def test_one_sample(right):
    best = metrics.ds_f1([right], [0.3], [-7.0])
    assert best.value == float(right)
    assert (best.tau_id, best.tau_ood) == ((0.3, -7.0) if right else (math.inf, math.inf))
    assert metrics.ds_aurc([right], [0.3], [-7.0]) == float(not right)
    curve = metrics.ds_risk_coverage_curve([right], [0.3], [-7.0])
    assert (curve.coverage.tolist(), curve.tau_id.tolist(), curve.tau_ood.tolist()) == ([1.0], [0.3], [-7.0])


def test_missing_is_id_means_all_are_id():
    correct, conf_id, conf_ood, _ = pair(20, 0, ood=0.0)
    everyone = np.ones(20, bool)
    assert metrics.ds_f1(correct, conf_id, conf_ood) == metrics.ds_f1(correct, conf_id, conf_ood, everyone)
    assert metrics.ds_aurc(correct, conf_id, conf_ood) == metrics.ds_aurc(correct, conf_id, conf_ood, everyone)
    assert metrics.f1(correct, conf_id) == metrics.f1(correct, conf_id, everyone)


def test_settings_are_checked():
    arrays = CORRECT, S_ID, S_OOD, IS_ID
    for metric in (metrics.ds_f1, metrics.ds_aurc):
        with pytest.raises(InvalidInput, match="no choice 'exacT'; did you mean 'exact'"):
            metric(*arrays, method="exacT")
        with pytest.raises(InvalidInput, match="thresholds must be a whole number of at least 2, got 1"):
            metric(*arrays, method="grid", thresholds=1)
        with pytest.raises(InvalidInput, match="published grid has no ood_share"):
            metric(*arrays, method="published", ood_share=0.5)
    with pytest.raises(InvalidInput, match=r"bins must be a whole number of at least 1, got 0\.5"):
        metrics.ds_aurc(*arrays, method="grid", bins=0.5)
    for method in ("grid", "published"):
        with pytest.raises(InvalidInput, match="monotone is a form of the exact method"):
            metrics.ds_aurc(*arrays, method=method, monotone=True)
    with pytest.raises(InvalidInput, match=r"conf_ood has 8 rows but correct has 9"):
        metrics.ds_f1(CORRECT, S_ID, S_OOD[:-1], IS_ID)


# -------------------------------------------------------------------------------- quantile grid


@pytest.mark.parametrize("share", [None, 0.4])
def test_a_grid_finer_than_the_samples_is_exact(share):
    """More quantiles than samples: every score is a threshold. n_ID bins: every level has its own."""
    for seed in range(30):
        correct, conf_id, conf_ood, is_id = pair(20, seed, 3 + seed % 9)
        fine = {"method": "grid", "thresholds": 21, "ood_share": share}
        got, want = (metrics.ds_f1(correct, conf_id, conf_ood, is_id, **s) for s in (fine, {"ood_share": share}))
        assert (got.value, got.accepted) == (
            pytest.approx(want.value, abs=1e-12),
            pytest.approx(want.accepted),
        )
        single = metrics.f1(correct, conf_id, is_id, **fine)
        assert single.value == pytest.approx(metrics.f1(correct, conf_id, is_id, ood_share=share).value, abs=1e-12)
        got = metrics.ds_aurc(correct, conf_id, conf_ood, is_id, bins=int(is_id.sum()), **fine)
        want = metrics.ds_aurc(correct, conf_id, conf_ood, is_id, ood_share=share)
        assert got == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("n", [7, 20, 50, 100])
def test_as_many_quantiles_as_distinct_samples_are_all_of_them(n):
    """n evenly spaced quantiles of n distinct samples are the samples: no rounding may skip one."""
    correct, is_id = np.arange(n) % 3 > 0, np.ones(n, bool)
    conf = np.random.default_rng(n).permutation(n).astype(float)
    surface = metrics.f1_surface(correct, conf, conf, is_id, grid=n)
    assert surface.tau_id.tolist() == sorted(conf.tolist())
    got = metrics.ds_f1(correct, conf, -conf, is_id, method="grid", thresholds=n)
    assert got.value == pytest.approx(metrics.ds_f1(correct, conf, -conf, is_id).value, abs=1e-14)


def test_the_grid_is_close_to_exact_on_a_large_set():
    """Sheet 1.5: a thousand quantiles cost about 0.01 points of F1; the least risk in a 1 % bin reads low."""
    arrays = continuous_pair(4000, 4000, 3)
    exact, grid = metrics.ds_f1(*arrays), metrics.ds_f1(*arrays, method="grid")
    assert exact.value - 5e-4 <= grid.value <= exact.value
    assert grid.method == "grid"
    area, rough = metrics.ds_aurc(*arrays), metrics.ds_aurc(*arrays, method="grid")
    assert area - 0.008 <= rough <= area
    single = metrics.aurc_id(arrays[0], arrays[1], arrays[3])
    binned = metrics.aurc(arrays[0], arrays[1], is_id=arrays[3], coverage="id", estimator="grid")
    assert single - 0.008 <= binned <= single


def slow_binned(risk, known, inside, bins):
    """Mean over bins (j/K, (j+1)/K] of the least risk; an empty bin takes the next one to the right."""
    least = [math.inf] * bins
    for r, k in zip(risk, known, strict=True):
        if k:
            j = next(j for j in range(bins) if j * inside < k * bins <= (j + 1) * inside)
            least[j] = min(least[j], r)
    for j in range(bins - 2, -1, -1):
        least[j] = least[j + 1] if least[j] == math.inf else least[j]
    return math.fsum(least) / bins


@pytest.mark.parametrize("bins", [1, 7, 100])
def test_grid_and_surface_against_direct_counts(bins):
    for seed in range(8):
        correct, conf_id, conf_ood, is_id = pair(30, seed, 9)
        for share in (None, 0.2):
            weight, inside = ood_weight(is_id, share), int(is_id.sum())
            surface = metrics.f1_surface(correct, conf_id, conf_ood, is_id, grid=6, ood_share=share)
            for axis, conf in ((surface.tau_id, conf_id), (surface.tau_ood, conf_ood)):
                assert set(axis) <= set(conf)
                assert len(axis) <= 6
                assert (np.diff(axis) > 0).all()
                assert {conf.min(), conf.max()} <= set(axis)
            risks, known_counts = [], []
            for (i, a), (j, b) in itertools.product(enumerate(surface.tau_id), enumerate(surface.tau_ood)):
                right, known, outside = counts(correct, is_id, (conf_id >= a) & (conf_ood >= b))
                accepted = known + weight * outside
                risk = 1 - right / accepted if accepted else 0.0
                assert surface.f1[i, j] == pytest.approx(2 * right / (accepted + inside), abs=1e-12)
                assert surface.risk[i, j] == pytest.approx(risk, abs=1e-12)
                assert surface.coverage[i, j] == pytest.approx(known / inside, abs=1e-12)
                risks.append(risk)
                known_counts.append(known)
            best = metrics.ds_f1(correct, conf_id, conf_ood, is_id, method="grid", thresholds=6, ood_share=share)
            assert best.value == pytest.approx(surface.f1.max(), abs=1e-12)
            got = metrics.ds_aurc(
                correct, conf_id, conf_ood, is_id, method="grid", thresholds=6, bins=bins, ood_share=share
            )
            assert got == pytest.approx(slow_binned(risks, known_counts, inside, bins), abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_among_the_best_pairs_of_a_grid_the_strictest_is_taken(seed):
    """Fewest accepted, then the largest threshold of the ID score, then that of the OOD score."""
    correct, conf_id, conf_ood, is_id = pair(12, seed, 3)  # few levels: many pairs accept the same samples
    best = (0.0, 0, np.inf, np.inf)
    for a, b in itertools.product(set(conf_id.tolist()), set(conf_ood.tolist())):
        taken = (conf_id >= a) & (conf_ood >= b)
        value = 2 * (taken & correct).sum() / (taken.sum() + is_id.sum())
        if value > 0:
            best = max(best, (round(value, 12), -int(taken.sum()), a, b))
    got = metrics.ds_f1(correct, conf_id, conf_ood, is_id, method="grid", thresholds=50)
    assert (got.value, got.tau_id, got.tau_ood) == (pytest.approx(best[0]), best[2], best[3])


def test_the_grid_takes_infinite_scores():
    correct, conf_id, conf_ood, is_id = pair(30, 1, 6)
    ends = [np.where(c == c.max(), np.inf, np.where(c == c.min(), -np.inf, c)) for c in (conf_id, conf_ood)]
    for metric in (metrics.ds_f1, metrics.ds_aurc):
        a, b = (
            metric(correct, conf_id, conf_ood, is_id, method="grid"),
            metric(correct, *ends, is_id, method="grid"),
        )
        assert getattr(a, "value", a) == getattr(b, "value", b)


# -------------------------------------------------------------------------------- the published grid


def test_published_grid_against_direct_counts():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        correct, _, conf_ood, is_id = pair(40, seed, 20)
        conf_id = rng.random(40) if seed % 2 else rng.integers(0, 11, 40) / 10  # also exactly on the grid
        for confs in ([conf_id, conf_ood], [conf_id, -np.exp(3 * conf_ood)]):
            got = metrics.ds_f1(correct, *confs, is_id, method="published")
            assert got.value == pytest.approx(published_f1(correct, confs, is_id), abs=1e-9)
            assert got.method == "published"
            area = metrics.ds_aurc(correct, *confs, is_id, method="published")
            assert area == pytest.approx(published_area(correct, confs, is_id), abs=1e-9)
            single = metrics.f1(correct, confs[1], is_id, method="published").value
            assert single == pytest.approx(published_f1(correct, confs[1:], is_id), abs=1e-9)
            area = metrics.aurc(correct, confs[1], is_id=is_id, coverage="id", estimator="published")
            assert area == pytest.approx(published_area(correct, confs[1:], is_id), abs=1e-9)


def test_published_thresholds_are_in_its_own_units():
    """The ID score as it is, the OOD score min-max scaled over all samples."""
    got = metrics.ds_f1(CORRECT, S_ID, S_OOD, IS_ID, method="published")
    scaled = (S_OOD - S_OOD.min()) / (S_OOD.max() - S_OOD.min())
    passed = (got.tau_id - 1e-6 <= S_ID) & (scaled >= got.tau_ood - 1e-6)
    assert counts(CORRECT, IS_ID, passed) == (got.true_accept, got.accepted_id, got.accepted_ood)
    assert (1000 * got.tau_id) == pytest.approx(round(1000 * got.tau_id), abs=1e-3)
    assert (1000 * got.tau_ood) == pytest.approx(round(1000 * got.tau_ood), abs=1e-3)


def test_published_is_neither_invariant_nor_symmetric():
    """Artefacts a and b: with the ID score shifted by -15 it reads 0.0 and 0.99; exact values do not move."""
    correct, conf_id, conf_ood, is_id = continuous_pair(400, 300, 5)
    conf_id = 1 / (1 + np.exp(-conf_id))
    exact = (
        metrics.ds_f1(correct, conf_id, conf_ood, is_id).value,
        metrics.ds_aurc(correct, conf_id, conf_ood, is_id),
    )
    moved = correct, conf_id - 15, conf_ood, is_id
    assert metrics.ds_f1(*moved, method="published").value == 0.0
    assert metrics.ds_aurc(*moved, method="published") == pytest.approx(0.99)
    assert (metrics.ds_f1(*moved).value, metrics.ds_aurc(*moved)) == exact
    plain = metrics.ds_aurc(correct, conf_id, conf_ood, is_id, method="published")
    heavy = metrics.ds_aurc(correct, conf_id, np.exp(8 * conf_ood), is_id, method="published")
    assert abs(heavy - plain) > 0.02
    turned = metrics.ds_aurc(correct, conf_ood, conf_id, is_id, method="published")
    assert abs(turned - plain) > 0.01


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e300])
def test_published_refuses_what_single_precision_cannot_scale(bad):
    """Min-max scaling has no meaning with an infinite end: an error that says so, not NaN in the counts."""
    conf = np.where(np.arange(9) == 3, bad, S_OOD)
    for metric in (metrics.ds_f1, metrics.ds_aurc):
        with pytest.raises(InvalidInput, match="published"):
            metric(CORRECT, S_ID, conf, IS_ID, method="published")


# -------------------------------------------------------------------------------- resamples on a grid


@pytest.mark.parametrize("levels", [7, 300])
def test_histogram_of_resamples_is_exact_while_scores_fit_the_grid(levels):
    from twofold import stats
    from twofold.metrics._grid import DoubleHistogram

    rng = np.random.default_rng(levels)
    is_id = rng.random(200) < 0.7
    correct = is_id & (rng.random(200) < 0.8)
    a, b = (rng.integers(0, levels, 200) + 3.0 * rng.random() * correct for _ in range(2))
    exact = {"ds_f1": metrics.ds_f1(correct, a, b, is_id).value, "ds_aurc": metrics.ds_aurc(correct, a, b, is_id)}
    histogram = DoubleHistogram(correct, a, b, is_id)
    assert histogram.start == pytest.approx(exact)
    for weights in stats.draws(200, 5, seed=1):
        rows = np.repeat(np.arange(200), weights)
        drawn = correct[rows], a[rows], b[rows], is_id[rows]
        found = histogram.centred(weights, exact)
        assert found["ds_f1"] == pytest.approx(metrics.ds_f1(*drawn).value)
        assert found["ds_aurc"] == pytest.approx(metrics.ds_aurc(*drawn))


def test_histogram_of_resamples_on_a_coarse_grid_stays_near():
    from twofold import stats
    from twofold.metrics._grid import DoubleHistogram

    rng = np.random.default_rng(0)
    is_id = np.arange(3000) < 2000
    correct = is_id & (rng.random(3000) < 0.8)
    a, b = rng.normal(size=3000) + correct, rng.normal(size=3000) + is_id
    exact = {"ds_f1": metrics.ds_f1(correct, a, b, is_id).value, "ds_aurc": metrics.ds_aurc(correct, a, b, is_id)}
    histogram = DoubleHistogram(correct, a, b, is_id)
    for weights in stats.draws(3000, 5, seed=1):
        rows = np.repeat(np.arange(3000), weights)
        found = histogram.centred(weights, exact)
        assert found["ds_f1"] == pytest.approx(
            metrics.ds_f1(correct[rows], a[rows], b[rows], is_id[rows]).value, abs=2e-3
        )
        assert found["ds_aurc"] == pytest.approx(
            metrics.ds_aurc(correct[rows], a[rows], b[rows], is_id[rows]), abs=4e-3
        )
