"""CONTRIBUTING's "add a score" works as printed: the block becomes a module, and every law holds for what it adds."""

import importlib.util
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
import test_every_score as laws

import twofold
from twofold.errors import InvalidInput
from twofold.scores import registry
from twofold.scores.registry import step_names

TEXT = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
HEADER = """
from dataclasses import dataclass, replace
from typing import Self
import numpy as np
from twofold import register_score, register_transform
from twofold._checks import Array
from twofold._math import Floats
from twofold.typing import state
"""
LAWS = [
    law
    for name, law in vars(laws).items()
    if name.startswith("test_") and "fitted" in inspect.signature(law).parameters
]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """The blocks under "Add a score", as a module of its own."""
    monkeypatch.setattr(registry, "_STEPS", dict(registry._STEPS))
    section = TEXT.split("## Add a score")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert blocks
    file = tmp_path / "my_scores.py"
    file.write_text(HEADER + "\n".join(blocks), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("my_scores", file)
    before = set(step_names("score"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return sorted(set(step_names("score")) - before)


def test_the_laws_are_found():
    assert len(LAWS) >= 6


def test_what_is_added_obeys_every_law(added, tmp_path):
    assert added == ["my_distance", "my_score"]
    for name in added:
        fitted = laws.fit(name)
        for law in LAWS:
            given = {"fitted": fitted, "tmp_path": tmp_path}
            law(**{p: given[p] for p in inspect.signature(law).parameters})
        laws.test_every_step_is_documented(name)


def test_what_is_added_is_listed_and_told(added):
    assert {"my_score"} <= set(twofold.scores.names(needs=["logits"]))
    train = laws.outputs()
    chain = twofold.scorer("my_distance").fit(train)
    bare = twofold.Outputs(np.asarray(train.logits))
    with pytest.raises(InvalidInput, match="my_distance needs features; these outputs have logits only"):
        chain.score(bare)
