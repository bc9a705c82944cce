"""PixMix against its equations and against Pillow one image at a time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import slow_images as slow
from PIL import Image

from twofold.errors import InvalidInput
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.ingredients.pixmix import pixmix

INDEX = np.arange(40) * 11 + 2


@pytest.fixture(scope="module")
def images():
    return slow.sample_images()


@pytest.fixture(scope="module")
def mixers():
    return Mixers(np.random.default_rng(3).integers(0, 256, (9, 36, 36, 3), dtype=np.uint8))


def agree(ours, theirs):
    """Single precision against double; a pixel rounded otherwise by a rotation may be blown up by a later product."""
    difference = np.abs(ours - theirs)
    assert np.quantile(difference, 0.998) < 1e-5
    assert difference.mean() < 1e-4


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"seed": 7, "epoch": 3},
        {"rounds": 1, "beta": 1.0, "severity": 1},
        {"rounds": (0, 7), "beta": 5.0, "severity": 10},
        {"rounds": (1, 4)},
        {"rounds": 3, "seed": 2},
        {"compat": "published"},
        {"compat": "published", "rounds": 2, "seed": 1},
    ],
)
def test_equals_one_by_one(images, mixers, settings):
    ours = pixmix(images, mixers, INDEX, **settings)
    assert ours.dtype == np.float32
    rounds = settings.get("rounds", (0, 4))
    least, most = (rounds, rounds) if isinstance(rounds, int) else rounds
    theirs = [
        slow.pixmix(
            x,
            mixers.images,
            slow.draws("pixmix", i, 8 + 8 * most, settings.get("seed", 0), settings.get("epoch", 0)),
            least=least,
            most=most,
            beta=settings.get("beta", 3.0),
            severity=settings.get("severity", 3),
            published=settings.get("compat") == "published",
        )
        for x, i in zip(images, INDEX, strict=True)
    ]
    agree(ours, np.stack(theirs))


def test_equals_one_by_one_on_real_images(data_dir):
    sheet = np.asarray(Image.open(data_dir / "cifar10_test.webp").convert("RGB"))[:64]
    images = sheet.reshape(-1, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    mixers = Mixers.fractals(50)
    ours = pixmix(images, mixers, np.arange(200))
    agree(ours, np.stack([slow.pixmix(x, mixers.images, slow.draws("pixmix", i, 40)) for i, x in enumerate(images)]))


def test_images_need_not_be_square(mixers):
    x = slow.sample_images(40, 20, 33)
    ours = pixmix(x, mixers, INDEX)
    theirs = [slow.pixmix(i, mixers.images, slow.draws("pixmix", k, 40)) for k, i in zip(INDEX, x, strict=True)]
    agree(ours, np.stack(theirs))


@pytest.mark.parametrize("multiply", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(("a", "b"), [(0.7, 0.3), (1.4, -0.4), (1.0, 0.0), (2.0, -1.0)])
def test_one_mixing_operation(multiply, first, a, b):
    """The kernel against the formula for every pair of byte values, in the first round and later."""
    from twofold.nn.ingredients._image_kernels import _mix

    x = np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(1, 256, 3)
    x, y = np.repeat(x, 256, axis=0), np.repeat(x.transpose(1, 0, 2), 256, axis=1)
    current = (x / 255).astype(np.float32)
    _mix(np.ascontiguousarray(x), first, np.ascontiguousarray(y), multiply, a, b, current)
    want = np.clip((slow.multiply if multiply else slow.add)(x / 255, y / 255, a, b), 0, 1)
    np.testing.assert_allclose(current, want, atol=2e-6)


def test_hand_computed():
    assert slow.add(0.8, 0.5, 0.5, 0.25) == pytest.approx((0.5 * 0.6 + 0.25 * 0.0 + 1) / 2)
    assert slow.multiply(0.5, 0.5, 3.0, 2.0) == pytest.approx(0.5)
    assert slow.multiply(0.25, 1.0, 2.0, 1.0) == pytest.approx(0.25)


def test_no_round_leaves_one_in_five_unmixed(images):
    """With pictures and copies unlike the image, an unmixed result is the image itself or one augmented copy."""
    u = np.array([slow.draws("pixmix", i, 2) for i in range(4000)])
    plain = (u[:, 0] >= 0.5) & (u[:, 1] < 0.2)
    many = np.repeat(images[20:21], 4000, axis=0)
    result = pixmix(many, Mixers.fractals(3), np.arange(4000))
    same = (np.abs(result - many / 255) < 1e-6).all(axis=(1, 2, 3))
    assert same[plain].all()
    assert same.mean() == pytest.approx(0.1, abs=0.02)  # half of a fifth
    published = pixmix(many, Mixers.fractals(3), np.arange(4000), compat="published")
    assert (np.abs(published - many / 255) < 1e-6).all(axis=(1, 2, 3)).mean() < 0.01


def test_does_not_depend_on_the_batch(images, mixers):
    whole = pixmix(images, mixers, INDEX, seed=2, epoch=5)
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_array_equal(pixmix(images[order], mixers, INDEX[order], seed=2, epoch=5), whole[order])
    np.testing.assert_array_equal(pixmix(images[3:4], mixers, INDEX[3:4], seed=2, epoch=5), whole[3:4])
    for other in ({"seed": 1, "epoch": 5}, {"seed": 2, "epoch": 4}):
        assert (pixmix(images, mixers, INDEX, **other) != whole).any()


def test_threads_change_nothing(images, mixers):
    whole = pixmix(images, mixers, INDEX)
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: pixmix(images[i : i + 3], mixers, INDEX[i : i + 3]), range(0, 40, 3)))
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_range_of_extremes():
    """Black and white images with black and white pictures: products of 1e-37 stay finite and in range."""
    ends = np.array([0, 255], np.uint8)
    images = np.repeat(ends[:, None, None, None], 400, axis=0).repeat(3, axis=3) * np.ones((1, 4, 4, 1), np.uint8)
    mixers = Mixers(ends[:, None, None, None] * np.ones((1, 5, 5, 3), np.uint8))
    result = pixmix(images, mixers, np.arange(800))
    assert np.isfinite(result).all()
    assert result.min() >= 0
    assert result.max() <= 1


def test_inputs_stay(images, mixers):
    frozen = images.copy()
    frozen.flags.writeable = False
    pixmix(frozen, mixers, INDEX)
    np.testing.assert_array_equal(frozen, images)
    assert len(pixmix(images[:0], mixers, INDEX[:0])) == 0


def test_refuses(images, mixers):
    with pytest.raises(InvalidInput, match=r"36x36, smaller than the images of 64x64; make them with size=72"):
        pixmix(np.zeros((1, 64, 64, 3), np.uint8), mixers, [0])
    with pytest.raises(InvalidInput, match=r"Mixers\.folder"):
        pixmix(images, mixers.images, INDEX)
    with pytest.raises(InvalidInput, match="uint8"):
        pixmix(images.astype(np.float32), mixers, INDEX)
    for bad in ({"rounds": 0}, {"beta": 0.0}, {"severity": 0.0}, {"compat": "released"}, {"seed": -1}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            pixmix(images, mixers, INDEX, **bad)
