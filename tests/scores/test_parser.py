"""Texts of chains: settings by name, quotes and brackets, and errors that say what to write."""

import numpy as np
import pytest

from twofold.errors import InvalidInput, UnknownName
from twofold.outputs import Head, Outputs
from twofold.scores.chain import scorer
from twofold.scores.parser import split_steps


def outputs(n=40, seed=0, classes=3, width=5):
    rng = np.random.default_rng(seed)
    features = np.abs(rng.normal(size=(n, width)))
    head = Head(rng.normal(size=(classes, width)), rng.normal(size=classes))
    return Outputs(head.logits(features), rng.integers(0, classes, n), features, head)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("energy", "energy"),
        ("  energy ", "energy"),
        ("ebo", "energy"),
        ("energy(temperature=2)", "energy(temperature=2)"),
        ("react(percentile=85.5)|energy(temperature = 2)", "react(percentile=85.5)|energy(temperature=2)"),
        ("ash(kind='b', percentile=65) | msr", "ash(kind='b', percentile=65)|msp"),
        ("temperature|react|mls", "temperature|react|mls"),
    ],
)
def test_text_to_chain_and_back(text, canonical):
    chain = scorer(text)
    assert chain.spec == str(chain) == canonical
    assert scorer(chain.spec).spec == canonical
    assert scorer(chain) is chain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a chain is a text"),
        ("enrgy", "did you mean 'energy'"),
        ("energy(temprature=2)", "energy: no setting 'temprature'; did you mean 'temperature'"),
        ("energy(2)", "must be a name or name"),
        ("energy(temperature=x)", "Python literals"),
        ("energy(temperature=", "must be a name or name"),
        ("energy|msp", "energy in .* is a score; only the last step may be one"),
        ("react", "ends with the transform react; add a score"),
        ("react||msp", "must be a name or name"),
        ("__import__('os').system('true')", "must be a name or name"),
        ("energy(temperature=__import__('os'))", "Python literals"),
        ("energy(temperature=0)", r"temperature must be in \(0"),
    ],
)
def test_bad_text_is_explained(text, message):
    with pytest.raises((InvalidInput, UnknownName), match=message):
        scorer(text).fit(outputs()).score(outputs())


def test_a_bar_inside_quotes_does_not_split():
    assert split_steps("a(of=('x|y', \"p|q\"))|b") == ["a(of=('x|y', \"p|q\"))", "b"]


def test_settings_given_as_objects():
    assert scorer("react|energy", temperature=2).spec == "react|energy(temperature=2)"
    assert scorer(scorer("energy"), temperature=2).spec == "energy(temperature=2)"
    with pytest.raises(InvalidInput, match="did you mean 'temperature'"):
        scorer("energy", temprature=2)


def test_mc_of_a_name_is_short_for_of():
    assert scorer("mc(knn)").spec == "mc(of='knn')"
    assert scorer("mc('react|energy')").spec == "mc(of='react|energy')"
    assert scorer("mc(knn)").needs == ("passes", "layers")
    for text in ("mc(knn, msp)", "knn(5)"):
        with pytest.raises(InvalidInput, match="must be a name or name"):
            scorer(text)
