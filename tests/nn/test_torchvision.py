"""A torchvision that does not fit the installed torch: one clear line from every command that needs it.

The commands run in processes of their own, where nothing stands in for torchvision's operators.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

REASON = "operator torchvision::nms does not exist"
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
LIBRARIES = {
    "timm:test_resnet": "timm",
    "torchvision:resnet18": "torchvision",
    "hf:vit": "transformers",
    "bench embed": "open_clip",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with images, a benchmark of them, and a classifier of Hugging Face."""
    place = tmp_path_factory.mktemp("vision")
    rng = np.random.default_rng(0)
    np.savez(place / "x.npz", images=rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8), labels=np.arange(4) % 2)
    about = 'name = "t"\ntitle = "t"\nsource = "here"\nclasses = 2\nprotocols = ["joint"]\n'
    data = f'[[sets]]\nname = "train"\nrole = "train"\ndata = "npz:{place}/x.npz?images=images&labels=labels"\n'
    (place / "t.toml").write_text(about + data)
    (place / "clip.pt").write_bytes(b"")
    if find_spec("transformers") is not None and find_spec("torchvision") is not None:
        import transformers

        vit = transformers.ViTConfig(image_size=32, patch_size=16, num_labels=2, **SMALL)
        transformers.ViTForImageClassification(vit).save_pretrained(place / "vit")
    return place


def command(asked):
    if asked == "bench embed":
        return ["bench", "embed", "t.toml", "--clip", "ViT-B-32", "--weights", "clip.pt", "--out", "clip.npz"]
    data = ["--data", "npz:x.npz?images=images&labels=labels", "--role", "test", "--out", "run", "--replace"]
    return ["extract", asked, *data]


def run(asked, folder, *first):
    """Run a command in a fresh process; ``first`` are folders where Python looks before all others."""
    path = os.pathsep.join([*map(str, first), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "1000"}
    return subprocess.run(
        [sys.executable, "-m", "twofold.cli", *command(asked)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )


def needs(asked):
    for name in ("torchvision", LIBRARIES[asked]):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("asked", LIBRARIES)
def test_a_torchvision_that_cannot_be_imported_is_one_line(asked, folder, tmp_path):
    needs(asked)
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(f"raise RuntimeError({json.dumps(REASON)})")
    done = run(asked, folder, tmp_path)
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.strip().splitlines()
    named = "the CLIP network ViT-B-32" if asked == "bench embed" else asked
    assert f"{named} needs torchvision, which cannot be imported beside torch {torch.__version__} ({REASON})" in line
    assert "install the torchvision that belongs to this torch" in line


def test_the_installed_torchvision_works_or_is_one_line(folder):
    """Whether the installed one fits depends on where it came from."""
    needs("torchvision:resnet18")
    done = run("torchvision:resnet18?num_classes=2", folder)
    if done.returncode != 0:
        (line,) = done.stderr.strip().splitlines()
        assert "needs torchvision, which cannot be imported beside torch" in line
