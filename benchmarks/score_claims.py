"""Decide the papers' claims on scores, thresholds and estimators from committed tables, each with an interval and a p.

    python benchmarks/score_claims.py        (seconds; reads results/, writes results/claims/scores.csv)

Some rules were taken from earlier pages, so their numbers were known. The interval of a signed gain decides, as in ``claims.py``.
Intervals are those of ``score_choice.py`` over networks and unknown sets (tables of ``which_score.py``), or Student's t
over networks, or over networks and promises. They say how far a claim carries over to other networks and sets.

- Two scores against one: DS-F1 of msp with each other score, less the better of the two alone.
- Far against near: the mean gain over msp on far sets, less that on near sets.
- A strong single score: F1 of msp, less that of the score at the upper quarter of all scores.
- Poor ID scores: how much DS-F1 changes when two scores change places, less one point.
- Thresholds that stay ahead: F1 of msp + react|energy at thresholds of another set, less that of either of its scores.
- No score wins: the least mean excess of one score's AURC over the best score of each shift.
- No score beats the softmax: AURC of the best other score, less that of msp; the interval holds for all scores together.
- Removing mistakes: the largest change of a rank of AUROC in each cell, less three places.
- AURC and AUROC of failures rank differently: 0.8 less their rank correlation.
- Half precision hurts: AUROC lost by float16. Single precision hardly does: 0.1 points less the AUROC lost by float32.
- Calibration: one point of ECE, less what another scaled score has more than scaled msp.
- A guarantee holds on fresh data (promised less found risk), and fails under corruption (found less promised).
- Estimators: differences of absolute bias or RMSE, in percent of the AURC, averaged over both losses.
"""

from __future__ import annotations

from pathlib import Path

import script  # noqa: F401, which answers --help and rejects unknown options

from calibration_claims import calibration_claims
from claims import Claim, write_claims
from estimator_claims import estimator_claims
from joint_claims import joint_claims
from shift_claims import shift_claims


def main() -> None:
    """Write the claims."""
    print(write())


def write() -> Path:
    """Decide every claim and write the file."""
    return write_claims("scores", decide_all())


def decide_all() -> list[Claim]:
    """Decide every claim."""
    return [*joint_claims(), *shift_claims(), *calibration_claims(), *estimator_claims()]


if __name__ == "__main__":
    main()
