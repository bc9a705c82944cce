"""scikit-learn: scorers in a cross-validation, and the selective classifier through scikit-learn's own checks."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from twofold.adapters import SelectiveClassifier, reliability_score, reliability_scorer
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName


@parametrize_with_checks([SelectiveClassifier(), SelectiveClassifier(GaussianNB(), id="entropy", ood="knn(k=1)")])
def test_it_passes_the_estimator_checks(estimator, check):
    check(estimator)


def noisy(seed=0, classes=3, rows=900):
    return make_classification(
        rows, 8, n_informative=5, n_classes=classes, flip_y=0.2, class_sep=0.8, random_state=seed
    )


def slow_aurc(right, conf):
    """The mean over samples of the risk among those at least as confident."""
    return np.mean([np.mean(~right[conf >= c]) for c in conf])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_scorer_gives_what_a_loop_gives(classes):
    X, y = noisy(classes=classes)
    names = np.array(["x", "a", "m"])[y]  # the classes in another order than their numbers
    model = LogisticRegression().fit(X[:600], names[:600])
    p = model.predict_proba(X[600:])
    right = model.predict(X[600:]) == names[600:]
    assert reliability_scorer("aurc")(model, X[600:], names[600:]) == pytest.approx(-slow_aurc(right, p.max(axis=1)))
    assert reliability_scorer("auroc")(model, X[600:], names[600:]) == pytest.approx(
        roc_auc_score(right, p.max(axis=1))
    )
    ours = make_scorer(reliability_score, response_method="predict_proba", metric="accuracy")
    assert ours(model, X[600:], names[600:]) == pytest.approx(right.mean())


def test_calibration_error_is_the_gap_of_a_bin():
    p = np.array([[0.7, 0.3]] * 10)
    assert reliability_score([0] * 6 + [1] * 4, p, metric="ece") == pytest.approx(0.1)


def test_scorers_work_in_cross_validation_and_search():
    X, y = noisy(rows=300)
    folds = cross_val_score(LogisticRegression(), X, y, scoring=reliability_scorer("augrc"), cv=3)
    assert folds.shape == (3,)
    assert ((folds <= 0) & (folds >= -0.5)).all()
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 4]}, scoring=reliability_scorer())
    assert search.fit(X, y).best_params_["max_depth"] == 4


def test_labels_say_what_the_columns_are_and_who_is_unknown():
    p = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]
    with pytest.raises(InvalidInput, match="pass labels="):
        reliability_score(["a", "b", "c"], p)
    assert reliability_score(["a", "b", "c"], p, metric="auroc_ood", labels=["a", "b"]) == 1.0
    assert reliability_score(["a", "b", "c"], p, metric="accuracy", labels=["a", "b"]) == 1.0
    with pytest.raises(UndefinedMetric, match="auroc has no value on these 2"):
        reliability_score(["a", "b"], p[:2], metric="auroc")
    with pytest.raises(UnknownName, match="did you mean"):
        reliability_score(["a", "b"], p[:2], metric="aucr")


def test_accepted_answers_are_more_often_right_and_labels_stay_plain():
    X, y = noisy(rows=3000)
    names = np.array(["x", "a", "m"])[y]
    a, b, u, v = train_test_split(X, names, random_state=0)
    model = SelectiveClassifier(objective="risk", risk=0.15, random_state=0).fit(a, u)
    decision = model.decide(b)
    accepted = decision.verdict == "accept"
    assert set(decision.verdict) == {"accept", "unsure"}
    assert (decision.labels == model.predict(b)).all()
    assert (model.predict(b) == model.estimator_.predict(b)).all()
    right = model.predict(b) == v
    assert 0.05 < accepted.mean() < 0.95
    assert 1 - right[accepted].mean() < 0.2 < 1 - right.mean()


def test_thresholds_come_from_rows_the_estimator_has_not_seen():
    X, y = noisy(rows=2000)
    tree = DecisionTreeClassifier(random_state=0)  # right on every row it has seen, about 60 % on others
    model = SelectiveClassifier(tree, random_state=0).fit(X, y)
    assert sum(model.gate_.promise.known) == 400
    assert model.gate_.promise.seen_risk > 0.2
    seen = SelectiveClassifier(clone(tree).fit(X, y), validation=1.0).fit(X, y)
    assert seen.gate_.promise.seen_risk == 0.0


def test_rows_of_no_class_are_told_apart_by_features():
    X, y = load_digits(return_X_y=True)
    known, unknown = y < 7, y >= 7
    inside, outside = X[known], X[unknown]
    model = SelectiveClassifier(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)), ood="knn(k=5)", random_state=0
    )
    model.fit(inside[::2], y[known][::2], X_ood=outside[::2])
    verdicts = model.decide(np.concatenate([inside[1::2], outside[1::2]])).verdict
    count = len(inside[1::2])
    assert (verdicts[:count] == "accept").mean() > 0.75
    assert (verdicts[count:] == "unknown").mean() > 0.7
    assert sum(model.gate_.promise.outside) == len(outside[::2])


def test_data_frames_reach_the_estimator_with_their_columns():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    iris = load_iris()
    frame = pd.DataFrame(iris.data, columns=["a", "b", "c", "d"])
    inner = make_pipeline(make_column_transformer((StandardScaler(), ["c", "d"])), LogisticRegression())
    model = SelectiveClassifier(inner, random_state=0).fit(frame, iris.target)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert model.score(frame, iris.target) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


def test_what_cannot_be_fitted_says_so():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidInput, match="validation"):
        SelectiveClassifier(validation=0.0).fit(X, y)
    with pytest.raises(InvalidInput, match="no class with two rows"):
        SelectiveClassifier().fit(X[:2], [0, 1])
    with pytest.raises(NotFittedError):
        SelectiveClassifier(LogisticRegression(), validation=1.0).fit(X, y)
    with pytest.raises(NotFittedError):
        SelectiveClassifier().decide(X)


def test_the_same_seed_gives_the_same_gate():
    X, y = noisy()
    one, two, other = (SelectiveClassifier(random_state=s).fit(X, y).gate_ for s in (1, 1, 2))
    assert one.taus() == two.taus() != other.taus()
    assert SelectiveClassifier(DummyClassifier(strategy="prior")).fit(X, y).decide(X).verdict[0] == "accept"
