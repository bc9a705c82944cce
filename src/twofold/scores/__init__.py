"""Every post-hoc confidence score, from arrays: ``names()`` lists them, ``info(name)`` tells what is known of one."""

from __future__ import annotations

from collections.abc import Iterable

from twofold import steps
from twofold.steps import StepInfo, fit_all, info, score_all

__all__ = ["StepInfo", "fit_all", "info", "names", "score_all"]


def names(needs: Iterable[str] | None = None) -> list[str]:
    """Names of all scores, or of those that outputs with the fields ``needs`` can be given.

    >>> names(needs=["logits"])[:3]
    ['msp', 'mls', 'maxlogit_pnorm']
    """
    return steps.names("score", needs)
