"""Embeddings by the real open_clip, with weights that it was initialised with."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
open_clip = pytest.importorskip("open_clip", reason="open_clip is not installed")

from twofold.bench.strata import distances  # noqa: E402
from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, UnknownName  # noqa: E402
from twofold.nn.clip import embed  # noqa: E402
from twofold.nn.data import Images  # noqa: E402
from twofold.run import Run  # noqa: E402
from twofold.scores.chain import scorer  # noqa: E402

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}


@pytest.fixture
def tiny(tmp_path):
    """A small network of the library's own kind, registered under a name, and a file of its weights."""
    (tmp_path / "tiny-clip.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    torch.manual_seed(0)
    torch.save(open_clip.create_model("tiny-clip").state_dict(), tmp_path / "tiny.pt")
    return tmp_path / "tiny.pt"


def pictures(n, seed):
    return Images.of(np.random.default_rng(seed).integers(0, 256, (n, 40, 40, 3), dtype=np.uint8), np.arange(n) % 2)


def test_rows_are_those_of_the_library(tiny):
    images = pictures(5, 0)
    found = embed({"a": images, "b": pictures(3, 1)}, "tiny-clip", tiny, class_names=("cat", "sea_lion"), batch=2)
    assert {name: rows.shape for name, rows in found.items()} == {"a": (5, 16), "b": (3, 16), "class_texts": (2, 16)}
    from PIL import Image

    network, _, prepare = open_clip.create_model_and_transforms("tiny-clip", pretrained=str(tiny))
    network.eval()
    with torch.no_grad():
        one = network.encode_image(prepare(Image.fromarray(images.read(slice(3, 4))[0]))[None])
        words = network.encode_text(open_clip.get_tokenizer("tiny-clip")(["a photo of a sea lion"]))
    assert found["a"][3] == pytest.approx(one[0].numpy(), abs=1e-5)
    assert found["class_texts"][1] == pytest.approx(words[0].numpy(), abs=1e-5)
    assert "text" in distances(found["a"], images.labels, {"b": found["b"]}, text=found["class_texts"]).to_dict()["b"]


def test_several_prompts_are_averaged(tiny):
    words = ("a photo of a {}", "a drawing of the {}")
    both = embed({"a": pictures(2, 0)}, "tiny-clip", tiny, class_names=("cat",), prompts=words)["class_texts"]
    alone = []
    for word in words:
        found = embed({"a": pictures(2, 0)}, "tiny-clip", tiny, class_names=("cat",), prompts=[word], batch=1)
        alone.append(found["class_texts"])
    assert both == pytest.approx((alone[0] + alone[1]) / 2, abs=1e-6)
    assert alone[0] != pytest.approx(alone[1], abs=1e-3)
    with pytest.raises(InvalidInput, match="for the name of a class"):
        embed({"a": pictures(2, 0)}, "tiny-clip", tiny, class_names=("cat",), prompts=["a photo"])


def test_wrong_words_are_one_error(tiny, tmp_path):
    with pytest.raises(UnknownName, match="tiny-clip"):
        embed({"a": pictures(2, 0)}, "tiny-clop", tiny)
    with pytest.raises(InvalidInput, match="nothing is downloaded"):
        embed({"a": pictures(2, 0)}, "tiny-clip", tmp_path / "none.pt")


def test_the_command_writes_what_strata_read(tiny, tmp_path):
    np.savez(tmp_path / "x.npz", images=pictures(4, 0).read(), labels=np.arange(4) % 2)
    sets = "".join(
        f'[[sets]]\nname = "{n}"\nrole = "{r}"\ndata = "npz:{tmp_path}/x.npz?images=images&labels=labels"\n'
        for n, r in [("train", "train"), ("close", "near")]
    )
    about = 'name = "t"\ntitle = "t"\nsource = "here"\nclasses = 2\nprotocols = ["joint"]\n'
    (tmp_path / "t.toml").write_text(about + sets)
    given = ["bench", "embed", str(tmp_path / "t.toml"), "--clip", "tiny-clip", "--weights", str(tiny)]
    result = CliRunner().invoke(main, [*given, "--out", str(tmp_path / "clip.npz"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"train": [4, 16], "close": [4, 16], "labels": [4]}
    assert np.load(tmp_path / "clip.npz")["close"].shape == (4, 16)


def test_extract_runs_it_as_a_zero_shot_classifier(tiny, tmp_path):
    """Logits of the run are the scaled cosines of the network's own embeddings."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(6) % 2)
    (tmp_path / "names.txt").write_text("cat\nsea_lion\n", encoding="utf-8")
    model = f"clip:tiny-clip?weights={tiny}&names={tmp_path}/names.txt"
    command = ["extract", model, "--normalise", "clip", "--role", "test", "--data", f"npz:{tmp_path}/x.npz"]
    done = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    found = Run.open(tmp_path / "run")["test"]
    network = open_clip.create_model("tiny-clip", pretrained=str(tiny)).eval()
    mean, std = torch.tensor(open_clip.OPENAI_DATASET_MEAN), torch.tensor(open_clip.OPENAI_DATASET_STD)
    inputs = ((torch.tensor(pixels) / 255 - mean) / std).permute(0, 3, 1, 2)
    with torch.no_grad():
        images = network.encode_image(inputs, normalize=True)
        words = open_clip.get_tokenizer("tiny-clip")(["a photo of a cat", "a photo of a sea lion"])
        want = network.logit_scale.exp() * images @ network.encode_text(words, normalize=True).T
    assert found.logits == pytest.approx(want.numpy(), rel=1e-3, abs=1e-3)
    assert np.isfinite(scorer("mcm").score(found)).all()
