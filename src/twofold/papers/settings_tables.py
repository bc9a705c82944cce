"""Tables of settings: made from our catalogue, recipes and presets, and compared with print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from twofold._math import softmax
from twofold.outputs import Outputs
from twofold.scores.chain import scorer
from twofold.scores.registry import info
from twofold.typing import Array


@dataclass(frozen=True)
class SettingsRow:
    """Hold one setting as printed and as it is here.

    Parameters
    ----------
    name : str
        What is set.
    printed : str
        What the paper says.
    ours : str
        What twofold has.
    agrees : bool
        Whether both say the same.
    note : str, default=""
        Why they differ, or how the paper calls it.
    """

    name: str
    printed: str
    ours: str
    agrees: bool
    note: str = ""


SettingsBuilder: TypeAlias = Callable[[], tuple[SettingsRow, ...]]

SETTINGS: dict[str, SettingsBuilder] = {}
"""Functions that make the rows of a table of settings, by name."""


def register_settings(name: str) -> Callable[[SettingsBuilder], SettingsBuilder]:
    """Register a function that makes a table of settings.

    Parameters
    ----------
    name : str
        The name by which plans call it.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.
    """

    def register(function: SettingsBuilder) -> SettingsBuilder:
        SETTINGS[name] = function
        return function

    return register


def _entropy_of_logits(logits: Array) -> Array:
    """Compute the printed form; logits that are not positive have no logarithm and count nothing."""
    positive = np.where(logits > 0, logits, 1.0)
    return (positive * np.log(positive)).sum(axis=1)


# our name, printed name, printed equation in words and as code, what is wrong with it
_CONFIDENCES: tuple[tuple[str, str, str, Callable[[Array, Array], Array], str], ...] = (
    ("msp", "MSP", "max p", lambda z, p: p.max(axis=1), ""),
    ("mls", "MaxLogit", "max z", lambda z, p: z.max(axis=1), ""),
    (
        "margin",
        "Softmax Margin",
        "largest p less the second largest",
        lambda z, p: np.sort(p, axis=1)[:, -1] - np.sort(p, axis=1)[:, -2],
        "",
    ),
    (
        "entropy",
        "Negative Entropy",
        "sum of z log z",
        lambda z, p: _entropy_of_logits(z),
        "a misprint: the entropy is that of the probabilities p",
    ),
    (
        "maxlogit_pnorm",
        "MaxLogit-lp Norm",
        "norm of z",
        lambda z, p: np.linalg.norm(z, axis=1),
        "a misprint: the method divides the maximum of the centred logits by their norm",
    ),
    ("gini", "Negative Gini Score", "sum of squared p, less 1", lambda z, p: (p**2).sum(axis=1) - 1, ""),
)


@register_settings("confidence_functions")
def confidence_functions() -> tuple[SettingsRow, ...]:
    """Compare the six confidence functions of the AURC-estimators paper, as printed, with ours.

    Returns
    -------
    tuple of SettingsRow
        A row for each function. Two agree if they rank random logits alike.

    Examples
    --------
    >>> [row.name for row in confidence_functions() if not row.agrees]
    ['Negative Entropy', 'MaxLogit-lp Norm']
    """
    logits = np.random.default_rng(0).normal(scale=3.0, size=(500, 10))
    probabilities = softmax(logits)
    rows = []
    for name, title, words, equation, misprint in _CONFIDENCES:
        ours = scorer(name).score(Outputs(logits))
        printed = equation(logits, probabilities)
        agrees = bool((np.argsort(ours) == np.argsort(printed)).all())
        summary = (info(name).maker.__doc__ or "").strip().splitlines()[0]
        rows.append(SettingsRow(title, words, f"{name}: {summary}", agrees, "" if agrees else misprint))
    return tuple(rows)
