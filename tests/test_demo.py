"""The demo trains, writes a run that verifies, and prints the joint table."""

import json

import pytest
from click.testing import CliRunner

from twofold import metrics
from twofold._math import log_odds, logsumexp
from twofold.cli import main
from twofold.outputs import Outputs
from twofold.run import Run


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "run"
    result = CliRunner().invoke(main, ["demo", "--out", str(out), "--resamples", "40", "--json"])
    assert result.exit_code == 0, result.output
    return out, json.loads(result.stdout)


def test_the_run_is_whole(demo):
    run = Run.open(demo[0])
    run.verify()
    known = {name: name for name in ("train", "val", "test", "ood_val")}
    assert run.roles == {**known, "other_digits": "near", "photographs": "far"}
    assert not run["other_digits"].is_id.any()
    assert run["test"].is_id.all()
    assert run.head is not None
    assert run["test"].features.shape[1] == run.head.weight.shape[1]


def test_the_classifier_learned(demo):
    assert Run.open(demo[0])["test"].correct.mean() > 0.9


def test_values_are_those_of_the_library(demo):
    run = Run.open(demo[0])
    row = next(r for r in demo[1] if (r["ood_set"], r["id_score"], r["ood_score"]) == ("near", "msp", "energy"))
    outputs = Outputs.concat([run["test"], run["other_digits"]])
    conf_id, conf_ood = log_odds(outputs.logits), logsumexp(outputs.logits)
    values = row["metrics"]
    assert values["accuracy"]["value"] == pytest.approx(run["test"].correct.mean())
    assert values["f1"]["value"] == metrics.f1(outputs.correct, conf_id, outputs.is_id).value
    assert values["ds_f1"]["value"] == metrics.ds_f1(outputs.correct, conf_id, conf_ood, outputs.is_id).value
    assert values["auroc_ood"]["value"] == metrics.auroc(outputs.is_id, conf_ood)
    for value in values.values():
        assert value["low"] <= value["high"]


def test_double_scoring_never_loses(demo):
    for row in demo[1]:
        values = {name: v["value"] for name, v in row["metrics"].items()}
        assert values["ds_f1"] >= values["f1"] - 1e-12
        assert values["ds_aurc"] <= values["aurc_id"] + 1e-12


def test_the_best_pairs_stand_beside_the_plain_ones(demo):
    pairs = {(row["id_score"], row["ood_score"]) for row in demo[1]}
    assert {("msp", "msp"), ("msp", "energy")} < pairs
    assert len(demo[1]) == 2 * len(pairs)
    run = Run.open(demo[0])
    rows = {row.tobytes() for row in run["ood_val"].logits}
    for name in ("other_digits", "photographs"):
        assert not any(row.tobytes() in rows for row in run[name].logits)  # chosen on others than judged on


def test_text_table_and_second_run(demo, tmp_path):
    result = CliRunner().invoke(main, ["demo", "--out", str(demo[0]), "--resamples", "10"])
    assert result.exit_code == 0
    for heading in ("accuracy", "AURC", "AUGRC", "AUROC", "FPR@95", "F1", "DS-F1", "DS-AURC"):
        assert heading in result.stdout
    assert "Areas, augrc: coverage of all samples; aurc_id, ds_aurc: coverage of ID samples." in result.stdout
    assert "Chosen on validation data: ds_f1 of the best 3 of" in result.stdout
    assert "Caution: chosen on OOD inputs of one kind" in result.stdout


def test_another_run_is_not_overwritten(tmp_path):
    Run.create(tmp_path / "mine", model="precious")
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "mine"), "--resamples", "10"])
    assert result.exit_code == 3
    assert "another run" in result.stderr
    assert Run.open(tmp_path / "mine").provenance["model"] == "precious"


def test_a_file_beside_the_run_of_a_demo_is_not_lost(tmp_path):
    from twofold import demo as module

    Run.create(tmp_path / "demo", model=module.MODEL)
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo"), "--resamples", "10"])
    assert (result.exit_code, "notes.txt" in result.stderr) == (3, True)
    assert (tmp_path / "demo" / "notes.txt").read_text() == "mine"
