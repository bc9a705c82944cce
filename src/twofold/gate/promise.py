"""What is requested of a gate and what it promises: the request, the numbers on validation data, and the cautions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.gate.thresholds import Costs, ScoredSamples, Thresholds
from twofold.metrics.operating_points import operating_point
from twofold.scores.chain import Chain

Objective = Literal["f1", "risk", "coverage", "cost", "given"]
CostValues = Mapping[str, float] | Sequence[float]
SETTINGS: dict[str, tuple[str, ...]] = {  # of each objective; the first is required
    "f1": (),
    "risk": ("risk", "delta"),
    "coverage": ("coverage",),
    "cost": ("costs",),
    "given": ("thresholds",),
}


@dataclass(frozen=True)
class Promise:
    """Record what was requested of a gate, what it did on its validation data, and what it cannot promise.

    Parameters
    ----------
    objective : {"f1", "risk", "coverage", "cost", "given"}
        How the thresholds were chosen.
    risk : float or None
        Requested bound of the selective risk, for the objective ``risk``.
    delta : float or None
        If set, the risk is at most ``risk`` with confidence 1 - ``delta``. Otherwise all numbers are point estimates
        from the data that chose the thresholds.
    coverage : float or None
        Requested ID coverage, for the objective ``coverage``.
    costs : Costs or None
        Costs of failures and rejections, for the objective ``cost``.
    ood_share : float or None
        OOD prevalence expected in deployment; None for the share in the validation data.
    seen_risk : float
        Selective risk on the validation data, at ``ood_share``.
    seen_coverage : float
        ID coverage on the validation data.
    seen_f1 : float
        DS-F1 on the validation data, at ``ood_share``.
    seen_cost : float or None
        Mean cost per input on the validation data, for the objective ``cost``.
    known : tuple of three ints
        ID validation samples with the verdict accept, unsure and unknown.
    outside : tuple of three ints
        OOD validation samples with the verdict accept, unsure and unknown.
    cautions : tuple of str
        Conditions under which the numbers hold, as sentences to show.
    groups : int, optional
        Number of groups of dependent samples; None where samples were taken as independent.

    Examples
    --------
    >>> from twofold import Gate, Outputs
    >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
    >>> gate.promise.guaranteed, gate.promise.seen_f1, gate.promise.known, gate.promise.outside
    (False, 1.0, (2, 0, 0), (0, 0, 1))
    """

    objective: Objective
    risk: float | None
    delta: float | None
    coverage: float | None
    costs: Costs | None
    ood_share: float | None
    seen_risk: float
    seen_coverage: float
    seen_f1: float
    seen_cost: float | None
    known: tuple[int, int, int]
    outside: tuple[int, int, int]
    cautions: tuple[str, ...]
    groups: int | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether the risk is guaranteed, and not only estimated."""
        return self.delta is not None

    def __str__(self) -> str:
        share = "as in validation" if self.ood_share is None else f"{self.ood_share:g}"
        seen = f"risk {self.seen_risk:.4g}, ID coverage {self.seen_coverage:.4g}, DS-F1 {self.seen_f1:.4g}"
        lines = [f"{self._describe_objective()}; OOD share {share}", f"on validation: {seen}"]
        lines += [f"- {caution}" for caution in self.cautions]
        return "\n".join(lines)

    def _describe_objective(self) -> str:
        if self.objective == "risk":
            return f"most coverage at a risk of at most {self.risk}{self._describe_certainty()}"
        if self.objective == "coverage":
            return f"least risk at an ID coverage of at least {self.coverage}"
        if self.objective == "cost":
            return f"least cost with {self.costs}"
        if self.objective == "given":
            return "the thresholds that were given"
        return "best DS-F1"

    def _describe_certainty(self) -> str:
        if self.delta is None:
            return " (estimated)"
        units = "samples"
        if self.groups is not None:
            units = f"groups of samples ({self.groups} independent groups)"
        return f", guaranteed with confidence {1.0 - self.delta:g} for independent {units}"


@dataclass(frozen=True)
class Request:
    """Hold the validated settings of :meth:`twofold.gate.gate.Gate.fit` that say what the thresholds shall do.

    Parameters
    ----------
    objective : {"f1", "risk", "coverage", "cost", "given"}
        How the thresholds are chosen.
    risk, delta, coverage : float or None
        Settings of the objectives ``risk`` and ``coverage``.
    costs : Costs or None
        Setting of the objective ``cost``.
    thresholds : Thresholds or None
        Setting of the objective ``given``.
    """

    objective: Objective
    risk: float | None
    delta: float | None
    coverage: float | None
    costs: Costs | None
    thresholds: Thresholds | None


def check_request(
    objective: Objective,
    *,
    risk: float | None,
    delta: float | None,
    coverage: float | None,
    costs: CostValues | None,
    thresholds: Sequence[float] | float | None,
    two_scores: bool,
) -> Request:
    """Validate the settings of an objective; those of another objective are errors.

    Parameters
    ----------
    objective : {"f1", "risk", "coverage", "cost", "given"}
        Name of the objective.
    risk, delta, coverage : float or None
        Settings, as :meth:`twofold.gate.gate.Gate.fit` takes them.
    costs : mapping or Costs or None
        Costs of the objective ``cost``, likewise.
    thresholds : float or sequence of float or None
        Thresholds of the objective ``given``, likewise.
    two_scores : bool
        Whether the gate has an OOD score.

    Returns
    -------
    Request
        The validated settings.

    Raises
    ------
    InvalidInput
        If the objective is unknown, its setting is missing, or a setting is not valid or belongs to another objective.
    """
    _checks.choice(objective, "objective", get_args(Objective))
    settings = {"risk": risk, "delta": delta, "coverage": coverage, "costs": costs, "thresholds": thresholds}
    own = SETTINGS[objective]
    for name, value in settings.items():
        if value is not None and name not in own:
            owner = next(other for other, names in SETTINGS.items() if name in names)
            raise InvalidInput(f"{name} belongs to objective={owner!r}, and objective is {objective!r}")
    if own and settings[own[0]] is None:
        raise InvalidInput(f"objective={objective!r} needs {own[0]}=")
    if risk is not None:
        risk = _checks.number(risk, "risk", 0, 1, open_low=delta is not None, open_high=True)
    if delta is not None:
        delta = _checks.number(delta, "delta", 0, 1, open_low=True, open_high=True)
    if coverage is not None:
        coverage = _checks.number(coverage, "coverage", 0, 1, open_low=True)
    checked_costs = pair = None
    if costs is not None:
        checked_costs = _check_costs(costs)
    if thresholds is not None:
        pair = _check_thresholds(thresholds, two_scores=two_scores)
    return Request(objective, risk, delta, coverage, checked_costs, pair)


def _check_thresholds(thresholds: Sequence[float] | float, *, two_scores: bool) -> Thresholds:
    """Validate thresholds of the caller; the threshold of an absent score accepts everything."""
    values = np.asarray(thresholds, dtype=object).ravel().tolist()
    if two_scores and len(values) != 2:
        raise InvalidInput(f"thresholds must be one for each score, got {thresholds!r}")
    if not two_scores and len(values) != 1:
        raise InvalidInput(f"thresholds must be one number, got {thresholds!r}")
    checked = [_checks.number(value, "thresholds", -math.inf, math.inf) for value in values]
    if not two_scores:
        checked.append(-math.inf)
    return Thresholds(*checked)


def _check_costs(costs: CostValues) -> Costs:
    hint = "costs must be (wrong accept, OOD accept, reject), or a mapping with the keys wrong, ood, reject"
    if isinstance(costs, Mapping):
        if set(costs) != set(Costs._fields):
            raise InvalidInput(f"{hint}; got the keys {', '.join(map(str, costs)) or 'none'}")
        costs = [costs[name] for name in Costs._fields]
    values = np.asarray(costs, dtype=object)
    if values.shape != (3,):
        raise InvalidInput(f"{hint}; got {costs!r}")
    checked = []
    for name, value in zip(Costs._fields, values.tolist(), strict=True):
        checked.append(_checks.number(value, f"costs.{name}", 0, math.inf, open_high=True))
    return Costs(*checked)


def make_promise(
    request: Request, data: ScoredSamples, pair: Thresholds, *, groups: int | None, cautions: Sequence[str]
) -> Promise:
    """Measure what thresholds do on the validation data, and record it with what was requested.

    Parameters
    ----------
    request : Request
        What was requested.
    data : ScoredSamples
        Validation samples with both confidences.
    pair : Thresholds
        The thresholds.
    groups : int or None
        Number of groups of dependent samples; None without groups.
    cautions : sequence of str
        Conditions under which the numbers hold.

    Returns
    -------
    Promise
        Request, numbers and cautions.
    """
    is_inside = data.conf_ood >= pair.tau_ood
    is_sure = data.conf_id >= pair.tau_id
    verdict = np.where(is_inside, np.where(is_sure, 0, 1), 2)
    known = np.bincount(verdict[data.is_id], minlength=3)
    outside = np.bincount(verdict[~data.is_id], minlength=3)
    ids, oods = int(known.sum()), int(outside.sum())
    weight = 1.0
    if oods:
        weight = data.weight
    right = int((data.correct & (verdict == 0)).sum())
    point = operating_point(right, int(known[0]), weight * int(outside[0]), ids)
    cost = None
    if request.costs is not None:
        cost = mean_cost(request.costs, right, known.tolist(), outside.tolist(), weight)
    return Promise(
        objective=request.objective,
        risk=request.risk,
        delta=request.delta,
        coverage=request.coverage,
        costs=request.costs,
        ood_share=data.share,
        seen_risk=point["risk"],
        seen_coverage=point["coverage"],
        seen_f1=point["value"],
        seen_cost=cost,
        known=(int(known[0]), int(known[1]), int(known[2])),
        outside=(int(outside[0]), int(outside[1]), int(outside[2])),
        cautions=tuple(cautions),
        groups=groups,
    )


def mean_cost(costs: Costs, right: int, known: Sequence[int], outside: Sequence[int], weight: float) -> float:
    """Compute the mean cost per input.

    Parameters
    ----------
    costs : Costs
        Costs of failures and rejections.
    right : int
        Accepted samples with a correct label.
    known, outside : sequence of three ints
        ID and OOD samples with the verdict accept, unsure and unknown.
    weight : float
        Weight of one OOD sample.

    Returns
    -------
    float
        The mean over all inputs.

    Examples
    --------
    >>> mean_cost(Costs(wrong=1.0, ood=5.0, reject=0.5), right=2, known=(3, 1, 0), outside=(1, 0, 0), weight=1.0)
    1.3
    """
    ids, oods = sum(known), sum(outside)
    paid = costs.wrong * (known[0] - right) + costs.ood * weight * outside[0] + costs.reject * (ids - known[0])
    paid += costs.reject * weight * (oods - outside[0])
    return float(paid / (ids + weight * oods))


def list_cautions(
    request: Request,
    data: ScoredSamples,
    *,
    groups: int | None,
    given: Sequence[str | Chain | None],
    chains: Sequence[Chain | None],
) -> list[str]:
    """Say under which conditions the numbers of a promise hold.

    Parameters
    ----------
    request : Request
        What was requested.
    data : ScoredSamples
        Validation samples.
    groups : int or None
        Number of groups of dependent samples; None without groups.
    given : sequence of str, Chain or None
        The ID and the OOD score, as the caller passed them.
    chains : sequence of Chain or None
        Both scores, fitted.

    Returns
    -------
    list of str
        Sentences to show.
    """
    found = []
    if request.delta is not None:
        found.append(_independence_caution(groups))
    oods = int((~data.is_id).sum())
    if not oods:
        found.append(
            "no OOD samples in validation: nothing is promised about inputs of no known class, "
            "and the numbers hold where there are none"
        )
    else:
        share = data.share
        if share is None:
            share = oods / len(data.is_id)
        found.append(f"holds for OOD inputs of the same kind as in validation, at a share of {share:.4g}")
    if request.objective == "risk" and request.delta is None:
        found.append(
            "the risk is an estimate from the data that chose the thresholds, not a bound; pass delta= for one"
        )
    if request.objective == "given":
        found.append("the thresholds were given: the numbers are what they do on validation data, and no promise")
    for spec, chain in zip(given, chains, strict=True):
        if chain is None or not isinstance(spec, Chain) or not spec.ready:
            continue
        used = sorted(set(chain.sets_used) & {"val", "ood_val"})
        if used:
            found.append(
                f"{chain} came fitted on {' and '.join(used)}; "
                "if those are these validation data, the promise does not hold"
            )
    return found


def _independence_caution(groups: int | None) -> str:
    if groups is None:
        return (
            "holds if the validation samples are independent draws of what the gate will meet; samples of one scene, "
            "patient or user are not: pass groups= for those"
        )
    return (
        f"holds for the samples of new groups like the {groups} of validation: independent of each other, "
        "and of the same sizes"
    )


def copies_caution(copies: int, rows: int, *, grouped: bool) -> str:
    """Say that validation rows are copies of others, and what to do.

    Parameters
    ----------
    copies : int
        Number of copies.
    rows : int
        Number of rows.
    grouped : bool
        Whether the rows have groups.

    Returns
    -------
    str
        A sentence to show.
    """
    others, units = "other rows", "rows, or groups"
    if grouped:
        others, units = "rows of another group", "groups"
    return (
        f"{copies} of {rows} validation rows are exact copies of {others}, and a guarantee needs independent {units}: "
        "remove copies of the same input, or pass groups= (different inputs with equal outputs do no harm)"
    )
