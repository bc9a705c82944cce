"""Fine-tuning: frozen weights, new heads on any network, and folders that rebuild their network."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors.torch import save_file  # noqa: E402

from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import build, load, recipe, train  # noqa: E402
from twofold.nn.data import Images  # noqa: E402
from twofold.nn.extraction import extract  # noqa: E402
from twofold.nn.extraction.several import extract_all  # noqa: E402
from twofold.nn.training import Plan, Settings  # noqa: E402

NET = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 6, 3, stride=4), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(384, 7))
"""


def _pictures(n=32, classes=4, size=32):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    pixels = np.clip(60 * labels[:, None, None, None] + rng.integers(0, 60, (n, size, size, 3)), 0, 255)
    return Images.of(pixels.astype(np.uint8), labels, name="pictures")


def _tune(model, out, name="basic", data=None, **settings):
    options = Settings(epochs=1, batch=16, lr=0.05, augment=("flip",), **settings)
    return train(recipe(name), model, data or _pictures(), out, settings=options)


@pytest.mark.parametrize("name", ["basic", "sure_plus", "fmfp"])
def test_frozen_weights_and_statistics_stay_bit_equal(tmp_path, name):
    network = build("resnet8_cifar", 4, seed=1)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    after = _tune(network, tmp_path, name, freeze=2).model.state_dict()
    frozen = [key for key in before if key.startswith(("conv1.", "bn1.", "layer1."))]
    assert any("running_var" in key for key in frozen)
    for key in frozen:
        assert torch.equal(before[key], after[key]), key
    assert not torch.equal(before["layer2.0.conv1.weight"], after["layer2.0.conv1.weight"])
    assert not torch.equal(before["layer2.0.bn1.running_mean"], after["layer2.0.bn1.running_mean"])
    assert not torch.equal(before["linear.weight"], after["linear.weight"])


def test_a_frozen_backbone_of_torchvision(tmp_path):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    network = load("torchvision:resnet18", classes=4, head="cosine", dropout=0.1)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    after = _tune(network, tmp_path, freeze="backbone", head_lr=0.2).model.state_dict()
    changed = [key for key in before if not torch.equal(before[key], after[key])]
    assert changed == ["linear.weight"]


def test_layer_decay_moves_deep_layers_more(tmp_path):
    """A step of SGD without momentum moves a weight by its learning rate times its gradient: compared with decay 1."""
    moved = {}
    for decay in (None, 0.5):
        network = build("resnet8_cifar", 4, seed=1)
        before = {key: value.clone() for key, value in network.named_parameters()}
        _tune(network, tmp_path / str(decay), data=_pictures(16), layer_decay=decay, momentum=0.0, weight_decay=0.0)
        moved[decay] = {key: value.detach() - before[key] for key, value in network.named_parameters()}
    for key, power in (
        ("conv1.weight", 4),
        ("layer1.0.conv1.weight", 3),
        ("layer3.0.conv1.weight", 1),
        ("linear.weight", 0),
    ):
        torch.testing.assert_close(moved[0.5][key], moved[None][key] * 0.5**power, rtol=1e-3, atol=1e-7)


def _write_source(kind, folder):
    if kind == "file":
        (folder / "net.py").write_text(NET)
        return f"{folder / 'net.py'}:make"
    if kind == "hf":
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=32, num_labels=7
        )
        transformers.ViTForImageClassification(config).save_pretrained(folder / "vit")
        return f"hf:{folder / 'vit'}"
    pytest.importorskip(kind, reason=f"{kind} is not installed")
    return {"timm": "vit_tiny_patch16_224?img_size=32&depth=1", "torchvision": "torchvision:resnet18"}[kind]


@pytest.mark.parametrize("kind", ["timm", "torchvision", "hf", "file"])
@pytest.mark.parametrize("name", ["gamblers", "devries"])
def test_a_folder_rebuilds_its_network(tmp_path, kind, name):
    spec = _write_source(kind, tmp_path)
    options = {**recipe(name).options, "head": "cosine", "dropout": 0.1}
    network = load(spec, classes=4, new_head=kind in ("hf", "file"), **options)
    trained = _tune(network, tmp_path / "out", name).model
    if kind == "file":
        with pytest.raises(InvalidInput, match=r"net.py:make, which is code and not run unasked"):
            load(str(tmp_path / "out"))
        again = load(spec, checkpoint=tmp_path / "out")
    else:
        again = load(str(tmp_path / "out"))
    images = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(again(images), trained(images))
    run = extract(again, _pictures(), tmp_path / "run", name="test", role="test")
    outputs = run["test"]
    assert outputs.logits.shape == (32, 4)
    np.testing.assert_allclose(np.linalg.norm(outputs.features, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(outputs.features @ run.head.weight.T, outputs.logits, atol=1e-3)
    assert "penultimate/raw" in outputs.layers
    assert ("reservation" if name == "gamblers" else "devries") in outputs.learned


def test_confidnet_on_a_network_from_elsewhere(tmp_path):
    spec = _write_source("file", tmp_path)
    network = load(spec, classes=4, new_head=True, confidence="confidnet")
    _tune(network, tmp_path / "out", "confidnet")
    again = load(spec, checkpoint=tmp_path / "out")
    assert again.confidence.encoder is not None
    run = extract(again, _pictures(), tmp_path / "run", name="test", role="test")
    assert run["test"].learned["confidnet"].shape == (32,)


def test_classes_of_a_file_must_fit(tmp_path):
    spec = _write_source("file", tmp_path)
    with pytest.raises(InvalidInput, match="has 7 classes, and 4 are asked for; pass --new-head"):
        load(spec, classes=4)
    assert load(spec, classes=4, new_head=True)(torch.zeros(1, 3, 32, 32)).shape == (1, 4)


def test_folders_that_do_not_say_enough(tmp_path):
    with pytest.raises(InvalidInput, match=r"has no model.json, so its network is not known; name it and pass"):
        load(str(tmp_path))
    network = build("resnet8_cifar", 4)
    del network.network_description
    _tune(network, tmp_path / "own")
    with pytest.raises(InvalidInput, match="trained from a module of your own"):
        load(str(tmp_path / "own"))
    _tune(build("resnet8_cifar", 4, head="cosine"), tmp_path / "zoo")
    with pytest.raises(InvalidInput, match=r"head='linear' is asked for, and the network in .* has 'cosine'"):
        load(str(tmp_path / "zoo"), head="linear")
    assert load(str(tmp_path / "zoo"), new_head=True, classes=9).linear.weight.shape == (9, 64)


CIFAR = "sheet:{data}/{name}.webp?labels={data}/image_labels.npz"


def test_transformer_with_cosine_head_and_dropout_by_sure_plus(tmp_path, data_dir):
    """A few steps on real images at another size than the checkpoint's, from the text that the command takes."""
    pytest.importorskip("timm", reason="timm is not installed")
    spec = "vit_tiny_patch16_224?depth=2"
    pretrained = load(f"{spec}&img_size=96", classes=10)
    save_file(pretrained.state_dict(), tmp_path / "w.safetensors")
    reports = []
    plan = Plan.of(
        "sure_plus",
        f"{spec}&img_size=64",
        CIFAR.format(data=data_dir, name="cifar100_test") + "&size=64&limit=32",
        checkpoint=str(tmp_path / "w.safetensors"),
        new_head=True,
        head_kind="cosine",
        dropout="paper",
        layer_decay=0.75,
        epochs=1,
        batch=16,
        lr=1e-3,
    )
    trained = plan.run(tmp_path / "out", report=reports.append)[0]
    assert reports[0].resampled == ("backbone.pos_embed",)
    assert reports[0].new == ("linear.weight", "linear.scale")
    assert trained.model.linear.scale == 64
    assert trained.model.backbone.blocks[0].mlp.drop1.p == 0.1
    assert np.isfinite(trained.history[-1]["loss"])
    run = extract_all(
        str(tmp_path / "out"),
        [(CIFAR.format(data=data_dir, name="cifar100_test") + "&size=64&limit=32", "test", "test")],
        tmp_path / "run",
    )
    assert run["test"].features.shape == (32, 192)


def test_wrong_size_is_one_clear_line(tmp_path, data_dir):
    pytest.importorskip("timm", reason="timm is not installed")
    data = CIFAR.format(data=data_dir, name="cifar100_test") + "&limit=32"
    plan = Plan.of("basic", "vit_tiny_patch16_224?depth=1", data, epochs=1, batch=16)
    with pytest.raises(InvalidInput, match=r"cannot take images of 32x32 pixels: .*224.*; resize the images"):
        plan.run(tmp_path / "out")
