"""Data sets stored as arrays, on generated miniatures, and every way to damage them."""

import gzip
import struct

import numpy as np
import pytest
from data_toys import pixels
from PIL import Image

from twofold.errors import InvalidInput, UnknownName
from twofold.nn import data


def test_cifar_c(tmp_path):
    x, y = pixels(50), np.tile(np.arange(10), 5).astype(np.uint8)
    np.save(tmp_path / "fog.npy", x)
    np.save(tmp_path / "snow.npy", x[::-1])
    np.save(tmp_path / "labels.npy", y)
    third = data.open(f"cifar10c:{tmp_path}?type=fog&level=3")
    np.testing.assert_array_equal(third.read(), x[20:30])
    assert third.labels.tolist() == list(range(10))
    assert third.ids[4] == "fog/3/4"
    assert isinstance(third.source.pixels, np.memmap)
    assert len(data.open(f"cifar10c:{tmp_path}?type=snow")) == 50
    np.save(tmp_path / "labels.npy", y[:10])  # one block of labels for all levels
    assert data.open(f"cifar100c:{tmp_path}?type=fog&level=5").labels.tolist() == list(range(10))
    with pytest.raises(UnknownName, match="did you mean 'fog'"):
        data.open(f"cifar10c:{tmp_path}?type=frog")
    for level in (0, 6):
        with pytest.raises(InvalidInput, match=f"level must be 1 to 5, got {level}"):
            data.open(f"cifar10c:{tmp_path}?type=fog&level={level}")
    np.save(tmp_path / "labels.npy", y[:20])
    with pytest.raises(InvalidInput, match="20 labels but 50 images"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    np.save(tmp_path / "labels.npy", y + 5)
    with pytest.raises(InvalidInput, match="labels must be in"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    np.save(tmp_path / "fog.npy", x[:49])
    with pytest.raises(InvalidInput, match="five blocks"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    (tmp_path / "fog.npy").write_bytes((tmp_path / "snow.npy").read_bytes()[:-50])
    with pytest.raises(InvalidInput, match=r"fog\.npy is not a \.npy array, or is truncated"):
        data.open(f"cifar10c:{tmp_path}?type=fog")
    (tmp_path / "labels.npy").unlink()
    (tmp_path / "fog.npy").unlink()
    (tmp_path / "snow.npy").unlink()
    with pytest.raises(InvalidInput, match="holds no corruption arrays"):
        data.open(f"cifar10c:{tmp_path}?type=fog")


def test_sheet(tmp_path):
    x = pixels(8, 4, 4)
    canvas = np.zeros((12, 12, 3), np.uint8)  # three rows of three tiles, the last one blank
    for i, tile in enumerate(x):
        canvas[4 * (i // 3) : 4 * (i // 3) + 4, 4 * (i % 3) : 4 * (i % 3) + 4] = tile
    Image.fromarray(canvas).save(tmp_path / "ood_pets.webp", lossless=True)
    arrays = {"ood_pets": np.arange(8) % 2, "names_pets": ["cat", "dog"], "other": [0] * 8, "few": [0]}
    np.savez(tmp_path / "l.npz", **arrays, n=list("abcdefgh"))
    spec = f"sheet:{tmp_path}/ood_pets.webp?tile=4&columns=3"
    o = data.open(f"{spec}&labels=l.npz")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == [0, 1] * 4
    assert o.class_names == ("cat", "dog")
    assert data.open(f"{spec}&labels={tmp_path}/l.npz&key=other&ids=n").ids.tolist() == list("abcdefgh")
    assert len(data.open(spec)) == 9
    with pytest.raises(UnknownName, match="'oter'; did you mean 'other'"):
        data.open(f"{spec}&labels=l.npz&key=oter")
    with pytest.raises(InvalidInput, match=r"9 tiles but .* has 1 labels under 'few'"):
        data.open(f"{spec}&labels=l.npz&key=few")
    with pytest.raises(InvalidInput, match="is 12x12; a sheet of 100 columns of 4"):
        data.open(f"sheet:{tmp_path}/ood_pets.webp?tile=4")
    with pytest.raises(InvalidInput, match="tile must be"):
        data.open(f"sheet:{tmp_path}/ood_pets.webp?tile=0")
    with pytest.raises(InvalidInput, match=r"gone\.npz: there is no such"):
        data.open(f"{spec}&labels=gone.npz")


def test_npz_and_npy(tmp_path):
    x, y = pixels(6, 5, 5), np.array([0, 1, 2, 0, 1, -1])
    np.savez_compressed(tmp_path / "a.npz", x=x, y=y, pick=np.array([4, 2]), text=np.array(["a"]))
    o = data.open(f"npz:{tmp_path}/a.npz?images=x&labels=y")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == y.tolist()
    assert data.open(f"npz:{tmp_path}/a.npz?images=x&rows=pick").ids.tolist() == [4, 2]
    assert data.open(f"npz:{tmp_path}/a.npz?images=x").labels.tolist() == [-1] * 6
    with pytest.raises(UnknownName, match=r"no array in .*a\.npz 'images'"):
        data.open(f"npz:{tmp_path}/a.npz")
    with pytest.raises(InvalidInput, match="must be uint8"):
        data.open(f"npz:{tmp_path}/a.npz?images=y")
    with pytest.raises(InvalidInput, match="labels must hold numbers"):
        data.open(f"npz:{tmp_path}/a.npz?images=x&labels=text")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    o = data.open(f"npy:{tmp_path}/x.npy?labels=y.npy&size=4")
    assert (o.shape, o.labels.tolist()) == ((4, 4), y.tolist())
    with pytest.raises(InvalidInput, match=r"y\.npy: images must be"):
        data.open(f"npy:{tmp_path}/y.npy")
    whole = (tmp_path / "a.npz").read_bytes()
    for size in (0, 30, len(whole) // 2, len(whole) - 30):
        (tmp_path / "a.npz").write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"a\.npz is not an \.npz file, or is truncated"):
            data.open(f"npz:{tmp_path}/a.npz?images=x")
    middle = bytearray(whole)
    middle[200:260] = bytes(60)
    (tmp_path / "a.npz").write_bytes(bytes(middle))
    with pytest.raises(InvalidInput, match=r"a\.npz: array 'x' cannot be read"):
        data.open(f"npz:{tmp_path}/a.npz?images=x")
    np.savez(tmp_path / "o.npz", images=np.array([{}], dtype=object))
    with pytest.raises(InvalidInput, match=r"o\.npz: array 'images' cannot be read"):
        data.open(f"npz:{tmp_path}/o.npz")


def test_svhn(tmp_path):
    from scipy.io import savemat

    x, y = pixels(5), np.array([10, 1, 9, 10, 3])
    file = tmp_path / "test_32x32.mat"
    savemat(file, {"X": x.transpose(1, 2, 3, 0), "y": y[:, None]}, do_compression=True)
    o = data.open(f"svhn:{file}")
    np.testing.assert_array_equal(o.read(), x)
    assert o.labels.tolist() == [0, 1, 9, 0, 3]
    whole = file.read_bytes()
    for size in (0, 60, 200, len(whole) // 2):
        file.write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match=r"test_32x32\.mat"):
            data.open(f"svhn:{file}")
    for content, words in [
        ({"X": x.transpose(1, 2, 3, 0)}, "no array 'y'"),
        ({"X": x, "y": y}, "must be uint8 of shape"),
        ({"X": x.transpose(1, 2, 3, 0), "y": y[:4]}, "4 labels but X has 5"),
        ({"X": x.transpose(1, 2, 3, 0), "y": y + 1}, "got 11 in row 0"),
    ]:
        savemat(file, content)
        with pytest.raises(InvalidInput, match=words):
            data.open(f"svhn:{file}")


def idx_bytes(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path, packed):
    x = np.random.default_rng(0).integers(0, 256, (7, 28, 28), dtype=np.uint8)
    y = (np.arange(7) % 3).astype(np.uint8)
    end = ".gz" if packed else ""
    wrap = gzip.compress if packed else bytes
    (tmp_path / f"t10k-images-idx3-ubyte{end}").write_bytes(wrap(idx_bytes(x)))
    (tmp_path / f"t10k-labels-idx1-ubyte{end}").write_bytes(wrap(idx_bytes(y)))
    (tmp_path / "other").write_bytes(idx_bytes(y + 1))
    spec = f"idx:{tmp_path}/t10k-images-idx3-ubyte{end}"
    o = data.open(f"{spec}?pad=2")
    by_hand = np.zeros((7, 32, 32, 3), np.uint8)
    by_hand[:, 2:30, 2:30] = x[..., None]
    np.testing.assert_array_equal(o.read(), by_hand)
    assert o.labels.tolist() == y.tolist()
    assert data.open(f"{spec}?labels=other").labels.tolist() == (y + 1).tolist()
    small = np.stack([np.asarray(Image.fromarray(i).resize((32, 32), Image.Resampling.BILINEAR)) for i in x])
    np.testing.assert_array_equal(data.open(f"{spec}?size=32").read()[..., 0], small)


def test_idx_damage(tmp_path):
    x = np.zeros((3, 4, 4), np.uint8)
    file = tmp_path / "images"
    for content, words in [
        (b"", "begins with"),
        (b"\x00\x00\x08\x01" + bytes(20), "is not an IDX file of images: it begins with 00000801, not 00000803"),
        (idx_bytes(x)[:10], "truncated"),
        (idx_bytes(x)[:-1], "must hold 48 bytes after its header .* got 47"),
        (idx_bytes(x) + b"0", "got 49"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + b"0", "got 1"),
        (gzip.compress(idx_bytes(x))[:-9], "damaged or truncated gzip"),
    ]:
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=words) as caught:
            data.open(f"idx:{file}")
        assert str(file) in str(caught.value)
    file.write_bytes(idx_bytes(x))
    (tmp_path / "l").write_bytes(idx_bytes(np.zeros(2, np.uint8)))
    with pytest.raises(InvalidInput, match="2 labels but 3 images"):
        data.open(f"idx:{file}?labels=l")
