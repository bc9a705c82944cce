"""scikit-learn: scorers in a cross-validation, and the selective classifier through scikit-learn's own checks."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from twofold.adapters import SelectiveClassifier, reliability_score, reliability_scorer
from twofold.errors import InvalidInput, UndefinedMetric, UnknownName

WEIGHTS = "a random hold-out cannot treat a row of weight 2 as two rows"
WEIGHT_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}
BASE_ESTIMATORS = [
    LogisticRegression(),
    GaussianNB(),
    KNeighborsClassifier(),
    DecisionTreeClassifier(),
    RandomForestClassifier(n_estimators=5),
    HistGradientBoostingClassifier(max_iter=5),
    MLPClassifier((10,), solver="lbfgs"),
    SVC(probability=True),
    CalibratedClassifierCV(SVC(), cv=2),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


@pytest.mark.filterwarnings("ignore")  # scikit-learn's own, such as that SVC(probability=True) is deprecated
@pytest.mark.parametrize("estimator", BASE_ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_it_passes_the_estimator_checks_with_every_base_estimator(estimator):
    seeded = SelectiveClassifier(estimator, random_state=0)  # weights of 0 may leave a tree of a forest without rows
    results = check_estimator(seeded, expected_failed_checks=WEIGHT_CHECKS, on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    if isinstance(estimator, SVC):  # its own probabilities cannot be read from memory-mapped state in some versions
        alone = check_estimator(estimator, on_fail=None, on_skip=None)
        own = {result["check_name"] for result in alone if result["status"] == "failed"}
        assert set(failed) <= own & {"check_estimators_pickle"}
    else:
        assert failed == {}
    assert sum(result["status"] == "passed" for result in results) > 40


@pytest.mark.filterwarnings("ignore")
def test_it_passes_the_estimator_checks_with_a_fitted_score_and_features():
    estimator = SelectiveClassifier(GaussianNB(), id="entropy", ood="knn(k=1)")
    check_estimator(estimator, expected_failed_checks=WEIGHT_CHECKS, on_skip=None)


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


def test_a_scorer_reads_the_classes_from_the_estimator():
    X, y = load_digits(return_X_y=True)
    train = (y < 9) & (np.arange(len(y)) % 2 == 0)
    model = LogisticRegression(max_iter=500).fit(X[train], y[train])
    fold = (np.arange(len(y)) % 2 == 1) & (y != 0)  # lacks class 0 and holds the foreign class 9: nine labels again
    known = fold & (y < 9)
    expected = np.mean(model.predict(X[known]) == y[known])
    assert expected > 0.9
    assert reliability_scorer("accuracy")(model, X[fold], y[fold]) == pytest.approx(expected)
    p = model.predict_proba(X[fold])
    assert reliability_score(y[fold], p, metric="accuracy", labels=model.classes_) == pytest.approx(expected)
    outside = reliability_scorer("auroc_ood")(model, X[fold], y[fold])
    assert outside == pytest.approx(roc_auc_score(y[fold] < 9, p.max(axis=1)))


def test_a_scorer_has_classes_or_says_what_is_missing():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(X, y)
    with pytest.raises(InvalidInput, match=r"are not the classes of LogisticRegression, .*leave labels out"):
        reliability_scorer(labels=[2, 1, 0])(model, X, y)

    class Bare:
        def predict_proba(self, X):
            return model.predict_proba(X)

    with pytest.raises(InvalidInput, match="Bare has no classes_; pass labels="):
        reliability_scorer("accuracy")(Bare(), X, y)
    assert reliability_scorer("accuracy", labels=[0, 1, 2])(Bare(), X, y) == pytest.approx(model.score(X, y))
    with pytest.raises(UnknownName, match="did you mean"):
        reliability_scorer("aucr")


class Recorder(ClassifierMixin, BaseEstimator):
    """Keeps what its fit was given."""

    def fit(self, X, y, sample_weight=None, colour=None, passes=None):
        self.classes_, self.rows_ = np.unique(y), np.asarray(X)[:, 0]
        self.given_ = {"sample_weight": sample_weight, "colour": colour, "passes": passes}
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1.0 / len(self.classes_))


@pytest.mark.parametrize("routing", [False, True])
def test_weights_and_metadata_reach_the_estimator_for_the_rows_it_is_trained_on(routing):
    rows = np.arange(50)
    X, y = np.column_stack([rows, rows]), rows % 2
    with config_context(enable_metadata_routing=routing):
        inner = Recorder()
        if routing:
            inner = inner.set_fit_request(sample_weight=True, colour=True, passes=True)
        model = SelectiveClassifier(inner, random_state=0)
        model.fit(X, y, sample_weight=rows + 1.0, colour=[f"c{row}" for row in rows], passes=3)
    trained = model.estimator_
    assert len(trained.rows_) == 40
    assert trained.given_["sample_weight"].tolist() == (trained.rows_ + 1.0).tolist()
    assert list(trained.given_["colour"]) == [f"c{row}" for row in trained.rows_]
    assert trained.given_["passes"] == 3


def test_weights_change_the_estimator_as_they_change_it_alone():
    X, y = noisy(rows=300)
    weights = np.random.default_rng(0).random(300)
    model = SelectiveClassifier(LogisticRegression(), random_state=0).fit(X, y, weights)
    train = np.isin(X[:, 0], SelectiveClassifier(Recorder(), random_state=0).fit(X, y).estimator_.rows_)
    alone = LogisticRegression().fit(X[train], y[train], weights[train])
    assert model.estimator_.coef_ == pytest.approx(alone.coef_)
    assert model.estimator_.coef_ != pytest.approx(LogisticRegression().fit(X[train], y[train]).coef_)


def test_routing_wants_a_request_and_works_inside_a_search():
    X, y = noisy(rows=200)
    weights = np.ones(200)
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            SelectiveClassifier(LogisticRegression()).fit(X, y, sample_weight=weights)
        SelectiveClassifier().fit(X, y, sample_weight=weights)  # the default estimator asks for them
        inner = LogisticRegression().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        model = SelectiveClassifier(inner).set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        search = GridSearchCV(model, {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, y, sample_weight=weights)
    assert search.best_estimator_.gate_ is not None


def test_weights_that_cannot_be_used_are_mentioned():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match=r"KNeighborsClassifier\.fit takes no sample_weight"):
        SelectiveClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(150))
    fitted = LogisticRegression(max_iter=500).fit(X, y)
    with pytest.raises(InvalidInput, match="leave out sample_weight"):
        SelectiveClassifier(fitted, validation=1.0).fit(X, y, sample_weight=np.ones(150))
    with pytest.raises(InvalidInput, match=r"LinearSVC has no predict_proba; wrap it in .*CalibratedClassifierCV"):
        SelectiveClassifier(LinearSVC()).fit(X, y)


def test_a_seed_reaches_the_parts_of_the_estimator_that_have_none():
    X, y = noisy(rows=200)
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=3))
    one, two = (SelectiveClassifier(forest, random_state=1).fit(X, y).predict_proba(X) for _ in range(2))
    assert (one == two).all()
    own = SelectiveClassifier(RandomForestClassifier(n_estimators=3, random_state=7), random_state=1).fit(X, y)
    assert own.estimator_.random_state == 7
    assert forest.get_params()["randomforestclassifier__random_state"] is None


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


@pytest.mark.parametrize("ood", [None, "gen", "knn"])
def test_the_selective_classifier_becomes_one_onnx_file(ood, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    X, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    forest = RandomForestClassifier(n_estimators=10, random_state=0)
    model = SelectiveClassifier(forest, ood=ood, validation=0.4, random_state=0, objective="coverage", coverage=0.8)
    model.fit(X, words, X_ood=None if ood is None else X[:20] + 30)
    model.to_onnx(tmp_path / "gate.onnx")
    session = runtime.InferenceSession(str(tmp_path / "gate.onnx"), providers=["CPUExecutionProvider"])
    rows = np.vstack([X, X + 30])
    label, verdict = session.run(["label", "verdict"], {"inputs": rows})
    decision = model.decide(rows)
    assert model.classes_[label].tolist() == decision.labels.tolist()
    assert np.array(["accept", "unsure", "unknown"])[verdict].tolist() == decision.verdict.tolist()
