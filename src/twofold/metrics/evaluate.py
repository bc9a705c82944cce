"""Turn a metric name plus arrays into a value, an interval or replicates: the one place that does.

:func:`evaluate` computes many metrics from one sort, :func:`intervals` adds bootstrap intervals, and
:class:`ResampledMetrics` computes them on given resamples. All three look a name up in the registry and pick its arrays
with :class:`EvaluatedSamples`, so a registered metric needs no entry here.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from twofold import _checks
from twofold._checks import AnyArray, Array, ArrayLike, Integers, Mask, NaNPolicy
from twofold._json import nan_to_none
from twofold._notebook import NotebookTable, card
from twofold.errors import InvalidInput, MissingExtra, RejectedNaN, TwofoldWarning, UndefinedMetric, UnknownName
from twofold.metrics._grid import DoubleHistogram
from twofold.metrics._registry import (
    Metric,
    MetricInfo,
    as_float,
    coverage_note,
    info,
    is_published_form,
    names,
    published_form,
)
from twofold.metrics._sweep import SortedRows, Sweep, Weights, sweep, sweep_weighted, truth_sweep
from twofold.metrics.operating_points import check_ood_share
from twofold.stats import Interval, bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from twofold.plot import EvaluationDisplay
    from twofold.plot.themes import ThemeName

EvaluationMethod: TypeAlias = Literal["exact", "published"]

STANDARD = (
    "accuracy",
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
)
STANDARD_WITH_ID = ("aurc_id", "f1", "auroc_ood", "fpr95_ood", "fpr95_unsafe_ood")
STANDARD_WITH_PAIR = ("ds_f1", "ds_aurc")
SHOWN_IN_REPR = 4  # metrics; printing shows all


@dataclass(frozen=True, eq=False)
class Evaluation(Mapping[str, float]):
    """Hold metric values by name: a read-only mapping whose values are attributes too.

    A metric that is undefined on the data is NaN, with the reason in ``reasons``. Printing shows a table with the
    better direction of each metric.

    Parameters
    ----------
    values_ : dict of str to float
        The values, NaN where a metric is undefined.
    reasons : dict of str to str
        Why a metric is undefined, for each that is.
    n : int
        Number of samples.
    n_id : int
        Number of ID samples.
    n_ood : int
        Number of OOD samples.
    nan_rejected : int, default=0
        Number of samples with a NaN confidence, which were ranked lowest.
    ood_share : float, optional
        The OOD prevalence to which OOD samples were reweighted; None if they were not.
    better : dict of str to {"higher", "lower"}, optional
        Which direction is better, by metric.

    Notes
    -----
    Indexing with a name that is not in the evaluation raises ``UnknownName``; reading it as an attribute raises
    ``AttributeError``.

    Examples
    --------
    >>> result = evaluate([True, True, False], [0.9, 0.8, 0.3], only=["accuracy", "auroc"])
    >>> result.auroc, dict(result)["auroc"], result.n
    (1.0, 1.0, 3)
    >>> print(result)
    3 samples (3 ID, 0 OOD)
    accuracy ↑ 0.66667
    auroc    ↑ 1.00000
    """

    values_: dict[str, float]
    reasons: dict[str, str]
    n: int
    n_id: int
    n_ood: int
    nan_rejected: int = 0
    ood_share: float | None = None
    better: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        if name not in self.values_:
            raise UnknownName.of("metric in this evaluation", name, self.values_)
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)

    def __getattr__(self, name: str) -> float:
        if name.startswith("__") or name not in self.__dict__.get("values_", {}):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return self.values_[name]

    def to_dict(self) -> dict[str, object]:
        """Convert everything to plain Python values.

        Returns
        -------
        dict
            ``n``, ``n_id``, ``n_ood``, ``nan_rejected``, ``ood_share``, and the dictionaries ``metrics`` and
            ``reasons``. Undefined metrics are NaN.

        Examples
        --------
        >>> evaluate([True, False], [0.9, 0.3], only="auroc").to_dict()["metrics"]
        {'auroc': 1.0}
        """
        return {
            "n": self.n,
            "n_id": self.n_id,
            "n_ood": self.n_ood,
            "nan_rejected": self.nan_rejected,
            "ood_share": self.ood_share,
            "metrics": dict(self.values_),
            "reasons": dict(self.reasons),
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Convert everything to strict JSON, with null for undefined metrics.

        Parameters
        ----------
        indent : int or None, default=2
            Spaces of indentation per level; None writes one line.

        Returns
        -------
        str
            The content of :meth:`to_dict`, with the reasons for undefined metrics beside the values.

        Examples
        --------
        >>> import json
        >>> json.loads(evaluate([True, True], [0.9, 0.3], only="auroc").to_json())["metrics"]
        {'auroc': None}
        """
        data = self.to_dict()
        metrics: dict[str, float | None] = {}
        for name, value in self.values_.items():
            metrics[name] = nan_to_none(value)
        data["metrics"] = metrics
        return json.dumps(data, indent=indent)

    def to_pandas(self) -> Any:
        """Convert the values to a pandas Series.

        Returns
        -------
        pandas.Series
            The values, indexed by metric name and named ``value``.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingExtra('to_pandas needs pandas: pip install "twofold[report]"') from error
        return pd.Series(self.values_, name="value", dtype="float64")

    def plot(self, ax: Axes | None = None, *, theme: ThemeName | None = None) -> EvaluationDisplay:
        """Draw the metrics as dots on a common axis.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default on a new figure.
        theme : {"light", "dark"}, optional
            The colours; by default those that suit the axes.

        Returns
        -------
        EvaluationDisplay
            The drawn display, with ``ax_`` and ``figure_``; its ``save`` writes a file.

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from twofold.plot import EvaluationDisplay

        return EvaluationDisplay.from_evaluation(self).plot(ax, theme=theme)

    def __str__(self) -> str:
        width = max(map(len, self.values_), default=0)
        arrows = {"higher": "↑", "lower": "↓"}
        head = f"{self.n} samples ({self.n_id} ID, {self.n_ood} OOD)"
        if self.nan_rejected:
            head += f", {self.nan_rejected} with NaN confidence ranked lowest"
        rows = [head]
        for name, value in self.values_.items():
            arrow = arrows.get(self.better.get(name, ""), " ")
            shown = f"{value:.5f}"
            if name in self.reasons:
                shown = f"undefined: {self.reasons[name]}"
            rows.append(f"{name:<{width}} {arrow} {shown}")
        note = coverage_note(self.values_)
        if note:
            rows.append(note)
        return "\n".join(rows)

    def __repr__(self) -> str:
        shown = [f"{name} {value:.4g}" for name, value in list(self.values_.items())[:SHOWN_IN_REPR]]
        left_out = len(self.values_) - len(shown)
        if left_out:
            shown.append(f"{left_out} more")
        return f"Evaluation({self.n} samples ({self.n_id} ID, {self.n_ood} OOD): {', '.join(shown)})"

    def _repr_html_(self) -> str:
        arrows = {"higher": "↑", "lower": "↓"}
        rows = []
        for name, value in self.values_.items():
            shown: object = value
            if name in self.reasons:
                shown = f"undefined: {self.reasons[name]}"
            rows.append((name, arrows.get(self.better.get(name, ""), ""), shown))
        facts = {"OOD share": self.ood_share, "NaN confidences": self.nan_rejected or None}
        note = coverage_note(self.values_)
        title = f"Evaluation of {self.n:,} samples ({self.n_id:,} ID, {self.n_ood:,} OOD)"
        table = NotebookTable(("metric", "better", "value"), rows)
        return card(title, facts, table, [note] if note else [])


@dataclass(frozen=True, eq=False)
class EvaluatedSamples:
    """Hold the validated samples of one evaluation and compute metrics of them by name.

    Everything is sorted at most once per confidence.

    Parameters
    ----------
    correct : ndarray of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : ndarray of float64, shape (n_samples,)
        Confidence, higher is safer to accept.
    is_id : ndarray of bool, shape (n_samples,), optional
        True for ID samples; None if all samples are ID.
    conf_ood : ndarray of float64, shape (n_samples,), optional
        A second confidence, against OOD inputs.
    prob : ndarray of float64, shape (n_samples,), optional
        Probability that the prediction is correct, for calibration metrics.
    ood_share : float, optional
        Share of OOD samples expected in deployment.

    Examples
    --------
    >>> samples = EvaluatedSamples(np.array([True, True, False]), np.array([0.9, 0.8, 0.3]))
    >>> samples.value("aurc").__round__(4), samples.value("auroc")
    (0.1111, 1.0)
    """

    correct: Mask
    conf: Array
    is_id: Mask | None = None
    conf_ood: Array | None = None
    prob: Array | None = None
    ood_share: float | None = None

    def __len__(self) -> int:
        return len(self.correct)

    def __getitem__(self, rows: Integers) -> EvaluatedSamples:
        return EvaluatedSamples(
            self.correct[rows],
            self.conf[rows],
            is_id=_take_rows(self.is_id, rows),
            conf_ood=_take_rows(self.conf_ood, rows),
            prob=_take_rows(self.prob, rows),
            ood_share=self.ood_share,
        )

    @cached_property
    def failures(self) -> Sweep:
        """The sweep of correct predictions against failures."""
        return sweep(self.correct, self.conf, is_id=self.is_id, ood_share=self.ood_share)

    @cached_property
    def id_against_ood(self) -> Sweep:
        """The sweep of ID against OOD samples, by ``conf_ood`` if there is one; every sample counts once."""
        if self.is_id is None:
            raise InvalidInput("metrics of ID against OOD samples need is_id")
        if self.conf_ood is not None:
            return truth_sweep(self.is_id, self.conf_ood)
        if self.ood_share is not None:
            return truth_sweep(self.is_id, self.conf)
        return _ood_as_loss(self.failures)

    def missing_arrays(self, record: MetricInfo) -> list[str]:
        """List the arrays that a metric needs and these samples do not have.

        Parameters
        ----------
        record : MetricInfo
            The metric.

        Returns
        -------
        list of str
            Names of arrays, sorted; empty if the metric can be computed.
        """
        available = {"correct", "truth", "conf"}
        if self.is_id is not None:
            available.add("is_id")
        if self.conf_ood is not None:
            available |= {"conf_id", "conf_ood"}
        if self.prob is not None:
            available.add("prob")
        return sorted(set(record.required_arrays) - available)

    def arrays(self, record: MetricInfo) -> dict[str, AnyArray]:
        """Pick the arrays that a metric takes; those with probabilities are of ID samples alone.

        Parameters
        ----------
        record : MetricInfo
            The metric.

        Returns
        -------
        dict of str to ndarray
            Arrays by the names of the metric's parameters; optional ones are left out if they are missing.

        Raises
        ------
        UndefinedMetric
            If the metric is of probabilities, and there is no ID sample.
        """
        conf = self.conf
        if record.task == "ood" and self.conf_ood is not None:
            conf = self.conf_ood
        available = {
            "correct": self.correct,
            "truth": self.correct,
            "conf": conf,
            "conf_id": self.conf,
            "conf_ood": self.conf_ood,
            "is_id": self.is_id,
            "prob": self.prob,
        }
        picked: dict[str, AnyArray] = {}
        for name in record.evaluated_arrays:
            array = available.get(name)
            if array is not None:
                picked[name] = array
        if "prob" not in picked or self.is_id is None:
            return picked
        if not self.is_id.any():
            raise UndefinedMetric(f"{record.name} needs at least one ID sample")
        return {name: array[self.is_id] for name, array in picked.items()}

    def value(self, name: str) -> float:
        """Compute one metric.

        Parameters
        ----------
        name : str
            Name of a registered metric whose arrays are all there (:meth:`missing_arrays`).

        Returns
        -------
        float
            The value.

        Raises
        ------
        UndefinedMetric
            If the metric has no value on these samples, or no form with ``ood_share``.
        """
        record = info(name)
        if record.sweep is not None and record.task == "ood":
            return record.sweep(self.id_against_ood)
        if record.sweep is not None:
            return record.sweep(self.failures)
        call = self._call(record)
        return as_float(call.metric(**call.arrays, **call.settings))

    def interval(self, name: str, *, n: int = 1000, level: float = 0.95, seed: int = 0) -> Interval:
        """Compute one metric with its bootstrap interval; rows are resampled within ID and within OOD.

        Parameters
        ----------
        name : str
            Name of a registered metric whose arrays are all there (:meth:`missing_arrays`).
        n : int, default=1000
            Number of resamples.
        level : float, default=0.95
            Confidence level, between 0 and 1.
        seed : int, default=0
            Seed of the resampling.

        Returns
        -------
        Interval
            Percentile interval of the metric.

        Raises
        ------
        UndefinedMetric
            If the metric has no value on these samples, or no form with ``ood_share``.
        """
        call = self._call(info(name))
        first, *others = call.arrays
        named: dict[str, Any] = dict(call.settings)  # bootstrap resamples those that are arrays
        for other in others:
            named[other] = call.arrays[other]
        stratify = None  # a metric of ID rows alone has nothing to keep apart
        if len(call.arrays[first]) == len(self):
            stratify = self.is_id
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TwofoldWarning)  # the interval itself counts resamples without a value
            return bootstrap(
                call.metric,
                call.arrays[first],
                n=n,
                level=level,
                seed=seed,
                stratify=stratify,
                **named,
            )

    def _call(self, record: MetricInfo) -> _Call:
        """Say which function computes a metric of these samples, and of which arrays."""
        unweighted = self.ood_share is None or record.task in ("ood", "calibration")
        if unweighted:
            return _Call(record.evaluated, self.arrays(record))
        settings = {"ood_share": self.ood_share}
        if record.takes_ood_share:
            return _Call(record.evaluated, self.arrays(record), settings)
        if record.sweep is None or self.is_id is None:
            raise UndefinedMetric(f"{record.name} has no form with ood_share")
        arrays = {"correct": self.correct, "conf": self.conf, "is_id": self.is_id}
        return _Call(_metric_of_sweep(record.sweep), arrays, settings)


@dataclass(frozen=True, eq=False)
class _Call:
    """Hold what computes a metric: a function, its arrays and its settings, by name."""

    metric: Metric
    arrays: dict[str, AnyArray]
    settings: dict[str, float | None] = field(default_factory=dict)


def _metric_of_sweep(form: Callable[[Sweep], float]) -> Metric:
    """Make a function of ``correct`` and ``conf``, with an OOD share, of a metric's form on a sweep."""

    def metric(correct: Mask, conf: Array, *, is_id: Mask, ood_share: float) -> float:
        return form(sweep(correct, conf, is_id=is_id, ood_share=ood_share))

    metric.weighted = sweep_weighted(form)  # type: ignore[attr-defined]
    return metric


def _take_rows(array: AnyArray | None, rows: Integers) -> AnyArray | None:
    """Take rows of an array that may be missing."""
    if array is None:
        return None
    return array[rows]


def _ood_as_loss(failures: Sweep) -> Sweep:
    """Return the sweep in which accepting an OOD sample is the loss, from that of all failures."""
    accepted = failures.accepted
    return Sweep(failures.level, accepted, accepted - failures.known, accepted)


class ResampledMetrics:
    """Compute metrics on resamples, given as row weights; the samples are sorted once.

    DS-F1 and DS-AURC of a resample are those of a grid of thresholds, centred on their exact values.

    Parameters
    ----------
    samples : EvaluatedSamples
        The samples.
    metrics : sequence of str
        Names of registered metrics that the samples have the arrays of.
    exact : mapping of str to float
        Values on the samples themselves; those of DS-F1 and DS-AURC are read.

    Examples
    --------
    >>> samples = EvaluatedSamples(np.array([True, True, False]), np.array([0.9, 0.8, 0.3]))
    >>> ResampledMetrics(samples, ["accuracy"], {}).values(np.array([1, 0, 2], np.uint8))
    {'accuracy': 0.3333333333333333}
    """

    def __init__(self, samples: EvaluatedSamples, metrics: Sequence[str], exact: Mapping[str, float]) -> None:
        self.samples = samples
        self.metrics = tuple(metrics)
        self.exact = exact

    @cached_property
    def _failures(self) -> SortedRows:
        samples = self.samples
        return SortedRows(samples.correct, samples.conf, samples.is_id, samples.ood_share)

    @cached_property
    def _id_against_ood(self) -> SortedRows | None:
        """ID against OOD rows in their own order; None where the order of the failures serves."""
        samples = self.samples
        if samples.is_id is None or (samples.conf_ood is None and samples.ood_share is None):
            return None
        if samples.conf_ood is None:
            return SortedRows(samples.is_id, samples.conf, None, None)
        return SortedRows(samples.is_id, samples.conf_ood, None, None)

    @cached_property
    def _exact_on_pairs(self) -> dict[str, float]:
        """Exact values of the requested metrics that are read from pairs of thresholds."""
        return {name: self.exact[name] for name in self.metrics if name in STANDARD_WITH_PAIR}

    @cached_property
    def _grid(self) -> DoubleHistogram | None:
        """Counts on a grid of threshold pairs; None where no metric reads it, or OOD samples have weights."""
        samples = self.samples
        if (
            not self._exact_on_pairs
            or samples.is_id is None
            or samples.conf_ood is None
            or samples.ood_share is not None
        ):
            return None
        return DoubleHistogram(samples.correct, samples.conf, samples.conf_ood, samples.is_id)

    def values(self, weights: Weights) -> dict[str, float]:
        """Compute the metrics of one resample.

        Parameters
        ----------
        weights : ndarray of uint8, shape (n_samples,)
            How often each row is drawn.

        Returns
        -------
        dict of str to float
            Value of each metric; NaN where it is undefined.
        """
        failures = self._failures.sweep(weights)
        if self._id_against_ood is None:
            id_against_ood = _ood_as_loss(failures)
        else:
            id_against_ood = self._id_against_ood.sweep(weights)
        values: dict[str, float] = {}
        if self._grid is not None:
            values = self._grid.centred(weights, self._exact_on_pairs)
        for name in self.metrics:
            if name in values:
                continue
            record = info(name)
            try:
                if record.sweep is None:
                    values[name] = self._on_drawn_rows(name, weights)
                elif record.task == "ood":
                    values[name] = record.sweep(id_against_ood)
                else:
                    values[name] = record.sweep(failures)
            except UndefinedMetric:
                values[name] = math.nan
        return values

    def _on_drawn_rows(self, name: str, weights: Weights) -> float:
        """Compute a metric that has no form on a sweep."""
        rows = np.repeat(np.arange(len(weights)), weights)
        return self.samples[rows].value(name)


def evaluate(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    conf_ood: ArrayLike | None = None,
    prob: ArrayLike | None = None,
    ood_share: float | None = None,
    only: Iterable[str] | None = None,
    method: EvaluationMethod = "exact",
    nan: NaNPolicy = "error",
) -> Evaluation:
    """Compute the standard metrics of one confidence, or of a pair, from one sort.

    * Always: accuracy (of ID samples), aurc, eaurc, augrc, and, for correct predictions against failures, auroc,
      average_precision and fpr95 with either class as the positive one (suffix ``_unsafe`` for failures).
    * With ``is_id``: every OOD sample is a failure. Adds aurc_id, f1 and, for ID against OOD samples, auroc_ood,
      fpr95_ood and fpr95_unsafe_ood.
    * With ``conf_ood``: adds ds_f1 and ds_aurc of the pair, and ID-against-OOD metrics use ``conf_ood``.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether each prediction is correct; False on every OOD sample.
    conf : array-like of float, shape (n_samples,)
        Confidence, higher is safer to accept. Infinities are allowed.
    is_id : array-like of bool, shape (n_samples,), optional
        True for ID samples. By default all samples are ID.
    conf_ood : array-like of float, shape (n_samples,), optional
        A second confidence, against OOD inputs; needs ``is_id``.
    prob : array-like of float, shape (n_samples,), optional
        Probability that each prediction is correct, in [0, 1], for calibration metrics, which use ID samples alone.
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1). OOD samples are reweighted to it, except in the metrics
        of ID against OOD samples, where every sample counts once.
    only : iterable of str, str or "all", optional
        Metrics to compute instead of the standard set: any registered metric that these arrays allow. ``"all"``
        computes all of them.
    method : {"exact", "published"}, default="exact"
        ``"published"`` also computes f1, aurc_id, ds_f1 and ds_aurc as the released code of the SURE+ paper does, each
        as ``NAME_published`` beside the exact value. These depend on the scale of the confidences; see
        :func:`twofold.metrics.ds_f1_published`.
    nan : {"error", "reject"}, default="error"
        Whether a NaN confidence is an error or is ranked lowest; the result counts such samples in ``nan_rejected``.

    Returns
    -------
    Evaluation
        The values by name; NaN where a metric is undefined, with the reason.

    Raises
    ------
    InvalidInput
        If the arrays differ in length, hold NaN or impossible values, ``correct`` is True on an OOD sample,
        ``conf_ood`` comes without ``is_id``, a metric in ``only`` needs an array that is missing, or ``ood_share`` does
        not fit.
    UnknownName
        If ``only`` holds a name that is not a metric.

    Examples
    --------
    >>> result = evaluate([True, True, False], [0.9, 0.8, 0.3])
    >>> result.aurc.__round__(4), result["auroc"]
    (0.1111, 1.0)
    >>> list(evaluate([True, False], [0.9, 0.3], is_id=[True, False], only=["auroc_ood", "f1"]))
    ['auroc_ood', 'f1']
    >>> list(evaluate([True, False], [0.9, 0.3], is_id=[True, False], only=["f1"], method="published"))
    ['f1', 'f1_published']
    """
    _checks.choice(method, "method", ("exact", "published"))
    samples = _check_samples(correct, conf, is_id, conf_ood, prob, ood_share, nan)
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    chosen = _choose_metrics(only, samples)
    if method == "published":
        chosen = add_published_forms(chosen)
    for name in chosen:
        try:
            values[name] = samples.value(name)
        except UndefinedMetric as error:
            values[name], reasons[name] = math.nan, str(error)
    n_id = len(samples)
    if samples.is_id is not None:
        n_id = int(samples.is_id.sum())
    nan_rejected = 0
    if nan == "reject":
        nan_rejected = _count_nan(conf, conf_ood)
    return Evaluation(
        values_=values,
        reasons=reasons,
        n=len(samples),
        n_id=n_id,
        n_ood=len(samples) - n_id,
        nan_rejected=nan_rejected,
        ood_share=ood_share,
        better={name: info(name).better for name in values},
    )


def _check_samples(
    correct: ArrayLike,
    conf: ArrayLike,
    is_id: ArrayLike | None,
    conf_ood: ArrayLike | None,
    prob: ArrayLike | None,
    ood_share: float | None,
    nan: NaNPolicy,
) -> EvaluatedSamples:
    """Validate the arrays of one evaluation."""
    second = stated = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RejectedNaN)  # the result carries their number
        first = _checks.confidence(conf, nan=nan)
        if conf_ood is not None:
            second = _checks.confidence(conf_ood, "conf_ood", nan=nan)
    if prob is not None:
        stated = _checks.floats(prob, "prob").astype(np.float64)
    right, known = _checks.joint(correct, is_id, conf=first, conf_ood=second, prob=stated)
    if second is not None and known is None:
        raise InvalidInput("conf_ood needs is_id, which says which samples are ID")
    check_ood_share(ood_share, known)
    return EvaluatedSamples(right, first, known, second, stated, ood_share)


def _count_nan(conf: ArrayLike, conf_ood: ArrayLike | None) -> int:
    """Count the rows in which a confidence is NaN."""
    missing = np.isnan(_checks.floats(conf, "conf"))
    if conf_ood is not None:
        missing = missing | np.isnan(_checks.floats(conf_ood, "conf_ood"))
    return int(missing.sum())


def _choose_metrics(only: Iterable[str] | None, samples: EvaluatedSamples) -> list[str]:
    """List the metrics to compute: the standard ones, all that are computable, or those asked for by name."""
    if only is None:
        chosen = list(STANDARD)
        if samples.is_id is not None:
            chosen += STANDARD_WITH_ID
        if samples.conf_ood is not None:
            chosen += STANDARD_WITH_PAIR
        return chosen
    if only == "all":
        return [name for name in names() if not samples.missing_arrays(info(name))]
    chosen = list(_checks.as_names(only))
    for name in chosen:
        missing = samples.missing_arrays(info(name))
        if missing:
            raise InvalidInput(f"{name} needs {' and '.join(missing)}, which evaluate was not given")
    return chosen


def add_published_forms(metrics: Iterable[str]) -> list[str]:
    """Put the published form of each metric that has one behind it.

    Parameters
    ----------
    metrics : iterable of str
        Names of metrics.

    Returns
    -------
    list of str
        Each name once.

    Examples
    --------
    >>> add_published_forms(["aurc", "aurc_id"])
    ['aurc', 'aurc_id', 'aurc_id_published']
    """
    extended: dict[str, None] = {}
    for name in metrics:
        extended[name] = None
        form = published_form(name)
        if form is not None:
            extended[form] = None
    return list(extended)


def intervals(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    conf_ood: ArrayLike | None = None,
    ood_share: float | None = None,
    only: Iterable[str] | None = None,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    done: Callable[[], object] | None = None,
) -> dict[str, Interval]:
    """Compute the metrics of :func:`~twofold.metrics.evaluate` with bootstrap intervals.

    Rows are resampled within ID and within OOD, so that both counts stay as they are.

    Parameters
    ----------
    correct : array-like of bool, shape (n_samples,)
        Whether the prediction is correct; False on every OOD sample.
    conf : array-like of shape (n_samples,)
        Confidence; higher is safer to accept.
    is_id : array-like of bool, shape (n_samples,), optional
        Whether the sample is in-distribution; without it all samples are.
    conf_ood : array-like of shape (n_samples,), optional
        Second confidence, for OOD detection and the joint metrics.
    ood_share : float, optional
        OOD prevalence expected in deployment. OOD samples are reweighted to it, except in the metrics of ID against OOD
        samples.
    only : iterable of str, optional
        Names of the metrics; by default the standard set of ``evaluate``.
    n : int, default=1000
        Number of resamples.
    level : float, default=0.95
        Confidence level, between 0 and 1.
    seed : int, default=0
        Seed of the resampling.
    done : callable, optional
        Called without arguments after each metric, for a progress bar.

    Returns
    -------
    dict of str to Interval
        Percentile interval of each metric. A metric without a value has NaN for value and limits, and a published form
        such as ``ds_f1_published`` has NaN for its limits: it only reproduces printed numbers, which have none.

    Raises
    ------
    InvalidInput
        If the arrays do not fit together, or a metric in ``only`` needs an array that is missing.
    UnknownName
        If ``only`` holds a name that is not a metric.

    Examples
    --------
    >>> table = intervals([True, False, True, True], [0.9, 0.2, 0.8, 0.3], only=["aurc"], n=100)
    >>> table["aurc"].low <= table["aurc"].value <= table["aurc"].high
    True
    """
    samples = _check_samples(correct, conf, is_id, conf_ood, None, ood_share, "error")
    table = {}
    for name in _choose_metrics(only, samples):
        try:
            value = samples.value(name)
        except UndefinedMetric:
            value = math.nan
        if math.isnan(value) or is_published_form(name):
            table[name] = Interval(value, math.nan, math.nan, level, 0, "percentile", seed)
        else:
            table[name] = samples.interval(name, n=n, level=level, seed=seed)
        if done is not None:
            done()
    return table
