"""Mixup and CutMix from their equations, AugMix against Pillow one image at a time."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import slow_images as slow  # noqa: E402

from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.ingredients.mixing import AUGMIX_OPERATIONS, augmix, cutmix, mixup  # noqa: E402

ROWS = torch.arange(24)  # labels that tell who the partner is
INDEX = np.arange(40) * 5 + 1


@pytest.fixture
def batch():
    return torch.randn(24, 3, 9, 7, generator=torch.Generator().manual_seed(0))


# -------------------------------------------------------------------------------- mixup


@pytest.mark.parametrize("alpha", [0.2, 1.0, 10.0])
def test_mixup_is_its_equation(batch, alpha):
    mixed, partners, share = mixup(batch, ROWS, alpha, step=3)
    assert sorted(partners.tolist()) == ROWS.tolist()
    for i, j in enumerate(partners.tolist()):
        np.testing.assert_allclose(mixed[i], share * batch[i] + (1 - share) * batch[j], atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 10.0])
def test_shares_follow_the_beta_distribution(alpha):
    x = torch.zeros(2, 1)
    shares = np.array([mixup(x, ROWS[:2], alpha, seed=1, step=k).share for k in range(3000)])
    assert abs(shares.mean() - 0.5) < 4 * shares.std() / np.sqrt(3000)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_pairs_are_uniform():
    x = torch.zeros(4, 1)
    partners = np.array([mixup(x, ROWS[:4], 1.0, step=k).partners.tolist() for k in range(2000)])
    counts = np.array([np.bincount(partners[:, i], minlength=4) for i in range(4)])
    assert np.abs(counts - 500).max() < 100  # five standard deviations


@pytest.mark.parametrize("mix", [lambda x, y, **k: mixup(x, y, 1.0, **k), cutmix])
def test_a_step_is_repeatable_and_steps_differ(mix, batch):
    first = mix(batch, ROWS, seed=1, epoch=2, step=3)
    again = mix(batch, ROWS, seed=1, epoch=2, step=3)
    assert torch.equal(first.images, again.images)
    assert first.share == again.share
    for other in ({"seed": 2, "epoch": 2, "step": 3}, {"seed": 1, "epoch": 3, "step": 3}, {"seed": 1, "epoch": 2}):
        assert not torch.equal(mix(batch, ROWS, **other).partners, first.partners)


@pytest.mark.parametrize("mix", [lambda x, y, **k: mixup(x, y, 1.0, **k), cutmix])
def test_inputs_stay_and_type_and_layout_are_kept(mix, batch):
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = batch.to(dtype).contiguous(memory_format=torch.channels_last)
        before = x.clone()
        mixed = mix(x, ROWS)
        assert torch.equal(x, before)
        assert mixed.images.dtype == dtype
        assert mixed.images.is_contiguous(memory_format=torch.channels_last)
        assert mixed.images.data_ptr() != x.data_ptr()


def test_mixing_before_or_after_normalising_is_the_same(batch):
    first = mixup((batch - 0.4) / 0.2, ROWS, 10.0).images
    np.testing.assert_allclose(first, (mixup(batch, ROWS, 10.0).images - 0.4) / 0.2, atol=1e-5)


def test_two_losses_equal_one_with_soft_labels(batch):
    labels = torch.arange(24) % 5
    mixed = mixup(batch, labels, 10.0)
    logits = torch.randn(24, 5, dtype=torch.float64)
    loss = torch.nn.functional.cross_entropy
    soft = mixup(batch, torch.nn.functional.one_hot(labels).double(), 10.0)
    targets = soft.share * torch.nn.functional.one_hot(labels) + (1 - soft.share) * soft.partners
    two = mixed.share * loss(logits, labels) + (1 - mixed.share) * loss(logits, mixed.partners)
    assert loss(logits, targets) == pytest.approx(float(two))


# -------------------------------------------------------------------------------- cutmix


def test_cutmix_pastes_one_box_and_counts_its_pixels(batch):
    for step in range(60):
        mixed, partners, share = cutmix(batch, ROWS, step=step)
        pasted = np.zeros((9, 7), bool)
        for i, j in enumerate(partners.tolist()):
            same = (mixed[i] == batch[i]).all(0).numpy()
            other = (mixed[i] == batch[j]).all(0).numpy()
            assert (same | other).all()
            pasted |= ~same
        rows, columns = np.flatnonzero(pasted.any(1)), np.flatnonzero(pasted.any(0))
        if pasted.any():
            assert pasted[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        assert share == pytest.approx(1 - pasted.sum() / 63)


def test_cutmix_boxes_have_the_share_that_was_drawn():
    x = torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, 1, 100, 100)
    shares = np.array([cutmix(x, ROWS[:2], step=k).share for k in range(2000)])
    # lambda ~ U(0, 1); a box of side s = sqrt(1 - lambda) with its centre anywhere keeps s - s^2 / 4 of each side
    s = np.sqrt(np.linspace(0, 1, 100_001))
    assert shares.mean() == pytest.approx(1 - ((s - s * s / 4) ** 2).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("images", "labels", "alpha", "message"),
    [
        (np.zeros((2, 3, 4, 4), np.float32), ROWS[:2], 1.0, "tensor of floats .* ndarray"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), ROWS[:2], 1.0, "torch.uint8"),
        (torch.zeros(2), ROWS[:2], 1.0, "floats"),
        (torch.zeros(2, 3, 4, 4), ROWS[:3], 1.0, "one row for each of 2 images"),
        (torch.zeros(2, 3, 4, 4), [0, 1], 1.0, "list"),
        (torch.zeros(2, 3, 4, 4), ROWS[:2], 0.0, "alpha"),
        (torch.zeros(2, 3, 4, 4), ROWS[:2], np.inf, "alpha"),
    ],
)
def test_wrong_batches(images, labels, alpha, message):
    for mix in (mixup, cutmix):
        with pytest.raises(InvalidInput, match=message):
            mix(images, labels, alpha)


def test_wrong_settings():
    x = torch.zeros(2, 3, 4, 4)
    with pytest.raises(InvalidInput, match="N, C, H, W"):
        cutmix(x[:, 0], ROWS[:2])
    for bad in ({"seed": -1}, {"seed": 2**64}, {"epoch": 0.5}, {"step": None}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            mixup(x, ROWS[:2], 1.0, **bad)


# -------------------------------------------------------------------------------- augmix


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"severity": 1, "seed": 4, "epoch": 9, "view": 1},
        {"width": 1, "depth": 1},
        {"width": 5, "depth": 4, "operations": slow.NAMES},
    ],
)
def test_augmix_equals_one_by_one(settings):
    images = slow.sample_images()
    ours = augmix(images, INDEX, **settings)
    assert ours.dtype == np.float32
    width, depth = settings.get("width", 3), settings.get("depth", 3)
    where = {k: settings[k] for k in ("seed", "epoch", "view") if k in settings}
    for x, i, y in zip(images, INDEX, ours, strict=True):
        u = slow.draws("augmix", i, 1 + width + width * (1 + 3 * depth), **where)
        names = settings.get("operations", slow.NAMES[:9])
        theirs = slow.augmix(x, u, width=width, depth=depth, severity=settings.get("severity", 3), names=names)
        difference = np.abs(y - theirs)
        assert (difference > 1e-5).mean() < 2e-3  # a pixel that a rotation rounds otherwise
        assert difference.max() < 0.02


def test_augmix_leaves_out_what_corruptions_do():
    assert set(slow.NAMES) - set(AUGMIX_OPERATIONS) == {"colour", "contrast", "brightness", "sharpness"}


def test_augmix_does_not_depend_on_the_batch():
    images = slow.sample_images()
    whole = augmix(images, INDEX)
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_array_equal(augmix(images[order], INDEX[order]), whole[order])
    np.testing.assert_array_equal(augmix(images[17:18], INDEX[17:18]), whole[17:18])
    assert (augmix(images, INDEX, view=1) != whole).any()
    assert whole.min() >= 0
    assert whole.max() <= 1
    assert len(augmix(images[:0], INDEX[:0])) == 0


def test_augmix_refuses():
    images = slow.sample_images(14)
    for bad in ({"width": 0}, {"depth": 0}, {"severity": 0}, {"view": -1}, {"operations": ()}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            augmix(images, INDEX[:14], **bad)
    with pytest.raises(UnknownName, match="shear_x"):
        augmix(images, INDEX[:14], operations=["shearx"])
    with pytest.raises(InvalidInput, match="uint8"):
        augmix(images / 255, INDEX[:14])
