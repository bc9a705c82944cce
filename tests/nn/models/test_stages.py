"""Stages, frozen weights, and depths of layers."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402

from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import build, load  # noqa: E402
from twofold.nn.models import freeze, stages  # noqa: E402
from twofold.nn.training import Settings  # noqa: E402
from twofold.nn.training.optimiser import group_parameters  # noqa: E402

VIT = "timm:vit_tiny_patch16_224?img_size=32&depth=3"


def _names(groups):
    return [group.name for group in groups]


def test_stages_of_the_zoo():
    assert _names(stages(build("resnet18_32", 10))) == ["stem", "layer1", "layer2", "layer3", "layer4"]
    assert _names(stages(build("vgg13", 10, dropout=0.3))) == [f"block{i}" for i in range(1, 6)]
    blocks = _names(stages(build("resnet20_cifar", 10), blocks=True))
    assert blocks == ["stem", *(f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1, 2))]


@pytest.mark.parametrize("name", ["resnet18_32", "preresnet20", "vgg13", "svhn_small", "resnet8_cifar_kd"])
def test_every_parameter_but_the_head_is_in_one_stage(name):
    network = build(name, 10, confidence="devries")
    listed = [parameter for stage in stages(network) for parameter in stage.parameters]
    rest = [key for key, _ in network.named_parameters() if not key.startswith(("linear.", "confidence."))]
    assert sorted(listed) == sorted(rest)


def test_stages_of_torchvision_and_of_one_of_your_own():
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    network = load("torchvision:resnet18", classes=3)
    assert _names(stages(network, head=["fc"])) == ["stem", "layer1", "layer2", "layer3", "layer4"]
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    assert _names(stages(own, head=["3"])) == ["0", "1"]


def test_stages_of_hugging_face():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    network = transformers.ViTForImageClassification(config)
    found = stages(network, head=["classifier"])
    assert len(found) == 3
    assert found[0].name == "stem"
    assert all(".0." in f"{name}." for name in found[1].parameters)
    assert "vit.layernorm.weight" in found[2].parameters


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("name", [VIT, "timm:test_resnet", "timm:test_vit?class_token=False&global_pool=avg"])
def test_layer_decay_is_that_of_timm(name, adapted):
    pytest.importorskip("timm", reason="timm is not installed")
    from timm.optim import param_groups_layer_decay

    plain = load(name, classes=5)
    head = plain.get_classifier()
    expected = {}
    for group in param_groups_layer_decay(
        plain,
        weight_decay=0.05,
        no_weight_decay_list=plain.no_weight_decay() if "vit" in name else (),
        layer_decay=0.75,
    ):
        for parameter in group["params"]:
            expected[id(parameter)] = (group["lr_scale"], group["weight_decay"])
    named = {key: expected[id(parameter)] for key, parameter in plain.named_parameters()}
    assert head is not None
    network = load(name, classes=5, confidence="devries") if adapted else plain
    layer = next(key for key, module in plain.named_modules() if module is head)
    groups = group_parameters(Settings(layer_decay=0.75, weight_decay=0.05), network, 0.1, head=[layer])
    found = {}
    for group in groups:
        assert group["lr"] == pytest.approx(0.1 * group["lr_scale"])
        for parameter in group["params"]:
            found[id(parameter)] = (group["lr_scale"], group["weight_decay"])
    compared = 0
    for key, parameter in network.named_parameters():
        own = key.removeprefix("backbone.")
        if own in named and id(parameter) in found:
            assert found[id(parameter)] == pytest.approx(named[own]), key
            compared += 1
    assert compared >= len(named) - 2
    assert len(found) == len(list(network.parameters()))


def test_head_learning_rate():
    network = build("resnet8_cifar", 4, confidence="devries")
    for group in group_parameters(Settings(head_lr=0.5, lr=0.1), network, 0.1):
        members = {id(parameter) for parameter in group["params"]}
        is_head = id(network.linear.weight) in members
        assert group["lr"] == pytest.approx(0.5 if is_head else 0.1)
        assert (id(network.confidence.layers[0].weight) in members) == is_head
    assert isinstance(group_parameters(Settings(), network, 0.1)[0], nn.Parameter)


def test_freezing():
    network = build("resnet8_cifar", 4)
    assert freeze(network, "none") == []
    frozen = freeze(network, "2")
    assert frozen[0] == "conv1.weight"
    assert {name.split(".")[0] for name in frozen} == {"conv1", "bn1", "layer1"}
    assert network.layer2[0].conv1.weight.requires_grad
    freeze(network, "backbone")
    assert [name for name, value in network.named_parameters() if value.requires_grad] == [
        "linear.weight",
        "linear.bias",
    ]
    with pytest.raises(InvalidInput, match="asks for 9 stages, and the network has 4: stem, layer1, layer2, layer3"):
        freeze(network, 9)
    for wrong in ("head", "-1", -1, True, 1.5):
        with pytest.raises(InvalidInput, match="freeze must be none, backbone or a number of stages"):
            freeze(network, wrong)
    with pytest.raises(InvalidInput, match="freeze must be"):
        Settings(freeze="all")
    with pytest.raises(InvalidInput, match="layer_decay"):
        Settings(layer_decay=0.0)
