"""Fractals: contractions, the chaos game on a known attractor, repeatable pictures; folders, good and bad."""

import numpy as np
import pytest
from PIL import Image

from twofold.errors import InvalidInput
from twofold.nn.ingredients.fractals import Mixers, fractals


def test_shape_and_seed():
    x = fractals(5, size=20, seed=3)
    assert x.shape == (5, 20, 20, 3)
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x, fractals(5, size=20, seed=3))
    assert (x != fractals(5, size=20, seed=4)).any(axis=(1, 2, 3)).all()


def test_a_longer_set_begins_with_the_shorter():
    np.testing.assert_array_equal(fractals(12, size=16)[:5], fractals(5, size=16))


def test_pictures_differ_and_none_is_nearly_empty():
    x = fractals(300, size=64).astype(np.float64)
    assert len({p.tobytes() for p in x}) == 300
    # detail: differences between neighbours that a smooth background (below 1.5 grey levels a pixel) cannot make
    steps = np.abs(np.diff(x, axis=2)).max(axis=3)
    detailed = (steps > 8).mean(axis=(1, 2))
    assert detailed.min() > 0.1
    assert x.std(axis=(1, 2, 3)).min() > 10
    assert (x.mean(axis=(0, 1, 2)) > 40).all()  # no channel is left dark


def test_maps_contract():
    from twofold.nn.ingredients._fractal_kernels import MOST, PICKS, _draw_system

    maps, picks, seen = np.zeros((MOST, 7)), np.zeros(PICKS, np.int64), set()
    for k in range(200):
        _draw_system(np.array([k * 977 + 5], np.uint64), maps, picks)
        count = int(picks.max()) + 1
        seen.add(count)
        matrices = maps[:count, :4].reshape(-1, 2, 2)
        areas = np.abs(np.linalg.det(matrices)) + 0.02
        assert np.linalg.norm(matrices, ord=2, axis=(1, 2)).max() < 0.951
        np.testing.assert_allclose(np.bincount(picks) / PICKS, areas / areas.sum(), atol=2 / PICKS)
    assert seen == {2, 3, 4, 5, 6}


def test_the_chaos_game_draws_the_sierpinski_triangle():
    from twofold.nn.ingredients._fractal_kernels import CELLS, PICKS, _play, _scout

    half = np.array([[0.5, 0, 0, 0.5, 0, 0, 0.0], [0.5, 0, 0, 0.5, 0.5, 0, 0.5], [0.5, 0, 0, 0.5, 0, 0.5, 1.0]])
    picks = np.arange(PICKS) % 3
    box = np.empty(4)
    covered = _scout(np.array([1], np.uint64), half, picks, np.zeros((CELLS, CELLS), np.bool_), box)
    np.testing.assert_allclose(box, [0, 0, 1, 1], atol=0.02)
    counts, colours = np.zeros((32, 32), np.int64), np.zeros((32, 32))
    _play(np.array([1], np.uint64), half, picks, np.array([0.0, 0.0, 1.0, 1.0]), counts, colours)
    i, j = np.indices((32, 32))
    np.testing.assert_array_equal(counts > 0, (i & j) == 0)  # 3^5 of 32 x 32 pixels: Pascal's triangle modulo two
    assert covered == pytest.approx(243 / 1024, abs=0.1)
    assert ((colours >= 0) & (colours <= counts)).all()


@pytest.mark.parametrize(
    ("n", "size", "seed"), [(0, 8, 0), (-1, 8, 0), (2.5, 8, 0), (1, 0, 0), (1, 8, -1), (1, 8, 2**64), (1, 8, None)]
)
def test_wrong_numbers(n, size, seed):
    with pytest.raises(InvalidInput):
        fractals(n, size=size, seed=seed)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_tiny_pictures(size):
    assert fractals(3, size=size).shape == (3, size, size, 3)


# -------------------------------------------------------------------------------- mixing sets


def save(path, value, size=(40, 30), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_mixers_of_fractals():
    mixers = Mixers.fractals(7, size=20, seed=5)
    np.testing.assert_array_equal(mixers.images, fractals(7, 20, 5))
    assert len(mixers) == 7
    assert repr(mixers) == "<Mixers fractals: 7 of 20x20>"
    assert not mixers.images.flags.writeable


def test_mixers_keep_their_own_copy():
    x = np.zeros((2, 4, 4, 3), np.uint8)
    mixers = Mixers(x)
    x[:] = 1
    assert not mixers.images.any()


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((0, 4, 4, 3), np.uint8),
        np.zeros((2, 4, 4), np.uint8),
        np.zeros((2, 3, 4, 4), np.uint8),
        np.zeros((2, 4, 4, 3), np.float32),
    ],
)
def test_mixers_of_wrong_arrays(images):
    with pytest.raises(InvalidInput, match=r"uint8 of shape \(M, S, S, 3\)"):
        Mixers(images)


def test_folder_in_order_of_paths_with_folders_below(tmp_path):
    save(tmp_path / "b.png", (20, 0, 0))
    save(tmp_path / "a" / "z.jpg", (10, 0, 0))
    save(tmp_path / "c" / "d" / "e.PNG", 30, mode="L")
    save(tmp_path / ".hidden.png", (99, 0, 0))
    (tmp_path / "README.txt").write_text("no image")
    mixers = Mixers.folder(tmp_path, size=18)
    assert mixers.images.shape == (3, 18, 18, 3)
    np.testing.assert_allclose(mixers.images[:, 0, 0, 0], [10, 20, 30], atol=2)  # JPEG rounds
    assert mixers.images[2, 0, 0].tolist() == [30, 30, 30]
    assert mixers.name == tmp_path.name


def test_folder_resizes_the_shorter_side_and_takes_the_centre(tmp_path):
    picture = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "one.png")
    theirs = Image.fromarray(picture).resize((48, 36), Image.Resampling.BILINEAR).crop((6, 0, 42, 36))
    np.testing.assert_array_equal(Mixers.folder(str(tmp_path), size=36).images[0], np.asarray(theirs))


def test_folder_limit_takes_evenly_spaced_files(tmp_path):
    for k in range(10):
        save(tmp_path / f"{k}.png", (k, 0, 0))
    assert Mixers.folder(tmp_path, size=4, limit=3).images[:, 0, 0, 0].tolist() == [0, 3, 6]
    assert len(Mixers.folder(tmp_path, size=4, limit=100)) == 10
    with pytest.raises(InvalidInput, match="limit"):
        Mixers.folder(tmp_path, limit=0)


def test_folder_that_is_empty_missing_or_a_file(tmp_path):
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "empty" / "notes.txt").write_text("x")
    with pytest.raises(InvalidInput, match=r"empty holds no image files .*Mixers.fractals"):
        Mixers.folder(tmp_path / "empty")
    with pytest.raises(InvalidInput, match="no such folder"):
        Mixers.folder(tmp_path / "missing")
    with pytest.raises(InvalidInput, match="no such folder"):
        Mixers.folder(tmp_path / "empty" / "notes.txt")


@pytest.mark.parametrize("damage", ["truncated", "text", "zero"])
def test_folder_with_a_damaged_file_names_it(tmp_path, damage):
    save(tmp_path / "good.png", (1, 2, 3))
    noise = np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "worse.png")
    data = (tmp_path / "worse.png").read_bytes()
    (tmp_path / "worse.png").write_bytes({"truncated": data[:900], "text": b"hello", "zero": b""}[damage])
    with pytest.raises(InvalidInput, match=r"worse\.png is not a readable image"):
        Mixers.folder(tmp_path)


def test_folder_with_wrong_size(tmp_path):
    save(tmp_path / "good.png", (1, 2, 3))
    with pytest.raises(InvalidInput, match="size"):
        Mixers.folder(tmp_path, size=0)
