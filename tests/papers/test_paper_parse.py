"""Files of papers: every mistake is one clear error."""

from __future__ import annotations

import pytest

from twofold import papers
from twofold.errors import InvalidInput

GOOD = """
name = "mini"
title = "Mini"
source = "Nobody"

[steps.net]
verb = "estimators"
outputs = ["outputs.npz"]
sizes = [8]

[scales.small]
data = ["outputs"]
minutes = 1
note = "Small."
steps = ["net"]

[[plans]]
item = "figure1"
kind = "result"
title = "A figure"
says = "Something."
state = "verified"
drawing = { name = "errors", quantity = "mse" }
here = "small"
"""

MISTAKES = {
    "unknown verb": ('verb = "estimators"', 'verb = "shell"', "no verb 'shell'"),
    "unknown setting": ("sizes = [8]", "size = [8]", "did you mean 'sizes'"),
    "wrong type": ("sizes = [8]", 'sizes = ["eight"]', "sizes must be a whole number, got 'eight'"),
    "truth for a number": ("sizes = [8]", "sizes = [true]", "sizes must be a whole number, got True"),
    "no list": ("sizes = [8]", "sizes = 8", "sizes must be a list, got 8"),
    "too small": ("sizes = [8]", "sizes = [1]", "at least 2"),
    "unknown loss": ("sizes = [8]", 'losses = ["hinge"]', "no choice 'hinge'"),
    "unknown score": ("sizes = [8]", 'scores = ["mspp"]', "did you mean 'msp'"),
    "unknown step": ('steps = ["net"]', 'steps = ["nett"]', "did you mean 'net'"),
    "unknown scale": ('here = "small"', 'here = "smal"', "did you mean 'small'"),
    "no scale": ('here = "small"', "", "a result needs a scale"),
    "nothing made": ('drawing = { name = "errors", quantity = "mse" }', "", "a result needs a drawing"),
    "unknown drawing": ('name = "errors"', 'name = "terrors"', "did you mean 'errors'"),
    "unknown option": ('quantity = "mse"', 'quantities = "mse"', "did you mean 'quantity'"),
    "unknown choice": ('quantity = "mse"', 'quantity = "msee"', "did you mean 'mse'"),
    "unknown kind": ('kind = "result"', 'kind = "results"', "did you mean 'result'"),
    "unknown state": ('state = "verified"', 'state = "very"', "state: no choice 'very'"),
    "half an illustration": ('kind = "result"', 'kind = "illustration"', "both be 'illustration'"),
    "no reason": ('state = "verified"', 'state = "impossible"', "say why it is not run"),
    "unknown printed table": ('here = "small"', 'printed = "99"\nhere = "small"', "no transcribed table of mini"),
    "unknown key": ('here = "small"', 'heer = "small"', "did you mean 'here'"),
    "minutes in words": ("minutes = 1", 'minutes = "one"', "minutes must be a number"),
    "missing key": ('says = "Something."', "", "key 'says' is missing"),
    "not TOML": ("[steps.net]", "[steps.net", "is not TOML"),
}


def test_the_example_is_good():
    assert papers.loads(GOOD).plan("figure1").drawing.options == {"quantity": "mse"}


@pytest.mark.parametrize(("before", "after", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_are_one_clear_error(before, after, message):
    assert before in GOOD
    with pytest.raises(InvalidInput, match=message):
        papers.loads(GOOD.replace(before, after), where="mini.toml")


def test_items_are_distinct():
    plan = GOOD[GOOD.index("[[plans]]") :]
    with pytest.raises(InvalidInput, match="'figure1' is listed twice"):
        papers.loads(GOOD + plan)


BENCH = """
[steps.run]
verb = "extract"
benchmark = "digits"
model = "resnet18_32"
sets = ["test"]

[steps.judged]
verb = "bench"
benchmark = "digits"
extracts = ["run"]
pairs = ["msp + energy"]
"""
BENCH_MISTAKES = {
    "unknown benchmark": ('verb = "bench"\nbenchmark = "digits"', 'verb = "bench"\nbenchmark = "digit"', "digits"),
    "unknown set": ('sets = ["test"]', 'sets = ["tset"]', "did you mean 'test'"),
    "unknown extraction": ('extracts = ["run"]', 'extracts = ["rnu"]', "did you mean 'run'"),
    "not an extraction": ('extracts = ["run"]', 'extracts = ["net"]', "steps of the verbs extract or study"),
    "half a pair": ('pairs = ["msp + energy"]', 'pairs = ["msp"]', "two scores"),
    "unknown protocol": ('pairs = ["msp + energy"]', 'protocols = ["joined"]', "did you mean 'joint"),
    "missing setting": ('model = "resnet18_32"', "", "key 'model' is missing"),
}


def with_bench(text):
    return GOOD.replace("[scales.small]", text + "\n[scales.small]")


def test_steps_may_name_those_above_them():
    paper = papers.loads(with_bench(BENCH).replace('steps = ["net"]', 'steps = ["judged"]'))
    [step] = paper.plan("figure1").scales["here"].steps
    assert [one.verb for one in step.prerequisites()] == ["extract"]


@pytest.mark.parametrize(("before", "after", "message"), BENCH_MISTAKES.values(), ids=BENCH_MISTAKES.keys())
def test_mistaken_steps_are_one_clear_error(before, after, message):
    assert before in BENCH
    with pytest.raises(InvalidInput, match=message):
        papers.loads(with_bench(BENCH.replace(before, after)))
