"""CONTRIBUTING's "add a score" and "add a transform" work as printed: each block is a module that obeys every law."""

import doctest
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import test_every_score as laws

import twofold
from twofold.errors import InvalidInput
from twofold.scores import registry
from twofold.scores.registry import step_names

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
LAWS = [
    law
    for name, law in vars(laws).items()
    if name.startswith("test_") and "fitted" in inspect.signature(law).parameters
]


def import_blocks(title, folder):
    """Import each Python block under a title as a module of its own."""
    section = TEXT.split(f"## {title}")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert len(blocks) == 2
    for i, block in enumerate(blocks):
        file = folder / f"block{i}.py"
        file.write_text(block, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module  # where dataclasses look for their annotations
        try:
            spec.loader.exec_module(module)
            assert doctest.testmod(module).failed == 0
        finally:
            del sys.modules[file.stem]


@pytest.fixture
def added(request, tmp_path, monkeypatch):
    """Names of the steps under a title."""
    before = step_names()
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))
    import_blocks(request.param, tmp_path)
    return [name for name in step_names() if name not in before]


def check_laws(spec, folder):
    """Run every law on a chain."""
    fitted = laws.fit(spec)
    for law in LAWS:
        arguments = {"fitted": fitted, "tmp_path": folder}
        law(**{name: arguments[name] for name in inspect.signature(law).parameters})


def test_the_laws_are_found():
    assert len(LAWS) >= 6


@pytest.mark.parametrize("added", ["Add a score"], indirect=True)
def test_added_scores_obey_every_law(added, tmp_path):
    assert added == ["my_score", "my_distance"]
    for name in added:
        check_laws(name, tmp_path)
        laws.test_every_step_is_documented(name)


@pytest.mark.parametrize("added", ["Add a transform"], indirect=True)
def test_added_transforms_obey_every_law(added, tmp_path):
    assert added == ["my_power", "my_scale"]
    for name in added:
        for score in (*laws.BEHIND, "mds"):
            check_laws(f"{name}|{score}", tmp_path)
        laws.test_every_step_is_documented(name)


@pytest.mark.parametrize("added", ["Add a transform"], indirect=True)
def test_added_transforms_keep_logits_features_and_head_in_agreement(added):
    test = laws.outputs(seed=2)
    for name in added:
        step = laws.fit(f"{name}|energy").steps[0]
        changed = test.derived(step.run(test))
        assert changed.head.logits(np.asarray(changed.features)) == pytest.approx(np.asarray(changed.logits))
        assert (changed.predictions == test.predictions).all()


@pytest.mark.parametrize("added", ["Add a score"], indirect=True)
def test_added_scores_are_listed_and_explain_what_they_need(added):
    assert {"my_score"} <= set(twofold.scores.names(needs=["logits"]))
    train = laws.outputs()
    chain = twofold.scorer("my_distance").fit(train)
    bare = twofold.Outputs(np.asarray(train.logits))
    with pytest.raises(InvalidInput, match="my_distance needs features; these outputs have logits only"):
        chain.score(bare)
