"""Logits, features and head of any classifier: found, captured in one run, and obeying the head law."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from twofold import Outputs  # noqa: E402
from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.models import Classifier, build, load  # noqa: E402
from twofold.nn.models.parts import CosineHead  # noqa: E402


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def check(classifier, batch, *, plain=None):
    """The head law, the model's own logits, and what a hook on the head sees; returns what was captured."""
    with torch.no_grad():
        captured = classifier(batch)
    Outputs(captured.logits, features=captured.features, head=classifier.head, learned=captured.learned or None)
    assert captured.logits.shape == (len(captured.features), classifier.classes)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in classifier.model.modules())
    if plain is not None:
        torch.testing.assert_close(captured.logits, plain, rtol=1e-5, atol=1e-5)
    return captured


def mlp(*after):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4), *after).eval()


class Counting(nn.Module):
    """Counts its runs and wraps its answer."""

    def __init__(self, wrap=lambda z: z, body=None):
        super().__init__()
        self.body, self.wrap, self.runs = body or mlp(), wrap, 0

    def forward(self, x):
        self.runs += 1
        return self.wrap(self.body(x))


def test_plain_sequential():
    model, x = mlp(), noise(5, 3, 2, 2)
    classifier = Classifier(model)
    captured = check(classifier, x, plain=model(x).detach())
    assert torch.equal(captured.features, model[:4](x))
    assert classifier.head_name == "4"
    assert np.array_equal(classifier.head.weight, model[4].weight.detach().numpy())
    assert np.array_equal(classifier.head.bias, model[4].bias.detach().numpy())
    assert captured.learned == {}
    assert captured.raw is None


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: (z, "more"),
        lambda z: [z],
        lambda z: {"logits": z, "loss": None},
        lambda z: SimpleNamespace(logits=z),
        lambda z: z[:, :, None, None],
        lambda z: z.clone(),
    ],
    ids=["tuple", "list", "dict", "object", "trailing ones", "copy"],
)
def test_answers_of_every_form(wrap):
    x = noise(5, 12)
    model = Counting(wrap)
    check(Classifier(model), x, plain=model.body(x).detach())


def test_the_model_runs_once_a_batch_even_when_the_head_is_unknown():
    model = Counting()
    classifier = Classifier(model)
    for expected in (1, 2, 3):
        classifier(noise(2, 12))
        assert model.runs == expected
    assert Classifier(Counting(), example=noise(1, 12)).model.runs == 1


@pytest.mark.parametrize("form", ["tensor", "tuple", "list", "dict", "dict in a tuple"])
def test_batches_of_every_form(form):
    class Keyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, pixels, labels=None):
            assert labels is None
            return self.body(pixels)

    x, y = noise(3, 12), torch.zeros(3, dtype=torch.long)
    keywords = {"pixels": x, "labels": y}
    batch = {"tensor": x, "tuple": (x, y), "list": [x, y], "dict": keywords, "dict in a tuple": (keywords, y)}[form]
    model = Keyword().eval()
    check(Classifier(model), batch, plain=model.body(x).detach())
    assert "labels" in keywords


@pytest.mark.parametrize("batch", [(), "text", None, 3, np.zeros((2, 12))])
def test_batches_of_no_form(batch):
    with pytest.raises(InvalidInput, match="batch"):
        Classifier(mlp())(batch)


def test_named_head_and_wrong_names():
    model, x = mlp(), noise(3, 12)
    assert Classifier(model, head="4").classes == 4  # no batch is needed
    check(Classifier(model, head="4"), x)
    with pytest.raises(UnknownName, match="no module 'five'; known: 1, 4"):
        Classifier(model, head="five")
    with pytest.raises(InvalidInput, match="is a ReLU"):
        Classifier(model, head="2")
    with pytest.raises(InvalidInput, match=r"gives \(3, 8\) and the model returned \(3, 4\)"):
        Classifier(model, head="1")(x)
    with pytest.raises(InvalidInput, match=r"must be a torch\.nn\.Module, got function"):
        Classifier(lambda x: x)


def test_a_softmax_at_the_end_needs_the_name_of_the_head():
    model, x = mlp(nn.Softmax(dim=1)), noise(6, 12)
    with pytest.raises(InvalidInput, match=r"5 \(Softmax, \(6, 4\)\).*that ran with one vector a row: 1, 4.*head="):
        Classifier(model)(x)
    check(Classifier(model, head="4"), x, plain=model[:5](x).detach())


def test_a_head_that_says_something_else_than_the_model():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            return self.b(x) - self.a(x)

    with pytest.raises(InvalidInput, match="no linear layer gives what the model returned"):
        Classifier(Two())(noise(50, 6))
    with pytest.raises(InvalidInput, match=r"different classes in [0-9]+ of 50 rows"):
        Classifier(Two(), head="a")(noise(50, 6))


def test_of_two_heads_the_one_that_answers():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.main, self.aux = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            z = self.main(x)
            return z, self.aux(x), self.main(-x)  # the head runs twice

    model, x = Auxiliary(), noise(5, 6)
    classifier = Classifier(model)
    for _ in range(2):
        captured = check(classifier, x, plain=model.main(x).detach())
        assert torch.equal(captured.features, x)
    assert classifier.head_name == "main"


@pytest.mark.parametrize("tail", [nn.ReLU(inplace=True), nn.ReLU()])
def test_an_activation_after_the_last_linear_layer_is_no_head(tail):
    with pytest.raises(InvalidInput, match="no linear layer"):
        Classifier(mlp(tail))(noise(6, 12))


def test_a_named_head_changed_in_place():
    with pytest.raises(InvalidInput, match="changed in place"):
        Classifier(mlp(nn.ReLU(inplace=True)), head="4")(noise(6, 12))


def test_models_without_a_linear_head():
    squeeze = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.raises(InvalidInput, match=r"last modules that ran: .*AdaptiveAvgPool2d.*row: none"):
        Classifier(squeeze)(noise(2, 3, 5, 5))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda z: {"scores": z}, r"keys \['scores'\]"),
        (lambda z: "text", "returned str"),
        (lambda z: None, "returned NoneType"),
        (lambda z: (), "returned tuple"),
        (lambda z: z[:, 0], r"returned shape \(3,\)"),
        (lambda z: z[:, :1], r"returned shape \(3, 1\)"),
        (lambda z: z[:, :, None].expand(-1, -1, 2), r"returned shape \(3, 4, 2\)"),
        (lambda z: z[:0], r"returned shape \(0, 4\)"),
    ],
)
def test_answers_of_no_form(wrap, message):
    with pytest.raises(InvalidInput, match=message):
        Classifier(Counting(wrap))(noise(3, 12))


def test_nothing_is_known_before_the_first_run():
    classifier = Classifier(mlp())
    for ask in (lambda: classifier.head, lambda: classifier.classes, lambda: classifier.head_name, classifier.layers):
        with pytest.raises(InvalidInput, match=r"example="):
            ask()
    assert Classifier(mlp(), example=noise(1, 12)).head_name == "4"


def test_the_example_leaves_modes_and_statistics_alone():
    model = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    model.train()
    model[1].eval()
    mean = model[1].running_mean.clone()
    Classifier(model, example=noise(4, 12))
    assert [m.training for m in model] == [True, False, True, True]
    assert torch.equal(model[1].running_mean, mean)


def test_convolution_as_head_without_bias():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1, bias=False), nn.Flatten()
    ).eval()
    x = noise(5, 3, 8, 8)
    classifier = Classifier(model)
    captured = check(classifier, x, plain=model(x).detach())
    assert classifier.head.weight.shape == (4, 6)
    assert not classifier.head.bias.any()
    assert captured.features.shape == (5, 6)


def test_keyword_input_of_the_head_and_extra_dimensions():
    class Token(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(6, 4)

        def forward(self, x):
            return self.last(input=x[:, None])[:, 0]

    check(Classifier(Token()), noise(5, 6))


def test_active_dropout_is_in_the_features():
    model = mlp()
    classifier = Classifier(model, example=noise(1, 12))
    assert classifier.dropouts() == [model[3]]
    model[3].train()
    torch.manual_seed(0)
    x = noise(40, 12)
    captured = check(classifier, x)
    kept = captured.features != 0
    assert torch.allclose(captured.features[kept], 2 * model[:3](x)[kept])
    assert 0.2 < 1 - float(kept.float().mean()) / float((model[:3](x) != 0).float().mean()) < 0.8


def test_dropouts_are_those_with_a_rate():
    model = nn.Sequential(nn.Dropout(0.0), nn.Dropout2d(0.1), nn.AlphaDropout(0.2), nn.Linear(2, 2))
    assert Classifier(model).dropouts() == [model[1], model[2]]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    classifier = Classifier(mlp())
    with mode():
        for _ in range(2):
            assert not classifier(noise(2, 12)).logits.requires_grad


def test_gradients_reach_the_input():
    classifier, x = Classifier(mlp()), noise(2, 12).requires_grad_()
    classifier(x).logits.logsumexp(dim=1).sum().backward()
    assert float(x.grad.abs().sum()) > 0


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_half_precision_gets_float32_logits_that_obey_the_law(kind):
    model, x = mlp().to(kind), 30 * noise(64, 12).to(kind)
    classifier = Classifier(model)
    captured = check(classifier, x)
    wide = torch.float64 if kind == torch.float64 else torch.float32
    assert captured.logits.dtype == captured.features.dtype == wide
    exact = model[:4](x).double() @ model[4].weight.double().T + model[4].bias.double()
    torch.testing.assert_close(captured.logits.double(), exact, rtol=1e-5, atol=1e-4)


def test_autocast_gets_float32_logits_too():
    classifier = Classifier(mlp())
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            captured = check(classifier, 30 * noise(64, 12))
        assert captured.logits.dtype == torch.float32


def test_not_a_number_does_not_hide_the_head():
    classifier = Classifier(mlp())
    captured = classifier(noise(2, 12) * float("nan"))
    assert bool(captured.logits.isnan().all())
    assert classifier.head_name == "4"


def test_cosine_head_has_unit_features_and_keeps_the_raw_ones():
    model = build("resnet8_cifar", 5, head="cosine", scale=6.0).eval()
    x = noise(4, 3, 32, 32)
    classifier = Classifier(model)
    captured = check(classifier, x, plain=model(x).detach())
    raw = model.encode(x).detach()
    assert torch.equal(captured.raw, raw)
    torch.testing.assert_close(captured.features, raw / raw.norm(dim=1, keepdim=True))
    w = model.linear.weight.detach().numpy()
    assert classifier.head.weight == pytest.approx(6 * w / np.linalg.norm(w, axis=1, keepdims=True), rel=1e-5)
    assert not classifier.head.bias.any()
    check(Classifier(nn.Sequential(nn.Flatten(), CosineHead(12, 3))), noise(4, 12))


@pytest.mark.parametrize("kind", ["devries", "confidnet"])
def test_confidence_branch_is_a_learned_output(kind):
    model = build("resnet8_cifar", 5, confidence=kind).eval()
    x = noise(4, 3, 32, 32)
    captured = check(Classifier(model), x, plain=model(x).detach())
    h = captured.features
    layers = [m for m in model.confidence.modules() if isinstance(m, nn.Linear)]
    for layer in layers[:-1]:
        h = F.relu(h @ layer.weight.T + layer.bias)
    expected = torch.sigmoid(h @ layers[-1].weight[0] + layers[-1].bias)
    assert list(captured.learned) == [kind]
    torch.testing.assert_close(captured.learned[kind], expected.detach())


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_abstention_is_apart_from_the_classes(head):
    model = build("resnet8_cifar", 5, abstain=True, confidence="devries", head=head).eval()
    x = noise(4, 3, 32, 32)
    wrapped = nn.Sequential(nn.Identity(), model)  # found inside a wrapper too
    classifier = Classifier(wrapped)
    captured = check(classifier, x)
    everything = model(x).detach().double().exp()
    assert classifier.classes == 5
    assert classifier.head.weight.shape == (5, 64)
    torch.testing.assert_close(captured.logits, model(x).detach()[:, :5])
    expected = everything[:, 5] / everything.sum(dim=1)
    torch.testing.assert_close(captured.learned["reservation"].double(), expected, rtol=1e-5, atol=1e-7)
    assert set(captured.learned) == {"devries", "reservation"}


def test_layers_of_resnets_and_others():
    x = noise(1, 3, 32, 32)
    for name, expected in {
        "resnet18_32": ["layer1", "layer2", "layer3", "layer4"],
        "preresnet20": ["layer1", "layer2", "layer3"],
        "svhn_small": ["block1", "block2", "block3"],
    }.items():
        model = build(name, 3)
        found = Classifier(model, example=x).layers()
        assert list(found) == expected
        assert found[expected[0]] is getattr(model, expected[0])
    flat = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(2 * 28 * 28, 3))
    classifier = Classifier(flat, example=x)
    assert list(classifier.layers()) == ["0", "2"]
    assert list(classifier.layers(["1"])) == ["1"]
    assert Classifier(mlp(), example=noise(1, 12)).layers() == {}
    with pytest.raises(UnknownName, match="no module '9'"):
        classifier.layers(["9"])


@pytest.mark.parametrize(
    ("name", "head", "layers"),
    [
        ("resnet18", "fc", ["layer1", "layer2", "layer3", "layer4"]),
        ("mobilenet_v3_small", "classifier.3", [f"features.{i}" for i in range(13)]),
        ("vit_b_16", "heads.head", ["conv_proj"]),
        ("efficientnet_b0", "classifier.1", [f"features.{i}" for i in range(9)]),
        ("convnext_tiny", "classifier.2", [f"features.{i}" for i in range(8)]),
    ],
)
def test_torchvision(name, head, layers):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    options = "&image_size=32" if name == "vit_b_16" else ""
    model = load(f"torchvision:{name}?num_classes=7{options}")
    x = noise(2, 3, 32, 32)
    classifier = Classifier(model)
    check(classifier, x, plain=model(x).detach())
    assert classifier.head_name == head
    assert list(classifier.layers()) == layers


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("test_vit", "head"),
        ("test_resnet", "fc"),
        ("test_byobnet", "head.fc"),
        ("test_convnext", "head.fc"),
        ("test_efficientnet", "classifier"),
    ],
)
def test_timm(name, head):
    pytest.importorskip("timm", reason="timm is not installed")
    model = load(f"timm:{name}", classes=6)
    side = 160 if "vit" in name else 64
    x = noise(2, 3, side, side)
    classifier = Classifier(model)
    check(classifier, x, plain=model(x).detach())
    assert classifier.head_name == head


def test_timm_convolution_as_head():
    resnetv2 = pytest.importorskip("timm.models.resnetv2", reason="timm is not installed")
    model = resnetv2.ResNetV2(layers=(1, 1), channels=(128, 128), num_classes=6, stem_chs=32).eval()
    classifier, x = Classifier(model), noise(2, 3, 32, 32)
    check(classifier, x, plain=model(x).detach())
    assert classifier.head_name == "head.fc"
    assert isinstance(model.head.fc, nn.Conv2d)


def test_two_averaged_heads_are_no_linear_head():
    timm = pytest.importorskip("timm", reason="timm is not installed")
    model = timm.create_model("deit_tiny_distilled_patch16_224", img_size=32, depth=1, num_classes=5).eval()
    with pytest.raises(InvalidInput, match="no linear layer gives"):
        Classifier(model)(noise(2, 3, 32, 32))


def test_hugging_face_vit_and_bert():
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    vit = hf.ViTForImageClassification(hf.ViTConfig(image_size=8, patch_size=4, num_labels=3, **small)).eval()
    batch = {"pixel_values": noise(2, 3, 8, 8), "labels": torch.tensor([0, 1])}
    classifier = Classifier(vit)
    check(classifier, batch, plain=vit(batch["pixel_values"]).logits.detach())
    assert classifier.head_name == "classifier"

    bert = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=30, num_labels=4, **small)).eval()
    words = torch.arange(12).reshape(2, 6)
    batch = hf.BatchEncoding({"input_ids": words, "attention_mask": torch.ones_like(words), "label": words[:, 0]})
    classifier = Classifier(bert)
    captured = check(classifier, batch, plain=bert(words).logits.detach())
    assert classifier.head_name == "classifier"
    torch.testing.assert_close(captured.features, bert.bert(words).pooler_output.detach())


@pytest.mark.parametrize("options", [{}, {"head": "cosine"}, {"abstain": True, "confidence": "devries"}])
def test_the_head_alone_repeats_the_end_of_a_run(options):
    classifier, x = Classifier(build("resnet8_cifar", 5, **options).eval()), noise(4, 3, 32, 32)
    captured = check(classifier, x)
    with torch.no_grad():
        again = classifier.at_head(captured.features if captured.raw is None else captured.raw)
    assert torch.equal(again.logits, captured.logits)
    assert torch.equal(again.features, captured.features)
    assert all(torch.equal(again.learned[name], value) for name, value in captured.learned.items())


def test_without_torch_the_error_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\nimport twofold.nn\ntwofold.nn.Classifier"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith('twofold.nn.Classifier needs torch: pip install "twofold[torch]"')


def test_names_resolve_lazily():
    import twofold.nn

    assert twofold.nn.Classifier is Classifier
    assert twofold.nn.load is load
    with pytest.raises(AttributeError, match=r"attribute.*Clasifier"):
        _ = twofold.nn.Clasifier
