"""Data sets stored as image files, on generated miniatures, and every way to damage them."""

import csv
import json

import numpy as np
import pytest
from data_toys import pixels, save

from twofold.errors import InvalidInput, UnknownName
from twofold.nn import data


def test_folder_of_classes(tmp_path):
    x = pixels(4, 9, 9)
    for i, name in enumerate(["b/2.png", "a/1.PNG", "b/deep/1.png", "b/10.png"]):
        save(tmp_path / "set" / name, x[i])
    (tmp_path / "set" / "empty").mkdir()
    (tmp_path / "set" / ".hidden").mkdir()
    (tmp_path / "set" / "b" / "Thumbs.db").write_text("")
    (tmp_path / "set" / "b" / "._2.png").write_text("")
    (tmp_path / "set" / "read.me").write_text("")
    o = data.open(f"folder:{tmp_path}/set")
    assert o.ids.tolist() == ["a/1.PNG", "b/10.png", "b/2.png", "b/deep/1.png"]
    assert o.labels.tolist() == [0, 1, 1, 1]
    assert o.class_names == ("a", "b")
    np.testing.assert_array_equal(o.read(), x[[1, 3, 0, 2]])
    save(tmp_path / "set" / "loose.png", x[0])
    with pytest.raises(InvalidInput, match="holds images and also folders"):
        data.open(f"folder:{tmp_path}/set")


def test_flat_folder(tmp_path, monkeypatch):
    x = pixels(2, 9, 9)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InvalidInput, match="holds no image files"):
        data.open(f"folder:{tmp_path}")
    save(tmp_path / "b.png", x[0])
    save(tmp_path / "a.bmp", x[1])
    o = data.open("folder:~")
    assert (o.ids.tolist(), o.labels.tolist(), o.class_names) == (["a.bmp", "b.png"], [-1, -1], None)
    (tmp_path / "a.bmp").write_text("no image")
    with pytest.raises(InvalidInput, match=r"a\.bmp is not a readable image"):
        data.open(f"folder:{tmp_path}")
    with pytest.raises(InvalidInput, match="is a file; image folder must be a folder"):
        data.open(f"folder:{tmp_path}/b.png")


def test_list(tmp_path):
    x = pixels(3, 9, 9)
    for i, name in enumerate(["c/one.png", "c/with space.png", "d/x.png"]):
        save(tmp_path / "root" / name, x[i])
    file = tmp_path / "val.txt"
    file.write_text("d/x.png -1\n\nc/with space.png 3\nc/one.png\t0\n")
    o = data.open(f"list:{file}?root={tmp_path}/root")
    assert o.ids.tolist() == ["d/x.png", "c/with space.png", "c/one.png"]
    assert o.labels.tolist() == [-1, 3, 0]
    np.testing.assert_array_equal(o.read(), x[[2, 1, 0]])
    for text, words in [
        ("c/one.png", "line 1: must be a path, a space and a label"),
        ("c/one.png 0\nd/x.png two", "line 2"),
        ("c/one.png -2", "line 1"),
        ("", "lists no images"),
        ("c/one.png 0\nc/lost.png 1", r"1 of 2 images are missing, the first is .*c/lost\.png"),
    ]:
        file.write_text(text)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"list:{file}?root={tmp_path}/root")
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not a text file"):
        data.open(f"list:{file}?root={tmp_path}/root")
    with pytest.raises(InvalidInput, match="nowhere: there is no such root folder"):
        data.open(f"list:{file}?root={tmp_path}/nowhere")


def test_tinyimagenet(tmp_path):
    x = pixels(6, 64, 64)
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    (tmp_path / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tbullfrog\nn09\tother\n")
    for i, name in enumerate(["n02/images/n02_0", "n01/images/n01_1", "n01/images/n01_0"]):
        save(tmp_path / "train" / f"{name}.png", x[i])
    for i in range(3):
        save(tmp_path / "val" / "images" / f"val_{i}.png", x[3 + i])
    notes = tmp_path / "val" / "val_annotations.txt"
    notes.write_text("val_2.png\tn01\t0\t0\t9\t9\nval_0.png\tn02\t0\t0\t9\t9\nval_1.png\tn02\t0\t0\t9\t9\n")
    val = data.open(f"tinyimagenet:{tmp_path}?names=words")
    assert val.labels.tolist() == [0, 1, 1]
    assert val.class_names == ("goldfish", "bullfrog")
    np.testing.assert_array_equal(val.read(), x[[5, 3, 4]])
    train = data.open(f"tinyimagenet:{tmp_path}?split=train&size=32")
    assert train.ids.tolist() == ["n01/images/n01_0.png", "n01/images/n01_1.png", "n02/images/n02_0.png"]
    assert (train.labels.tolist(), train.class_names, train.shape) == ([0, 0, 1], ("n01", "n02"), (32, 32))
    notes.write_text("val_2.png\tn77\n")
    with pytest.raises(InvalidInput, match="line 1: must be an image and a wnid"):
        data.open(f"tinyimagenet:{tmp_path}")
    notes.write_text("val_9.png\tn01\n")
    with pytest.raises(InvalidInput, match=r"val_9\.png"):
        data.open(f"tinyimagenet:{tmp_path}")
    (tmp_path / "wnids.txt").write_text("n02\nn01\nn03\n")
    with pytest.raises(InvalidInput, match="n03: there is no such class folder"):
        data.open(f"tinyimagenet:{tmp_path}?split=train")


def write_csv(file, header, rows):
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def test_iwildcam(tmp_path):
    x = pixels(5, 12, 12)
    splits = ["train", "id_test", "test", "id_test", "val"]
    for i in range(5):
        save(tmp_path / "train" / f"{i}.png", x[i])
    rows = [[i, s, f"{i}.png", y] for i, (s, y) in enumerate(zip(splits, [0, 2, 1, 0, 3], strict=True))]
    write_csv(tmp_path / "metadata.csv", ["", "split", "filename", "y"], rows)
    o = data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=id_test")
    assert (o.labels.tolist(), o.ids.tolist(), o.class_names) == ([2, 0], ["train/1.png", "train/3.png"], None)
    np.testing.assert_array_equal(o.read(), x[[1, 3]])
    write_csv(tmp_path / "categories.csv", ["y", "name"], [[2, "ocelot"], [0, "empty"], [99999, "none"], ["", "?"]])
    assert data.open(f"wilds:{tmp_path}?dataset=iwildcam").class_names == ("empty", "1", "ocelot", "3")
    with pytest.raises(InvalidInput, match="no rows of split 'id_val'"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=id_val")
    with pytest.raises(UnknownName, match="did you mean"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam&split=idtest")
    with pytest.raises(InvalidInput, match="no column 'patient'"):
        data.open(f"wilds:{tmp_path}?dataset=camelyon17")
    (tmp_path / "metadata.csv").write_text("split,filename,y\ntest,2.png,1\ntest,3.p")
    with pytest.raises(InvalidInput, match="line 3: fewer fields"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam")
    (tmp_path / "metadata.csv").write_text("split,filename,y\ntest,2.png,cow")
    with pytest.raises(InvalidInput, match="must be whole numbers"):
        data.open(f"wilds:{tmp_path}?dataset=iwildcam")


def test_camelyon17(tmp_path):
    header = ["", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
    rows = [
        [0, "004", 4, 3328, 21792, 1, 0, 0, 0],
        [1, "020", 1, 10, 20, 0, 1, 1, 0],  # hospital 1: val
        [2, "046", 2, 30, 40, 1, 2, 2, 0],  # hospital 2: test
        [3, "099", 3, 50, 60, 0, 3, 4, 1],  # elsewhere, marked: id_val
    ]
    write_csv(tmp_path / "metadata.csv", header, rows)
    x = pixels(4, 96, 96)
    for i, (_, p, n, a, b, *_rest) in enumerate(rows):
        name = f"patient_{p}_node_{n}/patch_patient_{p}_node_{n}_x_{a}_y_{b}.png"
        save(tmp_path / "patches" / name, x[i])
    for i, split in enumerate(["train", "val", "test", "id_val"]):
        o = data.open(f"wilds:{tmp_path}?dataset=camelyon17&split={split}")
        assert o.labels.tolist() == [rows[i][5]]
        assert o.class_names == ("normal", "tumor")
        np.testing.assert_array_equal(o.read(), x[[i]])
    with pytest.raises(UnknownName):
        data.open(f"wilds:{tmp_path}?dataset=camelyon17&split=id_test")


def write_hierarchy(folder):
    """At depth 3 two super-classes of 22 and 20 leaves (one of them by its longer path), a small and a dead branch."""
    leaves = {"n_b": [f"n1{i:03d}" for i in range(22)], "n_a": [f"n2{i:03d}" for i in range(20)], "n_c": ["n3000"]}
    edges = [("n00001740", "n_x"), ("n_x", "n_y"), ("n_y", "n_a"), ("n_y", "n_b"), ("n_y", "n_c"), ("n_y", "n_dead")]
    edges += [("n_b", "n_mid")] + [("n_mid", leaf) for leaf in leaves["n_b"]]
    edges += [("n_a", leaf) for leaf in leaves["n_a"]] + [("n_c", "n3000")]
    edges += [("n_x", "n_a")]  # a shorter way to n_a does not make it shallower
    folder.mkdir()
    every = sorted(w for group in leaves.values() for w in group)
    (folder / "dataset_class_info.json").write_text(json.dumps([[i, w, f"name {w}"] for i, w in enumerate(every)]))
    (folder / "class_hierarchy.txt").write_text("".join(f"{p} {c}\n" for p, c in edges))
    (folder / "node_names.txt").write_text("n_a\tanimal\nn_b\tboat, ship\n")
    return leaves


def test_breeds_from_a_hierarchy(tmp_path):
    leaves = write_hierarchy(tmp_path / "h")
    x = pixels(1, 10, 10)[0]
    for w in [*leaves["n_a"], *leaves["n_b"]]:
        for part in ("train", "val"):
            save(tmp_path / "imagenet" / part / w / f"{w}_{part}.png", x)
    spec = f"breeds:{tmp_path}/imagenet?task=entity13&hierarchy={tmp_path}/h"
    source, target = data.open(f"{spec}&split=source"), data.open(f"{spec}&split=target&part=val")
    rng = np.random.RandomState(2)  # as the published code draws, super-classes in the order of their wnids
    for k, node in enumerate(["n_a", "n_b"]):
        drawn = rng.choice(sorted(leaves[node]), 20, replace=False)
        for o, half, part in ((source, drawn[:10], "train"), (target, drawn[10:], "val")):
            got = sorted(i for i, y in zip(o.ids.tolist(), o.labels, strict=True) if y == k)
            assert got == sorted(f"{w}/{w}_{part}.png" for w in half)
    assert source.class_names == target.class_names == ("animal", "boat, ship")
    with pytest.raises(InvalidInput, match="needs either map="):
        data.open(f"breeds:{tmp_path}/imagenet?split=source")
    with pytest.raises(InvalidInput, match="no node at depth 5"):
        data.open(f"{spec}&split=source".replace("entity13", "living17"))
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n00001740 n_x\nn_x\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n00001740 n_x\nn_x n_y\nn_y n_x\nn_y n3000\n")
    with pytest.raises(InvalidInput, match=r"h: the hierarchy has a cycle through n_[xy] and its child"):
        data.open(f"{spec}&split=source")
    aside = "n00001740 n3000\nn_x n_y\nn_y n_x\nn_y n3000\n"  # a cycle that the root does not reach
    (tmp_path / "h" / "class_hierarchy.txt").write_text(aside)
    with pytest.raises(InvalidInput, match="the hierarchy has a cycle"):
        data.open(f"{spec}&split=source")
    info = (tmp_path / "h" / "dataset_class_info.json").read_text()
    (tmp_path / "h" / "dataset_class_info.json").write_text("[" * 100_000)
    with pytest.raises(InvalidInput, match=r"dataset_class_info\.json is nested too deeply"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "dataset_class_info.json").write_text(info)
    (tmp_path / "h" / "class_hierarchy.txt").write_text("n_q n3000\n")
    with pytest.raises(InvalidInput, match="no classes below its root"):
        data.open(f"{spec}&split=source")
    (tmp_path / "h" / "node_names.txt").unlink()
    with pytest.raises(InvalidInput, match=r"node_names\.txt: there is no such"):
        data.open(f"{spec}&split=source")


def test_breeds_from_a_map(tmp_path):
    table = {"source": {"dog": ["n2", "n1"], "cat": ["n3"]}, "target": {"dog": ["n4"], "cat": ["n5"]}}
    x = pixels(5, 10, 10)
    for i in range(5):
        save(tmp_path / "imagenet" / f"n{i + 1}" / "a.png", x[i])
    for content in (table, {"entity13": table}):
        (tmp_path / "m.json").write_text(json.dumps(content))
        o = data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")
        assert (o.ids.tolist(), o.labels.tolist()) == (["n1/a.png", "n2/a.png", "n3/a.png"], [0, 0, 1])
        assert o.class_names == ("dog", "cat")
    for content, words in [
        ("{", "is not JSON"),
        ('{"source": ' + "[" * 100_000, "its JSON is nested too deeply"),
        (json.dumps({**table, "target": {"dog": [["n4"]], "cat": ["n5"]}}), "lists of wnids"),
        ("[1]", "has the keys"),
        (json.dumps({"source": {"dog": ["n1"]}}), "has the keys"),
        (json.dumps({**table, "target": {"cat": ["n5"], "dog": ["n4"]}}), "same super-classes"),
        (json.dumps({**table, "target": {"dog": ["n4"], "cat": ["n4"]}}), "in two super-classes"),
        (json.dumps({**table, "target": {"dog": "n4", "cat": []}}), "lists of wnids"),
    ]:
        (tmp_path / "m.json").write_text(content)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")
    (tmp_path / "m.json").write_text(json.dumps({**table, "source": {"dog": ["n8"], "cat": ["n9"]}}))
    with pytest.raises(InvalidInput, match="n8: there is no such class folder"):
        data.open(f"breeds:{tmp_path}/imagenet?split=source&map={tmp_path}/m.json")
