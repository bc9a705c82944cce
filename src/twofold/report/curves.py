"""The drawn sections: risk over coverage, densities, ROC, calibration, improvement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twofold import metrics
from twofold.errors import UndefinedMetric
from twofold.plot.confidences import score_densities
from twofold.plot.curves import oracle_curve
from twofold.plot.display import thin
from twofold.report.charts import bar_rows
from twofold.report.document import Figure, Part, Section
from twofold.report.measure import EXACT, KIND_NAMES, UNKNOWN_NAMES, Measurements, Roles
from twofold.report.scored import Pool
from twofold.report.svg import Plot, clip_text, round_values
from twofold.typing import Array, Mask

AXES = ("share of known inputs accepted", "risk: failures among accepted")
STYLES = {"correct": "k2", "wrong": "k1", "near": "k3", "mid": "k4", "far": "k0", "unknown": "k0"}
BINS = 200  # of coverage, for the lower edge of a grid of threshold pairs
MOST_DOTS = 2500  # pairs of thresholds that are drawn
MOST_ROC_CURVES = 7


@dataclass(frozen=True, eq=False)
class _Curve:
    """Hold a line of a figure."""

    name: str
    style: str
    x: Array
    y: Array

    def rows(self, name: str | None = None) -> list[tuple[str, float, float]]:
        """List its points for the data of a figure."""
        points = zip(round_values(self.x), round_values(self.y), strict=True)
        return [(name or self.name, x, y) for x, y in points]


# --- risk over coverage ---------------------------------------------------------------------------------------------


def risk_coverage_section(measurements: Measurements) -> Section:
    """Draw risk over coverage of single scores, of both scores and of the oracle; and the cloud of all threshold pairs.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        Two figures.
    """
    parts: list[Part] = [_risk_coverage_figure(measurements)]
    if measurements.pair.is_single:
        parts.append("There is only one score, so there are no pairs of thresholds to draw.")
    else:
        parts.append(_cloud_figure(measurements))
    return Section("risk-coverage", "How much risk for how much coverage", tuple(parts))


def _risk_coverage_figure(measurements: Measurements) -> Figure:
    pool, pair = measurements.pool, measurements.pair
    scores = dict.fromkeys((measurements.single.id, pair.id, pair.ood))
    curves = [_score_curve(pool, spec, style) for spec, style in zip(scores, ("k4", "k1", "k3"), strict=False)]
    if not pair.is_single:
        curves.append(_best_pairs_curve(measurements, f"{pair.name}, best pair of thresholds"))
    curves.append(_oracle_curve(pool))
    highest = 0.02
    for curve in curves:
        highest = max(highest, curve.y[curve.x > 0.05].max(initial=0.0))  # at small coverage the risk is erratic
    about = f"Risk over coverage of {len(curves)} ways to accept"
    plot = Plot((0, 1), (0, min(1.0, 1.05 * float(highest))), *AXES, about)
    for curve in curves:
        plot.line(curve.x, np.minimum(curve.y, plot.y[1]), curve.style, curve.name)
    grid = measurements.grids[pair]
    gate = grid.point(*grid.locate(measurements.thresholds[pair]))
    plot.dots([gate["coverage"]], [gate["risk"]], "k6", "the gate", "dd")
    rows = []
    for curve in curves:
        rows += curve.rows()
    area = "aurc"
    if pool.covered == "id":
        area = "aurc_id"
    caption = (
        "Lower is better. The oracle rejects every failure before any correct prediction: no score can do better. The "
        f"area under the line of one score is its {area}."
    )
    columns = ("curve", "coverage", "risk")
    return Figure("risk-coverage", "Risk over coverage", caption, plot.svg(), columns, tuple(rows))


def _score_curve(pool: Pool, spec: str, style: str) -> _Curve:
    """Compute the selective risk of one score, over the coverage of known inputs."""
    conf, is_id = pool.conf[spec], pool.is_id_or_none
    curve = metrics.risk_coverage_curve(pool.correct, conf, is_id=is_id, coverage=pool.covered)
    covered = np.flatnonzero(curve.coverage > 0)
    keep = covered[thin(len(covered))]
    return _Curve(spec, style, curve.coverage[keep], curve.risk[keep])


def _best_pairs_curve(measurements: Measurements, name: str) -> _Curve:
    """Compute the least risk of any pair of thresholds at each coverage; from the grid where there are many inputs."""
    pool, pair = measurements.pool, measurements.pair
    if int(pool.is_id.sum()) <= EXACT // 2:
        conf_id, conf_ood = pool.conf[pair.id], pool.conf[pair.ood]
        curve = metrics.ds_risk_coverage_curve(pool.correct, conf_id, conf_ood, pool.is_id_or_none)
        keep = thin(len(curve.risk))
        return _Curve(name, "k0", curve.coverage[keep], curve.risk[keep])
    rates = measurements.grids[pair].rates()
    coverage, risk = rates.coverage.ravel(), rates.risk.ravel()
    bin_of_pair = np.minimum((coverage * BINS).astype(int), BINS - 1)
    least = np.full(BINS, np.inf)
    np.minimum.at(least, bin_of_pair, np.where(coverage > 0, risk, np.inf))
    filled = np.flatnonzero(np.isfinite(least))
    return _Curve(name, "k0", (filled + 0.5) / BINS, least[filled])


def _oracle_curve(pool: Pool) -> _Curve:
    best = oracle_curve(float(pool.correct.sum() / pool.is_id.sum()))
    return _Curve(best.name, "k2", best.x, best.y)


def _cloud_figure(measurements: Measurements) -> Figure:
    """Draw some of the pairs of thresholds on the grid, and the best of all pairs."""
    rates = measurements.grids[measurements.pair].rates()
    covering = np.flatnonzero(rates.coverage.ravel() > 0)
    some = np.random.default_rng(measurements.seed).permutation(covering)[:MOST_DOTS]
    dots = _Curve("a pair of thresholds", "k6", rates.coverage.ravel()[some], rates.risk.ravel()[some])
    edge = _best_pairs_curve(measurements, "the best at each coverage")
    highest = float(max(np.quantile(dots.y, 0.995), edge.y.max(), 0.02))
    about = "A cloud of threshold pairs above the curve of the best of them"
    plot = Plot((0, 1), (0, min(1.0, 1.05 * highest)), *AXES, about)
    inside = dots.y <= plot.y[1]
    plot.dots(dots.x[inside], dots.y[inside], dots.style, dots.name)
    plot.line(edge.x, edge.y, edge.style, edge.name)
    rows = dots.rows("pair") + edge.rows("best")
    caption = (
        f"Each dot is one pair of thresholds on {measurements.pair.name}; DS-AURC (ds_aurc) is the area under the "
        "lower edge, over the coverage of known inputs."
    )
    columns = ("what", "coverage", "risk")
    return Figure("cloud", "All pairs of thresholds", caption, plot.svg(), columns, tuple(rows))


# --- densities ------------------------------------------------------------------------------------------------------


def density_section(measurements: Measurements) -> Section:
    """Draw where each kind of input lies on each score.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A figure for each score of the pair.
    """
    scores = measurements.pair.scores
    figures = [_density_figure(measurements.pool, spec, f"density-{i}") for i, spec in enumerate(scores)]
    text = "The further the correct predictions lie to the right of all else, the better a threshold separates them."
    return Section("densities", "What the scores see", (text, *figures))


def _density_figure(pool: Pool, spec: str, key: str) -> Figure:
    curves = []
    for drawn in score_densities(pool.conf[spec], pool.kinds):
        curves.append(_Curve(KIND_NAMES[drawn.name], STYLES[drawn.name], drawn.x, drawn.y))
    low, high = 0.0, 1.0
    if curves:
        centres = curves[0].x
        half = (centres[1] - centres[0]) / 2
        low, high = float(centres[0] - half), float(centres[-1] + half)
    top = max((float(curve.y.max()) for curve in curves), default=1.0)
    x_label = clip_text(spec, 40)
    if spec == "msp":
        x_label += " (log-odds of the maximum probability)"
    about = f"Densities of {spec} for {len(curves)} kinds of inputs"
    plot = Plot((low, high), (0, 1.05 * top or 1.0), x_label, "density", about)
    rows = []
    for curve in curves:
        plot.area(curve.x, curve.y, curve.style, curve.name)
        rows += curve.rows()
    caption = "Each curve has area 1, so kinds with many and few inputs can be compared; higher scores are safer."
    return Figure(key, spec, caption, plot.svg(), ("kind", "score", "density"), tuple(rows))


# --- ROC ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Hold safe and unsafe rows under one score."""

    name: str
    is_safe: Mask
    conf: Array


def roc_section(measurements: Measurements) -> Section:
    """Draw ROC curves of known against unknown inputs, and of correct against wrong predictions.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A figure of at most seven curves, and why others cannot be drawn.
    """
    rankings = _list_rankings(measurements)[:MOST_ROC_CURVES]
    count = len(rankings)
    labels = "share of unsafe inputs accepted", "share of safe inputs accepted"
    plot = Plot((0, 1), (0, 1), *labels, f"ROC curves, {count} of them", height=330)
    plot.line([0, 1], [0, 1], "k6")
    rows: list[tuple[str | float, ...]] = []
    not_drawn = []
    for i, ranking in enumerate(rankings):
        try:
            area = metrics.auroc(ranking.is_safe, ranking.conf)
        except UndefinedMetric as error:
            not_drawn.append(f"Not drawn: {ranking.name}: {error}.")
            continue
        curve = _roc_curve(ranking, f"k{i}")
        plot.line(curve.x, curve.y, curve.style, f"{area:.3f}  {curve.name}")
        rows += curve.rows()
    caption = "The number before each name is its AUROC: the chance that a safe input scores above an unsafe one."
    figure = Figure("roc", "ROC", caption, plot.svg(), ("curve", "unsafe accepted", "safe accepted"), tuple(rows))
    return Section("roc", "How well each score ranks", (figure, *not_drawn))


def _list_rankings(measurements: Measurements) -> list[_Ranking]:
    """List known inputs against each kind of unknown inputs, then correct predictions against wrong ones."""
    pool, pair, single = measurements.pool, measurements.pair, measurements.single
    rankings = []
    for role in measurements.source.unknown_roles:
        rows = pool.is_id | (pool.role == role)
        for spec in dict.fromkeys((pair.ood, single.id)):
            name = f"known against {UNKNOWN_NAMES[role]}, {spec}"
            rankings.append(_Ranking(name, pool.is_id[rows], pool.conf[spec][rows]))
    known = pool.is_id
    for spec in dict.fromkeys((pair.id, single.id)):
        rankings.append(_Ranking(f"correct against wrong, {spec}", pool.correct[known], pool.conf[spec][known]))
    return rankings


def _roc_curve(ranking: _Ranking, style: str) -> _Curve:
    """Compute the share of safe inputs accepted over that of unsafe inputs, at each level of the confidence."""
    curve = metrics.roc_curve(ranking.is_safe, ranking.conf)
    keep = thin(len(curve.fpr), 200)
    return _Curve(ranking.name, style, curve.fpr[keep], curve.tpr[keep])


# --- calibration ----------------------------------------------------------------------------------------------------


def calibration_section(measurements: Measurements) -> Section:
    """Draw accuracy over predicted probability.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        Sentences and a figure; one sentence where the confidences are not probabilities.
    """
    title = "Does it know how sure it is?"
    tests = measurements.source.pool()
    if tests.prob is None:
        why = "The confidences are not probabilities: they leave the range from 0 to 1, so calibration is not checked."
        return Section("calibration", title, (why,))
    correct, prob = tests.correct, tests.prob
    mean_prob, accuracy = 100 * float(prob.mean()), 100 * float(correct.mean())
    text = (
        f"On known test inputs the classifier is {_describe_calibration(correct, prob)} on average: its mean "
        f"probability is {mean_prob:.1f} %, and {accuracy:.1f} % of its predictions are correct. Expected calibration "
        f"error: {100 * metrics.ece(correct, prob):.2f} points."
    )
    return Section("calibration", title, (text, _calibration_figure(correct, prob)))


def _describe_calibration(correct: Mask, prob: Array) -> str:
    diagram = metrics.reliability_diagram(correct, prob)
    lean = float(np.sum(diagram.gap * diagram.count) / diagram.rows)
    if lean < -0.005:
        return "overconfident"
    if lean > 0.005:
        return "underconfident"
    return "calibrated"


def _calibration_figure(correct: Mask, prob: Array) -> Figure:
    diagram = metrics.reliability_diagram(correct, prob)
    plot = Plot((0, 1), (0, 1), "predicted probability", "share correct", "Accuracy in bins of predicted probability")
    plot.bars(diagram.lower, diagram.upper, diagram.accuracy, "k0", "share correct")
    plot.line([0, 1], [0, 1], "k6", "perfectly calibrated")
    plot.dots(diagram.prob, diagram.accuracy, "k1", "mean of the bin", "dd")
    columns = [diagram.lower, diagram.upper, diagram.count, diagram.prob, diagram.accuracy]
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))
    caption = "Bars below the dashed line: overconfident; above: underconfident."
    headings = ("from", "to", "inputs", "mean probability", "share correct")
    return Figure("calibration", "Calibration", caption, plot.svg(), headings, rows)


# --- improvement ----------------------------------------------------------------------------------------------------


def improvement_section(measurements: Measurements) -> Section:
    """Draw how much each score improves on the baseline.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        A figure for each kind of unknown input.
    """
    title = "Improvement over the baseline"
    if len(measurements.source.scores) < 2:
        return Section("improvement", title, ("There is only one score.",))
    base = measurements.single.id
    figures = []
    for roles in measurements.unknown_groups:
        areas = _risk_areas(measurements, roles)
        if areas[base]:
            figures.append(_improvement_figure(areas, base, roles))
    text = f"Each score alone, on known and unknown inputs together. Left of the line is worse than {base}."
    return Section("improvement", title, (text, *figures))


def _risk_areas(measurements: Measurements, roles: Roles) -> dict[str, float]:
    """Compute the AURC of each score, over the coverage of known inputs where there are unknown ones."""
    pool = measurements.source.pool(*roles)
    areas = {}
    for spec, conf in pool.conf.items():
        areas[spec] = metrics.aurc(pool.correct, conf, is_id=pool.is_id_or_none, coverage=pool.covered)
    return areas


def _improvement_figure(areas: dict[str, float], base: str, roles: Roles) -> Figure:
    gains = {}
    for spec, area in areas.items():
        if spec != base:
            gains[spec] = 100 * (areas[base] - area) / areas[base]
    gains = dict(sorted(gains.items(), key=lambda item: -item[1]))
    if roles:
        key, kind, metric, whose = roles[0], UNKNOWN_NAMES[roles[0]], "aurc_id", "known"
    else:
        key, kind, metric, whose = "known", "known inputs only", "aurc", "all"
    about = f"Improvement of {len(gains)} scores over {base}, {kind}"
    svg = bar_rows(gains, f"{metric} below that of {base}, %", about)
    quantity = f"the area under the risk ({metric}, over the coverage of {whose} inputs)"
    caption = f"How much lower {quantity} is than that of {base}."
    rows = tuple((name, areas[name], gain) for name, gain in gains.items())
    return Figure(f"improvement-{key}", kind, caption, svg, ("score", metric, "improvement %"), rows)
