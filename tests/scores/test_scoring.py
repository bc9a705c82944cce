"""Scoring in blocks: shared work changes no number, and a missing value names its row."""

import numpy as np
import pytest

from twofold.errors import InvalidInput
from twofold.outputs import Head, Outputs
from twofold.scores import registry, score_all
from twofold.scores.chain import scorer
from twofold.scores.registry import register_score


def outputs(n=40, seed=0, classes=3, width=5):
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(n, width)))
    head = Head(rng.normal(size=(classes, width)), rng.normal(size=classes))
    return Outputs(head.logits(features), rng.integers(0, classes, n), features, head)


def test_a_step_that_gives_no_value_is_an_error(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    @register_score("broken", paper="a test")
    def broken(logits):
        return np.where(np.arange(len(logits)) == 1, np.nan, 0.0)

    with pytest.raises(InvalidInput, match="broken has no value in row 1"):
        scorer("broken").score(outputs())
    many = Outputs.concat([outputs(), *(outputs() for _ in range(40))])
    with pytest.raises(InvalidInput, match="has no value in row 1"):
        scorer("broken").score(many)


def test_settings_of_one_class_that_cannot_share_are_scored_one_by_one():
    train, test = outputs(), outputs(seed=1)
    chains = [scorer(spec).fit(train) for spec in ("sirc", "sirc(s1='entropy')", "msp")]
    for chain, conf in zip(chains, score_all(chains, test), strict=True):
        assert (chain.score(test) == conf).all()
