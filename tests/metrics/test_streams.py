"""Summaries against the exact metrics: equal while values fit, and always inside the bounds afterwards."""

from __future__ import annotations

import itertools
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twofold import metrics
from twofold._files import arrays_digest
from twofold.errors import InvalidInput, RejectedNaN, UndefinedMetric
from twofold.metrics._axis import choose_cuts
from twofold.metrics.streams import Bounded, PairSummary, ScoreSummary

ROUNDING = 1e-12


def samples(rng, n, *, values=None, ood=0.3):
    """Right, two confidences (of ``values`` levels each, or distinct) and ID flags."""
    inside = rng.random(n) >= ood
    first, second = rng.normal(size=n) + inside, rng.normal(size=n) + 2.0 * inside
    right = inside & (rng.random(n) < 1.0 / (1.0 + np.exp(-1.0 - 2.0 * (first - 1.0))))
    if values is not None:
        first, second = (np.floor(values * np.argsort(np.argsort(c)) / n) for c in (first, second))
    return right, first, second, inside


def single(right, conf, inside, share=None):
    """The exact metrics of one score that have a value here, by name."""
    both = bool(inside.any() and not inside.all())
    share = share if both else None
    found = {
        "aurc": (metrics.aurc(right, conf, is_id=inside, ood_share=share), {"ood_share": share}),
        "augrc": (metrics.augrc(right, conf, is_id=inside, ood_share=share), {"ood_share": share}),
    }
    if inside.any():
        area = metrics.aurc(right, conf, is_id=inside, ood_share=share, coverage="id")
        found["aurc id"] = (area, {"coverage": "id", "ood_share": share})
        found["f1"] = (metrics.f1(right, conf, inside, ood_share=share).value, {"ood_share": share})
    if right.any() and not right.all():
        found["auroc"] = (metrics.auroc(right, conf), {})
    if both:
        found["auroc_ood"] = (metrics.auroc(inside, conf), {})
    return found


def check_single(summary, right, conf, inside, share=None, *, exact=False):
    for name, (truth, settings_) in single(right, conf, inside, share).items():
        got = getattr(summary, name.split()[0])(**settings_)
        assert got.low - ROUNDING <= truth <= got.high + ROUNDING, (name, truth, got)
        assert got.low <= got.value <= got.high
        assert abs(got.value - truth) <= got.error + ROUNDING
        if exact:
            assert got.exact, name
            assert got.value == pytest.approx(truth, abs=ROUNDING)


def check_pair(summary, right, first, second, inside, share=None, *, exact=False):
    best = metrics.ds_f1(right, first, second, inside, ood_share=share)
    area = metrics.ds_aurc(right, first, second, inside, ood_share=share, monotone=True)
    f1, aurc = summary.ds_f1(ood_share=share), summary.ds_aurc(ood_share=share)
    assert f1.low - ROUNDING <= best.value <= f1.high + ROUNDING
    assert aurc.low - ROUNDING <= area <= aurc.high + ROUNDING
    if right.any():  # the thresholds attain the value; without a right answer they are +inf by convention
        taken = (first >= f1.point.tau_id) & (second >= f1.point.tau_ood)
        assert (taken & right).sum() == f1.point.true_accept
        assert (taken & inside).sum() == f1.point.accepted_id
    assert f1.value == f1.low == pytest.approx(f1.point.value, abs=ROUNDING)
    if exact:
        assert f1.exact
        assert aurc.exact
        assert f1.value == pytest.approx(best.value, abs=ROUNDING)
        assert aurc.value == pytest.approx(area, abs=ROUNDING)
        plain = metrics.ds_aurc(right, first, second, inside, ood_share=share)
        assert summary.ds_aurc(monotone=False, ood_share=share).value == pytest.approx(plain, abs=ROUNDING)
    return f1, best


def arrays(summary):
    """Everything a summary holds, comparable."""
    axes = [x for axis in summary._axes for x in (axis.low, axis.high, axis.edges)]
    return [None if x is None else x.tobytes() for x in (summary._counts, *axes)]


def same(a, b):
    return arrays(a) == arrays(b)


def batches(rng, n, most=5):
    ends = np.sort(rng.integers(1, n, size=rng.integers(0, most))) if n > 1 else []
    return [part for part in np.split(rng.permutation(n), ends) if len(part)]


# Exact while the values fit


@pytest.mark.parametrize("share", [None, 0.1, 0.5, 0.9])
def test_one_score_is_exact_while_values_fit(share):
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(1, 60))
        right, conf, _, inside = samples(rng, n, values=int(rng.integers(1, 20)))
        summary = ScoreSummary(20)
        for rows in batches(rng, n):
            summary = summary.update(right[rows], conf[rows], inside[rows])
        assert summary.exact
        assert summary.edges is None
        check_single(summary, right, conf, inside, share, exact=True)


def test_one_score_picks_the_threshold_of_the_exact_f1():
    rng = np.random.default_rng(1)
    for _ in range(100):
        right, conf, _, inside = samples(rng, 40, values=12)
        assert ScoreSummary().update(right, conf, inside).f1().point == metrics.f1(right, conf, inside)


@pytest.mark.parametrize("share", [None, 0.2, 0.8])
def test_two_scores_are_exact_while_values_fit(share):
    rng = np.random.default_rng(2)
    for _ in range(60):
        n = int(rng.integers(2, 60))
        right, first, second, inside = samples(rng, n, values=int(rng.integers(1, 15)))
        inside[:2], right[:2] = [True, False], [right[0], False]
        summary = PairSummary(15)
        for rows in batches(rng, n):
            summary = summary.update(right[rows], first[rows], second[rows], inside[rows])
        f1, best = check_pair(summary, right, first, second, inside, share, exact=True)
        if share is None:
            assert f1.point == best


def test_ood_share_zero_is_the_value_without_ood():
    rng = np.random.default_rng(3)
    right, first, second, inside = samples(rng, 300)
    for cells in (8, 512):
        alone = ScoreSummary(cells).update(right, first, inside)
        truth = metrics.aurc(right[inside], first[inside])
        for got in (alone.aurc(ood_share=0), alone.aurc(ood_share=0, coverage="id")):
            assert got.low - ROUNDING <= truth <= got.high + ROUNDING
        pair = PairSummary(cells).update(right, first, second, inside)
        best, area = pair.ds_f1(ood_share=0), pair.ds_aurc(ood_share=0)
        known = right[inside], first[inside], second[inside]
        assert best.low - ROUNDING <= metrics.ds_f1(*known).value <= best.high + ROUNDING
        assert area.low - ROUNDING <= metrics.ds_aurc(*known, monotone=True) <= area.high + ROUNDING
    assert alone.aurc(ood_share=0).value == pytest.approx(truth, abs=ROUNDING)


def test_one_sample():
    for right, inside in ((True, True), (False, True), (False, False)):
        for summary in (ScoreSummary(), ScoreSummary(edges=[0.0])):
            summary = summary.update([right], [0.5], [inside])
            check_single(summary, np.array([right]), np.array([0.5]), np.array([inside]), exact=True)
            assert len(summary) == 1


def test_infinities_rank_as_such():
    rng = np.random.default_rng(4)
    values = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])
    for _ in range(50):
        right, _, _, inside = samples(rng, 30)
        first, second = rng.choice(values, 30), rng.choice(values, 30)
        inside[0] = True
        for cells in (2, 3, 4, 5):
            summary = ScoreSummary(cells).update(right, first, inside)
            check_single(summary, right, first, inside, 0.3, exact=cells == 5)
            pair = PairSummary(cells).update(right, first, second, inside)
            check_pair(pair, right, first, second, inside, exact=cells == 5)


def test_nan_is_an_error_or_ranks_lowest():
    with pytest.raises(InvalidInput, match="conf has NaN in row 1"):
        ScoreSummary().update([1, 0], [0.5, np.nan])
    with pytest.raises(InvalidInput, match="conf_ood has NaN in row 0"):
        PairSummary().update([1, 0], [0.5, 0.2], [np.nan, 1.0])
    with pytest.warns(RejectedNaN, match="1 of 2 rows"):
        summary = ScoreSummary().update([1, 0], [0.5, np.nan], nan="reject")
    assert same(summary, ScoreSummary().update([1, 0], [0.5, -np.inf]))


# Bounds: the least and the largest value over every order and tie inside a cell


def orders(n):
    """Every weak order of n samples, as confidences in [1, 2)."""
    for ranks in itertools.product(range(n), repeat=n):
        if set(ranks) == set(range(max(ranks) + 1)):
            yield 1.0 + np.array(ranks) / n


CELLS = [
    (1, 1, 0),
    (2, 1, 0),
    (1, 2, 0),
    (2, 2, 0),
    (3, 1, 0),
    (0, 2, 2),
    (2, 0, 2),
    (1, 1, 1),
    (2, 1, 1),
    (1, 2, 1),
]
AROUND = [[], ["right"], ["wrong"], ["ood"], ["right", "wrong"], ["right", "right", "ood"]]
KINDS = {"right": (True, True), "wrong": (False, True), "ood": (False, False)}


@pytest.mark.parametrize("kinds", CELLS)
def test_bounds_are_the_extremes_over_all_arrangements(kinds):
    inner = ["right"] * kinds[0] + ["wrong"] * kinds[1] + ["ood"] * kinds[2]
    for before, after in itertools.product(AROUND, [[], ["right", "wrong", "ood"]]):
        right, inside = np.array([KINDS[k] for k in before + inner + after]).T
        above, below = [2.5] * len(before), [0.5] * len(after)  # pure ties
        for share in (None, 0.15, 0.7):
            seen = {}
            for order in orders(len(inner)):
                conf = np.concatenate((above, order, below))
                for name, (truth, _) in single(right, conf, inside, share).items():
                    seen.setdefault(name, []).append(truth)
            spread = np.concatenate((above, 1.0 + np.arange(len(inner)) / len(inner), below))
            summary = ScoreSummary(edges=[1.0, 2.0]).update(right, spread, inside)
            for name, (_, settings_) in single(right, spread, inside, share).items():
                got = getattr(summary, name.split()[0])(**settings_)
                assert got.low == pytest.approx(min(seen[name]), abs=ROUNDING), (name, before, share)
                assert got.high == pytest.approx(max(seen[name]), abs=ROUNDING), (name, before, share)


def test_value_of_aurc_is_the_mean_over_random_orders():
    right = np.array([True, False, True, False, False, True])
    outer, inner = [3.0], np.arange(5) / 5.0 + 1.0
    every = [metrics.aurc(right, [*outer, *p]) for p in itertools.permutations(inner)]
    got = ScoreSummary(edges=[2.0]).update(right, [*outer, *inner]).aurc()
    assert got.value == pytest.approx(np.mean(every), abs=ROUNDING)


def test_pair_bounds_hold_for_all_arrangements():
    levels = np.array([0.25, 0.5, 0.75])
    for kinds in (["right", "wrong", "ood"], ["right", "right", "ood"], ["wrong", "wrong", "right"]):
        right, inside = np.array([KINDS[k] for k in ["right", *kinds, "wrong"]]).T
        best, area = [], []
        for where in itertools.product(itertools.product(levels, levels), repeat=len(kinds)):
            first, second = np.array([(1.5, 1.5), *where, (0.1, -0.1)]).T
            best.append(metrics.ds_f1(right, first, second, inside).value)
            area.append(metrics.ds_aurc(right, first, second, inside, monotone=True))
        spread = np.array([(1.5, 1.5), *((v, v) for v in levels), (0.1, -0.1)]).T
        summary = PairSummary(edges=([0.2, 1.0], [0.2, 1.0])).update(right, *spread, inside)
        f1, aurc = summary.ds_f1(), summary.ds_aurc()
        assert f1.high == pytest.approx(max(best), abs=ROUNDING)  # attained
        assert f1.low <= min(best) + ROUNDING
        assert aurc.low <= min(area) + ROUNDING
        assert aurc.high >= max(area) - ROUNDING


def adversary(rng, conf, right, edges, *, up):
    """The same cells, and inside each the right samples on top (one tie) or at the bottom (one by one)."""
    place = np.searchsorted(edges, conf, side="right")
    ties, apart = np.zeros(len(conf)), rng.random(len(conf)) * 0.4
    return place + np.where(right, 0.9 + ties, apart) if up else place + np.where(right, apart, 0.9 + ties)


@pytest.mark.parametrize("up", [True, False])
def test_bounds_hold_against_an_adversary(up):
    rng = np.random.default_rng(5)
    for share in (None, 0.05, 0.6):
        for cells in (2, 3, 8, 32):
            right, first, second, inside = samples(rng, 400)
            cuts = [np.quantile(c, np.arange(1, cells) / cells) for c in (first, second)]
            first, second = (adversary(rng, c, right, e, up=up) for c, e in zip((first, second), cuts, strict=True))
            whole = np.arange(1, cells).astype(float)
            summary = ScoreSummary(edges=whole).update(right, first, inside)
            check_single(summary, right, first, inside, share)
            pair = PairSummary(edges=(whole, whole)).update(right, first, second, inside)
            check_pair(pair, right, first, second, inside, share)
            if share is None:
                ends = summary.aurc()
                truth = metrics.aurc(right, first, is_id=inside)
                assert truth == pytest.approx(ends.low if up else ends.high, abs=ROUNDING)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_true_values_lie_inside(data):
    value = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf])
    kind = st.sampled_from(["right", "wrong", "ood"])
    rows = data.draw(st.lists(st.tuples(kind, value, value), min_size=1, max_size=24))
    cells = data.draw(st.integers(2, 6))
    step = data.draw(st.integers(1, 24))
    right, inside = np.array([KINDS[row[0]] for row in rows]).T
    first, second = np.array([row[1:] for row in rows]).T
    one, two = ScoreSummary(cells), PairSummary(cells)
    for i in range(0, len(rows), step):
        part = slice(i, i + step)
        one = one.update(right[part], first[part], inside[part])
        two = two.update(right[part], first[part], second[part], inside[part])
    share = data.draw(st.sampled_from([None, 0.2, 0.75]))
    check_single(one, right, first, inside, share)
    if inside.any():
        check_pair(two, right, first, second, inside, None if inside.all() else share)
    assert len(one._axes[0].low) <= cells
    assert max(two._counts.shape[:2]) <= cells


def test_true_values_lie_inside_for_any_stream():
    rng = np.random.default_rng(6)
    for trial in range(150):
        n, cells = int(rng.integers(2, 300)), int(rng.integers(2, 24))
        right, first, second, inside = samples(rng, n, values=None if trial % 2 else int(rng.integers(2, 60)))
        order = {0: np.arange(n), 1: np.argsort(first), 2: np.argsort(~inside, kind="stable")}[trial % 3]
        inside[order[0]] = True
        share = None if inside.all() else (None, 0.1, 0.6)[trial % 3]
        one, two = ScoreSummary(cells), PairSummary(cells)
        for rows in np.array_split(order, min(n, 7)):  # sorted streams and one-class batches among them
            one = one.update(right[rows], first[rows], inside[rows])
            two = two.update(right[rows], first[rows], second[rows], inside[rows])
        check_single(one, right, first, inside, share)
        check_pair(two, right, first, second, inside, share)


def test_ood_may_come_first():
    summary = ScoreSummary().update([0, 0], [0.2, 0.4], [0, 0])
    pair = PairSummary().update([0], [0.3], [0.2], [0])
    assert summary.aurc().value == 1.0
    with pytest.raises(UndefinedMetric, match="f1 needs at least one ID sample; all 2 samples are OOD"):
        summary.f1()
    with pytest.raises(UndefinedMetric, match="needs at least one ID sample"):
        summary.aurc(coverage="id")
    with pytest.raises(UndefinedMetric, match="ds_f1 needs at least one ID sample"):
        pair.ds_f1()
    with pytest.raises(UndefinedMetric, match="ds_aurc needs at least one ID sample"):
        pair.ds_aurc()
    with pytest.raises(InvalidInput, match="ood_share reweights"):
        summary.aurc(ood_share=0.5)
    assert summary.update([1], [0.9]).auroc().value == 1.0
    assert pair.update([1], [0.9], [0.9]).ds_f1().value == 1.0


def test_no_right_answer():
    best = ScoreSummary().update([0, 0], [0.2, 0.4]).f1()
    assert (best.value, best.high, best.point.threshold) == (0.0, 0.0, np.inf)
    summary = PairSummary(2).update([0, 0, 0], [0.2, 0.4, 0.5], [1.0, 2.0, 3.0])
    assert (summary.ds_f1().high, summary.ds_f1().point.tau_ood) == (0.0, np.inf)
    assert summary.ds_aurc() == Bounded(1.0, 1.0, 1.0)


# Cuts


def test_heavy_ties_keep_a_cell_of_their_own():
    rng = np.random.default_rng(7)
    conf = np.where(rng.random(20_000) < 0.5, rng.choice([-np.inf, 0.25, 0.5, np.inf], 20_000), rng.random(20_000))
    right = rng.random(20_000) < 0.5 + 0.4 * (conf > 0.3)
    summary = ScoreSummary(64).update(right, conf)
    axis = summary._axes[0]
    for value in (-np.inf, 0.25, 0.5, np.inf):
        cell = np.searchsorted(summary.edges, value, side="right")
        assert axis.low[cell] == axis.high[cell] == value
        later = summary.update([1, 0], [np.nextafter(value, 1.0), np.nextafter(value, -1.0)])
        assert later._axes[0].low[cell] == later._axes[0].high[cell] == value  # neighbours do not fall in
    check_single(summary, right, conf, np.ones(20_000, bool))


def test_cuts_at_the_ends_of_the_floats():
    tiny, huge = 5e-324, np.finfo(float).max
    values = np.array([-huge, -tiny, 0.0, tiny, huge])
    rng = np.random.default_rng(17)
    conf = np.concatenate((np.repeat(values, 100), rng.normal(size=100)))
    summary = ScoreSummary(16).update(rng.random(600) < 0.5, conf)
    place = np.searchsorted(summary.edges, values, side="right")
    assert (summary._axes[0].low[place] == summary._axes[0].high[place]).all()
    assert len(np.unique(place)) == 5


def test_cuts_use_the_cells_they_are_given():
    rng = np.random.default_rng(8)
    for _ in range(300):
        cells, count = int(rng.integers(2, 40)), int(rng.integers(1, 90))
        values = np.unique(rng.choice([-np.inf, np.inf, *rng.normal(size=90)], count))
        mass = rng.geometric(rng.choice([0.01, 0.5, 1.0]), len(values)) ** int(rng.integers(1, 4))
        cuts = choose_cuts(values, mass, cells)
        assert len(cuts) < cells
        assert (np.diff(cuts[np.isfinite(cuts)]) > 0).all()
        place = np.searchsorted(cuts, values, side="right")
        if len(values) <= cells:
            assert len(np.unique(place)) == len(values)
        else:
            load = np.bincount(place, mass)
            alone = np.bincount(place) <= 1
            assert load[~alone].max(initial=0.0) <= 3.5 * mass.sum() / cells + 1


def test_freezing_keeps_all_samples_and_stays_exact_where_values_fit():
    rng = np.random.default_rng(9)
    right, first, second, inside = samples(rng, 200, values=12)
    one = ScoreSummary(12).update(right, first, inside)
    frozen = one.freeze()
    assert frozen.edges is not None
    assert frozen.aurc() == one.aurc()
    assert frozen.empty().edges.tobytes() == frozen.edges.tobytes()
    assert len(frozen.empty()) == 0
    two = PairSummary(12).update(right, first, second, inside)
    assert two.freeze().ds_f1() == two.ds_f1()
    assert same(two.freeze(), two.freeze().freeze())
    with pytest.raises(InvalidInput, match="there is none yet"):
        ScoreSummary().freeze()


def test_axes_are_fixed_one_by_one():
    rng = np.random.default_rng(10)
    right, first, second, inside = samples(rng, 500)
    second = np.floor(second)
    summary = PairSummary(32).update(right, first, second, inside)
    assert summary.edges[0] is not None
    assert summary.edges[1] is None
    check_pair(summary, right, first, second, inside)


# Adding up


@pytest.mark.parametrize("values", [6, None])
def test_batches_and_processes_add_up_to_the_whole(values):
    rng = np.random.default_rng(11)
    right, first, second, inside = samples(rng, 600, values=values)
    one = ScoreSummary(16).update(right[:100], first[:100], inside[:100]).freeze().empty()
    two = PairSummary(16).update(right[:100], first[:100], second[:100], inside[:100]).freeze().empty()
    whole = one.update(right, first, inside), two.update(right, first, second, inside)
    for _ in range(10):
        parts = [
            (one.update(right[r], first[r], inside[r]), two.update(right[r], first[r], second[r], inside[r]))
            for r in batches(rng, 600, most=12)
        ]
        rng.shuffle(parts)
        ones, twos = zip(*parts, strict=True)
        assert same(ScoreSummary.merge(ones), whole[0])
        assert same(PairSummary.merge(twos), whole[1])
        assert same(sum(ones[1:], start=ones[0]), whole[0])
        assert same(sum(reversed(twos[1:]), start=twos[0]), whole[1])


def test_exact_summaries_merge_exactly_in_any_order():
    rng = np.random.default_rng(12)
    right, first, second, inside = samples(rng, 300, values=30)
    parts = [PairSummary(30).update(right[r], first[r], second[r], inside[r]) for r in batches(rng, 300, most=9)]
    whole = PairSummary(30).update(right, first, second, inside)
    assert same(PairSummary.merge(parts), whole)
    assert same(PairSummary.merge(parts[::-1]), whole)
    # too many values: cuts at quantiles of all parts together, whatever their order
    small = [
        ScoreSummary(120).update(right[r], first[r] + second[r] / 64, inside[r]) for r in np.split(np.arange(300), 3)
    ]
    assert same(ScoreSummary.merge(small), ScoreSummary.merge(small[::-1]))
    check_single(ScoreSummary.merge(small), right, first + second / 64, inside)


def test_an_exact_summary_joins_a_fixed_one():
    rng = np.random.default_rng(13)
    right, first, second, inside = samples(rng, 300)
    fixed = PairSummary(16).update(right[:200], first[:200], second[:200], inside[:200])
    exact = PairSummary(200).update(right[200:], first[200:], second[200:], inside[200:])
    assert exact.exact
    assert same(fixed + exact, exact + fixed)
    assert same(fixed + exact, fixed.update(right[200:], first[200:], second[200:], inside[200:]))
    check_pair(exact + fixed, right, first, second, inside)


def test_summaries_that_do_not_add_up_say_why():
    a, b = ScoreSummary(edges=[0.5]), ScoreSummary(edges=[0.6])
    with pytest.raises(InvalidInput, match=r"different cuts of conf, .* from one summary.freeze\(\).empty\(\)"):
        a + b
    with pytest.raises(InvalidInput, match="different cuts of conf_ood"):
        PairSummary(edges=([0.5], [0.5])) + PairSummary(edges=([0.5], [0.6]))
    with pytest.raises(InvalidInput, match="different numbers of cells: 8, 9"):
        ScoreSummary(8) + ScoreSummary(9)
    with pytest.raises(InvalidInput, match="at least one summary"):
        ScoreSummary.merge([])
    with pytest.raises(InvalidInput, match="merge adds up ScoreSummary objects, got PairSummary"):
        ScoreSummary.merge([a, PairSummary()])
    with pytest.raises(TypeError):
        a + 1


def test_bad_arguments_are_named():
    with pytest.raises(InvalidInput, match="cells must be a whole number of at least 2, got 1"):
        ScoreSummary(1)
    with pytest.raises(InvalidInput, match=r"edges must increase strictly, got 0.5 after 0.5 in row 1"):
        ScoreSummary(edges=[0.5, 0.5])
    with pytest.raises(InvalidInput, match=r"edges\[1\] has NaN in row 0"):
        PairSummary(edges=(None, [np.nan]))
    with pytest.raises(InvalidInput, match="correct must be False on OOD"):
        ScoreSummary().update([1], [0.5], [0])
    with pytest.raises(InvalidInput, match=r"correct has|conf has"):
        ScoreSummary().update([1, 0], [0.5])
    with pytest.raises(InvalidInput, match="coverage"):
        ScoreSummary().update([1], [0.5]).aurc(coverage="ood")
    with pytest.raises(InvalidInput, match="ood_share must be in"):
        ScoreSummary().update([1, 0], [0.5, 0.2], [1, 0]).aurc(ood_share=1.0)
    with pytest.raises(UndefinedMetric, match="aurc: the summary holds no sample; call update first"):
        ScoreSummary().aurc()
    with pytest.raises(UndefinedMetric, match="there is no failed sample"):
        ScoreSummary().update([1], [0.5]).auroc()
    with pytest.raises(UndefinedMetric, match="there is no OOD sample"):
        ScoreSummary().update([1], [0.5]).auroc_ood()
    rough = PairSummary(edges=([0.5], [0.5])).update([1, 0], [0.6, 0.7], [0.6, 0.7])
    with pytest.raises(InvalidInput, match="monotone=False asks which numbers"):
        rough.ds_aurc(monotone=False)


def test_nothing_changes_behind_the_callers_back():
    conf, edges = np.array([0.9, 0.1]), np.array([0.5])
    summary = ScoreSummary(edges=edges)
    edges[0] = 7.0
    assert summary.edges == [0.5]
    before = arrays(summary)
    summary.update([1, 0], conf)
    assert arrays(summary) == before
    assert conf.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        summary.edges[0] = 1.0


# On disk and across processes


def test_files_and_pickles_give_the_summary_back(tmp_path):
    rng = np.random.default_rng(14)
    right, first, second, inside = samples(rng, 100)
    for made in (
        ScoreSummary(),
        ScoreSummary().update(right, first, inside),
        ScoreSummary(8).update(right, first, inside),
        PairSummary(8).update(right, first, np.sign(second), inside),
    ):
        path = tmp_path / "summary"
        made.to_npz(path)
        back = type(made).from_npz(path)
        assert same(made, back)
        assert same(made, pickle.loads(pickle.dumps(made)))
        back.to_npz(tmp_path / "again")
        assert path.read_bytes() == (tmp_path / "again").read_bytes()
        assert type(made).__name__ in repr(back)
    with pytest.raises(InvalidInput, match="does not hold a ScoreSummary"):
        ScoreSummary.from_npz(path)
    np.savez(tmp_path / "other.npz", x=1)
    (tmp_path / "text").write_text("no archive")
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "cut").write_bytes(path.read_bytes()[:200])
    for name in ("other.npz", "text", "array.npy", "cut"):
        with pytest.raises(InvalidInput, match="does not hold a PairSummary"):
            PairSummary.from_npz(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        PairSummary.from_npz(tmp_path / "absent")


@pytest.mark.parametrize("cells", [8, 4096])
def test_no_flipped_bit_of_a_file_changes_a_summary(tmp_path, cells):
    right, first, second, inside = samples(np.random.default_rng(14), 100)
    made = PairSummary(cells).update(right, first, second, inside)
    made.to_npz(tmp_path / "summary")
    raw = (tmp_path / "summary").read_bytes()
    for place in np.random.default_rng(0).integers(0, 8 * len(raw), 300).tolist():
        damaged = bytearray(raw)
        damaged[place // 8] ^= 1 << place % 8
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            back = PairSummary.from_npz(tmp_path / "damaged")
        except InvalidInput:
            continue
        assert same(made, back)


def forge(path, target, **changes):
    """A summary's file with changed arrays and a digest that fits."""
    with np.load(path) as file:
        arrays = {name: value for name, value in file.items() if name != "sha256"}
    arrays |= {name: np.asarray(value) for name, value in changes.items()}
    np.savez(target, **arrays, sha256=arrays_digest(arrays, {}))
    return f"{target}.npz"


def test_forged_and_older_summaries_are_refused(tmp_path):
    right, first, _, inside = samples(np.random.default_rng(14), 100)
    made = ScoreSummary(8).update(right, first, inside)
    path = tmp_path / "summary"
    made.to_npz(path)
    assert same(ScoreSummary.from_npz(forge(path, tmp_path / "f")), made)
    with np.load(path) as file:
        counts, low, edges = file["counts"], file["low0"], file["edges0"]
    holed = low.copy()
    holed[0] = np.nan
    changes = [
        {"counts": -counts},
        {"counts": counts.astype(float)},
        {"counts": counts[1:]},
        {"low0": holed},
        {"low0": low[1:]},
        {"low0": low[::-1]},
        {"edges0": edges[::-1]},
        {"edges0": edges[1:]},
        {"cells0": 0},
    ]
    for change in changes:
        with pytest.raises(InvalidInput, match="does not hold a ScoreSummary"):
            pytest.fail(f"{change}: {ScoreSummary.from_npz(forge(path, tmp_path / 'f', **change))}")
    with np.load(path) as file:
        np.savez(tmp_path / "old", **{name: value for name, value in file.items() if name != "sha256"})
    with pytest.raises(InvalidInput, match=r"older format without a digest; write it again with ScoreSummary\.to_npz"):
        ScoreSummary.from_npz(tmp_path / "old.npz")


# Size, width and time


def test_memory_does_not_grow_with_the_stream():
    rng = np.random.default_rng(15)
    one, two, sizes = ScoreSummary(128), PairSummary(32), []
    for _ in range(20):
        right, first, second, inside = samples(rng, 1000)
        one, two = one.update(right, first, inside), two.update(right, first, second, inside)
        sizes.append((one.nbytes, two.nbytes))
    assert len(set(sizes)) == 1
    assert one.nbytes <= 48 * 128
    assert two.nbytes <= 24 * 32**2 + 48 * 32
    assert len(one) == len(two) == 20_000


def printed(summary):
    """The table of numbers in a docstring: {first column: the others}."""
    rows = [line.split() for line in summary.__doc__.splitlines()]
    rows = [[float(x) for x in row] for row in rows if row and all(x[0].isdigit() for x in row)]
    return {int(first): rest for first, *rest in rows}


def test_widths():
    """The table in the docstring of ScoreSummary; 1/cells, and twice as wide with cuts from few samples."""
    rng = np.random.default_rng(0)
    conf = rng.normal(size=1_000_000)
    right = rng.random(1_000_000) < 1.0 / (1.0 + np.exp(-2.5 - 2.0 * conf))
    known = np.ones(len(conf), bool)
    names = ("aurc", "augrc", "auroc", "f1")
    truth = [single(right, conf, known)[name][0] for name in names]
    found = {}
    for cells in (256, 1024, 4096, 16384):
        summary = ScoreSummary(cells).update(right, conf)
        check_single(summary, right, conf, known)
        got = [getattr(summary, name)() for name in names]
        found[cells] = [1e6 * bound.error for bound in got]
        off = [abs(bound.value - exact) / bound.error for bound, exact in zip(got, truth, strict=True)]
        assert max(off[:3]) < 0.02
        if cells == 1024:
            slow = ScoreSummary(cells)
            for part in np.split(np.arange(len(conf)), 2000)[:20]:
                slow = slow.update(right[part], conf[part])
            slow = slow.update(right[10_000:], conf[10_000:])
            check_single(slow, right, conf, known)
            few = [1e6 * getattr(slow, name)().error for name in names]
            assert all(1.2 < a / b < 2.2 for a, b in zip(few[:3], found[cells][:3], strict=True))
    assert found == {cells: pytest.approx(row, rel=0.02) for cells, row in printed(ScoreSummary).items()}


def test_pair_widths():
    """The table in the docstring of PairSummary."""
    right, first, second, inside = samples(np.random.default_rng(0), 20_000, ood=0.25)
    found = {}
    for cells in (64, 128, 256, 512):
        summary = PairSummary(cells).update(right, first, second, inside)
        f1, aurc = summary.ds_f1(), summary.ds_aurc()
        found[cells] = [1e3 * (bound.high - bound.low) for bound in (f1, aurc)]
        if cells == 128:
            check_pair(summary, right, first, second, inside)
    assert found == {cells: pytest.approx(row, abs=0.1) for cells, row in printed(PairSummary).items()}


def test_an_update_is_one_pass():
    rng = np.random.default_rng(16)
    conf, right = rng.random(1_000_000), rng.random(1_000_000) < 0.8
    summary = ScoreSummary(edges=np.arange(1, 4096) / 4096)
    start = time.perf_counter()
    summary.update(right, conf)
    took = time.perf_counter() - start
    start = time.perf_counter()
    np.bincount(np.searchsorted(summary.edges, conf, side="right"), minlength=4096)
    assert took < 20 * (time.perf_counter() - start)  # about 2; a loop over samples would be hundreds
