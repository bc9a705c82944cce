"""Claims that a gain with its interval decides."""

from __future__ import annotations

from claims import Claim, judge
from intervals import Gain


def judge_gain(paper: str, claim: str, gain: Gain, *, factor: float = 100, **texts: str) -> Claim:
    """Make a claim whose verdict follows from the interval of a gain.

    Parameters
    ----------
    paper, claim : str
        As for :func:`claims.judge`.
    gain : Gain
        The gain, positive as claimed.
    factor : float, default=100
        What turns the gain into the unit of the claim; by default rates become points.
    **texts : str
        What :func:`claims.judge` takes as text: ``printed_at``, ``printed``, ``ours``, ``unit``, ``scale``, ``command``.
    """
    return judge(paper, claim, low=factor * gain.low, high=factor * gain.high, p=gain.p, **texts)
