"""Use twofold in scikit-learn: metrics for ``make_scorer``, and a classifier with a reject option."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, assert_all_finite, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from twofold import _checks, metrics
from twofold._checks import AnyArray, ArrayLike
from twofold._math import SMALLEST_NORMAL
from twofold.adapters._rows import check_metrics, evaluate_rows, ready_chain, score_rows
from twofold.errors import InvalidInput, MissingExtra, UndefinedMetric
from twofold.gate import Decision, Gate
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, scorer

Estimator: TypeAlias = Any  # scikit-learn has no types
Matrix: TypeAlias = Any  # an array, a sparse matrix or a data frame of shape (n_samples, n_features)
RandomState: TypeAlias = int | np.random.RandomState | None


def reliability_score(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    *,
    metric: str = "augrc",
    score: str | Chain = "msp",
    labels: ArrayLike | None = None,
) -> float:
    """Measure how well the confidence of predicted probabilities separates correct from wrong predictions.

    To score an estimator, use :func:`reliability_scorer`, which knows the estimator's classes.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels. A label that is none of ``labels`` is out-of-distribution.
    y_prob : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; one column is that of the second of two classes.
    metric : str, default="augrc"
        A metric of :func:`twofold.metrics.names`.
    score : str or Chain, default="msp"
        The confidence, which reads log p as its logits.
    labels : array-like of shape (n_classes,), optional
        The classes in the order of the columns. By default the sorted labels of ``y_true``: pass ``labels`` whenever
        ``y_true`` may lack a class or hold a foreign one.

    Returns
    -------
    float
        The value of the metric.

    Raises
    ------
    UnknownName
        If there is no such metric or score.
    InvalidInput
        If the number of columns is not the number of classes, or the metric or score needs more than probabilities.
    UndefinedMetric
        If the metric is undefined on these samples, such as AUROC where every prediction is correct.

    Examples
    --------
    >>> reliability_score(["a", "b", "b"], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], metric="auroc")
    1.0
    """
    truth, p = np.asarray(y_true), np.asarray(y_prob, dtype=np.float64)
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    if labels is None:
        source, classes = "y_true", np.unique(truth)
    else:
        source, classes = "labels", np.asarray(labels)
    if p.ndim != 2 or p.shape[1] != len(classes):
        raise InvalidInput(
            f"y_prob has shape {p.shape} and there are {len(classes)} classes in {source}; "
            "pass labels=, the classes in the order of the columns"
        )
    (name,) = check_metrics(metric, two=False)
    rows = score_rows(Outputs(_logits(p), _codes(truth, classes)), ready_chain(score))
    value = evaluate_rows(rows, [name])[name]
    if np.isnan(value):
        raise UndefinedMetric(f"{metric} has no value on these {len(truth)} samples, {int(rows.correct.sum())} correct")
    return value


@dataclass(frozen=True)
class _ReliabilityScorer:
    """Score an estimator for scikit-learn, taking the classes from the estimator."""

    metric: str
    score: str | Chain
    labels: ArrayLike | None = None

    def __call__(self, estimator: Estimator, X: Matrix, y_true: ArrayLike) -> float:
        value = reliability_score(
            y_true,
            estimator.predict_proba(X),
            metric=self.metric,
            score=self.score,
            labels=self._classes_of(estimator),
        )
        if metrics.info(self.metric).better == "higher":
            return value
        return -value

    def _classes_of(self, estimator: Estimator) -> ArrayLike:
        """Return the classes in the order of the estimator's columns."""
        kind = type(estimator).__name__
        own = getattr(estimator, "classes_", None)
        if own is None:
            if self.labels is None:
                raise InvalidInput(f"{kind} has no classes_; pass labels=, the classes in the order of its columns")
            return self.labels
        if self.labels is not None:
            labels = np.asarray(self.labels).tolist()
            classes = np.asarray(own).tolist()
            if labels != classes:
                raise InvalidInput(
                    f"labels={labels} are not the classes of {kind}, {classes}; "
                    "leave labels out, the scorer reads them from the estimator"
                )
        return own


def reliability_scorer(
    metric: str = "augrc", *, score: str | Chain = "msp", labels: ArrayLike | None = None
) -> Callable[[Estimator, Matrix, ArrayLike], float]:
    """Make a scikit-learn scorer of :func:`reliability_score`, for ``cross_val_score`` or a search.

    The classes are those of the fitted estimator (``estimator.classes_``). A row whose label is none of them, such as
    one of a class that the training fold lacks, is out-of-distribution.

    Parameters
    ----------
    metric : str, default="augrc"
        A metric of :func:`twofold.metrics.names`.
    score : str or Chain, default="msp"
        The confidence, which reads log p as its logits.
    labels : array-like of shape (n_classes,), optional
        The classes in the order of the columns, for an estimator without ``classes_``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y)``; greater is better, so metrics where lower is better are negated.

    Raises
    ------
    UnknownName
        If there is no such metric.
    InvalidInput
        If the metric or score needs more than probabilities; when called, if ``labels`` are not the estimator's
        classes.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = np.zeros((4, 1)), [0, 0, 0, 1]
    >>> reliability_scorer("aurc")(DummyClassifier().fit(X, y), X, y)  # all equally confident: the error rate, negated
    -0.25
    """
    (name,) = check_metrics(metric, two=False)
    ready_chain(score)
    return _ReliabilityScorer(name, score, labels)


class SelectiveClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Put any ``predict_proba`` estimator behind a :class:`~twofold.gate.Gate`.

    ``fit`` holds out a share of the rows of each class (at least one row in all, never a whole class), fits a clone of
    the estimator on the others, and fits the gate on the predictions for those held out. ``predict`` returns plain
    labels, ``decide`` labels and verdicts.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, default=LogisticRegression()
        The classifier. It must be fitted already if ``validation`` is 1.
    id : str, default="msp"
        The score of failures. Its logits are log p; its features, where it reads them, are the columns of X.
    ood : str, optional
        The score of OOD samples, likewise. Without it there is one threshold, and no promise about unknown inputs.
    validation : float in (0, 1], default=0.2
        The share of rows held out; with 1.0 all rows go to the gate, and the estimator is not fitted.
    objective : {"f1", "risk", "coverage", "cost"}, default="f1"
        What the thresholds are chosen for, as in ``Gate.fit``.
    risk : float, optional
        Largest selective risk, in [0, 1); required by ``objective="risk"``.
    delta : float, optional
        Guarantee the risk with confidence 1 - ``delta``, for ``objective="risk"``; without it the risk is estimated.
    coverage : float, optional
        Least ID coverage, in (0, 1]; required by ``objective="coverage"``.
    costs : mapping or tuple of 3 floats, optional
        Cost of accepting a wrong label, of accepting an OOD input, and of rejecting any input (keys wrong, ood,
        reject); required by ``objective="cost"``.
    ood_share : float, optional
        OOD prevalence expected in deployment, by default that of the data passed to ``fit``.
    random_state : int, RandomState or None, default=None
        Chooses the rows held out, and seeds the random states of the estimator that are None.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        Its classes.
    gate_ : Gate
        The fitted gate.

    Notes
    -----
    Sample weights go to the estimator alone; thresholds count every held-out row once. A row of weight 2 is held out as
    one row, two equal rows may be split, so weights and repetition are not equivalent: declare the two checks
    ``check_sample_weight_equivalence_on_dense_data`` and ``..._on_sparse_data`` as ``expected_failed_checks`` of
    scikit-learn's ``check_estimator``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SelectiveClassifier(objective="coverage", coverage=0.8, random_state=0).fit(X, y)
    >>> model.decide(X[:2]).verdict
    array(['accept', 'accept'], dtype='<U7')
    """

    def __init__(
        self,
        estimator: Estimator = None,
        *,
        id: str = "msp",  # noqa: A002 - the name that Gate.fit uses
        ood: str | None = None,
        validation: float = 0.2,
        objective: str = "f1",
        risk: float | None = None,
        delta: float | None = None,
        coverage: float | None = None,
        costs: Mapping[str, float] | tuple[float, float, float] | None = None,
        ood_share: float | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.id = id
        self.ood = ood
        self.validation = validation
        self.objective = objective
        self.risk = risk
        self.delta = delta
        self.coverage = coverage
        self.costs = costs
        self.ood_share = ood_share
        self.random_state = random_state

    def fit(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        X_ood: Matrix = None,
        **fit_params: object,
    ) -> Self:
        """Fit the estimator and the gate.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs of known classes.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights for the estimator's ``fit``. If that takes none, they are ignored with a warning.
        X_ood : array-like of shape (n_unknown, n_features), optional
            Inputs of no class, for the gate.
        **fit_params
            Passed to the estimator's ``fit``; with scikit-learn's metadata routing enabled, as it requests. Values that
            come one per row are cut to the rows the estimator is trained on.

        Returns
        -------
        SelectiveClassifier
            The fitted classifier itself.

        Raises
        ------
        InvalidInput
            If no class has two rows, the estimator has no ``predict_proba``, or weights or parameters are passed for an
            estimator that is fitted already.
        Infeasible
            If no thresholds meet the objective, as in ``Gate.fit``.

        Examples
        --------
        >>> X, y = np.array([[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]]), ["no", "no", "no", "yes", "yes", "yes"]
        >>> model = SelectiveClassifier(validation=0.4, random_state=0).fit(X, y)
        >>> model.predict([[0.0], [1.0]])
        array(['no', 'yes'], dtype='<U3')
        """
        validate_data(self, X, skip_check_array=True)
        share = _checks.number(self.validation, "validation", 0, 1, open_low=True)
        targets: AnyArray = column_or_1d(y, warn=True)
        assert_all_finite(targets, input_name="y")
        X, targets = indexable(X, targets)
        check_classification_targets(targets)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        inner = self._inner()
        if share == 1.0:
            if sample_weight is not None or fit_params:
                raise InvalidInput(
                    "validation=1.0 does not fit the estimator; leave out sample_weight and fit parameters"
                )
            check_is_fitted(inner)
            train = held = np.arange(len(targets))
            self.estimator_ = inner
        else:
            random_state = check_random_state(self.random_state)
            train, held = _split(targets, share, random_state)
            self.estimator_ = clone(inner)
            if self.random_state is not None:
                _seed_random_states(self.estimator_, random_state)
            options = _check_method_params(X, self._fit_options(inner, sample_weight, fit_params), indices=train)
            self.estimator_.fit(_safe_indexing(X, train), targets[train], **options)
        if not hasattr(self.estimator_, "predict_proba"):
            raise InvalidInput(
                f"{type(inner).__name__} has no predict_proba; wrap it in sklearn.calibration.CalibratedClassifierCV"
            )
        self.classes_ = self.estimator_.classes_
        inside = self._outputs(_safe_indexing(X, held), targets[held])
        parts = [inside]
        if X_ood is not None:
            no_class = np.full(_num_samples(X_ood), None)
            parts.append(self._outputs(X_ood, no_class))
        train_outputs = None
        if not all(chain.ready for chain in self._chains()):
            train_outputs = self._outputs(_safe_indexing(X, train), targets[train])
        self.gate_ = Gate.fit(
            Outputs.concat(parts),
            self.id,
            self.ood,
            train=train_outputs,
            objective=self.objective,  # type: ignore[arg-type]
            risk=self.risk,
            delta=self.delta,
            coverage=self.coverage,
            costs=self.costs,
            ood_share=self.ood_share,
        )
        return self

    def predict_proba(self, X: Matrix) -> AnyArray:
        """Predict the estimator's probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities in the order of ``classes_``.
        """
        check_is_fitted(self)
        p = np.asarray(self.estimator_.predict_proba(X))  # first, since its errors about X are the most specific
        validate_data(self, X, reset=False, skip_check_array=True)
        return p

    def predict(self, X: Matrix) -> AnyArray:
        """Predict the most probable class of every row, whatever the verdict.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels as in ``classes_``.
        """
        chosen = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def decide(self, X: Matrix) -> Decision:
        """Decide on every row: its most probable class, its verdict and its confidences.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        Decision
            ``labels`` as in ``classes_``, ``verdict`` (accept, unsure or unknown), ``conf_id`` and ``conf_ood``.
        """
        check_is_fitted(self)
        decision = self.gate_.decide(self._outputs(X))
        return dataclasses.replace(decision, labels=self.classes_[decision.labels])

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator and its gate to one ONNX file, through skl2onnx.

        The input of the graph is ``inputs``, float64 of shape (n_samples, n_features). Its outputs are ``label`` (the
        place in ``classes_``), ``verdict`` (0 accept, 1 unsure, 2 unknown), ``conf_id`` and, with two scores,
        ``conf_ood``.

        Parameters
        ----------
        path : str or path-like
            The file to write.

        Raises
        ------
        MissingExtra
            If torch, onnx or skl2onnx is not installed.
        InvalidInput
            If skl2onnx cannot convert the estimator, or ONNX cannot hold a score.
        """
        check_is_fitted(self)
        try:
            from twofold.nn.onnx.estimators import EstimatorParts, estimator_to_onnx
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingExtra('an ONNX file needs torch: pip install "twofold[torch]"') from error
        estimator_to_onnx(self.gate_, EstimatorParts(self.estimator_), path)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return what scikit-learn's metadata routing passes on: the parameters of ``fit``, to those of the estimator.

        Returns
        -------
        sklearn.utils.metadata_routing.MetadataRouter
            The router.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add_self_request(self).add(estimator=self._inner(), method_mapping=mapping)

    def _inner(self) -> Estimator:
        if self.estimator is not None:
            return self.estimator
        from sklearn.linear_model import LogisticRegression

        inner = LogisticRegression()
        if get_config()["enable_metadata_routing"]:
            inner.set_fit_request(sample_weight=True)
        return inner

    def _fit_options(
        self, inner: Estimator, sample_weight: ArrayLike | None, fit_params: dict[str, object]
    ) -> dict[str, object]:
        """Return the keyword arguments of the estimator's ``fit``."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", sample_weight=sample_weight, **fit_params)
            return dict(routed.estimator.fit)
        options = dict(fit_params)
        if sample_weight is None:
            return options
        if has_fit_parameter(inner, "sample_weight"):
            options["sample_weight"] = sample_weight
        else:
            warnings.warn(f"{type(inner).__name__}.fit takes no sample_weight; the weights are ignored", stacklevel=3)
        return options

    def _outputs(self, X: Matrix, y: AnyArray | None = None) -> Outputs:
        logits = _logits(self.predict_proba(X))
        labels = features = None
        if y is not None:
            labels = _codes(y, self.classes_)
        if any("features" in chain.needs for chain in self._chains()):
            if hasattr(X, "toarray"):  # a sparse matrix
                X = X.toarray()
            features = np.asarray(X, dtype=np.float64)
        return Outputs(logits, labels, features)

    def _chains(self) -> list[Chain]:
        """Return the scores: that of failures, and that of OOD samples if there is one."""
        chains = [scorer(self.id)]
        if self.ood is not None:
            chains.append(scorer(self.ood))
        return chains

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._inner())
        tags.input_tags = inner.input_tags
        tags.no_validation = inner.no_validation
        tags.classifier_tags = inner.classifier_tags
        if tags.classifier_tags is not None:
            tags.classifier_tags.multi_label = False  # a verdict is about one label
        return tags


def _logits(p: AnyArray) -> npt.NDArray[np.float64]:
    return np.log(np.maximum(np.asarray(p, dtype=np.float64), SMALLEST_NORMAL))


def _codes(y: AnyArray, classes: AnyArray) -> npt.NDArray[np.int64]:
    """Return the position of each label among the classes, -1 for one that is none of them."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in y.tolist()], dtype=np.int64)


def _seed_random_states(estimator: Estimator, random_state: np.random.RandomState) -> None:
    """Seed each random state of the estimator and its parts that is None."""
    for name, value in sorted(estimator.get_params(deep=True).items()):
        is_random_state = name == "random_state" or name.endswith("__random_state")
        if is_random_state and value is None:
            estimator.set_params(**{name: random_state.randint(np.iinfo(np.int32).max)})


def _split(y: AnyArray, share: float, random: np.random.RandomState) -> tuple[AnyArray, AnyArray]:
    """Choose rows to train on and rows to hold out, by class."""
    order = random.permutation(len(y))
    _, codes, counts = np.unique(y[order], return_inverse=True, return_counts=True)
    taken = np.minimum(np.round(share * counts), counts - 1).astype(int)
    if not taken.any():
        taken[counts.argmax()] = min(1, counts.max() - 1)
    if not taken.any():
        raise InvalidInput(f"y has no class with two rows or more, so none can be held out; got n_samples={len(y)}")
    place = np.empty(len(y), dtype=int)  # position of each row among those of its class
    for c in range(len(counts)):
        place[codes == c] = np.arange(counts[c])
    held = place < taken[codes]
    return np.sort(order[~held]), np.sort(order[held])
