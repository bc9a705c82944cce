"""A training folder remembers size, normalisation and classes; extract and ONNX use them unasked, and refuse others."""

import json
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from click.testing import CliRunner  # noqa: E402
from PIL import Image  # noqa: E402
from test_training_input import SETTINGS, write_folder  # noqa: E402
from training_toys import PREPARE  # noqa: E402

from twofold import Gate, Run  # noqa: E402
from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.nn import build, data  # noqa: E402
from twofold.nn.extraction import ImageInput, Prepare, extract, extract_all  # noqa: E402
from twofold.nn.extraction.stored import TrainedInput, find_input  # noqa: E402
from twofold.nn.models.description import ModelDescription  # noqa: E402
from twofold.nn.onnx import to_onnx  # noqa: E402
from twofold.nn.recipes import recipe  # noqa: E402
from twofold.nn.training import train  # noqa: E402


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    images = write_folder(root / "photographs")
    model = build("resnet8_cifar", 3)
    result = train(recipe("basic"), model, images, root / "training", settings=SETTINGS, prepare=PREPARE)
    return root, images, result


def weights(root):
    return [str(root / "training" / "weights.safetensors")]


def test_the_folder_says_how_images_become_inputs(trained):
    root, images, _ = trained
    content = json.loads((root / "training" / "model.json").read_text())
    assert content["class_names"] == ["class0", "class1", "class2"]
    assert content["input"] == {
        "resize": 36,
        "crop": 32,
        "mean": list(PREPARE.mean),
        "std": list(PREPARE.std),
        "size": [32, 32],
    }
    found = find_input(weights(root))
    assert found.image_input == ImageInput(36, 32, PREPARE)
    assert found.class_names == images.class_names


def test_extract_uses_it_unasked(trained, tmp_path):
    root, images, result = trained
    sets = [(f"folder:{root / 'photographs'}", "test", "test")]
    run = extract_all("resnet8_cifar", sets, tmp_path / "run", checkpoints=weights(root), workers=2)
    by_hand = images.fit(size=36, crop=32)
    with torch.no_grad():
        want = result.model(PREPARE(by_hand.read())).numpy()
    np.testing.assert_allclose(run["test"].logits, want, rtol=1e-4, atol=1e-5)
    direct = extract(result.model, images, tmp_path / "direct", name="test", role="test")
    np.testing.assert_allclose(direct["test"].logits, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"normalise": "cifar10"}, "the normalisation cifar10 is not that of the training, mean"),
        ({"resize": 40}, "resize=40 is not that of the training, 36"),
        ({"crop": 28}, "crop=28 is not that of the training, 32"),
    ],
)
def test_other_settings_are_refused(trained, options, words, tmp_path):
    root, _, _ = trained
    sets = [(f"folder:{root / 'photographs'}", "test", "test")]
    with pytest.raises(InvalidInput, match=words) as caught:
        extract_all("resnet8_cifar", sets, tmp_path / "run", checkpoints=weights(root), **options)
    assert "model.json" in str(caught.value)
    assert "leave" in str(caught.value)


def test_other_classes_are_refused_unless_they_are_unknown_ones(trained, tmp_path):
    _, images, result = trained
    shuffled = images.subset(["class1", "class0", "class2"])
    with pytest.raises(InvalidInput, match="class 0 of photographs is 'class1' but 'class0' in training"):
        extract(result.model, shuffled, tmp_path / "run", name="test", role="test")
    with pytest.raises(InvalidInput, match="has 2 classes but the network was trained on 3"):
        extract(result.model, images.subset(["class1", "class0"]), tmp_path / "run", name="test", role="test")
    extract(result.model, shuffled, tmp_path / "run", name="far", role="far")
    in_order = shuffled.subset(["class0", "class1", "class2"])
    extract(result.model, in_order, tmp_path / "other", name="test", role="test")
    with pytest.raises(InvalidInput, match="comes out at 40x40 but the network takes 32x32"):
        extract(result.model, images.fit(size=40), tmp_path / "third", name="test", role="test")
    with pytest.raises(InvalidInput, match="the normalisation imagenet is not that of the training"):
        extract(result.model, images, tmp_path / "fourth", name="x", role="test", prepare=Prepare.named("imagenet"))


def test_arrays_of_another_size_are_refused(tmp_path):
    small = data.Images.of(np.zeros((8, 16, 16, 3), np.uint8), np.arange(8) % 2)
    settings = {"settings": type(SETTINGS)(epochs=1, batch=8, augment=())}
    result = train(recipe("basic"), build("resnet8_cifar", 2), small, tmp_path / "t", **settings)
    large = data.Images.of(np.zeros((2, 20, 20, 3), np.uint8), [0, 1])
    with pytest.raises(InvalidInput, match=r"is 20x20 but the network was trained on 16x16.*\?size=16"):
        extract(result.model, large, tmp_path / "run", name="test", role="test")


def test_a_forged_input_is_refused():
    good = TrainedInput(ImageInput(crop=8, prepare=PREPARE), (8, 8)).to_mapping()
    assert TrainedInput.of(ModelDescription(None, input=good), "model.json").size == (8, 8)
    forgeries = [
        {"crop": -1},
        {"crop": "8"},
        {"mean": [0, 0]},
        {"std": [0, 1, 1]},
        {"std": [float("nan")] * 3},
        {"size": [8]},
        {"resize": 4},
        {"command": "rm"},
    ]
    for change in forgeries:
        with pytest.raises(RunError, match=r"model\.json does not describe the input"):
            TrainedInput.of(ModelDescription(None, input={**good, **change}), "model.json")


def test_onnx_takes_pixels_of_the_training_size(trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    _, images, result = trained
    run = extract(result.model, images, tmp_path / "run", name="val", role="val")
    gate = Gate.fit(run["val"], id="msp", ood=None, objective="coverage", coverage=0.5)
    to_onnx(gate, result.model, tmp_path / "gate.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "gate.onnx"))
    assert session.get_inputs()[0].shape[1:] == [3, 32, 32]
    pixels = images.fit(size=36, crop=32).read(slice(0, 4))
    inputs = (pixels / np.float32(255)).astype(np.float32).transpose(0, 3, 1, 2)
    label = session.run(["label"], {"images": inputs})[0]
    np.testing.assert_array_equal(label, run["val"].logits[:4].argmax(axis=1))
    stored = json.loads(session.get_modelmeta().custom_metadata_map["twofold.input"])
    assert (stored["resize"], stored["crop"]) == (36, 32)
    with pytest.raises(InvalidInput, match=r"shape=\(3, 64, 64\) is not that of the training"):
        to_onnx(gate, result.model, tmp_path / "gate.onnx", shape=(3, 64, 64))
    with pytest.raises(InvalidInput, match="the normalisation none is not that of the training"):
        to_onnx(gate, result.model, tmp_path / "gate.onnx", prepare=Prepare())


# --- the command line -----------------------------------------------------------------------------------------------


def twofold(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.output


def test_commands_on_a_folder_of_mixed_sizes(tmp_path):
    write_folder(tmp_path / "photos")
    words = ["train", "--recipe", "basic", "--model", "resnet8_cifar", "--data", f"folder:{tmp_path / 'photos'}"]
    words += ["--val", f"folder:{tmp_path / 'photos'}", "--epochs", 1, "--batch", 8, "--preset", "imagenet"]
    words += ["--resize", 36, "--crop", 32, "--workers", 1, "--normalise", "imagenet", "--out", tmp_path / "out"]
    assert twofold(*words)[0] == 0
    validation = Run.open(tmp_path / "out" / "run")["val"]
    command = ["extract", "resnet8_cifar", "--checkpoint", tmp_path / "out" / "weights.safetensors"]
    command += ["--data", f"folder:{tmp_path / 'photos'}", "--role", "test", "--out", tmp_path / "run"]
    assert twofold(*command)[0] == 0
    np.testing.assert_allclose(Run.open(tmp_path / "run")["test"].logits, validation.logits, rtol=1e-4, atol=1e-5)
    code, output = twofold(*command, "--replace", "--normalise", "cifar10")
    assert code == 3
    assert "cifar10 is not that of the training, imagenet" in output
    assert "leave --normalise" in output or "leave normalise" in output


def test_bad_images_on_the_command_line(tmp_path):
    write_folder(tmp_path / "photos", n=12)
    first = sorted((tmp_path / "photos" / "class0").iterdir())[0]
    first.write_bytes(b"broken")
    spec = f"folder:{tmp_path / 'photos'}?size=32"
    code, output = twofold("data", "check", spec)
    assert code == 3
    assert f"{first} is not a readable image" in output
    code, output = twofold("data", "check", spec, "--on-bad", "skip", "--json")
    assert code == 0
    report = json.loads(output)
    assert (report["rows"], report["unreadable"]) == (11, 1)
    assert str(first) in report["first_unreadable"]
    words = ["extract", "resnet8_cifar?classes=3", "--data", spec, "--role", "test", "--out", tmp_path / "run"]
    code, output = twofold(*words)
    assert code == 3
    assert first.name in output
    code, output = twofold(*words, "--on-bad", "skip")
    assert code == 0
    assert "1 of 12 images of photos cannot be read and are left out" in output
    assert len(Run.open(tmp_path / "run")["test"]) == 11


def test_a_size_that_a_transformer_does_not_take_is_one_line(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    write_folder(tmp_path / "photos")
    model = "timm:vit_tiny_patch16_224?num_classes=3"
    size = ["--data", f"folder:{tmp_path / 'photos'}", "--crop", 64]
    words = ["train", "--recipe", "basic", "--model", model, "--epochs", 1, "--batch", 4, "--out", tmp_path / "out"]
    for command in ([*words, *size], ["extract", model, *size, "--role", "test", "--out", tmp_path / "run"]):
        code, output = twofold(*command)
        assert code == 3, output
        assert "cannot take" in output
        assert "64" in output
        assert "--crop" in output


def test_missing_labels_and_mixed_sizes_are_one_line(tmp_path):
    write_folder(tmp_path / "photos")
    flat = tmp_path / "flat"
    flat.mkdir()
    for number in range(4):
        Image.fromarray(np.zeros((20 + number, 30, 3), np.uint8)).save(flat / f"{number}.png")
    words = [
        "train",
        "--recipe",
        "basic",
        "--model",
        "resnet8_cifar",
        "--batch",
        4,
        "--out",
        tmp_path / "out",
        "--data",
    ]
    code, output = twofold(*words, f"folder:{flat}", "--crop", 32)
    assert code == 3
    assert "no labels" in output
    code, output = twofold(*words, f"folder:{tmp_path / 'photos'}")
    assert code == 3
    assert "images differ in size" in output
    assert "--crop" in output


def test_reading_processes_end_with_the_training(tmp_path):
    images = write_folder(tmp_path / "photos")
    before = set(multiprocessing.active_children())
    train(
        recipe("basic"),
        build("resnet8_cifar", 3),
        images,
        tmp_path / "out",
        settings=SETTINGS,
        prepare=PREPARE,
        workers=2,
    )
    assert set(multiprocessing.active_children()) <= before


def test_commands_work_in_a_process_of_their_own(tmp_path):
    """Workers of a command start and end with it."""
    write_folder(tmp_path / "photos")
    words = ["train", "--recipe", "basic", "--model", "resnet8_cifar", "--data", f"folder:{tmp_path / 'photos'}"]
    words += ["--epochs", "1", "--batch", "8", "--crop", "32", "--workers", "2", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "twofold.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
