"""Every score of the stratified study's Table 3 on the queries of ``text_queries.py``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from script import announce

import numpy as np

from claims import Claim
from gain_claims import judge_gain
from intervals import Gain, Placements, average, place, show_gain
from stratified_cells import PLAIN
from stratified_study import plain_titles
from twofold import metrics
from twofold.bench.confidences import plan_chain
from twofold.bench.pools import TABLE_3
from twofold.bench.protocols import protocol
from twofold.outputs import Outputs
from twofold.typing import Array

COMMAND = "python benchmarks/text_claims.py --save"
SCALE = (
    "MiniLM on CLINC150: 150 intents, 4,500 test queries, 1,000 near ones (out of scope) and 1,000 far ones (docstrings of "
    "Python's standard library)"
)
SHARES = (0.8, 0.9, 0.95, 0.99)  # of the variance, tried for each projection
GROUPS = {"id": "wrong labels", "near": "near queries", "far": "far queries"}


@dataclass(frozen=True)
class TextScores:
    """Hold the outputs of each set, and what every score of Table 3 says of them.

    Parameters
    ----------
    sets : mapping
        Outputs by set: train, val, test, near and far.
    conf : mapping
        Confidences by score and projection, then by set.
    placements : mapping
        Placements by score, projection and group. Correct test queries stand against wrong ones (id), near or far ones.
    """

    sets: Mapping[str, Outputs]
    conf: Mapping[tuple[str, str], Mapping[str, Array]]
    placements: Mapping[tuple[str, str, str], Placements]

    def mean(self, group: str, scores: Sequence[str], projection: str = PLAIN) -> Placements:
        """Average the placements of scores, whose AUROC is then the mean of theirs."""
        return average([self.placements[score, projection, group] for score in scores])


def score_queries(sets: Mapping[str, Outputs]) -> TextScores:
    """Fit every score of Table 3 that has a plain form, with each of its projections."""
    correct = np.asarray(sets["test"].correct)
    conf = {}
    placements = {}
    for row in TABLE_3:
        if row.title not in plain_titles():
            continue
        for column in row.columns:
            announce(f"{row.title}, projection {column}")
            by_set = score_sets(row.spec(column, "quick"), sets)
            trusted = by_set["test"][correct]
            conf[row.title, column] = by_set
            placements[row.title, column, "id"] = place(trusted, by_set["test"][~correct])
            placements[row.title, column, "near"] = place(trusted, by_set["near"])
            placements[row.title, column, "far"] = place(trusted, by_set["far"])
    return TextScores(sets, conf, placements)


def score_sets(spec: str, sets: Mapping[str, Outputs]) -> dict[str, Array]:
    """Fit a score behind the temperature of val, and score val, test, near and far queries.

    The share of variance of a projection is the one with the least AUGRC on val, as in the study.
    """
    candidates = [spec]
    if spec.startswith("project("):
        candidates = [spec.replace("variance=0.9", f"variance={share}") for share in SHARES]
    tuning = protocol("stratified").tuning
    val = sets["val"]
    fitted = []
    errors = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for candidate in candidates:
            chain = plan_chain(candidate, tuning)
            if not chain.ready:
                chain = chain.fit(sets["train"], val=val)
            fitted.append(chain)
            errors.append(metrics.augrc(val.correct, chain.score(val)))
        best = fitted[int(np.argmin(errors))]
        return {name: np.asarray(best.score(sets[name])) for name in ("val", "test", "near", "far")}


def decide_on_text(
    paper: str, claim: str, gain: Gain, *, unit: str, numbers: str = "", printed_at: str, printed: str
) -> Claim:
    """Make a claim on these queries; other numbers may follow the gain.

    Parameters
    ----------
    paper, claim, unit, printed_at, printed : str
        As for :func:`claims.judge`.
    gain : Gain
        The gain, positive as claimed.
    numbers : str, optional
        What follows the gain and its interval.
    """
    ours = show_gain(gain)
    if numbers:
        ours += f"; {numbers}"
    texts = {"printed_at": printed_at, "printed": printed, "ours": ours, "unit": unit}
    return judge_gain(paper, claim, gain, scale=SCALE, command=COMMAND, **texts)
