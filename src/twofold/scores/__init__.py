"""Post-hoc confidence scores computed from arrays: ``names()`` lists them, ``info(name)`` describes one."""

from __future__ import annotations

from collections.abc import Iterable

from twofold.scores.chain import fit_all
from twofold.scores.partitioned import fit_partitioned
from twofold.scores.registry import StepInfo, info, step_names
from twofold.scores.scoring import score_all

__all__ = ["StepInfo", "fit_all", "fit_partitioned", "info", "names", "score_all"]


def names(needs: Iterable[str] | None = None) -> list[str]:
    """List the scores, or those that outputs with the fields ``needs`` can be scored by.

    Parameters
    ----------
    needs : iterable of str, optional
        Fields of the outputs, such as ``["logits", "features"]``; scores that need others are left out.

    Returns
    -------
    list of str
        Names in the order of registration.

    Examples
    --------
    >>> sorted(names(needs=["logits"]))[:3]
    ['collision', 'edl_max', 'edl_vacuity']
    """
    return step_names("score", needs)
