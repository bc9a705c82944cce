"""The step that runs a network, on noise."""

from __future__ import annotations

import pytest

from twofold import papers
from twofold.run import Run

pytest.importorskip("torch", reason="torch is not installed")

BENCHMARK = """
name = "noise"
title = "Noise against noise"
source = "Nobody"
classes = 10
protocols = ["joint"]

[[sets]]
name = "test"
role = "test"
data = "noise:uniform?n=6&size=32&seed=0"

[[sets]]
name = "far"
role = "far"
data = "noise:gaussian?n=4&size=32&seed=1"

[[sets]]
name = "unused"
role = "far"
data = "noise:gaussian?n=4&size=32&seed=2"
"""
PAPER = """
name = "mini"
title = "Mini"
source = "Nobody"

[steps.net]
verb = "extract"
benchmark = "FILE"
model = "resnet8_cifar"
sets = ["test", "far"]

[scales.small]
data = ["noise"]
note = "Noise."
steps = ["net"]

[[plans]]
item = "figure1"
kind = "result"
title = "A figure"
says = "Something."
state = "verified"
drawing = { name = "weight_bias" }
here = "small"
"""


def test_the_sets_of_the_step_are_extracted_once(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / "noise.toml"
    file.write_text(BENCHMARK, encoding="utf-8")
    plan = papers.loads(PAPER.replace("FILE", str(file))).plan("figure1")
    reports = []
    work = papers.Workspace.open(tmp_path / "out", root=tmp_path, progress=lambda *words: reports.append(words))
    first = papers.run(plan, work)
    [step] = plan.scales["here"].steps
    run = Run.open(step.path(work))
    assert {name: len(run[name]) for name in run.names()} == {"test": 6, "far": 4}
    assert ("extracting test", 6, 6) in reports
    assert first.computed == (step.key, "page")
    monkeypatch.setattr("twofold.nn.extraction.extract_all", None)
    assert papers.run(plan, work).computed == ()
