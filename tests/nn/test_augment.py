"""Batches against Pillow one image at a time, draws against NumPy's Philox, samples independent of their batch."""

import numpy as np
import pytest
import slow_images as slow
from PIL import Image

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.ingredients import augment
from twofold.nn.ingredients.augment import (
    OPERATIONS,
    colour_jitter,
    cutout,
    flip,
    operate,
    padded_crop,
    random_operation,
    resized_crop,
    rotation,
)

INDEX = np.arange(40) * 7 + 3
FUNCTIONS = {
    "padded_crop": padded_crop,
    "flip": flip,
    "cutout": lambda x, i, **k: cutout(x, i, side=9, chance=0.7, **k),
    "rotation": rotation,
    "resized_crop": lambda x, i, **k: resized_crop(x, i, size=24, **k),
    "colour_jitter": lambda x, i, **k: colour_jitter(x, i, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, **k),
    "random_operation": random_operation,
}
AMOUNTS = {
    "autocontrast": [0],
    "equalize": [0],
    "posterize": [1, 2, 3, 4, 7, 8],
    "rotate": [-30, -7, 0, 1, 13.7, 30],
    "solarize": [0, 1, 77, 128, 255, 256],
    "shear_x": [-0.3, -0.09, 0.0, 0.021, 0.3],
    "shear_y": [-0.3, -0.09, 0.0, 0.021, 0.3],
    "translate_x": [-10, -1, 0, 3, 10, 40],
    "translate_y": [-10, -1, 0, 3, 2.5, 40],
}
FACTORS = [0.0, 0.1, 0.37, 0.64, 1.0, 1.3, 1.9]


@pytest.fixture(scope="module")
def images():
    return slow.sample_images()


def close(ours, theirs):
    """Equal but for the last bit of a sine, which may differ between libraries and move a pixel by one."""
    difference = np.abs(ours.astype(int) - theirs)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


# -------------------------------------------------------------------------------- draws


@pytest.mark.parametrize(("seed", "epoch", "view"), [(0, 0, 0), (3, 17, 1), (2**63 + 5, 2**64 - 1, 9)])
def test_draws_are_those_of_numpys_philox(seed, epoch, view):
    index = np.array([0, 1, 49_999, 2**40], dtype=np.uint64)
    ours = augment.uniforms(index, 11, name="pixmix", seed=seed, epoch=epoch, view=view)
    theirs = [slow.draws("pixmix", i, 11, seed, epoch, view) for i in index]
    np.testing.assert_array_equal(ours, theirs)


def test_draws_are_uniform_and_unrelated():
    u = augment.uniforms(np.arange(20_000, dtype=np.uint64), 5, name="flip", seed=1, epoch=2)
    v = augment.uniforms(np.arange(20_000, dtype=np.uint64), 5, name="flip", seed=1, epoch=3)
    assert abs(u.mean() - 0.5) < 0.005
    counts = np.histogram(u, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-square, 19 degrees of freedom, 0.1 %
    table = np.corrcoef(np.hstack([u, v]).T) - np.eye(10)
    assert np.abs(table).max() < 0.03  # four standard errors


def test_streams_are_numbered_once():
    assert {k: v for k, v in augment.STREAMS.items() if k in slow.STREAM} == slow.STREAM
    assert len(set(augment.STREAMS.values())) == len(augment.STREAMS)


# -------------------------------------------------------------------------------- operations


def test_the_thirteen_operations():
    assert list(OPERATIONS) == slow.NAMES
    assert len(OPERATIONS) == 13


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(32, 32), (13, 21), (1, 1), (2, 5)])
def test_operation_equals_pillow(name, shape):
    images = slow.sample_images(16, *shape)
    for amount in AMOUNTS.get(name, FACTORS):
        ours = operate(images, name, amount)
        theirs = np.stack([slow.operate(x, name, amount) for x in images])
        if name == "rotate":
            close(ours, theirs)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} by {amount}")


def test_operation_with_an_amount_for_each_image(images):
    amounts = np.linspace(-30, 30, len(images))
    ours = operate(images, "rotate", amounts)
    close(ours, [slow.operate(x, "rotate", a) for x, a in zip(images, amounts, strict=True)])


@pytest.mark.parametrize("severity", [1, 3, 10])
def test_random_operation_equals_one_by_one(images, severity):
    ours = random_operation(images, INDEX, severity=severity, seed=5, epoch=2)
    for x, i, y in zip(images, INDEX, ours, strict=True):
        u = slow.draws("random_operation", i, 3, 5, 2)
        close(y, slow.drawn(x, slow.NAMES, severity, u))


def test_every_operation_is_drawn_alike_often():
    u = augment.uniforms(np.arange(13_000, dtype=np.uint64), 3, name="random_operation", seed=0, epoch=0)
    counts = np.bincount((u[:, 0] * 13).astype(int), minlength=13)
    assert ((counts - 1000) ** 2 / 1000).sum() < 32.9  # chi-square, 12 degrees of freedom, 0.1 %


def test_hue_equals_pillow():
    x = np.random.default_rng(0).integers(0, 256, (1, 256, 256, 3), dtype=np.uint8)
    x[0, :8] = x[0, :8, :, :1]  # greys
    u = augment.uniforms(np.array([4], np.uint64), 8, name="colour_jitter", seed=0, epoch=0)[0]
    ours = colour_jitter(x, [4], hue=0.5)
    shift = int((u[3] - 0.5) * 255)
    hsv = np.array(Image.fromarray(x[0]).convert("HSV"))
    hsv[..., 0] = (hsv[..., 0].astype(int) + shift) % 256
    theirs = np.asarray(Image.fromarray(hsv, "HSV").convert("RGB"))
    difference = np.abs(ours[0].astype(int) - theirs)
    assert (difference > 0).mean() < 1e-3
    assert difference.max() <= 1


# -------------------------------------------------------------------------------- base augmentations


@pytest.mark.parametrize("fill", [0, (10, 20, 30)])
def test_padded_crop(images, fill):
    ours = padded_crop(images, INDEX, padding=4, fill=fill, seed=1)
    for x, i, y in zip(images, INDEX, ours, strict=True):
        padded = np.empty((40, 40, 3), np.uint8)
        padded[:] = fill
        padded[4:36, 4:36] = x
        top, left = (slow.draws("padded_crop", i, 2, 1) * 9).astype(int)
        np.testing.assert_array_equal(y, padded[top : top + 32, left : left + 32])


def test_padded_crop_reaches_every_place():
    spot = np.zeros((4000, 9, 9, 3), np.uint8)
    spot[:, 4, 4] = 255
    found = np.argwhere(padded_crop(spot, np.arange(4000), padding=4)[..., 0])
    counts = np.histogram2d(found[:, 1], found[:, 2], bins=np.arange(10) - 0.5)[0]
    assert len(found) == 4000
    assert ((counts - 4000 / 81) ** 2 / (4000 / 81)).sum() < 124.8  # chi-square, 80 degrees of freedom, 0.1 %


def test_flip(images):
    ours = flip(images, INDEX, chance=0.3, epoch=4)
    turned = [slow.draws("flip", i, 1, 0, 4)[0] < 0.3 for i in INDEX]
    assert 0 < sum(turned) < len(turned)
    for x, y, t in zip(images, ours, turned, strict=True):
        np.testing.assert_array_equal(y, x[:, ::-1] if t else x)
    np.testing.assert_array_equal(flip(images, INDEX, chance=0), images)
    np.testing.assert_array_equal(flip(images, INDEX, chance=1), images[:, :, ::-1])


@pytest.mark.parametrize("side", [1, 7, 16, 100])
def test_cutout(images, side):
    ours = cutout(images, INDEX, side=side, chance=0.5, fill=(1, 2, 3), seed=9)
    for x, i, y in zip(images, INDEX, ours, strict=True):
        u = slow.draws("cutout", i, 3, 9)
        want = x.copy()
        if u[0] < 0.5:
            top, left = int(u[1] * 32) - side // 2, int(u[2] * 32) - side // 2
            want[max(top, 0) : top + side, max(left, 0) : left + side] = (1, 2, 3)
        np.testing.assert_array_equal(y, want)


def test_rotation(images):
    ours = rotation(images, INDEX, degrees=15)
    for x, i, y in zip(images, INDEX, ours, strict=True):
        close(y, slow.operate(x, "rotate", (2 * slow.draws("rotation", i, 1)[0] - 1) * 15))


@pytest.mark.parametrize("size", [8, 24, 32, 61])
@pytest.mark.parametrize("shape", [(32, 32), (40, 23)])
def test_resized_crop_equals_pillow(size, shape):
    images = slow.sample_images(40, *shape)
    ours = resized_crop(images, INDEX, size=size, scale=(0.08, 1.0))
    height, width = shape
    for x, i, y in zip(images, INDEX, ours, strict=True):
        u = slow.draws("resized_crop", i, 22)
        box = None
        for k in range(10):
            area = height * width * (0.08 + 0.92 * u[k])
            aspect = np.exp(np.log(3 / 4) + (np.log(4 / 3) - np.log(3 / 4)) * u[10 + k])
            w, h = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(u[21] * (width - w + 1)), int(u[20] * (height - h + 1))
                box = (left, top, left + w, top + h)
                break
        assert box is not None
        theirs = np.asarray(Image.fromarray(x).crop(box).resize((size, size), slow.BILINEAR))
        difference = np.abs(y.astype(int) - theirs)
        assert difference.max() <= 1  # newer Pillow sometimes takes columns first, and rounds in between
        assert difference.mean() < 0.5


def test_resizing_one_side_equals_pillow():
    from twofold.nn.ingredients._image_kernels import resize_crops

    rng = np.random.default_rng(0)
    for old, new in rng.integers(1, 60, (60, 2)).tolist():
        x = rng.integers(0, 256, (1, 5, old, 3), dtype=np.uint8)
        wide, high = np.empty((1, 5, new, 3), np.uint8), np.empty((1, new, 5, 3), np.uint8)
        zero, five, side = np.zeros(1, np.int64), np.array([5]), np.array([old])
        resize_crops(x, zero, zero, five, side, wide)
        resize_crops(np.ascontiguousarray(x.transpose(0, 2, 1, 3)), zero, zero, side, five, high)
        theirs = np.asarray(Image.fromarray(x[0]).resize((new, 5), slow.BILINEAR))
        np.testing.assert_array_equal(wide[0], theirs)
        np.testing.assert_array_equal(high[0], theirs.transpose(1, 0, 2))


def test_resized_crop_takes_the_centre_where_no_box_fits():
    x = slow.sample_images(14, 8, 80)
    ours = resized_crop(x, range(14), size=8, scale=(1.0, 1.0))  # the centre is 8 · 4/3, that is 11 pixels wide
    theirs = [np.asarray(Image.fromarray(i).crop((34, 0, 45, 8)).resize((8, 8), slow.BILINEAR)) for i in x]
    np.testing.assert_array_equal(ours, theirs)


def test_colour_jitter_equals_one_by_one(images):
    ours = colour_jitter(images, INDEX, brightness=0.4, contrast=0.3, saturation=1.5, seed=2)
    names, reach = ["brightness", "contrast", "colour"], [0.4, 0.3, 1.5]
    for x, i, y in zip(images, INDEX, ours, strict=True):
        u = slow.draws("colour_jitter", i, 8, 2)
        for k in sorted(range(4), key=lambda k: u[4 + k]):
            if k < 3:
                low = max(0, 1 - reach[k])
                x = slow.operate(x, names[k], low + (1 + reach[k] - low) * u[k])
        np.testing.assert_array_equal(y, x)


def test_colour_jitter_of_nothing_is_a_copy(images):
    result = colour_jitter(images, INDEX)
    np.testing.assert_array_equal(result, images)
    assert not np.shares_memory(result, images)


# -------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_sample_does_not_depend_on_its_batch(name, images):
    f = FUNCTIONS[name]
    whole = f(images, INDEX, seed=3, epoch=1)
    order = np.random.default_rng(0).permutation(len(images))
    np.testing.assert_array_equal(f(images[order], INDEX[order], seed=3, epoch=1), whole[order])
    parts = [f(images[i : i + 7], INDEX[i : i + 7], seed=3, epoch=1) for i in range(0, 40, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_seed_epoch_and_index_change_the_draw(name, images):
    f = FUNCTIONS[name]
    first = f(images, INDEX)
    for other in (f(images, INDEX, seed=1), f(images, INDEX, epoch=1), f(images, INDEX + 1)):
        assert (first != other).any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_stay_and_any_layout_enters(name, images):
    f = FUNCTIONS[name]
    frozen = images.copy()
    frozen.flags.writeable = False
    whole = f(frozen, INDEX)
    np.testing.assert_array_equal(frozen, images)
    assert whole.dtype == np.uint8
    assert not np.shares_memory(whole, frozen)
    apart = np.zeros((80, 3, 32, 32), np.uint8)[::2].transpose(0, 2, 3, 1)
    apart[:] = images
    np.testing.assert_array_equal(f(apart, INDEX.tolist()), whole)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_batch_is_legal(name):
    assert len(FUNCTIONS[name](np.empty((0, 32, 32, 3), np.uint8), np.empty(0, np.int64))) == 0


# -------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("images", "index", "message"),
    [
        (np.zeros((2, 8, 8, 3), np.float32), [0, 1], "uint8 of shape .* got float32"),
        (np.zeros((2, 3, 8, 8), np.uint8), [0, 1], r"\(2, 3, 8, 8\)"),
        (np.zeros((8, 8, 3), np.uint8), [0], r"\(8, 8, 3\)"),
        (np.zeros((2, 0, 8, 3), np.uint8), [0, 1], r"\(2, 0, 8, 3\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0], "index has 1 rows but images has 2"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0, -1], "0 or more, got -1"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0.5, 1.5], "integers"),
    ],
)
def test_wrong_batches(images, index, message):
    for f in FUNCTIONS.values():
        with pytest.raises(InvalidInput, match=message):
            f(images, index)


def test_wrong_settings(images):
    for f, settings in [
        (padded_crop, {"padding": -1}),
        (padded_crop, {"fill": 256}),
        (padded_crop, {"fill": (1, 2)}),
        (padded_crop, {"fill": 0.5}),
        (padded_crop, {"seed": -1}),
        (padded_crop, {"seed": 2**64}),
        (padded_crop, {"epoch": 0.5}),
        (flip, {"chance": 1.5}),
        (cutout, {"side": 0}),
        (rotation, {"degrees": -1}),
        (resized_crop, {"size": 0}),
        (resized_crop, {"size": 8, "scale": (0.0, 1.0)}),
        (resized_crop, {"size": 8, "scale": (0.5, 0.2)}),
        (resized_crop, {"size": 8, "scale": 0.5}),
        (resized_crop, {"size": 8, "ratio": (0.5, np.inf)}),
        (colour_jitter, {"brightness": -0.1}),
        (colour_jitter, {"hue": 0.6}),
        (random_operation, {"severity": 0.0}),
        (random_operation, {"severity": 11}),
        (random_operation, {"operations": []}),
        (random_operation, {"operations": "rotate"}),
    ]:
        with pytest.raises(InvalidInput):
            f(images, INDEX, **settings)


def test_unknown_operation(images):
    with pytest.raises(UnknownName, match="did you mean 'solarize'"):
        operate(images, "solarise", 3)
    with pytest.raises(UnknownName, match="sharpness"):
        random_operation(images, INDEX, operations=["rotate", "sharpnes"])
    for amount in ([1.0, 2.0], np.nan, "much"):
        with pytest.raises(InvalidInput, match="amount"):
            operate(images, "rotate", amount)
    with pytest.raises(InvalidInput, match="bits"):
        operate(images, "posterize", 9)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_colour_jitter_names_the_argument_that_is_wrong(name):
    with pytest.raises(InvalidInput, match=f"^{name} must be"):
        colour_jitter(np.zeros((1, 4, 4, 3), np.uint8), [0], **{name: -1.0})
