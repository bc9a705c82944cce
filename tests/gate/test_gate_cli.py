"""The gate's verbs on the demo run: what they print is what the library returns."""

import csv
import io
import json

import numpy as np
import pytest
from click.testing import CliRunner

from twofold import demo
from twofold.cli.gate import gate_group
from twofold.cli.shared import Verbs
from twofold.gate import Gate
from twofold.outputs import Outputs
from twofold.run import Run

main = Verbs("twofold", commands={"gate": gate_group})


def run(*args):
    return CliRunner().invoke(main, ["gate", *map(str, args)])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "run"
    demo._write_run(path, demo._split(0), 0, lambda _: None)
    return path


@pytest.fixture(scope="module")
def made(digits, tmp_path_factory):
    path = tmp_path_factory.mktemp("gate") / "gate"
    asked = ("--objective", "risk", "--risk", 0.2, "--delta", 0.1)
    done = run("fit", digits, "--ood", "mds", *asked, "--out", path, "--json")
    assert done.exit_code == 0, done.output
    return path, json.loads(done.stdout)


def test_fit_is_gate_fit(digits, made):
    path, printed = made
    want = Gate.fit(Run.open(digits), "msp", "mds", objective="risk", risk=0.2, delta=0.1)
    assert Gate.load(path).taus() == want.taus()
    assert printed["thresholds"] == list(want.taus())
    assert printed["promise"]["delta"] == 0.1
    shown = run("show", path)
    assert "guaranteed with confidence 0.9" in shown.stdout
    assert "sha256" in shown.stdout
    assert json.loads(run("show", path, "--json").stdout) == printed


def test_fit_with_given_thresholds(digits, tmp_path):
    asked = ("fit", digits, "--objective", "given")
    done = run(*asked, "--tau-id", 2.5, "--tau-ood=-inf", "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    assert Gate.load(tmp_path / "g").taus() == (2.5, -np.inf)
    lost = run(*asked, "--ood", "none", "--tau-ood", 5, "--out", tmp_path / "h")  # of no score: not taken for --tau-id
    assert lost.exit_code == 2
    assert "--ood is none" in lost.output
    assert not (tmp_path / "h").exists()


def test_fit_overwrites_only_when_told(digits, tmp_path):
    asked = ("fit", digits, "--objective", "given", "--tau-ood=0", "--out", tmp_path / "g")
    assert run(*asked, "--tau-id", 1).exit_code == 0
    before = (tmp_path / "g" / "gate.json").read_bytes()
    refused = run(*asked, "--tau-id", 2)
    assert refused.exit_code == 2
    assert "pass --replace to overwrite it" in refused.stderr
    assert (tmp_path / "g" / "gate.json").read_bytes() == before
    assert run(*asked, "--tau-id", 2, "--replace").exit_code == 0
    assert Gate.load(tmp_path / "g").taus() == (2.0, 0.0)


def test_fit_of_a_file_with_costs(digits, tmp_path):
    opened = Run.open(digits)
    data = Outputs.concat([opened["val"], opened["ood_val"]])
    data.to_npz(tmp_path / "val.npz")
    costs = ("--cost-wrong", 1, "--cost-ood", 3, "--cost-reject", 0.3)
    done = run("fit", tmp_path / "val.npz", "--ood", "none", "--objective", "cost", *costs, "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    want = Gate.fit(data, ood=None, objective="cost", costs=(1, 3, 0.3))
    assert Gate.load(tmp_path / "g").taus() == want.taus()
    assert "accept from" in done.stdout
    rows = list(csv.DictReader(io.StringIO(run("apply", tmp_path / "g", tmp_path / "val.npz").stdout)))
    assert len(rows) == len(data)
    assert rows[0]["conf_ood"] == ""


def test_apply_prints_every_verdict(digits, made):
    path, _ = made
    opened, gate = Run.open(digits), Gate.load(path)
    want = {name: gate.decide(opened[name]) for name in ("test", "photographs")}
    done = run("apply", path, digits, "--name", "test", "--name", "photographs")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [r["set"] for r in rows] == [name for name, d in want.items() for _ in range(len(d))]
    assert [r["verdict"] for r in rows] == [v for d in want.values() for v in d.verdict]
    assert {r["verdict"] for r in rows} == {"accept", "unsure", "unknown"}
    assert np.array([float(r["conf_ood"]) for r in rows]).tolist() == [
        c for d in want.values() for c in d.conf_ood.tolist()
    ]
    spoken = json.loads(run("apply", path, "--run", digits, "--name", "test", "--json").stdout)
    assert [r["label"] for r in spoken] == want["test"].labels.tolist()
    assert [r["margin_id"] for r in spoken] == want["test"].margin_id.tolist()


def test_apply_takes_its_source_as_card_does(digits, made, tmp_path):
    path, _ = made
    data = Run.open(digits)["test"]
    data.to_npz(tmp_path / "test.npz")
    new = run("apply", path, digits, "--name", "test").stdout
    assert new == run("apply", path, "--run", digits, "--name", "test").stdout
    assert new == run("apply", path, tmp_path / "test.npz").stdout
    assert new == run("apply", path, "--outputs", tmp_path / "test.npz").stdout
    assert len(new.splitlines()) == len(data) + 1


def test_card_judges_test_alone_and_with_each_ood_set(digits, made):
    path, _ = made
    opened, gate = Run.open(digits), Gate.load(path)
    cards = json.loads(run("card", path, digits, "--json").stdout)
    pooled = "test + other_digits + photographs"
    assert set(cards) == {"test", "test + other_digits", "test + photographs", pooled}
    every = Outputs.concat([opened[name] for name in ("test", "other_digits", "photographs")])
    assert cards[pooled] == json.loads(json.dumps(gate.report_card(every).to_dict()))
    want = gate.report_card(Outputs.concat([opened["test"], opened["photographs"]]))
    assert cards["test + photographs"] == json.loads(json.dumps(want.to_dict()))
    text = run("card", path, digits, "--name", "test", "--name", "photographs")
    assert text.stdout.count("promise kept") == 1
    assert f"true accepts             {want.true_accept}\n" in text.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["fit", "RUN", "--objective", "risk", "--out", "X"], "--objective risk needs --risk"),
        (
            ["fit", "RUN", "--objective", "risk", "--risk", "0.001", "--delta", "0.01", "--out", "X"],
            "cannot be guarant",
        ),
        (
            ["fit", "RUN", "--objective", "cost", "--cost-wrong", "1", "--out", "X"],
            "needs --cost-ood and --cost-reject",
        ),
        (["apply", "GATE"], "give either SOURCE"),
        (["apply", "GATE", "--data", "sheet:a.webp"], "go together"),
        (["apply", "GATE", "--outputs", "NPZ", "--name", "test"], "--name picks data sets of a run"),
        (["apply", "GATE", "--run", "RUN", "--name", "tset"], "test"),
        (["apply", "GATE", "--outputs", "NPZ"], "for 7 classes"),
        (["apply", "GATE", "RUN", "--outputs", "NPZ"], "give either SOURCE"),
        (["fit", "RUN", "--delta", "0.1", "--out", "X"], "--delta belongs to --objective risk"),
        (["fit", "RUN", "--objective", "risk", "--risk", "7", "--out", "X"], "'--risk'"),
        (["fit", "RUN", "--ood-share", "1", "--out", "X"], "'--ood-share'"),
        (["fit", "RUN", "--objective", "given", "--tau-id", "1", "--out", "X"], "needs --tau-ood"),
        (["fit", "RUN", "--id", "mps", "--out", "X"], "or 'msp'"),
        (["card", "GATE", "NPZ", "--name", "test"], "SOURCE is a file"),
        (["show", "RUN"], "gate.json"),
    ],
)
def test_wrong_requests_are_one_line(digits, made, tmp_path, args, says):
    Outputs(np.zeros((2, 3)), [0, 1]).to_npz(tmp_path / "other.npz")
    places = {"RUN": digits, "GATE": made[0], "NPZ": tmp_path / "other.npz", "X": tmp_path / "x"}
    done = run(*(places.get(a, a) for a in args))
    assert done.exit_code != 0
    assert says in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", sorted(gate_group.commands))
def test_help_has_a_line_to_paste(name):
    done = run(name, "--help")
    assert f"twofold gate {name}" in done.output
    assert "--json" in done.output


@pytest.mark.slow
def test_apply_runs_a_network_over_images(data_dir, tmp_path):
    pytest.importorskip("torch", reason="running networks needs torch")
    held = np.load(data_dir / "features_cifar10_resnet20.npz")
    logits = np.concatenate([held["id_test_logits"], held["ood_svhn_logits"]])
    labels = np.concatenate([held["id_test_labels"].astype(int), np.full(len(held["ood_svhn_logits"]), -1)])
    gate = Gate.fit(Outputs(logits, labels))
    gate.save(tmp_path / "gate")
    network = ("--model", "resnet20_cifar", "--checkpoint", f"{data_dir}/weights_cifar10_resnet20.npz", "--classes", 10)
    images = f"sheet:{data_dir}/ood_textures.webp"
    done = run("apply", tmp_path / "gate", "--data", images, *network, "--normalise", "imagenet", "--json")
    assert done.exit_code == 0, done.output
    rows, want = json.loads(done.stdout), gate.decide(Outputs(held["ood_textures_logits"]))
    assert len(rows) == len(want)
    assert [r["conf_ood"] for r in rows] == pytest.approx(want.conf_ood.tolist(), abs=1e-3)
    assert np.mean([r["verdict"] == v for r, v in zip(rows, want.verdict, strict=True)]) >= 0.999


def test_apply_needs_no_labels(made, digits, tmp_path):
    data = Run.open(digits)["test"].replace(labels=None)
    data.to_npz(tmp_path / "live.npz")
    done = run("apply", made[0], "--outputs", tmp_path / "live.npz")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == len(data) + 1
    assert "labels" in run("card", made[0], tmp_path / "live.npz").output


def test_fit_takes_groups_from_a_file(digits, tmp_path):
    opened = Run.open(digits)
    data = Outputs.concat([opened["val"], opened["ood_val"]])
    groups = [f"writer {i // 3}" for i in range(len(data))]
    (tmp_path / "groups.txt").write_text("\n".join(groups) + "\n")
    asked = ("--objective", "risk", "--risk", 0.5, "--delta", 0.2)
    done = run("fit", digits, *asked, "--groups", tmp_path / "groups.txt", "--out", tmp_path / "g")
    assert done.exit_code == 0, done.output
    want = Gate.fit(opened, groups=groups, objective="risk", risk=0.5, delta=0.2)
    assert Gate.load(tmp_path / "g").taus() == want.taus()
    assert f"{len(set(groups))} independent groups" in run("show", tmp_path / "g").stdout
    (tmp_path / "groups.txt").write_text("one\ntwo\n")
    lost = run("fit", digits, *asked, "--groups", tmp_path / "groups.txt", "--out", tmp_path / "h")
    assert lost.exit_code != 0
    assert "groups has 2" in lost.output
