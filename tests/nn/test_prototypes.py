"""CIDER's prototypes and losses against slow loops, their laws, and what T2FNorm and CIDER leave for scores."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from training_toys import PREPARE, network, pictures, run  # noqa: E402

from twofold import Head, Outputs, scorer  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn import build, load  # noqa: E402
from twofold.nn.extraction import extract  # noqa: E402
from twofold.nn.ingredients.prototypes import compactness, dispersion, move_prototypes  # noqa: E402
from twofold.nn.models.head import Classifier  # noqa: E402
from twofold.nn.models.parts import FeatureNormHead, Options, PrototypeHead  # noqa: E402
from twofold.nn.recipes import Cider, Clean, PrototypeClassifier, Recipe, recipe  # noqa: E402
from twofold.nn.training import Settings, TrainingStep, prepare_training, train  # noqa: E402

CLASSES, WIDTH, ROWS = 5, 7, 40


def unit_rows(n, seed):
    rows = np.random.default_rng(seed).normal(size=(n, WIDTH))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def some_labels(seed=3):
    return np.random.default_rng(seed).integers(0, CLASSES - 1, ROWS)  # the last class has no row


def slow_prototypes(prototypes, units, labels, momentum):
    moved = [row.copy() for row in prototypes]
    for u, y in zip(units, labels, strict=True):
        mixed = momentum * moved[y] + (1 - momentum) * u
        moved[y] = mixed / math.sqrt(sum(value * value for value in mixed))
    return np.array(moved)


def slow_compactness(units, prototypes, labels, tau):
    total = 0.0
    for u, y in zip(units, labels, strict=True):
        weights = [math.exp(float(u @ m) / tau) for m in prototypes]
        total -= math.log(weights[y] / sum(weights))
    return tau / 0.07 * total / len(units)


def slow_dispersion(prototypes, tau):
    total = 0.0
    for i, m in enumerate(prototypes):
        others = [math.exp(float(m @ other) / tau) for j, other in enumerate(prototypes) if j != i]
        total += math.log(sum(others) / (len(prototypes) - 1))
    return tau / 0.1 * total / len(prototypes)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95, 1.0])
def test_prototypes_move_row_by_row(momentum):
    start, units, labels = unit_rows(CLASSES, 0), unit_rows(ROWS, 1), some_labels()
    got = move_prototypes(torch.tensor(start), torch.tensor(units), torch.tensor(labels), momentum)
    assert np.allclose(got, slow_prototypes(start, units, labels, momentum), atol=1e-12)
    assert np.array_equal(got[CLASSES - 1], start[CLASSES - 1])
    if 0 < momentum < 1:  # the order of the rows counts
        turned = move_prototypes(
            torch.tensor(start), torch.tensor(units[::-1].copy()), torch.tensor(labels[::-1].copy()), momentum
        )
        assert not np.allclose(got, turned, atol=1e-3)


@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_losses_are_those_of_slow_loops(tau):
    prototypes, units, labels = unit_rows(CLASSES, 0), unit_rows(ROWS, 1), some_labels()
    got = compactness(torch.tensor(units), torch.tensor(prototypes), torch.tensor(labels), tau)
    assert float(got) == pytest.approx(slow_compactness(units, prototypes, labels, tau), rel=1e-12)
    assert float(dispersion(torch.tensor(prototypes), tau)) == pytest.approx(
        slow_dispersion(prototypes, tau), rel=1e-12
    )


def test_gradients_reach_the_batch_through_the_moved_prototypes():
    start, units, labels = unit_rows(CLASSES, 0), unit_rows(ROWS, 1), some_labels()
    rows = torch.tensor(units, requires_grad=True)
    dispersion(move_prototypes(torch.tensor(start), rows, torch.tensor(labels), 0.9)).backward()
    for i, j in ((0, 0), (7, 3), (39, 6)):
        values = []
        for sign in (1, -1):
            moved = units.copy()
            moved[i, j] += sign * 1e-6
            values.append(slow_dispersion(slow_prototypes(start, moved, labels, 0.9), 0.1))
        assert float(rows.grad[i, j]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_losses_know_angles_and_not_names():
    """A rotation of the sphere and another order of the classes change nothing."""
    prototypes, units, labels = unit_rows(CLASSES, 0), unit_rows(ROWS, 1), some_labels()
    rotation = np.linalg.qr(np.random.default_rng(5).normal(size=(WIDTH, WIDTH)))[0]
    order = np.random.default_rng(6).permutation(CLASSES)
    place = np.argsort(order)
    for p, u, y in (
        (prototypes @ rotation, units @ rotation, labels),
        (prototypes[order], units, place[labels]),
    ):
        assert float(dispersion(torch.tensor(p))) == pytest.approx(float(dispersion(torch.tensor(prototypes))))
        ours = compactness(torch.tensor(u), torch.tensor(p), torch.tensor(y))
        plain = compactness(torch.tensor(units), torch.tensor(prototypes), torch.tensor(labels))
        assert float(ours) == pytest.approx(float(plain))


def test_dispersion_is_least_for_a_simplex():
    simplex = torch.eye(4, dtype=torch.float64) - 0.25
    simplex = simplex / simplex.norm(dim=1, keepdim=True)
    least = float(dispersion(simplex))
    assert least == pytest.approx(-10 / 3)
    for seed in range(20):
        drawn = torch.tensor(unit_rows(4, seed))
        assert float(dispersion(drawn)) >= least


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dispersion(torch.ones(1, 3)), r"C at least 2, got \(1, 3\)"),
        (lambda: dispersion(torch.eye(2), temperature=0), "temperature"),
        (lambda: compactness(torch.ones(2, 3), torch.ones(2, 4), torch.tensor([0, 1])), "with the same D"),
        (lambda: compactness(torch.ones(2, 3), torch.ones(2, 3), torch.tensor([0.0, 1.0])), "labels must be int64"),
        (lambda: move_prototypes(torch.eye(2), torch.eye(2), torch.tensor([0]), 0.5), r"of shape \(2,\)"),
        (lambda: move_prototypes(torch.eye(2), torch.eye(2), torch.tensor([0, 1]), 1.5), "momentum"),
        (lambda: Cider(weight=-1), "weight"),
        (lambda: Cider(momentum=2), "momentum"),
        (lambda: PrototypeClassifier(temperature=0), "temperature"),
        (lambda: Options(4, head="prototypes", abstain=True), "has no prototype"),
    ],
)
def test_wrong_settings_are_one_clear_line(call, said):
    with pytest.raises(InvalidInput, match=said):
        call()


# The networks


@pytest.mark.parametrize("kind", ["unit", "prototypes"])
def test_the_heads_do_not_know_the_length_of_a_feature(kind):
    head = build("resnet8_cifar", 4, head=kind, scale=10.0).linear
    h = torch.rand(6, head.width) + 0.1
    if kind == "prototypes":
        head.weight.copy_(torch.nn.functional.normalize(torch.randn(4, 128), dim=1))
        units = torch.relu(h @ head.projection[0].weight.T) @ head.projection[2].weight.T
        assert head.projection[0].weight.shape == (head.width, head.width)
    else:
        units = h
        assert torch.allclose(head(h), head(3.0 * h), atol=1e-5)
    units = units / units.norm(dim=1, keepdim=True)
    bias = head.bias if kind == "unit" else 0.0
    assert torch.allclose(head(h), 10.0 * units @ head.weight.T + bias, atol=1e-5)


def test_t2fnorm_is_cross_entropy_of_features_of_one_length():
    model = network("t2fnorm")
    training = prepare_training(recipe("t2fnorm"), model, pictures(32), Settings(batch=8))
    step = TrainingStep(training, np.arange(8), 0, 0)
    loss = step.loss(step.term_groups()[0])
    h = model.encode(step.images).detach().double()
    head = model.linear
    z = (h / h.norm(dim=1, keepdim=True) / 0.1) @ head.weight.detach().double().T + head.bias.detach().double()
    expected = -torch.log_softmax(z, dim=1)[torch.arange(8), step.labels].mean()
    assert isinstance(head, FeatureNormHead)
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_t2fnorm_keeps_raw_features_and_scores_by_them(tmp_path):
    trained = run("t2fnorm", tmp_path / "trained", epochs=12, schedule="constant")
    got = extract(trained.model, pictures(48, seed=3), tmp_path / "run", name="t", role="test", prepare=PREPARE)["t"]
    raw = np.asarray(got.layers["penultimate/raw"], dtype=np.float64)
    weight, bias = trained.model.linear.weight.detach().double().numpy(), trained.model.linear.bias.detach().numpy()
    assert np.allclose(got.logits, raw / np.linalg.norm(raw, axis=1)[:, None] @ weight.T / 0.1 + bias, atol=1e-3)
    z = raw @ weight.T / 0.1 + bias
    top = z.max(axis=1)
    others = np.where(z == top[:, None], -np.inf, z)
    expected = top - np.log(np.exp(others - others.max(axis=1)[:, None]).sum(axis=1)) - others.max(axis=1)
    assert np.allclose(scorer("raw|msp").score(got), expected, rtol=1e-3, atol=1e-2)
    z = raw @ weight.T + bias
    assert np.allclose(scorer("raw(scale=0.1)|mls").score(got), z.max(axis=1), rtol=1e-3, atol=1e-3)
    assert got.correct.mean() > 0.8


def test_cider_learns_and_is_scored_by_the_backbone(tmp_path):
    trained = run("cider", tmp_path / "trained", epochs=12, schedule="constant")
    head = trained.model.linear
    assert isinstance(head, PrototypeHead)
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(4), atol=1e-5)
    assert trained.history[-1]["loss"] < trained.history[0]["loss"] - 1.0
    made = extract(trained.model, pictures(64), tmp_path / "run", name="train", role="train", prepare=PREPARE)
    known = extract(trained.model, pictures(48, seed=3), tmp_path / "run", name="test", role="test", prepare=PREPARE)
    train_set, test = made["train"], known["test"]
    assert test.features.shape == (48, 128)
    assert np.allclose(test.logits, test.features @ (10.0 * head.weight.numpy().T), atol=1e-3)
    assert test.correct.mean() > 0.8
    raw = np.asarray(train_set.layers["penultimate/raw"], dtype=np.float64)
    query = np.asarray(test.layers["penultimate/raw"], dtype=np.float64)
    chain = scorer("raw|knn(k=50)").fit(train_set)
    for i in (0, 7):
        gaps = []
        for row in raw:
            gaps.append(np.linalg.norm(query[i] / np.linalg.norm(query[i]) - row / np.linalg.norm(row)))
        assert chain.score(test)[i] == pytest.approx(-(sorted(gaps)[49] ** 2), abs=1e-3)


def test_prototypes_start_at_class_means_and_are_not_started_again(tmp_path):
    model = network("cider")
    settings = Settings(batch=16, augment=(), epochs=2)
    training = prepare_training(recipe("cider"), model, pictures(32), settings)
    recipe("cider").terms[0].start(training)
    model.eval()
    with torch.no_grad():
        images = torch.from_numpy(pictures(32).read(np.arange(32))).permute(0, 3, 1, 2).float() / 255
        units = model.linear.unit(model.encode(images))
    means = torch.stack([units[np.arange(32) % 4 == c].mean(dim=0) for c in range(4)])
    assert torch.allclose(model.linear.weight, means / means.norm(dim=1, keepdim=True), atol=1e-5)
    training.run_epoch(0)
    after = model.linear.weight.clone()
    training.run_epoch(1)
    assert torch.nn.functional.cosine_similarity(after, model.linear.weight).min() > 0.5


def test_both_views_are_drawn_and_come_ahead_of_time_too(tmp_path):
    training = prepare_training(recipe("cider"), network("cider"), pictures(32), Settings(batch=8))
    term = recipe("cider").terms[0]
    step = TrainingStep(training, np.arange(8), 0, 0)
    second = step.view("second view", term)
    assert second.shape == step.images.shape
    assert not torch.equal(second, step.images)
    assert torch.equal(second, TrainingStep(training, np.arange(8), 0, 0).view("second view", term))
    assert not torch.equal(second, TrainingStep(training, np.arange(8), 1, 0).view("second view", term))
    here = run("cider", tmp_path / "here", epochs=1)
    settings = Settings(epochs=1, batch=32, lr=0.02)
    ahead = train(
        recipe("cider"), network("cider"), pictures(), tmp_path / "ahead", settings=settings, prepare=PREPARE, workers=1
    )
    for one, other in zip(here.model.state_dict().values(), ahead.model.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["t2fnorm", "cider"])
def test_a_folder_loads_again_with_its_head(name, tmp_path):
    trained = run(name, tmp_path / "trained", epochs=1)
    again = load(str(tmp_path / "trained")).eval()
    assert type(again.linear) is type(trained.model.linear)
    images = torch.rand(3, 3, 32, 32)
    assert torch.equal(trained.model(images), again(images))
    assert Classifier(again, example=images).classes == 4


def test_features_are_not_computed_unless_a_term_needs_them(tmp_path):
    class Reads(Clean):
        def loss(self, step):
            return step.features.sum()

    training = prepare_training(recipe("basic"), network(), pictures(32), Settings(batch=8))
    assert TrainingStep(training, np.arange(8), 0, 0).training.forward(torch.rand(2, 3, 32, 32)).features is None
    settings = Settings(batch=8, epochs=1)
    with pytest.raises(InvalidInput, match="must set needs_features = True"):
        train(Recipe((Reads(),)), network(), pictures(32), tmp_path / "a", settings=settings)
    with pytest.raises(InvalidInput, match="needs a network with prototypes"):
        train(recipe("cider"), network(), pictures(32), tmp_path / "b", settings=settings)
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 4))
    with pytest.raises(InvalidInput, match="needs the features of a network that twofold"):
        train(recipe("cider"), plain, pictures(32), tmp_path / "c", settings=settings)


def test_raw_leaves_features_that_were_never_scaled():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 4))
    h = rng.normal(size=(6, 4))
    plain = Outputs(h @ weight.T, features=h, head=Head(weight))
    assert np.array_equal(scorer("raw|mls").score(plain), scorer("mls").score(plain))
    projected = plain.replace(layers={"penultimate/raw": rng.normal(size=(6, 4))})
    assert np.array_equal(scorer("raw|mls").score(projected), scorer("mls").score(plain))
