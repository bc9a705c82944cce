"""Data sets of the Hugging Face library, which is optional."""

import io
import sys

import numpy as np
import pytest
from data_toys import pixels, save
from PIL import Image

from twofold.errors import InvalidInput, MissingExtra
from twofold.nn import data


def test_hugging_face(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="the datasets library is not installed")
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    x = pixels(4, 9, 9)
    for i, name in enumerate(["a/0", "a/1", "b/0", "b/1"]):
        save(tmp_path / "set" / "test" / f"{name}.png", x[i])
    o = data.open(f"hf:{tmp_path}/set?split=test")
    np.testing.assert_array_equal(o.read(), x)
    assert (o.labels.tolist(), o.class_names) == ([0, 0, 1, 1], ("a", "b"))
    buffers = []
    for row in x:
        buffer = io.BytesIO()
        Image.fromarray(row).save(buffer, format="PNG")
        buffers.append({"bytes": buffer.getvalue(), "path": None})
    features = datasets.Features({"n": datasets.Value("int64"), "pic": datasets.Image()})
    table = datasets.Dataset.from_dict({"n": [3, 1, 0, 2], "pic": buffers}, features=features)
    datasets.disable_progress_bars()
    table.save_to_disk(tmp_path / "disk")
    o = data.open(f"hf:{tmp_path}/disk?label=n&limit=3")
    assert (o.labels.tolist(), o.class_names) == ([3, 1, 0], None)
    np.testing.assert_array_equal(o.read(), x[:3])
    with pytest.raises(InvalidInput, match="no image column picture; its columns are"):
        data.open(f"hf:{tmp_path}/disk?image=picture")
    with pytest.raises(InvalidInput, match="no label column y"):
        data.open(f"hf:{tmp_path}/disk?label=y")
    for spec in ("hf:nobody/nothing", f"hf:{tmp_path}/set?split=train", f"hf:{tmp_path}/gone"):
        with pytest.raises(InvalidInput, match="nothing is fetched here"):
            data.open(spec)
    assert before == datasets.config.HF_HUB_OFFLINE  # set for the call only


def test_hugging_face_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match="pip install datasets"):
        data.open("hf:any")
