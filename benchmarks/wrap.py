"""Wrapping a classifier against the fits of its scores, predictions against the bare model, and text extraction.

    TWOFOLD_DATA=... python benchmarks/wrap.py [--small] [--save]        (10 minutes; needs torch and transformers)

Wrapping takes the outputs of a network with 512 features as they are, so that no network runs. With unknown inputs it
judges the pairs of seven scores on a sample. That takes longer than fitting the two that it chooses where these learn
nothing; the ratio to all seven on all rows stands beside it. Predictions are those of a
ResNet-50 with random weights on 64 images, and of a real MiniLM on 64 queries; text extraction is that of the same MiniLM
on 1,024 queries, against a loop over the same padded batches. With --small the images are smaller and the queries fewer.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from script import announce, data_folder

import numpy as np
import torch

import twofold
from timing import best, finish, row
from twofold import Head, Outputs
from twofold.nn.data import open_texts
from twofold.nn.extraction import extract
from twofold.nn.extraction.stream import _cut_batches, _cut_shards
from twofold.nn.extraction.tokens import load_tokenizer, tokenize
from twofold.nn.models import build, load
from twofold.wrapping.choice import CANDIDATES

SMALL = "--small" in sys.argv
BATCH = 64


def outputs(rows, seed):
    """Make up outputs of a network with 512 features and 100 classes."""
    rng = np.random.default_rng(seed)
    head = Head(np.random.default_rng(0).normal(size=(100, 512)).astype(np.float32) / 8)
    labels = rng.integers(0, 100, rows)
    features = (rng.normal(size=(rows, 512)) + head.weight[labels]).astype(np.float32)
    return Outputs(head.logits(features), labels, features, head)


def shifted(known):
    """Make unknown inputs of known ones: features of two classes, halfway between them."""
    features = (known.features + known.features[::-1]) / 2
    return Outputs(known.head.logits(features), np.full(len(known), -1), features, known.head)


def wrapping():
    """Compare wrap() with what its scores need anyway: their fits, and their confidences of the validation rows."""
    announce("wrapping 10,000 training rows")
    train, val, unknown = outputs(10_000, 1), outputs(2_000, 2), shifted(outputs(2_000, 3))

    def scores():
        knn = twofold.scorer("knn").fit(train)
        return knn.score(val), twofold.scorer("msp").score(val)

    def fits():
        return twofold.scorer("knn").fit(train)

    def ours(ood):
        return twofold.wrap(lambda x: x, train=train, val=val, ood=ood, keep=0.95)

    def choosing():
        return twofold.wrap(lambda x: x, train=train, val=val, unknown=unknown, keep=0.95)

    def named():
        return twofold.wrap(lambda x: x, train=train, val=val, unknown=unknown, keep=0.95, id=chosen.id, ood=chosen.ood)

    def every(names):
        for name in names:
            chain = twofold.scorer(name)
            fitted = chain if chain.ready else chain.fit(train)
            fitted.score(val)
            fitted.score(unknown)

    chosen = choosing().gate
    pair = (chosen.id.spec, chosen.ood.spec)

    def mahalanobis():
        return twofold.scorer("mds").fit(train)

    contenders = {
        "wrap": lambda: ours(None),
        "scores": scores,
        "fits": fits,
        "wrap mds": lambda: ours("mds"),
        "mds": mahalanobis,
        "choosing": choosing,
        "named": named,
        "chosen": lambda: every(pair),
        "candidates": lambda: every(CANDIDATES),
    }
    least = best(contenders, 5)
    case = "10,000 x 512 features, 2,000 validation rows"
    return [
        row(case, "wrap (knn) / fits and confidences of its scores", least["wrap"] / least["scores"], "x", "-"),
        row(case, "wrap (knn) / fits of its scores alone", least["wrap"] / least["fits"], "x", "<= 2"),
        row(case, "wrap (mds) / fits of its scores alone", least["wrap mds"] / least["mds"], "x", "<= 2"),
        row(
            f"{case}, 2,000 unknown",
            f"wrap ({' and '.join(pair)} chosen) / fits and confidences of the chosen",
            least["choosing"] / least["chosen"],
            "x",
            "<= 2",
        ),
        row(
            f"{case}, 2,000 unknown",
            "wrap / fits and confidences of the seven candidates",
            least["choosing"] / least["candidates"],
            "x",
            "-",
        ),
        row(f"{case}, 2,000 unknown", "choosing the scores", 1000 * (least["choosing"] - least["named"]), "ms", "-"),
    ]


def predictions(name, model, batch, forward, train, val):
    """Compare labels with abstentions with the bare model on one batch."""
    announce(f"predictions of {name}")
    safe = twofold.wrap(model, train=train, val=val, keep=0.95, batch=BATCH)

    def bare():
        with torch.inference_mode():
            return forward()

    least = best({"wrapped": lambda: safe(batch), "bare": bare}, 3 if SMALL else 5)
    extra = 1000 * (least["wrapped"] - least["bare"])
    case = f"{name}, batch of {BATCH}"
    return [
        row(case, "wrapped / bare model", least["wrapped"] / least["bare"], "x", "<= 1.1, or 1 ms more"),
        row(case, "wrapped minus bare model", extra, "ms", "-"),
    ]


def resnet():
    side = 64 if SMALL else 224
    model = build("resnet50", 1000).eval()
    images = torch.rand((BATCH, 3, side, side), generator=torch.Generator().manual_seed(0))
    known = (images, torch.arange(BATCH))
    return predictions(f"ResNet-50, {side} pixels", model, images, lambda: model(images), known, known)


def text(folder):
    root = data_folder("text/features_clinc150_minilm.npz") / "text"
    model = load(f"hf:{root / 'minilm_clinc150'}")
    tokenizer = load_tokenizer(model)
    count = 256 if SMALL else 1024
    texts = open_texts(f"text:{root / 'clinc150/val.jsonl.gz'}?sample={count}")
    known = open_texts(f"text:{root / 'clinc150/test.jsonl.gz'}?sample={count}&seed=1")
    batch = list(texts.texts[:BATCH])

    def forward():
        return model(**tokenizer(batch, padding=True, return_tensors="pt")).logits.argmax(dim=1)

    rows = predictions("MiniLM", model, batch, forward, known, known)
    announce("text extraction against a bare loop")
    tokens = tokenize(texts.texts, tokenizer, model)
    padded = []
    for shard in _cut_shards(len(texts), BATCH):
        padded += [tokens.batch(numbers) for numbers in _cut_batches(shard, BATCH, tokens.lengths)]

    def loop():
        with torch.no_grad():
            return torch.cat([model(**one).logits for one in padded])

    def ours():
        shutil.rmtree(folder / "run", ignore_errors=True)
        extract(model, texts, folder / "run", name="val", role="val", batch=BATCH, prepare=tokenizer)

    least = best({"ours": ours, "loop": loop}, 3)
    case = f"MiniLM, {count:,} queries"
    rows.append(row(case, "extraction / bare loop, same batches", least["ours"] / least["loop"], "x", "<= 1.1"))
    return rows


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        finish("wrap", [*wrapping(), *resnet(), *text(Path(folder))])


if __name__ == "__main__":
    main()
