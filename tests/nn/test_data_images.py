"""Images as rows: reading, views, labels, size rules, and what is refused."""

import pickle

import numpy as np
import pytest
from PIL import Image

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data import Images
from twofold.nn.data.sources import ArraySource, FileSource, NoiseSource, TableSource


def pixels(n=6, h=8, w=8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, h, w, 3), dtype=np.uint8)


def images(n=6, **settings):
    labels = [0, 1, 2, 0, 1, -1][:n]
    return Images.of(pixels(n), labels, class_names=("ant", "bee", "cat"), **settings)


def saved(folder, arrays):
    paths = []
    for i, array in enumerate(arrays):
        paths.append(folder / f"{i}.png")
        Image.fromarray(array).save(paths[-1])
    return paths


def test_reading_by_slice_numbers_and_mask_is_plain_indexing():
    x, o = pixels(), images()
    assert len(o) == 6
    assert o.shape == (8, 8)
    for rows in (slice(1, 4), slice(None, None, -2), [3, 3, 0], np.array([-1, 2]), np.arange(6) % 2 == 0, range(2, 4)):
        np.testing.assert_array_equal(o.read(rows), x[rows if not isinstance(rows, range) else list(rows)])
    np.testing.assert_array_equal(o.read(), x)
    assert o.read([]).shape == (0, 8, 8, 3)


@pytest.mark.parametrize("rows", [3, [[0, 1]], ["a"], [0.5], [6], [-7], [True, False]])
def test_rows_that_are_none(rows):
    with pytest.raises(InvalidInput, match="row"):
        images().read(rows)


def test_views_of_views_keep_ids_and_read_the_same_images():
    o = Images.of(pixels(), [0, 1, 2, 0, 1, -1], ids=list("abcdef"))
    view = o[[5, 4, 3, 1]][1:]
    assert view.ids.tolist() == ["e", "d", "b"]
    assert view.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(view.read(), pixels()[[4, 3, 1]])
    np.testing.assert_array_equal(view[::-1].read(slice(0, 1)), pixels()[[1]])


def test_what_comes_out_may_be_written_to_and_what_is_inside_not():
    x = pixels()
    o = Images.of(x, [0] * 6)
    block = o.read()
    block[:] = 0
    np.testing.assert_array_equal(o.read(), pixels())
    with pytest.raises(ValueError, match="read-only"):
        o.labels[0] = 3
    with pytest.raises(AttributeError):
        o.name = "x"


@pytest.mark.parametrize(
    ("shape", "back"),
    [
        ((5, 7, 9), lambda x: np.stack([x] * 3, axis=3)),
        ((5, 7, 9, 1), lambda x: np.concatenate([x] * 3, axis=3)),
        ((5, 7, 9, 3), lambda x: x),
        ((5, 3, 7, 9), lambda x: np.moveaxis(x, 1, 3)),
        ((5, 1, 7, 9), lambda x: np.repeat(np.moveaxis(x, 1, 3), 3, axis=3)),
    ],
)
def test_layouts_of_arrays(shape, back):
    x = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    o = Images.of(x)
    assert o.labels.tolist() == [-1] * 5
    assert o.shape == (7, 9)
    np.testing.assert_array_equal(o.read(), back(x))
    np.testing.assert_array_equal(o.read([4, 0]), back(x)[[4, 0]])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((2, 4, 4, 3)), "uint8"),
        (np.zeros((2, 4, 4, 4), np.uint8), "shape"),
        (np.zeros((2, 4), np.uint8), "shape"),
        (np.zeros((2, 0, 4, 3), np.uint8), "empty"),
        (np.zeros((0, 4, 4, 3), np.uint8), "no images"),
    ],
)
def test_arrays_that_are_no_images(value, words):
    with pytest.raises(InvalidInput, match=f"pic.*{words}"):
        Images.of(value, name="pic")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels": [0, 1]}, "2 labels but 6 images"),
        ({"labels": [0, 1, 2, 3, 0, 0], "class_names": "abc"}, "got 3 in row 3"),
        ({"labels": [0, -2, 0, 0, 0, 0]}, "got -2 in row 1"),
        ({"labels": [0, 0.5, 0, 0, 0, 0]}, "integer"),
        ({"ids": ["a", "b"]}, "6 strings or integers"),
        ({"ids": [0.5] * 6}, "strings or integers"),
    ],
)
def test_labels_and_ids_that_do_not_fit(settings, words):
    labels = settings.pop("labels", None)
    with pytest.raises(InvalidInput, match=words):
        Images.of(pixels(), labels, **settings)


def test_subset_renumbers_in_the_order_given_or_keeps():
    o = images()
    few = o.subset(["cat", "ant"])
    assert few.ids.tolist() == [0, 2, 3]
    assert few.labels.tolist() == [1, 0, 1]
    assert few.class_names == ("cat", "ant")
    kept = o.subset([2, 0], keep_labels=True)
    assert kept.labels.tolist() == [0, 2, 0]
    assert kept.class_names == ("ant", "bee", "cat")
    assert o.subset("bee").ids.tolist() == [1, 4]
    assert o.subset("1").ids.tolist() == [1, 4]
    np.testing.assert_array_equal(few.read(), pixels()[[0, 2, 3]])


@pytest.mark.parametrize(
    ("classes", "error", "words"),
    [
        (["bea"], UnknownName, "did you mean 'bee'"),
        ([3], InvalidInput, r"0\.\.2"),
        (["ant", 0], InvalidInput, "twice"),
        ([], InvalidInput, "empty"),
        ([-1], InvalidInput, "whole number"),
    ],
)
def test_classes_that_are_none(classes, error, words):
    with pytest.raises(error, match=words):
        images().subset(classes)


def test_subset_needs_names_for_names_and_rows_for_classes():
    with pytest.raises(InvalidInput, match="no class names"):
        Images.of(pixels(), [0] * 6).subset(["ant"])
    with pytest.raises(InvalidInput, match="no row has"):
        Images.of(pixels(), [0] * 6, class_names=("ant", "bee")).subset(1)


def test_relabel_by_number_row_and_mapping():
    o = images()
    assert o.relabel(-1).labels.tolist() == [-1] * 6
    assert o.relabel([5, 4, 3, 2, 1, 0]).labels.tolist() == [5, 4, 3, 2, 1, 0]
    new = o.relabel({0: 1, 1: 0}, ("x", "y"))
    assert new.labels.tolist() == [1, 0, -1, 1, 0, -1]
    assert new.class_names == ("x", "y")
    with pytest.raises(InvalidInput, match="got 2"):
        o.relabel(2, ("x", "y"))
    with pytest.raises(InvalidInput, match="1 labels but 6"):
        o.relabel([1])


def test_size_rules_against_pil_by_hand(tmp_path):
    shapes = [(40, 60), (61, 37), (50, 50)]
    arrays = [pixels(1, *s, seed=i)[0] for i, s in enumerate(shapes)]
    o = Images.of(FileSource(saved(tmp_path, arrays))).fit(size=20)
    for array, got in zip(arrays, o.read(), strict=True):
        h, w = array.shape[:2]
        new = (20, int(20 * w / h)) if h <= w else (int(20 * h / w), 20)
        small = Image.fromarray(array).resize(new[::-1], Image.Resampling.BILINEAR)
        left, top = round((new[1] - 20) / 2), round((new[0] - 20) / 2)
        np.testing.assert_array_equal(got, np.asarray(small.crop((left, top, left + 20, top + 20))))
    crop = Images.of(FileSource(saved(tmp_path, arrays))).fit(crop=36).read([0])
    np.testing.assert_array_equal(crop[0], arrays[0][2:38, 12:48])


def test_padding_comes_first_and_rules_add_up():
    x = pixels(3, 28, 28)
    o = Images.of(x).fit(pad=2)
    assert o.shape == (32, 32)
    by_hand = np.zeros((3, 32, 32, 3), np.uint8)
    by_hand[:, 2:30, 2:30] = x
    np.testing.assert_array_equal(o.read(), by_hand)
    np.testing.assert_array_equal(o.fit(crop=28).read(), x)
    assert o.fit(size=16).read([1]).shape == (1, 16, 16, 3)
    np.testing.assert_array_equal(o.fit(size=16)[1:].read([0]), o.fit(size=16).read()[[1]])


def test_antialiased_shrinking_of_a_checkerboard_is_grey():
    board = np.uint8(255) * (np.indices((64, 64)).sum(axis=0) % 2).astype(np.uint8)
    small = Images.of(board[None]).fit(size=16).read()
    assert 120 <= small.min() <= small.max() <= 135


def test_images_of_several_sizes_need_a_rule(tmp_path):
    o = Images.of(FileSource(saved(tmp_path, [pixels(1, 8, 8)[0], pixels(1, 9, 8)[0]])), name="mixed")
    with pytest.raises(InvalidInput, match=r"0\.png is 8x8, .*1\.png is 9x8; open the data set with \?size="):
        o.read()
    with pytest.raises(InvalidInput, match=r"0\.png is 8x8, smaller than crop=9"):
        o.fit(crop=9).read([0])
    for bad in ({"size": 0}, {"crop": 0}, {"pad": -1}, {"size": 3.5}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            o.fit(**bad)


def test_blocks_are_the_whole_in_order(monkeypatch):
    monkeypatch.setattr("twofold.nn.data.images.BLOCK_BYTES", 2 * 8 * 8 * 3)
    blocks = list(images(5).blocks())
    assert [len(b) for b in blocks] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), pixels(5))


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK", "LA"])
def test_every_8_bit_mode_becomes_rgb(tmp_path, mode):
    image = Image.fromarray(pixels(1)[0]).convert(mode)
    file = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    image.save(file)
    got = Images.of(FileSource([file])).read()
    np.testing.assert_array_equal(got[0], np.asarray(image.convert("RGB")))


def test_palette_with_transparency_and_deep_images(tmp_path):
    Image.fromarray(pixels(1)[0]).convert("P").save(tmp_path / "t.png", transparency=bytes(range(200)))
    assert Images.of(FileSource([tmp_path / "t.png"])).read().shape == (1, 8, 8, 3)
    Image.fromarray(np.full((4, 4), 60000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InvalidInput, match=r"deep\.png has more than 8 bits"):
        Images.of(FileSource([tmp_path / "deep.png"])).read()


@pytest.mark.parametrize("kind", ["text", "empty", "truncated", "missing", "folder"])
def test_files_that_are_no_images(tmp_path, kind):
    file = tmp_path / "x.png"
    if kind == "text":
        file.write_text("hello")
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "truncated":
        Image.fromarray(pixels(1, 64, 64)[0]).save(file)
        file.write_bytes(file.read_bytes()[:3000])
    elif kind == "folder":
        file.mkdir()
    with pytest.raises(InvalidInput, match=r"x\.png"):
        Images.of(FileSource([file])).read()


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    Image.fromarray(pixels(1, 64, 64)[0]).save(tmp_path / "big.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(InvalidInput, match=r"big\.png is not a readable image"):
        Images.of(FileSource([tmp_path / "big.png"])).read()


def test_table_rows():
    table = [{"img": Image.fromarray(x)} for x in pixels(2)] + [{"img": Image.new("I;16", (8, 8))}]
    o = Images.of(TableSource(table, "img", "tab"))
    np.testing.assert_array_equal(o.read([1, 0]), pixels(2)[::-1])
    with pytest.raises(InvalidInput, match="tab, image 2 has more than 8 bits"):
        o.read([2])


def test_noise_rows_are_the_same_in_any_order():
    for kind in ("gaussian", "uniform"):
        source = NoiseSource(kind, 20, 8, 7)
        o = Images.of(source)
        whole = o.read()
        np.testing.assert_array_equal(o.read([13, 2]), whole[[13, 2]])
        np.testing.assert_array_equal(Images.of(NoiseSource(kind, 5, 8, 7)).read(), whole[:5])
        assert (Images.of(NoiseSource(kind, 20, 8, 8)).read() != whole).any()
        assert len({row.tobytes() for row in whole}) == 20


def test_noise_has_the_moments_it_says():
    x = Images.of(NoiseSource("gaussian", 50, 32, 0, 0.5, 0.1)).read() / 255
    assert x.mean() == pytest.approx(0.5, abs=0.002)
    assert x.std() == pytest.approx(0.1, abs=0.002)
    clipped = Images.of(NoiseSource("gaussian", 50, 32, 0)).read()
    assert (clipped == 0).mean() == pytest.approx(0.3085, abs=0.01)  # P(N(0.5, 1) < 0), and below half of 1/255
    u = Images.of(NoiseSource("uniform", 50, 32, 0)).read()
    assert u.mean() == pytest.approx(127.5, abs=1)
    assert set(np.unique(u)) == set(range(256))


def test_memory_maps_are_read_by_row(tmp_path):
    np.save(tmp_path / "x.npy", pixels())
    source = ArraySource.of(np.load(tmp_path / "x.npy", mmap_mode="r"), "x")
    assert isinstance(source.pixels, np.memmap)
    got = Images.of(source).read([2])
    assert not isinstance(got, np.memmap)
    np.testing.assert_array_equal(got, pixels()[[2]])


def test_images_travel_to_other_processes():
    again = pickle.loads(pickle.dumps(images()[2:]))
    np.testing.assert_array_equal(again.read(), pixels()[2:])
    assert repr(again) == "<Images images: 4 rows, 3 classes>"
