"""AURC, E-AURC, AUGRC, AUROC, AP (both) and FPR@95 (both) of 1e6 samples together, against one np.argsort and peers.

    python benchmarks/single_score.py [--save]        (about a minute)

Times are those of the processor; all contenders work in one thread. Peers are measured where they are installed:
scikit-learn always; torch-uncertainty's AURC and fd-shifts' AURC when importable (fd-shifts is on no package index: put a
checkout on PYTHONPATH). Versions of the peers are in the rows.
"""

from __future__ import annotations

import time
from importlib import metadata

from script import announce

import numpy as np

from timing import best, finish, row
from twofold import metrics

N = 1_000_000
SET = [
    "aurc",
    "eaurc",
    "augrc",
    "auroc",
    "average_precision",
    "average_precision_unsafe",
    "fpr95",
    "fpr95_unsafe",
]


def torch_uncertainty_aurc():
    try:
        import torch

        # torchvision's registry wheel wants these two operators beside a CPU build of torch
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torch_uncertainty.metrics import AURC

        torch.set_num_threads(1)
    except ImportError:
        return None

    def run(correct, conf):
        # binary probabilities whose maximum is the confidence, and targets that make `correct` right
        p = torch.from_numpy(0.5 + 0.5 / (1.0 + np.exp(-conf)))
        probs = torch.stack((p, 1 - p), dim=1)
        targets = torch.from_numpy(np.where(correct, 0, 1))

        def aurc():
            metric = AURC()
            metric.update(probs, targets)
            return float(metric.compute())

        return aurc

    return run


def fd_shifts_aurc():
    try:
        from fd_shifts.analysis.rc_stats_utils import selective_risk_stats
    except ImportError:
        return None

    def run(correct, conf):
        residuals = (~correct).astype(int)

        def aurc():
            stats = selective_risk_stats(confids=conf, residuals=residuals)
            return -float(np.trapezoid(stats["risks"], stats["coverages"]))

        return aurc

    return run


def version(package):
    """Return the version of an installed package, nothing if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def main():
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(0)
    conf = rng.normal(size=N)
    correct = rng.random(N) < 1 / (1 + np.exp(-2 * conf - 1))
    scikit_learn = f"scikit-learn {version('scikit-learn')} AUROC + AP"
    peers = {
        f"torch-uncertainty {version('torch-uncertainty')} AURC": (torch_uncertainty_aurc(), 4),
        "fd-shifts AURC": (fd_shifts_aurc(), 20),
    }
    rows = []
    for case, x in {"no ties": conf, "3 decimals": conf.round(3), "1 decimal": conf.round(1)}.items():
        announce(f"{N:,} samples, {case}")
        fast = best(
            {
                "ours": lambda x=x: metrics.evaluate(correct, x, only=SET),
                "argsort": lambda x=x: np.argsort(x),
            },
            11,
            clock=time.process_time,
        )
        rows.append(row(case, "eight metrics / np.argsort", fast["ours"] / fast["argsort"], "x", "<= 1"))
        slow = {
            scikit_learn: lambda x=x: (
                roc_auc_score(correct, x),
                average_precision_score(correct, x),
            )
        }
        targets = {scikit_learn: 10}
        for name, (peer, target) in peers.items():
            if peer is not None:
                slow[name], targets[name] = peer(correct, x), target
        ours = {"ours": lambda x=x: metrics.evaluate(correct, x, only=SET)}
        times = best(ours | slow, 3, clock=time.process_time)
        rows += [row(case, f"{p} / our eight metrics", times[p] / times["ours"], "x", f">= {targets[p]}") for p in slow]
    finish("single_score", rows)


if __name__ == "__main__":
    main()
