"""The drawn sections: risk over coverage, densities, ROC, calibration, improvement."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from twofold import metrics
from twofold._checks import Array
from twofold.errors import UndefinedMetric
from twofold.metrics._sweep import truth_sweep
from twofold.report import charts
from twofold.report.charts import Plot, thinned
from twofold.report.document import Figure, Part, Section
from twofold.report.judge import EXACT, KIND, WORDS, Judge
from twofold.report.material import Pool

AXES = ("share of known inputs accepted", "risk: failures among accepted")
COLOURS = {"right": "k2", "wrong": "k1", "near": "k3", "mid": "k4", "far": "k0", "unknown": "k0"}


def risk_coverage(judge: Judge) -> Section:
    """Draw risk over coverage of single scores, of both scores and of the oracle; and the cloud of all threshold pairs.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        Two figures.
    """
    p, pair = judge.pool, judge.pair
    lines: list[tuple[str, str, Array, Array]] = []
    for i, spec in enumerate(dict.fromkeys((judge.single.id, pair.id, pair.ood))):
        kind: Any = "all" if p.inside is None else "id"
        curve = metrics.risk_coverage_curve(p.correct, p.conf[spec], is_id=p.inside, coverage=kind)
        keep = np.flatnonzero(curve.coverage > 0)
        keep = keep[thinned(len(keep))]
        lines.append((spec, ("k4", "k1", "k3")[i], curve.coverage[keep], curve.risk[keep]))
    grid = judge.grids[pair]
    risk, covered, _ = grid.risks()
    if pair.id != pair.ood:
        name = f"{pair.name}, best pair of thresholds"
        lines.append((name, "k0", *_envelope(judge)))
    accuracy = float(p.correct.sum() / p.is_id.sum())
    steps = np.linspace(0.001, 1.0, 240)
    lines.append(("oracle", "k2", steps, np.maximum(0.0, 1.0 - accuracy / steps)))
    point = grid.point(*grid.place(*judge.points[pair]))
    high = max([0.02, *(float(y[x > 0.05].max()) for _, _, x, y in lines if (x > 0.05).any())])
    about = f"Risk over coverage of {len(lines)} ways to accept"
    plot = Plot((0, 1), (0, min(1.0, 1.05 * high)), *AXES, about, lines=3)
    for name, cls, x, y in lines:
        plot.line(x, np.minimum(y, plot.y[1]), cls, name)
    plot.dots([point["coverage"]], [point["risk"]], "k6", "the gate", "dd")
    rows = [(name, *pair_) for name, _, x, y in lines for pair_ in zip(rounded(x), rounded(y), strict=True)]
    area = "aurc_id" if p.inside is not None else "aurc"
    caption = (
        "Lower is better. The oracle rejects every failure before any right answer: no score can do better. The area "
        f"under the line of one score is its {area}."
    )
    columns = ("curve", "coverage", "risk")
    first = Figure("risk-coverage", "Risk over coverage", caption, plot.svg(), columns, tuple(rows))
    return Section("risk-coverage", "How much risk for how much coverage", (first, *_cloud(judge, risk, covered)))


def _envelope(judge: Judge) -> tuple[Array, Array]:
    p, pair = judge.pool, judge.pair
    if int(p.is_id.sum()) <= EXACT // 2:
        curve = metrics.ds_risk_coverage_curve(p.correct, p.conf[pair.id], p.conf[pair.ood], p.inside)
        keep = thinned(len(curve.risk))
        return curve.coverage[keep], curve.risk[keep]
    risk, covered, _ = judge.grids[pair].risks()
    place = np.minimum((covered * 200).astype(int), 199).ravel()
    least = np.full(200, np.inf)
    np.minimum.at(least, place, np.where(covered.ravel() > 0, risk.ravel(), np.inf))
    keep = np.isfinite(least)
    return (np.arange(200)[keep] + 0.5) / 200, least[keep]


def _cloud(judge: Judge, risk: Array, covered: Array) -> tuple[Part, ...]:
    if judge.pair.id == judge.pair.ood:
        return ("There is one score only, so there is no cloud of threshold pairs to draw.",)
    some = np.flatnonzero(covered.ravel() > 0)
    some = np.random.default_rng(judge.seed).permutation(some)[:2500]
    x, y = covered.ravel()[some], risk.ravel()[some]
    edge = _envelope(judge)
    high = float(max(np.quantile(y, 0.995), edge[1].max(), 0.02))
    about = "A cloud of threshold pairs above the curve of the best of them"
    plot = Plot((0, 1), (0, min(1.0, 1.05 * high)), *AXES, about, lines=1)
    inside = y <= plot.y[1]
    plot.dots(x[inside], y[inside], "k6", "a pair of thresholds")
    plot.line(*edge, "k0", "the best at each coverage")
    rows = tuple(("pair", a, b) for a, b in zip(rounded(x), rounded(y), strict=True))
    rows += tuple(("best", a, b) for a, b in zip(rounded(edge[0]), rounded(edge[1]), strict=True))
    caption = (
        f"Each dot is one pair of thresholds on {judge.pair.name}; DS-AURC (ds_aurc) is the area under the lower edge, "
        "over the coverage of known inputs."
    )
    return (Figure("cloud", "All pairs of thresholds", caption, plot.svg(), ("what", "coverage", "risk"), rows),)


def rounded(values: Array) -> list[float]:
    """Round values to six significant digits: more than a drawing shows, and less to store.

    Parameters
    ----------
    values : ndarray
        The values.

    Returns
    -------
    list of float
        The rounded values.

    Examples
    --------
    >>> rounded(np.array([1 / 3]))
    [0.333333]
    """
    return [float(f"{value:.6g}") for value in values.tolist()]


def densities(judge: Judge) -> Section:
    """Draw where each kind of input lies on each score.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A figure for each score of the judged pair.
    """
    p = judge.pool
    figures = [_density(p, spec, i) for i, spec in enumerate(dict.fromkeys((judge.pair.id, judge.pair.ood)))]
    text = "The further the right answers lie to the right of everything else, the better a threshold can part them."
    return Section("densities", "What the scores see", (text, *figures))


def _density(p: Pool, spec: str, place: int) -> Figure:
    conf = p.conf[spec]
    finite = conf[np.isfinite(conf)]
    low, high = np.quantile(finite, (0.002, 0.998)) if len(finite) else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1.0, 61)
    centres = (edges[1:] + edges[:-1]) / 2
    found = {}
    for kind, mask in p.kinds.items():
        if mask.sum() > 1:
            counted = np.histogram(np.clip(conf[mask], edges[0], edges[-1]), edges)[0]
            smooth = np.convolve(np.pad(counted, 1, "edge"), (0.25, 0.5, 0.25), "valid")
            found[kind] = smooth / (mask.sum() * (edges[1] - edges[0]))
    top = max((float(np.quantile(y, 0.985)) for y in found.values()), default=1.0)
    unit = " (log-odds of the maximum probability)" if spec == "msp" else ""
    span, about = (float(edges[0]), float(edges[-1])), f"Densities of {spec} for {len(found)} kinds of inputs"
    plot = Plot(span, (0, 1.15 * top or 1.0), f"{charts.clipped(spec, 40)}{unit}", "density", about)
    for kind, y in found.items():
        plot.area(centres, np.minimum(y, plot.y[1]), COLOURS[kind], WORDS[kind])
    rows = [(WORDS[kind], *xy) for kind, y in found.items() for xy in zip(rounded(centres), rounded(y), strict=True)]
    caption = "Each curve has area 1, so kinds with many and few inputs can be compared; higher scores are safer."
    return Figure(f"density-{place}", spec, caption, plot.svg(), ("kind", "score", "density"), tuple(rows))


def roc(judge: Judge) -> Section:
    """Draw ROC curves of known against unknown inputs, and of correct against wrong predictions.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A figure of at most seven curves, and why others cannot be drawn.
    """
    p, pair = judge.pool, judge.pair
    lines = []
    for role in judge.material.roles:
        rows = p.is_id | (p.role == role)
        for spec in dict.fromkeys((pair.ood, judge.single.id)):
            lines.append((f"known against {KIND[role]}, {spec}", p.is_id[rows], p.conf[spec][rows]))
    for spec in dict.fromkeys((pair.id, judge.single.id)):
        lines.append((f"right against wrong, {spec}", p.correct[p.is_id], p.conf[spec][p.is_id]))
    lines = lines[:7]
    count, tall = len(lines), 330 + 17 * len(lines)
    names = "share of unsafe inputs accepted", "share of safe inputs accepted"
    plot = Plot((0, 1), (0, 1), *names, f"ROC curves, {count} of them", lines=count, height=tall)
    plot.line([0, 1], [0, 1], "k6")
    rows, skipped = [], []
    for i, (name, truth, conf) in enumerate(lines):
        try:
            area = metrics.auroc(truth, conf)
        except UndefinedMetric as error:
            skipped.append(f"{name}: {error}")
            continue
        s = truth_sweep(truth, conf)
        safe, unsafe = s.right / s.right[-1], (s.accepted - s.right) / max(s.accepted[-1] - s.right[-1], 1)
        x, y = np.concatenate([[0.0], unsafe]), np.concatenate([[0.0], safe])
        keep = thinned(len(x), 200)
        plot.line(x[keep], y[keep], f"k{i}", f"{area:.3f}  {name}")
        rows += [(name, *xy) for xy in zip(rounded(x[keep]), rounded(y[keep]), strict=True)]
    caption = "The number before each name is its AUROC: the chance that a safe input scores above an unsafe one."
    figure = Figure("roc", "ROC", caption, plot.svg(), ("curve", "unsafe accepted", "safe accepted"), tuple(rows))
    return Section("roc", "How well each score ranks", (figure, *(f"Not drawn: {why}." for why in skipped)))


def calibration(judge: Judge) -> Section:
    """Draw accuracy over stated probability.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        Sentences and a figure; one sentence where the confidences are not probabilities.
    """
    tests = [one for one in judge.material.test if one.prob is not None]
    if not tests:
        why = "The confidences are no probabilities: they leave the range from 0 to 1, so there is nothing to check."
        return Section("calibration", "Does it know how sure it is?", (why,))
    correct = np.concatenate([one.correct for one in tests])
    prob = np.concatenate([one.prob for one in tests if one.prob is not None])
    found = metrics.reliability_diagram(correct, prob)
    gap = metrics.ece(correct, prob)
    plot = Plot((0, 1), (0, 1), "stated probability", "share that is right", "Accuracy in bins of stated probability")
    plot.bars(found.lower, found.upper, found.accuracy, "k0", "share that is right")
    plot.line([0, 1], [0, 1], "k6", "perfectly calibrated")
    plot.dots(found.prob, found.accuracy, "k1", "mean of the bin", "dd")
    lean = float(np.sum(found.gap * found.count) / found.rows)
    side = "keeps what it says on average"
    if abs(lean) > 0.005:
        side = "says more than it keeps (overconfident)" if lean < 0 else "keeps more than it says (underconfident)"
    text = (
        f"On known test inputs the classifier {side}: it states {100 * float(prob.mean()):.1f} % on average and is "
        f"right in {100 * float(correct.mean()):.1f} %. Expected calibration error: {100 * gap:.2f} points."
    )
    rows = tuple(
        (float(a), float(b), int(n), float(q), float(r))
        for a, b, n, q, r in zip(found.lower, found.upper, found.count, found.prob, found.accuracy, strict=True)
    )
    caption = "Bars below the dashed line: overconfident; above: underconfident."
    columns = ("from", "to", "inputs", "mean probability", "share right")
    figure = Figure("calibration", "Calibration", caption, plot.svg(), columns, rows)
    return Section("calibration", "Does it know how sure it is?", (text, figure))


def improvement(judge: Judge) -> Section:
    """Draw how much each score improves on the plain one.

    Parameters
    ----------
    judge : Judge
        What several sections share.

    Returns
    -------
    Section
        A figure for each kind of unknown input.
    """
    m, base, title = judge.material, judge.single.id, "Better than the plain score?"
    if len(m.scores) < 2:
        return Section("improvement", title, ("There is one score only.",))
    figures = []
    for roles in judge.groups:
        p = m.pool(*roles)
        kept: Literal["all", "id"] = "id" if roles else "all"
        area = {spec: metrics.aurc(p.correct, p.conf[spec], is_id=p.inside, coverage=kept) for spec in p.conf}
        metric = "aurc_id" if roles else "aurc"
        if not area[base]:
            continue
        gain = {spec: 100 * (area[base] - value) / area[base] for spec, value in area.items() if spec != base}
        names = sorted(gain, key=lambda spec: -gain[spec])
        kind = KIND[roles[0]] if roles else "known inputs only"
        about = f"Improvement of {len(names)} scores over {base}, {kind}"
        svg = charts.bar_rows(names, np.array([gain[s] for s in names]), f"{metric} below that of {base}, %", about)
        whose = "known" if roles else "all"
        area_words = f"the area under the risk ({metric}, over the coverage of {whose} inputs)"
        caption = f"How much lower {area_words} is than that of {base}."
        rows = tuple((s, area[s], gain[s]) for s in names)
        key = f"improvement-{roles[0] if roles else 'known'}"
        figures.append(Figure(key, kind, caption, svg, ("score", metric, "improvement %"), rows))
    text = f"Each score alone, on known and unknown inputs together. Left of the line is worse than {base}."
    return Section("improvement", title, (text, *figures))
