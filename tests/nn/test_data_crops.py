"""Random-resized crops of whole pictures: torchvision's distribution and pixels, reduced decoding of JPEG files."""

import math
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from scipy.stats import ks_2samp

from twofold.errors import UnreadableImage
from twofold.nn.data import Images
from twofold.nn.data.decoding import Box, crop_file
from twofold.nn.data.sources import FileSource
from twofold.nn.ingredients.augment import crop_boxes, resized_crop


def photograph(height, width, seed=0):
    """Smooth noise that a JPEG file keeps well."""
    rough = np.random.default_rng(seed).integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((width, height), Image.Resampling.BICUBIC)


def encoded(picture, kind="JPEG", **options):
    file = BytesIO()
    picture.save(file, kind, **options)
    return file


def pick(top, left, height, width):
    return lambda full_height, full_width: Box(top, left, height, width)


def test_boxes_of_equal_sizes_are_those_of_the_batched_augmentation():
    picture = np.random.default_rng(0).integers(0, 256, (5, 40, 60, 3), dtype=np.uint8)
    index = [3, 0, 9, 12, 7]
    batched = resized_crop(picture, index, size=16, seed=4, epoch=2)
    for image, number, want in zip(picture, index, batched, strict=True):
        top, left, height, width = crop_boxes([number], [(40, 60)], seed=4, epoch=2)[0]
        cut = Image.fromarray(image).crop((left, top, left + width, top + height))
        got = np.asarray(cut.resize((16, 16), Image.Resampling.BILINEAR))
        assert np.abs(got.astype(int) - want).max() <= 1  # rows before columns, or columns before rows


@pytest.mark.parametrize("size", [(375, 500), (500, 375), (64, 640)])
def test_boxes_are_distributed_as_those_of_torchvision(size):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")
    height, width = size
    n = 3000
    ours = crop_boxes(np.arange(n), [size] * n, seed=5)
    torch.manual_seed(0)
    canvas = torch.empty(3, height, width)
    draw = transforms.RandomResizedCrop.get_params
    theirs = np.array([draw(canvas, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(n)])
    for one, other in zip(_describe(ours, size), _describe(theirs, size), strict=True):
        assert ks_2samp(one, other).pvalue > 1e-3
    wrong = crop_boxes(np.arange(n), [size] * n, seed=5, scale=(0.2, 1.0))
    assert ks_2samp(_describe(wrong, size)[0], _describe(theirs, size)[0]).pvalue < 1e-3


def _describe(boxes, size):
    """Area, aspect ratio, and position of the free play of each box."""
    top, left, height, width = np.asarray(boxes).T
    return height * width, width / height, top / (size[0] - height + 1), left / (size[1] - width + 1)


def test_a_picture_of_extreme_shape_gives_the_central_box():
    narrowest = 3 / 4
    for number in range(20):
        top, left, height, width = crop_boxes([number], [(2000, 10)], scale=(0.9, 1.0))[0]
        assert (height, width) == (round(10 / narrowest), 10)
        assert (top, left) == ((2000 - height) // 2, 0)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_pixels_are_those_of_torchvision_when_the_file_is_decoded_whole(kind):
    functional = pytest.importorskip("torchvision.transforms.functional", reason="torchvision is not installed")
    file = encoded(photograph(300, 420), kind)
    got = crop_file(file, "file", pick(31, 17, 201, 260), 64, draft=False)
    with Image.open(file) as image:
        want = np.asarray(functional.resized_crop(image.convert("RGB"), 31, 17, 201, 260, [64, 64]))
    np.testing.assert_array_equal(got, want)


def test_reduced_decoding_changes_pixels_little_and_always_in_the_same_way():
    file = encoded(photograph(900, 1200), quality=90)
    box = pick(101, 203, 700, 650)
    whole = crop_file(file, "file", box, 64, draft=False)
    reduced = crop_file(file, "file", box, 64)
    np.testing.assert_array_equal(reduced, crop_file(file, "file", box, 64))
    difference = np.abs(reduced.astype(int) - whole)
    assert difference.max() > 0  # it was reduced
    assert difference.mean() < 3
    moved = crop_file(file, "file", pick(117, 203, 700, 650), 64, draft=False)
    assert np.abs(moved.astype(int) - whole).mean() > 3 * difference.mean()  # the box is at its place


@pytest.mark.parametrize(("sides", "reduction"), [((600, 500), 2), ((512, 513), 4), ((511, 600), 2), ((255, 2000), 1)])
def test_a_reduced_box_is_never_smaller_than_the_result(sides, reduction, monkeypatch):
    sizes = []
    reduce = JpegImageFile.draft

    def look(image, mode, size):
        result = reduce(image, mode, size)
        sizes.append(image.size)
        return result

    monkeypatch.setattr(JpegImageFile, "draft", look)
    crop_file(encoded(photograph(700, 2100)), "file", pick(3, 5, *sides), 128)
    assert sizes == [(math.ceil(2100 / reduction), math.ceil(700 / reduction))]


def test_crops_of_a_folder_of_mixed_sizes(tmp_path):
    paths = []
    for number, (height, width) in enumerate([(90, 60), (64, 200), (33, 40)]):
        paths.append(tmp_path / f"{number}.jpg")
        photograph(height, width, number).save(paths[-1])
    images = Images.of(FileSource(paths), [0, 1, 0])
    seen = []

    def draw(row, height, width):
        seen.append((row, height, width))
        return Box(0, 0, height, width)

    assert images[[2, 0]].read_crops([0, 1], draw, 24).shape == (2, 24, 24, 3)
    assert seen == [(0, 33, 40), (1, 90, 60)]  # numbers of the view, sizes of the files
    fitted = images.fit(size=32).read_crops([1], draw, 24)
    assert seen[-1] == (1, 32, 32)
    assert fitted.shape == (1, 24, 24, 3)


def test_unreadable_files_raise_one_kind_of_error(tmp_path):
    (tmp_path / "torn.jpg").write_bytes(encoded(photograph(64, 64)).getvalue()[:300])
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "deep.png")
    for name, words in [("torn.jpg", "not a readable image"), ("deep.png", "8 bits"), ("gone.jpg", "no such image")]:
        images = Images.of(FileSource([tmp_path / name]))
        with pytest.raises(UnreadableImage, match=words):
            images.read()
        with pytest.raises(UnreadableImage, match=words):
            images.read_crops([0], lambda row, height, width: Box(0, 0, height, width), 8)
        with pytest.raises(UnreadableImage, match=name):
            images.read()
