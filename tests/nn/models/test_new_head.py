"""Checkpoints with a new head: what is loaded, skipped and new, in every format."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import build, load  # noqa: E402
from twofold.nn.models.checkpoint import LoadedWeights, load_parameters, read_parameters  # noqa: E402

VIT = "timm:vit_tiny_patch16_224?depth=1&embed_dim=24&num_heads=2"


def _small():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 3))


def test_lists_of_a_case_made_by_hand():
    network = _small()
    checkpoint = {
        "0.weight": torch.full((2, 3, 3, 3), 0.5),
        "module.0.bias": torch.ones(2),
        "2.weight": torch.zeros(9, 8),
        "2.bias": torch.zeros(9),
        "decoder.weight": torch.zeros(1),
    }
    before = network[2].weight.detach().clone()
    found = load_parameters(network, checkpoint, source="w.pt", expected="small", new=("2",))
    assert found == LoadedWeights(
        ("0.weight", "0.bias"), ("2.weight", "2.bias", "decoder.weight"), ("2.weight", "2.bias")
    )
    assert torch.equal(network[0].weight.detach(), torch.full((2, 3, 3, 3), 0.5))
    assert torch.equal(network[0].bias.detach(), torch.ones(2))
    assert torch.equal(network[2].weight, before)
    assert str(found) == (
        "loaded 2 tensors, skipped 3 of the checkpoint (2.weight, 2.bias, decoder.weight), "
        "initialised 2 (2.weight, 2.bias)"
    )


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "backbone.", "module.model.", "_orig_mod.backbone."])
def test_prefixes_follow_one_rule(prefix):
    trained, network = _small(), _small()
    checkpoint = {f"{prefix}{name}": value for name, value in trained.state_dict().items()}
    checkpoint["optimizer_step"] = torch.zeros(1)
    load_parameters(network, checkpoint, source="w.pt", expected="small", new=("2",))
    assert torch.equal(network[0].weight, trained[0].weight)


def test_a_checkpoint_without_the_body_is_one_clear_line():
    network = _small()
    before = network[0].weight.detach().clone()
    with pytest.raises(InvalidInput, match=r"does not fit small \(parameters 2 missing: 0.weight, 0.bias\)"):
        load_parameters(network, {"2.weight": torch.zeros(3, 8)}, source="w.pt", expected="small", new=("2",))
    wrong = {"0.weight": torch.zeros(1), "0.bias": torch.ones(2)}
    with pytest.raises(InvalidInput, match=r"1 of another shape: 0.weight \(1,\) for \(2, 3, 3, 3\)"):
        load_parameters(network, wrong, source="w.pt", expected="small", new=("2",))
    assert torch.equal(network[0].weight, before)


def _save(state, folder, form):
    if form == "safetensors":
        save_file(state, folder / "w.safetensors")
        return folder / "w.safetensors"
    if form == "torch":
        torch.save({"state_dict": state}, folder / "w.pth")
        return folder / "w.pth"
    if form == "npz":
        np.savez(folder / "w.npz", **{name: value.numpy() for name, value in state.items()})
        return folder / "w.npz"
    if form == "folder":
        save_file(state, folder / "model.safetensors")
        return folder
    names = list(state)
    save_file({name: state[name] for name in names[:3]}, folder / "a.safetensors")
    save_file({name: state[name] for name in names[3:]}, folder / "b.safetensors")
    index = {name: "a.safetensors" if place < 3 else "b.safetensors" for place, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


@pytest.mark.parametrize("form", ["safetensors", "torch", "npz", "folder", "shards"])
def test_every_format_with_a_new_head(tmp_path, form):
    trained = build("resnet8_cifar", 10, seed=5)
    path = _save(trained.state_dict(), tmp_path, form)
    reports = []
    model = load("resnet8_cifar", classes=4, checkpoint=path, new_head=True, head="cosine", report=reports.append)
    assert torch.equal(model.layer3[0].conv2.weight, trained.layer3[0].conv2.weight)
    assert model.linear.weight.shape == (4, 64)
    assert reports[0].new == ("linear.weight", "linear.scale")
    assert sorted(reports[0].skipped) == ["linear.bias", "linear.weight"]
    assert len(reports[0].loaded) == len(trained.state_dict()) - 2


def test_without_new_head_the_error_names_it(tmp_path):
    path = _save(build("resnet8_cifar", 10).state_dict(), tmp_path, "npz")
    with pytest.raises(
        InvalidInput, match=r"fits resnet8_cifar\?classes=10; to load all but the head, pass --new-head"
    ):
        load("resnet8_cifar", classes=4, checkpoint=path)
    with pytest.raises(InvalidInput, match="a new head needs weights for the rest"):
        load("resnet8_cifar", classes=4, new_head=True)


@pytest.mark.parametrize("name", ["../w.safetensors", "/etc/passwd", "none.safetensors"])
def test_an_index_names_files_beside_it_only(tmp_path, name):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InvalidInput, match="which is not a file beside it"):
        read_parameters(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="not an index of weights"):
        read_parameters(tmp_path)


def test_position_embeddings_of_timm_are_interpolated(tmp_path):
    pytest.importorskip("timm", reason="timm is not installed")
    from timm.layers import resample_abs_pos_embed

    trained = load(f"{VIT}&img_size=64", classes=10, seed=1)
    path = _save(trained.state_dict(), tmp_path, "safetensors")
    reports = []
    model = load(f"{VIT}&img_size=32", classes=3, checkpoint=path, new_head=True, report=reports.append)
    expected = resample_abs_pos_embed(trained.pos_embed.detach(), new_size=[2, 2], num_prefix_tokens=1)
    torch.testing.assert_close(model.pos_embed.detach(), expected)
    assert reports[0].resampled == ("pos_embed",)
    assert reports[0].new == ("head.weight", "head.bias")


def test_position_embeddings_of_others_are_one_clear_line(tmp_path):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    state = load("torchvision:vit_b_16?image_size=64", classes=3).state_dict()
    path = _save(state, tmp_path, "safetensors")
    with pytest.raises(InvalidInput, match="position embeddings are for another image size"):
        load("torchvision:vit_b_16?image_size=32", classes=5, checkpoint=path, new_head=True)


@pytest.fixture
def vit(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=32, num_labels=7
    )
    return config, tmp_path / "vit"


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
def test_hugging_face_folders_with_a_new_head(vit, kind):
    import transformers

    config, folder = vit
    trained = getattr(transformers, kind)(config)
    trained.save_pretrained(folder)
    reports = []
    model = load(f"hf:{folder}", classes=3, new_head=True, head="cosine", report=reports.append)
    body = trained.vit if hasattr(trained, "vit") else trained
    query = body.state_dict()["embeddings.position_embeddings"]
    assert torch.equal(model.backbone.vit.embeddings.position_embeddings, query)
    assert model.linear.weight.shape == (3, 16)
    assert model.linear.scale == 64
    assert set(reports[0].new) == {"linear.weight", "linear.scale"}
    with pytest.raises(InvalidInput, match="With a new head"):
        load(f"hf:{folder}", classes=3)


def test_torchvision_checkpoints_fit_the_zoo(tmp_path):
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    torch.manual_seed(0)
    other = models.resnet50(num_classes=6).eval()
    torch.save(other.state_dict(), tmp_path / "w.pth")
    model = load("resnet50", classes=6, checkpoint=tmp_path / "w.pth")
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(model(images), other(images), atol=1e-4, rtol=1e-4)


def test_resnet_of_unknown_detection():
    """Three stages of 16, 32 and 64 channels, three blocks each, 1x1 shortcuts with batch norm: counted by hand."""
    widths = [(16, 16)] * 3 + [(16, 32)] + [(32, 32)] * 2 + [(32, 64)] + [(64, 64)] * 2
    count = 3 * 9 * 16 + 2 * 16
    for inside, outside in widths:
        count += 9 * inside * outside + 9 * outside * outside + 4 * outside
        if inside != outside:
            count += inside * outside + 2 * outside
    count += 64 * 40 + 40
    network = build("resnet20_cifar_b", 40)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert sum(parameter.numel() for parameter in build("resnet20_cifar", 40).parameters()) != count
