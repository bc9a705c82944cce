"""Algorithms 1 and 2 of SURE+: each printed line beside what our methods do, tried on an example."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from twofold import metrics
from twofold.metrics.operating_points import quantile_thresholds
from twofold.papers.settings_tables import SettingsRow, register_settings
from twofold.typing import Array, Mask

_THRESHOLDS = 40  # on each axis of the example
_BINS = 10


def _example() -> tuple[Mask, Array, Array, Mask]:
    """Draw correct, both confidences and is_id."""
    rng = np.random.default_rng(0)
    is_id = np.arange(300) < 200
    correct = is_id & (rng.random(300) < 0.75)
    conf_id = correct + rng.normal(size=300)
    conf_ood = 1.5 * is_id + rng.normal(size=300)
    return correct, conf_id, conf_ood, is_id


def _pairs(count: int) -> Iterable[tuple[Mask, Mask, Mask]]:
    """List what every pair of quantile thresholds accepts, one after the other: all, known and correct samples."""
    correct, conf_id, conf_ood, is_id = _example()
    for tau_id in quantile_thresholds(conf_id, count):
        for tau_ood in quantile_thresholds(conf_ood, count):
            accepted = (conf_id >= tau_id) & (conf_ood >= tau_ood)
            yield accepted, accepted & is_id, accepted & correct


def _algorithm_1(precision_of: Callable[[Mask, Mask], Mask]) -> float:
    """Run Algorithm 1 as printed; ``precision_of`` says what the precision divides by."""
    _, _, _, is_id = _example()
    best = 0.0
    for accepted, known, right in _pairs(_THRESHOLDS):
        divisor = precision_of(accepted, known).sum()
        if not accepted.any() or not divisor or not right.any():
            continue
        precision, recall = right.sum() / divisor, right.sum() / is_id.sum()
        best = max(best, 2 * precision * recall / (precision + recall))
    return float(best)


def _algorithm_2() -> float:
    """Run Algorithm 2 as printed, with the least risk of each bin and the mean over bins."""
    _, _, _, is_id = _example()
    bins: list[list[float]] = [[] for _ in range(_BINS)]
    for accepted, known, right in _pairs(_THRESHOLDS):
        if not known.any():
            continue
        coverage = known.sum() / is_id.sum()
        place = math.ceil(coverage * _BINS - 1e-9) - 1  # the bin (j / K, (j + 1) / K]
        bins[place].append(float(1 - right.sum() / accepted.sum()))
    return float(np.mean([min(members) for members in bins]))


def _row(name: str, printed: str, ours: str, agrees: bool, note: str = "") -> SettingsRow:
    return SettingsRow(name, printed, ours, agrees, note)


@register_settings("ds_f1_algorithm")
def ds_f1_algorithm() -> tuple[SettingsRow, ...]:
    """Compare Algorithm 1 of SURE+ with our DS-F1.

    Returns
    -------
    tuple of SettingsRow
        Its lines, and its value on an example by a plain loop beside ours.

    Examples
    --------
    >>> [row.name for row in ds_f1_algorithm() if not row.agrees]
    ['precision (line 13)', 'thresholds of the released code']
    """
    correct, conf_id, conf_ood, is_id = _example()
    ours = metrics.ds_f1(correct, conf_id, conf_ood, is_id, method="grid", thresholds=_THRESHOLDS).value
    by_equation = _algorithm_1(lambda accepted, known: accepted)
    as_printed = _algorithm_1(lambda accepted, known: known)
    exact = metrics.ds_f1(correct, conf_id, conf_ood, is_id).value
    return (
        _row("thresholds (line 3)", "quantiles of each score", 'method="grid": quantiles', True),
        _row("acceptance (line 6)", "both scores at or above", "both scores at or above", True),
        _row("nothing accepted (line 9)", "F1 is 0", "F1 is 0", True),
        _row(
            "precision (line 13)",
            f"correct / accepted ID samples: {as_printed:.4f} on the example",
            f"correct / all accepted samples: {ours:.4f}",
            bool(np.isclose(as_printed, ours)),
            "line 13 ignores accepted OOD samples; Eq. 2 and the printed numbers divide by all accepted samples",
        ),
        _row(
            "value with the precision of Eq. 2",
            f"{by_equation:.4f} by a loop over all pairs",
            f"{ours:.4f}",
            bool(np.isclose(by_equation, ours)),
            f"the exact maximum over every pair, our default, is {exact:.4f}",
        ),
        _row(
            "thresholds of the released code",
            "quantiles",
            'method="published": 1001 equally spaced values on min-max scores',
            False,
            "the code, which made the printed tables, differs from the algorithm",
        ),
    )


@register_settings("ds_aurc_algorithm")
def ds_aurc_algorithm() -> tuple[SettingsRow, ...]:
    """Compare Algorithm 2 of SURE+ with our DS-AURC.

    Returns
    -------
    tuple of SettingsRow
        Its lines, and its value on an example by a plain loop beside ours.

    Examples
    --------
    >>> [row.name for row in ds_aurc_algorithm() if not row.agrees]
    ['coverage bins K', 'risk of the released code where nothing is accepted']
    """
    correct, conf_id, conf_ood, is_id = _example()
    ours = metrics.ds_aurc(correct, conf_id, conf_ood, is_id, method="grid", thresholds=_THRESHOLDS, bins=_BINS)
    printed = _algorithm_2()
    exact = metrics.ds_aurc(correct, conf_id, conf_ood, is_id)
    return (
        _row("thresholds (lines 4 and 19)", "quantiles of each score", 'method="grid": quantiles', True),
        _row("risk (line 28)", "(wrong + accepted OOD) / accepted", "1 - correct / accepted", True),
        _row("coverage (line 30)", "accepted ID / all ID samples", "accepted ID / all ID samples", True),
        _row(
            "least risk in each bin",
            f"{printed:.4f} by a loop over all pairs",
            f"{ours:.4f}",
            bool(np.isclose(printed, ours)),
            f"the exact area without bins, our default, is {exact:.4f}",
        ),
        _row("coverage bins K", "not stated", "100 by default", False, "100 in the released code"),
        _row(
            "risk of the released code where nothing is accepted",
            "0",
            'method="published": 1',
            False,
            "the code, which made the printed tables, differs from the algorithm",
        ),
    )
