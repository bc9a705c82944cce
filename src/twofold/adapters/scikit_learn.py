"""scikit-learn: metrics for ``make_scorer``, and a classifier that knows when not to answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.metrics import make_scorer
from sklearn.utils import _safe_indexing, assert_all_finite, check_random_state, get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d, validate_data

from twofold import _checks, metrics
from twofold._checks import ArrayLike
from twofold.adapters._rows import chain_of, check_names, rows_of, values
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.gate import Decision, Gate
from twofold.outputs import Outputs
from twofold.steps import Chain, scorer

TINY = np.finfo(np.float64).tiny


def reliability_score(
    y_true: ArrayLike, y_prob: ArrayLike, *, metric: str = "augrc", score: str | Chain = "msp", labels: Any = None
) -> float:
    """A metric of the confidence of predicted probabilities, for ``make_scorer(..., response_method="predict_proba")``.

    ``y_prob`` is (N, C), or (N,) of the second of two classes. ``labels``: the classes in the order of its columns, by
    default those of ``y_true``, sorted; rows with another label are OOD. ``score`` reads log p as its logits.

    >>> reliability_score(["a", "b", "b"], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], metric="auroc")
    1.0
    """
    truth, p = np.asarray(y_true), np.asarray(y_prob, dtype=np.float64)
    if p.ndim == 1:
        p = np.column_stack([1.0 - p, p])
    classes = np.unique(truth) if labels is None else np.asarray(labels)
    if p.ndim != 2 or p.shape[1] != len(classes):
        raise InvalidInput(
            f"y_prob has shape {p.shape} and there are {len(classes)} classes in y_true; "
            "pass labels=, the classes in the order of the columns"
        )
    (name,) = check_names(metric, two=False)
    rows = rows_of(Outputs(_logits(p), _codes(truth, classes)), chain_of(score))
    value = values(rows, [name])[name]
    if np.isnan(value):
        raise UndefinedMetric(f"{metric} has no value on these {len(truth)} samples, {int(rows.correct.sum())} right")
    return value


def reliability_scorer(metric: str = "augrc", *, score: str | Chain = "msp", labels: Any = None) -> Any:
    """:func:`reliability_score` as a scikit-learn scorer, for ``cross_val_score`` or a search; greater is better.

    >>> from sklearn.dummy import DummyClassifier
    >>> X, y = np.zeros((4, 1)), [0, 0, 0, 1]
    >>> reliability_scorer("aurc")(DummyClassifier().fit(X, y), X, y)  # all equally confident: the error rate, negated
    -0.25
    """
    higher = metric == "accuracy" or metrics.info(metric.removesuffix("_ood")).better == "higher"
    given = {"metric": metric, "score": score} | ({} if labels is None else {"labels": labels})
    return make_scorer(reliability_score, response_method="predict_proba", greater_is_better=higher, **given)


class SelectiveClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any ``predict_proba`` estimator behind a :class:`~twofold.gate.Gate`.

    ``fit`` holds out a share ``validation`` of the rows of each class (at least one row in all, never a whole class),
    fits a clone of ``estimator`` on the others and the gate on what it says of those held out; with ``validation=1.0``
    the estimator is fitted already and all rows go to the gate. ``id`` and ``ood`` are scores: logits are log p, and
    features, where a score reads them, the columns of X. Without ``ood`` there is one threshold, and no promise about
    unknown inputs. Further settings are those of ``Gate.fit``.

    ``predict`` gives plain labels, ``decide`` labels and verdicts.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SelectiveClassifier(objective="coverage", coverage=0.8, random_state=0).fit(X, y)
    >>> model.decide(X[:2]).verdict
    array(['accept', 'accept'], dtype='<U7')
    """

    def __init__(
        self,
        estimator: Any = None,
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
        random_state: Any = None,
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

    def fit(self, X: Any, y: Any, X_ood: Any = None) -> Self:
        """Fit estimator and gate; ``X_ood`` are rows of no class, for the gate."""
        validate_data(self, X, skip_check_array=True)
        share = _checks.number(self.validation, "validation", 0, 1, open_low=True)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        X, y = indexable(X, y)
        check_classification_targets(y)
        inner = self._inner()
        if share == 1.0:
            check_is_fitted(inner)
            train = held = np.arange(len(y))
            self.estimator_ = inner
        else:
            train, held = _split(y, share, check_random_state(self.random_state))
            self.estimator_ = clone(inner).fit(_safe_indexing(X, train), y[train])
        self.classes_ = self.estimator_.classes_
        inside = self._outputs(_safe_indexing(X, held), y[held])
        parts = [inside] if X_ood is None else [inside, self._outputs(X_ood, np.full(_num_samples(X_ood), None))]
        learns = not all(scorer(spec).ready for spec in (self.id, self.ood) if spec is not None)
        self.gate_ = Gate.fit(
            Outputs.concat(parts),
            self.id,
            self.ood,
            train=self._outputs(_safe_indexing(X, train), y[train]) if learns else None,
            objective=self.objective,  # type: ignore[arg-type]
            risk=self.risk,
            delta=self.delta,
            coverage=self.coverage,
            costs=self.costs,
            ood_share=self.ood_share,
        )
        return self

    def predict_proba(self, X: Any) -> npt.NDArray[Any]:
        """What the estimator says."""
        check_is_fitted(self)
        p = np.asarray(self.estimator_.predict_proba(X))  # first: it knows best what is wrong with X
        validate_data(self, X, reset=False, skip_check_array=True)
        return p

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of every row, trusted or not."""
        chosen = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def decide(self, X: Any) -> Decision:
        """The most probable class of every row, its verdict (accept, unsure, unknown) and confidences."""
        check_is_fitted(self)
        decision = self.gate_.decide(self._outputs(X))
        return dataclasses.replace(decision, labels=self.classes_[decision.labels])

    def _inner(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression()

    def _outputs(self, X: Any, y: Any = None) -> Outputs:
        logits = _logits(self.predict_proba(X))
        reads = any("features" in scorer(spec).needs for spec in (self.id, self.ood) if spec is not None)
        columns = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64) if reads else None
        return Outputs(logits, None if y is None else _codes(y, self.classes_), columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._inner())
        tags.input_tags = inner.input_tags
        tags.classifier_tags = inner.classifier_tags
        return tags


def _logits(p: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.log(np.maximum(np.asarray(p, dtype=np.float64), TINY))


def _codes(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The place of each label among the classes, -1 for one that is none of them."""
    place = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([place.get(label, -1) for label in y.tolist()], dtype=np.int64)


def _split(y: npt.NDArray[Any], share: float, random: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows to train on and rows held out, by class."""
    order = random.permutation(len(y))
    _, codes, counts = np.unique(y[order], return_inverse=True, return_counts=True)
    taken = np.minimum(np.round(share * counts), counts - 1).astype(int)
    if not taken.any():
        taken[counts.argmax()] = min(1, counts.max() - 1)
    if not taken.any():
        raise InvalidInput(f"y has no class with two rows or more, so none can be held out; got n_samples={len(y)}")
    place = np.empty(len(y), dtype=int)  # of each row among those of its class
    for c in range(len(counts)):
        place[codes == c] = np.arange(counts[c])
    held = place < taken[codes]
    return np.sort(order[~held]), np.sort(order[held])
