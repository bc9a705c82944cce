"""Public checkpoints load into our networks and reach their published accuracy on all real test images."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from twofold import Outputs  # noqa: E402
from twofold.nn.models import Classifier, load  # noqa: E402

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))


def real(data_dir, name):
    path = data_dir / name
    if not path.is_file():
        pytest.skip(f"TWOFOLD_DATA has no {name}")
    return path


def images(data_dir, name):
    """Images (N, 3, 32, 32) in [0, 1] and labels of a sheet of tiles, 100 to a row."""
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    sheet = np.asarray(image.open(real(data_dir, f"{name}.webp")).convert("RGB"))
    tiles = sheet.reshape(-1, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32)
    return tiles, np.load(real(data_dir, "image_labels.npz"))[name]


def run(classifier, tiles, statistics, batch=500):
    """Logits and features of all images."""
    mean, std = (torch.tensor(s).view(3, 1, 1) for s in statistics)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(tiles), batch):
            x = torch.from_numpy(tiles[start : start + batch]).float() / 255
            parts.append(classifier((x - mean) / std))
    return torch.cat([p.logits for p in parts]).numpy(), torch.cat([p.features for p in parts]).numpy()


def classifier_of(data_dir, spec, weights):
    return Classifier(load(spec, checkpoint=real(data_dir, weights)))


def test_resnet20_repeats_stored_logits_and_features(data_dir):
    tiles, labels = images(data_dir, "cifar10_test")
    rows = slice(0, 10_000, 20)
    classifier = classifier_of(data_dir, "resnet20_cifar", "weights_cifar10_resnet20.npz")
    logits, features = run(classifier, tiles[rows], IMAGENET)
    Outputs(logits, labels[rows], features, classifier.head)  # checks the head law
    with np.load(real(data_dir, "features_cifar10_resnet20.npz")) as stored:
        assert np.abs(logits - stored["id_test_logits"][rows]).max() < 1e-5 * np.abs(logits).max()
        away = np.abs(features - stored["id_test_features"][rows].astype(np.float32))
        assert (away <= 2**-11 * np.abs(features) + 1e-5).all()  # stored in half precision: 11 bits
        assert np.array_equal(classifier.head.weight, stored["W"])
        assert np.array_equal(classifier.head.bias, stored["b"])


def conv(x, p, name, stride=1):
    """A convolution as a sum over shifted images, in float64."""
    w = p[f"{name}.weight"].astype(np.float64)
    pad = w.shape[2] // 2
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    height, width = x.shape[2] - 2 * pad, x.shape[3] - 2 * pad
    return sum(
        np.einsum("nchw,oc->nohw", x[:, :, i : i + height : stride, j : j + width : stride], w[:, :, i, j])
        for i in range(w.shape[2])
        for j in range(w.shape[3])
    )


def norm(x, p, name):
    scale = p[f"{name}.weight"] / np.sqrt(p[f"{name}.running_var"].astype(np.float64) + 1e-5)
    shift = p[f"{name}.bias"] - p[f"{name}.running_mean"] * scale
    return x * scale[:, None, None] + shift[:, None, None]


def slow_kd_resnet8(x, p):
    """The architecture of the data's README, line by line."""
    y = np.maximum(norm(conv(x, p, "conv1"), p, "bn1"), 0)
    for stage, stride in (("layer1.0", 1), ("layer2.0", 2), ("layer3.0", 2)):
        inner = np.maximum(norm(conv(y, p, f"{stage}.conv1", stride), p, f"{stage}.bn1"), 0)
        inner = norm(conv(inner, p, f"{stage}.conv2"), p, f"{stage}.bn2")
        short = norm(conv(y, p, f"{stage}.shortcut.0", stride), p, f"{stage}.shortcut.1")
        y = np.maximum(inner + short, 0)
    pooled = y.reshape(len(y), 64, 2, 4, 2, 4).mean(axis=(3, 5)).reshape(len(y), 256)
    return pooled, pooled @ p["linear.weight"].T.astype(np.float64) + p["linear.bias"]


def test_kd_resnet8_is_what_its_description_says(data_dir):
    tiles, labels = images(data_dir, "cifar100_test")
    rows = slice(0, 10_000, 400)
    weights = "weights_cifar100_kd_resnet8.npz"
    classifier = classifier_of(data_dir, "resnet8_cifar_kd", weights)
    logits, features = run(classifier, tiles[rows], CIFAR)
    mean, std = (np.array(s).reshape(3, 1, 1) for s in CIFAR)
    with np.load(real(data_dir, weights)) as p:
        slow_features, slow_logits = slow_kd_resnet8((tiles[rows] / 255 - mean) / std, dict(p))
    assert features == pytest.approx(slow_features, abs=1e-4)
    assert logits == pytest.approx(slow_logits, abs=1e-3)
    Outputs(logits, labels[rows], features, classifier.head)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "weights", "data", "statistics", "right"),
    [
        ("resnet20_cifar", "weights_cifar10_resnet20.npz", "cifar10_test", IMAGENET, 9173),
        ("resnet56_cifar", "weights_cifar10_resnet56.npz", "cifar10_test", IMAGENET, 9339),
        ("resnet8_cifar_kd", "weights_cifar100_kd_resnet8.npz", "cifar100_test", CIFAR, 6411),
        ("resnet20_cifar_kd", "weights_cifar100_kd_resnet20.npz", "cifar100_test", CIFAR, 6969),
        ("resnet32_cifar_kd", "weights_cifar100_kd_resnet32.npz", "cifar100_test", CIFAR, 7170),
    ],
)
def test_checkpoints_have_their_accuracy_on_all_images(data_dir, spec, weights, data, statistics, right):
    tiles, labels = images(data_dir, data)
    classifier = classifier_of(data_dir, spec, weights)
    logits, features = run(classifier, tiles, statistics)
    assert Outputs(logits, labels, features, classifier.head).correct.sum() == right
