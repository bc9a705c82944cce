"""Tar shards: samples by offset, and every forgery or damage is one clear error."""

import io
import json
import pickle
import tarfile

import numpy as np
import pytest
from PIL import Image

from twofold.errors import InvalidInput, UnreadableImage
from twofold.nn import data
from twofold.nn.data import shards


def picture(number):
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (8 + number % 3, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue(), pixels


def add(archive, name, content=b"", **fields):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(content))


def write(path, first=0, n=3, kind="cls", extra=lambda archive: None, **settings):
    with tarfile.open(path, "w", **settings) as archive:
        for number in range(first, first + n):
            add(archive, f"train/{number:06}.png", picture(number)[0])
            if kind == "cls":
                add(archive, f"train/{number:06}.cls", f"{number % 4}\n".encode())
            elif kind == "json":
                add(archive, f"train/{number:06}.json", json.dumps({"target": number % 4, "text": "é"}).encode())
        extra(archive)
    return path


@pytest.mark.parametrize(
    "settings", [{"format": tarfile.USTAR_FORMAT}, {"format": tarfile.PAX_FORMAT}, {"format": tarfile.GNU_FORMAT}]
)
def test_samples_of_several_shards(tmp_path, settings):
    write(tmp_path / "t-09.tar", 0, **settings)
    write(tmp_path / "t-10.tar", 3, **settings)
    for spec in (f"{tmp_path}/t-{{09..10}}.tar", f"{tmp_path}", f"{tmp_path}/t-*.tar"):
        images = data.open(f"shards:{spec}")
        assert images.labels.tolist() == [0, 1, 2, 3, 0, 1]
        assert images.ids[3] == "train/000003"
        for row in (5, 0, 3):
            np.testing.assert_array_equal(images.read([row])[0], picture(row)[1])
    assert len(data.open(f"shards:{tmp_path}/t-10.tar")) == 3


def test_labels_of_json_and_class_names(tmp_path):
    path = write(tmp_path / "a.tar", kind="json")
    (tmp_path / "names.txt").write_text("cat\ndog\nowl\n")
    images = data.open(f"shards:{path}?label=target&names={tmp_path}/names.txt")
    assert images.labels.tolist() == [0, 1, 2]
    assert images.class_names == ("cat", "dog", "owl")
    with pytest.raises(InvalidInput, match=r"000000\.json has no key 'label'; name the key .* with label="):
        data.open(f"shards:{path}")


def test_no_labels_at_all_is_an_unlabelled_set_but_a_missing_one_is_an_error(tmp_path):
    assert data.open(f"shards:{write(tmp_path / 'a.tar', kind='none')}").labels.tolist() == [-1, -1, -1]
    path = write(tmp_path / "b.tar", extra=lambda archive: add(archive, "late.png", picture(9)[0]))
    with pytest.raises(InvalidInput, match="late has no label, but others have"):
        data.open(f"shards:{path}")


def test_a_pickled_source_and_a_shared_one_read_the_same(tmp_path):
    images = data.open(f"shards:{write(tmp_path / 'a.tar', n=4)}", size=8)
    again = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(images.read(), again.read())


FORGERIES = {
    "symbolic link": (lambda a: add(a, "x.png", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "is a link"),
    "hard link": (lambda a: add(a, "x.png", type=tarfile.LNKTYPE, linkname="train/000000.png"), "is a link"),
    "device": (lambda a: add(a, "x.png", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "a device"),
    "pipe": (lambda a: add(a, "x.png", type=tarfile.FIFOTYPE), "special file"),
    "absolute path": (lambda a: add(a, "/etc/x.png", picture(0)[0]), "outside the archive"),
    "path upwards": (lambda a: add(a, "../x.png", picture(0)[0]), "outside the archive"),
    "path upwards inside": (lambda a: add(a, "train/../../x.png", picture(0)[0]), "outside the archive"),
    "drive": (lambda a: add(a, "C:\\x.png", picture(0)[0]), "outside the archive"),
    "pyd": (lambda a: add(a, "x.pyd", pickle.dumps(3)), "is a pickle"),
    "pickle": (lambda a: add(a, "x.pickle", pickle.dumps(3)), "is a pickle"),
    "hidden pickle": (lambda a: add(a, "x.PKL.gz", pickle.dumps(3)), "is a pickle"),
    "label of text": (lambda a: (add(a, "x.png", picture(0)[0]), add(a, "x.cls", b"cat")), "must be a class number"),
    "negative label": (lambda a: (add(a, "x.png", picture(0)[0]), add(a, "x.cls", b"-7")), "must be a class number"),
    "long label": (lambda a: (add(a, "x.png", b""), add(a, "x.cls", b"1" * (2 << 20))), "a label has at most"),
    "bad json": (lambda a: (add(a, "x.png", picture(0)[0]), add(a, "x.json", b"{")), "is not JSON"),
    "nested json": (lambda a: (add(a, "x.png", b""), add(a, "x.json", b"[" * 100_000)), "is not JSON"),
    "two images": (lambda a: (add(a, "x.png", picture(0)[0]), add(a, "x.jpg", b"")), "has 2 images"),
    "scattered": (lambda a: (add(a, "x.png", b""), add(a, "y.png", b""), add(a, "x.cls", b"1")), "do not follow"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_shards_are_rejected(name, tmp_path):
    forge, words = FORGERIES[name]
    path = write(tmp_path / "forged.tar", extra=forge)
    with pytest.raises(InvalidInput, match=words) as caught:
        data.open(f"shards:{path}")
    assert "forged.tar" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_sizes_that_a_header_invents_are_rejected(tmp_path, monkeypatch):
    path = write(tmp_path / "huge.tar", n=1)
    content = bytearray(path.read_bytes())
    member = tarfile.TarInfo("train/000000.png")
    member.size = 1 << 40
    content[:512] = member.tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="is truncated"):
        data.open(f"shards:{path}")
    monkeypatch.setattr(shards, "MOST_IMAGE_BYTES", 100)
    with pytest.raises(InvalidInput, match="at most 100 are read"):
        data.open(f"shards:{write(tmp_path / 'large.tar')}")


@pytest.mark.parametrize("cut", [100, 600, 1500, -5000, -10240])
def test_truncated_shards_are_rejected(cut, tmp_path):
    path = write(tmp_path / "cut.tar", n=6)
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    path.write_bytes(content[: cut if cut > 0 else max(end + cut // 10, 1)])
    with pytest.raises(InvalidInput, match=r"cut\.tar"):
        data.open(f"shards:{path}")


def test_other_files_are_not_shards(tmp_path):
    (tmp_path / "text.tar").write_text("hello" * 500)
    write(tmp_path / "packed.tar")
    with tarfile.open(tmp_path / "zipped.tar", "w:gz") as archive:
        add(archive, "x.png", picture(0)[0])
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    for name, words in [("text", "not a readable tar"), ("zipped", "not a readable tar"), ("empty", "hold no images")]:
        with pytest.raises(InvalidInput, match=words):
            data.open(f"shards:{tmp_path}/{name}.tar")
    with pytest.raises(InvalidInput, match=r"t-3\.tar: there is no such tar file"):
        data.open(f"shards:{tmp_path}/t-{{3..4}}.tar")
    with pytest.raises(InvalidInput, match="must go upwards"):
        data.open(f"shards:{tmp_path}/t-{{4..3}}.tar")


def test_a_damaged_image_is_named_and_a_shard_that_shrinks_is_noticed(tmp_path):
    path = write(
        tmp_path / "a.tar", extra=lambda archive: (add(archive, "bad.png", b"no"), add(archive, "bad.cls", b"1"))
    )
    images = data.open(f"shards:{path}", size=8)
    with pytest.raises(UnreadableImage, match=r"a\.tar: bad is not a readable image"):
        images.read()
    with pytest.warns(match=r"1 of 4 images of a cannot be read and are left out; the first: .*bad"):
        assert len(data.drop_unreadable(images, workers=2)) == 3
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(UnreadableImage, match="become shorter"):
        images.read([2])
