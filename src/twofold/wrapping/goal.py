"""Choose the thresholds of a wrapped classifier by what is asked for."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from twofold import _checks
from twofold._checks import Mask
from twofold.errors import InvalidInput, UnfitData
from twofold.gate import Gate
from twofold.gate.gate import fit_to_request
from twofold.gate.inputs import fingerprint, keep_common_fields, prepare_validation
from twofold.gate.promise import Promise, check_request
from twofold.gate.thresholds import ScoredSamples, Thresholds, between_neighbours, clear_of_samples, lower_threshold
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, scorer
from twofold.wrapping.choice import ScoreChoice

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
        for name, value in (("keep", keep), ("risk", risk), ("delta", delta)):
            if isinstance(value, bool | np.bool_):
                raise InvalidInput(f"{name} must be a number, got {value}")
        if not isinstance(f1, bool | np.bool_):
            raise InvalidInput(f"f1 must be True or False, got {f1!r:.60}")
        if (keep is not None) + (risk is not None) + bool(f1) > 1:
            raise InvalidInput("keep, risk and f1 are different goals; ask for one of them")
        if delta is not None and risk is None:
            raise InvalidInput("delta guarantees a risk; pass risk= too")
        if risk is not None:
            risk = _checks.number(risk, "risk", 0, 1, open_high=True)
            if delta is not None:
                delta = _checks.number(delta, "delta", 0, 1, open_low=True, open_high=True)
            return cls("risk", risk=risk, delta=delta)
        if f1:
            return cls("f1")
        share = 0.95 if keep is None else _checks.number(keep, "keep", 0, 1, open_low=True)
        return cls("keep", keep=share)

    def __str__(self) -> str:
        if self.name == "keep":
            assert self.keep is not None
            return f"accept at least {100 * self.keep:.4g}% of the known inputs"
        if self.name == "f1":
            return "the best DS-F1"
        words = f"a share of failures of at most {self.risk:.3g} among accepted inputs"
        if self.delta is not None:
            words += f", with confidence {1 - self.delta:.3g}"
        return words


@dataclass(frozen=True, eq=False)
class FittingRows:
    """Hold the rows that choose scores, and those that choose thresholds.

    Parameters
    ----------
    val_to_choose, unknown_to_choose : Outputs, Outputs or None
        Known and unknown rows that scores are chosen on.
    val, unknown : Outputs, Outputs or None
        Known and unknown rows that thresholds are chosen on.
    why : tuple of str
        What to say about the division.
    """

    val_to_choose: Outputs
    unknown_to_choose: Outputs | None
    val: Outputs
    unknown: Outputs | None
    why: tuple[str, ...] = ()


def split_for_choice(goal: Goal, val: Outputs, unknown: Outputs | None, *, is_open: bool) -> FittingRows:
    """Set rows aside for choosing the scores, where a guarantee needs rows that chose nothing else.

    Parameters
    ----------
    goal : Goal
        What is asked for.
    val : Outputs
        Labelled outputs of known inputs.
    unknown : Outputs or None
        Outputs of unknown inputs.
    is_open : bool
        Whether a score is left to choose.

    Returns
    -------
    FittingRows
        The same rows for both, except with ``delta`` and unknown inputs: then a quarter chooses the scores.

    Examples
    --------
    >>> val, others = Outputs(np.eye(2).repeat(4, axis=0), np.arange(2).repeat(4)), Outputs(np.zeros((4, 2)))
    >>> rows = split_for_choice(Goal("risk", risk=0.1, delta=0.1), val, others, is_open=True)
    >>> len(rows.val_to_choose), len(rows.unknown_to_choose), len(rows.val), len(rows.unknown)
    (2, 1, 6, 3)
    """
    has_unknown = unknown is not None or not val.is_id.all()
    if goal.delta is None or not is_open or not has_unknown:
        return FittingRows(val, unknown, val, unknown)
    aside = _set_aside(len(val))
    if not val.is_id[aside].any() or not val.is_id[~aside].any():
        raise UnfitData(_too_few("val", int(val.is_id.sum())))
    unknown_to_choose = unknown_to_fit = None
    if unknown is not None:
        if len(unknown) < 2:
            raise UnfitData(_too_few("unknown", len(unknown)))
        aside_unknown = _set_aside(len(unknown))
        unknown_to_choose, unknown_to_fit = unknown[aside_unknown], unknown[~aside_unknown]
    why = f"scores were chosen on {SET_ASIDE:.0%} of the rows and thresholds on the others, so that the guarantee holds"
    return FittingRows(val[aside], unknown_to_choose, val[~aside], unknown_to_fit, (why,))


def _too_few(name: str, rows: int) -> str:
    """Say that rows do not suffice to choose scores on some and thresholds on others."""
    return (
        f"{name} has too few rows, {rows}, to choose scores on some and thresholds on the others; pass more, or name "
        "the scores with id= and ood="
    )


def _set_aside(rows: int) -> Mask:
    """Draw a share of the rows."""
    aside = np.zeros(rows, dtype=bool)
    count = max(1, round(SET_ASIDE * rows))
    aside[np.random.default_rng(0).choice(rows, count, replace=False)] = True
    return aside


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
        If a score learns and there is no training set.
    Infeasible
        If the risk cannot be met.
    """
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
    aside = _set_aside(len(val))
    conf_ood = ood_chain.score(val)
    tau_ood = between_neighbours(lower_threshold(conf_ood[aside], KEPT_BY_OOD), conf_ood[aside])
    passing: Mask = ~aside & (conf_ood >= tau_ood)
    if not passing.any():
        raise UnfitData("val has too few rows to set two thresholds; pass more, or ood='none'")
    one_score = _fit_with_unknown(goal, id_chain, None, val[passing])
    return _with_promise(goal, id_chain, ood_chain, val[~aside], (one_score.tau_id, tau_ood))


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
