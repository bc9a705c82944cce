"""The ONNX gate against the bare classifier, both in onnxruntime, at batch 1 and 64.

    python benchmarks/onnx_gate.py [--save]        (a few minutes; needs torch, onnx and onnxruntime)

A ResNet-20 for 32x32 images with random weights, one thread. The gates are fitted on 1,024 random images. A turn is a
block of calls and the least of many turns counts, since one call at batch 1 takes a millisecond or two.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

from script import announce

import numpy as np
import onnxruntime
import torch

from timing import best, finish, row
from twofold import Outputs
from twofold.gate import Gate
from twofold.nn.models import Classifier, build
from twofold.nn.onnx import OPSET, to_onnx

PAIRS = (("msp", "energy"), ("msp", "react|energy"), ("entropy", "vim"), ("msp", "rmds"), ("sirc", "knn"))
ROWS = 1024


def bare(model, path):
    """Export the classifier alone, by the same exporter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer
        torch.onnx.export(
            model,
            (torch.rand(2, 3, 32, 32),),
            path,
            input_names=["images"],
            dynamic_axes={"images": {0: "N"}},
            opset_version=OPSET,
            dynamo=False,
        )


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def outputs(classifier):
    """Return what the network outputs for random images, and labels of which one in four is wrong and one in five unknown."""
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        seen = classifier(torch.rand((ROWS, 3, 32, 32), generator=g))
    labels = seen.logits.argmax(dim=1).numpy()
    labels[::4] = (labels[::4] + 1) % 10
    train = Outputs(seen.logits.numpy(), labels, seen.features.numpy(), classifier.head)
    return train, train.replace(labels=np.where(np.arange(ROWS) % 5 == 0, -1, labels))


def repeated(run, images, calls):
    def turn():
        for _ in range(calls):
            run(None, {"images": images})

    return turn


def main():
    torch.set_num_threads(1)
    model = build("resnet20_cifar", 10).eval()
    train, validation = outputs(Classifier(model))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bare(model, folder / "bare.onnx")
        sessions = {"bare": session(folder / "bare.onnx")}
        for first, second in PAIRS:
            case = f"{first} and {second}"
            announce(f"exporting {case}")
            to_onnx(Gate.fit(validation, first, second, train=train), model, folder / "gate.onnx")
            sessions[case] = session(folder / "gate.onnx")
        for batch, calls, turns in ((1, 5, 400), (64, 1, 60)):
            announce(f"latency at batch {batch}")
            images = np.random.default_rng(batch).random((batch, 3, 32, 32), dtype=np.float32)
            least = best({case: repeated(s.run, images, calls) for case, s in sessions.items()}, turns)
            rows.append(row("bare classifier", f"latency at batch {batch}", 1e3 * least["bare"] / calls, "ms", "-"))
            for case in list(sessions)[1:]:
                target = "-" if "knn" in case else "<= 1.1"  # a search of the bank costs what it costs
                rows.append(row(case, f"gate / bare at batch {batch}", least[case] / least["bare"], "x", target))
    finish("onnx_gate", rows)


if __name__ == "__main__":
    main()
