"""Every score that features and head allow, on a real CIFAR-10 ResNet-20: right against wrong, known against unknown.

    TWOFOLD_DATA=... python benchmarks/real_scores.py [--save]        (about a minute)

Fitted on 10,000 training images with default settings (untuned). AUROC of right against wrong test answers, and of the
test set against four unknown sets. Below one half a score trusts unknown inputs more than known ones: the isolation
forest does so on these features, whose known rows are the extreme ones.
"""

from __future__ import annotations

from script import announce, data_folder

import numpy as np

from timing import finish, row
from twofold import metrics
from twofold.outputs import Head, Outputs
from twofold.scores import fit_all, score_all
from twofold.scores.candidates import computable_scores

UNKNOWN = ("svhn", "textures", "tin", "scenes")
CHAINS = ("react|energy", "dice|energy", "ash|energy", "scale|energy", "vra|energy", "lts|energy", "temperature|msp")


def main():
    file = "features_cifar10_resnet20.npz"
    held = np.load(data_folder(file) / file)
    head = Head(held["W"], held["b"])

    def outputs(name, labels=None):
        features = held[f"{name}_features"].astype(np.float32)
        return Outputs(head.logits(features), labels, features, head)

    train, test = outputs("id_train", held["id_train_labels"]), outputs("id_test", held["id_test_labels"])
    unknown = {name: outputs(f"ood_{name}") for name in UNKNOWN}
    specs = [*computable_scores([train, test, *unknown.values()]), *CHAINS]
    announce(f"fitting {len(specs)} scores")
    chains = fit_all(specs, train)
    announce("scoring the test set")
    known, others = score_all(chains, test), {}
    for name, held_out in unknown.items():
        announce(f"scoring {name}")
        others[name] = score_all(chains, held_out)
    rows = []
    for i, spec in enumerate(specs):
        rows.append(row(spec, "AUROC, right against wrong", metrics.auroc(test.correct, known[i]), "", "-"))
        for name in UNKNOWN:
            conf = np.concatenate([known[i], others[name][i]])
            truth = np.arange(len(conf)) < len(test)
            rows.append(row(spec, f"AUROC, test set against {name}", metrics.auroc(truth, conf), "", "-"))
    finish("real_scores", rows)


if __name__ == "__main__":
    main()
