"""Metrics of a classifier that benchmarks/imagenet_models.py resamples, and those that follow from two others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twofold import metrics
from twofold._math import harmonic

Weighted = Callable[[np.ndarray], float]  # a metric of one resample, from the weights of the images

IMAGES = 50_000
BINS = 15  # of ECE, of equal width
METRICS = ("accuracy", "aurc", "eaurc", "augrc", "auroc_f", "ece")
FEWER = ("aurc", "eaurc", "augrc", "ece")  # lower is better


def sign(metric: str) -> float:
    """Return what makes higher better when the metric is multiplied by it."""
    return -1.0 if metric in FEWER else 1.0


# --- metrics that are resampled -------------------------------------------------------------------------------------


def accuracy(correct: np.ndarray, conf: np.ndarray) -> float:
    """Compute the share of correct predictions."""
    return float(np.mean(correct))


def weigh_accuracy(correct: np.ndarray, conf: np.ndarray) -> Weighted:
    """Return the accuracy of a resample as a function of the weights of the images."""
    correct = correct.astype(np.float32)

    def resampled(weights: np.ndarray) -> float:
        return float(weights @ correct) / len(correct)

    return resampled


def ece(correct: np.ndarray, conf: np.ndarray) -> float:
    """Compute the expected calibration error with 15 bins of equal width."""
    return metrics.ece(correct, conf)


def weigh_ece(correct: np.ndarray, conf: np.ndarray) -> Weighted:
    """Return the calibration error of a resample; the bins are fixed and do not move with it."""
    bins = np.maximum(np.ceil(conf * BINS).astype(int), 1) - 1
    gap = correct - conf

    def resampled(weights: np.ndarray) -> float:
        return float(np.abs(np.bincount(bins, weights * gap, BINS)).sum() / len(conf))

    return resampled


accuracy.weighted = weigh_accuracy  # what stats.bootstrap looks for, to resample by weights
ece.weighted = weigh_ece
RESAMPLED = {"accuracy": accuracy, "aurc": metrics.aurc, "augrc": metrics.augrc, "ece": ece}


# --- metrics that follow from two others ----------------------------------------------------------------------------


def excess_aurc(aurc: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Compute E-AURC by the AURC of a perfect ranking of as many failures."""
    correct = IMAGES * accuracy
    all_images = np.full_like(correct, IMAGES)
    best = (IMAGES - correct - correct * (harmonic(all_images) - harmonic(correct))) / IMAGES
    return aurc - best


def failure_auroc(augrc: np.ndarray, accuracy: np.ndarray) -> np.ndarray:
    """Compute the AUROC of failures from AUGRC = (1 - AUROC_f) a e + e^2 / 2."""
    error = 1 - accuracy
    return 1 - (augrc - error**2 / 2) / (accuracy * error)
