"""The table of steps: one name each, found by what they need, complete when they are registered."""

import inspect
import json
from dataclasses import dataclass

import numpy as np
import pytest

import twofold
from twofold.errors import InvalidInput, NameTaken
from twofold.outputs import Outputs
from twofold.scores import registry
from twofold.scores.chain import scorer
from twofold.scores.registry import HOOKS, info, register_score, register_transform, step_names
from twofold.typing import StepHooks


def test_names_are_taken_once():
    for name in ("energy", "ebo"):
        with pytest.raises(NameTaken, match=f"{name!r} is registered already"):
            register_score(name, paper="x")(lambda logits: logits)


def test_a_new_score_is_one_function(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    @twofold.register_score("top_two", paper="a test")
    def top_two(logits, *, power: float = 1.0):
        """Sum of the two largest logits."""
        return (np.sort(logits, axis=1)[:, -2:] ** power).sum(axis=1)

    assert top_two(np.array([[1.0, 2.0, 3.0]])) == 5.0
    assert scorer("top_two(power=2)").score(Outputs([[1.0, 2.0, 3.0]])) == 13.0
    assert "top_two" in twofold.scores.names(needs=["logits"])
    assert twofold.scores.info("top_two").needs == ("logits",)


def test_a_score_without_a_docstring_has_an_empty_summary(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    @twofold.register_score("bare", paper="a test")
    def bare(logits):
        return logits[:, 0]

    assert info("bare").summary == ""


def test_lists_by_need():
    assert set(twofold.scores.names(needs="logits")) <= set(twofold.scores.names())
    assert "react" not in twofold.scores.names()
    assert "react" in step_names("transform", ["features", "head"])
    record = info("react")
    assert (record.needs, record.fit_needs, record.settings) == (
        ("features", "head"),
        ("features",),
        {"percentile": 90.0, "constant": None},
    )
    json.dumps(record.settings)


def public_methods(maker):
    """Names of the public methods of a class, properties apart."""
    return {name for name, member in vars(maker).items() if not name.startswith("_") and callable_member(member)}


def callable_member(member):
    return inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)


CLASSES = [name for name in step_names() if isinstance(info(name).maker, type)]


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_satisfies_the_protocol(name):
    """A class learns or takes arrays, has score or apply, and its hooks take what the protocol declares."""
    record = info(name)
    assert record.learns or record.array_settings
    assert callable(record.run_method)
    overridden = public_methods(record.maker) & set(HOOKS)
    assert record.has_hooks or not overridden
    for hook in overridden:
        declared, own = (inspect.signature(getattr(owner, hook)) for owner in (StepHooks, record.maker))
        assert list(own.parameters) == list(declared.parameters), hook
    if record.has_hooks:
        assert isinstance(record.maker.__new__(record.maker), StepHooks)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_no_method_that_the_chain_would_never_call(name):
    """A misspelt hook would be ignored in silence."""
    own = {"openmax": {"is_unknown"}}  # methods that users call on what was fitted
    assert public_methods(info(name).maker) <= {"fit", "score", "apply", *HOOKS} | own.get(name, set())


def test_functions_have_no_hooks():
    for name in step_names():
        assert info(name).is_function == (name not in CLASSES)
        if info(name).is_function:
            assert not info(name).has_hooks


def test_the_hooks_are_documented():
    assert len(HOOKS) == 7
    for hook in HOOKS:
        text = inspect.getdoc(getattr(StepHooks, hook))
        assert "By default" in text, hook
        assert "Returns" in text or "Raises" in text, hook


def test_a_hook_without_the_protocol_is_rejected(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    @dataclass(frozen=True, eq=False)
    class Loose:
        def check_state(self):
            raise AssertionError

        def score(self, logits):
            return logits[:, 0]

    with pytest.raises(InvalidInput, match=r"Loose defines check_state; derive it from twofold\.typing\.StepHooks"):
        register_score("loose", paper="a test")(Loose)
    assert "loose" not in step_names()


def test_a_class_without_its_method_is_rejected(monkeypatch):
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))

    class Empty:
        """Nothing."""

    with pytest.raises(InvalidInput, match="Empty is registered as a score and has no method score"):
        register_score("empty", paper="a test")(Empty)
    with pytest.raises(InvalidInput, match="Empty is registered as a transform and has no method apply"):
        register_transform("empty", paper="a test")(Empty)


def test_closed_forms_are_those_of_default_settings():
    forms = {"msp": "log_odds", "energy": "log_sum_exp", "mls": None, "energy(temperature=2)": None}
    forms |= {"react|energy": None, "temperature(value=2.0)|msp": None}
    assert {spec: scorer(spec).closed_form for spec in forms} == forms
