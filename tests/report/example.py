"""A small run with everything a report can show, and names that try to break out of the page."""

import base64

import numpy as np

from twofold.outputs import Head, Outputs
from twofold.run import Run
from twofold.scores.chain import scorer

EVIL = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>\"'&<!--"
CLASSES = ("cat", f"dog{EVIL}", "=1+1", "fish")
WIDTH = 6


def world(seed=0, rows=150, evil=True):
    """Outputs by (name, role): a linear model on noisy class means, shifted and unknown inputs."""
    rng = np.random.default_rng(seed)
    head = Head(3 * np.eye(len(CLASSES), WIDTH), np.zeros(len(CLASSES)))
    names = CLASSES if evil else ("a", "b", "c", "d")

    def known(n, noise=0.55, ids=None):
        labels = rng.integers(0, len(CLASSES), n)
        features = np.eye(len(CLASSES), WIDTH)[labels] + rng.normal(0, noise, (n, WIDTH))
        return Outputs(head.logits(features), labels, features, head, ids=ids, class_names=names)

    def unknown(n, centre, ids=None):
        features = centre + rng.normal(0, 0.5, (n, WIDTH))
        return Outputs(head.logits(features), np.full(n, -1), features, head, ids=ids, class_names=names)

    away = np.r_[0.3 * np.ones(4), 1.0, 1.0]
    wild = EVIL.replace("/", "|") if evil else "bear"
    kinds = [f"beasts/{wild}/{i}" if i % 2 else f"plants/fern/{i}" for i in range(rows)]
    return {
        ("train", "train"): known(rows),
        ("val", "val"): known(rows),
        ("test", "test"): known(2 * rows, ids=[f"{'<b>' if evil else 'file'}{i}" for i in range(2 * rows)]),
        ("foggy", "shift"): known(rows, 0.9),
        ("strange", "near"): unknown(rows, away, kinds),
        ("alien", "far"): unknown(rows, -away),
        ("other", "ood_val"): unknown(rows, away / 2),
    }


def write(folder, sets, **about):
    names = CLASSES if sets["test", "test"].class_names == CLASSES else None
    run = Run.create(folder, class_names=names, **about)
    for (name, role), outputs in sets.items():
        run.add(name, outputs, role=role)
    return run


def unpacked(pair):
    """The explorer's arrays, read as the page's script reads them."""
    axes = [np.frombuffer(base64.b64decode(pair[name]), "<f8") for name in ("tau_id", "tau_ood")]
    counts = np.frombuffer(base64.b64decode(pair["counts"]), f"<u{pair['bytes']}")
    return *axes, counts.reshape(len(pair["kinds"]), len(axes[0]), len(axes[1])).astype(int)


def samples(run, pair):
    """All test and unknown rows of the run under a pair of scores, by hand."""
    names = [*run.names("test"), *run.names("near"), *run.names("far")]
    chains = [scorer(spec) for spec in (pair["id"], pair["ood"])]
    chains = [chain if chain.ready else chain.fit(run["train"], val=run["val"]) for chain in chains]
    conf = [np.concatenate([chain.score(run[name]) for name in names]) for chain in chains]
    correct = np.concatenate([run[name].correct for name in names])
    is_id = np.concatenate([run[name].labels >= 0 for name in names])
    near = np.concatenate([np.full(len(run[name]), name in run.names("near")) for name in names])
    return correct, is_id, near, *conf
