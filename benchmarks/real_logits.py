"""What float precision does to AURC on real CIFAR-10 networks, and the log-odds ranking that avoids it.

    TWOFOLD_DATA=... python benchmarks/real_logits.py [--save]        (seconds)

Maximum softmax probabilities are computed in float64 and stored in the given type; "log-odds" ranks by the log-odds
of the predicted class in float32. Values are AURC x 1000 with 0/1 loss.
"""

from __future__ import annotations

from script import announce, data_folder

import numpy as np

from timing import finish, row
from twofold import metrics
from twofold._math import log_odds, softmax


def main():
    file = "cifar10_real_logits.npz"
    data = np.load(data_folder(file) / file)
    rows = []
    for model in ("resnet110", "resnet50_ce", "resnet50_focal", "resnet50_ece_kde"):
        announce(model)
        logits, labels = data[f"{model}_test_logits"].astype(np.float64), data[f"{model}_test_labels"]
        correct = logits.argmax(axis=1) == labels
        prob = softmax(logits).max(axis=1)
        scores = {f"MSP as {t}": prob.astype(t) for t in ("float64", "float32", "float16")}
        scores["log-odds as float32"] = log_odds(logits).astype(np.float32)
        for name, conf in scores.items():
            levels = len(np.unique(conf))
            for estimator in ("empirical", "expected"):
                value = 1000 * metrics.aurc(correct, conf, estimator=estimator)
                rows.append(row(model, f"{name}, {estimator}, {levels} distinct", value, "", "-"))
    finish("real_logits", rows)


if __name__ == "__main__":
    main()
