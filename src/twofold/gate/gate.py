"""Define the gate, its verdicts and its promise, and store gates on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import platform
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Labels, Mask
from twofold._files import locked, read_regular, replacing
from twofold._json import decode_json, encode_json
from twofold._math import sigmoid
from twofold.errors import DependentRows, InvalidInput, RunError, TwofoldError, UnfitData
from twofold.gate import guarantee
from twofold.gate.grouped import group_codes, group_sums, ratio_interval
from twofold.gate.inputs import (
    confidences,
    count_copies,
    fingerprint,
    fitted,
    group_rows,
    head_print,
    judged,
    validation_and_train,
    widths,
)
from twofold.gate.monitor import Monitor
from twofold.gate.schema import VERDICTS, check_gate
from twofold.gate.thresholds import (
    Costs,
    Pair,
    Scored,
    best_f1,
    clear_of_samples,
    least_cost,
    least_risk,
    most_coverage,
)
from twofold.gate.trial import check_scores
from twofold.metrics.operating_points import check_ood_share, ood_weight, operating_point
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores.chain import Chain, scorer

Objective = Literal["f1", "risk", "coverage", "cost", "given"]
Kept = Literal["yes", "no", "cannot tell", "no promise"]
FORMAT, VERSION = "twofold-gate", 2
LOCK = "gate.lock"
PATIENCE = 5.0  # seconds for which reading a gate is retried while it is being replaced
LEVEL = 0.95  # confidence level of the intervals of a report card


@dataclass(frozen=True)
class Promise:
    """Record what a gate was asked for, what it did on its validation data, and what it cannot promise.

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
        sure = " (estimated)"
        if self.delta is not None:
            units = "samples" if self.groups is None else f"groups of samples ({self.groups} independent groups)"
            sure = f", guaranteed with confidence {1.0 - self.delta:g} for independent {units}"
        asked = {
            "f1": "best DS-F1",
            "risk": f"most coverage at a risk of at most {self.risk}{sure}",
            "coverage": f"least risk at an ID coverage of at least {self.coverage}",
            "cost": f"least cost with {self.costs}",
            "given": "the thresholds that were given",
        }[self.objective]
        share = "as in validation" if self.ood_share is None else f"{self.ood_share:g}"
        seen = f"risk {self.seen_risk:.4g}, ID coverage {self.seen_coverage:.4g}, DS-F1 {self.seen_f1:.4g}"
        return "\n".join([f"{asked}; OOD share {share}", f"on validation: {seen}", *(f"- {c}" for c in self.cautions)])


@dataclass(frozen=True, eq=False)
class Decision:
    """Hold a verdict for every input, with the label, both confidences and their distances from the thresholds.

    Parameters
    ----------
    labels : ndarray of shape (N,)
        Predicted classes.
    verdict : ndarray of shape (N,)
        ``"unknown"`` where ``conf_ood`` is below its threshold (out-of-distribution); otherwise ``"unsure"`` where
        ``conf_id`` is below its threshold (in-distribution, doubtful label); otherwise ``"accept"``.
    conf_id : ndarray of shape (N,)
        Confidence that the label is correct.
    conf_ood : ndarray of shape (N,) or None
        Confidence that the input is in-distribution. A gate of one score has none, and never says unknown.
    margin_id : ndarray of shape (N,)
        ``conf_id`` minus its threshold; 0 where both are the same infinity.
    margin_ood : ndarray of shape (N,) or None
        ``conf_ood`` minus its threshold.
    """

    labels: Labels
    verdict: npt.NDArray[np.str_]
    conf_id: Array
    conf_ood: Array | None
    margin_id: Array
    margin_ood: Array | None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class ReportCard:
    """Report what a gate does on labelled data, compared with its promise.

    Parameters
    ----------
    samples : int
        Number of samples.
    coverage : float
        Share of the ID samples that are accepted.
    coverage_interval : tuple of two floats
        95 % interval of ``coverage``.
    risk : float
        Share of failures (wrong labels and OOD inputs) among accepted samples.
    risk_interval : tuple of two floats
        95 % interval of ``risk``.
    true_accept : int
        Accepted samples with a correct label.
    false_accept_ood : int
        Accepted OOD samples.
    false_accept_mistakes : int
        Accepted ID samples with a wrong label.
    false_reject : int
        Rejected samples with a correct label.
    f1 : float
        DS-F1 at the thresholds of the gate.
    kept : {"yes", "no", "cannot tell", "no promise"}
        ``yes`` or ``no`` where the interval lies on one side of the promised value, ``cannot tell`` where it contains
        that value, and ``no promise`` for a gate that promises nothing (the objectives f1, cost and given).
    groups : int, optional
        Number of groups of dependent samples; None where samples are taken as independent.

    Notes
    -----
    The intervals are exact (Clopper-Pearson) and assume independent samples. With an ``ood_share`` in the promise, and
    OOD samples in the data, risk and DS-F1 are those at that share, and the interval of the risk joins three such
    intervals (Bonferroni). Where the outputs have ``groups`` of several samples, the intervals are for independent
    groups of the sizes seen (:func:`twofold.gate.grouped.ratio_interval`).

    Examples
    --------
    >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
    >>> card = gate.report_card(Outputs([[5.0, 0.0], [6.0, 0.0], [0.0, 0.1]], labels=[0, 1, -1]))
    >>> card.coverage, card.risk, card.false_accept_mistakes, card.kept
    (1.0, 0.5, 1, 'no promise')
    """

    samples: int
    coverage: float
    coverage_interval: tuple[float, float]
    risk: float
    risk_interval: tuple[float, float]
    true_accept: int
    false_accept_ood: int
    false_accept_mistakes: int
    false_reject: int
    f1: float
    kept: Kept
    groups: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Convert the report card to plain values by name.

        Returns
        -------
        dict
            One entry per field, ready for JSON.
        """
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        (a, b), (c, d) = self.coverage_interval, self.risk_interval
        units = "samples" if self.groups is None else f"groups ({self.groups} independent groups of samples)"
        return "\n".join(
            [
                f"samples                  {self.samples}",
                f"ID coverage              {self.coverage:.4f}  [{a:.4f}, {b:.4f}]",
                f"risk                     {self.risk:.4f}  [{c:.4f}, {d:.4f}]",
                f"true accepts             {self.true_accept}",
                f"false accepts, OOD       {self.false_accept_ood}",
                f"false accepts, mistakes  {self.false_accept_mistakes}",
                f"false rejects            {self.false_reject}",
                f"DS-F1                    {self.f1:.4f}",
                f"promise kept             {self.kept}",
                f"[...]: 95 % intervals for independent {units}",
            ]
        )


@dataclass(frozen=True, eq=False, repr=False)
class Gate:
    """Accept an input where ``conf_id >= tau_id`` and ``conf_ood >= tau_ood``: two scores and two thresholds.

    Create a gate with :meth:`fit` or :meth:`load`. :meth:`decide` needs NumPy alone.

    Parameters
    ----------
    id : Chain
        Fitted score of correct against wrong labels.
    ood : Chain or None
        Fitted score of ID against OOD inputs; None for a gate of one score.
    tau_id : float
        Threshold of the ID score.
    tau_ood : float
        Threshold of the OOD score; -inf for a gate of one score.
    promise : Promise
        What the gate was fitted for, and what it did on its validation data.
    classes : int
        Number of classes of the model.
    class_names : tuple of str or None
        Names of the classes.
    widths : mapping of str to int
        Columns of the features and layers that the scores read.
    head : str or None
        SHA-256 of the last layer, where a score reads features or head.
    data : mapping of str to str
        SHA-256 of the data that the gate was fitted on, by ``validation`` and ``train``.
    versions : mapping of str to str
        Versions of twofold, Python and NumPy at the fit.

    Examples
    --------
    >>> logits = [[4.0, 0.0], [0.0, 3.0], [0.2, 0.0], [0.1, 0.2]]
    >>> gate = Gate.fit(Outputs(logits, labels=[0, 1, 1, -1]), id="msp", ood="energy")
    >>> gate.decide(Outputs([[5.0, 0.0], [0.1, 0.0]])).verdict
    array(['accept', 'unknown'], dtype='<U7')
    """

    id: Chain
    ood: Chain | None
    tau_id: float
    tau_ood: float
    promise: Promise
    classes: int
    class_names: tuple[str, ...] | None
    widths: Mapping[str, int]  # columns of the arrays that the scores read
    head: str | None  # SHA-256 of the last layer, where a score reads features or head
    data: Mapping[str, str]  # SHA-256 of the data it was fitted on
    versions: Mapping[str, str]

    @classmethod
    def fit(
        cls,
        validation: Outputs | Run,
        id: str | Chain = "msp",  # noqa: A002 - the name in the design
        ood: str | Chain | None = "energy",
        *,
        train: Outputs | None = None,
        objective: Objective = "f1",
        risk: float | None = None,
        delta: float | None = None,
        coverage: float | None = None,
        costs: Mapping[str, float] | tuple[float, float, float] | None = None,
        thresholds: Sequence[float] | float | None = None,
        ood_share: float | None = None,
        groups: ArrayLike | None = None,
    ) -> Gate:
        """Choose both thresholds on labelled validation data.

        Parameters
        ----------
        validation : Outputs or Run
            Labelled outputs (label -1: OOD), or a run, whose roles val and ood_val are used.
        id : str or Chain, default="msp"
            Score of correct against wrong labels.
        ood : str, Chain or None, default="energy"
            Score of ID against OOD inputs. With None the gate has one score.
        train : Outputs, optional
            Training set for scores that need fitting; by default a run's role train. With ``delta``, whatever those
            scores take from validation data comes from the part that learns, so that the promise holds.
        objective : {"f1", "risk", "coverage", "cost", "given"}, default="f1"
            ``f1``: the best DS-F1. ``risk``: the largest ID coverage with a selective risk of at most ``risk``.
            ``coverage``: the least risk at an ID coverage of at least ``coverage``. ``cost``: the least expected cost.
            ``given``: the ``thresholds`` as passed, which are measured and promise nothing. Every other objective
            considers all pairs of thresholds, except with ``delta``, where a path of pairs is tested.
        risk : float, optional
            Largest selective risk, in [0, 1); required by the objective ``risk``.
        delta : float, optional
            Guarantee the risk with confidence 1 - ``delta`` for independent validation samples, or groups of samples;
            :mod:`twofold.gate.guarantee` says what is proven. Without it the risk is estimated. For the objective
            ``risk``.
        coverage : float, optional
            Least ID coverage, in (0, 1]; required by the objective ``coverage``.
        costs : mapping or tuple of three floats, optional
            Cost of accepting a wrong label, of accepting an OOD input, and of rejecting any input (keys wrong, ood,
            reject); required by the objective ``cost``.
        thresholds : float or pair of floats, optional
            Threshold of the one score, or of both; required by the objective ``given``.
        ood_share : float, optional
            OOD prevalence expected in deployment, by default that of the validation data.
        groups : array-like of shape (n_samples,), optional
            Integers or strings, the same for samples that depend on each other (scene, patient, user); by default the
            ``groups`` of the outputs. With ``delta``, each group learns or tests as a whole, and the risk is guaranteed
            for the samples of new groups (:mod:`twofold.gate.grouped` says what is proven).

        Returns
        -------
        Gate
            Two fitted scores, two thresholds and a promise.

        Raises
        ------
        Infeasible
            If the request cannot be met; its ``best`` says what can be.
        InvalidInput
            If arguments or data are not valid, or a setting belongs to another objective.

        Warns
        -----
        DependentRows
            If the risk is guaranteed and validation rows are exact copies of others.

        Examples
        --------
        >>> logits = [[4.0, 0.0], [0.0, 3.0], [0.2, 0.0], [0.1, 0.2]]
        >>> gate = Gate.fit(Outputs(logits, labels=[0, 1, 1, -1]), objective="coverage", coverage=0.6)
        >>> gate.promise.seen_risk, round(gate.promise.seen_coverage, 4)
        (0.0, 0.6667)
        """
        asked = _asked(objective, risk, delta, coverage, costs, thresholds)
        own = _thresholds(asked.pop("thresholds"), ood is not None)
        rows, train = validation_and_train(validation, train)
        codes = group_rows(rows, groups)
        asked["groups"] = None if codes is None else int(codes.max()) + 1
        share = check_ood_share(ood_share, rows.is_id)
        copies = count_copies(rows, codes)
        if asked["groups"] == len(rows):
            codes = None  # a group of one row is a row
        learn = test = None
        if asked["delta"] is not None:
            if asked["groups"] == 1:
                raise InvalidInput("a guarantee needs at least 2 groups that are independent of each other, got 1")
            learn, test = guarantee.split(rows.is_id, share, codes)
        part = rows if learn is None else rows[learn]
        first = fitted(scorer(id), train, part)
        second = None if ood is None else fitted(scorer(ood), train, part)
        chains = [first, second]
        seen = judged(first, rows)
        conf_id, conf_ood = confidences(first, second, seen)
        if second is None:
            conf_ood = np.zeros(len(seen))
        data = Scored(seen.correct, seen.is_id, conf_id, conf_ood, share, codes)
        if learn is not None and test is not None:
            pair = guarantee.guaranteed(data[learn], data[test], risk=asked["risk"], delta=asked["delta"])
        elif own is not None:
            pair = own
        elif objective == "risk":
            pair = most_coverage(data, asked["risk"])
        elif objective == "coverage":
            pair = least_risk(data, asked["coverage"])
        elif objective == "cost":
            pair = least_cost(data, asked["costs"])
        else:
            pair = best_f1(data)
        if learn is None and own is None:
            pair = clear_of_samples(pair, data)
        if second is None:
            pair = Pair(pair.tau_id, -math.inf)
        cautions = _cautions(data, asked, (id, ood), chains)
        if copies:
            told = _copies_text(copies, len(rows), asked["groups"] is not None)
            cautions = (*cautions, told)
            if asked["delta"] is not None:
                warnings.warn(told, DependentRows, stacklevel=2)
        promise = _promise(asked, data, pair, cautions)
        return cls(
            first,
            second,
            *pair,
            promise,
            seen.classes,
            seen.class_names,
            widths(chains, seen),
            head_print(chains, seen.head),
            {"validation": fingerprint(rows)} | ({} if train is None else {"train": fingerprint(train)}),
            _versions(),
        )

    def decide(self, outputs: Outputs) -> Decision:
        """Give a verdict for every row.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model that the gate was fitted for; labels are not needed.

        Returns
        -------
        Decision
            Labels, verdicts, both confidences and their margins, row by row.

        Raises
        ------
        InvalidInput
            If the outputs are recognisably of another model: other classes, class names, widths or head; or if they
            lack an array that a score reads.

        Examples
        --------
        >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
        >>> decision = gate.decide(Outputs([[0.0, 5.0], [0.1, 0.0]]))
        >>> decision.labels, decision.verdict
        (array([1, 0]), array(['accept', 'unknown'], dtype='<U7'))
        """
        seen = self._admitted(outputs)
        conf_id, conf_ood = confidences(self.id, self.ood, seen)
        inside = np.ones(len(seen), bool) if conf_ood is None else conf_ood >= self.tau_ood
        return Decision(
            seen.predictions,
            _verdicts(inside, conf_id >= self.tau_id),
            conf_id,
            conf_ood,
            _margin(conf_id, self.tau_id),
            None if conf_ood is None else _margin(conf_ood, self.tau_ood),
        )

    def report_card(self, outputs: Outputs) -> ReportCard:
        """Measure what this gate does on labelled outputs, compared with its promise.

        Parameters
        ----------
        outputs : Outputs
            Labelled outputs (label -1: OOD) of the model that the gate was fitted for, not those it was fitted on.
            Their ``groups``, if any, make the intervals those of independent groups.

        Returns
        -------
        ReportCard
            Coverage, risk, counts and DS-F1 with 95 % intervals, and whether the promise was kept.

        Raises
        ------
        UnfitData
            If there is no ID sample.
        InvalidInput
            If the outputs have no labels, or are of another model.

        Examples
        --------
        >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
        >>> gate.report_card(Outputs([[5.0, 0.0], [6.0, 0.0]], labels=[0, 1])).risk
        0.5
        """
        decision = self.decide(outputs)
        seen = judged(self.id, outputs)
        taken, is_id, right = decision.verdict == "accept", seen.is_id, seen.correct
        if not is_id.any():
            raise UnfitData("labels are -1 everywhere; a report card needs at least one ID sample")
        known, outside = int((taken & is_id).sum()), int((taken & ~is_id).sum())
        true, ids, oods = int((taken & right).sum()), int(is_id.sum()), int((~is_id).sum())
        share = self.promise.ood_share if oods else None
        point = operating_point(true, known, ood_weight(share, ids, oods) * outside, ids)
        codes = None if outputs.groups is None else group_codes(outputs.groups)
        groups = None if codes is None else int(codes.max()) + 1
        if codes is None or groups == len(seen):
            covered = _interval(known, ids, 1.0 - LEVEL)
            risky = _risk_interval(known - true, known, outside, ids, oods, share)
        else:
            weight = np.where(is_id, 1.0, ood_weight(share, ids, oods))
            inside = group_sums(codes, is_id)
            covered = ratio_interval(group_sums(codes, taken & is_id), inside, inside, 1.0 - LEVEL)
            failed, accepted = group_sums(codes, weight * (taken & ~right)), group_sums(codes, weight * taken)
            risky = ratio_interval(failed, accepted, group_sums(codes, weight), 1.0 - LEVEL)
        return ReportCard(
            samples=len(seen),
            coverage=point["coverage"],
            coverage_interval=covered,
            risk=point["risk"],
            risk_interval=risky,
            true_accept=true,
            false_accept_ood=outside,
            false_accept_mistakes=known - true,
            false_reject=int((right & ~taken).sum()),
            f1=point["value"],
            kept=self._kept(covered, risky, known + outside),
            groups=groups,
        )

    def _kept(self, covered: tuple[float, float], risky: tuple[float, float], accepted: int) -> Kept:
        p = self.promise
        if p.objective == "risk" and p.risk is not None:
            if not accepted:
                return "cannot tell"
            return "yes" if risky[1] <= p.risk else "no" if risky[0] > p.risk else "cannot tell"
        if p.objective == "coverage" and p.coverage is not None:
            return "yes" if covered[0] >= p.coverage else "no" if covered[1] < p.coverage else "cannot tell"
        return "no promise"

    def to_onnx(self, model: Any, path: str | Path, **options: Any) -> None:
        """Write this gate and its classifier to one ONNX file.

        Parameters
        ----------
        model : torch.nn.Module or twofold.nn.Classifier
            The classifier that the gate was fitted for, float32 on the CPU.
        path : str or path-like
            The file to write.
        **options
            ``shape``, ``prepare`` and ``head``, as in :func:`twofold.nn.onnx.to_onnx`.

        Raises
        ------
        MissingExtra
            If torch or onnx are not installed.
        InvalidInput
            If the model does not fit the gate, or ONNX cannot hold a score; the message lists those it can.
        """
        from twofold.nn import to_onnx

        to_onnx(self, model, path, **options)

    def monitor(self, *, false_alarms: float = 0.01, ood_share: float | None = None) -> Monitor:
        """Create a counter of live verdicts that raises an alarm when their rates leave those of validation.

        Parameters
        ----------
        false_alarms : float, default=0.01
            Share of deployments, of whatever length, in which an alarm is raised though nothing changed. A larger value
            detects changes earlier.
        ood_share : float, optional
            Expected OOD prevalence, by default that of the gate.

        Returns
        -------
        Monitor
            A monitor that has counted nothing yet.

        Raises
        ------
        InvalidInput
            If ``false_alarms`` is not in (0, 1), ``ood_share`` is not in [0, 1), or it is above 0 and the gate was
            fitted without OOD samples.

        Examples
        --------
        >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
        >>> gate.monitor(false_alarms=0.05)
        Monitor(0 accept, 0 unsure, 0 unknown; no alarm)
        """
        level = _checks.number(false_alarms, "false_alarms", 0, 1, open_low=True, open_high=True) / 2.0
        p = self.promise
        share = p.ood_share if ood_share is None else _checks.number(ood_share, "ood_share", 0, 1, open_high=True)
        if share is not None and share > 0.0 and not sum(p.outside):
            raise InvalidInput("ood_share needs OOD samples in validation, and this gate saw none; fit it with some")
        kinds = [(1.0, np.add(p.known, p.outside))]
        if share is not None:
            kinds = [(w, np.array(c)) for w, c in ((1.0 - share, p.known), (share, p.outside)) if w > 0.0]
        low, high = np.zeros(3), np.zeros(3)
        possible = np.array([True, self.tau_id > -math.inf, self.ood is not None])
        for weight, counts in kinds:
            for i in np.flatnonzero(possible):
                a, b = _interval(int(counts[i]), int(counts.sum()), level / (3 * len(kinds)))
                low[i] += weight * a
                high[i] += weight * b
        return Monitor(tuple(low.tolist()), tuple(high.tolist()), 2.0 * level)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the gate into one folder: gate.json, a safetensors file, and an empty lock file.

        A gate that is already there is replaced atomically. Several processes may save to one folder; the last one
        stays. Files that killed writers left behind are removed.

        Parameters
        ----------
        folder : str or path-like
            A new or empty folder, or one that holds a gate.

        Raises
        ------
        RunError
            If ``folder`` is a file, or holds something other than a gate.
        InvalidInput
            If a score holds a Python object of the caller, which cannot be saved.
        """
        from safetensors.numpy import save

        target = Path(folder)
        for _, chain in self._sides():
            _check_text(chain)
        tensors = {f"{side}.{name}": array for side, chain in self._sides() for name, array in chain.tensors().items()}
        raw = save(tensors)
        digest = hashlib.sha256(raw).hexdigest()
        name = f"scores-{digest[:16]}.safetensors"
        content = {**self.to_dict(), "tensors": {"file": name, "sha256": digest}}
        _check_folder(target)
        target.mkdir(parents=True, exist_ok=True)
        with locked(target / LOCK):
            _check_folder(target)
            with replacing(target / name) as file:
                file.write(raw)
            with replacing(target / "gate.json") as file:  # from here on the folder holds this gate
                file.write(encode_json(content))
            for other in list(target.iterdir()):  # left by the previous gate, or by a writer that was killed
                if _is_own(other.name) and other.name not in (name, "gate.json", LOCK):
                    with suppress(OSError):
                        other.unlink()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Gate:
        """Read a gate that :meth:`save` wrote; its decisions are equal to the last bit.

        While another process replaces the gate, reading is retried, for at most 5 s, until the gate is complete.

        Parameters
        ----------
        folder : str or path-like
            The folder that :meth:`save` wrote.

        Returns
        -------
        Gate
            The gate that was saved.

        Raises
        ------
        RunError
            If the gate is missing, damaged, of another version, or holds anything that Gate.save does not write.

        Examples
        --------
        >>> import tempfile
        >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gate.save(f"{folder}/gate")
        ...     Gate.load(f"{folder}/gate").taus() == gate.taus()
        True
        """
        path = Path(folder) / "gate.json"
        give_up = time.monotonic() + PATIENCE
        while True:
            raw = _read(path)
            try:
                return cls._of(raw, path)
            except RunError:
                if _read(path) == raw or time.monotonic() > give_up:
                    raise

    def __repr__(self) -> str:
        sides = [
            f"{side}={chain.spec!r} >= {tau:.6g}"
            for (side, chain), tau in zip(self._sides(), self.taus(), strict=False)
        ]
        return f"Gate({', '.join(sides)}; objective {self.promise.objective})"

    def __str__(self) -> str:
        pairs = zip(self._sides(), self.taus(), strict=False)  # a gate of one score shows one threshold
        lines = [f"{side} {chain.spec}: {_shown(chain, tau)}" for (side, chain), tau in pairs]
        return "\n".join([*lines, str(self.promise)])

    def taus(self) -> Pair:
        """Return both thresholds.

        Returns
        -------
        Pair
            ``tau_id`` and ``tau_ood``.

        Examples
        --------
        >>> gate = Gate.fit(Outputs(np.eye(2), labels=[0, 1]), ood=None, objective="given", thresholds=0.5)
        >>> gate.taus()
        Pair(tau_id=0.5, tau_ood=-inf)
        """
        return Pair(self.tau_id, self.tau_ood)

    def _sides(self) -> list[tuple[str, Chain]]:
        return [("id", self.id)] + ([] if self.ood is None else [("ood", self.ood)])

    def _admitted(self, outputs: Outputs) -> Outputs:
        if not isinstance(outputs, Outputs):
            raise InvalidInput(f"a gate decides on Outputs(logits, ...), got {type(outputs).__name__}")
        if outputs.classes != self.classes:
            raise InvalidInput(f"this gate is for {self.classes} classes, these outputs have {outputs.classes}")
        if self.class_names and outputs.class_names and self.class_names != outputs.class_names:
            raise InvalidInput("these outputs have other class_names than the gate; they are of another model")
        for name, width in widths([self.id, self.ood], outputs).items():
            if self.widths.get(name, width) != width:
                raise InvalidInput(f"{name} has {width} columns, this gate was fitted with {self.widths[name]}")
        mine = head_print([self.id, self.ood], outputs.head)
        if self.head and mine and self.head != mine:
            raise InvalidInput(
                "these outputs have another head than the gate was fitted with; they are of another model"
            )
        return judged(self.id, outputs)

    def to_dict(self) -> dict[str, Any]:
        """Convert the gate to plain values, without its learnt arrays: the content of gate.json.

        Returns
        -------
        dict
            Scores, thresholds, promise, classes, fingerprints and versions; infinite thresholds are text.
        """

        def side(chain: Chain | None) -> dict[str, str] | None:
            return None if chain is None else chain.header()

        return {
            "format": FORMAT,
            "version": VERSION,
            "id": side(self.id),
            "ood": side(self.ood),
            "thresholds": [_number_out(t) for t in self.taus()],
            "promise": dataclasses.asdict(self.promise),
            "classes": self.classes,
            "class_names": self.class_names,
            "widths": dict(self.widths),
            "head": self.head,
            "data": dict(self.data),
            "versions": dict(self.versions),
        }

    @classmethod
    def _of(cls, raw: bytes, path: Path) -> Gate:
        """Build the gate from the bytes of gate.json and the file beside it."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        again = "fit the gate again and save it with Gate.save"
        content = decode_json(raw, path, kind="a saved gate", form=FORMAT, version=VERSION, again=again)
        try:
            check_gate(content)
            stored = path.parent / content["tensors"]["file"]
            tensors = _read(stored)
            if hashlib.sha256(tensors).hexdigest() != content["tensors"]["sha256"]:
                raise RunError(f"{stored} is damaged; restore it, or {again}")
            sides = _chains(content, load(tensors))
            check_scores(list(sides.values()), content["classes"], content["widths"])
        except RunError:
            raise
        except (SafetensorError, TwofoldError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise RunError(f"{path} was not written by Gate.save ({error!s:.200}); {again}") from error
        except (RecursionError, MemoryError, ArithmeticError) as error:
            raise RunError(f"{path} was not written by Gate.save; {again}") from error
        said = content["promise"]
        costs = None if said["costs"] is None else Costs(*said["costs"])
        lists = {name: tuple(said[name]) for name in ("known", "outside", "cautions")}
        names = content["class_names"]
        tau_id, tau_ood = (float(t) for t in content["thresholds"])
        return cls(
            sides["id"],
            sides.get("ood"),
            tau_id,
            tau_ood,
            Promise(**{**said, "costs": costs, **lists}),
            content["classes"],
            None if names is None else tuple(names),
            content["widths"],
            content["head"],
            content["data"],
            content["versions"],
        )


# Validate what was requested


def _asked(objective: str, risk: Any, delta: Any, coverage: Any, costs: Any, thresholds: Any) -> dict[str, Any]:
    """Validate the settings of the objective; those of another objective are errors."""
    _checks.choice(objective, "objective", ("f1", "risk", "coverage", "cost", "given"))
    takes: dict[str, tuple[str, ...]] = {
        "f1": (),
        "risk": ("risk", "delta"),
        "coverage": ("coverage",),
        "cost": ("costs",),
        "given": ("thresholds",),
    }
    given: dict[str, Any] = {"risk": risk, "delta": delta, "coverage": coverage, "costs": costs}
    given["thresholds"] = thresholds
    for name, value in given.items():
        if value is not None and name not in takes[objective]:
            owner = next(o for o, names in takes.items() if name in names)
            raise InvalidInput(f"{name} belongs to objective={owner!r}, and objective is {objective!r}")
    needed = {"risk": "risk", "coverage": "coverage", "cost": "costs", "given": "thresholds"}.get(objective)
    if needed and given[needed] is None:
        raise InvalidInput(f"objective={objective!r} needs {needed}=")
    if risk is not None:
        low = delta is not None
        given["risk"] = _checks.number(risk, "risk", 0, 1, open_low=low, open_high=True)
    if delta is not None:
        given["delta"] = _checks.number(delta, "delta", 0, 1, open_low=True, open_high=True)
    if coverage is not None:
        given["coverage"] = _checks.number(coverage, "coverage", 0, 1, open_low=True)
    if costs is not None:
        given["costs"] = _costs(costs)
    return {"objective": objective, **given}


def _thresholds(given: Any, both: bool) -> Pair | None:
    """Validate thresholds of the caller; the threshold of an absent score accepts everything."""
    if given is None:
        return None
    values = np.asarray(given, dtype=object).ravel().tolist()
    if len(values) != 1 + both:
        raise InvalidInput(f"thresholds must be {'one for each score' if both else 'one number'}, got {given!r}")
    checked = [_checks.number(value, "thresholds", -math.inf, math.inf) for value in values]
    return Pair(checked[0], checked[1] if both else -math.inf)


def _costs(costs: Any) -> Costs:
    hint = "costs must be (wrong accept, OOD accept, reject), or a mapping with the keys wrong, ood, reject"
    if isinstance(costs, Mapping):
        if set(costs) != set(Costs._fields):
            raise InvalidInput(f"{hint}; got the keys {', '.join(map(str, costs)) or 'none'}")
        costs = [costs[name] for name in Costs._fields]
    if isinstance(costs, str) or not hasattr(costs, "__len__") or len(costs) != 3:
        raise InvalidInput(f"{hint}; got {costs!r}")
    checked = [
        _checks.number(value, f"costs.{name}", 0, math.inf, open_high=True)
        for name, value in zip(Costs._fields, costs, strict=True)
    ]
    return Costs(*checked)


# Verdicts, promises and intervals


def _verdicts(inside: Mask, sure: Mask) -> npt.NDArray[np.str_]:
    names = np.array(VERDICTS)
    return names[np.where(inside, np.where(sure, 0, 1), 2)]


def _margin(conf: Array, tau: float) -> Array:
    """Return how far each confidence is above the threshold; equal infinities have margin 0."""
    with np.errstate(invalid="ignore"):
        return np.where(conf == tau, 0.0, conf - tau)


def _promise(asked: dict[str, Any], data: Scored, pair: Pair, cautions: tuple[str, ...]) -> Promise:
    inside, sure = data.conf_ood >= pair.tau_ood, data.conf_id >= pair.tau_id
    verdict = np.where(inside, np.where(sure, 0, 1), 2)
    known, outside = (np.bincount(verdict[kind], minlength=3) for kind in (data.is_id, ~data.is_id))
    ids, oods = int(known.sum()), int(outside.sum())
    weight = data.weight if oods else 1.0
    right = int((data.correct & (verdict == 0)).sum())
    point = operating_point(right, int(known[0]), weight * int(outside[0]), ids)
    cost = None
    if asked["costs"] is not None:
        wrong, ood, reject = asked["costs"]
        paid = wrong * (known[0] - right) + ood * weight * outside[0] + reject * (ids - known[0])
        paid += reject * weight * (oods - outside[0])
        cost = float(paid / (ids + weight * oods))
    return Promise(
        **asked,
        ood_share=data.share,
        seen_risk=point["risk"],
        seen_coverage=point["coverage"],
        seen_f1=point["value"],
        seen_cost=cost,
        known=(int(known[0]), int(known[1]), int(known[2])),
        outside=(int(outside[0]), int(outside[1]), int(outside[2])),
        cautions=cautions,
    )


def _cautions(
    data: Scored, asked: dict[str, Any], given: tuple[Any, ...], chains: list[Chain | None]
) -> tuple[str, ...]:
    found = []
    if asked["delta"] is not None and asked["groups"] is None:
        found.append(
            "holds if the validation samples are independent draws of what the gate will meet; samples of one scene, "
            "patient or user are not: pass groups= for those"
        )
    elif asked["delta"] is not None:
        found.append(
            f"holds for the samples of new groups like the {asked['groups']} of validation: independent of each other, "
            "and of the same sizes"
        )
    oods = int((~data.is_id).sum())
    if not oods:
        found.append(
            "no OOD samples in validation: nothing is promised about inputs of no known class, "
            "and the numbers hold where there are none"
        )
    else:
        share = oods / len(data.is_id) if data.share is None else data.share
        found.append(f"holds for OOD inputs of the same kind as in validation, at a share of {share:.4g}")
    if asked["objective"] == "risk" and asked["delta"] is None:
        found.append(
            "the risk is an estimate from the data that chose the thresholds, not a bound; pass delta= for one"
        )
    if asked["objective"] == "given":
        found.append("the thresholds were given: the numbers are what they do on validation data, and no promise")
    for spec, chain in zip(given, chains, strict=True):
        used = set() if chain is None else set(chain.sets_used) & {"val", "ood_val"}
        if isinstance(spec, Chain) and spec.ready and used:
            found.append(
                f"{chain} came fitted on {' and '.join(sorted(used))}; "
                "if those are these validation data, the promise does not hold"
            )
    return tuple(found)


def _copies_text(copies: int, rows: int, grouped: bool) -> str:
    of = "rows of another group" if grouped else "other rows"
    unit = "groups" if grouped else "rows, or groups"
    return (
        f"{copies} of {rows} validation rows are exact copies of {of}, and a guarantee needs independent {unit}: "
        "remove copies of the same input, or pass groups= (different inputs with equal outputs are no harm)"
    )


def _interval(count: int, n: int, level: float) -> tuple[float, float]:
    """Compute a two-sided Clopper-Pearson interval that misses with a probability of at most ``level``."""
    from twofold.stats.bounds import clopper_pearson

    return clopper_pearson(count, n, delta=level, side="two") if n else (0.0, 1.0)


def _risk_interval(
    wrong: int, known: int, outside: int, ids: int, oods: int, share: float | None
) -> tuple[float, float]:
    level = 1.0 - LEVEL
    if share is None:
        return _interval(wrong + outside, known + outside, level)
    mistakes = _interval(wrong, known, level / 3)
    covered, let_in = _interval(known, ids, level / 3), _interval(outside, oods, level / 3)

    def mixed(rho: float, alpha: float, q: float, empty: float) -> float:
        total = (1.0 - share) * alpha + share * q
        return ((1.0 - share) * alpha * rho + share * q) / total if total > 0.0 else empty

    # the risk grows with mistakes and with accepted OOD inputs, and falls with accepted ID inputs
    return mixed(mistakes[0], covered[1], let_in[0], 0.0), mixed(mistakes[1], covered[0], let_in[1], 1.0)


# Files


def _check_text(chain: Chain) -> None:
    try:
        scorer(chain.spec)
    except InvalidInput as error:
        raise InvalidInput(
            f"{chain.spec} holds an object of yours, which is not saved; save your own object"
        ) from error


def _number_out(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _shown(chain: Chain, tau: float) -> str:
    """Format a threshold; that of msp, a log-odds, also as a probability."""
    also = f" (probability {float(sigmoid(np.array(tau))):.6g})" if chain.steps[-1].info.name == "msp" else ""
    return f"accept from {tau:.6g}{also}"


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _chains(content: dict[str, Any], tensors: Mapping[str, Array]) -> dict[str, Chain]:
    """Build the chains of a gate by side, with their learnt arrays; raise unless all arrays belong to them and fit."""
    sides = [name for name in ("id", "ood") if content[name] is not None]
    for key in tensors:
        if key.partition(".")[0] not in sides:
            raise ValueError(f"an array {key!r:.80} belongs to no score")
    found = {}
    for name in sides:
        start = f"{name}."
        own = {key.removeprefix(start): array for key, array in tensors.items() if key.startswith(start)}
        found[name] = Chain.from_header(content[name], own)
    return found


def _is_own(name: str) -> bool:
    """Check whether a file of a folder is one that Gate.save writes, or leaves behind when it is killed."""
    own = r"gate\.json|scores-[0-9a-f]{16}\.safetensors"
    return name == LOCK or re.fullmatch(rf"(?:{own})|\.(?:{own})\.[0-9]+(?:\.[0-9a-f]{{16}})?\.tmp", name) is not None


def _check_folder(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise RunError(f"{target} is a file; choose a folder for the gate")
    if not target.is_dir() or (target / "gate.json").exists():
        return
    if not all(_is_own(entry.name) for entry in target.iterdir()):
        raise RunError(f"{target} is not empty and holds no gate; choose an empty or new folder")


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunError(f"{path} does not exist; {path.parent} is no saved gate, or a part was lost") from error
    except RunError:
        raise
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from error
