"""Worlds in which formulas break: every score gives finite numbers or one clear error, never NaN in silence."""

import re
import warnings

import numpy as np
import pytest
import test_every_score as every
from test_every_score import LEARNED, SCORES, SETTINGS

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.scores.registry import PROJECTIONS, step_names

CHAINS = [*SCORES, *SETTINGS, *(f"{t}|energy" for t in step_names("transform"))]
CHAINS += [f"project(kind={kind!r})|energy" for kind in PROJECTIONS]


def complete(features, weight, labels, bias=None, dtype=np.float64):
    """Outputs with every field, from features and a head."""
    rng = np.random.default_rng(0)
    h = np.asarray(features, dtype=dtype)
    head = Head(np.asarray(weight, dtype=dtype), bias)
    logits = head.logits(h).astype(dtype)
    passes = logits + rng.normal(size=(3, *logits.shape)).astype(dtype)
    mean = np.linalg.lstsq(
        np.asarray(weight, float), (passes.mean(axis=0) - np.asarray(head.bias)).T.astype(float), rcond=None
    )
    layers = {"passes/features": mean[0].T.astype(dtype)}
    layers |= {"penultimate/perturbed": h[::-1], "relu1/max": h[:, :1], "relu1/min": -h[:, -1:]}
    for name in ("first", "second"):
        layers |= {f"{name}/mean": h, f"{name}/var": h**2}
        layers |= {f"{name}/gram{power}": h * power for power in range(1, 6)}
    learned = {name: rng.random(len(h)).astype(dtype) for name in LEARNED}
    learned |= {f"passes/{name}": value for name, value in learned.items()}
    return Outputs(logits, labels, h, head, layers, passes, learned)


def normal(n=60, width=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    weight = np.random.default_rng(99).normal(size=(classes, width))
    labels = np.arange(n) % classes
    return np.abs(rng.normal(size=(n, width)) + 1.5 * np.maximum(weight[labels], 0)), weight, labels


def one_class():
    h, w, y = normal()
    return h, w[:1], np.zeros_like(y)


def two_classes():
    return normal(classes=2)


def duplicated_rows():
    h, w, y = normal()
    return np.repeat(h[:4], 15, axis=0), w, np.repeat(y[:4], 15)


def constant_features():
    h, w, y = normal()
    return np.ones_like(h), w, y


def dead_units():
    h, w, y = normal()
    h[:, [1, 4]] = 0.0
    return h, w, y


def all_dead():
    h, w, y = normal()
    return np.zeros_like(h), w, y


def class_without_rows():
    h, w, y = normal()
    keep = y != 3
    return h[keep], w, y[keep]


def class_never_right():
    h, w, y = normal()
    w[2] = -50.0  # never predicted
    return h, w, y


def more_features_than_rows():
    return normal(n=24, width=70)


def signed_features():
    h, w, y = normal()
    return h - h.mean(axis=0), w, y


def negative_features():
    h, w, y = normal()
    return -h, w, y


def equal_head_rows():
    h, w, y = normal()
    w[1] = w[0]
    return h, w, y


def huge_features():
    h, w, y = normal()
    return h * 1e6, w, y


def tiny_features():
    h, w, y = normal()
    return h * 1e-6, w, y


WORLDS = [
    one_class,
    two_classes,
    duplicated_rows,
    constant_features,
    dead_units,
    all_dead,
    class_without_rows,
    class_never_right,
    more_features_than_rows,
    signed_features,
    negative_features,
    equal_head_rows,
    huge_features,
    tiny_features,
]


NORMAL = [two_classes, dead_units, signed_features, class_without_rows, class_never_right, more_features_than_rows]
EXPLAINED = {  # what even normal worlds may refuse, as the docstrings say
    ("vim", more_features_than_rows): "no residual outside 24 directions",
    ("mds(covariance='total', nearest=False)", class_without_rows): "class 3 is predicted, and had no training row",
    ("pca_error(kind='class_pred', fused=True)", class_without_rows): "class 3 is predicted, and had no training row",
    ("project(kind='class_pred')|energy", class_without_rows): "class 3 is predicted, and had no training row",
    ("temperature|energy", more_features_than_rows): "no temperature fits",
    ("combood", class_without_rows): "the bank has 45 rows; choose a smaller k",
    ("combood", more_features_than_rows): "the bank has 24 rows; choose a smaller k",
}
OTHER_WIDTH = {
    "prototype": "prototype has 6 values",
    "text": "text has 6 columns",
    "negatives": "negatives has 6 columns",
}
for chain in CHAINS:
    for setting, problem in OTHER_WIDTH.items():
        if f"{setting}=((" in chain or f"{setting}=(0" in chain:
            EXPLAINED[chain, more_features_than_rows] = problem


def tried(spec, world):
    """Scores of the training set, of strange inputs and of one row; or the error."""
    train = complete(*world())
    h, w, y = world()
    strange = complete(h[::-1] * 1.7 + 0.3, w, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            chain = scorer(spec).fit(train, val=train, ood_val=strange.replace(labels=np.full(len(train), -1)))
            return [chain.score(o) for o in (train, strange, train[:1])], ""
        except InvalidInput as error:
            return [], str(error)


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("spec", CHAINS)
def test_numbers_or_one_clear_error(spec, world):
    scores, error = tried(spec, world)
    for conf in scores:
        assert (np.isfinite(conf) | (conf == np.inf)).all()  # +inf: certain, as one class alone is
    if not scores:
        assert len(error) > 20, "an error says what came and what to do"
    if world in NORMAL:
        assert EXPLAINED.get((spec, world), "") in error
        assert bool(error) == ((spec, world) in EXPLAINED), error


@pytest.mark.parametrize("spec", [spec for spec in every.SCORES if {"features", "layers"} & set(scorer(spec).needs)])
@pytest.mark.parametrize("scale", [1e19, 1e100, 1e154, 1e308 / 64])
def test_huge_features_give_scores_or_one_error(spec, scale):
    """Squares of such features leave float64, or float32 in the search for neighbours; no warning, no NaN, no inf."""

    def huge(outputs):
        layers = {key: np.asarray(table) * scale for key, table in outputs.layers.items()}
        return outputs.replace(features=np.asarray(outputs.features) * scale, head=None, layers=layers)

    train, val, ood = every.outputs(), every.outputs(seed=1), every.outputs(seed=7).replace(labels=np.full(60, -1))
    test, chain = huge(every.outputs(seed=2)), scorer(spec)
    worlds = [(train, val, ood)]
    if "head" not in chain.steps[-1].info.fit_needs:
        worlds.append((huge(train), huge(val), huge(ood)))
    for one, two, three in worlds:
        problem = ""
        try:
            conf = chain.fit(one, val=two, ood_val=three).score(test)
            assert np.isfinite(conf).all()
        except InvalidInput as error:
            problem = str(error)
        known = "whose squares overflow; scale the features down|needs|range of float32|no layer varies|^$"
        assert re.search(known, problem), problem
