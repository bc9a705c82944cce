"""What CONTRIBUTING says on recipes, benchmarks, protocols and readers works as printed."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.bench import catalogue, protocols
from twofold.cli import main

TEXT = (Path(__file__).resolve().parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")


def block(title, language="python"):
    section = TEXT.split(f"## {title}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", section, flags=re.DOTALL)
    return found


def add_to(module, code):
    """Run the block as the end of the module that it belongs to."""
    names = vars(module).copy()
    exec(compile(code, module.__file__, "exec"), names)
    return names


def test_an_added_benchmark_is_shown_with_what_it_lacks(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "my.toml"
    file.write_text(block("Add a benchmark", "toml"), encoding="utf-8")
    found = catalogue.load(str(file))
    assert [(one.name, one.role) for one in found.sets] == [("test", "test"), ("svhn", "far")]
    shown = CliRunner().invoke(main, ["bench", "show", str(file), "--root", str(tmp_path)])
    assert shown.exit_code == 0
    assert "get it from: https://example.org/my_images" in shown.output


def test_an_added_protocol_judges_a_run(tmp_path, monkeypatch):
    names = add_to(protocols, block("Add a protocol").replace("PROTOCOLS[", "ADDED = {}\nADDED["))
    monkeypatch.setitem(protocols.PROTOCOLS, "new_classes", names["ADDED"]["new_classes"])
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["demo", "--resamples", "10"]).exit_code == 0
    command = ["bench", "run", "digits", "--run", "twofold-demo", "--score", "msp", "--protocol", "new_classes"]
    ran = CliRunner().invoke(main, [*command, "--resamples", "0", "--json"])
    assert ran.exit_code == 0, ran.output
    judged = {(row["shift"], row["metric"]) for row in json.loads(ran.stdout) if row["shift"] != "validation"}
    assert judged == {("other_digits", "aurc"), ("other_digits", "auroc")}


def test_an_added_paper_runs(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / "my_paper.toml"
    file.write_text(block("Add a paper", "toml"), encoding="utf-8")
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    np.savez(tmp_path / "outputs.npz", logits=rng.normal(size=(200, 3)) + 2 * np.eye(3)[labels], labels=labels)
    shown = CliRunner().invoke(main, ["papers", "show", str(file)])
    assert [line.split()[0] for line in shown.stdout.splitlines()[-2:]] == ["figure1", "figure2"]
    command = ["papers", "run", f"{file}/figure1", "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    written = {path.name for path in (tmp_path / "out" / "my_paper" / "figure1").iterdir()}
    assert written == {"figure1.svg", "figure1.png", "figure1.csv", "figure1.md", "record.json"}
    refused = CliRunner().invoke(main, ["papers", "run", f"{file}/figure2", "--out", str(tmp_path / "out")])
    assert (refused.exit_code, "a drawing of the idea" in refused.stderr) == (3, True)


def test_an_added_reader_opens_a_file(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    from twofold.nn import data
    from twofold.nn.data.readers import READERS, arrays

    file = tmp_path / "levels.txt"
    file.write_text("0\n128\n255\n", encoding="utf-8")
    try:
        add_to(arrays, block("Add a data reader"))
        images = data.open(f"lines:{file}?size=16")
        pixels = np.asarray(images.read())
        assert pixels.shape[:3] == (3, 16, 16)
        assert pixels.reshape(3, -1).tolist() == [[level] * (pixels.size // 3) for level in (0, 128, 255)]
        assert CliRunner().invoke(main, ["data", "check", f"lines:{file}"]).exit_code == 0
    finally:
        READERS.pop("lines", None)


def test_an_added_recipe_trains(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from twofold.nn import recipes
    from twofold.nn.training import TrainingStep

    code = block("Add a training recipe").replace("RECIPES[", "ADDED = {}\nADDED[")
    names = add_to(recipes, code)
    own = names["ADDED"]["confidence_penalty"]
    assert TrainingStep is names["TrainingStep"]

    class OneStep:
        logits = torch.tensor([[2.0, 0.0, -1.0]])

    p = torch.softmax(OneStep.logits, dim=1)[0]
    entropy = -sum(float(x) * np.log(float(x)) for x in p)
    assert float(own.parts[1].loss(OneStep())) == pytest.approx(-0.1 * entropy, rel=1e-5)

    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "train.npz", images=rng.integers(0, 256, (64, 32, 32, 3), dtype=np.uint8), labels=np.arange(64) % 4
    )
    monkeypatch.setitem(recipes.RECIPES, "confidence_penalty", own)
    command = ["train", "--recipe", "confidence_penalty", "--model", "resnet8_cifar", "--epochs", "1", "--batch", "32"]
    command += ["--data", f"npz:{tmp_path / 'train.npz'}", "--out", str(tmp_path / "out")]
    trained = CliRunner().invoke(main, command)
    assert trained.exit_code == 0, trained.output
