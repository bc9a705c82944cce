"""Compute the standard set of metrics from one sort, as a result that prints and converts to dict, JSON and pandas."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from twofold import _checks
from twofold._checks import ArrayLike, NaNPolicy
from twofold.errors import InvalidInput, MissingExtra, RejectedNaN, UndefinedMetric, UnknownName
from twofold.metrics._registry import MetricInfo, coverage_note, info, names
from twofold.metrics._sweep import Sweep, sweep, truth_sweep

_FAILURES = (
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
)
_WITH_ID = ("aurc_id", "f1", "auroc_ood", "fpr95_ood", "fpr95_unsafe_ood")
_WITH_TWO = ("ds_f1", "ds_aurc")


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

    def to_dict(self) -> dict[str, Any]:
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
        data["metrics"] = {k: None if math.isnan(v) else v for k, v in self.values_.items()}
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

    def __str__(self) -> str:
        width = max(map(len, self.values_), default=0)
        arrows = {"higher": "↑", "lower": "↓"}
        head = f"{self.n} samples ({self.n_id} ID, {self.n_ood} OOD)"
        if self.nan_rejected:
            head += f", {self.nan_rejected} with NaN confidence ranked lowest"
        rows = [head]
        for name, value in self.values_.items():
            shown = f"undefined: {self.reasons[name]}" if name in self.reasons else f"{value:.5f}"
            rows.append(f"{name:<{width}} {arrows.get(self.better.get(name, ''), ' ')} {shown}")
        note = coverage_note(self.values_)
        if note:
            rows.append(note)
        return "\n".join(rows)

    __repr__ = __str__


def evaluate(
    correct: ArrayLike,
    conf: ArrayLike,
    *,
    is_id: ArrayLike | None = None,
    conf_ood: ArrayLike | None = None,
    ood_share: float | None = None,
    only: Iterable[str] | Literal["all"] | None = None,
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
    ood_share : float, optional
        Share of OOD samples expected in deployment, in [0, 1). OOD samples are reweighted to it, except in the metrics
        of ID against OOD samples, where every sample counts once.
    only : iterable of str, str or "all", optional
        Metrics to compute instead of the standard set: any registered metric that these arrays allow, and any detection
        metric with the suffix ``_ood``. ``"all"`` computes all of them.
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
    """
    rejected = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RejectedNaN)  # counted below and carried in the result
        given = {"conf": conf} if conf_ood is None else {"conf": conf, "conf_ood": conf_ood}
        clean = {name: _checks.confidence(value, name, nan=nan) for name, value in given.items()}
    if nan == "reject":
        rejected = int(np.any([np.isnan(_checks.floats(v, k)) for k, v in given.items()], axis=0).sum())
    right, inside = _checks.joint(correct, is_id, **clean)
    if conf_ood is not None and inside is None:
        raise InvalidInput("conf_ood needs is_id, which says which samples are ID")
    known = np.ones(len(right), bool) if inside is None else inside
    sweeps = _Sweeps(right, inside, clean["conf"], clean.get("conf_ood"), ood_share)
    values: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for name in _wanted(only, inside is not None, conf_ood is not None):
        try:
            values[name] = sweeps.value(name)
        except UndefinedMetric as error:
            values[name], reasons[name] = math.nan, str(error)
    n_id = int(known.sum())
    better: dict[str, str] = {name: _record(name).better for name in values}
    return Evaluation(values, reasons, len(right), n_id, len(right) - n_id, rejected, ood_share, better)


def _record(name: str) -> MetricInfo:
    return info(name.removesuffix("_ood"))


def _wanted(only: Iterable[str] | None, with_id: bool, with_two: bool) -> list[str]:
    if only is None:
        return ["accuracy", *_FAILURES, *(_WITH_ID if with_id else ()), *(_WITH_TWO if with_two else ())]
    have = {"correct", "truth", "conf"} | ({"is_id"} if with_id else set())
    have |= {"conf_id", "conf_ood"} if with_two else set()
    computable = [n for n in names() if set(_required(info(n))) <= have]
    if with_id:
        computable += [f"{n}_ood" for n in computable if info(n).task == "detection"]
    if only == "all":
        return ["accuracy", *computable]
    wanted = [only] if isinstance(only, str) else list(only)
    for name in wanted:
        if name == "accuracy" or name in computable:
            continue
        base = name.removesuffix("_ood")
        if base in names():
            detection = base != name and info(base).task == "detection"
            missing = ["is_id"] if detection else sorted(set(_required(info(base))) - have)
            raise InvalidInput(f"{name} needs {' and '.join(missing)}, which evaluate was not given")
        raise UnknownName.of("metric", name, ["accuracy", *computable])
    return wanted


def _required(record: MetricInfo) -> list[str]:
    import inspect

    parameters = inspect.signature(record.function).parameters
    return [a for a in record.arrays if parameters[a].default is inspect.Parameter.empty]


class _Sweeps:
    """Hold the samples, sorted at most once per confidence."""

    def __init__(self, right: Any, inside: Any, conf: Any, conf_ood: Any, ood_share: float | None):
        self.right, self.inside, self.conf, self.conf_ood, self.ood_share = (
            right,
            inside,
            conf,
            conf_ood,
            ood_share,
        )
        self.failures = sweep(right, conf, is_id=inside, ood_share=ood_share)
        self._detection: Sweep | None = None

    @property
    def detection(self) -> Sweep:
        """The sweep of ID against OOD samples, by ``conf_ood`` if there is one; every sample counts once."""
        if self._detection is None:
            if self.conf_ood is not None or self.ood_share is not None:
                conf = self.conf if self.conf_ood is None else self.conf_ood
                self._detection = truth_sweep(self.inside, conf)
            else:
                s = self.failures
                self._detection = Sweep(s.level, s.accepted, s.accepted - s.known, s.accepted)
        return self._detection

    def value(self, name: str) -> float:
        if name == "accuracy":
            if self.failures.known[-1] == 0:
                raise UndefinedMetric("accuracy needs at least one ID sample")
            return float(self.right.sum() / self.failures.known[-1])
        record = _record(name)
        if name.endswith("_ood"):
            conf = self.conf if self.conf_ood is None else self.conf_ood
            return self._of(record, self.detection, {"truth": self.inside, "conf": conf})
        arrays = {"correct": self.right, "truth": self.right, "conf": self.conf, "conf_id": self.conf}
        arrays |= {"conf_ood": self.conf_ood, "is_id": self.inside}
        return self._of(record, self.failures, arrays)

    def _of(self, record: MetricInfo, s: Sweep, arrays: dict[str, Any]) -> float:
        if record.sweep is not None:
            return record.sweep(s)
        import inspect

        settings: dict[str, Any] = {}
        if self.ood_share is not None and s is self.failures:
            if "ood_share" not in inspect.signature(record.function).parameters:
                raise UndefinedMetric(f"{record.name} has no form with ood_share")
            settings["ood_share"] = self.ood_share
        given = {a: arrays[a] for a in record.arrays if arrays.get(a) is not None}
        return record.value(**given, **settings)
