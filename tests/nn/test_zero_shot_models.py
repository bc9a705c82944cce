"""CLIP networks as zero-shot classifiers, with a tiny random one: logits against its own, extraction, scores."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
from click.testing import CliRunner  # noqa: E402

from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.models import load  # noqa: E402
from twofold.run import Run  # noqa: E402
from twofold.scores.chain import scorer  # noqa: E402

NAMES = ["cat", "big_dog", "ship"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CLIP model of two layers with a word-level tokenizer, as Hugging Face saves them."""
    place = tmp_path_factory.mktemp("clip")
    words = ["<pad>", "<unk>", "<eos>", "a", "photo", "of", "cat", "big", "dog", "ship"]
    vocabulary = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, "<unk>"))
    vocabulary.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vocabulary.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 2)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=vocabulary, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    )
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": len(words), "eos_token_id": 2, "pad_token_id": 0, "max_position_embeddings": 12}
    vision = {**sizes, "image_size": 16, "patch_size": 8}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(place)
    fast.save_pretrained(place)
    (place / "names.txt").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    return place


def test_logits_are_those_of_the_network_itself(folder):
    images = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    network = transformers.CLIPModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(
        ["a photo of a cat", "a photo of a big dog", "a photo of a ship"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        want = network(tokens["input_ids"], images, tokens["attention_mask"]).logits_per_image
        got = load(f"clip:{folder}?names={folder}/names.txt")(images)
    assert got.numpy() == pytest.approx(want.numpy(), rel=1e-4, abs=1e-4)


def test_extract_writes_a_run_that_zero_shot_scores_read(folder, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "x.npz", images=rng.integers(0, 256, (6, 16, 16, 3), dtype=np.uint8), labels=np.arange(6) % 3)
    command = ["extract", f"clip:{folder}?names={folder}/names.txt", "--normalise", "clip", "--role", "test"]
    done = CliRunner().invoke(main, [*command, "--data", f"npz:{tmp_path}/x.npz", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    found = Run.open(tmp_path / "run")["test"]
    assert np.linalg.norm(found.features, axis=1) == pytest.approx(np.ones(6), abs=1e-5)
    assert np.isfinite(scorer("mcm").score(found)).all()
    negatives = rng.normal(size=(6, 8))
    assert (scorer("neglabel", negatives=negatives, groups=2).score(found) <= 0).all()


def test_what_is_missing_is_said(folder, tmp_path):
    with pytest.raises(InvalidInput, match="needs the names of the classes"):
        load(f"clip:{folder}")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(f"clip:{folder}?names={tmp_path}/none.txt")
    with pytest.raises(InvalidInput, match="prompt must have"):
        load(f"clip:{folder}?names={folder}/names.txt&prompt=photo")
    with pytest.raises(InvalidInput, match="no option 'name'"):
        load(f"clip:{folder}?name={folder}/names.txt")
    (tmp_path / "names.txt").write_text("cat\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="holds no CLIP model"):
        load(f"clip:{tmp_path}?names={tmp_path}/names.txt")
