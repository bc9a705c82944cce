"""Metrics of fourteen real ImageNet classifiers on the same resamples of the images, for benchmarks/imagenet_models.py.

Every model and metric sees the same 4,000 resamples, so differences are paired. With fewer than 3,640 no p-value could
survive Holm's correction over 91 pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import NamedTuple

from script import announce, data_folder

import numpy as np

from imagenet_metrics import METRICS, RESAMPLED, excess_aurc, failure_auroc, sign
from twofold import metrics, stats
from twofold.stats.cliques import list_cliques

Models = dict[str, tuple[np.ndarray, np.ndarray]]  # correctness and confidence by model

FILE = "imagenet_val_confidence_14models.npz"
CLASSES, IMAGES_OF_CLASS = 1000, 50
RESAMPLES, ALPHA = 4000, 0.05


def load() -> tuple[np.ndarray, Models]:
    """Read the class of each image, and the correctness and confidence of each model."""
    data = np.load(data_folder(FILE) / FILE)
    labels = data["labels"]
    models = {}
    for key in sorted(data.files):
        if key.endswith("__pred"):
            name = key.removesuffix("__pred")
            models[name] = data[key] == labels, data[f"{name}__conf"].astype(np.float64)
    return labels, models


# --- what follows from the replicates ------------------------------------------------------------------------------------------------


class Correlation(NamedTuple):
    """The rank correlation of two rankings of the models, with its interval."""

    value: float
    low: float
    high: float

    @property
    def is_undecided(self) -> bool:
        return self.low < 0 < self.high


class Ties(NamedTuple):
    """Ties among the confidences of a model, and AURC if they were broken at best and at worst."""

    distinct: int
    ones: int
    best: float
    worst: float


class Neighbours(NamedTuple):
    """Two neighbours in the ranking by AUGRC, with their paired difference."""

    better: int
    worse: int
    difference: float
    low: float
    high: float
    p: float
    adjusted_p: float


@dataclass(frozen=True)
class Study:
    """Hold intervals of every metric and model on the same resamples, and what follows from them."""

    names: list[str]
    interval: dict[str, list[stats.Interval]]
    by_class: np.ndarray  # replicates of AUGRC, (models, resamples), with classes drawn instead of images
    ties: list[Ties]

    @cached_property
    def value(self) -> dict[str, np.ndarray]:
        """Return the values of each metric, (models,)."""
        values = {}
        for metric, intervals in self.interval.items():
            values[metric] = np.array([interval.value for interval in intervals])
        return values

    @cached_property
    def drawn(self) -> dict[str, np.ndarray]:
        """Return the replicates of each metric, (models, resamples)."""
        drawn = {}
        for metric, intervals in self.interval.items():
            drawn[metric] = np.array([interval.replicates for interval in intervals])
        return drawn

    def order(self, metric: str) -> np.ndarray:
        """List models from best to worst."""
        return np.argsort(-sign(metric) * self.value[metric])

    def place(self, metric: str) -> np.ndarray:
        """Rank the models; 1 is best."""
        return np.argsort(self.order(metric)) + 1

    def place_of(self, name: str, metric: str) -> int:
        """Return the place of one model."""
        return self.place(metric)[self.names.index(name)]

    def best(self, metric: str) -> str:
        """Name the best model."""
        return self.names[self.order(metric)[0]]

    def cliques(self, metric: str) -> list[list[int]]:
        """Find maximal groups of models no two of which differ, best first."""
        _, adjusted = p_values(self.drawn[metric])
        place = self.place(metric)
        groups = []
        for group in list_cliques(adjusted >= ALPHA, self.order(metric).tolist()):
            groups.append(sorted(group, key=lambda model: place[model]))
        return sorted(groups, key=lambda group: place[group].tolist())

    def is_different(self, first: str, second: str, metric: str) -> bool:
        """Check whether two models differ after Holm's correction."""
        _, adjusted = p_values(self.drawn[metric])
        return adjusted[self.names.index(first), self.names.index(second)] < ALPHA

    def correlate(self, first: str, second: str) -> tuple[Correlation, Correlation]:
        """Compute Kendall's tau and Spearman's rho of two rankings of the models; 1 if both prefer the same."""
        taus, rhos = correlations(sign(first) * self.drawn[first], sign(second) * self.drawn[second])
        tau, rho = correlations(sign(first) * self.value[first], sign(second) * self.value[second])
        kendall = Correlation(float(tau), *np.quantile(taus, [0.025, 0.975]))
        spearman = Correlation(float(rho), *np.quantile(rhos, [0.025, 0.975]))
        return kendall, spearman

    def kendall(self, first: str, second: str) -> Correlation:
        return self.correlate(first, second)[0]

    def count_discordant(self, first: str, second: str) -> int:
        """Count the pairs of models that two metrics order differently."""
        pairs = len(self.names) * (len(self.names) - 1) // 2
        return round(pairs * (1 - self.kendall(first, second).value) / 2)

    def neighbours(self) -> list[Neighbours]:
        """List the neighbours in the ranking by AUGRC, best first."""
        order = self.order("augrc")
        value, drawn = self.value["augrc"], self.drawn["augrc"]
        raw, adjusted = p_values(drawn)
        found = []
        for better, worse in pairwise(order):
            low, high = np.quantile(drawn[worse] - drawn[better], [0.025, 0.975])
            difference = value[worse] - value[better]
            p, adjusted_p = raw[better, worse], adjusted[better, worse]
            found.append(Neighbours(better, worse, difference, low, high, p, adjusted_p))
        return found


def correlations(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute Kendall's tau and Spearman's rho along the first axis; no two models are tied."""
    count = len(first)
    i, j = np.triu_indices(count, 1)
    tau = (np.sign(first[i] - first[j]) * np.sign(second[i] - second[j])).mean(axis=0)
    first_ranks = np.argsort(np.argsort(first, axis=0), axis=0)
    second_ranks = np.argsort(np.argsort(second, axis=0), axis=0)
    gap = first_ranks - second_ranks
    rho = 1 - 6 * (gap**2).sum(axis=0) / (count * (count**2 - 1))
    return tau, rho


def p_values(replicates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the two-sided p of every pair, as stats.bootstrap has it, and the same after Holm's correction.

    Parameters
    ----------
    replicates : ndarray of shape (models, resamples)

    Returns
    -------
    raw, adjusted : ndarray of shape (models, models)
    """
    count, resamples = replicates.shape
    raw = np.ones((count, count))
    adjusted = np.ones((count, count))
    for i, j in combinations(range(count), 2):
        difference = replicates[i] - replicates[j]
        least = min((difference <= 0).sum(), (difference >= 0).sum())
        raw[i, j] = raw[j, i] = min(1.0, 2 * (1 + least) / (resamples + 1))
    upper = np.triu_indices(count, 1)
    adjusted[upper] = adjusted.T[upper] = stats.holm(raw[upper])
    return raw, adjusted


def count_different(replicates: np.ndarray) -> int:
    """Count the pairs of models that differ after Holm's correction."""
    _, adjusted = p_values(replicates)
    return int((adjusted[np.triu_indices(len(adjusted), 1)] < ALPHA).sum())


# --- the whole study ------------------------------------------------------------------------------------------------


def draw_by_class(labels: np.ndarray, models: Models) -> np.ndarray:
    """Compute replicates of AUGRC where all 50 images of a class are drawn together; rows are sorted by class."""
    assert (np.diff(labels.astype(int)) >= 0).all()
    assert (np.bincount(labels) == IMAGES_OF_CLASS).all()
    draws = stats.draws(CLASSES, RESAMPLES, seed=0)
    replicates = []
    for correct, conf in models.values():
        augrc = metrics.augrc.weighted(correct, conf)
        replicates.append([augrc(np.repeat(weights, IMAGES_OF_CLASS)) for weights in draws])
    return np.array(replicates)


def count_ties(correct: np.ndarray, conf: np.ndarray) -> Ties:
    """Count distinct confidences and those that are exactly 1, and break ties at best and at worst."""
    strict = -np.arange(len(conf), dtype=np.float64)
    best = metrics.aurc(correct[np.lexsort((~correct, -conf))], strict)
    worst = metrics.aurc(correct[np.lexsort((correct, -conf))], strict)
    return Ties(len(np.unique(conf)), int((conf == 1).sum()), best, worst)


def derive_intervals(
    metric: Callable[..., float],
    from_two: Callable[[np.ndarray, np.ndarray], np.ndarray],
    models: Models,
    sources: Sequence[stats.Interval],
    accuracies: Sequence[stats.Interval],
) -> list[stats.Interval]:
    """Compute intervals of a metric that on each resample follows from a source metric and the accuracy.

    Parameters
    ----------
    metric : callable
        What the values themselves are computed with, and what ``from_two`` must agree with.
    from_two : callable
        The metric as a function of the source metric and the accuracy.
    models : dict
        Correctness and confidence of each model.
    sources, accuracies : sequence of Interval
        The intervals of the source metric and of the accuracy, in the order of the models.
    """
    intervals = []
    for arrays, source, accuracy in zip(models.values(), sources, accuracies, strict=True):
        value = metric(*arrays)
        derived = from_two(np.array([source.value]), np.array([accuracy.value]))[0]
        np.testing.assert_allclose(derived, value, rtol=1e-9)
        replicates = from_two(source.replicates, accuracy.replicates)
        low, high = np.quantile(replicates, [0.025, 0.975])
        intervals.append(replace(source, value=value, low=float(low), high=float(high), replicates=replicates))
    return intervals


def compute() -> Study:
    """Compute the whole study."""
    labels, models = load()
    found = {}
    for name, metric in RESAMPLED.items():
        announce(f"{name} of {len(models)} models, {RESAMPLES:,} resamples")
        found[name] = [stats.bootstrap(metric, *arrays, n=RESAMPLES, seed=0) for arrays in models.values()]
    found["eaurc"] = derive_intervals(metrics.eaurc, excess_aurc, models, found["aurc"], found["accuracy"])
    found["auroc_f"] = derive_intervals(metrics.auroc, failure_auroc, models, found["augrc"], found["accuracy"])
    interval = {metric: found[metric] for metric in METRICS}
    announce("augrc, classes drawn whole")
    by_class = draw_by_class(labels, models)
    ties = [count_ties(correct, conf) for correct, conf in models.values()]
    return Study(list(models), interval, by_class, ties)
