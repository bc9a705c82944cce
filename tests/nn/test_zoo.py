"""The networks of the zoo: other libraries' or slow forms of the same, dropout where the papers have it, options."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.models import build, names, parts  # noqa: E402
from twofold.nn.models.parts import ConfidenceBranch, CosineHead  # noqa: E402

# millions of parameters with 10 classes: He et al. (2016), Table 6; Zagoruyko & Komodakis (2016), Table 5
MILLIONS = {
    "resnet20_cifar": 0.27,
    "resnet32_cifar": 0.46,
    "resnet44_cifar": 0.66,
    "resnet56_cifar": 0.85,
    "resnet110_cifar": 1.7,
    "preresnet110": 1.7,
    "preresnet164": 1.7,
    "wrn28_10": 36.5,
}


def draw(model, seed=0):
    """Give batch norms statistics and all biases values, so that no term is 0 or 1."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight, module.running_var):
                    tensor.copy_(torch.rand(tensor.shape, generator=rng) + 0.5)
                for tensor in (module.bias, module.running_mean):
                    tensor.copy_(torch.randn(tensor.shape, generator=rng) * 0.1)
    return model.eval()


def pictures(n=2, channels=3, seed=0):
    return torch.randn(n, channels, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MILLIONS)
def test_published_sizes(name):
    with torch.device("meta"):
        count = sum(p.numel() for p in build(name, 10).parameters())
    digits = len(str(MILLIONS[name]).split(".")[1])
    assert round(count / 1e6, digits) == MILLIONS[name]


@pytest.mark.parametrize("name", ["resnet8_cifar", "resnet8_cifar_b", "resnet8_cifar_kd", "preresnet20", "svhn_small"])
def test_small_ones_answer(name):
    x = pictures(channels=1)
    model = build(name, 7, in_channels=1).eval()
    assert model(x).shape == (2, 7)
    assert model.encode(x).shape == (2, model.width)


def test_every_name_builds():
    for name in names():
        with torch.device("meta"):
            model = build(name, 4, dropout=0.1, head="cosine", confidence="devries", abstain=True)
            if not name.startswith(("resnet56", "resnet110", "preresnet56", "preresnet1")):  # more of the same blocks
                assert model(torch.empty(2, 3, 32, 32)).shape == (2, 5), name
        assert isinstance(model.linear, CosineHead)


def test_resnets_for_32_are_torchvisions_with_another_stem():
    vision = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    for name, make in (("resnet18_32", vision.resnet18), ("resnet50_32", vision.resnet50)):
        ours, theirs = draw(build(name, 5)), make(num_classes=5)
        theirs.conv1, theirs.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        renamed = {k.replace("shortcut", "downsample").replace("linear", "fc"): v for k, v in ours.state_dict().items()}
        theirs.load_state_dict(renamed)
        with torch.no_grad():
            torch.testing.assert_close(ours(pictures(1)), theirs.eval()(pictures(1)), rtol=1e-4, atol=1e-4)


def test_vggs_are_torchvisions_features():
    vision = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    for name, make in (("vgg13", vision.vgg13_bn), ("vgg16_bn_32", vision.vgg16_bn), ("vgg19_bn_32", vision.vgg19_bn)):
        ours = draw(build(name, 5))
        with torch.device("meta"):
            theirs = make(num_classes=5).features
        values = [v for k, v in ours.state_dict().items() if k.startswith("block")]
        keys = list(theirs.state_dict())
        theirs.load_state_dict(dict(zip(keys, values, strict=True)), assign=True)
        with torch.no_grad():
            expected = theirs.eval()(pictures(1)).flatten(1)
            torch.testing.assert_close(ours.encode(pictures(1)), expected, rtol=1e-4, atol=1e-4)


def bn(x, p, name):
    return F.batch_norm(
        x, p[f"{name}.running_mean"], p[f"{name}.running_var"], p[f"{name}.weight"], p[f"{name}.bias"], eps=1e-5
    )


@pytest.mark.parametrize(("name", "blocks", "convolutions"), [("preresnet20", 3, 2), ("preresnet164", 18, 3)])
def test_preresnets_line_by_line(name, blocks, convolutions):
    model = draw(build(name, 5))
    p = model.state_dict()
    with torch.no_grad():
        y = F.conv2d(pictures(), p["conv1.weight"], padding=1)
        for stage in (1, 2, 3):
            for i in range(blocks):
                at = f"layer{stage}.{i}"
                stride = 2 if stage > 1 and i == 0 else 1
                before = F.relu(bn(y, p, f"{at}.norms.0"))
                short = (
                    F.conv2d(before, p[f"{at}.shortcut.weight"], stride=stride) if f"{at}.shortcut.weight" in p else y
                )
                inner = y
                for c in range(convolutions):
                    w = p[f"{at}.convs.{c}.weight"]
                    strided = c == (1 if convolutions == 3 else 0)
                    assert w.shape[2] == (3 if convolutions == 2 or c == 1 else 1)
                    inner = F.relu(bn(inner, p, f"{at}.norms.{c}"))
                    inner = F.conv2d(inner, w, stride=stride if strided else 1, padding=w.shape[2] // 2)
                y = inner + short
        y = F.relu(bn(y, p, "bn")).mean((2, 3))
        expected = y @ p["linear.weight"].T + p["linear.bias"]
        torch.testing.assert_close(model(pictures()), expected, rtol=1e-4, atol=1e-4)
    assert model.width == (256 if convolutions == 3 else 64)


@pytest.mark.parametrize("variant", ["a", "b"])
def test_cifar_resnet_line_by_line(variant):
    model = draw(build("resnet8_cifar" + ("" if variant == "a" else "_b"), 5))
    p = model.state_dict()
    with torch.no_grad():
        y = F.relu(bn(F.conv2d(pictures(), p["conv1.weight"], padding=1), p, "bn1"))
        for stage, stride in ((1, 1), (2, 2), (3, 2)):
            at = f"layer{stage}.0"
            inner = F.relu(bn(F.conv2d(y, p[f"{at}.conv1.weight"], stride=stride, padding=1), p, f"{at}.bn1"))
            inner = bn(F.conv2d(inner, p[f"{at}.conv2.weight"], padding=1), p, f"{at}.bn2")
            short = y
            if stage > 1 and variant == "b":
                short = bn(F.conv2d(y, p[f"{at}.shortcut.0.weight"], stride=2), p, f"{at}.shortcut.1")
            elif stage > 1:
                zeros = torch.zeros(len(y), y.shape[1] // 2, y.shape[2] // 2, y.shape[3] // 2)
                short = torch.cat([zeros, y[:, :, ::2, ::2], zeros], dim=1)
            y = F.relu(inner + short)
        expected = y.mean((2, 3)) @ p["linear.weight"].T + p["linear.bias"]
        torch.testing.assert_close(model(pictures()), expected, rtol=1e-4, atol=1e-5)


def test_svhn_network_line_by_line():
    model = draw(build("svhn_small", 5))
    p = model.state_dict()
    with torch.no_grad():
        y = pictures()
        for k in (1, 2, 3):
            for c, n in ((0, 2), (3, 5)):
                y = F.pad(y, (1, 1, 1, 1), mode="reflect")
                y = F.relu(F.conv2d(y, p[f"block{k}.{c}.weight"], p[f"block{k}.{c}.bias"]))
                y = bn(y, p, f"block{k}.{n}")
            y = F.max_pool2d(y, 2)
        assert y.shape[1:] == (128, 4, 4)
        y = F.relu(F.linear(y.flatten(1), p["fc.weight"], p["fc.bias"]))
        expected = F.linear(y, p["linear.weight"], p["linear.bias"])
        torch.testing.assert_close(model(pictures()), expected, rtol=1e-4, atol=1e-4)


def rates(model):
    return [m.p for m in model.modules() if isinstance(m, nn.Dropout)]


@pytest.mark.parametrize(
    ("name", "rate", "expected"),
    [
        ("vgg13", 0.3, [0.3, 0.4, 0.4, 0.4, 0.4, 0.5, 0.5]),
        ("svhn_small", 0.3, [0.3, 0.3, 0.3, 0.3]),
        ("resnet50_32", 0.1, [0.1] * (1 + 2 * (4 + 6 + 3) + 1)),
        ("resnet20_cifar_b", 0.2, [0.2] * 18 + [0.1]),
        ("resnet18_32", 0.2, [0.2] * 16 + [0.1]),
        ("preresnet20", 0.2, [0.2] * 18 + [0.1]),
        ("preresnet164", 0.2, [0.2] * (3 * 54) + [0.1]),
        ("wrn28_10", 0.3, [0.3] * 12),
        ("vgg16_bn_32", 0.5, [0.5]),
    ],
)
def test_dropout_sites_and_rates(name, rate, expected):
    with torch.device("meta"):
        assert rates(build(name, 10, dropout=rate)) == expected
        assert not rates(build(name, 10))


def test_vgg13_with_dropout_has_one_more_linear_layer():
    with torch.device("meta"):
        plain, dropped = build("vgg13", 10), build("vgg13", 10, dropout=0.3)
    extra = sum(p.numel() for p in dropped.parameters()) - sum(p.numel() for p in plain.parameters())
    assert extra == 512 * 512 + 512
    kinds = [type(m) for m in dropped.top]
    assert kinds == [nn.Dropout, nn.Linear, nn.ReLU, nn.Dropout]


def test_dropout_is_where_the_block_needs_it():
    """With all of the second site dropped only the shortcut is left; the stem has none."""
    model = draw(build("resnet8_cifar_b", 5, dropout=0.5))
    block = model.layer1[0]
    block.drop2 = nn.Dropout(1.0).train()
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), F.relu(x))
    assert not any(isinstance(m, nn.Dropout) for m in (model.conv1, model.bn1))


def test_cosine_head_is_a_scaled_cosine():
    head = CosineHead(6, 4, scale=5.0)
    f = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    w = head.weight.detach().numpy().astype(np.float64)
    x = f.numpy().astype(np.float64)
    expected = [[5 * a @ b / np.sqrt(a @ a) / np.sqrt(b @ b) for b in w] for a in x]
    assert head(f).detach().numpy() == pytest.approx(np.array(expected), abs=1e-5)
    assert torch.allclose(head(f), head(7 * f), atol=1e-5)
    assert [n for n, _ in head.named_parameters()] == ["weight"]
    assert {n for n, _ in CosineHead(6, 4, learn_scale=True).named_parameters()} == {"weight", "scale"}
    assert float(build("resnet8_cifar", 3, head="cosine").linear.scale) == 8.0


def test_branches_have_the_layers_of_the_papers():
    def shapes(branch):
        return [(m.in_features, m.out_features) for m in branch.modules() if isinstance(m, nn.Linear)]

    assert shapes(ConfidenceBranch("devries", 64)) == [(64, 1)]
    assert shapes(ConfidenceBranch("confidnet", 512)) == [(512, 400), *[(400, 400)] * 4, (400, 1)]
    values = ConfidenceBranch("confidnet", 8)(torch.randn(5, 8))
    assert values.shape == (5,)
    assert bool(((values > 0) & (values < 1)).all())


def test_weights_come_from_the_seed_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, again, other = (build("resnet8_cifar", 3, seed=s).state_dict() for s in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["conv1.weight"], other["conv1.weight"])


def test_the_order_in_memory_changes_nothing_but_speed(monkeypatch):
    net, x = build("resnet8_cifar", 5).double(), torch.randn(6, 3, 32, 32, dtype=torch.double)
    maps = []
    net.layer1.register_forward_hook(lambda module, given, result: maps.append(result))
    found = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(parts, "channels_last", lambda images: images)
        net.zero_grad()
        net(x).square().sum().backward()
        found.append([p.grad.clone() for p in net.parameters()])
    assert maps[0].is_contiguous(memory_format=torch.channels_last)
    assert maps[1].is_contiguous()
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def test_he_initialisation():
    weight = build("resnet18_32", 10).layer4[1].conv2.weight
    assert float(weight.detach().std()) == pytest.approx((2 / (512 * 9)) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": 1}, "classes must be a whole number of at least 2"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"dropout": -0.1}, "dropout must be in"),
        ({"head": "linaer"}, "did you mean 'linear'"),
        ({"confidence": "confidne"}, "did you mean 'confidnet'"),
        ({"abstain": 1}, "abstain must be True or False"),
        ({"learn_scale": True}, 'pass head="cosine"'),
        ({"scale": 0}, "scale must be in"),
        ({"in_channels": 0}, "in_channels"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options(change, message):
    with pytest.raises(InvalidInput, match=message):
        build("resnet8_cifar", **({"classes": 10} | change))


def test_a_rate_that_makes_another_site_drop_everything():
    with torch.device("meta"), pytest.raises(InvalidInput, match="must be below 1"):
        build("vgg13", 10, dropout=0.7)


def test_unknown_network():
    with pytest.raises(UnknownName, match=r"did you mean .*'resnet18_32'"):
        build("resnet18_23", 10)


@pytest.mark.parametrize("name", ["svhn_small", "resnet8_cifar_kd"])
def test_wrong_image_size(name):
    with pytest.raises(InvalidInput, match="32x32 pixels, got 28x28"):
        build(name, 4)(torch.zeros(1, 3, 28, 28))
