"""Define the gate: two scores, two thresholds, a promise, and a verdict for every input."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Labels
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold._math import sigmoid
from twofold._notebook import MOST_ROWS, NotebookTable, card
from twofold.errors import DependentRows, InvalidInput
from twofold.gate import guarantee
from twofold.gate.card import ReportCard, exact_interval, make_card
from twofold.gate.files import FORMAT, VERSION, read_gate, write_gate
from twofold.gate.inputs import (
    CONF_ID,
    CONF_OOD,
    ValidationData,
    confidences,
    fingerprint,
    fingerprint_confidences,
    fit_chain,
    head_fingerprint,
    measure_widths,
    outputs_of_confidences,
    prepare_confidences,
    prepare_validation,
)
from twofold.gate.monitor import Monitor
from twofold.gate.promise import (
    CostValues,
    Objective,
    Promise,
    Request,
    check_request,
    copies_caution,
    list_cautions,
    make_promise,
)
from twofold.gate.schema import VERDICTS
from twofold.gate.thresholds import (
    ScoredSamples,
    Thresholds,
    best_f1,
    clear_of_samples,
    least_cost,
    least_risk,
    most_coverage,
)
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores.chain import Chain, scorer


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

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self._count_verdicts().items())
        return f"Decision({len(self)} inputs: {counts})"

    def _count_verdicts(self) -> dict[str, int]:
        return {name: int((self.verdict == name).sum()) for name in VERDICTS}

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = []
        for row in range(min(len(self), MOST_ROWS)):
            conf_ood: object = "" if self.conf_ood is None else float(self.conf_ood[row])
            rows.append((row, int(self.labels[row]), str(self.verdict[row]), float(self.conf_id[row]), conf_ood))
        columns = ("row", "label", "verdict", "conf_id", "conf_ood")
        facts = {name: f"{count:,} ({count / max(len(self), 1):.1%})" for name, count in self._count_verdicts().items()}
        return card(f"Decision on {len(self):,} inputs", facts, NotebookTable(columns, rows, len(self)))

    def to_arrow(
        self,
        *,
        ids: Sequence[Any] | None = None,
        time: Any = None,
        model: str | None = None,
        label: ArrayLike | None = None,
    ) -> Any:
        """Convert to a PyArrow table in the column convention that :mod:`twofold.logs` reads.

        Parameters
        ----------
        ids : sequence, optional
            Identifiers of the inputs; by default their row numbers.
        time : datetime or sequence of datetime, optional
            When the decisions were made; by default there is no such column.
        model : str, optional
            Name of the model; by default there is no such column.
        label : array-like of int, shape (N,), optional
            True classes, -1 for OOD, where they are known; adds ``is_id`` too.

        Returns
        -------
        pyarrow.Table
            Columns ``id``, ``time``, ``model``, ``label``, ``prediction``, ``conf_id``, ``conf_ood``, ``is_id``,
            ``verdict``, ``margin_id`` and ``margin_ood``, without those that are not known.

        Raises
        ------
        MissingExtra
            If PyArrow is not installed.
        InvalidInput
            If an argument has another number of rows.

        Examples
        --------
        >>> gate = Gate.fit(Outputs([[4.0, 0.0], [0.0, 3.0], [0.1, 0.2]], labels=[0, 1, -1]))
        >>> gate.decide(Outputs([[0.0, 5.0], [0.1, 0.0]])).to_arrow(model="demo").column_names[:4]
        ['id', 'model', 'prediction', 'conf_id']
        """
        from twofold.gate.table import decision_table

        return decision_table(self, ids=ids, time=time, model=model, label=label)


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
        id: str | Chain = DEFAULT_ID,  # noqa: A002 - the name in the design
        ood: str | Chain | None = DEFAULT_OOD,
        *,
        train: Outputs | None = None,
        objective: Objective = "f1",
        risk: float | None = None,
        delta: float | None = None,
        coverage: float | None = None,
        costs: CostValues | None = None,
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
        request = check_request(
            objective,
            risk=risk,
            delta=delta,
            coverage=coverage,
            costs=costs,
            thresholds=thresholds,
            two_scores=ood is not None,
        )
        data = prepare_validation(validation, train, groups=groups, ood_share=ood_share)
        digests = {"validation": fingerprint(data.rows)}
        if data.train is not None:
            digests["train"] = fingerprint(data.train)
        gate = fit_to_request(request, data, id, ood, digests)
        if data.copies and request.delta is not None:
            caution = copies_caution(data.copies, len(data.rows), grouped=data.group_count is not None)
            warnings.warn(caution, DependentRows, stacklevel=2)
        return gate

    @classmethod
    def fit_confidences(
        cls,
        correct: ArrayLike,
        conf_id: ArrayLike,
        conf_ood: ArrayLike | None = None,
        *,
        is_id: ArrayLike | None = None,
        objective: Objective = "f1",
        risk: float | None = None,
        delta: float | None = None,
        coverage: float | None = None,
        costs: CostValues | None = None,
        thresholds: Sequence[float] | float | None = None,
        ood_share: float | None = None,
        groups: ArrayLike | None = None,
    ) -> Gate:
        """Choose thresholds on confidences of your own: a judge of answers, logged scores, another library's detector.

        The gate has an objective, a promise, a card and a monitor like any other. Ask it with
        :meth:`decide_confidences` and judge it with :meth:`card_confidences`.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each answer is correct; False on every OOD sample.
        conf_id : array-like of shape (n_samples,)
            Confidence that the answer is correct; higher is safer to accept.
        conf_ood : array-like of shape (n_samples,), optional
            Confidence that the input is in-distribution. Without it the gate has one score and never says unknown.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples; by default all are.
        objective : {"f1", "risk", "coverage", "cost", "given"}, default="f1"
            What the thresholds are chosen for, as in :meth:`fit`.
        risk, delta, coverage : float, optional
            Settings of the objectives ``risk`` and ``coverage``, as in :meth:`fit`.
        costs : mapping or tuple of three floats, optional
            Setting of the objective ``cost``, as in :meth:`fit`.
        thresholds : float or pair of floats, optional
            Setting of the objective ``given``, as in :meth:`fit`.
        ood_share : float, optional
            OOD prevalence expected in deployment, by default that of the samples.
        groups : array-like of shape (n_samples,), optional
            The same for samples that depend on each other, as in :meth:`fit`.

        Returns
        -------
        Gate
            Thresholds and a promise.

        Raises
        ------
        Infeasible
            If the request cannot be met; its ``best`` says what can be.
        InvalidInput
            If the arrays differ in length or hold NaN, or a setting belongs to another objective.
        UnfitData
            If no sample is ID.

        Examples
        --------
        >>> correct, confidence = [True, True, False, True, False], [0.9, 0.8, 0.75, 0.6, 0.3]
        >>> gate = Gate.fit_confidences(correct, confidence, objective="risk", risk=0.25)
        >>> gate.decide_confidences([0.95, 0.1]).verdict
        array(['accept', 'unsure'], dtype='<U7')
        """
        request = check_request(
            objective,
            risk=risk,
            delta=delta,
            coverage=coverage,
            costs=costs,
            thresholds=thresholds,
            two_scores=conf_ood is not None,
        )
        data = prepare_confidences(correct, conf_id, conf_ood, is_id=is_id, groups=groups, ood_share=ood_share)
        second = None if conf_ood is None else f"recorded(name={CONF_OOD!r})"
        digests = {"validation": fingerprint_confidences(data.rows)}
        return fit_to_request(request, data, f"recorded(name={CONF_ID!r})", second, digests)

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
        seen = self._check_outputs(outputs)
        conf_id, conf_ood = confidences(self.id, self.ood, seen)
        return self._compare(seen.predictions, conf_id, conf_ood)

    def decide_confidences(self, conf_id: ArrayLike, conf_ood: ArrayLike | None = None) -> Decision:
        """Give a verdict for every pair of confidences, as they were computed or logged elsewhere.

        Parameters
        ----------
        conf_id : array-like of shape (n_samples,)
            Confidence that the answer is correct, on the scale of the ID score.
        conf_ood : array-like of shape (n_samples,), optional
            Confidence that the input is in-distribution, on the scale of the OOD score; for a gate of two scores.

        Returns
        -------
        Decision
            Verdicts, confidences and margins, row by row. The labels are 0, because confidences name no class.

        Raises
        ------
        InvalidInput
            If the arrays differ in length or hold NaN, ``conf_ood`` is missing, or the gate has no OOD score.

        Examples
        --------
        >>> gate = Gate.fit_confidences([True, False], [0.9, 0.4], objective="coverage", coverage=0.5)
        >>> gate.decide_confidences([0.8, 0.2]).verdict
        array(['accept', 'unsure'], dtype='<U7')
        """
        first = _checks.confidence(conf_id, CONF_ID)
        self._check_count_of_scores(conf_ood)
        second = None
        if conf_ood is not None:
            second = _checks.confidence(conf_ood, CONF_OOD)
        _checks.same_rows(conf_id=first, conf_ood=second)
        return self._compare(np.zeros(len(first), dtype=np.int64), first, second)

    def _check_count_of_scores(self, conf_ood: ArrayLike | None) -> None:
        """Raise unless there is a confidence for each score."""
        if self.ood is None and conf_ood is not None:
            raise InvalidInput("this gate has one score; leave conf_ood out")
        if self.ood is not None and conf_ood is None:
            raise InvalidInput("this gate has two scores; pass conf_ood=")

    def _compare(self, labels: Labels, conf_id: Array, conf_ood: Array | None) -> Decision:
        """Compare confidences with the thresholds."""
        code = np.where(conf_id >= self.tau_id, 0, 1)  # of VERDICTS
        margin_ood = None
        if conf_ood is not None:
            code = np.where(conf_ood >= self.tau_ood, code, 2)
            margin_ood = _margin(conf_ood, self.tau_ood)
        return Decision(
            labels=labels,
            verdict=np.array(VERDICTS)[code],
            conf_id=conf_id,
            conf_ood=conf_ood,
            margin_id=_margin(conf_id, self.tau_id),
            margin_ood=margin_ood,
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
        accepted = self.decide(outputs).verdict == "accept"
        return make_card(self.promise, self.id.judged_outputs(outputs), accepted)

    def card_confidences(
        self,
        correct: ArrayLike,
        conf_id: ArrayLike,
        conf_ood: ArrayLike | None = None,
        *,
        is_id: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> ReportCard:
        """Measure what this gate does on confidences whose correctness is known, compared with its promise.

        Parameters
        ----------
        correct : array-like of bool, shape (n_samples,)
            Whether each answer is correct; False on every OOD sample.
        conf_id : array-like of shape (n_samples,)
            Confidence that the answer is correct, on the scale of the ID score.
        conf_ood : array-like of shape (n_samples,), optional
            Confidence that the input is in-distribution; for a gate of two scores.
        is_id : array-like of bool, shape (n_samples,), optional
            True for ID samples; by default all are.
        groups : array-like of shape (n_samples,), optional
            The same for samples that depend on each other; makes the intervals those of independent groups.

        Returns
        -------
        ReportCard
            Coverage, risk, counts and DS-F1 with 95 % intervals, and whether the promise was kept.

        Raises
        ------
        UnfitData
            If there is no ID sample.
        InvalidInput
            If the arrays differ in length or hold NaN, or do not fit the scores of the gate.

        Examples
        --------
        >>> gate = Gate.fit_confidences([True, False], [0.9, 0.4], objective="coverage", coverage=0.5)
        >>> gate.card_confidences([True, False, True], [0.8, 0.7, 0.1]).risk
        0.5
        """
        self._check_count_of_scores(conf_ood)
        rows = outputs_of_confidences(correct, conf_id, conf_ood, is_id=is_id, groups=groups)
        accepted = self.decide_confidences(conf_id, conf_ood).verdict == "accept"
        return make_card(self.promise, rows, accepted)

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

    def export(
        self,
        folder: str | os.PathLike[str],
        model: Any,
        *,
        target: Literal["triton", "openinference", "mlflow"],
        **options: Any,
    ) -> None:
        """Write this gate and its classifier as a folder that an inference server serves.

        Parameters
        ----------
        folder : str or path-like
            A new or empty folder. Its name is that of the model.
        model : torch.nn.Module or twofold.nn.Classifier
            The classifier that the gate was fitted for, float32 on the CPU.
        target : {"triton", "openinference", "mlflow"}
            The server: Triton, one of the Open Inference Protocol such as MLServer, or MLflow.
        **options
            ``shape``, ``prepare`` and ``head``, as in :func:`twofold.nn.onnx.to_onnx`.

        Raises
        ------
        MissingExtra
            If torch, onnx or, for ``mlflow``, MLflow is not installed.
        InvalidInput
            If the model does not fit the gate, or ONNX cannot hold a score.
        RunError
            If the folder holds something.
        """
        from twofold.adapters import export_gate

        export_gate(self, folder, model, target=target, **options)

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
        false_alarms = _checks.number(false_alarms, "false_alarms", 0, 1, open_low=True, open_high=True)
        share = self.promise.ood_share
        if ood_share is not None:
            share = _checks.number(ood_share, "ood_share", 0, 1, open_high=True)
        known, outside = self.promise.known, self.promise.outside
        if share is not None and share > 0.0 and not sum(outside):
            raise InvalidInput("ood_share needs OOD samples in validation, and this gate saw none; fit it with some")
        if share is None:
            samples = [(1.0, np.add(known, outside))]
        elif share == 0.0:
            samples = [(1.0, np.array(known))]
        else:
            samples = [(1.0 - share, np.array(known)), (share, np.array(outside))]
        # half of the false alarms are for rates that the intervals miss, the other half for the sequential test
        level = false_alarms / 2.0 / (3 * len(samples))
        is_possible = np.array([True, self.tau_id > -math.inf, self.ood is not None])
        low, high = np.zeros(3), np.zeros(3)
        for weight, counts in samples:
            for i in np.flatnonzero(is_possible):
                lower, upper = exact_interval(int(counts[i]), int(counts.sum()), level)
                low[i] += weight * lower
                high[i] += weight * upper
        return Monitor(tuple(low.tolist()), tuple(high.tolist()), false_alarms)

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
        tensors = {}
        for side, chain in self._sides():
            _check_text(chain)
            for name, array in chain.tensors().items():
                tensors[f"{side}.{name}"] = array
        write_gate(Path(folder), self.to_dict(), tensors)

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
        stored = read_gate(Path(folder))
        record = stored.record
        return cls(
            id=stored.id,
            ood=stored.ood,
            tau_id=record.tau_id,
            tau_ood=record.tau_ood,
            promise=record.promise,
            classes=record.classes,
            class_names=record.class_names,
            widths=record.widths,
            head=record.head,
            data=record.data,
            versions=record.versions,
        )

    def __repr__(self) -> str:
        sides = []
        for (side, chain), tau in zip(self._sides(), self.taus(), strict=False):  # one score shows one threshold
            sides.append(f"{side}={chain.spec!r} >= {tau:.6g}")
        return f"Gate({', '.join(sides)}; objective {self.promise.objective})"

    def __str__(self) -> str:
        lines = []
        for (side, chain), tau in zip(self._sides(), self.taus(), strict=False):  # one score shows one threshold
            lines.append(f"{side} {chain.spec}: {_describe_threshold(chain, tau)}")
        return "\n".join([*lines, str(self.promise)])

    def _repr_html_(self) -> str:
        rows = []
        for (side, chain), tau in zip(self._sides(), self.taus(), strict=False):  # one score shows one threshold
            rows.append((side, chain.spec, _describe_threshold(chain, tau)))
        head, *cautions = str(self.promise).splitlines()
        return card("Gate", {"promise": head}, NotebookTable(("side", "score", "accepts where"), rows), cautions)

    def taus(self) -> Thresholds:
        """Return both thresholds.

        Returns
        -------
        Thresholds
            ``tau_id`` and ``tau_ood``.

        Examples
        --------
        >>> gate = Gate.fit(Outputs(np.eye(2), labels=[0, 1]), ood=None, objective="given", thresholds=0.5)
        >>> gate.taus()
        Thresholds(tau_id=0.5, tau_ood=-inf)
        """
        return Thresholds(self.tau_id, self.tau_ood)

    def _sides(self) -> list[tuple[str, Chain]]:
        """Return the scores by name: one or two."""
        if self.ood is None:
            return [("id", self.id)]
        return [("id", self.id), ("ood", self.ood)]

    def _check_outputs(self, outputs: Outputs) -> Outputs:
        """Raise if the outputs are recognisably of another model; return them with the predictions that are judged."""
        if not isinstance(outputs, Outputs):
            raise InvalidInput(f"a gate decides on Outputs(logits, ...), got {type(outputs).__name__}")
        if outputs.classes != self.classes:
            raise InvalidInput(f"this gate is for {self.classes} classes, these outputs have {outputs.classes}")
        if self.class_names and outputs.class_names and self.class_names != outputs.class_names:
            raise InvalidInput("these outputs have other class_names than the gate; they are of another model")
        for name, width in measure_widths([self.id, self.ood], outputs).items():
            if self.widths.get(name, width) != width:
                raise InvalidInput(f"{name} has {width} columns, this gate was fitted with {self.widths[name]}")
        digest = head_fingerprint([self.id, self.ood], outputs.head)
        if self.head and digest and self.head != digest:
            raise InvalidInput(
                "these outputs have another head than the gate was fitted with; they are of another model"
            )
        return self.id.judged_outputs(outputs)

    def to_dict(self) -> dict[str, object]:
        """Convert the gate to plain values, without its learnt arrays: the content of gate.json.

        Returns
        -------
        dict
            Scores, thresholds, promise, classes, fingerprints and versions; infinite thresholds are text.
        """
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id.header(),
            "ood": None if self.ood is None else self.ood.header(),
            "thresholds": [_encode_number(tau) for tau in self.taus()],
            "promise": dataclasses.asdict(self.promise),
            "classes": self.classes,
            "class_names": self.class_names,
            "widths": dict(self.widths),
            "head": self.head,
            "data": dict(self.data),
            "versions": dict(self.versions),
        }


# Fitting


def fit_to_request(
    request: Request,
    data: ValidationData,
    id_: str | Chain,
    ood: str | Chain | None,
    digests: dict[str, str],
    *,
    choose: Callable[[ScoredSamples], Thresholds] | None = None,
    cautions: Sequence[str] = (),
) -> Gate:
    """Fit both scores where they learn, choose the thresholds, and record what they do.

    Parameters
    ----------
    request : Request
        What the thresholds shall do.
    data : ValidationData
        Labelled rows, and the training set if there is one.
    id_ : str or Chain
        Score of correct against wrong labels.
    ood : str, Chain or None
        Score of ID against OOD inputs.
    digests : dict of str to str
        SHA-256 of the data, by ``validation`` and ``train``.
    choose : callable, optional
        Chooses the thresholds on the scored rows; by default they are the best for the request.
    cautions : sequence of str, default=()
        Further conditions under which the numbers hold.

    Returns
    -------
    Gate
        The gate.
    """
    parts = _split(request, data)
    part = data.rows if parts is None else data.rows[parts.learn]
    id_chain = fit_chain(scorer(id_), data.train, part)
    ood_chain = None if ood is None else fit_chain(scorer(ood), data.train, part)
    chains = [id_chain, ood_chain]
    outputs = id_chain.judged_outputs(data.rows)
    conf_id, conf_ood = confidences(id_chain, ood_chain, outputs)
    if conf_ood is None:
        conf_ood = np.zeros(len(outputs))
    rows = ScoredSamples(outputs.correct, outputs.is_id, conf_id, conf_ood, data.share, data.groups)
    pair = _choose_thresholds(request, rows, parts) if choose is None else choose(rows)
    if ood_chain is None:
        pair = Thresholds(pair.tau_id, -math.inf)
    found = [*cautions, *list_cautions(request, rows, groups=data.group_count, given=(id_, ood), chains=chains)]
    if data.copies:
        found.append(copies_caution(data.copies, len(data.rows), grouped=data.group_count is not None))
    return Gate(
        id=id_chain,
        ood=ood_chain,
        tau_id=pair.tau_id,
        tau_ood=pair.tau_ood,
        promise=make_promise(request, rows, pair, groups=data.group_count, cautions=found),
        classes=outputs.classes,
        class_names=outputs.class_names,
        widths=measure_widths(chains, outputs),
        head=head_fingerprint(chains, outputs.head),
        data=digests,
        versions=_versions(),
    )


@dataclass(frozen=True, eq=False)
class _Parts:
    """Hold the rows that learn the path of a guarantee, and those that test it."""

    learn: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


def _split(request: Request, data: ValidationData) -> _Parts | None:
    """Split the rows for a guarantee; None where none is requested."""
    if request.delta is None:
        return None
    if data.group_count == 1:
        raise InvalidInput("a guarantee needs at least 2 groups that are independent of each other, got 1")
    learn, test = guarantee.split(data.rows.is_id, data.share, data.groups)
    return _Parts(learn, test)


def _choose_thresholds(request: Request, rows: ScoredSamples, parts: _Parts | None) -> Thresholds:
    if request.thresholds is not None:
        return request.thresholds
    if request.risk is not None and request.delta is not None and parts is not None:
        learn, test = rows[parts.learn], rows[parts.test]
        return guarantee.choose_guaranteed(learn, test, risk=request.risk, delta=request.delta)
    if request.risk is not None:
        pair = most_coverage(rows, request.risk)
    elif request.coverage is not None:
        pair = least_risk(rows, request.coverage)
    elif request.costs is not None:
        pair = least_cost(rows, request.costs)
    else:
        pair = best_f1(rows)
    return clear_of_samples(pair, rows)


def _versions() -> dict[str, str]:
    from twofold import __version__

    return {"twofold": __version__, "python": platform.python_version(), "numpy": np.__version__}


# Verdicts and text


def _margin(conf: Array, tau: float) -> Array:
    """Return how far each confidence is above the threshold; equal infinities have margin 0."""
    with np.errstate(invalid="ignore"):
        return np.where(conf == tau, 0.0, conf - tau)


def _describe_threshold(chain: Chain, tau: float) -> str:
    """Format a threshold; a log-odds also as a probability."""
    text = f"accept from {tau:.6g}"
    if chain.steps[-1].info.closed_form == "log_odds":
        text += f" (probability {float(sigmoid(np.array(tau))):.6g})"
    return text


def _check_text(chain: Chain) -> None:
    """Raise unless the text of a score is all that it takes to build it again."""
    try:
        scorer(chain.spec)
    except InvalidInput as error:
        raise InvalidInput(
            f"{chain.spec} holds an object of yours, which is not saved; save your own object"
        ) from error


def _encode_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
