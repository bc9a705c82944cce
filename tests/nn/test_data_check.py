"""Reports, contact sheets and the antialiased resize, on generated images."""

import json

import numpy as np
import pytest
from PIL import Image

from twofold.errors import InvalidInput
from twofold.nn import data
from twofold.nn.data import Images, check, contact_sheet, resize, total_variation
from twofold.nn.data.check import SUSPECT
from twofold.nn.data.sources import FileSource


def pixels(n=6, h=8, w=8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, h, w, 3), dtype=np.uint8)


def smooth(n, side, seed=0):
    """Blurred noise: few details finer than four pixels."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (n, side // 4, side // 4, 3), dtype=np.uint8)
    return np.stack([np.asarray(Image.fromarray(x).resize((side, side), Image.Resampling.BICUBIC)) for x in small])


def test_total_variation_against_loops():
    x = pixels(3, 4, 5)
    for image, value in zip(x, total_variation(x), strict=True):
        steps = []
        for r in range(4):
            for c in range(5):
                for k in range(3):
                    if r + 1 < 4:
                        steps.append(abs(int(image[r + 1, c, k]) - int(image[r, c, k])))
                    if c + 1 < 5:
                        steps.append(abs(int(image[r, c + 1, k]) - int(image[r, c, k])))
        assert value == pytest.approx(np.mean(steps) / 255, rel=1e-12)
    board = np.uint8(255) * (np.indices((6, 6)).sum(axis=0) % 2).astype(np.uint8)
    assert total_variation(np.repeat(board[None, :, :, None], 3, axis=3)) == [1.0]
    for bad in (x[0], x[:, :1]):
        with pytest.raises(InvalidInput, match="at least 2x2"):
            total_variation(bad)


def test_report():
    x = pixels()
    o = Images.of(x, [0, 2, 2, 0, -1, 2], class_names=("a", "b", "c"), ids=list("uvwxyz"), name="toy")
    r = check(o)
    assert (r.name, r.rows, r.height, r.width, r.unlabelled) == ("toy", 6, 8, 8, 1)
    assert r.class_counts == (2, 0, 3)
    assert r.first_ids == tuple("uvwxy")
    assert r.mean == pytest.approx((x / 255).mean(axis=(0, 1, 2)))
    assert r.std == pytest.approx((x / 255).std(axis=(0, 1, 2)))
    assert r.smoothness.mean == pytest.approx(total_variation(x).mean())
    assert r.difference is r.warning is r.reference is None
    text = str(r)
    assert "6 images of 8x8" in text
    assert "a 2, b 0, c 3" in text
    again = json.loads(json.dumps(r.as_dict()))
    assert again["smoothness"]["looked_at"] == 6
    assert again["class_names"] == ["a", "b", "c"]
    many = check(Images.of(pixels(30), np.arange(30)))
    assert "0 1, 1 1" in str(many)
    assert "... 20 more" in str(many)
    assert "classes: none" in str(check(Images.of(x)))


def test_the_difference_is_standardised_and_warns_one_way():
    soft, rough = Images.of(smooth(40, 16), name="soft"), Images.of(pixels(40, 16, 16), name="rough")
    a, b = total_variation(rough.read()), total_variation(soft.read())
    r = check(rough, soft)
    assert r.difference == pytest.approx((a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2))
    assert r.difference > SUSPECT
    assert "looks resized without antialiasing" in r.warning
    assert r.warning in str(r)
    back = check(soft, rough)
    assert back.difference == pytest.approx(-r.difference)
    assert back.warning is None
    assert check(soft, soft).difference == 0
    with pytest.raises(InvalidInput, match="soft is 8x8 but the reference rough is 16x16"):
        check(soft.fit(size=8), rough)
    flat, other = (Images.of(np.full((3, 4, 4), 5, np.uint8)), Images.of(np.eye(4, dtype=np.uint8)[None]))
    assert check(flat, flat).difference == 0
    assert check(other, flat).difference == np.inf


def test_a_broken_image_in_the_middle_is_found(tmp_path):
    for i, x in enumerate(pixels(4)):
        Image.fromarray(x).save(tmp_path / f"{i}.png")
    (tmp_path / "2.png").write_bytes(b"broken")
    with pytest.raises(InvalidInput, match=r"2\.png is not a readable image"):
        check(data.open(f"folder:{tmp_path}"))


@pytest.mark.parametrize(("n", "grid"), [(1, (1, 1)), (3, (2, 2)), (5, (2, 3)), (64, (3, 3))])
def test_contact_sheet(tmp_path, n, grid):
    x = pixels(9, 6, 8)
    file = contact_sheet(Images.of(x), tmp_path / "c.png", n=n, seed=2)
    with Image.open(file) as image:
        assert image.format == "PNG"
        canvas = np.asarray(image.convert("RGB"))
    assert canvas.shape == (grid[0] * 8 + 2, grid[1] * 10 + 2, 3)
    rows = sorted(np.random.default_rng(2).choice(9, min(n, 9), replace=False))
    for i, row in enumerate(rows):
        top, left = 8 * (i // grid[1]) + 2, 10 * (i % grid[1]) + 2
        np.testing.assert_array_equal(canvas[top : top + 6, left : left + 8], x[row])
    first = file.read_bytes()
    assert contact_sheet(Images.of(x), tmp_path / "d.png", n=n, seed=2).read_bytes() == first


def test_resize_is_the_recipe_by_hand(tmp_path):
    arrays = [pixels(1, 300, 400, seed=1)[0], pixels(1, 280, 256, seed=2)[0], pixels(1, 64, 50, seed=3)[0]]
    folder = tmp_path / "in"
    for i, x in enumerate(arrays):
        (folder / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(folder / "ab"[i % 2] / f"{i}.png")
    source = data.open(f"folder:{folder}")
    out = resize(source, tmp_path / "out.npz")
    got = data.open(f"npz:{out}")
    assert got.ids.tolist() == ["a/0.png", "a/2.png", "b/1.png"]
    assert (got.labels.tolist(), got.class_names) == ([0, 0, 1], ("a", "b"))
    bilinear = Image.Resampling.BILINEAR
    for row, x in zip(got.read(), (arrays[0], arrays[2], arrays[1]), strict=True):
        h, w = x.shape[:2]
        size = (int(256 * w / h), 256) if h <= w else (256, int(256 * h / w))
        big = Image.fromarray(x).resize(size, bilinear)
        left, top = round((size[0] - 256) / 2), round((size[1] - 256) / 2)
        small = big.crop((left, top, left + 256, top + 256)).resize((32, 32), bilinear)
        np.testing.assert_array_equal(row, np.asarray(small))
    assert resize(source, tmp_path / "again.npz").read_bytes() == out.read_bytes()
    short = data.open(f"npz:{resize(source, tmp_path / 'short.npz', size=16, rule='shorter')}")
    np.testing.assert_array_equal(short.read(), source.fit(size=16).read())
    with np.load(out, allow_pickle=False) as file:
        assert file["images"].shape == (3, 32, 32, 3)


def test_nothing_half_written(tmp_path):
    for i, x in enumerate(pixels(3)):
        Image.fromarray(x).save(tmp_path / f"{i}.png")
    o = data.open(f"folder:{tmp_path}")
    (tmp_path / "2.png").write_bytes(b"broken")
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(InvalidInput, match=r"2\.png"):
        resize(o, target / "x.npz")
    with pytest.raises(InvalidInput, match=r"2\.png"):
        contact_sheet(o, target / "x.png")
    assert list(target.iterdir()) == []
    good = Images.of(FileSource([tmp_path / "0.png"]))
    for call in (
        lambda: resize(good, tmp_path / "gone" / "x.npz"),
        lambda: resize(good, target / "x.txt"),
        lambda: resize(good, target / "x.npz", rule="fixed"),
        lambda: resize(good, target / "x.npz", size=0),
        lambda: contact_sheet(good, target),
        lambda: contact_sheet(good, tmp_path / "gone" / "x.png"),
        lambda: contact_sheet(good, target / "x.png", n=0),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert list(target.iterdir()) == []
