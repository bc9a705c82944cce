"""Projection filtering: the whole grid of the paper's Table 3, cell by cell, against explicit projections."""

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.scores.registry import PROJECTIONS

CLASSES, WIDTH, SHARE = 3, 6, 0.8
ALL = ("global", "class", "class_pred", "class_avg")
NOT_BY_CLASS = ("global", "class_pred", "class_avg")
TABLE_3 = {  # score: the columns that the table fills
    "cosine_weight": ALL,
    "cosine_mean": ALL,
    "energy": ALL,
    "msp": ALL,
    "mls": ALL,
    "entropy": ALL,
    "gen": ALL,
    "renyi": ALL,
    "guessing": ALL,
    "collision": ALL,
    "mds": NOT_BY_CLASS,
    "nnguide": NOT_BY_CLASS,
    "fdbd": NOT_BY_CLASS,
    "pnml": NOT_BY_CLASS,
    "gradnorm": NOT_BY_CLASS,
    "pca_error": (),
    "kpca_error": (),
    "vim": (),
    "neco": (),
    "residual": (),
    "confidnet": (),
}
FILLED = [(score, kind) for score, kinds in TABLE_3.items() for kind in kinds]
EMPTY = [(score, kind) for score, kinds in TABLE_3.items() for kind in ALL if kind not in kinds]


def world(n=120, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    spread = np.array([3.0, 1.5, 1.0, 0.3, 0.2, 0.1])
    features = rng.normal(size=(n, WIDTH)) * spread + 2 * np.eye(CLASSES, WIDTH)[labels] + 1
    head = Head(np.random.default_rng(5).normal(size=(CLASSES, WIDTH)), np.arange(CLASSES) / 10)
    return Outputs(head.logits(features), labels, features, head)


def space(rows):
    """Mean and projection matrix of the fewest eigenvectors that explain the share."""
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    values, vectors = values[::-1], vectors[:, ::-1]
    k = next(i for i in range(1, WIDTH + 1) if values[:i].sum() / values.sum() >= SHARE)
    return mean, vectors[:, :k] @ vectors[:, :k].T


def by_class(train, h):
    """(C, N, D): the rows filtered by the subspace of each class."""
    x, y = np.asarray(train.features), np.asarray(train.labels)
    spaces = [space(x[y == c]) for c in range(CLASSES)]
    return np.stack([(h - m) @ q + m for m, q in spaces]), np.stack([m for m, _ in spaces])


def explicit(kind, train, outputs):
    """The outputs with every row filtered by hand."""
    h = np.asarray(outputs.features)
    if kind == "global":
        mean, q = space(np.asarray(train.features))
        filtered = np.stack([q @ (row - mean) + mean for row in h])
    else:
        every, _ = by_class(train, h)
        filtered = (
            every.mean(axis=0) if kind == "class_avg" else every[np.asarray(outputs.predictions), np.arange(len(h))]
        )
    head = outputs.head
    return Outputs(head.logits(filtered), outputs.labels, filtered, head, predictions=outputs.predictions)


def test_the_table_names_the_kinds():
    assert ALL == PROJECTIONS
    assert len(FILLED) == 10 * 4 + 5 * 3


@pytest.mark.parametrize(("score", "kind"), FILLED)
def test_each_filled_cell_is_the_score_of_explicitly_projected_features(score, kind):
    train, test = world(), world(30, seed=1)
    got = scorer(f"project(kind={kind!r}, variance={SHARE})|{score}").fit(train).score(test)
    if kind == "class":
        every, means = by_class(train, np.asarray(test.features))
        w, b = np.asarray(test.head.weight), np.asarray(test.head.bias)
        if score in ("cosine_weight", "cosine_mean"):
            target = w if score == "cosine_weight" else means
            cosines = [
                [
                    every[c, i] @ target[c] / np.linalg.norm(every[c, i]) / np.linalg.norm(target[c])
                    for c in range(CLASSES)
                ]
                for i in range(len(test))
            ]
            assert got == pytest.approx(np.max(cosines, axis=1), rel=1e-9)
            return
        logits = np.array([[every[c, i] @ w[c] + b[c] for c in range(CLASSES)] for i in range(len(test))])
        by_hand = Outputs(logits, predictions=test.predictions)
        assert got == pytest.approx(scorer(score).score(by_hand), rel=1e-9)
        return
    fitted = scorer(score).fit(explicit(kind, train, train))
    want = fitted.score(explicit(kind, train, test))
    if (score, kind) == ("fdbd", "class_pred"):  # measured from the mean of the predicted class
        h = np.asarray(explicit(kind, train, test).features)
        _, means = by_class(train, h)
        x = np.asarray(explicit(kind, train, train).features)
        from_all = np.linalg.norm(h - x.mean(axis=0), axis=1)
        want = want * from_all / np.linalg.norm(h - means[np.asarray(test.predictions)], axis=1)
    assert got == pytest.approx(want, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(("score", "kind"), EMPTY)
def test_each_empty_cell_is_an_error(score, kind):
    with pytest.raises(InvalidInput, match=rf"project\(kind='{kind}'\) cannot stand before {score}, which allows"):
        scorer(f"project(kind={kind!r})|{score}")


@pytest.mark.parametrize("kind", ALL)
def test_the_whole_variance_changes_nothing(kind):
    train, test = world(), world(30, seed=1)
    got = scorer(f"project(kind={kind!r}, variance=1.0)|energy").fit(train).score(test)
    assert got == pytest.approx(scorer("energy").score(test), rel=1e-9)


def test_features_are_filtered_only_where_they_are_needed(monkeypatch):
    from twofold.scores.transforms import Project

    train = world()
    chain = scorer("project|energy").fit(train)
    wanted = []
    apply_wanted = Project.apply_wanted

    def spy(self, asked, arrays):
        wanted.append(sorted(asked))
        return apply_wanted(self, asked, arrays)

    monkeypatch.setattr(Project, "apply_wanted", spy)
    chain.score(train)
    scorer("project|mds").fit(train).score(train)
    assert wanted[0] == ["logits"]
    assert "features" in wanted[-1]


def test_one_linear_head_gives_the_logits():
    train, test = world(), world(30, seed=1)
    for kind in ("global", "class", "class_avg"):
        step = scorer(f"project(kind={kind!r})|energy").fit(train).steps[0]
        changed = step.run(test, {"logits"})
        assert set(changed) == {"logits", "head"}
        assert changed["head"].logits(np.asarray(test.features)) == pytest.approx(changed["logits"])


def test_classes_without_rows_and_other_errors():
    train, test = world(), world(30, seed=1)
    short = train[np.flatnonzero(np.asarray(train.labels) != 2)]
    for kind in ("class", "class_avg"):
        assert np.isfinite(scorer(f"project(kind={kind!r})|energy").fit(short).score(test)).all()
    by_hand = scorer("project(kind='class')|energy").fit(short).steps[0].run(test, {"logits"})["logits"]
    assert by_hand[:, 2] == pytest.approx(np.asarray(test.logits)[:, 2])  # keeps its own logit
    assert 2 in test.predictions
    kept = short.replace(predictions=np.zeros(len(short), int))
    with pytest.raises(InvalidInput, match="class 2 is predicted, and had no training row"):
        scorer("project(kind='class_pred')|energy").fit(kept).score(test)
    with pytest.raises(InvalidInput, match="needs labels"):
        scorer("project(kind='class')|energy").fit(train.replace(labels=None))
    with pytest.raises(InvalidInput, match=r"variance must be in \(0, 1\]"):
        scorer("project(variance=0)|energy").fit(train)
    with pytest.raises(InvalidInput, match="kind: no choice 'local'"):
        scorer("project(kind='local')|energy").fit(train)
