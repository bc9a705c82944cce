"""Claims on ImageNet classifiers that samples of their images decide: estimates from few images, promises, calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from claims import NOWHERE, Claim, judge
from gain_claims import judge_gain
from imagenet_confidences import COMMAND, SCALE, Models
from intervals import exact_rate, show_gain, student
from twofold import metrics
from twofold.metrics import aurc_weights
from twofold.stats import sgr
from twofold.typing import Array

BATCH, BATCHES = 128, 4000
CALIBRATION, REPEATS, SPLITS = 2000, 200, 100
RISK, DELTA = 0.10, 0.10
HARMONIC, LOG, SELE, TWICE, OTHERS = "empirical", "log", "sele", "2sele", "self_excluded"
ESTIMATORS = (HARMONIC, LOG, SELE, TWICE, OTHERS)


# --- few samples ----------------------------------------------------------------------------------------------------


def claims_on_estimators(models: Models) -> Iterable[Claim]:
    """Decide which estimators of AURC have less bias or a smaller error, in percent of the AURC of all images."""
    bias, rmse = estimator_errors(models)
    distance = {name: np.abs(values) for name, values in bias.items()}
    biases = f"bias of single estimates: {list_means(bias, '+.1f')}"
    errors = f"RMSE of single estimates: {list_means(rmse, '.1f')}"
    figures = {
        "printed_at": "Figures 5 and S12",
        "printed": "drawn for ViT and Swin on ImageNet; errors there are squared bias",
    }
    yield decide_estimator(
        "aurc_estimators",
        "Both plug-in estimators of AURC are less biased than SELE",
        distance[SELE] - np.maximum(distance[HARMONIC], distance[LOG]),
        biases,
        **figures,
    )
    yield decide_estimator(
        "aurc_estimators",
        "Both plug-in estimators of AURC have a smaller squared error than SELE",
        rmse[SELE] - np.maximum(rmse[HARMONIC], rmse[LOG]),
        errors,
        **figures,
    )
    yield decide_estimator("aurc_estimators", "SELE is too low on average", -bias[SELE], biases, **figures)
    yield decide_estimator("aurc_estimators", "Twice SELE is too high on average", bias[TWICE], biases, **figures)
    yield decide_estimator(
        "beyond",
        "Leaving the sample itself out makes the plug-in estimator of AURC less biased",
        distance[HARMONIC] - distance[OTHERS],
        biases,
        printed_at=NOWHERE,
        printed="no paper prints it",
    )


def decide_estimator(paper: str, claim: str, gains: Array, numbers: str, *, printed_at: str, printed: str) -> Claim:
    """Make a claim from the gain of each classifier."""
    gain = student(gains.tolist())
    return judge_gain(
        paper,
        claim,
        gain,
        printed_at=printed_at,
        printed=printed,
        ours=f"{show_gain(gain)}; {numbers}",
        unit="percent of AURC",
        scale=f"{SCALE}; {BATCHES:,} batches of {BATCH}",
        command=COMMAND,
    )


def list_means(by_name: dict[str, Array], form: str) -> str:
    """Write the mean over classifiers of each estimator, in percent."""
    return ", ".join(f"{name} {100 * values.mean():{form}} %" for name, values in by_name.items())


def estimator_errors(models: Models) -> tuple[dict[str, Array], dict[str, Array]]:
    """Compute bias and RMSE of each estimator, as shares of the AURC of all images, for each classifier."""
    generator = np.random.default_rng(0)
    bias: dict[str, list[float]] = {}
    rmse: dict[str, list[float]] = {}
    for correct, conf in models.values():
        truth = metrics.aurc(correct, conf)
        batches = generator.integers(len(conf), size=(BATCHES, BATCH))
        for name, estimates in estimate(correct, conf, batches).items():
            errors = estimates / truth - 1
            bias.setdefault(name, []).append(estimates.mean() / truth - 1)
            rmse.setdefault(name, []).append(np.sqrt((errors**2).mean()))
    return as_arrays(bias), as_arrays(rmse)


def as_arrays(by_name: dict[str, list[float]]) -> dict[str, Array]:
    """Turn lists of numbers into arrays."""
    return {name: np.array(values) for name, values in by_name.items()}


def estimate(correct: Array, conf: Array, batches: Array) -> dict[str, Array]:
    """Estimate the AURC of every batch by every estimator; a row of `batches` holds the images of one."""
    order = np.argsort(conf[batches], axis=1, kind="stable")
    failures = np.take_along_axis(~correct[batches], order, axis=1).astype(np.float64)
    size = batches.shape[1]
    estimates = {}
    for name in ESTIMATORS:
        estimates[name] = failures @ aurc_weights(size, name) / size
    return estimates


# --- promises -------------------------------------------------------------------------------------------------------


def claims_on_promises(labels: Array, models: Models) -> Iterable[Claim]:
    """Decide whether a promised risk holds on fresh images, and fails on other classes."""
    yield promise_holds(
        guaranteed,
        models,
        "fd_shifts",
        "A guaranteed risk holds on fresh data of the same kind",
        printed_at="Figure 7",
        printed="a guarantee that is kept on clean data",
    )
    yield promise_holds(
        observed,
        models,
        "beyond",
        "A threshold whose observed risk is within the limit keeps it on fresh data",
        printed_at=NOWHERE,
        printed="no paper prints it",
    )
    shares = broken_on_other_classes(labels, models)
    gain = student((shares - DELTA).tolist())
    yield judge_gain(
        "fd_shifts",
        "A guarantee fails when the data change: fitted on 500 classes, broken on the other 500",
        gain,
        printed_at="Figure 7",
        printed="the guaranteed risk is exceeded under corruption",
        ours=f"{shares.mean():.1%} of promises broken, {show_gain(gain)} points above the allowed {DELTA:.0%}",
        unit="percent of promises above the allowed share",
        scale=f"{SCALE}; {SPLITS} splits of the classes, {CALIBRATION:,} calibration images",
        command=COMMAND,
    )


def promise_holds(
    fit: Callable[[Array, Array], float], models: Models, paper: str, claim: str, *, printed_at: str, printed: str
) -> Claim:
    """Decide whether thresholds of one kind break their promise less often than allowed."""
    broken = count_broken(models, fit)
    total = REPEATS * len(models)
    low, high = exact_rate(broken, total)
    return judge(
        paper,
        claim,
        printed_at=printed_at,
        printed=printed,
        ours=f"{broken} of {total:,} promises broken, {broken / total:.1%} [{low:.1%}, {high:.1%}]; {DELTA:.0%} allowed",
        low=100 * (DELTA - high),
        high=100 * (DELTA - low),
        unit="percent of promises below the allowed share",
        scale=f"{SCALE}; {CALIBRATION:,} calibration images, {REPEATS} draws each, risk {RISK:.0%}, confidence {1 - DELTA:.0%}",
        command=COMMAND,
    )


def guaranteed(correct: Array, conf: Array) -> float:
    """Fit the threshold of a guaranteed risk; infinite where there is none."""
    return sgr(correct, conf, risk=RISK, delta=DELTA).threshold


def observed(correct: Array, conf: Array) -> float:
    """Fit the lowest threshold whose observed risk is within the limit; infinite where there is none."""
    order = np.argsort(-conf, kind="stable")
    risks = np.cumsum(~correct[order]) / np.arange(1, len(conf) + 1)
    within = np.flatnonzero(risks <= RISK)
    if len(within) == 0:
        return np.inf
    return float(conf[order[within[-1]]])


def is_broken(threshold: float, correct: Array, conf: Array) -> bool:
    """Check whether the error rate of what a threshold accepts is above the limit."""
    accepted = conf >= threshold
    return bool(accepted.any() and (~correct[accepted]).mean() > RISK)


def count_broken(models: Models, fit: Callable[[Array, Array], float]) -> int:
    """Count broken promises over independent draws of calibration images."""
    generator = np.random.default_rng(1)
    broken = 0
    for correct, conf in models.values():
        for _ in range(REPEATS):
            rows = generator.integers(len(conf), size=CALIBRATION)
            broken += is_broken(fit(correct[rows], conf[rows]), correct, conf)
    return broken


def broken_on_other_classes(labels: Array, models: Models) -> Array:
    """Compute, for each split of the classes, the share of classifiers whose promise breaks on the other classes."""
    generator = np.random.default_rng(2)
    shares = []
    for _ in range(SPLITS):
        chosen = generator.permutation(1000)[:500]
        inside = np.isin(labels, chosen)
        broken = []
        for correct, conf in models.values():
            rows = generator.choice(np.flatnonzero(inside), size=CALIBRATION)
            threshold = guaranteed(correct[rows], conf[rows])
            broken.append(is_broken(threshold, correct[~inside], conf[~inside]))
        shares.append(np.mean(broken))
    return np.array(shares)


# --- calibration and precision --------------------------------------------------------------------------------------


def claims_on_calibration(models: Models) -> Iterable[Claim]:
    """Decide whether a logistic curve lowers ECE on fresh images."""
    before, after = calibration_errors(models)
    gain = student((before - after).tolist())
    yield judge_gain(
        "beyond",
        "A logistic curve fitted on 2,000 images calibrates the softmax on fresh images",
        gain,
        printed_at=NOWHERE,
        printed="no paper prints it for one score",
        ours=f"ECE {before.mean():.3f} before, {after.mean():.3f} after: {show_gain(gain)}",
        unit="ECE, points",
        scale=SCALE,
        command=COMMAND,
    )


def calibration_errors(models: Models) -> tuple[Array, Array]:
    """Compute ECE before and after a logistic curve through the log-odds, for each classifier."""
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(3)
    before, after = [], []
    for correct, conf in models.values():
        shuffled = generator.permutation(len(conf))
        fit, rest = shuffled[:CALIBRATION], shuffled[CALIBRATION:]
        curve = LogisticRegression(C=1e6).fit(log_odds(conf[fit])[:, None], correct[fit])
        scaled = curve.predict_proba(log_odds(conf[rest])[:, None])[:, 1]
        before.append(metrics.ece(correct[rest], conf[rest]))
        after.append(metrics.ece(correct[rest], scaled))
    return np.array(before), np.array(after)


def log_odds(conf: Array) -> Array:
    """Compute the log-odds of confidences, within single precision."""
    clipped = np.clip(conf, 1e-7, 1 - 1e-7)
    return np.log(clipped) - np.log1p(-clipped)


def claims_on_precision(models: Models) -> Iterable[Claim]:
    """Decide whether confidences in half precision lose AUROC of failures."""
    lost = []
    for correct, conf in models.values():
        rounded = conf.astype(np.float16).astype(np.float64)
        lost.append(metrics.auroc(correct, conf) - metrics.auroc(correct, rounded))
    gain = student(lost)
    yield judge_gain(
        "fd_shifts",
        "Half precision worsens the ranking by the softmax",
        gain,
        printed_at="Table 2",
        printed="AURC of CNNs with 16 and 64 bits: 8.35 and 5.62 on CIFAR-10, 18.8 and 12.8 on BREEDS",
        ours=f"{show_gain(gain, digits=4)}; at most {100 * max(lost):.4f} points",
        unit="AUROC, points",
        scale=SCALE,
        command=COMMAND,
    )
