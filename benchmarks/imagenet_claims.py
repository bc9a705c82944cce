"""Decide what the confidences of fourteen ImageNet classifiers can decide of the papers' claims.

    TWOFOLD_DATA=... python benchmarks/imagenet_claims.py [--save]        (2 minutes of processor time)

The file has the class, the predicted class and the maximum softmax probability of 50,000 validation images for fourteen
convolutional classifiers, so claims on other scores, unknown inputs or shifts are out of reach. With --save the lines go
to results/claims/imagenet.csv.

Rules; accuracy and AURC of these models were known. The interval decides as benchmarks/claims.py says.

- Orders. Two metrics "rank classifiers differently" if Kendall's correlation of their orders is below 0.5, which is a quarter of
  all pairs in opposite order. Gain: 0.5 less the correlation. Interval: images and classifiers are both resampled.
- A more accurate classifier can be less reliable. Over all pairs whose accuracies differ after Holm's correction: the excess
  of AURC of the more accurate one. The largest excess decides, with Bonferroni intervals over all 91 pairs.
- Few samples. Batches of 128 random images; the AURC of all 50,000 is the truth. Gains are in percent of AURC, intervals are
  Student's over the fourteen classifiers.
- Guarantees. 2,000 images are drawn with replacement and a threshold is fitted that promises a risk of at most 10 % with
  confidence 90 %; the 50,000 images are the population, on which its true risk is known exactly. Gain: the allowed share of
  broken promises (10 %) less the observed one, with the interval of Clopper and Pearson over 14 x 200 independent draws. For
  other classes: fitted on the images of 500 random classes, judged on the other 500; intervals over 100 such splits.
- Calibration. A logistic curve through the log-odds of the confidence, fitted on 2,000 images: ECE before less after on the others.
- Half precision. AUROC of failures with float32 confidences less that with float16 ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from script import announce, data_folder

import numpy as np

import imagenet_models
from claims import Claim, judge, untestable, write_claims
from intervals import Gain, exact_rate, normal, of_replicates, show_gain, student
from twofold import metrics
from twofold.metrics import aurc_weights
from twofold.stats import sgr

COMMAND = "python benchmarks/imagenet_claims.py --save"
SCALE = "14 convolutional ImageNet classifiers, 50,000 validation images, maximum softmax probability"
AGREE = 0.5  # Kendall's correlation below which two orders count as different
BATCH, BATCHES = 128, 4000
CALIBRATION, REPEATS, SPLITS = 2000, 200, 100
RISK, DELTA = 0.10, 0.10
HARMONIC, LOG, SELE, TWICE, OTHERS = "empirical", "log", "sele", "2sele", "self_excluded"

Models = Mapping[str, tuple[np.ndarray, np.ndarray]]


def main() -> None:
    data_folder("imagenet_val_confidence_14models.npz")
    labels, models = imagenet_models.load()
    study = imagenet_models.compute()
    announce("batches, promises and calibration")
    found = [
        *claims_on_orders(study),
        *claims_on_accuracy(study),
        *claims_on_estimators(models),
        *claims_on_promises(labels, models),
        *claims_on_calibration(models),
        *claims_on_precision(models),
        *claims_out_of_reach(),
    ]
    for one in found:
        print(f"{one.verdict:28} {one.claim}: {one.ours}")
    if "--save" in sys.argv:
        print(write_claims("imagenet", found))


# --- orders of classifiers ------------------------------------------------------------------------------------------


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Compute Kendall's correlation; pairs that are tied, such as two draws of one classifier, are left out."""
    first, second = np.triu_indices(len(a), 1)
    signs = np.sign(a[first] - a[second]) * np.sign(b[first] - b[second])
    return float(signs.sum() / np.count_nonzero(signs))


def disagreement(study: imagenet_models.Study, a: str, b: str) -> tuple[float, Gain]:
    """Compute the correlation of two orders, and how far it lies below the limit."""
    sign = {metric: -1.0 if metric in imagenet_models.FEWER else 1.0 for metric in (a, b)}
    value = kendall(sign[a] * study.value[a], sign[b] * study.value[b])
    one, other = sign[a] * study.drawn[a], sign[b] * study.drawn[b]
    generator = np.random.default_rng(0)
    drawn = []
    for replicate in range(one.shape[1]):
        members = generator.integers(len(one), size=len(one))
        drawn.append(AGREE - kendall(one[members, replicate], other[members, replicate]))
    return value, of_replicates(AGREE - value, np.array(drawn))


def claims_on_orders(study: imagenet_models.Study) -> Iterable[Claim]:
    lines = (
        ("aurc", "auroc_f", "AURC and the AUROC of failures rank classifiers differently", "Table 12"),
        ("accuracy", "aurc", "Accuracy does not give the order of classifiers by AURC", "Section 2, requirement 1"),
        ("accuracy", "augrc", "Accuracy does not give the order of classifiers by AUGRC", "Section 2, requirement 1"),
        ("ece", "aurc", "Calibration and AURC rank classifiers differently", "Figure 6"),
        ("eaurc", "accuracy", "E-AURC takes accuracy out of AURC: their orders differ", "below Eq. 32"),
        ("eaurc", "auroc_f", "E-AURC does not rank classifiers as the AUROC of failures does", "below Eq. 32"),
    )
    for a, b, claim, place in lines:
        value, gain = disagreement(study, a, b)
        yield judge(
            "fd_shifts",
            claim,
            printed_at=place,
            printed="stated, for confidence functions or in general; no number for classifiers",
            ours=f"Kendall {value:+.2f}; {AGREE} less that: {show_gain(gain, factor=1)}",
            low=gain.low,
            high=gain.high,
            p=gain.p,
            unit="Kendall's correlation below 0.5",
            scale=SCALE,
            command=COMMAND,
        )


def claims_on_accuracy(study: imagenet_models.Study) -> Iterable[Claim]:
    adjusted = imagenet_models.p_values(study.drawn["accuracy"])[1]
    pairs = list(combinations(range(len(study.names)), 2))
    excesses = {}
    for i, j in pairs:
        if adjusted[i, j] < imagenet_models.ALPHA:
            better, worse = (i, j) if study.value["accuracy"][i] > study.value["accuracy"][j] else (j, i)
            drawn = study.drawn["aurc"][better] - study.drawn["aurc"][worse]
            value = study.value["aurc"][better] - study.value["aurc"][worse]
            excesses[better, worse] = normal(float(value), float(drawn.std(ddof=1)), tests=len(pairs))
    best = max(excesses, key=lambda pair: excesses[pair].value)
    found = excesses[best]
    gain = Gain(
        found.value, max(one.low for one in excesses.values()), max(one.high for one in excesses.values()), found.p
    )
    names = [study.names[place] for place in best]
    yield judge(
        "fd_shifts",
        "A significantly more accurate classifier can be significantly worse by AURC",
        printed_at="Section 2, requirement 1",
        printed="stated; no number for classifiers",
        ours=f"{names[0]} against {names[1]}: {show_gain(gain, factor=1000)} (Bonferroni over {len(pairs)} pairs)",
        low=1000 * gain.low,
        high=1000 * gain.high,
        p=gain.p,
        unit="AURC x1000",
        scale=SCALE,
        command=COMMAND,
    )


# --- few samples ----------------------------------------------------------------------------------------------------


def estimate(correct: np.ndarray, conf: np.ndarray, batches: np.ndarray) -> dict[str, np.ndarray]:
    """Estimate the AURC of every batch by every estimator; a row of `batches` holds the images of one."""
    order = np.argsort(conf[batches], axis=1, kind="stable")
    failures = np.take_along_axis(~correct[batches], order, axis=1).astype(np.float64)
    size = batches.shape[1]
    return {name: failures @ aurc_weights(size, name) / size for name in (HARMONIC, LOG, SELE, TWICE, OTHERS)}


def claims_on_estimators(models: Models) -> Iterable[Claim]:
    generator = np.random.default_rng(0)
    bias: dict[str, list[float]] = {}
    error: dict[str, list[float]] = {}
    for correct, conf in models.values():
        truth = metrics.aurc(correct, conf)
        batches = generator.integers(len(conf), size=(BATCHES, BATCH))
        for name, values in estimate(correct, conf, batches).items():
            bias.setdefault(name, []).append(float(values.mean() / truth - 1))
            error.setdefault(name, []).append(float(np.sqrt(((values / truth - 1) ** 2).mean())))
    off = {name: np.abs(values) for name, values in bias.items()}
    miss = {name: np.array(values) for name, values in error.items()}
    plug_in = np.maximum(off[HARMONIC], off[LOG])
    shown = ", ".join(f"{name} {100 * np.mean(values):+.1f} %" for name, values in bias.items())
    errors = ", ".join(f"{name} {100 * values.mean():.1f} %" for name, values in miss.items())
    lines = (
        ("aurc_estimators", "Both plug-in estimators of AURC are less biased than SELE", off[SELE] - plug_in, shown),
        (
            "aurc_estimators",
            "Both plug-in estimators of AURC have a smaller squared error than SELE",
            miss[SELE] - np.maximum(miss[HARMONIC], miss[LOG]),
            errors,
        ),
        ("aurc_estimators", "SELE is too low on average", -np.array(bias[SELE]), shown),
        ("aurc_estimators", "Twice SELE is too high on average", np.array(bias[TWICE]), shown),
        (
            "beyond",
            "Leaving the sample itself out makes the plug-in estimator of AURC less biased",
            off[HARMONIC] - off[OTHERS],
            shown,
        ),
    )
    for paper, claim, values, numbers in lines:
        gain = student(values.tolist())
        what = "RMSE" if "error" in claim else "bias"
        printed = "drawn for ViT and Swin on ImageNet; errors there are squared bias"
        yield judge(
            paper,
            claim,
            printed_at="Figures 5 and S12" if paper == "aurc_estimators" else "nowhere",
            printed=printed if paper == "aurc_estimators" else "no paper prints it",
            ours=f"{show_gain(gain)}; {what} of single estimates: {numbers}",
            low=100 * gain.low,
            high=100 * gain.high,
            p=gain.p,
            unit="percent of AURC",
            scale=f"{SCALE}; {BATCHES:,} batches of {BATCH}",
            command=COMMAND,
        )


# --- promises -------------------------------------------------------------------------------------------------------


def guaranteed(correct: np.ndarray, conf: np.ndarray) -> float:
    """Fit the threshold of a guaranteed risk; infinite where there is none."""
    return sgr(correct, conf, risk=RISK, delta=DELTA).threshold


def observed(correct: np.ndarray, conf: np.ndarray) -> float:
    """Fit the lowest threshold whose observed risk is within the limit; infinite where there is none."""
    order = np.argsort(-conf, kind="stable")
    risks = np.cumsum(~correct[order]) / np.arange(1, len(conf) + 1)
    within = np.flatnonzero(risks <= RISK)
    return float(conf[order[within[-1]]]) if len(within) else np.inf


def is_broken(threshold: float, correct: np.ndarray, conf: np.ndarray) -> bool:
    """Check whether the error rate of what a threshold accepts is above the limit."""
    accepted = conf >= threshold
    return bool(accepted.any() and (~correct[accepted]).mean() > RISK)


def count_broken(models: Models, fit: Callable[[np.ndarray, np.ndarray], float]) -> tuple[int, int]:
    """Count broken promises over independent draws of calibration images, and the draws."""
    generator = np.random.default_rng(1)
    broken = 0
    for correct, conf in models.values():
        for _ in range(REPEATS):
            rows = generator.integers(len(conf), size=CALIBRATION)
            broken += is_broken(fit(correct[rows], conf[rows]), correct, conf)
    return broken, REPEATS * len(models)


def broken_on_other_classes(labels: np.ndarray, models: Models) -> list[float]:
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
        shares.append(float(np.mean(broken)))
    return shares


def claims_on_promises(labels: np.ndarray, models: Models) -> Iterable[Claim]:
    lines = (
        (guaranteed, "fd_shifts", "A guaranteed risk holds on fresh data of the same kind", "Figure 7"),
        (observed, "beyond", "A threshold whose observed risk is within the limit keeps it on fresh data", "nowhere"),
    )
    scale = f"{SCALE}; {CALIBRATION:,} calibration images, {REPEATS} draws each, risk {RISK:.0%}, confidence {1 - DELTA:.0%}"
    for fit, paper, claim, place in lines:
        broken, total = count_broken(models, fit)
        low, high = exact_rate(broken, total)
        yield judge(
            paper,
            claim,
            printed_at=place,
            printed="a guarantee that is kept on clean data" if paper == "fd_shifts" else "no paper prints it",
            ours=f"{broken} of {total:,} promises broken, {broken / total:.1%} [{low:.1%}, {high:.1%}]; {DELTA:.0%} allowed",
            low=100 * (DELTA - high),
            high=100 * (DELTA - low),
            unit="percent of promises below the allowed share",
            scale=scale,
            command=COMMAND,
        )
    shares = broken_on_other_classes(labels, models)
    gain = student([share - DELTA for share in shares])
    yield judge(
        "fd_shifts",
        "A guarantee fails when the data change: fitted on 500 classes, broken on the other 500",
        printed_at="Figure 7",
        printed="the guaranteed risk is exceeded under corruption",
        ours=f"{np.mean(shares):.1%} of promises broken, {show_gain(gain)} points above the allowed {DELTA:.0%}",
        low=100 * gain.low,
        high=100 * gain.high,
        p=gain.p,
        unit="percent of promises above the allowed share",
        scale=f"{SCALE}; {SPLITS} splits of the classes, {CALIBRATION:,} calibration images",
        command=COMMAND,
    )


# --- calibration and precision --------------------------------------------------------------------------------------


def log_odds(conf: np.ndarray) -> np.ndarray:
    """Compute the log-odds of confidences, within single precision."""
    clipped = np.clip(conf, 1e-7, 1 - 1e-7)
    return np.log(clipped) - np.log1p(-clipped)


def claims_on_calibration(models: Models) -> Iterable[Claim]:
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
    gain = student([one - other for one, other in zip(before, after, strict=True)])
    yield judge(
        "beyond",
        "A logistic curve fitted on 2,000 images calibrates the softmax on fresh images",
        printed_at="nowhere",
        printed="no paper prints it for one score",
        ours=f"ECE {np.mean(before):.3f} before, {np.mean(after):.3f} after: {show_gain(gain)}",
        low=100 * gain.low,
        high=100 * gain.high,
        p=gain.p,
        unit="ECE, points",
        scale=SCALE,
        command=COMMAND,
    )


def claims_on_precision(models: Models) -> Iterable[Claim]:
    lost = []
    for correct, conf in models.values():
        rounded = conf.astype(np.float16).astype(np.float64)
        lost.append(metrics.auroc(correct, conf) - metrics.auroc(correct, rounded))
    gain = student(lost)
    yield judge(
        "fd_shifts",
        "Half precision worsens the ranking by the softmax",
        printed_at="Table 2",
        printed="AURC of CNNs with 16 and 64 bits: 8.35 and 5.62 on CIFAR-10, 18.8 and 12.8 on BREEDS",
        ours=f"{show_gain(gain, digits=4)}; at most {100 * max(lost):.4f} points",
        low=100 * gain.low,
        high=100 * gain.high,
        p=gain.p,
        unit="AUROC, points",
        scale=SCALE,
        command=COMMAND,
    )


def claims_out_of_reach() -> Iterable[Claim]:
    why = "the file has one confidence of known images; logits or features of ImageNet networks, with unknown sets, would test it"
    lines = (
        (
            "sure_plus",
            "Two scores are better than one on ImageNet",
            "Table 1",
            "AURC 241.4 near, with MDS as second score 226.2",
        ),
        ("sure_plus", "SURE+ is the best fine-tuning on ImageNet", "Table 4", "DS-F1 near 77.10, cross-entropy 75.42"),
        (
            "fd_shifts",
            "On ImageNet-like data no score beats the softmax across shifts",
            "Table 1",
            "the softmax is rarely outperformed",
        ),
        (
            "unknown_detection",
            "Ensembles detect unknown inputs best on ImageNet",
            "Table 7",
            "the best row of the table",
        ),
    )
    for paper, claim, place, printed in lines:
        yield untestable(paper, claim, printed_at=place, printed=printed, why=why, scale=SCALE, command=COMMAND)


if __name__ == "__main__":
    main()
