"""Metrics that a benchmark adds: calibration, likelihood and risk at a coverage, against slow loops."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.bench.added_metrics import added_value, check_metric, compute_columns
from twofold.cli import main
from twofold.errors import InvalidInput, UnknownName
from twofold.metrics import PlattScaling
from twofold.outputs import Outputs
from twofold.run import Run
from twofold.scores.chain import scorer

ADDED = ("ece", "nll", "brier", "eaurc", "average_precision_unsafe", "risk_at_coverage_0.90")


@pytest.fixture
def outputs():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=200)
    return Outputs(rng.normal(size=(200, 4)) + 2 * np.eye(4)[labels], labels)


def test_class_losses_are_those_of_a_loop(outputs):
    correct = np.asarray(outputs.correct)
    conf = np.linspace(0, 1, 200)
    columns = compute_columns(("nll", "brier"), outputs, "msp", conf, correct, conf)
    likelihood, brier = [], []
    for logits, label in zip(np.asarray(outputs.logits), np.asarray(outputs.labels), strict=True):
        powers = [math.exp(value) for value in logits]
        probabilities = [power / sum(powers) for power in powers]
        likelihood.append(-math.log(probabilities[label]))
        brier.append(sum((p - (k == label)) ** 2 for k, p in enumerate(probabilities)))
    assert added_value("nll", correct, conf, columns) == pytest.approx(np.mean(likelihood))
    assert added_value("brier", correct, conf, columns) == pytest.approx(np.mean(brier))


def test_a_likelihood_of_unknown_rows_has_no_value(outputs):
    unknown = outputs.replace(labels=np.full(200, -1))
    conf = np.linspace(0, 1, 200)
    columns = compute_columns(("nll",), unknown, "msp", conf, np.ones(200, bool), conf)
    assert math.isnan(added_value("nll", np.zeros(200, bool), conf, columns))


def test_the_probability_of_msp_is_the_softmax_and_others_are_scaled_on_validation_data(outputs):
    correct = np.asarray(outputs.correct)
    msp, mls = scorer("msp").score(outputs), scorer("mls").score(outputs)
    plain = compute_columns(("ece",), outputs, "msp", msp, correct, msp)["prob"]
    powers = np.exp(np.asarray(outputs.logits))
    np.testing.assert_allclose(plain, (powers / powers.sum(axis=1, keepdims=True)).max(axis=1))
    scaled = compute_columns(("ece",), outputs, "mls", mls, correct[:100], mls[:100])["prob"]
    np.testing.assert_allclose(scaled, PlattScaling.fit(correct[:100], mls[:100]).apply(mls))


@pytest.mark.parametrize(
    "name", ["risk_at_coverage_", "risk_at_coverage_2", "risk_at_coverage_0", "risk_at_coverage_x"]
)
def test_a_coverage_is_checked(name):
    with pytest.raises(InvalidInput, match="above 0 and at most 1"):
        check_metric(name)
    with pytest.raises(UnknownName, match="did you mean"):
        check_metric("aurcc")


def test_the_command_measures_them(tmp_path):
    rng = np.random.default_rng(1)
    run = Run.create(tmp_path / "run", model="net")
    for role in ("train", "val", "test", "far"):
        labels = rng.integers(7, size=120)
        logits = rng.normal(size=(120, 7)) + 2 * np.eye(7)[labels]
        if role == "far":
            labels = np.full(120, -1)
        run.add(role, Outputs(logits, labels), role=role)
    (tmp_path / "mine.toml").write_text(BENCHMARK)
    command = ["bench", "run", str(tmp_path / "mine.toml"), "--run", str(tmp_path / "run"), "--score", "msp"]
    command += ["--score", "mls", "--metrics", ", ".join(ADDED), "--resamples", "4", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    with open(tmp_path / "out" / "results.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["shift"] == "test" and row["score"] == "msp"]
    values = {row["metric"]: row for row in rows}
    assert set(ADDED) <= set(values)
    outputs = run["test"]
    conf = scorer("msp").score(outputs)
    kept = np.argsort(-conf)[:108]
    expected = 1 - np.asarray(outputs.correct)[kept].mean()
    assert float(values["risk_at_coverage_0.90"]["value"]) == pytest.approx(expected)
    assert values["ece"]["low"] != ""
    wrong = CliRunner().invoke(main, [*command, "--metrics", "eceee"])
    assert (wrong.exit_code, len(wrong.stderr.strip().splitlines())) == (2, 1)


BENCHMARK = """
name = "mine"
title = "Mine"
source = "Nobody"
classes = 7
protocols = ["fd_shifts"]
"""
for _name in ("train", "val", "test", "far"):
    BENCHMARK += (
        f'\n[[sets]]\nname = "{_name}"\nrole = "{_name}"\ndata = "noise:uniform?n=120&size=8"\nget = "nowhere"\n'
    )
