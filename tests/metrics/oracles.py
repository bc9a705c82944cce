"""Slow and independent: every metric once more, as a loop over its definition in the papers.

Nothing here imports twofold. An accepted set is always found by asking every sample "conf >= threshold?".
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
from scipy import special
from scipy.integrate import quad
from scipy.optimize import brentq


class Undefined(ValueError):
    """The definition gives no value on these data."""


def thresholds(conf):
    """Distinct confidences, most confident first."""
    return sorted({float(c) for c in conf}, reverse=True)


def losses(correct, loss=None):
    return [float(l) for l in loss] if loss is not None else [0.0 if c else 1.0 for c in correct]


def ood_weights(is_id, share):
    """1 for ID samples; OOD samples share the weight that makes OOD ``share`` of everything."""
    inside = sum(map(bool, is_id))
    outside = len(is_id) - inside
    weight = 1.0 if share is None else share / (1 - share) * inside / outside
    return [1.0 if k else weight for k in is_id]


# -------------------------------------------------------------------------------- selective classification


def risk_at(loss, conf, tau, weight=None):
    """Weighted mean loss of the samples with conf >= tau."""
    weight = weight or [1.0] * len(loss)
    inside = [i for i, c in enumerate(conf) if c >= tau]
    return math.fsum(weight[i] * loss[i] for i in inside) / math.fsum(weight[i] for i in inside)


def empirical(loss, conf, weight=None, counted=None):
    """Mean over samples of the risk at their own threshold; ``counted`` says how much each one counts."""
    weight = weight or [1.0] * len(loss)
    counted = weight if counted is None else counted
    parts = [w * risk_at(loss, conf, c, weight) if w else 0.0 for c, w in zip(conf, counted, strict=True)]
    return math.fsum(parts) / math.fsum(counted)


def running_risks(ordered_loss):
    """Selective risks after 1, 2, ..., n samples of a strict order, most confident first."""
    total, risks = 0.0, []
    for k, l in enumerate(ordered_loss, start=1):
        total += l
        risks.append(total / k)
    return risks


def mean_risk(ordered_loss):
    return math.fsum(running_risks(ordered_loss)) / len(ordered_loss)


def rank_weighted(weight):
    """The functional (1/n) sum of weight(r, n) * loss of a strict order, r the ascending rank (n = top)."""

    def value(ordered_loss):
        n = len(ordered_loss)
        return math.fsum(weight(n - i, n) * l for i, l in enumerate(ordered_loss)) / n

    return value


LOG = rank_weighted(lambda r, n: -math.log(1 - r / (n + 1)))
SELE = rank_weighted(lambda r, n: r / n)


def tie_orders(conf):
    """Every order of the samples that is compatible with the confidences, most confident first."""
    groups = [[i for i, c in enumerate(conf) if c == tau] for tau in thresholds(conf)]
    for parts in itertools.product(*(itertools.permutations(g) for g in groups)):
        yield list(itertools.chain(*parts))


def over_tie_orders(value, loss, conf):
    """Mean of a strict-order functional over all tie orders."""
    values = [value([loss[i] for i in order]) for order in tie_orders(conf)]
    return math.fsum(values) / len(values)


def over_random_tie_orders(value, loss, conf, rng, n=2000):
    """Monte-Carlo mean of a strict-order functional over tie orders, and its standard error."""
    loss, conf = np.asarray(loss), np.asarray(conf)
    values = np.array([value(loss[np.lexsort((rng.random(len(conf)), -conf))].tolist()) for _ in range(n)])
    return values.mean(), values.std(ddof=1) / math.sqrt(n)


def points(loss, conf, weight=None):
    """(accepted weight, accepted loss) at every distinct threshold."""
    weight = weight or [1.0] * len(loss)
    result = []
    for tau in thresholds(conf):
        inside = [i for i, c in enumerate(conf) if c >= tau]
        result.append((math.fsum(weight[i] for i in inside), math.fsum(weight[i] * loss[i] for i in inside)))
    return result


def trapezoid(loss, conf):
    """Straight lines between distinct thresholds, flat from the first one to coverage 0."""
    n = len(loss)
    curve = [(c / n, e / c) for c, e in points(loss, conf)]
    area = curve[0][0] * curve[0][1]
    for (c0, r0), (c1, r1) in itertools.pairwise(curve):
        area += (c1 - c0) * (r0 + r1) / 2
    return area


def continuous(loss, conf):
    return integral_of_ratio(points(loss, conf)) / len(loss)


def integral_of_ratio(knots):
    """Integral of E(c)/c by quadrature, E piecewise linear from (0, 0) through the knots."""
    area = knots[0][1]  # E(c)/c is constant on the first stretch
    for (c0, e0), (c1, e1) in itertools.pairwise(knots):
        area += quad(lambda c, a=c0, b=c1, x=e0, y=e1: (x + (y - x) * (c - a) / (b - a)) / c, c0, c1)[0]
    return area


def listing_one(loss, conf):
    """Listing 1 of FD-Shifts: remove the least confident first; points after a tie group's *first* member."""
    order = sorted(range(len(conf)), key=lambda i: conf[i])
    n, total = len(order), math.fsum(loss)
    risks, widths, width = [total / n], [], 0
    for i in range(n - 1):
        total -= loss[order[i]]
        width += 1
        if i == 0 or conf[order[i]] != conf[order[i - 1]]:
            risks.append(total / (n - 1 - i))
            widths.append(width / n)
            width = 0
    if width:
        risks.append(risks[-1])
        widths.append(width / n)
    return math.fsum(w * (a + b) / 2 for w, (a, b) in zip(widths, itertools.pairwise(risks), strict=True))


def generalised_area(loss, conf, weight=None):
    """AUGRC: the integral of accepted loss / n over coverage, by straight lines from the origin."""
    curve = [(0.0, 0.0), *points(loss, conf, weight)]
    total = curve[-1][0]
    return math.fsum((c1 - c0) * (e0 + e1) / 2 for (c0, e0), (c1, e1) in itertools.pairwise(curve)) / total**2


def best_order(loss):
    """Confidences that rank the losses perfectly, no two of them equal."""
    rank = {i: r for r, i in enumerate(sorted(range(len(loss)), key=lambda i: loss[i]))}
    return [-float(rank[i]) for i in range(len(loss))]


def excess(area, loss, conf):
    return area(loss, conf) - area(loss, best_order(loss))


def normalised(loss, conf):
    best, flat = empirical(loss, best_order(loss)), math.fsum(loss) / len(loss)
    if max(loss) == min(loss):
        raise Undefined("all losses are equal")
    return (empirical(loss, conf) - best) / (flat - best)


def achievable(loss, conf):
    """`continuous` on the lower convex hull: at each point the least chord over it."""
    knots = [(0.0, 0.0), *points(loss, conf)]
    hull = []
    for x, y in knots[1:]:
        chords = [y]
        for (x0, y0), (x1, y1) in itertools.combinations(knots, 2):
            if x0 <= x <= x1:
                chords.append(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        hull.append((x, min(chords)))
    return integral_of_ratio(hull) / len(loss)


def balanced_generalised(labels, correct, conf):
    classes = sorted(set(map(int, labels)))
    size = {c: sum(int(y) == c for y in labels) for c in classes}
    n = len(labels)
    loss = [n / (len(classes) * size[int(y)]) * (not c) for y, c in zip(labels, correct, strict=True)]
    return generalised_area(loss, conf)


def balanced_empirical(labels, correct, conf):
    classes = sorted(set(map(int, labels)))
    area = 0.0
    for tau in conf:
        for k in classes:
            inside = [not c for y, c, g in zip(labels, correct, conf, strict=True) if y == k and g >= tau]
            area += sum(inside) / len(inside) / len(classes) if inside else 0.0
    return area / len(conf)


# -------------------------------------------------------------------------------- detection


def split(truth, conf):
    safe = [float(c) for t, c in zip(truth, conf, strict=True) if t]
    unsafe = [float(c) for t, c in zip(truth, conf, strict=True) if not t]
    if not safe or not unsafe:
        raise Undefined("one class only")
    return safe, unsafe


def auroc(truth, conf):
    safe, unsafe = split(truth, conf)
    wins = sum((s > u) + (s == u) / 2 for s in safe for u in unsafe)
    return wins / (len(safe) * len(unsafe))


def precision_recall(positive, score):
    """(recall, precision) at every distinct score, highest first."""
    curve, total = [], sum(positive)
    for tau in thresholds(score):
        found = [p for p, s in zip(positive, score, strict=True) if s >= tau]
        curve.append((sum(found) / total, sum(found) / len(found)))
    return curve


def turned(truth, conf, positive):
    """Truth and score of the positive class."""
    split(truth, conf)
    if positive == "safe":
        return [bool(t) for t in truth], [float(c) for c in conf]
    return [not t for t in truth], [-float(c) for c in conf]


def average_precision(truth, conf, positive="safe"):
    area = before = 0.0
    for recall, precision in precision_recall(*turned(truth, conf, positive)):
        area += (recall - before) * precision
        before = recall
    return area


def aupr(truth, conf, positive="safe"):
    curve = [(0.0, 1.0), *precision_recall(*turned(truth, conf, positive))]
    return math.fsum((r1 - r0) * (p0 + p1) / 2 for (r0, p0), (r1, p1) in itertools.pairwise(curve))


def fpr_at_tpr(truth, conf, tpr=0.95, positive="safe"):
    positives, score = turned(truth, conf, positive)
    for tau in thresholds(score):
        found = [p for p, s in zip(positives, score, strict=True) if s >= tau]
        if sum(found) / sum(positives) >= tpr:
            return (len(found) - sum(found)) / (len(positives) - sum(positives))
    raise AssertionError("the last threshold accepts everything")


def detection_error(truth, conf):
    safe, unsafe = split(truth, conf)
    errors = [
        sum(u >= tau for u in unsafe) / len(unsafe) + sum(s < tau for s in safe) / len(safe)
        for tau in [math.inf, *thresholds(conf)]
    ]
    return min(errors) / 2


def autc(truth, conf):
    """Exact integral of two step functions of the threshold over the min-max scaled scores."""
    split(truth, conf)
    low, high = min(map(float, conf)), max(map(float, conf))
    if low == high:
        raise Undefined("all scores are equal")
    scaled = [(float(c) - low) / (high - low) for c in conf]
    safe, unsafe = split(truth, scaled)
    area = 0.0
    for a, b in itertools.pairwise(sorted(set(scaled))):
        middle = (a + b) / 2
        false_accepts = sum(u >= middle for u in unsafe) / len(unsafe)
        false_rejects = sum(s < middle for s in safe) / len(safe)
        area += (b - a) * (false_accepts + false_rejects) / 2
    return area


# -------------------------------------------------------------------------------- joint


def accept(confs, taus):
    """Which samples pass every threshold."""
    return [all(c[i] >= t for c, t in zip(confs, taus, strict=True)) for i in range(len(confs[0]))]


def counts(correct, is_id, accepted):
    """Right, ID and OOD samples among the accepted ones."""
    right = sum(bool(c and a) for c, a in zip(correct, accepted, strict=True))
    known = sum(bool(k and a) for k, a in zip(is_id, accepted, strict=True))
    return right, known, sum(accepted) - known


def every_pair(correct, confs, is_id):
    """(thresholds, right, known, outside) for all thresholds that are scores of ID samples, and +inf."""
    axes = [[math.inf, *thresholds([c for c, k in zip(conf, is_id, strict=True) if k])] for conf in confs]
    for taus in itertools.product(*axes):
        yield taus, *counts(correct, is_id, accept(confs, taus))


def every_pair_of_all_scores(correct, confs, is_id):
    """The same over the scores of every sample, OOD ones too."""
    for taus in itertools.product(*([math.inf, *thresholds(conf)] for conf in confs)):
        yield taus, *counts(correct, is_id, accept(confs, taus))


def best_f1(correct, confs, is_id, weight=1.0):
    """(F1, accepted, thresholds) of the maximum; then fewest accepted, largest tau_id, largest tau_ood."""
    inside = sum(map(bool, is_id))
    found = [
        (2 * right / (known + weight * outside + inside), -(known + weight * outside), taus)
        for taus, right, known, outside in every_pair(correct, confs, is_id)
    ]
    value, accepted, taus = max(found)
    return value, -accepted, taus


def least_risks(correct, confs, is_id, weight=1.0, monotone=False, pairs=every_pair_of_all_scores):
    """Least risk for each number k = 1..n_ID of accepted ID samples, over all pairs of thresholds."""
    inside = sum(map(bool, is_id))
    least = [math.inf] * (inside + 1)
    for _, right, known, outside in pairs(correct, confs, is_id):
        if known:
            least[known] = min(least[known], 1 - right / (known + weight * outside))
    for k in range(inside - 1, 0, -1):
        if monotone:
            least[k] = min(least[k], least[k + 1])
        elif least[k] == math.inf:
            least[k] = least[k + 1]
    return least[1:]


def least_risks_by_rows(correct, conf_id, conf_ood, is_id, weight=1.0):
    """`least_risks` for larger sets: every row of threshold pairs by cumulative sums, nothing skipped."""
    correct, is_id = np.asarray(correct, bool), np.asarray(is_id, bool)
    order = np.argsort(-np.asarray(conf_id), kind="stable")
    correct, is_id = correct[order], is_id[order]
    conf_id, conf_ood = np.asarray(conf_id)[order], np.asarray(conf_ood)[order]
    last = np.append(conf_id[1:] != conf_id[:-1], True)
    least = np.full(int(is_id.sum()) + 1, np.inf)
    for tau in np.unique(conf_ood[is_id]):
        passed = conf_ood >= tau
        right = np.cumsum(correct & passed)[last]
        known = np.cumsum(is_id & passed)[last]
        outside = np.cumsum(~is_id & passed)[last]
        some = known > 0
        risk = 1 - right[some] / (known[some] + weight * outside[some])
        np.minimum.at(least, known[some], risk)
    for k in range(len(least) - 2, 0, -1):
        if np.isinf(least[k]):
            least[k] = least[k + 1]
    return least[1:]


def published_counts(correct, confs, is_id):
    """Right, known and OOD counts on the released grid: 0, 0.001, ..., 1 on every axis, in single precision.

    The last score is min-max scaled over all samples, the one before it is taken as it is.
    """
    correct, is_id = np.asarray(correct, bool), np.asarray(is_id, bool)
    *first, last = (np.asarray(c, np.float32) for c in confs)
    last = (last - last.min()) / (last.max() - last.min() + np.float32(1e-12))
    grid = np.linspace(0, 1, 1001, dtype=np.float32)
    passed = [(c[None, :] >= grid[:, None]).astype(np.float64) for c in (*first, last)]

    def count(kind):
        kind = kind.astype(np.float64)
        return passed[0] @ kind if len(passed) == 1 else (passed[0] * kind) @ passed[1].T

    return count(correct), count(is_id), count(~is_id)


def published_f1(correct, confs, is_id):
    right, known, outside = published_counts(correct, confs, is_id)
    precision = right / (known + outside + 1e-12)
    recall = right / (sum(map(bool, is_id)) + 1e-12)
    return float((2 * precision * recall / (precision + recall + 1e-12)).max())


def published_area(correct, confs, is_id):
    right, known, outside = published_counts(correct, confs, is_id)
    inside = sum(map(bool, is_id))
    risk = 1 - right / (known + outside + 1e-12)
    least = {k: risk[known == k].min() for k in range(inside + 1) if (known == k).any()}
    bins = []
    for j in range(100):
        here = [r for k, r in least.items() if j * inside <= k * 100 < (j + 1) * inside]
        bins.append(min(here, default=None))
    bins[99] = 1.0 if bins[99] is None else bins[99]
    for j in range(98, -1, -1):
        bins[j] = bins[j + 1] if bins[j] is None else bins[j]
    return math.fsum((a + b) / 2 * 0.01 for a, b in itertools.pairwise(bins))


def oscr(correct, conf, is_id):
    """Share of (OOD, ID) pairs in which the ID sample is right and above the OOD one; ties count half."""
    right = [float(c) for c, r in zip(conf, correct, strict=True) if r]
    outside = [float(c) for c, k in zip(conf, is_id, strict=True) if not k]
    inside = sum(map(bool, is_id))
    if not outside or not inside:
        raise Undefined("needs ID and OOD")
    return sum((r > o) + (r == o) / 2 for r in right for o in outside) / (len(outside) * inside)


def ccr_at_fpr(correct, conf, is_id, fpr):
    outside = sum(not k for k in is_id)
    best = 0.0
    for tau in thresholds(conf):
        right, _, wrong_side = counts(correct, is_id, [c >= tau for c in conf])
        if wrong_side / outside <= fpr:
            best = max(best, right / sum(map(bool, is_id)))
    return best


# -------------------------------------------------------------------------------- calibration


def bin_gaps(correct, prob, bins=15):
    """(samples, |accuracy - mean probability|) of bins (b-1)/B < p <= b/B; the first one holds 0 too."""
    gaps = []
    for b in range(bins):
        here = [
            (bool(c), float(p))
            for c, p in zip(correct, prob, strict=True)
            if b / bins < p <= (b + 1) / bins or (b == 0 and p == 0)
        ]
        if here:
            right, stated = zip(*here, strict=True)
            gaps.append((len(here), abs(sum(right) - math.fsum(stated)) / len(here)))
    return gaps


def softmax(row):
    terms = [math.exp(float(z) - max(map(float, row))) for z in row]
    return [t / math.fsum(terms) for t in terms]


def brier(labels, logits):
    parts = [(p - (y == c)) ** 2 for y, row in zip(labels, logits, strict=True) for c, p in enumerate(softmax(row))]
    return math.fsum(parts) / len(labels)


def hits(labels, logits):
    return [int(np.argmax(row)) == int(y) for y, row in zip(labels, logits, strict=True)]


def balanced_accuracy(labels, logits):
    hit = hits(labels, logits)
    classes = sorted(set(map(int, labels)))
    recalls = [
        sum(h for h, y in zip(hit, labels, strict=True) if y == c) / sum(int(y) == c for y in labels) for c in classes
    ]
    return math.fsum(recalls) / len(classes)


# -------------------------------------------------------------------------------- the whole table


def _known(correct, is_id):
    return [True] * len(correct) if is_id is None else is_id


# -------------------------------------------------------------------------------- calibration bins


def slow_bins(prob, bins, strategy):
    """Bin of every sample, by exact rational arithmetic on one sample at a time."""
    prob = [float(p) for p in prob]
    result = []
    for p in prob:
        if strategy == "width":
            b = 0
            while b < bins - 1 and p > (b + 1) / bins:
                b += 1
        else:
            below, equal = sum(q < p for q in prob), sum(q == p for q in prob)
            b = math.floor((below + Fraction(equal, 2)) / len(prob) * bins)
        result.append(b)
    return result


def slow_gaps(correct, prob, bins, strategy):
    """(count, |accuracy - mean probability|) of each bin that holds samples."""
    where = slow_bins(prob, bins, strategy)
    gaps = []
    for b in range(bins):
        members = [i for i, w in enumerate(where) if w == b]
        if members:
            acc = sum(bool(correct[i]) for i in members) / len(members)
            conf = math.fsum(float(prob[i]) for i in members) / len(members)
            gaps.append((len(members), abs(acc - conf)))
    return gaps


def slow_ece(correct, prob, bins=15, strategy="width"):
    return math.fsum(n * gap for n, gap in slow_gaps(correct, prob, bins, strategy)) / len(prob)


def slow_softmax(z):
    return special.softmax(np.asarray(z, dtype=np.float64), axis=-1)


def classwise(labels, logits):
    probs = [softmax(row) for row in logits]
    errors = []
    for k in range(len(probs[0])):
        gaps = bin_gaps([int(y) == k for y in labels], [p[k] for p in probs])
        errors.append(math.fsum(n * g for n, g in gaps) / len(labels))
    return math.fsum(errors) / len(errors)


def smooth(correct, prob):
    """The definition with the kernel as a sum of mirror images, solved by Brent's method."""
    t = (np.arange(1024) + 0.5) / 1024

    def error(sigma):
        total = np.zeros_like(t)
        for c, p in zip(correct, prob, strict=True):
            kernel = np.zeros_like(t)
            for shift in range(-12, 13, 2):
                for image in (float(p), -float(p)):
                    kernel += np.exp(-0.5 * ((t - image + shift) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
            total += kernel * (bool(c) - float(p)) / len(prob)
        return np.abs(total).mean()

    if error(0.002) <= 0.002:
        return error(0.002)
    if error(1.0) >= 1.0:
        return 1.0
    return brentq(lambda sigma: error(sigma) - sigma, 0.002, 1.0, xtol=1e-15)


def rejection_area(loss, conf):
    """Accuracy at twenty quantiles of the uncertainty, as the code for semantic entropy sums it."""
    n = len(conf)
    ranked = sorted(range(n), key=lambda i: -conf[i])
    area = 0.0
    for step in range(20):
        share = Fraction(1, 10) + step * Fraction(9, 190)
        cutoff = conf[ranked[math.floor(share * (n - 1))]]
        kept = [1.0 - loss[i] for i in range(n) if conf[i] >= cutoff]
        area += 0.9 / 19 * math.fsum(kept) / len(kept)
    return area


ORACLES = {
    "auarc": lambda correct, conf, loss=None: 1.0 - empirical(losses(correct, loss), conf),
    "aurac": lambda correct, conf, loss=None: rejection_area(losses(correct, loss), conf),
    "prr": lambda correct, conf, loss=None: 1.0 - normalised(losses(correct, loss), conf),
    "classwise_ece": classwise,
    "smooth_ece": smooth,
    "ece": lambda correct, prob: math.fsum(n * g for n, g in bin_gaps(correct, prob)) / len(prob),
    "mce": lambda correct, prob: max(g for _, g in bin_gaps(correct, prob)),
    "nll": lambda labels, logits: (
        -math.fsum(math.log(softmax(z)[y]) for y, z in zip(labels, logits, strict=True)) / len(labels)
    ),
    "brier": brier,
    "accuracy": lambda labels, logits: sum(hits(labels, logits)) / len(labels),
    "balanced_accuracy": balanced_accuracy,
    "auroc": auroc,
    "average_precision": average_precision,
    "average_precision_unsafe": lambda truth, conf: average_precision(truth, conf, "unsafe"),
    "aupr": aupr,
    "aupr_unsafe": lambda truth, conf: aupr(truth, conf, "unsafe"),
    "fpr_at_tpr": fpr_at_tpr,
    "fpr95": fpr_at_tpr,
    "fpr95_unsafe": lambda truth, conf: fpr_at_tpr(truth, conf, positive="unsafe"),
    "detection_error": detection_error,
    "autc": autc,
    "aurc": lambda correct, conf, is_id=None, loss=None: empirical(losses(correct, loss), conf),
    "eaurc": lambda correct, conf, is_id=None, loss=None: excess(empirical, losses(correct, loss), conf),
    "naurc": lambda correct, conf, is_id=None, loss=None: normalised(losses(correct, loss), conf),
    "augrc": lambda correct, conf, is_id=None, loss=None: generalised_area(losses(correct, loss), conf),
    "eaugrc": lambda correct, conf, is_id=None: excess(generalised_area, losses(correct), conf),
    "achievable_aurc": lambda correct, conf, is_id=None, loss=None: achievable(losses(correct, loss), conf),
    "joint_aurc": lambda correct, conf, is_id: empirical(losses(correct), conf),
    "joint_augrc": lambda correct, conf, is_id: generalised_area(losses(correct), conf),
    "balanced_augrc": balanced_generalised,
    "balanced_aurc": balanced_empirical,
    "f1": lambda correct, conf, is_id=None: best_f1(correct, [conf], _known(correct, is_id))[0],
    "aurc_id": lambda correct, conf, is_id=None: empirical(
        losses(correct), conf, counted=[float(k) for k in _known(correct, is_id)]
    ),
    "ds_f1": lambda correct, conf_id, conf_ood, is_id=None: best_f1(
        correct, [conf_id, conf_ood], _known(correct, is_id)
    )[0],
    "ds_aurc": lambda correct, conf_id, conf_ood, is_id=None: float(
        np.mean(least_risks(correct, [conf_id, conf_ood], _known(correct, is_id)))
    ),
    "oscr": oscr,
}
