"""Heads, dropout, abstention and confidence branches on networks from elsewhere."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn import Classifier, load  # noqa: E402
from twofold.nn.models import adapt, find_head  # noqa: E402
from twofold.nn.models.parts import Options  # noqa: E402

VIT = "timm:vit_tiny_patch16_224?img_size=32&depth=2"
NET = """
import torch
from torch import nn

def make():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 6, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(384, 7))
"""


@pytest.fixture
def source(request, tmp_path):
    """The spec of a small network of each library."""
    kind = request.param
    if kind == "file":
        (tmp_path / "net.py").write_text(NET)
        return f"{tmp_path / 'net.py'}:make"
    if kind == "hf":
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        config = transformers.ViTConfig(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=32, num_labels=7
        )
        transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
        return f"hf:{tmp_path / 'vit'}"
    pytest.importorskip(kind, reason=f"{kind} is not installed")
    return {"timm": VIT, "torchvision": "torchvision:resnet18"}[kind]


everywhere = pytest.mark.parametrize("source", ["timm", "torchvision", "hf", "file"], indirect=True)


def _new(source, **options):
    is_fresh = source.startswith(("timm", "torchvision"))
    return load(source, classes=7 if is_fresh else None, new_head=not is_fresh, **options)


@everywhere
def test_cosine_head_and_branches_on_any_network(source):
    model = _new(source, head="cosine", scale=5.0, abstain=True, confidence="devries")
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found = Classifier(model)(images)
        features = model.encode(images)
        confidence = model.confidence(features)
    weight = model.linear.weight.detach().double().numpy()
    raw = features.double().numpy()
    cosines = raw @ weight.T / np.linalg.norm(raw, axis=1)[:, None] / np.linalg.norm(weight, axis=1)
    expected = 5.0 * cosines
    assert expected.shape == (4, 8)
    np.testing.assert_allclose(found.logits, expected[:, :7], atol=1e-5)
    shifted = np.exp(expected - expected.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found.learned["reservation"], (shifted / shifted.sum(1, keepdims=True))[:, 7], atol=1e-6)
    np.testing.assert_allclose(found.learned["devries"], confidence, atol=1e-6)
    np.testing.assert_allclose(found.raw, raw, atol=1e-6)
    np.testing.assert_allclose(found.features, raw / np.linalg.norm(raw, axis=1)[:, None], atol=1e-6)


@everywhere
def test_features_are_the_input_of_the_old_last_layer(source):
    plain = load(source, classes=7 if source.startswith(("timm", "torchvision")) else None)
    layer = find_head(plain)
    entered = []
    plain.get_submodule(layer).register_forward_hook(lambda module, given, output: entered.append(given[0].flatten(1)))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        answer = plain(images)
        adapted = adapt(plain, Options(7, confidence="confidnet"), layer=layer, keep=True).eval()
        logits = adapted(images)
    torch.testing.assert_close(adapted.encode(images), entered[0])
    torch.testing.assert_close(logits, getattr(answer, "logits", answer))


@pytest.mark.parametrize("source", ["timm", "hf"], indirect=True)
def test_dropout_in_the_blocks_of_a_transformer(source):
    model = _new(source, dropout=0.3)
    rates = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            rates[name] = module.p
    in_blocks = [rate for name, rate in rates.items() if "attn_drop" not in name and "head_drop" not in name]
    assert in_blocks
    assert set(in_blocks) == {0.3}
    assert not isinstance(model.head_drop, nn.Dropout)
    at_head = _new(source, dropout=0.3, dropout_at="head")
    assert at_head.head_drop.p == 0.3


def test_a_network_without_dropout_layers_gets_dropout_before_its_head():
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    assert load("torchvision:resnet18", classes=3, dropout=0.2).head_drop.p == 0.2
    with pytest.raises(InvalidInput, match="no dropout layers in its blocks; put dropout before the head"):
        load("torchvision:resnet18", classes=3, dropout=0.2, dropout_at="blocks")


def test_a_convolution_as_head_keeps_its_logits():
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 5, 1), nn.Flatten())
    images = torch.randn(2, 3, 9, 9)
    expected = body(images)
    adapted = adapt(body, Options(5, confidence="devries"), keep=True, size=9)
    torch.testing.assert_close(adapted(images), expected)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x):
        return self.first(x.flatten(1)), self.second(x.flatten(1))


def test_two_candidate_heads_are_one_clear_line():
    with pytest.raises(InvalidInput, match=r"2 layers that could be its head: first, second; name one with --head"):
        find_head(TwoHeads(), size=2)
    assert find_head(TwoHeads(), "first", size=2) == "first"
    with pytest.raises(InvalidInput, match=r"head='second' .* cannot be replaced"):
        find_head(TwoHeads(), "second", size=2)
    with pytest.raises(UnknownName, match="'third'"):
        find_head(TwoHeads(), "third", size=2)


def test_no_head_is_one_clear_line():
    softmax = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Softmax(dim=1))
    with pytest.raises(
        InvalidInput, match=r"no head that can be replaced: no linear layer computes what it returns \(4"
    ):
        find_head(softmax, size=2)
    with pytest.raises(InvalidInput, match="the network cannot take images of 3x3 or 224x224 or 32x32 pixels: mat1"):
        find_head(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), size=3)


def test_distilled_transformers_have_two_heads():
    pytest.importorskip("timm", reason="timm is not installed")
    with pytest.raises(InvalidInput, match="linear layers with as many: head, head_dist"):
        load("timm:deit_tiny_distilled_patch16_224?img_size=32&depth=1", classes=3, head="cosine")


def test_wrong_size_for_a_transformer_is_one_clear_line():
    pytest.importorskip("timm", reason="timm is not installed")
    model = load(VIT, classes=3)
    with pytest.raises(InvalidInput, match=r"cannot take inputs of shape \(1, 3, 48, 48\): .*48.*32"):
        Classifier(model)(torch.zeros(1, 3, 48, 48))
