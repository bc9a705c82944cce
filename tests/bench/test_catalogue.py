"""The catalogue: every file loads, says what the papers say, and has disjoint roles on the real images."""

import hashlib
import re
import tomllib
from importlib.resources import files
from itertools import combinations

import numpy as np
import pytest

from twofold.bench import catalogue
from twofold.bench.catalogue import Benchmark, DataSet, load, loads, names
from twofold.bench.protocols import PROTOCOLS
from twofold.errors import InvalidInput, TwofoldError, UnknownName

CATALOGUE = [
    *("openood-cifar10", "openood-cifar100", "openood-imagenet200", "openood-imagenet1k"),
    *("unknown-cifar", "unknown-imagenet"),
    *("fd-cifar10", "fd-cifar100", "fd-supercifar100", "fd-svhn", "fd-svhn-openset"),
    *("fd-camelyon", "fd-iwildcam", "fd-iwildcam-openset", "fd-breeds"),
    *("fd-cifar10-real", "fd-cifar100-real", "fd-supercifar100-real", "fd-svhn-real", "fd-svhn-openset-real"),
    *("stratified-cifar10", "stratified-supercifar100", "stratified-cifar100", "stratified-tinyimagenet"),
    *("digits", "cifar10-real", "cifar100-real", "clinc150"),
    *("stratified-cifar10-real", "stratified-supercifar100-real"),
    *("stratified-cifar100-real", "stratified-tinyimagenet-real"),
]
SPLIT = {"unknown-cifar": 5, "fd-svhn-openset": 5, "fd-iwildcam-openset": 5, "fd-svhn-openset-real": 4}
OUTSIDE = ("near", "mid", "far")


def missing(spec):
    raise InvalidInput(f"{spec}: there is no such file")


# --- every file -----------------------------------------------------------------------------------------------------


def test_the_catalogue_is_complete():
    numbered = [f"{name}-{k}" for name, count in SPLIT.items() for k in range(1, count)]
    assert sorted(names()) == sorted([*CATALOGUE, *numbered])
    shipped = [f.name for f in files("twofold.bench").joinpath("files", "catalogue").iterdir()]
    assert sorted(shipped) == sorted(f"{name}.toml" for name in CATALOGUE)


@pytest.mark.parametrize("name", names())
def test_every_benchmark_loads_and_round_trips(name):
    bench = load(name)
    assert bench.name == name
    assert loads(bench.to_toml()) == bench
    assert set(bench.protocols) <= set(PROTOCOLS)
    assert {"train", "val", "test"} <= set(bench.roles.values())
    assert [bench.names(role) for role in ("train", "val", "test")] == [("train",), ("val",), ("test",)]
    assert set(bench.roles.values()) & {*OUTSIDE, "shift"}
    assert all(one.get for one in bench.sets)


@pytest.mark.parametrize("name", CATALOGUE)
def test_files_are_written_as_they_are_stored(name):
    text = files("twofold.bench").joinpath("files", "catalogue", f"{name}.toml").read_text(encoding="utf-8")
    if name not in SPLIT:
        assert load(name).to_toml() == text
    assert tomllib.loads(text)["name"] == name


@pytest.mark.parametrize("name", names())
def test_every_protocol_sees_something_in_its_benchmark(name):
    bench = load(name)
    for protocol in bench.protocols:
        views = PROTOCOLS[protocol].views(bench.roles)
        assert views
        assert {s for view in views for s in view.sets} <= set(bench.roles)


@pytest.mark.parametrize("name", names())
def test_joint_protocols_have_something_to_tune_on(name):
    bench = load(name)
    if {"joint", "openood", "unknown"} & set(bench.protocols):
        assert len(bench.names("ood_val")) == 1


@pytest.mark.parametrize("name", names())
def test_specs_are_of_the_grammar_and_their_class_lists_exist(name):
    spec_module = pytest.importorskip("twofold.nn.data.spec")
    classes = pytest.importorskip("twofold.nn.data.classes")
    for spec in load(name).specs("/nowhere").values():
        if spec.startswith("demo:"):
            continue
        kind, _, keys = spec_module.parse(spec)
        reader = spec_module.READERS[kind]
        assert set(keys) <= {*spec_module.SHARED_KEYS, *reader.keys}, spec
        assert set(reader.required) <= set(keys), spec
        for listed in re.findall(r"=@([^&]+)", spec):
            assert classes.class_list(listed)


@pytest.mark.parametrize("name", [n for n in names() if n != "digits"])
def test_no_two_sets_are_the_same_images(name):
    specs = list(load(name).specs("/nowhere").values())
    assert len(set(specs)) == len(specs)


# --- published counts -----------------------------------------------------------------------------------------------


def counts(name, role):
    return {s.name: s.rows for s in load(name).sets if s.role == role}


def totals(name):
    bench = load(name)
    return {role: sum(s.rows for s in bench.sets if s.role == role) for role in set(bench.roles.values())}


@pytest.mark.parametrize(
    ("name", "ood_val", "near", "far"),
    [
        ("openood-cifar10", 1000, [9000, 7793], [70000, 26032, 5640, 35195]),
        ("openood-cifar100", 972, [10000, 6526], [70000, 26032, 5640, 33773]),
        ("openood-imagenet200", 1763, [49000, 5879], [10000, 5160, 15869]),
        ("openood-imagenet1k", 1763, [49000, 5879], [10000, 5160, 15869]),
    ],
)
def test_openood_counts(name, ood_val, near, far):
    assert list(counts(name, "ood_val").values()) == [ood_val]
    assert list(counts(name, "near").values()) == near
    assert list(counts(name, "far").values()) == far
    for one in load(name).sets:
        whole = {"tinyimagenet": 10000, "places365": 36500}.get(one.name)
        if whole is not None:
            assert one.rows + one.removed + (ood_val if one.name == "tinyimagenet" else 0) == whole


def test_unknown_detection_pools():
    cifar, imagenet = totals("unknown-cifar"), totals("unknown-imagenet")
    assert cifar["test"] + cifar["near"] + cifar["far"] == 33640
    assert (cifar["train"], cifar["val"], cifar["ood_val"]) == (18000, 2000, 2000)
    assert imagenet["test"] + imagenet["near"] + imagenet["far"] == 44792
    assert (imagenet["val"], imagenet["ood_val"]) == (10000, 19700)


@pytest.mark.parametrize(
    ("name", "classes", "train", "test", "shift", "new"),
    [  # Table 3 of FD-Shifts
        ("fd-svhn", 10, 73257, 25032, 0, 30000),
        ("fd-cifar10", 10, 50000, 9000, 750000, 46032),
        ("fd-cifar100", 100, 50000, 9000, 750000, 46032),
        ("fd-supercifar100", 19, 38000, 7600, 11400 - 1000, 0),
        ("fd-iwildcam", 182, 129809, 7154, 42791, 0),
        ("fd-camelyon", 2, 302436, 32560, 85054, 0),
        ("fd-breeds", 13, 157120, 9000, 167592, 0),
    ],
)
def test_fd_shifts_counts(name, classes, train, test, shift, new):
    found = totals(name)
    assert load(name).classes == classes
    assert (found["train"], found["val"], found["test"]) == (train, 1000, test)
    assert found.get("shift", 0) == shift
    assert found.get("near", 0) + found.get("far", 0) == new


@pytest.mark.parametrize("name", ["stratified-cifar10", "stratified-supercifar100", "stratified-cifar100"])
def test_published_groups(name):
    bench = load(name)
    other = "cifar100" if name == "stratified-cifar10" else "cifar10"
    assert set(bench.names("near")) == {other, "tinyimagenet"}
    assert set(bench.names("mid")) == {"isun", "lsun_resize", "lsun_crop", "svhn"}
    assert set(bench.names("far")) == {"places365", "textures"}


def test_published_groups_of_tiny_imagenet():
    bench = load("stratified-tinyimagenet")
    assert set(bench.names("near")) == {"cifar10", "cifar100", "isun", "lsun_resize", "lsun_crop"}
    assert set(bench.names("mid")) == {"places365", "textures"}
    assert bench.names("far") == ("svhn",)


def test_splits_differ_in_their_classes_only():
    first, third = load("unknown-cifar"), load("unknown-cifar-3")
    assert third == load("unknown-cifar", split=3)
    assert third["test"].data == first["test"].data.replace("@cifar40/0", "@cifar40/3")
    assert [s.rows for s in first.sets] == [s.rows for s in third.sets]


def test_the_open_set_draws_are_those_of_the_library():
    views = pytest.importorskip("twofold.nn.data.views")
    for k in range(5):
        held = re.search(r"classes=([\d,]+)", load("fd-svhn-openset", split=k)["held_out"].data)[1]
        assert [int(c) for c in held.split(",")] == views.open_set_classes(10, share=0.4, seed=k)


# --- what is here ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_status_without_data_says_why_and_where(name, monkeypatch):
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    for root in (None, "/nowhere"):
        for one in load(name).status(root, missing):
            assert one.present == one.set.data.startswith("demo:")
            if not one.present:
                assert one.reason
                assert one.published is None
                assert one.set.get in str(one)


def test_status_counts_rows():
    bench = load("openood-cifar10")
    found = bench.status("/data", lambda spec: range(50000 if "train_cifar10" in spec else 7))
    assert [one.published for one in found] == [True] + [False] * 10
    assert str(found[0]) == "train: 50,000 rows"
    assert str(found[1]) == "val: 7 rows, published 1,000"
    unknown = load("openood-imagenet200").status("/data", lambda spec: range(3))[0]
    assert unknown.present
    assert unknown.published is None


@pytest.mark.parametrize("error", [OSError("disk"), UnknownName("no class list"), TwofoldError("other")])
def test_status_never_raises_because_a_set_cannot_be_opened(error):
    def opener(spec):
        raise error

    assert {one.reason for one in load("fd-svhn").status("/data", opener)} == {str(error)}


def test_status_does_not_hide_a_mistake_of_the_opener():
    with pytest.raises(ZeroDivisionError):
        load("fd-svhn").status("/data", lambda spec: 1 // 0)


def test_specs_take_the_folder_or_the_environment(monkeypatch):
    bench = load("cifar10-real")
    assert bench.specs("/a b")["svhn"] == "sheet:/a b/ood_svhn.webp?labels=image_labels.npz"
    monkeypatch.setenv("TWOFOLD_DATA", "/env")
    assert bench.specs()["svhn"].startswith("sheet:/env/")
    assert bench.specs("/given")["svhn"].startswith("sheet:/given/")
    assert bench["gaussian"].spec() == "noise:gaussian?n=1000&size=32&seed=0"
    monkeypatch.delenv("TWOFOLD_DATA")
    with pytest.raises(InvalidInput, match="--root"):
        bench.specs()
    with pytest.raises(InvalidInput, match=r"\? or &"):
        bench.specs("/a?b")


def test_digits_are_the_sets_of_the_demo():
    demo = pytest.importorskip("twofold.demo")
    bench = load("digits")
    found = demo._split(0)
    sizes = {demo.UNKNOWN.get(role, role): len(rows) for role, (rows, _) in found.items()}
    assert sizes == {one.name: one.rows for one in bench.sets}
    assert all(one.data == f"demo:{one.name}" for one in bench.sets)
    assert bench.classes == demo.KNOWN
    assert all(one.present and one.published for one in bench.status(None, missing))


# --- the real images ------------------------------------------------------------------------------------------------

_OPENED = {}


def real(data_dir, name):
    """Every set of a real benchmark, opened once."""
    data = pytest.importorskip("twofold.nn.data")
    pytest.importorskip("PIL")
    if name not in _OPENED:
        kept = {}

        def opener(spec):
            kept[spec] = data.open(spec)
            return kept[spec]

        bench = load(name)
        status = bench.status(data_dir, opener)
        _OPENED[name] = bench, status, {one: kept[spec] for one, spec in bench.specs(data_dir).items()}
    return _OPENED[name]


def digests(images):
    return {hashlib.sha256(row.tobytes()).digest() for block in images.blocks() for row in block}


REAL = ("cifar10-real", "cifar100-real")
# images that the published sets themselves hold twice, pixel for pixel; the notes of the sets say so
TWINS = {
    "cifar10-real": {("test", "cifar100"): 1},
    "cifar100-real": {("train", "test"): 2, ("test", "cifar10"): 1},
}


@pytest.mark.parametrize("name", REAL)
def test_real_sets_are_all_here(data_dir, name):
    bench, status, images = real(data_dir, name)
    assert [one.reason for one in status if not one.present] == []
    assert all(one.published for one in status)
    assert {one.shape for one in images.values()} == {(32, 32)}
    tiny = bench["tinyimagenet"]
    assert tiny.rows + tiny.removed + bench["ood_val"].rows == 2000
    assert ("scenes" in bench.roles) == (name == "cifar10-real")


@pytest.mark.parametrize("name", REAL)
def test_real_roles_share_no_image(data_dir, name):
    bench, _, images = real(data_dir, name)
    val, test = set(images["val"].ids.tolist()), set(images["test"].ids.tolist())
    assert not val & test
    assert val | test == set(range(10000))
    assert not set(images["ood_val"].ids.tolist()) & set(images["tinyimagenet"].ids.tolist())
    parts = [s.name for s in bench.sets if s.role != "shift"]
    found = {one: digests(images[one]) for one in parts}
    shared = {(a, b): len(found[a] & found[b]) for a, b in combinations(parts, 2) if found[a] & found[b]}
    assert shared == TWINS[name]


@pytest.mark.parametrize("name", REAL)
def test_real_validation_holds_every_class(data_dir, name):
    bench, _, images = real(data_dir, name)
    for part in ("train", "val", "test"):
        assert set(images[part].labels.tolist()) == set(range(bench.classes))


@pytest.mark.parametrize("name", REAL)
def test_real_corruptions_are_of_600_test_images(data_dir, name):
    bench, _, images = real(data_dir, name)
    levels = [images[f"corruption/{k}"] for k in range(1, 6)]
    assert bench.names("shift") == tuple(f"corruption/{k}" for k in range(1, 6))
    chosen = levels[0].ids[:600]
    assert len(set(chosen.tolist())) == 600
    assert set(chosen.tolist()) <= set(images["test"].ids.tolist())
    for one in levels:
        assert one.ids.tolist() == chosen.tolist() * 15
    place = {row: i for i, row in enumerate(images["test"].ids.tolist())}
    rows = [place[i] for i in chosen[:20].tolist()]
    assert images["test"].labels[rows].tolist() == levels[0].labels[:20].tolist()
    clean = images["test"].read(rows).astype(float)
    noisy = [np.abs(one.read(range(6 * 600, 6 * 600 + 20)) - clean).mean() for one in levels]  # gaussian_noise
    assert noisy == sorted(noisy)
    # mean absolute normal noise is sigma * sqrt(2 / pi); clipping at black and white takes a little away
    assert 0.7 < noisy[0] / (255 * 0.04 * np.sqrt(2 / np.pi)) < 1.05


# --- a person's own file --------------------------------------------------------------------------------------------

GOOD = """
name = "mine"
title = "My benchmark"
source = "me"
classes = 3
protocols = ["joint"]
scores = ["msp", "react(percentile=90)|energy"]
pairs = [["msp", "energy"]]
metrics = ["ece"]

[[sets]]
name = "test"
role = "test"
data = "folder:{data}/test?size=32"
rows = 12
get = "my disk"

[[sets]]
name = "noise"
role = "far"
data = "noise:uniform?n=5"
removed = 0
"""


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8")
    bench = load(path)
    assert bench == load(str(path)) == loads(GOOD)
    assert bench == Benchmark(
        name="mine",
        title="My benchmark",
        source="me",
        classes=3,
        protocols=("joint",),
        sets=(
            DataSet("test", "test", "folder:{data}/test?size=32", 12, "my disk"),
            DataSet("noise", "far", "noise:uniform?n=5", removed=0),
        ),
        scores=("msp", "react(percentile=90)|energy"),
        pairs=(("msp", "energy"),),
        metrics=("ece",),
    )
    assert loads(bench.to_toml()) == bench


def test_odd_text_round_trips():
    note = 'a "quoted" \\ word, a tab\t, a line\n, é, 𝄞 and \x7f'
    odd = loads(GOOD)
    odd = Benchmark(**{**vars(odd), "title": note})
    assert loads(odd.to_toml()) == odd


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "mine"\n', "", "'name' is missing"),
        ('name = "mine"', 'name = "my/bench"', "name must be letters"),
        ("classes = 3\n", "", "'classes' is missing"),
        ("classes = 3", 'classes = "three"', "classes must be a whole number of at least 2, got 'three'"),
        ("classes = 3", "classes = true", "classes must be a whole number"),
        ("classes = 3", "classes = 1", "at least 2, got 1"),
        ("classes = 3", "clases = 3", "no key 'clases'; did you mean 'classes'"),
        ('"My benchmark"', '" "', "title must be a string"),
        ('protocols = ["joint"]', 'protocols = "joint"', "protocols must be a list of strings"),
        ('protocols = ["joint"]', "protocols = []", "at least one"),
        ('protocols = ["joint"]', 'protocols = ["joit"]', "no protocol 'joit'; did you mean 'joint'"),
        ('protocols = ["joint"]', 'protocols = ["joint", "joint"]', "'joint' twice"),
        ('"msp", "react', '"mps", "react', "scores: no .* 'mps'"),
        ('[["msp", "energy"]]', '["msp", "energy"]', "pairs must be a list"),
        ('[["msp", "energy"]]', '[["msp", "enrgy"]]', "pairs: no .* 'enrgy'"),
        ('["ece"]', '["ecce"]', "metrics: no metric 'ecce'"),
        ('role = "far"', 'role = "fare"', r"set 2 \(noise\): role: no role 'fare'; did you mean 'far'"),
        ('role = "far"\n', "", r"set 2 \(noise\): key 'role' is missing"),
        ('name = "noise"', 'name = "test"', "'test' is taken"),
        ('name = "noise"', 'name = "TEST"', "'TEST' is taken by another set"),
        ('name = "noise"', 'name = "fog/6"', "name must be"),
        ('name = "noise"', 'name = "fog/3"', "must have the role 'shift'"),
        ('name = "noise"', 'name = "../noise"', "name must be"),
        ("rows = 12", "rows = -1", "rows must be a whole number of at least 0"),
        ("rows = 12", "rows = 1.5", "rows must be a whole number"),
        ("removed = 0", 'removed = "0"', "removed must be a whole number"),
        ("removed = 0", "remved = 0", "set 2: no key 'remved'; did you mean 'removed'"),
        ('get = "my disk"\n', "", "'get' is missing"),
        ("noise:uniform?n=5", "uniform", "data must be kind:PATH"),
        ("noise:uniform?n=5", "noise:uniform?n={count}", r"data has \{count\}"),
        ("noise:uniform?n=5", "demo:far", "'rows' is missing"),
        ("[[sets]]", "[[sets]", "is not TOML"),
        ("classes = 3", "classes = 3\nclasses = 4", "is not TOML"),
    ],
)
def test_bad_files_are_one_clear_error(tmp_path, old, new, words):
    assert old in GOOD
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(old, new, 1) if old != "[[sets]]" else GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(InvalidInput, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_sets_must_be_tables():
    head = GOOD.partition("[[sets]]")[0]
    with pytest.raises(InvalidInput, match="'sets' is missing"):
        loads(head)
    with pytest.raises(InvalidInput, match="at least one data set"):
        loads(head + "sets = []")
    with pytest.raises(InvalidInput, match=r"written \[\[sets\]\]"):
        loads(head + 'sets = ["test"]')
    with pytest.raises(InvalidInput, match=r"written \[\[sets\]\]"):
        loads(head + '[sets]\nname = "test"')


def test_splits_of_ones_own():
    text = GOOD.replace("n=5", "n={count}") + '\n[[splits]]\ncount = "5"\n\n[[splits]]\ncount = "6"\n'
    assert loads(text)["noise"].data == "noise:uniform?n=5"
    other = loads(text, split=1)
    assert (other.name, other["noise"].data) == ("mine-1", "noise:uniform?n=6")
    assert loads(other.to_toml()) == other
    with pytest.raises(InvalidInput, match=r"no split 2; splits are 0\.\.1"):
        loads(text, split=2)
    with pytest.raises(InvalidInput, match="no split -1"):
        loads(text, split=-1)
    with pytest.raises(InvalidInput, match="same keys"):
        loads(text.replace('count = "6"', 'kount = "6"'))
    with pytest.raises(InvalidInput, match="same keys"):
        loads(text.replace('count = "6"', "count = 6"))
    with pytest.raises(InvalidInput, match="has no"):
        loads(GOOD, split=1)
    with pytest.raises(InvalidInput, match="a split already"):
        load("unknown-cifar-2", split=1)


def test_unknown_names(tmp_path):
    with pytest.raises(UnknownName, match="'cifar10-real'"):
        load("cifar10-reel")
    with pytest.raises(UnknownName, match="unknown-cifar"):
        load("unknown-cifar-7")
    with pytest.raises(UnknownName, match="no data set of digits"):
        load("digits")["nearr"]
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "odd.toml").write_bytes(b"\xff\xfe name")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(tmp_path / "odd.toml")


def test_loading_needs_no_torch_and_no_data():
    source = files("twofold.bench").joinpath("catalogue.py").read_text(encoding="utf-8")
    assert "import torch" not in source
    assert not re.search(r"import .*twofold\.nn|from twofold\.nn", source)
    assert catalogue.names() == names()
