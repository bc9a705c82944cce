"""The guarantee: exact tails, violations counted over thousands of worlds with known risk, coverage, shift."""

import dataclasses
import math
import time

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from twofold.errors import Infeasible
from twofold.gate import Gate, guarantee
from twofold.gate.thresholds import ScoredSamples
from twofold.outputs import Outputs
from twofold.stats import sgr

RIGHT, WRONG, OUTSIDE = 0, 1, 2


class Table:
    """A world of a few scores with many ties; its risk is no monotone function of either threshold."""

    def __init__(self, seed, levels=6, share=0.25):
        rng = np.random.default_rng(seed)
        self.share = share
        self.p = rng.dirichlet(np.full(levels * levels, 0.5), size=3).reshape(3, levels, levels)
        good = rng.uniform(0.8, 0.95)
        self.kinds = np.array([(1 - share) * good, (1 - share) * (1 - good), share])
        tilt = np.arange(levels)[:, None] + 0.0 * np.arange(levels)
        for kind, power in ((RIGHT, 0.5), (WRONG, -0.3)):  # right answers have higher conf_id, most of the time
            self.p[kind] *= np.exp(power * tilt)
        self.p[OUTSIDE] *= np.exp(-0.5 * tilt.T)
        self.p /= self.p.sum(axis=(1, 2), keepdims=True)

    def draw(self, rng, kind):
        levels = self.p.shape[1]
        cell = np.empty(len(kind), int)
        for k in range(3):
            cell[kind == k] = rng.choice(levels * levels, size=(kind == k).sum(), p=self.p[k].ravel())
        return (cell // levels).astype(float), (cell % levels).astype(float)

    def accepted(self, tau_id, tau_ood):
        x = np.arange(self.p.shape[1])
        return np.array([p[x >= tau_id][:, x >= tau_ood].sum() for p in self.p])


class Normal:
    """Continuous scores, independent given the kind of sample."""

    def __init__(self, share=0.2, good=0.9, apart=1.8, far=2.0):
        self.share = share
        self.kinds = np.array([(1 - share) * good, (1 - share) * (1 - good), share])
        self.means = np.array([[apart, far], [0.0, far], [0.0, 0.0]])

    def draw(self, rng, kind):
        one, two = (rng.normal(size=(len(kind), 2)) + self.means[kind]).T
        return one, two

    def accepted(self, tau_id, tau_ood):
        return norm.sf(tau_id - self.means[:, 0]) * norm.sf(tau_ood - self.means[:, 1])


def sample(world, rng, n, drawn, alone):
    """``mixture``: independent draws. ``by hand``: just as many OOD rows as their share says, behind the ID rows;
    ``shuffled``: the same in random order. ``ood_share``: ID and OOD samples of any sizes,
    here half and half, weighed by the share."""
    if drawn == "mixture":
        kind = rng.choice(3, size=n, p=world.kinds)
    else:
        oods = n - n // 2 if drawn == "ood_share" else round(n * world.share)
        known = rng.random(n - oods) < world.kinds[RIGHT] / (1 - world.share)
        kind = np.concatenate([np.where(known, RIGHT, WRONG), np.full(oods, OUTSIDE)])
    if drawn == "shuffled":
        kind = rng.permutation(kind)
    one, two = world.draw(rng, kind)
    share = world.share if drawn == "ood_share" else None
    return ScoredSamples(kind == RIGHT, kind != OUTSIDE, one, np.zeros(n) if alone else two, share)


def true_risk(world, pair, alone):
    mass = world.kinds * world.accepted(pair[0], -np.inf if alone else pair[1])
    return 1 - mass[RIGHT] / mass.sum()


def true_coverage(world, pair, alone):
    rate = world.accepted(pair[0], -np.inf if alone else pair[1])
    return world.kinds[:2] @ rate[:2] / world.kinds[:2].sum()


def chosen(data, risk, delta):
    learn, test = guarantee.split(data.is_id, data.share)
    a, b = data[learn], data[test]
    if not a.is_id.any() or not b.is_id.any():
        return None
    return guarantee.walk(a, b, a.curve(), risk, delta)


def violations(make, worlds, n, *, drawn, alone, risk=0.15, delta=0.1, seed=0):
    """Worlds whose promise is broken, and worlds with a promise."""
    rng = np.random.default_rng(seed)
    broken = found = 0
    for i in range(worlds):
        world = make(i)
        pair = chosen(sample(world, rng, n, drawn, alone), risk, delta)
        if pair is not None:
            found += 1
            broken += true_risk(world, pair, alone) > risk
    return broken, found


KINDS = [(Table, 60), (Table, 400), (lambda i: Normal(), 120), (lambda i: Normal(), 400)]  # ties, and none


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False], ids=["one score", "two scores"])
@pytest.mark.parametrize("drawn", ["mixture", "by hand", "shuffled", "ood_share"])
def test_promises_are_broken_in_at_most_a_share_delta_of_worlds(drawn, alone):
    each, delta = 250 if drawn == "ood_share" else 500, 0.1
    risk = 0.25 if drawn == "ood_share" else 0.15  # few ID samples promise less
    rows = [violations(make, each, n, drawn=drawn, alone=alone, risk=risk, delta=delta) for make, n in KINDS]
    print("broken and promised of", each, rows)
    for broken, found in rows:
        assert broken / each <= delta + 3 * math.sqrt(delta * (1 - delta) / each)
        assert found > 0 or drawn == "ood_share"
    assert sum(b for b, _ in rows) / (4 * each) <= delta + 3 * math.sqrt(delta * (1 - delta) / (4 * each))
    assert all(found > 0.1 * each for _, found in rows[1::2])  # a promise never made is never broken


def test_promises_of_a_few_worlds():
    for drawn in ("mixture", "by hand", "ood_share"):
        risk = 0.25 if drawn == "ood_share" else 0.15
        broken, found = violations(Table, 60, 400, drawn=drawn, alone=False, risk=risk)
        assert broken <= 60 * 0.1 + 3 * math.sqrt(0.09 * 60)
        assert found > 6


@pytest.mark.parametrize("seed", range(6))
def test_a_path_is_counted_as_a_loop_would(seed):
    world, rng = (Table(seed), Normal())[seed % 2], np.random.default_rng(seed)
    learn, test = (sample(world, rng, 200, "mixture", seed == 2) for _ in range(2))
    pairs = guarantee.path(learn, learn.curve(), 0.1)
    got = guarantee.Counts.of(test, pairs)
    for i, (a, b) in enumerate(pairs):
        taken = [j for j in range(200) if test.conf_id[j] >= a and test.conf_ood[j] >= b]
        assert got.known[i] == sum(test.is_id[j] for j in taken)
        assert got.wrong[i] == sum(test.is_id[j] and not test.correct[j] for j in taken)
        assert got.outside[i] == sum(not test.is_id[j] for j in taken)


@pytest.mark.parametrize("seed", range(4))
def test_the_path_lies_between_the_confidences_that_learn(seed):
    world, rng = (Table(seed), Normal())[seed % 2], np.random.default_rng(seed)
    learn = sample(world, rng, 200, "mixture", False)
    pairs = guarantee.path(learn, learn.curve(), 0.1)
    for column, conf in zip(pairs.T, (learn.conf_id, learn.conf_ood), strict=True):
        finite = column[np.isfinite(column)]
        assert len(finite) > 1
        assert not np.isin(finite, conf).any()
        assert (column[1:] <= column[:-1]).all()


def path_by_loops(learn, risk, curve):
    """Thresholds in the gaps below quantiles that lie on a line through those of the best pair."""
    good = [k for k, r in enumerate(curve.risk) if r <= risk + 1e-9]
    at = good[-1] if good else max(k for k, r in enumerate(curve.risk) if r == min(curve.risk))
    scales = [64 * (2 / 64) ** (k / 23) for k in range(24)] + [2 ** (1 - k / 96) for k in range(1, 97)]
    scales += [1 - 0.6 * k / 96 for k in range(1, 97)] + [0.3, 0.2, 0.1, 0.0]
    columns = []
    for conf, tau in ((learn.conf_id, curve.tau_id[at]), (learn.conf_ood, curve.tau_ood[at])):
        ranked, n = sorted(conf.tolist()), len(conf)
        below, column = sum(c < tau for c in ranked) / n, []
        for s in scales:
            strict = min(below + max(below, 0.01) * (s - 1), 1 - (1 - below) / max(s, 1))
            place = min(round((strict if s > 1 + 1e-12 else below * s) * n), n - 1)
            lower = [c for c in ranked if c < ranked[place]]
            column.append((ranked[place] + lower[-1]) / 2 if place and lower else -math.inf)
        columns.append(column)
    pairs = list(zip(*columns, strict=True))
    return [pair for i, pair in enumerate(pairs) if not i or pair != pairs[i - 1]]


@pytest.mark.parametrize("risk", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_the_path_is_that_of_a_loop(seed, risk):
    learn = sample(Normal(), np.random.default_rng(seed), (30, 150, 400, 90)[seed], "mixture", False)
    curve = learn.curve()
    got, want = guarantee.path(learn, curve, risk), np.array(path_by_loops(learn, risk, curve))
    assert got.shape == want.shape
    assert got == pytest.approx(want)
    assert (got[1:] <= got[:-1]).all()  # from strict to loose


@pytest.mark.parametrize("seed", range(4))
def test_the_weights_of_two_scores_are_their_standard_errors(seed):
    rng = np.random.default_rng(seed)
    ids, oods, share, risk = 300, (80, 5, 0, 4000)[seed], (0.2, 0.6, 0.5, 0.001)[seed], rng.uniform(0.02, 0.3)
    known = rng.integers(1, ids, 6)
    wrong, outside = rng.binomial(known, 0.1), rng.binomial(oods, 0.3, 6)
    counts = guarantee.Counts(float(ids), float(oods), *(c.astype(float) for c in (known, wrong, outside)))
    got = guarantee.combining_weights(counts, risk, share)
    for k, w, o, pair in zip(known, wrong, outside, got, strict=True):
        alpha, rho, q = (k + 1) / (ids + 2), (w + 0.5) / (k + 1), (o + 0.5) / (oods + 1)
        one = (1 - share) * math.sqrt(alpha * rho * (1 - rho) / ids)
        two = share * (1 - risk) * math.sqrt(q * (1 - q) / max(oods, 1))
        angle = min(max(math.atan2(two, one), 0.05), math.pi / 2 - 0.05)
        assert pair == pytest.approx([math.cos(angle), math.sin(angle)])
    assert (guarantee.combining_weights(counts, risk, None) == 1.0).all()


def test_where_all_may_nearly_be_accepted_stricter_pairs_are_tried_too():
    world, rng, found = Normal(share=0.02, good=0.96), np.random.default_rng(0), 0
    assert 0.055 < true_risk(world, (-np.inf, -np.inf), False) < 0.06
    for _ in range(20):
        pair = chosen(sample(world, rng, 2000, "mixture", False), 0.06, 0.1)
        found += pair is not None and true_coverage(world, pair, False) > 0.95
    assert found >= 18


def test_the_binomial_tail_is_scipys():
    e, n = np.array([0.0, 3.0, 10.0, 0.0]), np.array([5.0, 40.0, 10.0, 0.0])
    assert guarantee.binomial_tail(e, n, 0.07) == pytest.approx(
        [binom.cdf(a, b, 0.07) for a, b in zip(e, n, strict=True)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("angle", [0.1, 0.8, 1.4])
def test_the_p_value_at_a_given_share_is_valid_on_the_edge_of_the_null(q, angle):
    """Samples whose risk is exactly r: p is at most delta in at most a share delta of draws."""
    rng = np.random.default_rng(0)
    ids, oods, share, alpha, risk, delta, draws = 300, 80, 0.2, 0.8, 0.12, 0.1, 4000
    rho = risk - share * (1 - risk) * q / ((1 - share) * alpha)
    if rho < 0:
        pytest.skip("no share of wrong labels has this risk")
    known = rng.binomial(ids, alpha, draws).astype(float)
    wrong = rng.binomial(known.astype(int), rho).astype(float)
    outside = rng.binomial(oods, q, draws).astype(float)
    weights = np.tile([math.cos(angle), math.sin(angle)], (draws, 1))
    p = guarantee.p_values(guarantee.Counts(ids, oods, known, wrong, outside), risk, delta, share, weights)
    assert (p <= delta).mean() <= delta + 3 * math.sqrt(0.09 / draws)


CUT, REACH = 0.75, 4.0  # as the text of the module says


def score_of(chance):
    """The normal score of a chance, cut off below."""
    return max(-norm.ppf(chance), -CUT)


def paid_for(z, weights, delta):
    """The p-value of the least weighted sum z: its tail, both cuts, the end of the search, the bound of alpha."""
    one, two = weights
    cuts = norm.sf(CUT) * (norm.sf((z + one * CUT) / two) + norm.sf((z + two * CUT) / one))
    return norm.sf(z) + cuts + norm.sf(REACH) + delta / 10 if z > 0 else 1.0


def searched(count, weights, risk, delta, share, *, cells):
    """The p-value of one pair by its definition: over a fine grid of q, or over 64 cells at their worst corners."""
    ids, oods, known, wrong, outside = count
    alpha = beta.ppf(delta / 10, known, ids - known + 1) if known else 0.0
    if alpha == 0.0:
        return 1.0

    def safe(q):
        rho = risk - share * (1 - risk) * q / ((1 - share) * alpha)
        return min(score_of(binom.cdf(wrong, known, rho)), 8.0) if rho > 0 else -CUT

    def excluded(q):
        return min(score_of(binom.cdf(outside, oods, q)), REACH)

    last = beta.ppf(norm.cdf(REACH), outside + 1, oods - outside) if outside < oods else 1.0
    if not cells:
        fine = [math.sin(a) ** 2 for a in np.linspace(0.0, math.asin(math.sqrt(last)), 200)]
        return paid_for(min(weights[0] * safe(q) + weights[1] * excluded(q) for q in fine), weights, delta)
    middle = math.asin(math.sqrt((outside + 3 / 8) / (oods + 3 / 4)))  # Anscombe's angle: spread 1/2 over sqrt(n + 1/2)
    steps = [middle + s / (2 * math.sqrt(oods + 1 / 2)) for s in np.linspace(-CUT - 0.5, REACH, 64)]
    edges = [min(math.sin(min(max(a, 0.0), math.pi / 2)) ** 2, last) for a in steps[:-1]] + [last]
    lower = [-CUT] + [excluded(q) for q in edges[:-1]]
    z = min(weights[0] * safe(q) + weights[1] * low for q, low in zip(edges, lower, strict=True))
    return paid_for(z, weights, delta)


@pytest.mark.parametrize("seed", range(24))
def test_the_p_value_at_a_given_share_is_that_of_a_loop_and_never_below_a_fine_search(seed):
    rng = np.random.default_rng(seed)
    ids, oods = int(rng.integers(100, 1500)), int(rng.integers(20, 500))
    known = int(rng.integers(ids // 2, ids)) if seed != 3 else ids
    wrong = int(rng.binomial(known, rng.choice([0.01, 0.03, 0.06])))
    outside = int(rng.binomial(oods, rng.choice([0.02, 0.1]))) if seed % 6 else (0, 1, oods - 1, oods)[seed // 6]
    delta, share = rng.uniform(0.02, 0.2), (0.05, 0.2)[seed % 2]
    accepted = (1 - share) * known / ids + share * outside / oods
    seen = ((1 - share) * wrong / ids + share * outside / oods) / accepted
    risk = min(seen * rng.uniform(1.2, 2.2) + 0.01, 0.9)  # not far above what these counts show
    weights = (lambda a: (math.cos(a), math.sin(a)))(rng.uniform(0.1, 1.4))
    count = ids, oods, known, wrong, outside
    counts = guarantee.Counts(float(ids), float(oods), *(np.array([float(c)]) for c in count[2:]))
    got = float(guarantee.p_values(counts, risk, delta, share, np.array([weights]))[0])
    assert got == pytest.approx(searched(count, weights, risk, delta, share, cells=True), rel=1e-6)
    fine = searched(count, weights, risk, delta, share, cells=False)
    assert fine - 1e-9 <= got <= 1.6 * fine


def test_without_ood_inputs_only_wrong_labels_count():
    counts = guarantee.Counts(300.0, 80.0, np.array([250.0, 100.0]), np.array([9.0, 0.0]), np.array([40.0, 0.0]))
    p = guarantee.p_values(counts, 0.08, 0.1, 0.0, np.ones((2, 2)))
    assert p == pytest.approx([binom.cdf(9, 250, 0.08), binom.cdf(0, 100, 0.08)])
    p = guarantee.p_values(counts, 0.08, 0.1, None, np.ones((2, 2)))
    assert p == pytest.approx([binom.cdf(49, 290, 0.08), binom.cdf(0, 100, 0.08)])


def test_more_evidence_means_a_smaller_p_value():
    counts = guarantee.Counts(
        500.0, 200.0, np.full(4, 400.0), np.array([4.0, 8.0, 4.0, 30.0]), np.array([2.0, 2.0, 9.0, 40.0])
    )
    weights = np.full((4, 2), math.sqrt(0.5))
    p = guarantee.p_values(counts, 0.08, 0.1, 0.2, weights)
    assert p[0] < p[1]
    assert p[0] < p[2]
    assert p[3] == 1.0


@pytest.mark.slow
def test_two_scores_cover_more_than_one_at_equal_guarantee():
    """Measured over 40 samples of 10,000: mean coverage of one score, of two, and of the best pair in hindsight."""
    world, rng, risk, delta = Normal(), np.random.default_rng(3), 0.05, 0.1
    grid = np.linspace(-3.0, 5.0, 161)
    pairs = [(a, b) for a in grid for b in grid]
    hindsight = max(true_coverage(world, p, False) for p in pairs if true_risk(world, p, False) <= risk)
    covered = {"two": [], "id": [], "ood": [], "sgr id": [], "sgr ood": []}
    for _ in range(40):
        data = sample(world, rng, 10_000, "mixture", False)
        pair = chosen(data, risk, delta)
        covered["two"].append(0.0 if pair is None else true_coverage(world, pair, False))
        for side, name in enumerate(("id", "ood")):
            conf = (data.conf_id, data.conf_ood)[side]
            one = chosen(ScoredSamples(data.correct, data.is_id, conf, np.zeros(len(conf))), risk, delta)
            paper = sgr(data.correct, conf, risk=risk, delta=delta)
            for key, tau in ((name, one and one.tau_id), (f"sgr {name}", paper.threshold if paper.feasible else None)):
                full = (tau, -np.inf) if side == 0 else (-np.inf, tau)
                covered[key].append(0.0 if tau is None else true_coverage(world, full, False))
    mean = {name: float(np.mean(values)) for name, values in covered.items()}
    print(mean, "hindsight", hindsight, "share", mean["two"] / hindsight)
    assert mean["two"] > max(mean["id"], mean["ood"], mean["sgr id"], mean["sgr ood"])
    assert mean["id"] > mean["sgr id"]
    assert mean["two"] >= 0.9 * hindsight


def outputs_of(data):
    """Outputs whose ``learned`` confidences are the two scores."""
    n = len(data.correct)
    labels = np.where(data.is_id, np.where(data.correct, 0, 1), -1)
    return Outputs(np.tile([1.0, 0.0], (n, 1)), labels, learned={"confidnet": data.conf_id, "devries": data.conf_ood})


def test_a_promise_does_not_survive_a_shift_and_the_report_card_says_so():
    """Thirty gates with a promise of 0.05 at an OOD share of 0.2, where that share is 0.2, 0.4 and 0.5."""
    rng, asked = np.random.default_rng(0), {"objective": "risk", "risk": 0.05, "delta": 0.1}
    fits = [outputs_of(sample(Normal(), rng, 10_000, "mixture", False)) for _ in range(30)]
    gates = [Gate.fit(data, "confidnet", "devries", **asked) for data in fits]
    risks = np.array([[true_risk(Normal(share), g.taus(), False) for share in (0.2, 0.4, 0.5)] for g in gates])
    assert (risks[:, 0] > 0.05).sum() <= binom.ppf(0.999, 30, 0.1)
    assert risks.mean(axis=0) == pytest.approx([0.046, 0.077, 0.101], abs=0.003)  # as guarantee's docstring says
    shifted = outputs_of(sample(Normal(0.4), rng, 10_000, "mixture", False))
    assert {g.report_card(shifted).kept for g in gates} == {"no"}


@pytest.mark.parametrize("share", [None, 0.2])
def test_infeasible_says_what_is_feasible(share):
    data = sample(Normal(), np.random.default_rng(1), 600, "mixture", False)
    outputs = outputs_of(data)
    with pytest.raises(Infeasible) as caught:
        Gate.fit(outputs, "confidnet", "devries", objective="risk", risk=0.002, delta=0.05, ood_share=share)
    best = caught.value.best
    assert 0.002 < best["risk"] < 1
    assert best["delta"] > 0.05
    gate = Gate.fit(outputs, "confidnet", "devries", objective="risk", risk=best["risk"], delta=0.05, ood_share=share)
    assert gate.promise.guaranteed
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("share", [None, 0.2])
def test_what_is_said_to_be_feasible_is_the_least_that_is(share):
    """Both searches halve an interval seven times: what they say passes, and a step less does not."""
    data = sample(Normal(), np.random.default_rng(1), 600, "mixture", False)
    parts = [dataclasses.replace(data[rows], share=share) for rows in guarantee.split(data.is_id, share)]

    def passes(risk, delta):
        return guarantee.walk(*parts, parts[0].curve(), risk, delta) is not None

    def suggested(risk):
        with pytest.raises(Infeasible) as caught:
            guarantee.choose_guaranteed(*parts, risk=risk, delta=0.05)
        return caught.value.best

    least = suggested(0.002)["risk"]
    assert passes(least, 0.05)
    assert not passes(least - (1 - 0.002) / 2**7, 0.05)
    asked = 0.9 * least - 0.01
    surer = suggested(asked)["delta"]
    assert 0.05 < surer < 1.0
    assert passes(asked, surer)
    assert not passes(asked, surer - (1 - 0.05) / 2**7)


def test_a_handful_of_samples_is_infeasible_not_a_crash():
    for n in (1, 2, 3, 5):
        labels = np.zeros(n, int)
        for share in (None,) if n < 2 else (None, 0.3):
            if share is not None:
                labels[-1] = -1
            with pytest.raises(Infeasible):
                Gate.fit(Outputs(np.eye(n, 3), labels), objective="risk", risk=0.05, delta=0.05, ood_share=share)


def test_what_a_score_learns_from_validation_comes_from_the_learning_part():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    logits = rng.normal(size=(600, 3)) + 2.5 * np.eye(3)[labels]
    data = Outputs(logits, labels)
    gate = Gate.fit(data, "temperature|msp", None, train=data, objective="risk", risk=0.2, delta=0.1)
    learn, _ = guarantee.split(data.is_id, None)
    from twofold.scores.chain import scorer

    want = scorer("temperature|msp").fit(data, val=data[learn])
    assert gate.id.tensors().keys() == want.tensors().keys()
    for name, array in want.tensors().items():
        assert (gate.id.tensors()[name] == array).all()


@pytest.mark.slow
def test_a_guaranteed_gate_of_ten_thousand_samples_is_fitted_in_two_seconds():
    outputs = outputs_of(sample(Normal(), np.random.default_rng(0), 10_000, "mixture", False))
    Gate.fit(outputs, "confidnet", "devries", objective="risk", risk=0.05, delta=0.1)  # kernels compile
    for share in (None, 0.2):
        start = time.perf_counter()
        Gate.fit(outputs, "confidnet", "devries", objective="risk", risk=0.05, delta=0.1, ood_share=share)
        took = time.perf_counter() - start
        print(share, took)
        assert took < 2.0
