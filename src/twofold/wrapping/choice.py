"""Choose the scores of a wrapped classifier: by what unknown inputs show, otherwise by what the outputs allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from twofold import metrics
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold.gate.inputs import keep_common_fields
from twofold.gate.thresholds import lower_threshold
from twofold.outputs import Head, Outputs
from twofold.scores.candidates import computable_scores
from twofold.scores.chain import Chain, scorer
from twofold.scores.pairs import RankedPair, Recommendation, rank_pairs

Score: TypeAlias = str | Chain
CANDIDATES = ("msp", "energy", "mls", "entropy", "gen", "knn", "fdbd")
"""Scores whose pairs are judged: those of ``USUAL`` whose fit factorises no matrix, so that choosing stays fast."""

WITHOUT_SCALE = "gen"  # the OOD score of probabilities, whose logits have lost the scale that energy reads
NEAREST = "knn"  # the OOD score that compares with the training set
JUDGED_ROWS = 1000  # known rows, and as many unknown ones, that pairs of scores are judged on
LEARNING_ROWS = 2000  # training rows that scores learn from while they are judged
RESAMPLES = 100  # of the intervals that are shown; they do not change the choice
LEAST_TRAINING_ROWS = 20  # fewer are not worth a comparison
PROBES = 200  # training rows that are moved far away, where there are no unknown inputs
FAR = 10.0  # how many times as far from the mean they are moved
KEPT = 0.95  # share of known rows that the thresholds keep while scores are compared
NOTICED = 0.5  # the nearest neighbours replace the default if they accept at most this share of what it accepts


@dataclass(frozen=True)
class ScoreChoice:
    """Hold the scores of a wrapped classifier and why they were chosen.

    Parameters
    ----------
    id : str or Chain
        Score of correct against wrong labels.
    ood : str, Chain or None
        Score of known against unknown inputs.
    why : tuple of str
        Reasons, as sentences.
    """

    id: Score
    ood: Score | None
    why: tuple[str, ...]


def choose_scores(
    val: Outputs,
    train: Outputs | None,
    unknown: Outputs | None,
    id_score: Score | None = None,
    ood_score: Score | None = None,
) -> ScoreChoice:
    """Choose scores: the pair that :func:`twofold.recommend` ranks first, or a default where it cannot judge.

    Parameters
    ----------
    val : Outputs
        Labelled validation outputs; rows of label -1 count as unknown.
    train : Outputs or None
        Training outputs.
    unknown : Outputs or None
        Outputs of unknown inputs.
    id_score, ood_score : str, Chain or None
        Scores that the caller named; ``"none"`` as OOD score for a gate of one.

    Returns
    -------
    ScoreChoice
        The scores, with the numbers that decided.

    Examples
    --------
    >>> val = Outputs([[2.0, 1.0], [0.0, 3.0]], labels=[0, 1])
    >>> choose_scores(val, None, None).ood
    'energy'
    >>> choose_scores(val, None, Outputs([[0.1, 0.2], [0.0, 0.1]]), ood_score="mls").id
    'msp'
    """
    if isinstance(ood_score, str) and ood_score == "none":
        return ScoreChoice(id_score or DEFAULT_ID, None, ("no OOD score was asked for: the gate never says unknown",))
    if id_score is not None and ood_score is not None:
        return ScoreChoice(id_score, ood_score, ("both scores were asked for",))
    if unknown is not None or not val.is_id.all():
        return _choose_by_unknown(val, train, unknown, id_score, ood_score)
    why = []
    if id_score is None:
        id_score = DEFAULT_ID
        why.append(_describe_default_id(val))
    if ood_score is None:
        ood_score, reason = _choose_ood_by_known(val, train)
        why.append(reason)
    return ScoreChoice(id_score, ood_score, tuple(why))


def needs_choice(id_score: Score | None, ood_score: Score | None) -> bool:
    """Tell whether a score is left to choose.

    Parameters
    ----------
    id_score, ood_score : str, Chain or None
        Scores that the caller named.

    Returns
    -------
    bool
        False if both are named, or a gate of one score is asked for.

    Examples
    --------
    >>> needs_choice(None, "knn"), needs_choice(None, "none")
    (True, False)
    """
    if isinstance(ood_score, str) and ood_score == "none":
        return False
    return id_score is None or ood_score is None


# --- with unknown inputs --------------------------------------------------------------------------------------------


def _choose_by_unknown(
    val: Outputs, train: Outputs | None, unknown: Outputs | None, id_score: Score | None, ood_score: Score | None
) -> ScoreChoice:
    """Take the best pair of the candidates by DS-F1 on a sample of the validation rows."""
    random = np.random.default_rng(0)
    parts = []
    if not val.is_id.all():
        parts.append(val[~val.is_id])
    if unknown is not None:
        parts.append(unknown)
    outside = Outputs.concat(keep_common_fields(parts))
    known = _sample(val[val.is_id], JUDGED_ROWS, random)
    outside = _sample(outside, JUDGED_ROWS, random)
    learning = None if train is None else _sample(train, LEARNING_ROWS, random)
    sets = [known, outside] if learning is None else [learning, known, outside]
    allowed = set(computable_scores(sets))
    candidates = [name for name in CANDIDATES if name in allowed]
    default = (DEFAULT_ID, DEFAULT_OOD if DEFAULT_OOD in allowed else WITHOUT_SCALE)
    found = rank_pairs(
        learning,
        known,
        outside,
        id_scores=candidates if id_score is None else [id_score],
        ood_scores=candidates if ood_score is None else [ood_score],
        show=1,
        baseline=default,
        n=RESAMPLES,
    )
    best = found.best
    why = [_describe_best(found, len(known), len(outside))]
    if len(found.pairs) > 1:
        why.append(_describe_default_pair(found.pairs[-1]))
    return ScoreChoice(id_score or best.id_score, ood_score or best.ood_score, tuple(why))


def _sample(outputs: Outputs, count: int, random: np.random.Generator) -> Outputs:
    """Draw rows without replacement, in their order; all of them if there are not more."""
    if len(outputs) <= count:
        return outputs
    return outputs[np.sort(random.choice(len(outputs), count, replace=False))]


def _describe_best(found: Recommendation, known: int, outside: int) -> str:
    """Say which pair was taken, from how many, and by which number."""
    best = found.best
    tried = f"the best of {found.tried} pairs" if found.tried > 1 else "the only pair that could be tried"
    return (
        f"{best.id_score} (correct against wrong labels) and {best.ood_score} (known against unknown inputs): {tried} "
        f"by DS-F1, {best.value} on {known:,} known and {outside:,} unknown validation inputs"
    )


def _describe_default_pair(pair: RankedPair) -> str:
    """Say by how much the default pair is behind the best one."""
    assert pair.behind is not None
    return f"the default pair, {pair.id_score} and {pair.ood_score}, has {pair.value}; it is behind by {pair.behind}"


# --- without unknown inputs -----------------------------------------------------------------------------------------


def _describe_default_id(val: Outputs) -> str:
    """Say how well the default ID score ranks the validation rows."""
    wrong = int((~val.correct).sum()) if val.labels is not None else 0
    if not wrong:
        return f"{DEFAULT_ID}, the default score of wrong labels: no validation input has one, so none was compared"
    aurc = metrics.aurc(val.correct, scorer(DEFAULT_ID).score(val))
    return (
        f"{DEFAULT_ID}, the default score of wrong labels: its AURC on {len(val):,} validation inputs is {aurc:.4f}, "
        f"against {wrong / len(val):.4f} for a random order"
    )


def _choose_ood_by_known(val: Outputs, train: Outputs | None) -> tuple[str, str]:
    """Choose the OOD score without unknown inputs; return it with the reason."""
    if val.is_scale_lost:
        reason = (
            f"{WITHOUT_SCALE} reads probabilities, which have lost the scale of the logits that {DEFAULT_OOD} needs"
        )
        return WITHOUT_SCALE, reason
    if val.features is None or train is None or train.features is None:
        missing = "features" if val.features is None else "a training set"
        reason = (
            f"{DEFAULT_OOD}, the default score of unknown inputs, needs logits alone; {missing} would allow {NEAREST}"
        )
        return DEFAULT_OOD, reason
    if val.head is None or len(train) < LEAST_TRAINING_ROWS:
        return (
            NEAREST,
            f"{NEAREST} compares the features with those of the training set, which notices inputs far from it",
        )
    return accept_far_rows(train, val.head).choose()


@dataclass(frozen=True)
class FarRows:
    """Record how many training rows that were moved far away two OOD scores accept.

    Parameters
    ----------
    rows : int
        Number of rows.
    default, nearest : float
        Share of them that the default OOD score accepts, and the nearest neighbours.
    """

    rows: int
    default: float
    nearest: float

    def choose(self) -> tuple[str, str]:
        """Take the nearest neighbours if they notice most rows that the default accepts; say why."""
        counts = (
            f"of {self.rows} training rows moved {FAR:g} times as far from their mean, {DEFAULT_OOD} accepts "
            f"{self.default:.0%} and {NEAREST} {self.nearest:.0%}, at thresholds that keep {KEPT:.0%} of the rows "
            "themselves"
        )
        if self.nearest < self.default and self.nearest <= NOTICED * self.default:
            return NEAREST, f"{NEAREST} compares the features with those of the training set: {counts}"
        return DEFAULT_OOD, f"{DEFAULT_OOD}, the default score of unknown inputs: {counts}"


def accept_far_rows(train: Outputs, head: Head) -> FarRows:
    """Compare the default OOD score with the nearest neighbours on training rows that are moved far away.

    Parameters
    ----------
    train : Outputs
        Training outputs with features.
    head : Head
        The linear layer, which gives the moved features their logits.

    Returns
    -------
    FarRows
        The share of rows that each accepts.

    Notes
    -----
    The logits of a linear layer grow without bound along a direction, so the default score may be the surer, the
    farther an input lies from all that was seen. Whether it is, can be seen without unknown inputs. Validation rows
    have no part in it, so that what they guarantee later is not touched.
    """
    order = np.random.default_rng(0).permutation(len(train))[: PROBES + LEARNING_ROWS]
    count = min(PROBES, len(order) // 2)
    known, others = train[np.sort(order[:count])], train[np.sort(order[count:])]
    features = np.asarray(known.features, dtype=np.float64)
    center = features.mean(axis=0)
    moved_features = center + FAR * (features - center)
    moved = Outputs(head.logits(moved_features), features=moved_features, head=head)
    default = _share_accepted(scorer(DEFAULT_OOD), known, moved)
    nearest = _share_accepted(scorer(NEAREST).fit(others), known, moved)
    return FarRows(len(known), default, nearest)


def _share_accepted(chain: Chain, known: Outputs, moved: Outputs) -> float:
    """Find the share of moved rows that pass a threshold which most known rows pass."""
    threshold = lower_threshold(chain.score(known), KEPT)
    return float((chain.score(moved) >= threshold).mean())
