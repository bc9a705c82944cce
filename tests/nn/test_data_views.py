"""Hold-outs, splits, protocol rules and normalisation against counts of the papers and slow code."""

import hashlib

import numpy as np
import pytest

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data import (
    STATISTICS,
    Images,
    cifar40_60,
    class_list,
    hold_out,
    normalise,
    open_set,
    own_statistics,
    shuffled,
    split,
    split_by_class,
    statistics,
    subclass_shift,
    super_cifar100,
    superclasses,
    validation_split,
)
from twofold.nn.data.classes import list_names
from twofold.nn.data.views import SUPER_CIFAR_HELD_OUT, open_set_classes


def world(per=3, classes=10, names=None, ids=None):
    n = per * classes
    pixels = np.random.default_rng(0).integers(0, 256, (n, 2, 2, 3), dtype=np.uint8)
    return Images.of(pixels, np.arange(n) % classes, class_names=names, ids=ids)


def cifar100(per=3):
    return world(per, 100, class_list("cifar100"))


def same_row(view, whole, rows):
    assert view.ids.tolist() == list(rows)
    np.testing.assert_array_equal(view.read(), whole.read(list(rows)))


def test_the_class_lists():
    fine = class_list("cifar100")
    assert (len(fine), list(fine)) == (100, sorted(fine))
    groups = superclasses()
    assert len(groups) == 20
    assert sorted(c for g in groups.values() for c in g) == list(fine)
    for name, count in [("tiny_imagenet158", 158), ("imagenet200", 200), ("imagenet_near", 405)]:
        assert len(set(class_list(name))) == count
    parts = [set(class_list(n)) for n in ("imagenet200", "imagenet_near", "imagenet_external")]
    assert len(parts[0] | parts[1] | parts[2]) == sum(map(len, parts)) == 1000
    assert set(class_list("tiny_imagenet158")) < parts[0]
    removed = parts[0] - set(class_list("tiny_imagenet158"))
    assert len(removed) == 42
    assert {"n02917067", "n04146614"} < removed  # bullet train and school bus, as the paper's figure says
    for name in list_names():
        assert class_list(name)
    with pytest.raises(UnknownName, match="did you mean 'cifar10'"):
        class_list("cifar11")


@pytest.mark.parametrize("number", range(5))
def test_cifar40_is_the_stated_rule(number):
    inside = set()
    for members in superclasses().values():
        order = sorted(members, key=lambda c: hashlib.sha256(f"cifar40/{number}/{c}".encode()).hexdigest())
        pair = order[:2]
        if "forest" in members and "forest" not in pair:
            pair = ["forest", order[0]]
        inside |= set(pair)
    assert set(class_list(f"cifar40/{number}")) == inside
    assert set(class_list(f"cifar60/{number}")) == set(class_list("cifar100")) - inside


def test_cifar40_60_counts_and_labels():
    images = cifar100()
    known, near = cifar40_60(images, split=2)
    assert (len(known), len(near)) == (120, 180)
    assert set(near.labels) == {-1}
    assert set(known.labels) == set(range(40))
    assert known.class_names == class_list("cifar40/2")
    for row in range(120):
        assert known.class_names[known.labels[row]] == images.class_names[images.labels[known.ids[row]]]
    with pytest.raises(InvalidInput, match="100 fine classes"):
        cifar40_60(world())
    with pytest.raises(UnknownName):
        cifar40_60(images, split=5)


def test_hold_out():
    images = world(2, 4, ("a", "b", "c", "d"))
    known, out = hold_out(images, ["b"])
    same_row(known, images, [0, 2, 3, 4, 6, 7])
    assert known.labels.tolist() == [0, 1, 2] * 2
    assert (known.class_names, out.class_names) == (("a", "c", "d"), ("a", "c", "d"))
    same_row(out, images, [1, 5])
    assert out.labels.tolist() == [-1, -1]
    assert hold_out(images, [1], keep_labels=True).first.labels.tolist() == [0, 2, 3] * 2
    with pytest.raises(InvalidInput, match="all classes are held out"):
        hold_out(images, ["a", "b", "c", "d"])
    with pytest.raises(InvalidInput, match="no labels"):
        open_set(Images.of(np.zeros((3, 2, 2), np.uint8)))


def test_open_set_holds_out_forty_per_cent_and_agrees_between_sets():
    train, test = world(5), world(2)
    for seed in range(4):
        (a, b), (c, d) = open_set(train, seed=seed), open_set(test, seed=seed)
        held = {int(train.labels[i]) for i in b.ids}
        assert held == {int(test.labels[i]) for i in d.ids} == set(open_set_classes(10, seed=seed))
        assert (len(held), len(a), len(c)) == (4, 30, 12)
    assert len({tuple(open_set_classes(10, seed=s)) for s in range(20)}) > 10
    counts = np.bincount(np.concatenate([open_set_classes(10, seed=s) for s in range(500)]), minlength=10)
    assert counts.min() > 150  # each class is held out in about 200 of 500 draws
    assert open_set_classes(2, share=0.01) in ([0], [1])
    with pytest.raises(InvalidInput, match="share"):
        open_set(train, share=1.0)


def test_super_cifar_has_the_published_counts():
    train, test = cifar100(500), cifar100(100)
    source, shifted = super_cifar100(train)
    more = super_cifar100(test)
    assert len(source) == 38000
    assert len(shifted) + len(more.rest) == 11400
    assert len(source.class_names) == 19
    assert "vehicles 2" not in source.class_names
    groups = superclasses()
    for part in (source, shifted):
        names = [train.class_names[train.labels[i]] for i in part.ids[:400]]
        assert all(n in groups[part.class_names[y]] for n, y in zip(names, part.labels, strict=False))
    assert {train.class_names[train.labels[i]] for i in shifted.ids} == set(SUPER_CIFAR_HELD_OUT) - {"tractor"}
    assert sorted(g for g, m in groups.items() for c in m if c in SUPER_CIFAR_HELD_OUT) == sorted(groups)


def test_subclass_shift_in_general():
    images = world(2, 4, ("a", "b", "c", "d"))
    source, shifted = subclass_shift(images, {"x": ["c", "a"], "y": ["b", "d"]}, ["c", "d"])
    assert (source.ids.tolist(), source.labels.tolist()) == ([0, 1, 4, 5], [0, 1, 0, 1])
    assert (shifted.ids.tolist(), shifted.labels.tolist()) == ([2, 3, 6, 7], [0, 1, 0, 1])
    for held in (["a", "b", "c", "d"], []):
        with pytest.raises(InvalidInput):
            subclass_shift(images, {"x": ["c", "a"], "y": ["b", "d"]}, held)


def test_splits_are_seeded_disjoint_and_complete():
    images = world(30)
    first, rest = split(images, 50, seed=3)
    assert (len(first), len(rest)) == (50, 250)
    assert sorted([*first.ids, *rest.ids]) == list(range(300))
    assert (
        split(images, 50, seed=3).first.ids.tolist()
        == first.ids.tolist()
        != split(images, 50, seed=4).first.ids.tolist()
    )
    val, train = split_by_class(images, 5, seed=0)
    assert np.bincount(val.labels).tolist() == [5] * 10
    assert np.bincount(train.labels).tolist() == [25] * 10
    assert not set(val.ids) & set(train.ids)
    for n in (0, 300, 2.5):
        with pytest.raises(InvalidInput, match="n must be"):
            split(images, n, seed=0)
    with pytest.raises(InvalidInput, match="class 0 has 30 rows"):
        split_by_class(images, 30, seed=0)


def test_fd_shifts_and_unknown_detection_rules():
    images = world(1000)
    val, test = validation_split(images, "fd_shifts")
    assert val.ids.tolist() == list(range(1000))
    assert test.ids.tolist() == list(range(1000, 10000))  # 1000 and 9000, as in the paper's table
    train = cifar100(500)
    val, rest = validation_split(cifar40_60(train).first, "unknown_detection", seed=1)
    assert (len(val), len(rest)) == (2000, 18000)  # CIFAR-40: 40 x (50 / 450)
    assert np.bincount(val.labels).tolist() == [50] * 40
    with pytest.raises(InvalidInput, match="first 1000 of more"):
        validation_split(world(100), "fd_shifts")
    with pytest.raises(InvalidInput, match="did you mean 'fd_shifts'"):
        validation_split(images, "fdshifts")
    with pytest.raises(InvalidInput, match="image lists of the rule 'openood'"):
        validation_split(images, "fd_shifts", val="x")


def test_shuffled_is_the_draw_of_fd_shifts():
    images = world(50)
    rows = list(range(500))
    np.random.default_rng(12345).shuffle(rows)  # how its BREEDS pool is drawn: a list, in place
    same_row(shuffled(images), images, rows)
    permuted = np.random.default_rng(12345).permutation(np.arange(500))  # and its Camelyon17
    same_row(shuffled(images), images, permuted.tolist())
    assert shuffled(images, seed=1).ids.tolist() != rows


def test_openood_rule(tmp_path):
    images = world(2, 3, ids=[f"c/{i}.png" for i in range(6)])
    val, test = tmp_path / "val.txt", tmp_path / "test.txt"
    val.write_text("c/4.png 1\nc/0.png 0\n")
    test.write_text("c/5.png 2\nc/2.png 2\nc/1.png 1\n")
    first, rest = validation_split(images, "openood", val=val, test=test)
    assert first.ids.tolist() == ["c/4.png", "c/0.png"]
    assert rest.ids.tolist() == ["c/5.png", "c/2.png", "c/1.png"]
    np.testing.assert_array_equal(rest.read(), images.read([5, 2, 1]))
    test.write_text("c/4.png 1\n")
    with pytest.raises(InvalidInput, match="share 1 images"):
        validation_split(images, "openood", val=val, test=test)
    test.write_text("d/4.png 1\n")
    with pytest.raises(InvalidInput, match=r"'d/4\.png' is not an id"):
        validation_split(images, "openood", val=val, test=test)
    with pytest.raises(InvalidInput, match="needs val=FILE and test=FILE"):
        validation_split(images, "openood", val=val)
    with pytest.raises(InvalidInput, match=r"gone\.txt: there is no such image list"):
        validation_split(images, "openood", val=tmp_path / "gone.txt", test=test)
    with pytest.raises(InvalidInput, match="ids are not unique"):
        validation_split(world(2, 3, ids=["a"] * 6), "openood", val=val, test=test)


def test_constants():
    assert STATISTICS["cifar10"] == ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    assert STATISTICS["cifar100"] == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
    assert STATISTICS["unknown_detection_cifar"] == ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276))
    assert STATISTICS["fd_shifts_384"].std == (0.229, 0.384, 0.225)
    assert statistics("imagenet").mean == (0.485, 0.456, 0.406)
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        statistics("imagent")


def test_normalise_is_the_formula():
    x = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    mean, std = STATISTICS["cifar10"]
    got = normalise(x, mean, std)
    assert (got.dtype, got.shape) == (np.float32, (3, 3, 5, 4))
    assert got.flags.c_contiguous
    for (i, r, c, k), value in np.ndenumerate(x):
        assert got[i, k, r, c] == np.float32((float(value) / 255 - mean[k]) / std[k])
    assert normalise(x[:0], mean, std).shape == (0, 3, 5, 4)
    for bad in (x[0], x.astype(float), x.transpose(0, 3, 1, 2)):
        with pytest.raises(InvalidInput, match="batch must be uint8"):
            normalise(bad, mean, std)
    for m, s in (((0, 0), std), (mean, (1, 0, 1)), (mean, (1, 1, np.nan))):
        with pytest.raises(InvalidInput, match="three numbers"):
            normalise(x, m, s)


def test_own_statistics_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr("twofold.nn.data.images.BLOCK_BYTES", 100)
    images = world(30)
    x = images.read().astype(np.float64) / 255
    mean, std = own_statistics(images)
    assert mean == pytest.approx(x.mean(axis=(0, 1, 2)), rel=1e-12)
    assert std == pytest.approx(x.std(axis=(0, 1, 2)), rel=1e-9)


def test_normalised_images_can_be_written_where_asked():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)
    statistics = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    out = np.empty((2, 3, 3, 4), np.float32)
    assert normalise(pixels, *statistics, out=out) is out
    np.testing.assert_array_equal(out, normalise(pixels, *statistics))
    for bad in (np.empty((2, 3, 4, 3), np.float32), np.empty((2, 3, 3, 4))):
        with pytest.raises(InvalidInput, match="out must be float32"):
            normalise(pixels, *statistics, out=bad)
