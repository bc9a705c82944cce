"""Readers, views and the smoothness check on the real images of $TWOFOLD_DATA."""

import numpy as np
import pytest
from PIL import Image

from twofold.nn import data
from twofold.nn.data import Images, check

SHEETS = {
    "cifar10_test": (10000, 10),
    "cifar10_train_10k": (10000, 10),
    "cifar100_test": (10000, 100),
    "cifar100_train_10k": (10000, 100),
    "ood_svhn": (5000, None),
    "ood_textures": (1200, 10),
    "ood_tinyimagenet": (2000, 200),
    "ood_scenes": (2000, 6),
}
_OPENED = {}


def sheet(folder, name):
    if name not in _OPENED:
        _OPENED[name] = data.open(f"sheet:{folder}/{name}.webp?labels=image_labels.npz")
    return _OPENED[name]


@pytest.mark.parametrize("name", SHEETS)
def test_sheets_are_the_recipe_of_the_readme(data_dir, name):
    images = sheet(data_dir, name)
    rows, classes = SHEETS[name]
    assert len(images) == rows
    assert images.shape == (32, 32)
    assert (None if images.class_names is None else len(images.class_names)) == classes
    with Image.open(data_dir / f"{name}.webp") as file:
        a = np.asarray(file.convert("RGB"))
    x = a.reshape(-1, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    with np.load(data_dir / "image_labels.npz", allow_pickle=False) as labels:
        np.testing.assert_array_equal(images.labels, labels[name])
    some = np.random.default_rng(0).choice(rows, 300, replace=False)
    np.testing.assert_array_equal(images.read(some), x[some])
    np.testing.assert_array_equal(images.read(slice(90, 210)), x[90:210])


def test_class_counts_and_names(data_dir):
    ten, hundred = sheet(data_dir, "cifar10_test"), sheet(data_dir, "cifar100_test")
    assert np.bincount(ten.labels).tolist() == [1000] * 10
    assert np.bincount(hundred.labels).tolist() == [100] * 100
    assert ten.class_names == data.class_list("cifar10")
    assert hundred.class_names == data.class_list("cifar100")
    named = data.open(f"sheet:{data_dir}/cifar100_test.webp?labels=image_labels.npz&ids=cifar100_test_filenames")
    assert named.ids[0] == "apple_s_000022.png"
    textures = data.open(
        f"sheet:{data_dir}/ood_textures.webp?labels=image_labels.npz&classes=banded,braided&keep_labels=1"
    )
    assert np.bincount(textures.labels).tolist() == [120, 0, 120]


def test_views_of_the_real_test_set(data_dir):
    images = sheet(data_dir, "cifar100_test")
    known, near = data.cifar40_60(images)
    assert (len(known), len(near)) == (4000, 6000)  # ID test and near set of the unknown-detection table
    source, shifted = data.super_cifar100(images)
    assert (len(source), len(shifted)) == (7600, 1900)
    val, test = data.validation_split(sheet(data_dir, "cifar10_test"), "fd_shifts")
    assert (len(val), len(test)) == (1000, 9000)
    tiny = data.open(f"sheet:{data_dir}/ood_tinyimagenet.webp?labels=image_labels.npz&classes=@tiny_imagenet158")
    assert len(tiny.class_names) == 158


@pytest.mark.parametrize(
    ("name", "rows"), [("mnist_test", 10000), ("fashion_mnist_test", 10000), ("notmnist_test_2000", 2000)]
)
def test_grey_digits(data_dir, name, rows):
    images = data.open(f"npz:{data_dir}/{name}.npz?pad=2")
    assert (len(images), images.shape) == (rows, (32, 32))
    with np.load(data_dir / f"{name}.npz", allow_pickle=False) as file:
        x, y = file["images"], file["labels"]
        subset = file.get("ood_subset")
    np.testing.assert_array_equal(images.labels, y)
    got = images.read(slice(5, 25))
    np.testing.assert_array_equal(got[:, 2:30, 2:30, 1], x[5:25])
    assert got[:, :2].max() == got[:, :, 30:].max() == 0
    if subset is not None:
        part = data.open(f"npz:{data_dir}/{name}.npz?pad=2&rows=ood_subset")
        np.testing.assert_array_equal(part.ids, subset)


def test_channel_statistics_of_cifar(data_dir):
    # the published constants are of all 50,000 training images; a fifth of them comes within 0.005
    for name, known in (("cifar10_train_10k", "cifar10"), ("cifar100_train_10k", "cifar100")):
        mean, std = data.own_statistics(sheet(data_dir, name))
        assert mean == pytest.approx(data.STATISTICS[known].mean, abs=0.005)
        assert std == pytest.approx(data.STATISTICS[known].std, abs=0.005)


def shrunk(images, how, side=16):
    x = images.read(slice(0, 1000))
    return np.stack([np.asarray(Image.fromarray(i).resize((side, side), how)) for i in x])


def test_resize_artefacts_are_seen_and_clean_sets_are_not_accused(data_dir):
    cifar = sheet(data_dir, "cifar10_test")
    for name in ("cifar100_test", "ood_svhn", "ood_textures", "ood_tinyimagenet", "ood_scenes"):
        assert check(sheet(data_dir, name), cifar).warning is None, name
    reference = Images.of(shrunk(cifar, Image.Resampling.BILINEAR), name="cifar")
    for name in ("ood_tinyimagenet", "ood_scenes", "cifar100_test"):
        clean = Images.of(shrunk(sheet(data_dir, name), Image.Resampling.BILINEAR), name=name)
        jagged = Images.of(shrunk(sheet(data_dir, name), Image.Resampling.NEAREST), name=name)
        assert check(clean, reference).warning is None, name
        report = check(jagged, reference)
        assert "without antialiasing" in (report.warning or ""), (name, report.difference)
    tiny = sheet(data_dir, "ood_tinyimagenet")
    np.testing.assert_array_equal(shrunk(tiny, Image.Resampling.BILINEAR)[:50], tiny.fit(size=16).read(slice(0, 50)))
