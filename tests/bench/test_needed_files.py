"""The files that data sets need: listed without any data, and verified by counts and published checksums."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("PIL", reason="images are opened with Pillow")

from twofold.bench.catalogue import load, names
from twofold.cli import main
from twofold.cli.needed_files import list_needed_files
from twofold.errors import TwofoldError
from twofold.nn import data
from twofold.nn.corruptions import NAMES

EMPTY_MD5 = "d41d8cd98f00b204e9800998ecf8427e"  # of no bytes, RFC 1321
WITHOUT_FILES = ("demo", "noise")


def run(*args, status=0):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == status, result.output
    return result


@pytest.mark.parametrize("name", names())
def test_every_set_of_the_catalogue_names_its_files(name, tmp_path):
    benchmark = load(name)
    needed = list_needed_files(benchmark, tmp_path)
    for one in needed:
        assert one.file.path.is_relative_to(tmp_path)
        assert not one.file.present
    with_files = {word for one in needed for word in one.sets}
    assert with_files == {one.name for one in benchmark.sets if one.data.partition(":")[0] not in WITHOUT_FILES}


def test_every_list_of_openood_has_its_own_folder_of_images(tmp_path):
    for name in names():
        if name.startswith("openood"):
            folders = [one.file.path for one in list_needed_files(load(name), tmp_path) if one.file.is_folder]
            assert {folder.parent.name for folder in folders} <= {"images_classic", "images_largescale"}


def write_image(file):
    from PIL import Image

    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file)


def write_cifar(root):
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        (root / name).write_bytes(bytes(3073))
    return f"cifar10:{root}?split=train"


def write_python_cifar(root):
    import pickle

    folder = root / "cifar-100-python"
    folder.mkdir()
    batch = {"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1], "coarse_labels": [0, 1]}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return f"cifar100:{root}?split=all"


def write_corruptions(root):
    for name in NAMES:
        np.save(root / f"{name}.npy", np.zeros((5, 8, 8, 3), np.uint8))
    np.save(root / "labels.npy", np.zeros(5, np.int64))
    return f"cifar10c:{root}?type=all&level=2"


def write_tinyimagenet(root):
    (root / "wnids.txt").write_text("n01\nn02\n")
    write_image(root / "val" / "images" / "val_0.JPEG")
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t1\t1\n")
    return f"tinyimagenet:{root}?split=val"


def write_wilds(root):
    write_image(root / "train" / "a.jpg")
    (root / "metadata.csv").write_text("split,filename,y\ntest,a.jpg,3\n")
    return f"wilds:{root}?dataset=iwildcam&split=test"


def write_list(root):
    write_image(root / "images" / "mine" / "a.png")
    (root / "test_svhn.txt").write_text("mine/a.png 0\n")
    return f"list:{root}/test_svhn.txt?root={root}/images"


def write_npz(root):
    np.savez(root / "images.npz", images=np.zeros((2, 8, 8, 3), np.uint8))
    return f"npz:{root}/images.npz"


WRITERS = [write_cifar, write_corruptions, write_list, write_npz, write_python_cifar, write_tinyimagenet, write_wilds]


@pytest.mark.parametrize("write", WRITERS)
def test_the_reader_needs_each_of_the_files(write, tmp_path):
    spec = write(tmp_path)
    assert len(data.open(spec))
    expected = data.expected_files(spec)
    assert all(file.present for file in expected)
    for file in expected:
        hidden = tmp_path / "hidden"
        file.path.rename(hidden)
        with pytest.raises(TwofoldError):
            data.open(spec)
        assert data.check_file(file).problem == f"{file.path}: missing"
        hidden.rename(file.path)


def test_counts_are_those_of_the_files(tmp_path):
    cifar = data.expected_files(write_cifar(tmp_path))
    assert [file.count for file in cifar] == [10_000] * 5
    assert data.check_file(cifar[0]).problem.endswith("data_batch_1.bin: 1 images, expected 10,000")
    corrupted = data.expected_files(write_corruptions(tmp_path))
    assert len(corrupted) == 16
    assert data.check_file(corrupted[-1]).problem.endswith("labels.npy: 5 labels, expected 50,000")
    write_wilds(tmp_path / "train")
    table = data.expected_files(f"wilds:{tmp_path}/train?dataset=iwildcam")[0]
    assert data.check_file(table).problem.endswith("metadata.csv: 1 rows, expected 203,029")
    assert table.count == 129_809 + 14_961 + 42_791 + 7_314 + 8_154  # the splits as WILDS prints them


def test_a_selection_says_nothing_about_the_folder(tmp_path):
    write_image(tmp_path / "a.png")
    every = data.expected_files(f"folder:{tmp_path}?size=32", rows=2)[0]
    assert data.check_file(every).problem == f"{tmp_path}: 1 images, expected 2"
    some = data.expected_files(f"folder:{tmp_path}?sample=2", rows=2)[0]
    assert (data.check_file(some).count, data.check_file(some).problem) == (None, "")


def test_published_checksums_are_compared(tmp_path):
    file = tmp_path / "test_32x32.mat"
    file.write_bytes(b"")
    expected = data.expected_files(f"svhn:{file}")[0]
    found = data.check_file(expected)
    assert found.md5 == EMPTY_MD5
    assert found.problem == (
        f"{file}: its MD5 sum is {EMPTY_MD5}, published eb5a983be6a315427106f1b164d9cef3; get the file again"
    )
    mine = tmp_path / "my_digits.mat"
    mine.write_bytes(b"")
    assert data.check_file(data.expected_files(f"svhn:{mine}")[0]).problem == ""


def test_damaged_files_and_wrong_places_are_one_line(tmp_path):
    (tmp_path / "fog.npy").write_bytes(b"no array")
    (tmp_path / "labels.npy").mkdir()
    fog, labels = data.expected_files(f"cifar10c:{tmp_path}?type=fog")
    assert str(tmp_path / "fog.npy") in data.check_file(fog).problem
    assert data.check_file(labels).problem == f"{tmp_path / 'labels.npy'}: not a regular file"
    assert "\n" not in data.check_file(fog).problem


@pytest.fixture
def mine(tmp_path):
    """A benchmark of three folders and files, all of them there."""
    (tmp_path / "data").mkdir()
    write_npz(tmp_path / "data")
    write_image(tmp_path / "data" / "photos" / "a.png")
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\ntitle = "t"\nsource = "s"\nclasses = 2\nprotocols = ["joint"]\n'
        '[[sets]]\nname = "test"\nrole = "test"\ndata = "npz:{data}/images.npz"\nrows = 2\nget = "me"\n'
        '[[sets]]\nname = "some"\nrole = "near"\ndata = "folder:{data}/photos?rows=0:1"\nrows = 1\nget = "me"\n'
        '[[sets]]\nname = "photos"\nrole = "far"\ndata = "folder:{data}/photos"\nrows = 1\nget = "me"\n'
    )
    return file


def test_a_complete_benchmark_passes(mine):
    shown = run("data", "check", "--benchmark", mine, "--root", mine.parent / "data")
    assert shown.stdout == (
        "mine: 2 of 2 files and folders are here (1 counted, 0 with a published MD5 sum); "
        "3 of 3 data sets are complete\n"
    )


def test_problems_are_lines_and_exit_code_1(mine):
    root = mine.parent / "data"
    np.savez(root / "images.npz", images=np.zeros((3, 8, 8, 3), np.uint8))
    (root / "photos" / "a.png").unlink()
    shown = run("data", "check", "--benchmark", mine, "--root", root, status=1)
    assert shown.stdout.splitlines()[:-1] == [
        f"{root}/photos: 0 images, expected 1 (needed by some, photos)",
        "test: 3 rows, published 2",
    ]
    printed = json.loads(run("data", "check", "--benchmark", mine, "--root", root, "--json", status=1).stdout)
    assert printed["problems"] == shown.stdout.splitlines()[:-1]
    assert [file["count"] for file in printed["files"]] == [None, 0]
    assert [(one["name"], one["rows"]) for one in printed["sets"]] == [("test", 3)]


def test_show_lists_the_files(mine):
    root = mine.parent / "data"
    (root / "images.npz").unlink()
    lines = run("bench", "show", mine, "--root", root).stdout.splitlines()
    listed = lines[lines.index("files:") + 1 :]
    assert listed == [f"  missing  {root}/images.npz  2 rows", f"  here     {root}/photos/  1 images"]
    printed = json.loads(run("bench", "show", mine, "--root", root, "--json").stdout)
    assert [(one["present"], one["expected"]) for one in printed["files"]] == [(False, 2), (True, 1)]


def test_show_needs_neither_torch_nor_data(tmp_path):
    code = f"""
import sys
sys.modules["torch"] = None
from twofold.cli import main
main(["bench", "show", "openood-cifar10", "--root", {str(tmp_path)!r}])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"missing  {tmp_path}/benchmark_imglist/cifar10/test_tin.txt  7,793 lines" in shown
    assert f"missing  {tmp_path}/images_classic/tin/" in shown


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "one of the two"),
        (("noise:uniform", "--benchmark", "digits"), 2, "one of the two"),
        (("--benchmark", "digits", "--against", "noise:uniform"), 2, "not for --benchmark"),
        (("noise:uniform", "--root", "."), 2, "--root is for --benchmark"),
        (("--benchmark", "cifar10-rael"), 2, "did you mean"),
        (("--benchmark", "cifar10-real"), 3, "no folder of data is named"),
    ],
)
def test_bad_words_are_one_line(words, status, message, monkeypatch):
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    shown = run("data", "check", *words, status=status)
    assert message in " ".join(shown.stderr.split())
