"""Keys that every kind of data shares: rows, without, shuffle, corrupt; and the parts of published sets."""

import json
from importlib.resources import files

import numpy as np
import pytest

from twofold.errors import InvalidInput, UnknownName
from twofold.nn import corruptions, data

pytest.importorskip("PIL", reason="Pillow is not installed")
CLASSES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An .npz file of 20 images in 4 classes, the last two rows without a class, and a selection of rows."""
    path = tmp_path_factory.mktemp("keys")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 16, 16, 3), dtype=np.uint8)
    labels = np.array([i % CLASSES for i in range(18)] + [-1, -1])
    np.savez(
        path / "set.npz", images=images, labels=labels, class_names=np.array(list("abcd")), some=np.array([3, 5, 8])
    )
    return path


def content(folder):
    with np.load(folder / "set.npz") as file:
        return file["images"], file["labels"]


def opened(folder, keys):
    return data.open(f"npz:{folder}/set.npz?{keys}")


# --- rows and shuffle -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"), [("0:5", range(5)), ("5:", range(5, 20)), (":3", range(3)), ("7:8", [7]), (":", range(20))]
)
def test_rows_are_a_slice_of_stored_order(folder, text, want):
    images, labels = content(folder)
    got = opened(folder, f"rows={text}")
    assert got.ids.tolist() == list(want)
    np.testing.assert_array_equal(got.read(), images[list(want)])
    np.testing.assert_array_equal(got.labels, labels[list(want)])


def test_rows_of_an_npz_may_still_name_an_array(folder):
    assert opened(folder, "rows=some").ids.tolist() == [3, 5, 8]


@pytest.mark.parametrize("text", ["5:5", "9:2", "0:21", "25:", "-3:", "1:2:3", "a:b", "1.5:3", "²:4"])
def test_bad_rows(folder, text):
    with pytest.raises(InvalidInput, match="rows"):
        opened(folder, f"rows={text}")


def test_rows_without_a_colon_are_refused_where_no_array_can_be_named():
    with pytest.raises(InvalidInput, match="A:B"):
        data.open("noise:uniform?n=9&size=8&rows=5")


def test_rows_come_after_classes_and_before_limit_and_sample(folder):
    _, labels = content(folder)
    of_b = np.flatnonzero(labels == 1)
    assert opened(folder, "classes=b&rows=1:4").ids.tolist() == of_b[1:4].tolist()
    assert opened(folder, "classes=b&rows=1:4&limit=2").ids.tolist() == of_b[1:3].tolist()
    drawn = opened(folder, "rows=10:&sample=4&seed=3").ids
    assert len(drawn) == 4
    assert min(drawn) >= 10


def test_shuffle_is_a_permutation_before_rows(folder):
    want = np.random.default_rng(7).permutation(20)
    assert opened(folder, "shuffle=7").ids.tolist() == want.tolist()
    first, rest = opened(folder, "shuffle=7&rows=0:6"), opened(folder, "shuffle=7&rows=6:")
    assert first.ids.tolist() == want[:6].tolist()
    assert sorted([*first.ids, *rest.ids]) == list(range(20))
    assert data.shuffled(data.open(f"npz:{folder}/set.npz"), seed=7).ids.tolist() == want.tolist()


# --- without --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["b,d", "1,3", "d, b"])
def test_without_drops_classes_and_renumbers(folder, words):
    _, labels = content(folder)
    kept = [i for i in range(20) if labels[i] not in (1, 3)]
    got = opened(folder, f"without={words}")
    assert got.ids.tolist() == kept
    assert got.class_names == ("a", "c")
    assert got.labels.tolist() == [{0: 0, 2: 1, -1: -1}[int(labels[i])] for i in kept]
    same = opened(folder, f"without={words}&keep_labels=1")
    assert same.labels.tolist() == labels[kept].tolist()
    assert same.class_names == tuple("abcd")


def test_without_is_the_complement_of_classes(folder):
    inside, outside = opened(folder, "classes=a,b"), opened(folder, "without=a,b")
    assert sorted([*inside.ids, *outside.ids]) == list(range(20))


def test_without_on_numbers_alone(tmp_path):
    np.savez(tmp_path / "plain.npz", images=np.zeros((6, 8, 8), np.uint8), labels=[0, 1, 2, 2, 1, 0])
    got = data.open(f"npz:{tmp_path}/plain.npz?without=1")
    assert got.labels.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ("without=a&classes=b", InvalidInput, "exclude one another"),
        ("without=e", UnknownName, "no class"),
        ("without=9", InvalidInput, "class 9"),
        ("without=", InvalidInput, "empty"),
        ("without=@tiny_imagenet_cifar100", UnknownName, "tiny_imagenet_cifar10"),
        ("without=@tiny_imagenet_cifar10", UnknownName, "no class"),
    ],
)
def test_bad_without(folder, keys, error, words):
    with pytest.raises(error, match=words):
        opened(folder, keys)


def test_without_must_leave_something(tmp_path):
    np.savez(tmp_path / "one.npz", images=np.zeros((3, 8, 8), np.uint8), labels=[0, 0, 0])
    with pytest.raises(InvalidInput, match="no rows"):
        data.open(f"npz:{tmp_path}/one.npz?without=0")


# --- corrupt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fog", "gaussian_noise"])
def test_one_corruption_is_that_of_the_chosen_rows(folder, name):
    images, labels = content(folder)
    got = opened(folder, f"rows=4:10&corrupt={name}&level=3&seed=5")
    np.testing.assert_array_equal(got.read(), corruptions.corrupt(images[4:10], name, 3, seed=5))
    np.testing.assert_array_equal(got.labels, labels[4:10])
    assert got.ids.tolist() == list(range(4, 10))


def test_all_is_the_fifteen_one_after_the_other(folder):
    images, labels = content(folder)
    got = opened(folder, "limit=5&corrupt=all&level=2")
    assert len(got) == 75
    want = np.concatenate([corruptions.corrupt(images[:5], name, 2) for name in corruptions.NAMES])
    np.testing.assert_array_equal(got.read(), want)
    np.testing.assert_array_equal(got.labels, np.tile(labels[:5], 15))
    assert got.ids.tolist() == list(range(5)) * 15
    assert got.class_names == tuple("abcd")
    some = np.array([74, 0, 33, 33, 12])  # any row in any company
    np.testing.assert_array_equal(got.read(some), want[some])
    np.testing.assert_array_equal(got[some].read(slice(1, 3)), want[some[1:3]])
    assert got.read([]).shape[0] == 0


def test_corruption_is_computed_when_read(folder, monkeypatch):
    calls = []
    real = corruptions.views.corrupt_rows

    def counted(pixels, *rest):
        calls.append(len(pixels))
        return real(pixels, *rest)

    monkeypatch.setattr(corruptions.views, "corrupt_rows", counted)
    got = opened(folder, "corrupt=all&level=1")
    assert sum(calls) <= 1  # opening reads one image, for the size
    got.read(slice(0, 4))
    assert sum(calls) <= 5


def test_corruption_sees_the_image_at_its_final_size(folder):
    images, _ = content(folder)
    padded = np.pad(images[:2], ((0, 0), (2, 2), (2, 2), (0, 0)))
    got = opened(folder, "pad=2&limit=2&corrupt=snow&level=4")
    np.testing.assert_array_equal(got.read(), corruptions.corrupt(padded, "snow", 4))


def test_noise_keeps_its_own_seed_and_gives_it_to_the_corruption():
    clean = data.open("noise:uniform?n=3&size=16&seed=9").read()
    got = data.open("noise:uniform?n=3&size=16&seed=9&corrupt=impulse_noise&level=1")
    np.testing.assert_array_equal(got.read(), corruptions.corrupt(clean, "impulse_noise", 1, seed=9))


@pytest.mark.parametrize(
    ("keys", "error", "words"),
    [
        ("corrupt=fog", InvalidInput, "needs level"),
        ("corrupt=fog&level=6", InvalidInput, "got 6"),
        ("corrupt=fog&level=0", InvalidInput, "got 0"),
        ("corrupt=frog&level=1", UnknownName, "'fog'"),
        ("level=2", InvalidInput, "level goes with corrupt"),
        ("seed=2", InvalidInput, "seed goes with"),
        ("corupt=fog&level=2", UnknownName, "'corrupt'"),
    ],
)
def test_bad_corruptions(folder, keys, error, words):
    with pytest.raises(error, match=words):
        opened(folder, keys)


def test_errors_name_the_row_and_corruption(folder):
    got = opened(folder, "corrupt=all&level=1")
    assert got.source.where(23) == "set-contrast-1, image 3"


# --- published corruption arrays, and super-classes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cifar_c(tmp_path_factory):
    path = tmp_path_factory.mktemp("c")
    rng = np.random.default_rng(1)
    for name in (*corruptions.NAMES, "spatter"):
        np.save(path / f"{name}.npy", rng.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8))
    np.save(path / "labels.npy", np.tile([3, 8], 5))
    return path


def test_all_types_of_cifar_c_at_one_level(cifar_c):
    got = data.open(f"cifar10c:{cifar_c}?type=all&level=4")
    want = np.concatenate([np.load(cifar_c / f"{name}.npy")[6:8] for name in corruptions.NAMES])  # not spatter
    np.testing.assert_array_equal(got.read(), want)
    assert got.labels.tolist() == [3, 8] * 15
    assert got.ids[:3].tolist() == ["brightness/4/0", "brightness/4/1", "contrast/4/0"]
    assert len(data.open(f"cifar10c:{cifar_c}?type=all")) == 150
    assert len(data.open(f"cifar10c:{cifar_c}?type=spatter&level=2")) == 2


def test_cifar_c_is_not_corrupted_again(cifar_c):
    with pytest.raises(InvalidInput, match="holds corrupted images already"):
        data.open(f"cifar10c:{cifar_c}?type=fog&level=2&corrupt=fog")


def test_a_missing_or_odd_type_of_cifar_c(cifar_c, tmp_path):
    for file in cifar_c.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    np.save(tmp_path / "labels.npy", [3, 8])
    np.save(tmp_path / "fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
    with pytest.raises(InvalidInput, match="labels"):
        data.open(f"cifar10c:{tmp_path}?type=all&level=1")
    (tmp_path / "fog.npy").unlink()
    with pytest.raises(UnknownName, match="fog"):
        data.open(f"cifar10c:{tmp_path}?type=all&level=1")


@pytest.fixture(scope="module")
def cifar100_folder(tmp_path_factory):
    """CIFAR-100 in its binary layout: three training rows and one test row of every class."""
    path = tmp_path_factory.mktemp("cifar100")
    rng = np.random.default_rng(2)
    coarse = {c: k for k, members in enumerate(data.superclasses().values()) for c in members}
    for split, copies in (("train", 3), ("test", 1)):
        rows = bytearray()
        for _ in range(copies):
            for fine, name in enumerate(data.class_list("cifar100")):
                rows += bytes([coarse[name], fine]) + rng.bytes(3072)
        (path / f"{split}.bin").write_bytes(rows)
    return path


def test_parts_of_cifar100_are_the_published_sub_class_shift(cifar100_folder):
    held = {  # the published list without tractor, whose super-class is dropped
        *("seal", "flatfish", "tulip", "bowl", "pear", "lamp", "couch", "beetle", "lion", "skyscraper"),
        *("sea", "cattle", "raccoon", "lobster", "girl", "lizard", "hamster", "oak_tree", "motorcycle"),
    }
    source = data.open(f"cifar100:{cifar100_folder}?split=train&part=source")
    shifted = data.open(f"cifar100:{cifar100_folder}?split=all&part=shifted")
    assert (len(source), len(shifted)) == (19 * 4 * 3, 19 * 4)
    assert len(source.class_names) == len(shifted.class_names) == 19
    assert "vehicles 2" not in source.class_names
    names = np.array(data.class_list("cifar100"))
    assert set(names[shifted.ids % 100]) == held
    for fine, label in zip(names[shifted.ids % 100], shifted.labels, strict=True):
        assert fine in data.superclasses()[shifted.class_names[label]]
    assert sorted(set(shifted.ids // 100)) == [0, 1, 2, 3]  # three training blocks, then the test block
    with pytest.raises(InvalidInput, match="part="):
        data.open(f"cifar100:{cifar100_folder}?part=source&labels=coarse")


# --- the list of Tiny-ImageNet classes that overlap with CIFAR-10 ---------------------------------------------------


def test_overlap_list():
    stored = json.loads(files("twofold.nn.data").joinpath("lists", "tiny_imagenet_cifar10.json").read_text())
    removed = data.class_list("tiny_imagenet_cifar10")
    assert removed == tuple(stored["removed"])
    assert len(removed) == len(set(removed)) == 24
    assert set(removed) <= set(data.class_list("imagenet200"))
    assert {cls for _, cls, _ in stored["removed"].values()} <= set(data.class_list("cifar10"))
    reasons = [why for _, _, why in stored["removed"].values()]
    assert (reasons.count("descends"), reasons.count("look-alike")) == (22, 2)
    assert abs(50 * len(removed) - 1207) < 50  # images that OpenOOD removes of the 50 of each class


def test_overlap_list_on_the_real_sheet(data_dir):
    tiny = f"sheet:{data_dir}/ood_tinyimagenet.webp?labels=image_labels.npz"
    with np.load(data_dir / "image_labels.npz") as file:
        wnids = file["wnids_tinyimagenet"][file["ood_tinyimagenet"]].tolist()
    gone = sum(w in data.class_list("tiny_imagenet_cifar10") for w in wnids)
    kept = data.open(f"{tiny}&without=@tiny_imagenet_cifar10")
    removed = data.open(f"{tiny}&classes=@tiny_imagenet_cifar10")
    assert (len(removed), len(kept)) == (gone, 2000 - gone)
    assert sorted([*removed.ids, *kept.ids]) == list(range(2000))
    assert len(kept.class_names) == 176
