"""Choose the scores of a wrapped classifier by what is available, and its thresholds by what is asked for."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from twofold import _checks
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput, UnfitData
from twofold.gate import Gate
from twofold.gate.gate import fit_to_request
from twofold.gate.inputs import fingerprint, keep_common_fields, prepare_validation
from twofold.gate.promise import Promise, check_request
from twofold.gate.thresholds import ScoredSamples, Thresholds, between_neighbours, clear_of_samples
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, scorer

Name: TypeAlias = Literal["keep", "risk", "f1"]
KEPT_BY_OOD = 0.99  # share of known inputs that the OOD threshold keeps, where no unknown inputs say what it rejects
SET_ASIDE = 0.25  # share of the validation rows that set that threshold, so that a guarantee on the others holds
NO_UNKNOWN = (
    "no unknown inputs were given: the threshold of the OOD score is set by known inputs alone, and how many unknown "
    "inputs it rejects is not known"
)


@dataclass(frozen=True)
class Goal:
    """Say what a wrapped classifier is to do.

    Parameters
    ----------
    name : {"keep", "risk", "f1"}
        Keep a share of the known inputs, keep the share of failures among accepted inputs down, or the best DS-F1.
    keep : float, optional
        Least share of known inputs to accept.
    risk : float, optional
        Largest share of failures.
    delta : float, optional
        Guarantee the risk with confidence 1 - delta.
    """

    name: Name
    keep: float | None = None
    risk: float | None = None
    delta: float | None = None

    @classmethod
    def of(cls, keep: float | None, risk: float | None, delta: float | None, f1: bool) -> Goal:
        """Check what the caller asks for; by default 95 % of the known inputs are kept.

        Parameters
        ----------
        keep, risk, delta : float or None
            Settings of the caller.
        f1 : bool
            Whether the best DS-F1 is asked for.

        Returns
        -------
        Goal
            The one goal.

        Raises
        ------
        InvalidInput
            If several goals are named, or a number is out of range.

        Examples
        --------
        >>> Goal.of(None, None, None, False)
        Goal(name='keep', keep=0.95, risk=None, delta=None)
        """
        if (keep is not None) + (risk is not None) + bool(f1) > 1:
            raise InvalidInput("keep, risk and f1 are different goals; ask for one of them")
        if delta is not None and risk is None:
            raise InvalidInput("delta guarantees a risk; pass risk= too")
        if risk is not None:
            return cls("risk", risk=risk, delta=delta)
        if f1:
            return cls("f1")
        share = 0.95 if keep is None else _checks.number(keep, "keep", 0, 1, open_low=True)
        return cls("keep", keep=share)

    def __str__(self) -> str:
        if self.name == "keep":
            return f"accept at least {self.keep:.0%} of the known inputs"
        if self.name == "f1":
            return "the best DS-F1"
        words = f"at most {self.risk:.3g} failures among accepted inputs"
        if self.delta is not None:
            words += f", with confidence {1 - self.delta:.3g}"
        return words


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

    id: str | Chain
    ood: str | Chain | None
    why: tuple[str, ...]


def choose_scores(
    val: Outputs, train: Outputs | None, id_score: str | Chain | None, ood_score: str | Chain | None
) -> ScoreChoice:
    """Choose scores by what the outputs hold.

    Parameters
    ----------
    val : Outputs
        Validation outputs.
    train : Outputs or None
        Training outputs.
    id_score, ood_score : str, Chain or None
        Scores that the caller named; ``"none"`` as OOD score for a gate of one.

    Returns
    -------
    ScoreChoice
        The scores.

    Examples
    --------
    >>> choose_scores(Outputs([[2.0, 1.0]]), None, None, None).ood
    'energy'
    """
    why = []
    if id_score is None:
        id_score = "msp"
        why.append("msp, the maximum softmax probability, is the usual score of wrong labels and needs logits alone")
    if isinstance(ood_score, str) and ood_score == "none":
        return ScoreChoice(id_score, None, (*why, "no OOD score was asked for: the gate never says unknown"))
    if ood_score is not None:
        return ScoreChoice(id_score, ood_score, tuple(why))
    if val.is_scale_lost:
        why.append("gen reads probabilities: the scale of the logits, which energy needs, is lost")
        return ScoreChoice(id_score, "gen", tuple(why))
    if val.features is not None and train is not None:
        why.append(
            "knn compares the features with those of the training set; of the pairs with msp in results/real_bench.md "
            "it is the best by DS-F1 on both networks"
        )
        return ScoreChoice(id_score, "knn", tuple(why))
    missing = "features" if val.features is None else "a training set"
    why.append(f"energy needs logits alone; {missing} would allow scores such as knn")
    return ScoreChoice(id_score, "energy", tuple(why))


def fit_gate(goal: Goal, choice: ScoreChoice, train: Outputs | None, val: Outputs, unknown: Outputs | None) -> Gate:
    """Fit the scores and choose the thresholds for a goal.

    Parameters
    ----------
    goal : Goal
        What is asked for.
    choice : ScoreChoice
        The scores.
    train : Outputs or None
        Training outputs, for scores that learn.
    val : Outputs
        Labelled outputs of known inputs.
    unknown : Outputs or None
        Outputs of unknown inputs.

    Returns
    -------
    Gate
        Two scores, two thresholds and a promise.

    Raises
    ------
    InvalidInput
        If labels are missing, or a score learns and there is no training set.
    Infeasible
        If the risk cannot be met.
    """
    if val.labels is None:
        raise InvalidInput("val needs labels; pass a pair (inputs, labels) or a labelled data set")
    id_chain = _fit_score(choice.id, train)
    ood_chain = None if choice.ood is None else _fit_score(choice.ood, train)
    if unknown is None and val.is_id.all():
        if ood_chain is None:
            return _fit_with_unknown(goal, id_chain, None, val)
        if goal.name == "keep":
            return _keep_known(goal, id_chain, ood_chain, val)
        return _fit_after_ood_threshold(goal, id_chain, ood_chain, val)
    rows = val
    if unknown is not None:
        rows = Outputs.concat(keep_common_fields([val, unknown.replace(labels=np.full(len(unknown), -1))]))
    return _fit_with_unknown(goal, id_chain, ood_chain, rows)


def _fit_score(score: str | Chain, train: Outputs | None) -> Chain:
    chain = scorer(score)
    if chain.ready:
        return chain
    if train is None:
        raise InvalidInput(f"{chain.spec} learns from a training set; pass train=")
    return chain.fit(train)


def _fit_with_unknown(goal: Goal, id_chain: Chain, ood_chain: Chain | None, rows: Outputs) -> Gate:
    if goal.name == "keep":
        return Gate.fit(rows, id_chain, ood_chain, objective="coverage", coverage=goal.keep)
    if goal.name == "risk":
        return Gate.fit(rows, id_chain, ood_chain, objective="risk", risk=goal.risk, delta=goal.delta)
    return Gate.fit(rows, id_chain, ood_chain, objective="f1")


def _keep_known(goal: Goal, id_chain: Chain, ood_chain: Chain, val: Outputs) -> Gate:
    """Divide the known inputs that may be rejected evenly between the two scores."""
    keep = goal.keep
    assert keep is not None

    def choose(rows: ScoredSamples) -> Thresholds:
        tau_ood = lower_threshold(rows.conf_ood, (1.0 + keep) / 2.0)
        fewest = math.ceil(keep * len(rows.conf_id) * (1.0 - 1e-12))
        passing = rows.conf_id[rows.conf_ood >= tau_ood]
        pair = Thresholds(float(np.sort(passing)[::-1][fewest - 1]), tau_ood)
        return clear_of_samples(pair, rows)

    request = check_request(
        "coverage", risk=None, delta=None, coverage=keep, costs=None, thresholds=None, two_scores=True
    )
    data = prepare_validation(val, None, groups=None, ood_share=None)
    digests = {"validation": fingerprint(val)}
    return fit_to_request(request, data, id_chain, ood_chain, digests, choose=choose, cautions=[NO_UNKNOWN])


def _fit_after_ood_threshold(goal: Goal, id_chain: Chain, ood_chain: Chain, val: Outputs) -> Gate:
    """Set the OOD threshold on some known rows, and that of the ID score on the others that it accepts.

    The second threshold sees rows that the first did not, drawn from the inputs that pass it; so a risk guaranteed on
    them is that of the inputs which both accept.
    """
    aside = np.zeros(len(val), dtype=bool)
    count = max(1, round(SET_ASIDE * len(val)))
    aside[np.random.default_rng(0).choice(len(val), count, replace=False)] = True
    conf_ood = ood_chain.score(val)
    tau_ood = between_neighbours(lower_threshold(conf_ood[aside], KEPT_BY_OOD), conf_ood[aside])
    passing: Mask = ~aside & (conf_ood >= tau_ood)
    if not passing.any():
        raise UnfitData("val has too few rows to set two thresholds; pass more, or ood='none'")
    one_score = _fit_with_unknown(goal, id_chain, None, val[passing])
    return _with_promise(goal, id_chain, ood_chain, val[~aside], (one_score.tau_id, tau_ood))


def lower_threshold(conf: Array, keep: float) -> float:
    """Find the largest threshold that at least this share of confidences reaches.

    Parameters
    ----------
    conf : ndarray of shape (N,)
        Confidences.
    keep : float
        The share, in (0, 1].

    Returns
    -------
    float
        One of the confidences.

    Examples
    --------
    >>> lower_threshold(np.array([0.1, 0.4, 0.2, 0.3]), 0.75)
    0.2
    """
    fewest = max(1, math.ceil(keep * len(conf) * (1.0 - 1e-12)))
    return float(np.sort(conf)[::-1][fewest - 1])


def _with_promise(
    goal: Goal, id_chain: Chain, ood_chain: Chain, rows: Outputs, thresholds: tuple[float, float]
) -> Gate:
    """Make a gate of thresholds, and record what they were chosen for."""
    gate = Gate.fit(rows, id_chain, ood_chain, objective="given", thresholds=thresholds)
    cautions = [NO_UNKNOWN]
    for caution in gate.promise.cautions:
        if "thresholds were given" not in caution:
            cautions.append(caution)
    if goal.name == "risk" and goal.delta is None:
        cautions.append("the risk is an estimate from the data that chose the thresholds; pass delta= for a bound")
    if goal.delta is not None:
        cautions.append(
            "the risk is guaranteed for independent inputs of the known classes, as those of val; not for others"
        )
    promise: Promise = dataclasses.replace(
        gate.promise,
        objective="risk" if goal.name == "risk" else "f1",
        risk=goal.risk,
        delta=goal.delta,
        cautions=tuple(cautions),
    )
    return dataclasses.replace(gate, promise=promise)
