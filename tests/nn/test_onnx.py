"""The ONNX gate says what the gate in Python says: every score on exact numbers, and real images end to end."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from twofold import Outputs, scorer  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.gate import Gate  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.nn.models import Classifier, build, load  # noqa: E402
from twofold.nn.onnx import SCORES, TRANSFORMS, to_onnx  # noqa: E402

WORDS = ("accept", "unsure", "unknown")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def run(path, images):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"images": images}), strict=True))


def codes(verdict):
    return np.array([WORDS.index(word) for word in verdict])


def compare(got, decision, *, slack):
    """Confidences agree to ``slack`` of their spread; verdicts agree but where a margin is smaller than that.

    Returns how many verdicts differ.
    """
    assert np.array_equal(got["label"], decision.labels)
    near = np.zeros(len(decision), bool)
    for name, margin in (("conf_id", decision.margin_id), ("conf_ood", decision.margin_ood)):
        conf = getattr(decision, name)
        finite = np.isfinite(conf)
        room = slack * max(1.0, np.ptp(conf[finite]))
        assert got[name].dtype == np.float64
        assert np.array_equal(got[name][~finite], conf[~finite])
        assert np.abs(got[name] - conf)[finite].max() <= room, name
        near |= np.abs(margin) <= room
    differ = got["verdict"] != codes(decision.verdict)
    assert not (differ & ~near).any()
    return int(differ.sum())


# Every score, on a network whose features and logits are whole numbers, so that float32 does not round


class Whole(torch.nn.Module):
    """Features are the pixels themselves."""

    def __init__(self, weight, bias):
        super().__init__()
        self.last = torch.nn.Linear(weight.shape[1], len(weight))
        self.last.weight.data, self.last.bias.data = torch.tensor(weight), torch.tensor(bias)

    def forward(self, x):
        return self.last(x.flatten(1))


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(0)
    weight, bias = rng.integers(-2, 3, (5, 12)).astype(np.float32), rng.integers(-3, 4, 5).astype(np.float32)
    images = rng.integers(0, 4, (240, 3, 2, 2)).astype(np.float32)
    images[:6] *= 40  # logits far apart: probabilities that float64 rounds to 1
    images[6] = 0.0
    model = Whole(weight, bias)
    features = images.reshape(240, 12)
    logits = features @ weight.T + bias
    labels = np.where(rng.random(240) < 0.7, logits.argmax(axis=1), rng.integers(0, 5, 240))
    train = Outputs(logits, labels, features, Classifier(model, example=torch.tensor(images[:2])).head)
    return model, images, train, train.replace(labels=np.where(rng.random(240) < 0.2, -1, labels))


LEARNED = ("confidnet", "devries", "gambler")
SPECS = [
    *(name for name in SCORES if name not in (*LEARNED, "sum", "product", "neglabel")),
    *(f"{name}|energy" for name in TRANSFORMS),
    'sum(of=("msp", "knn(k=3)"), weights=(1.0, 0.5))',
    'product(of=("energy", "react|vim"))',
    "maxlogit_pnorm(p=0)",
    "maxlogit_pnorm(p=5)",
    "energy(temperature=2.0, weights=(1.0, 2.0, 0.5, 1.0, 3.0))",
    "gen(top=3)",
    "edl_max(evidence='relu')",
    "edl_vacuity(evidence='softplus')",
    "renyi(alpha=1.0, top=2)",
    "renyi(alpha=2.0)",
    'mds(covariance="total", nearest=False)',
    'she(kind="cosine")',
    'she(kind="euclidean")',
    "fdbd(center=False)",
    "fdbd(absolute=True)",
    "msp(of='largest')",
    "neco(scale_by_logit=False)",
    'neco(standardise=False, denominator="raw")',
    "pca_error(fused=True)",
    'kpca_error(map="fourier", width=32)',
    'kpca_error(map="nystroem", landmarks=32, normalised=True)',
    'sirc(s1="entropy", s2=("norm", "residual"))',
    'sirc(s2="residual", compat="published")',
    'ash(kind="b", percentile=50.0)|energy',
    'ash(kind="p", percentile=50.0)|gini',
    "scale(percentile=50.0)|mds",
    "lts(percentile=50.0)|msp",
    "vra(low=30.0, high=70.0, gain=0.5)|mls",
    "temperature(value=3.0)|cosine_weight",
    "dice(percentile=30.0)|fdbd",
    'project(kind="class")|msp',
    'project(kind="class_avg")|rmds',
    "react(percentile=60.0)|scale|entropy",
    "cadref(base='gen')",
    "cadref(base='msp')",
    "cadref(base='mls')",
    "neglabel(negatives=((1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), (0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0)), groups=2)",
    "mcm(text=((1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), (0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0)), temperature=0.1)",
]


ARRAYS = {  # settings that are arrays
    "weiper": {"noise": np.random.default_rng(4).normal(size=(3, 5, 12))},
    "grood": {"prototype": np.arange(12) / 4.0},
    "mcm": {"text": np.random.default_rng(5).normal(size=(4, 12))},
    "neglabel(groups=2)": {"negatives": np.random.default_rng(6).normal(size=(6, 12))},
}


@pytest.mark.parametrize("spec", ARRAYS)
def test_array_settings_are_exported_from_a_saved_gate(whole, spec, tmp_path):
    model, images, train, validation = whole
    chain = scorer(spec, **ARRAYS[spec])
    gate = Gate.fit(validation, "msp", chain, train=train, objective="coverage", coverage=0.7)
    gate.save(tmp_path / "gate")
    to_onnx(Gate.load(tmp_path / "gate"), model, tmp_path / "gate.onnx", shape=(3, 2, 2))
    compare(run(tmp_path / "gate.onnx", images), gate.decide(train), slack=1e-9)


@pytest.mark.parametrize("spec", SPECS)
def test_every_score_has_the_value_of_python(whole, spec, tmp_path):
    model, images, train, validation = whole
    gate = Gate.fit(validation, "msp", spec, train=train, objective="coverage", coverage=0.7)
    to_onnx(gate, model, tmp_path / "gate.onnx", shape=(3, 2, 2))
    got, decision = run(tmp_path / "gate.onnx", images), gate.decide(train)
    assert set(decision.verdict) >= {"accept", "unknown"} or set(decision.verdict) >= {"accept", "unsure"}
    compare(got, decision, slack=1e-9)


@pytest.mark.parametrize("spec", ["margin", "entropy", "gini", "collision", "gen(gamma=1.0)"])
def test_confident_rows_keep_their_digits(spec, tmp_path):
    """Far from a tie these scores are close to their bound; the distance to it must not be lost to rounding."""
    rng = np.random.default_rng(1)
    logits = np.concatenate([rng.normal(size=(20, 4)), np.eye(4)[[0, 1, 2, 3]] * np.array([[20], [25], [30], [33.0]])])
    logits = logits.astype(np.float32)
    model = Whole(np.eye(4, dtype=np.float32), np.zeros(4, np.float32))
    seen = Outputs(logits, logits.argmax(axis=1))
    gate = Gate.fit(seen, spec, None)
    to_onnx(gate, model, tmp_path / "gate.onnx", shape=(4, 1, 1))
    got, expected = run(tmp_path / "gate.onnx", logits[:, :, None, None])["conf_id"], gate.decide(seen).conf_id
    bound = 1.0 if spec == "margin" else 0.0
    assert bound - got == pytest.approx(bound - expected, rel=1e-6 if bound == 0.0 else 0.3, abs=1e-15 * bound)
    assert list(np.argsort(got[-4:], kind="stable")) == list(np.argsort(expected[-4:], kind="stable"))


# Real images


@pytest.fixture(scope="module")
def real(data_dir):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")

    def tiles(name, rows):
        path = data_dir / f"{name}.webp"
        if not path.is_file():
            pytest.skip(f"TWOFOLD_DATA has no {path.name}")
        sheet = np.asarray(image.open(path).convert("RGB"))
        return sheet.reshape(-1, 32, sheet.shape[1] // 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)[rows]

    if not (data_dir / "weights_cifar10_resnet20.npz").is_file():
        pytest.skip("TWOFOLD_DATA has no weights_cifar10_resnet20.npz")
    with np.load(data_dir / "image_labels.npz") as stored:
        known = stored["cifar10_test"]
    model = load("resnet20_cifar", checkpoint=data_dir / "weights_cifar10_resnet20.npz")
    classifier, prepare = Classifier(model), Prepare(*IMAGENET)

    def outputs(images, labels):
        with torch.inference_mode():
            parts = [classifier(prepare(images[i : i + 200])) for i in range(0, len(images), 200)]
        logits, features = (torch.cat([getattr(p, n) for p in parts]).numpy() for n in ("logits", "features"))
        return Outputs(logits, labels, features, classifier.head)

    train = outputs(tiles("cifar10_test", slice(0, 600)), known[:600])
    held = [tiles("cifar10_test", slice(600, 900)), tiles("ood_svhn", slice(0, 150))]
    validation = outputs(np.concatenate(held), np.concatenate([known[600:900], np.full(150, -1)]))
    images = np.concatenate([tiles("cifar10_test", slice(900, 1300)), tiles("ood_textures", slice(0, 200))])
    test = outputs(images, np.concatenate([known[900:1300], np.full(len(images) - 400, -1)]))
    return model, train, (np.concatenate(held), validation), (images, test)


@pytest.mark.parametrize(
    ("first", "second"),
    [("msp", "energy"), ("entropy", "react|energy"), ("gini", "mds"), ("sirc", "vim"), ("margin", "knn(k=10)")],
)
def test_verdicts_on_real_images_are_those_of_python(real, first, second, tmp_path):
    model, train, (held, validation), (images, test) = real
    gate = Gate.fit(validation, first, second, train=train)
    path = tmp_path / "gate.onnx"
    to_onnx(gate, model, path, prepare=Prepare(*IMAGENET))

    def differing(images, outputs):
        pixels = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)
        parts = [run(path, pixels[rows]) for rows in (slice(0, 1), slice(1, 65), slice(65, None))]  # any batch size
        got = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        decision = gate.decide(outputs)
        assert set(decision.verdict) == set(WORDS)
        return compare(got, decision, slack=2e-5)  # a network in float32, by two libraries

    assert differing(held, validation) == 0  # thresholds lie between the confidences of validation
    assert differing(images, test) <= 1


# What is in the file, and what is refused


def small(seed=0, **options):
    model = build("resnet8_cifar", 4, seed=seed, **options).eval()
    g = torch.Generator().manual_seed(seed)
    images = torch.rand((60, 3, 32, 32), generator=g) * torch.linspace(0.2, 4, 60).view(-1, 1, 1, 1)
    with torch.no_grad():
        seen = Classifier(model)(images)
    layers = None if seen.raw is None else {"penultimate/raw": seen.raw}
    classifier = Classifier(model, example=images[:2])
    truth = torch.where(torch.arange(60) % 3 == 0, 0, seen.logits.argmax(dim=1))
    found = Outputs(seen.logits, truth, seen.features, classifier.head, layers=layers, learned=seen.learned)
    return model, images.numpy(), found


def test_the_file_says_what_it_holds(tmp_path):
    model, images, found = small()
    gate = Gate.fit(found.replace(class_names=["cat", "dog", "owl", "ant"]), ood=None)
    path = tmp_path / "gate.onnx"
    model.train()
    modes = [module.training for module in model.modules()]
    to_onnx(gate, model, path)
    assert [module.training for module in model.modules()] == modes
    made = onnx.load(path)
    onnx.checker.check_model(made)
    facts = {p.key: json.loads(p.value) for p in made.metadata_props}
    assert facts["twofold.verdicts"] == list(WORDS)
    assert facts["twofold.class_names"] == ["cat", "dog", "owl", "ant"]
    assert (facts["twofold.id"], facts["twofold.ood"]) == ("msp", None)
    assert float(facts["twofold.tau_id"]) == gate.tau_id
    got = run(path, images)
    assert list(got) == ["label", "verdict", "conf_id"]
    assert got["label"].dtype == got["verdict"].dtype == np.int64
    assert set(got["verdict"]) <= {0, 1}
    assert list(tmp_path.iterdir()) == [path]  # one file, nothing beside it


def test_what_is_no_number_is_never_accepted(tmp_path):
    model, images, found = small()
    gate = Gate.fit(found, objective="coverage", coverage=1.0)
    to_onnx(gate, model, tmp_path / "gate.onnx")
    broken = images.copy()
    broken[:3] = np.nan
    got = run(tmp_path / "gate.onnx", broken)
    assert (got["verdict"][:3] == 2).all()
    assert (got["verdict"][3:] == 0).mean() > 0.9


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({"confidence": "devries"}, "devries", "energy"),
        ({"confidence": "confidnet"}, "confidnet", "mds"),
        ({"abstain": True}, "gambler", "mls"),
        ({"head": "cosine"}, "msp", "gradnorm"),
        ({"head": "cosine"}, "sirc", "nci"),
        ({"head": "unit", "scale": 10.0}, "msp", "raw|msp"),
        ({"head": "unit", "scale": 10.0}, "raw(scale=0.5)|energy", "knn(k=5)"),
        ({"head": "prototypes", "scale": 10.0}, "energy", "raw|knn(k=5)"),
    ],
)
def test_other_heads_and_branches(options, first, second, tmp_path):
    model, images, found = small(**options)
    gate = Gate.fit(found, first, second, train=found, objective="coverage", coverage=0.6)
    to_onnx(gate, model, tmp_path / "gate.onnx")
    compare(run(tmp_path / "gate.onnx", images), gate.decide(found), slack=1e-4)


def test_what_cannot_be_written_is_refused_with_what_can(whole, tmp_path):
    model, _, train, validation = whole
    path = tmp_path / "gate.onnx"

    def refused(spec, match, model=model, **options):
        gate = Gate.fit(validation, "msp", spec, train=train, objective="coverage", coverage=0.7)
        with pytest.raises(InvalidInput, match=match):
            to_onnx(gate, model, path, shape=(3, 2, 2), **options)

    refused("openmax", r"openmax cannot be written to ONNX; the scores that can: .*energy.*msp")
    refused('sum(of=("msp", "openmax"))', "openmax cannot be written")
    refused('project(kind="class_pred")|energy', 'use kind="global"')
    refused('project(kind="class")|cosine_mean', "reads features")
    refused('pca_error(kind="class")', 'use kind="global"')
    refused("mds", "another last layer", Whole(np.ones((5, 12), np.float32), np.zeros(5, np.float32)))
    refused("energy", "5 classes, the model has 4", Whole(np.ones((4, 12), np.float32), np.zeros(4, np.float32)))
    refused("energy", "must be float32 on the CPU", Whole(np.ones((5, 12), np.float64), np.zeros(5, np.float64)))
    refused("energy", "no linear layer gives", torch.nn.Sequential(model, torch.nn.Softmax(dim=1)))
    branch = train.replace(learned={"devries": np.linspace(0, 1, 240)})
    with pytest.raises(InvalidInput, match="gives no such value"):
        to_onnx(Gate.fit(branch, "devries", None), model, path, shape=(3, 2, 2))
    assert not path.exists()


class Unwritable(torch.nn.Module):
    """A network with an operation that ONNX does not have."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        h = x.flatten(1)
        return self.linear(torch.linalg.svd(h[:, :16].reshape(-1, 4, 4))[1])


def test_a_network_that_onnx_cannot_hold_is_one_short_line(tmp_path, capfd):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3))
    gate = Gate.fit(Outputs(logits, labels=logits.argmax(axis=1)), id="msp")
    with pytest.raises(InvalidInput, match="this network cannot be written to ONNX") as caught:
        to_onnx(gate, Unwritable(), tmp_path / "gate.onnx")
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "gate.onnx").exists()
