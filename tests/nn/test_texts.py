"""Texts: files in three forms, labels by the model's own names, and extraction against a loop of one text at a time."""

import gzip
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
hf = pytest.importorskip("transformers", reason="transformers is not installed")

from twofold import Run  # noqa: E402
from twofold.cli import main  # noqa: E402
from twofold.errors import InvalidInput, TruncatedTexts, UnknownName  # noqa: E402
from twofold.nn import data  # noqa: E402
from twofold.nn.data import Texts, open_texts  # noqa: E402
from twofold.nn.extraction import extract, stream  # noqa: E402
from twofold.nn.extraction.tokens import class_names_of, load_tokenizer, tokenize  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "what", "is", "my", "balance", "hello", "pay", "bill", "now"]
NAMES = {"balance": 0, "greet": 1, "pay": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT with random weights, its tokenizer, and 70 queries of different length in random order."""
    home = tmp_path_factory.mktemp("texts")
    (home / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = hf.BertTokenizer(str(home / "vocab.txt"), model_max_length=12)
    tokenizer.save_pretrained(home / "bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    names = {number: name for name, number in NAMES.items()}
    config = hf.BertConfig(vocab_size=len(WORDS), id2label=names, label2id=NAMES, **sizes)
    hf.BertForSequenceClassification(config).eval().save_pretrained(home / "bert")
    rng = np.random.default_rng(0)
    with gzip.open(home / "queries.jsonl.gz", "wt") as file:
        for row in range(70):
            words = rng.choice(WORDS[5:], size=rng.integers(1, 10))
            label = [*NAMES, None][row % 4]
            file.write(json.dumps({"text": " ".join(words), "label": label, "row": row}) + "\n")
    return home


def one_by_one(folder, texts):
    """Logits and pooled features of each text alone, without padding."""
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert").eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(folder / "bert")
    logits, features = [], []
    with torch.no_grad():
        for text in texts:
            encoded = tokenizer(text, return_tensors="pt")
            logits.append(model(**encoded).logits[0].numpy())
            features.append(model.bert(**encoded).pooler_output[0].numpy())
    return np.array(logits), np.array(features)


def test_extraction_equals_a_loop_over_single_texts(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "SHARD", 32)
    spec = f"text:{folder / 'queries.jsonl.gz'}"
    arguments = ["--data", spec, "--role", "test", "--out", str(tmp_path / "run"), "--batch", "8", "--json"]
    done = CliRunner().invoke(main, ["extract", f"hf:{folder / 'bert'}", *arguments])
    assert done.exit_code == 0, done.output
    outputs = Run.open(tmp_path / "run")["test"]
    texts = open_texts(spec)
    logits, features = one_by_one(folder, texts.texts)
    np.testing.assert_allclose(outputs.logits, logits, atol=2e-6)
    np.testing.assert_allclose(outputs.features, features, atol=2e-6)
    assert outputs.labels.tolist() == [row % 4 if row % 4 < 3 else -1 for row in range(70)]
    assert outputs.ids.tolist() == list(range(70))
    assert outputs.class_names == tuple(NAMES)


def test_batches_are_sorted_by_length_within_a_shard(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "SHARD", 32)
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert").eval()
    widths = []
    model.register_forward_pre_hook(
        lambda module, arguments, keywords: widths.append(keywords["input_ids"].shape), with_kwargs=True
    )
    extract(model, open_texts(f"text:{folder / 'queries.jsonl.gz'}"), tmp_path / "run", name="t", role="test", batch=8)
    lengths = [len(text.split()) + 2 for text in open_texts(f"text:{folder / 'queries.jsonl.gz'}").texts]
    expected = []
    for start in (0, 32, 64):
        ordered = sorted(lengths[start : start + 32])
        for batch in range(0, len(ordered), 8):
            expected.append((len(ordered[batch : batch + 8]), max(ordered[batch : batch + 8])))
    assert [tuple(width) for width in widths[2:]] == expected  # after two runs on the first two rows


def test_a_killed_extraction_resumes_with_the_same_bytes(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(stream, "SHARD", 16)
    texts = open_texts(f"text:{folder / 'queries.jsonl.gz'}")
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert").eval()
    whole = extract(model, texts, tmp_path / "whole", name="t", role="val", batch=8)

    def stop(rows):
        if rows == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        extract(model, texts, tmp_path / "cut", name="t", role="val", batch=8, done=stop)
    rows = []
    again = extract(model, texts, tmp_path / "cut", name="t", role="val", batch=8, done=rows.append)
    assert rows[0] == 16
    for field in ("logits", "features", "labels", "ids"):
        np.testing.assert_array_equal(getattr(again["t"], field), getattr(whole["t"], field))


def test_two_processes_write_what_one_writes(folder, tmp_path):
    code = f"""
    import torch
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from twofold.nn.extraction import extract_all, stream
    stream.SHARD = 16
    sets = [({f"text:{folder / 'queries.jsonl.gz'}"!r}, "test", "t")]
    extract_all({f"hf:{folder / 'bert'}"!r}, sets, {str(tmp_path / "two")!r}, batch=8)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    pair = []
    for rank in ("0", "1"):
        pair.append(subprocess.Popen(command, env={**os.environ, "RANK": rank, "WORLD_SIZE": "2"}))
    assert [process.wait(timeout=300) for process in pair] == [0, 0]
    texts = open_texts(f"text:{folder / 'queries.jsonl.gz'}")
    logits, _ = one_by_one(folder, texts.texts)
    np.testing.assert_allclose(Run.open(tmp_path / "two")["t"].logits, logits, atol=2e-6)


def test_dropout_masks_follow_the_rows_not_the_batches(folder, tmp_path):
    texts = open_texts(f"text:{folder / 'queries.jsonl.gz'}")
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert").eval()
    model.bert.encoder.eval()
    for module in model.bert.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # padding changes the shape of masks inside; the one at the head has one row a text
    few = extract(model, texts, tmp_path / "few", name="t", role="test", batch=4, passes=3, seed=1)
    many = extract(model, texts, tmp_path / "many", name="t", role="test", batch=64, passes=3, seed=1)
    np.testing.assert_allclose(few["t"].passes.mean_prob, many["t"].passes.mean_prob, atol=2e-6)


# Labels


def test_unknown_names_are_an_error_and_null_is_minus_one():
    texts = Texts.of(["a", "b"], ["pay", None])
    assert texts.number_classes(NAMES).tolist() == [2, -1]
    with pytest.raises(InvalidInput, match=r"row 1: the label 'refund' is none of the model's 3 classes"):
        Texts.of(["a", "b"], ["pay", "refund"]).number_classes(NAMES)
    with pytest.raises(InvalidInput, match="the label 3"):
        Texts.of(["a"], [3]).number_classes(NAMES)
    assert Texts.of(["a", "b", "c"], [1, "2", -1]).number_classes(NAMES).tolist() == [1, 2, -1]


def test_names_of_outsiders_are_not_looked_up(folder, tmp_path):
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert").eval()
    outside = Texts.of(["hello now", "is my"], ["weather", "weather"])
    run = extract(model, outside, tmp_path / "run", name="t", role="near")
    assert run["t"].labels.tolist() == [-1, -1]
    with pytest.raises(InvalidInput, match="weather"):
        extract(model, outside, tmp_path / "run", name="u", role="test")


def test_placeholders_are_no_class_names(folder):
    config = hf.BertConfig(num_labels=3)
    assert class_names_of(type("Model", (), {"config": config})()) is None
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    assert class_names_of(model) == tuple(NAMES)


# Files


def write(path, rows, columns=("text", "label")):
    """The same rows in each of the three forms."""
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        from pyarrow import parquet

        values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        parquet.write_table(pyarrow.table(values), path)
    elif path.suffix == ".csv":
        import csv

        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
    else:
        lines = [json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


ROWS = [("Zahl, bitte", "pay"), ("hello\nthere", "greet"), ("=1+1", None), ("", "pay")]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_every_form_holds_the_same_rows_in_order(tmp_path, ending):
    write(tmp_path / f"set.{ending}", ROWS)
    texts = open_texts(f"text:{tmp_path / f'set.{ending}'}")
    assert list(zip(texts.texts, texts.targets, strict=True)) == ROWS
    write(tmp_path / f"other.{ending}", ROWS, ("query", "intent"))
    named = open_texts(f"text:{tmp_path / f'other.{ending}'}?text=query&label=intent&rows=1:3&name=mine")
    assert named.texts == ("hello\nthere", "=1+1")
    assert named.ids.tolist() == [1, 2]
    assert named.name == "mine"
    with pytest.raises(InvalidInput, match="has no column 'text'"):
        open_texts(f"text:{tmp_path / f'other.{ending}'}")
    with pytest.raises(InvalidInput, match="has no column 'class'"):
        open_texts(f"text:{tmp_path / f'set.{ending}'}?label=class")
    assert open_texts(f"text:{tmp_path / f'other.{ending}'}?text=query").targets == (None,) * 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "a"}\n{"text": ', "line 2 is not JSON"),
        ("a.jsonl", b'["a"]\n', "line 1 must be a JSON object, got list"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b", "label": "c"}\n', "line 2: 'label' is in some lines only"),
        ("a.jsonl", b'{"text": 5}\n', "row 0: a text must be a string, got int"),
        ("a.jsonl", b'{"text": "a", "label": [1]}\n', "a label must be a name, a number or null"),
        ("a.jsonl", b'{"text": "a", "label": true}\n', "a label must be a name, a number or null"),
        ("a.jsonl", b"", "no column 'text'"),
        ("a.jsonl", b'{"text": "\xff"}\n', "cannot be read as text in UTF-8"),
        ("a.jsonl.gz", b"no gzip", "cannot be read as text"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "abcdefgh"}\n' * 99, mtime=0)[:40], "cannot be read as text"),
        ("a.csv", b"text,label\na\n", "line 2: 1 cells but 2 columns"),
        ("a.csv", b"text,text\na,b\n", "names a column twice"),
        ("a.csv", b"text\n", "there are no texts"),
        ("a.parquet", b"PAR1", "not a readable Parquet file"),
        ("a.txt", b"a", "must end in .jsonl"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=message.replace("[", r"\[")):
        open_texts(f"text:{tmp_path / name}")


def test_what_does_not_fit_texts_is_refused(folder, tmp_path):
    spec = f"text:{folder / 'queries.jsonl.gz'}"
    with pytest.raises(InvalidInput, match="there is no such file"):
        open_texts("text:nowhere.csv")
    with pytest.raises(InvalidInput, match="size= is for images"):
        open_texts(f"{spec}?size=32")
    with pytest.raises(UnknownName, match="txt"):
        open_texts(f"{spec}?txt=a")
    with pytest.raises(InvalidInput, match="holds texts, and images are needed"):
        data.open(spec)
    with pytest.raises(InvalidInput, match="holds images, and texts are needed"):
        open_texts("noise:uniform?n=2&size=8")
    sets = ["--data", spec, "--role", "test", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(main, ["extract", f"hf:{folder / 'bert'}", *sets, "--normalise", "imagenet"])
    assert done.exit_code == 3
    assert "normalise need pixels" in done.output
    model = torch.nn.Linear(2, 2)
    with pytest.raises(InvalidInput, match="does not say where its tokenizer is"):
        load_tokenizer(model)
    model.name_or_path = str(tmp_path / "gone")
    with pytest.raises(InvalidInput, match="has no tokenizer that can be read"):
        load_tokenizer(model)


def test_long_texts_are_cut_off_with_a_warning(folder):
    model = hf.AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    tokenizer = load_tokenizer(model)
    with pytest.warns(TruncatedTexts, match="1 of 2 texts have more than the 12 tokens"):
        tokens = tokenize(["pay " * 40, "pay now"], tokenizer, model)
    assert tokens.lengths.tolist() == [12, 4]
    end = tokens.arrays["input_ids"][11]
    assert end == tokenizer.sep_token_id  # what is cut off is the text, not the end mark
    tokenizer.pad_token = None
    with pytest.raises(InvalidInput, match="no padding token"):
        tokenize(["pay"], tokenizer, model)


# The real classifier


def test_the_first_queries_of_clinc150_have_their_published_logits(data_dir, tmp_path):
    spec = f"text:{data_dir / 'text/clinc150/test.jsonl.gz'}?limit=96"
    outsiders = f"text:{data_dir / 'text/clinc150/oos_test.jsonl.gz'}?limit=32"
    out = str(tmp_path / "run")
    arguments = ["--data", spec, "--role", "test", "--data", outsiders, "--role", "near", "--out", out]
    done = CliRunner().invoke(main, ["extract", f"hf:{data_dir / 'text/minilm_clinc150'}", *arguments, "--batch", "32"])
    assert done.exit_code == 0, done.output
    run = Run.open(out)
    with np.load(data_dir / "text/features_clinc150_minilm.npz") as stored:
        np.testing.assert_allclose(run["test"].logits, stored["test_logits"][:96], atol=3e-5)
        np.testing.assert_allclose(run["near"].logits, stored["oos_test_logits"][:32], atol=3e-5)
        np.testing.assert_allclose(run["test"].features, stored["test_features"][:96], atol=5e-4)
        assert run["test"].labels.tolist() == stored["test_labels"][:96].tolist()
        assert run["test"].class_names == tuple(stored["class_names"].tolist())
