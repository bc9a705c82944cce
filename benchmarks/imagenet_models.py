"""Compare fourteen real ImageNet classifiers: is the more accurate one also more reliable, and which differ significantly?

    TWOFOLD_DATA=... python benchmarks/imagenet_models.py [--save]        (75 s of processor time)

Accuracy, AURC, E-AURC, AUGRC, AUROC of failures and ECE of the maximum softmax probability on the 50,000 validation
images. Every model and metric sees the same 4,000 resamples of the images, so differences are paired; with fewer than
3,640 no p-value could survive Holm's correction over 91 pairs. ``--save`` writes results/imagenet_models.csv and .md;
the page is made of the computed numbers, and a sentence that they do not bear out stops the script.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

from script import announce, data_folder

import numpy as np

import twofold
from timing import RESULTS, said
from twofold import metrics, stats
from twofold._math import harmonic
from twofold.bench.results import Results
from twofold.stats.cliques import list_cliques

COMMAND = "python benchmarks/imagenet_models.py --save"
RESAMPLES, ALPHA = 4000, 0.05
FEWER = ("aurc", "eaurc", "augrc", "ece")  # lower is better
HEADS = {
    "accuracy": "accuracy %",
    "aurc": "AURC x1000",
    "eaurc": "E-AURC x1000",
    "augrc": "AUGRC x1000",
    "auroc_f": "AUROC_f",
    "ece": "ECE x1000",
}
UNIT = {"accuracy": 100, "aurc": 1000, "eaurc": 1000, "augrc": 1000, "auroc_f": 1, "ece": 1000}
DIGITS = {"accuracy": 2, "aurc": 2, "eaurc": 2, "augrc": 2, "auroc_f": 4, "ece": 1}


def accuracy(correct, conf):
    """Compute the share of correct predictions."""
    return float(np.mean(correct))


def ece(correct, conf):
    """Compute the expected calibration error with 15 bins of equal width."""
    return metrics.ece(correct, conf)


def _weighted_ece(correct, conf):
    """Weight the error of a resample over fixed bins, which do not move with it."""
    place = np.maximum(np.ceil(conf * 15).astype(int), 1) - 1
    gap = correct - conf
    return lambda weights: float(np.abs(np.bincount(place, weights * gap, 15)).sum() / len(conf))


# what stats.bootstrap looks for, to resample by weights
accuracy.weighted = lambda correct, conf: lambda weights: float(weights @ correct.astype(np.float32)) / len(correct)
ece.weighted = _weighted_ece
DRAWN = {"accuracy": accuracy, "aurc": metrics.aurc, "augrc": metrics.augrc, "ece": ece}


def load():
    """Read the class of each image, and the correctness and confidence of each model."""
    file = "imagenet_val_confidence_14models.npz"
    data = np.load(data_folder(file) / file)
    labels = data["labels"]
    names = sorted(key.removesuffix("__pred") for key in data.files if key.endswith("__pred"))
    return labels, {m: (data[f"{m}__pred"] == labels, data[f"{m}__conf"].astype(np.float64)) for m in names}


# --- what is computed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Hold intervals of every metric and model on the same resamples, and what follows from them."""

    names: list[str]
    interval: dict[str, list[stats.Interval]]
    by_class: np.ndarray  # replicates of AUGRC, (models, resamples), with classes drawn instead of images
    ties: list[tuple[int, int, float, float]]

    @cached_property
    def value(self):
        """Return the values of each metric, (models,)."""
        return {metric: np.array([i.value for i in found]) for metric, found in self.interval.items()}

    @cached_property
    def drawn(self):
        """Return the replicates of each metric, (models, resamples)."""
        return {metric: np.array([i.replicates for i in found]) for metric, found in self.interval.items()}

    def order(self, metric):
        """List models from best to worst."""
        return np.argsort(self.value[metric] * (1 if metric in FEWER else -1))

    def place(self, metric):
        """Rank the models; 1 is best."""
        return np.argsort(self.order(metric)) + 1

    def cliques(self, metric, replicates=None):
        """Find maximal groups of models no two of which differ, and the number of pairs that differ."""
        adjusted = p_values(self.drawn[metric] if replicates is None else replicates)[1]
        place = self.place(metric)
        found = [sorted(g, key=place.__getitem__) for g in list_cliques(adjusted >= ALPHA, self.order(metric).tolist())]
        groups = sorted(found, key=lambda group: [place[j] for j in group])
        return groups, int((adjusted[np.triu_indices(len(place), 1)] < ALPHA).sum())

    def agreement(self, a, b):
        """Compute Kendall's tau and Spearman's rho of two rankings of the models, each with its interval."""
        sign = {metric: -1.0 if metric in FEWER else 1.0 for metric in (a, b)}
        point = agreement(sign[a] * self.value[a], sign[b] * self.value[b])
        spread = agreement(sign[a] * self.drawn[a], sign[b] * self.drawn[b])
        return [(float(v), *np.quantile(s, [0.025, 0.975])) for v, s in zip(point, spread, strict=True)]


def agreement(a, b):
    """Compute Kendall's tau and Spearman's rho along the first axis; no two models are tied."""
    first, second = np.triu_indices(len(a), 1)
    tau = (np.sign(a[first] - a[second]) * np.sign(b[first] - b[second])).mean(axis=0)
    gap = np.argsort(np.argsort(a, axis=0), axis=0) - np.argsort(np.argsort(b, axis=0), axis=0)
    return tau, 1 - 6 * (gap**2).sum(axis=0) / (len(a) * (len(a) ** 2 - 1))


def p_values(replicates):
    """Compute the two-sided p of every pair, as stats.bootstrap has it, and the same after Holm's correction."""
    k, n = replicates.shape
    raw, adjusted = np.ones((k, k)), np.ones((k, k))
    for i, j in combinations(range(k), 2):
        difference = replicates[i] - replicates[j]
        least = min((difference <= 0).sum(), (difference >= 0).sum())
        raw[i, j] = raw[j, i] = min(1.0, 2 * (1 + least) / (n + 1))
    upper = np.triu_indices(k, 1)
    adjusted[upper] = adjusted.T[upper] = stats.holm(raw[upper])
    return raw, adjusted


def drawn_by_class(labels, models):
    """Compute replicates of AUGRC where all 50 images of a class are drawn together; rows are sorted by class."""
    assert (np.diff(labels.astype(int)) >= 0).all()
    assert (np.bincount(labels) == 50).all()
    classes = stats.draws(1000, RESAMPLES, seed=0)
    values = [metrics.augrc.weighted(*arrays) for arrays in models.values()]
    return np.array([[value(np.repeat(weights, 50)) for weights in classes] for value in values])


def tied(correct, conf):
    """Count distinct confidences, how many are exactly 1, and AURC if ties were broken at best and at worst."""
    strict = -np.arange(len(conf), dtype=np.float64)
    best, worst = (metrics.aurc(correct[np.lexsort((key, -conf))], strict) for key in (~correct, correct))
    return len(np.unique(conf)), int((conf == 1).sum()), best, worst


def excess(aurc, accuracy):
    """Compute E-AURC by the AURC of a perfect ranking of as many failures among 50,000."""
    n = 50_000
    right = n * accuracy
    return aurc - (n - right - right * (harmonic(np.full_like(right, n)) - harmonic(right))) / n


def failure_auroc(augrc, accuracy):
    """Compute the AUROC of failures from AUGRC = (1 - AUROC_f) a e + e^2 / 2."""
    error = 1 - accuracy
    return 1 - (augrc - error**2 / 2) / (accuracy * error)


def derived(function, models, source, accuracy, by):
    """Compute intervals of a metric that on each resample follows from two others; the values themselves are the metric's."""
    found = []
    for arrays, a, b in zip(models.values(), source, accuracy, strict=True):
        value, drawn = function(*arrays), by(a.replicates, b.replicates)
        np.testing.assert_allclose(by(np.array([a.value]), np.array([b.value]))[0], value, rtol=1e-9)
        low, high = np.quantile(drawn, [0.025, 0.975])
        found.append(replace(a, value=value, low=float(low), high=float(high), replicates=drawn))
    return found


def compute():
    """Compute the whole study."""
    labels, models = load()
    found = {}
    for metric, function in DRAWN.items():
        announce(f"{metric} of {len(models)} models, {RESAMPLES:,} resamples")
        found[metric] = [stats.bootstrap(function, *arrays, n=RESAMPLES, seed=0) for arrays in models.values()]
    found["eaurc"] = derived(metrics.eaurc, models, found["aurc"], found["accuracy"], excess)
    found["auroc_f"] = derived(metrics.auroc, models, found["augrc"], found["accuracy"], failure_auroc)
    interval = {metric: found[metric] for metric in HEADS}
    announce("augrc, classes drawn whole")
    return Study(list(models), interval, drawn_by_class(labels, models), [tied(*a) for a in models.values()])


# --- the page -------------------------------------------------------------------------------------------------------


def main_table(study):
    """Yield every metric with its interval and the model's place, best AUGRC first."""
    yield "| model | " + " | ".join(HEADS.values()) + " |"
    yield "|---" * (len(HEADS) + 1) + "|"
    places = {metric: study.place(metric) for metric in HEADS}
    for j in study.order("augrc"):
        cells = []
        for metric in HEADS:
            i = study.interval[metric][j]
            value, low, high = (f"{UNIT[metric] * v:.{DIGITS[metric]}f}" for v in (i.value, i.low, i.high))
            cells.append(f"{value} [{low}, {high}] ({places[metric][j]})")
        yield f"| `{study.names[j]}` | " + " | ".join(cells) + " |"


def neighbours(study):
    """Yield neighbours in the ranking by AUGRC: indices, difference, interval, p and Holm's p."""
    order = study.order("augrc")
    raw, adjusted = p_values(study.drawn["augrc"])
    for i, j in pairwise(order):
        difference = study.drawn["augrc"][j] - study.drawn["augrc"][i]
        low, high = np.quantile(difference, [0.025, 0.975])
        yield i, j, study.value["augrc"][j] - study.value["augrc"][i], low, high, raw[i, j], adjusted[i, j]


def difference_table(study):
    yield "| better | next | difference of AUGRC x1000 | p | p after Holm |"
    yield "|---|---|---|---|---|"
    for i, j, value, low, high, raw, adjusted in neighbours(study):
        cell = f"{1000 * value:.2f} [{1000 * low:.2f}, {1000 * high:.2f}]"
        yield f"| `{study.names[i]}` | `{study.names[j]}` | {cell} | {raw:.2g} | {adjusted:.2g} |"


def agreement_table(study):
    yield "| ranking by | and by | Kendall | Spearman | pairs of models ordered differently |"
    yield "|---|---|---|---|---|"
    for a, b in combinations(HEADS, 2):
        cells = [f"{v:+.2f} [{low:+.2f}, {high:+.2f}]" for v, low, high in study.agreement(a, b)]
        yield f"| {a} | {b} | {cells[0]} | {cells[1]} | {discordant(study, a, b)} of 91 |"


def discordant(study, a, b):
    return round(91 * (1 - study.agreement(a, b)[0][0]) / 2)


def clique_list(study, groups):
    for group in groups:
        yield "- " + ", ".join(f"`{study.names[j]}`" for j in group)


def ties_paragraph(study):
    distinct, ones, best, worst = (np.array(column) for column in zip(*study.ties, strict=True))
    width = 1000 * (worst - best)
    fewest = int(np.argmin(distinct))
    others = np.delete(width, fewest).max()
    text = said("Ties matter only where confidences saturate.", width[fewest] > 3 * others and ones.argmax() == fewest)
    return (
        f"The confidences are in single precision, without further rounding: {distinct.min():,} to {distinct.max():,} "
        f"distinct values among 50,000, and at most {ones.max():,} of them exactly 1. {text} The AURC (x1000) of "
        f"`{study.names[fewest]}` would be {1000 * best[fewest]:.2f} with the best order among ties and "
        f"{1000 * worst[fewest]:.2f} with the worst, a range of {width[fewest]:.2f}. For the others the range is at most "
        f"{others:.2f}. Tied images share one risk, so the order of the file does not matter. The order that double precision "
        "would give cannot be recovered without logits."
    )


def class_paragraph(study):
    images, classes = study.drawn["augrc"], study.by_class
    ratio = classes.std(axis=1) / images.std(axis=1)
    pairs = list(combinations(range(len(images)), 2))
    paired = [(classes[i] - classes[j]).std() / (images[i] - images[j]).std() for i, j in pairs]
    differ, by_class = study.cliques("augrc")[1], study.cliques("augrc", classes)[1]
    text = said("wider for single models, and less so for differences", min(ratio) > max(paired) and min(paired) > 1)
    return (
        f"There is one data set, so tests over blocks do not apply: parts of it are not independent benchmarks. Groups come "
        f"from paired differences instead. Images are resampled as if they were independent. If whole classes are resampled, "
        f"as a sample of other classes, the intervals of AUGRC become {text}: {ratio.min():.1f} to {ratio.max():.1f} times as wide "
        f"for single models, and {min(paired):.2f} to {max(paired):.2f} times for differences. Then {by_class} of 91 pairs "
        f"differ significantly, instead of {differ}."
    )


def claims(study):
    """Yield sentences about the claims of the papers, each checked."""
    tau = {pair: study.agreement(*pair)[0] for pair in combinations(HEADS, 2)}
    t = {pair: f"{found[0]:+.2f}" for pair, found in tau.items()}
    across = {pair: found[1] < 0 < found[2] for pair, found in tau.items()}
    first = {metric: study.names[study.order(metric)[0]] for metric in HEADS}
    place = {metric: dict(zip(study.names, study.place(metric), strict=True)) for metric in HEADS}
    top = [study.names[j] for j in study.cliques("augrc")[0][0]]
    most, calm = first["accuracy"], first["ece"]

    yield "Confirmed:"
    yield ""
    yield said(
        "- **The more accurate model does not always fail less after rejection** (FD-Shifts, requirement 1). "
        f"The most accurate, `{most}`, has place {place['aurc'][most]} by AURC and differs significantly from the best, "
        f"`{first['aurc']}`.",
        place["aurc"][most] > 1 and significantly_different(study, most, first["aurc"], "aurc"),
    )
    yield said(
        "- **A ranking metric alone misleads when classifiers differ** (FD-Shifts, Table 12, for confidence functions; "
        f"unknown detection, after Ashukha et al.). AUROC_f orders the models against accuracy (Kendall "
        f"{t['accuracy', 'auroc_f']}, interval below 0). Its order is unrelated to that by AURC ({t['aurc', 'auroc_f']}, "
        "interval across 0), and it puts the most accurate model last.",
        tau["accuracy", "auroc_f"][2] < 0 and across["aurc", "auroc_f"] and place["auroc_f"][most] == 14,
    )
    ranking = ("aurc", "augrc", "auroc_f")
    yield said(
        "- **Calibration and ranking are different things** (FD-Shifts, Figure 6). The order by ECE is unrelated to those "
        f"by AURC ({t['aurc', 'ece']}), AUGRC ({t['augrc', 'ece']}) and AUROC_f ({t['auroc_f', 'ece']}; intervals "
        f"across 0). `{calm}` is the best calibrated and has place {place['aurc'][calm]} by AURC.",
        all(across[metric, "ece"] for metric in ranking) and place["aurc"][calm] > 7,
    )
    changed = discordant(study, "aurc", "augrc")
    one, other = first["aurc"], first["augrc"]
    yield said(
        f"- **AURC and AUGRC are not interchangeable** (Traub et al. 2024). They order {changed} of 91 pairs differently. "
        f"Of `{one}` and `{other}`, each is significantly better by one of the two metrics.",
        one != other and all(significantly_different(study, one, other, metric) for metric in ("aurc", "augrc")),
    )
    near = list(neighbours(study))
    equal = sum(row[-1] >= ALPHA for row in near)
    yield said(
        "- **Ranks hide which differences are real** (FD-Shifts, Table 11; stratified OOD). Of the 13 neighbouring pairs by "
        f"AUGRC, {equal} are statistically tied with 50,000 images, the best two among them.",
        equal > len(near) / 2 and near[0][-1] >= ALPHA,
    )
    loose = max(
        (worst - best) / value for (_, _, best, worst), value in zip(study.ties, study.value["aurc"], strict=True)
    )
    yield said(
        "- **Rounding to single precision matters little for convolutional networks** (FD-Shifts, Table 2; all fourteen are "
        f"convolutional). Ties leave at most {100 * loose:.1f} % of AURC open.",
        loose < 0.03,
    )
    yield ""
    yield "Only in part, or not:"
    yield ""
    yield said(
        "- **E-AURC takes accuracy out of AURC, and so becomes a pure ranking metric** (FD-Shifts, below Eq. 32). "
        f"Its order is indeed unrelated to that by accuracy ({t['accuracy', 'eaurc']}, interval across 0). But it is not the order "
        f"by AUROC_f either ({t['eaurc', 'auroc_f']}; {discordant(study, 'eaurc', 'auroc_f')} of 91 pairs differ): it still "
        "gives most weight to failures among the most confident images.",
        across["accuracy", "eaurc"] and 0.3 < tau["eaurc", "auroc_f"][0] < 0.7,
    )
    error = 1 - study.value["accuracy"]
    identity = (1 - study.value["auroc_f"]) * (1 - error) * error + error**2 / 2
    yield said(
        "- **Accuracy does not give the order of reliability.** This holds for AURC "
        f"({t['accuracy', 'aurc']}) more than for AUGRC ({t['accuracy', 'augrc']}; {discordant(study, 'accuracy', 'augrc')}"
        f" of 91 pairs differ), where `{most}` is in the top group. AUGRC equals $(1 - \\mathrm{{AUROC}}_f)\\, a e + e^2/2$ "
        "with accuracy $a$ and error rate $e$. The values of AUROC_f are so similar that the error rate decides.",
        tau["accuracy", "augrc"][1] > tau["accuracy", "aurc"][2]
        and most in top
        and np.allclose(study.value["augrc"], identity, atol=1e-9),
    )
    yield (
        "- **Not tested**: claims about other confidence functions, shifts or transformers. The file holds one confidence "
        "(maximum softmax) of convolutional networks on in-distribution images."
    )


def significantly_different(study, a, b, metric):
    """Check whether two models differ after Holm's correction."""
    return p_values(study.drawn[metric])[1][study.names.index(a), study.names.index(b)] < ALPHA


def page(study):
    """Write the page."""
    groups, differ = study.cliques("augrc")
    aurc_groups, aurc_differ = study.cliques("aurc")
    lines = [
        "# Fourteen ImageNet classifiers: accuracy against reliability",
        "",
        "Is the more accurate classifier also the more reliable one? This page compares fourteen classifiers on 50,000 "
        "validation images, with the maximum softmax probability as the confidence. "
        f"`{COMMAND}` writes it (with `$TWOFOLD_DATA` set; twofold {twofold.__version__}).",
        "",
        f"Brackets hold 95 % percentile intervals of {RESAMPLES:,} bootstrap resamples, the same for all models and metrics. "
        "Parentheses hold the place among the fourteen. ECE has 15 bins of equal width; it is biased upwards, and so are its "
        "intervals.",
        "",
        *main_table(study),
        "",
        "## What this means for the papers' claims",
        "",
        *claims(study),
        "",
        "## Neighbours in the ranking by AUGRC",
        "",
        f"The table shows paired differences. Holm's correction is over all 91 pairs. The smallest p that {RESAMPLES:,} resamples "
        f"can show is {2 / (RESAMPLES + 1):.2g}, or {91 * 2 / (RESAMPLES + 1):.2g} after Holm's correction; the evidence for such "
        "a pair may be much stronger.",
        "",
        *difference_table(study),
        "",
        "## Statistically tied groups",
        "",
        class_paragraph(study),
        "",
        f"By AUGRC, best first ({differ} of 91 pairs differ after Holm's correction at {ALPHA}). Groups are maximal, and a model may "
        "be in several:",
        "",
        *clique_list(study, groups),
        "",
        f"By AURC ({aurc_differ} of 91 pairs differ):",
        "",
        *clique_list(study, aurc_groups),
        "",
        "## Agreement of rankings",
        "",
        "Every metric is oriented so that higher is better. The intervals, over the same resamples, are about other images and "
        "these fourteen models, not about other models. A resample adds noise to the ranks, so a value may lie at the edge of "
        "its interval.",
        "",
        *agreement_table(study),
        "",
        "## Ties",
        "",
        ties_paragraph(study),
    ]
    return "\n".join(lines) + "\n"


def tidy(study):
    """Yield rows of results: values, paired differences of neighbours, agreement of rankings."""
    same = {
        "benchmark": "imagenet-val",
        "score": "msp",
        "shift": "test",
        "role": "test",
        "level": 0.95,
        "resamples": RESAMPLES,
        "n": 50_000,
        "n_id": 50_000,
        "n_ood": 0,
        "seed": 0,
        "tuned": "untuned",
        "version": twofold.__version__,
        "command": COMMAND,
    }
    for metric, found in study.interval.items():
        better = "lower" if metric in FEWER else "higher"
        for name, i in zip(study.names, found, strict=True):
            numbers = {"value": i.value, "low": i.low, "high": i.high, "better": better}
            yield {**same, "model": name, "protocol": "value", "metric": metric, **numbers}
    for i, j, value, low, high, raw, adjusted in neighbours(study):
        numbers = {"value": value, "low": low, "high": high, "better": "lower"}
        reason = f"p = {raw:.4g}, after Holm {adjusted:.4g}"
        pair = f"{study.names[j]} - {study.names[i]}"
        yield {**same, "model": pair, "protocol": "paired difference", "metric": "augrc", "reason": reason, **numbers}
    for a, b in combinations(HEADS, 2):
        for name, (value, low, high) in zip(("kendall", "spearman"), study.agreement(a, b), strict=True):
            numbers = {"value": value, "low": low, "high": high}
            yield {**same, "model": "all", "protocol": f"{name} of rankings", "metric": f"{a}, {b}", **numbers}


def main():
    study = compute()
    text = page(study)
    print(text)
    if "--save" in sys.argv:
        Results.of(tidy(study)).to_csv(RESULTS / "imagenet_models.csv")
        (RESULTS / "imagenet_models.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
