"""Plausible mistakes: each is one clear line and an exit code, never a traceback."""

import os
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from twofold.cli import main


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files that people hand over by mistake."""
    folder = tmp_path_factory.mktemp("mistakes")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 50)
    logits = rng.normal(size=(50, 3)) + 2 * np.eye(3)[labels]
    files = {
        "ok": {"logits": logits, "labels": labels},
        "conf": {"correct": rng.random(50) < 0.8, "conf": rng.random(50)},
        "wrong_key": {"logit": logits, "label": labels},
        "text": {"logits": np.array([["a", "b"]] * 5), "labels": np.zeros(5, int)},
        "float_labels": {"logits": logits, "labels": labels.astype(float)},
        "half_labels": {"logits": logits, "labels": labels + 0.5},
        "names": {"logits": logits, "labels": np.array(["cat"] * 50)},
        "one_hot": {"logits": logits, "labels": np.eye(3)[labels]},
        "one_column": {"logits": logits[:, :1], "labels": np.zeros(50, int)},
        "one_dimension": {"logits": logits[:, 0], "labels": labels},
        "empty": {"logits": logits[:0], "labels": labels[:0]},
        "nothing": {},
        "too_large": {"logits": logits, "labels": labels + 5},
        "too_small": {"logits": logits, "labels": labels - 3},
        "fewer_labels": {"logits": logits, "labels": labels[:10]},
        "no_labels": {"logits": logits},
        "all_unknown": {"logits": logits, "labels": np.full(50, -1)},
        "booleans": {"logits": logits > 0, "labels": labels},
        "complex": {"logits": logits + 1j, "labels": labels},
        "objects": {"logits": np.array([{}], dtype=object)},
        "nan": {"logits": np.where(logits > 3, np.nan, logits), "labels": labels},
        "conf_nan": {"correct": np.ones(5, bool), "conf": np.full(5, np.nan)},
        "extra": {"correct": np.ones(5, bool), "conf": np.zeros(5), "note": np.zeros(5)},
        "four_classes": {"logits": rng.normal(size=(9, 4)), "labels": np.arange(9) % 4},
        "wide": {"logits": logits, "labels": labels, "features": rng.normal(size=(50, 4))},
        "wider": {"logits": logits, "labels": labels, "features": rng.normal(size=(50, 5))},
        "ünï çodé": {"logits": logits, "labels": labels},
    }
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "with space").mkdir()
    shutil.copy(folder / "ok.npz", folder / "with space" / "my file.npz")
    (folder / "folder").mkdir()
    np.save(folder / "array.npy", logits)
    (folder / "words.npz").write_text("hello")
    (folder / "zero.npz").touch()
    whole = (folder / "ok.npz").read_bytes()
    (folder / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (folder / "table.csv").write_text("a,b\n1,2\n")
    return folder


MISTAKES = [
    ("evaluate missing.npz", 2, "does not exist"),
    ("evaluate folder", 2, "is a directory"),
    ("evaluate wrong_key.npz", 3, "it holds label, logit"),
    ("evaluate text.npz", 3, "logits must hold numbers"),
    ("evaluate half_labels.npz", 3, "integer class labels"),
    ("evaluate names.npz", 3, "labels must hold numbers"),
    ("evaluate one_hot.npz", 3, "labels must be one-dimensional"),
    ("evaluate one_column.npz", 3, "at least two classes"),
    ("gate fit one_column.npz --out NEW", 3, "at least two classes"),
    ("evaluate one_dimension.npz", 3, "two-dimensional"),
    ("evaluate empty.npz", 3, "at least one row"),
    ("evaluate nothing.npz", 3, "it holds nothing"),
    ("evaluate too_large.npz", 3, "got 7 in row"),
    ("evaluate too_small.npz", 3, "-1 means no class of this model"),
    ("evaluate fewer_labels.npz", 3, "labels has 10 rows but logits has 50"),
    ("evaluate no_labels.npz", 3, "add an array labels"),
    ("evaluate booleans.npz", 3, "got booleans"),
    ("evaluate complex.npz", 3, "got dtype complex128"),
    ("evaluate objects.npz", 3, "holds Python objects"),
    ("evaluate nan.npz", 3, "got nan in row"),
    ("evaluate conf_nan.npz", 3, "conf has NaN in row 0"),
    ("evaluate extra.npz", 3, "it holds conf, correct, note"),
    ("evaluate array.npy", 3, "a single array"),
    ("evaluate words.npz", 3, "must be an npz file"),
    ("evaluate zero.npz", 3, "must be an npz file"),
    ("evaluate cut.npz", 3, "damaged or not an npz file"),
    ("evaluate table.csv", 3, "has no column 'correct'"),
    ("evaluate ok.npz --unknown four_classes.npz", 3, "four_classes.npz has 4 classes but"),
    ("evaluate wide.npz --unknown wider.npz", 3, "wider.npz has 5 features but"),
    ("evaluate ok.npz --train four_classes.npz --id klm", 3, "four_classes.npz has 4 classes but"),
    ("score wide.npz --train wider.npz --score mds", 3, "wider.npz has 5 features but"),
    ("gate fit wide.npz --train wider.npz --ood mds --out NEW", 3, "wider.npz has 5 features but"),
    ("evaluate conf.npz --unknown ok.npz", 3, "--unknown cannot be used"),
    ("evaluate conf.npz --metric ds_f1", 3, "with confidences, add the arrays"),
    ("evaluate conf.npz --ood-share 0.5", 3, "--ood-share weighs OOD"),
    ("evaluate ok.npz --ood-share 2", 2, "'--ood-share'"),
    ("evaluate ok.npz --seed -1", 2, "'--seed'"),
    ("score ok.npz", 2, "Missing option '--score'"),
    ("score ok.npz --score msp --out nowhere/x.npz", 2, "there is no folder"),
    ("score ok.npz --score msp --name test", 2, "--name is for runs"),
    ("score ok.npz --score react|energy", 3, "--train"),
    ("score folder --score msp", 3, "is not a run"),
    ("gate fit no_labels.npz --out NEW", 3, "add an array labels"),
    ("gate fit all_unknown.npz --out NEW", 3, "at least one ID sample"),
    ("gate fit conf.npz --out NEW", 3, "must hold the key logits"),
    ("gate fit ok.npz --out ok.npz", 2, "is a file"),
    ("gate show folder", 3, "is not a saved gate"),
    ("report ok.npz -o NEW.pdf", 2, "ends in .html"),
    ("report ok.npz -o nowhere/r.html", 2, "there is no folder"),
    ("report folder -o NEW.html", 3, "is not a run"),
    ("report all_unknown.npz -o NEW.html", 3, "known classes"),
    ("report no_labels.npz -o NEW.html", 3, "no labels"),
    ("verify ok.npz", 3, "is not a run"),
    ("bench run digits --run folder --out NEW", 3, "is not a run"),
    ("bench embed digits --clip ViT-B-32 --weights ok.npz --out NEW.npz", 3, "come with its classifier"),
    ("bench check folder", 3, "holds no results"),
    ("compare missing --metric aurc", 3, "no file or folder"),
    ("study table folder", 3, "holds no study"),
    ("completion tcsh", 2, "bash"),
    ("nonsense", 2, "no command 'nonsense'"),
]


@pytest.mark.parametrize(("line", "code", "says"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_one_clear_line(place, tmp_path, monkeypatch, line, code, says):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    done = run(*line.replace("NEW", str(tmp_path / "new")).split())
    assert (done.exit_code, says in done.stderr) == (code, True), done.output
    assert isinstance(done.exception, SystemExit), done.exception  # no traceback
    errors = [one for one in done.stderr.splitlines() if one.startswith("Error: ")]
    assert len(errors) == 1
    assert sorted(place.rglob("*")) == before
    assert list(tmp_path.iterdir()) == []


def test_odd_but_right_input_works(place, monkeypatch):
    monkeypatch.chdir(place)
    want = run("evaluate", "ok.npz", "--json")
    assert want.exit_code == 0, want.output
    for name in ("float_labels.npz", "ünï çodé.npz", "with space/my file.npz"):
        assert run("evaluate", name, "--json").stdout == want.stdout, name


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(place, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for args in (
        ("score", place / "ok.npz", "--score", "msp", "--out", closed / "x.npz"),
        ("gate", "fit", place / "ok.npz", "--out", closed / "gate"),
        ("report", place / "ok.npz", "-o", closed / "r.md", "--resamples", "10"),
    ):
        done = run(*args)
        assert done.exit_code == 3, done.output
        assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--data noise:uniform?n=4&size=32 --role tst", 2, "did you mean 'test'"),
        ("--data noise:uniform?n=4&size=32", 2, "Missing option '--role'"),
        ("--data folder:nowhere --role test", 3, "no such image folder"),
        ("--data noise:uniform?n=4&size=32 --role far --checkpoint missing.npz", 3, "missing.npz is missing"),
        ("--data noise:uniform?n=4&size=32 --role far --normalise nope", 2, "no statistics 'nope'"),
        ("--data noise:uniform?n=4&size=32 --role far --layers nope", 2, "no module 'nope'; known: bn1, "),
    ],
)
def test_a_mistake_of_extract_is_one_clear_line(place, tmp_path, monkeypatch, line, code, says):
    pytest.importorskip("torch", reason="running networks needs torch")
    monkeypatch.chdir(place)
    done = run("extract", "resnet20_cifar", "--classes", "10", *line.split(), "--out", tmp_path / "run")
    assert (done.exit_code, says in done.stderr) == (code, True), done.output
    assert isinstance(done.exception, SystemExit), done.exception


def test_a_long_list_of_names_is_cut():
    from twofold.errors import UnknownName

    known = [f"layer{i:03}" for i in range(100)]
    said = str(UnknownName.of("module", "zzz", known))
    assert said.endswith("layer039 and 60 more")


def test_lists_have_no_markup():
    for what in ("metrics", "scores", "transforms"):
        text = run("list", what).stdout
        assert "`" not in text
        assert "\\" not in text
