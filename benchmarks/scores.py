"""Forty scores against one neighbour search, neighbours against faiss and scikit-learn, closed forms against plain.

    python benchmarks/scores.py [--save]        (about twelve minutes; pip install faiss-cpu for its rows)
    python benchmarks/scores.py --part NAME     (about four minutes: forty, neighbours, closed or newer)

The synthetic world: 50,000 training and 10,000 test rows, width 512, 100 classes, non-negative features in float32.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

from script import announce

import numpy as np

from timing import best, finish, row
from twofold.outputs import Head, Outputs
from twofold.scores import distance, fit_all, layers, score_all, transforms
from twofold.scores.chain import scorer
from twofold.scores.neighbours import unit

TRAIN, TEST, WIDTH, CLASSES = 50_000, 10_000, 512, 100
FORTY = [
    *("msp", "mls", "maxlogit_pnorm", "margin", "entropy", "gini", "energy", "gen", "renyi", "collision", "guessing"),
    *("klm", "openmax", "temperature|msp", "react|energy", "dice|energy", "ash|energy", "scale|energy", "vra|energy"),
    *("lts|energy", "project|energy", "project(kind='class_avg')|msp", "gradnorm", "she", "cosine_weight"),
    *("cosine_mean", "fdbd", "nci", "mds", "rmds", "knn", "nnguide", "vim", "residual", "pca_error", "kpca_error"),
    *("neco", "pnml", "sirc", "plugin_bb"),
]

NEWER = (
    *("caref", "cadref", "nac", "weiper(repeats=10)", "grood", "cfood", "trust", "combood(of='penultimate')"),
    *(
        "gradorth",
        "graduncertainty",
        "joint_energy",
        "mcm",
        "neglabel",
        "optfs|energy",
        "adascale|energy",
        "pro",
        "iodin",
    ),
)
NEGATIVES = 10_000  # texts of no class, as many as NegLabel keeps


def world(n, seed):
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, WIDTH)).astype(np.float32)
    labels = rng.integers(0, CLASSES, n)
    features = np.maximum(centres[labels] + 1.2 * rng.normal(size=(n, WIDTH)).astype(np.float32), 0)
    head = Head(centres * 0.05, np.zeros(CLASSES, np.float32))
    wrong = rng.random(n) < 0.1
    truth = np.where(wrong, rng.integers(0, CLASSES, n), labels)
    return Outputs(head.logits(features).astype(np.float32), truth, features, head)


def forty(train, test):
    """Measure time and memory of forty scores, with a flat faiss search as the measure of time."""
    assert len(FORTY) == 40
    announce("fitting forty scores")
    start = time.perf_counter()
    chains = fit_all(FORTY, train)
    fitting = time.perf_counter() - start
    contenders = {"ours": lambda: score_all(chains, test)}
    search = faiss_search(train, test)
    if search is not None:
        contenders["faiss"] = search
    least = best(contenders, 3)
    announce("memory of forty scores")
    tracemalloc.start()
    score_all(chains, test)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    case = "40 scores, 50k / 10k x 512, C = 100"
    rows = [row(case, "peak memory / test features", peak / np.asarray(test.features).nbytes, "x", "<= 3")]
    if search is not None:
        rows.append(row(case, "scoring / flat faiss knn", least["ours"] / least["faiss"], "x", "<= 3"))
        rows.append(row(case, "fitting all / flat faiss knn", fitting / least["faiss"], "x", "-"))
    return rows


def newer(train, test):
    """Measure what each newer score costs, with our own neighbour search of the same rows as the measure."""
    train, few = recorded(train, 3), recorded(test[:1000], 4)
    arrays = {"neglabel": {"negatives": np.random.default_rng(5).normal(size=(NEGATIVES, WIDTH))}}
    knn = scorer("knn(k=50)").fit(train)
    rows = []
    for spec in NEWER:
        announce(f"cost of {spec}")
        chain = scorer(spec, **arrays.get(spec, {})).fit(train)
        least = best({"knn": lambda: knn.score(few), "own": lambda: chain.score(few)}, 3)  # noqa: B023
        rows.append(row(f"{spec}, 1k rows", "scoring / knn", least["own"] / least["knn"], "x", "-"))
    return rows


def recorded(outputs, seed):
    """Add what extraction records for the newer scores: features of perturbed inputs and values of the network."""
    rng = np.random.default_rng(seed)
    moved = np.asarray(outputs.features) * rng.uniform(0.8, 1.2, outputs.features.shape).astype(np.float32)
    learned = {name: rng.normal(size=len(outputs)) for name in ("pro/msp", "iodin")}
    return outputs.replace(layers={"penultimate/perturbed": moved}, learned=learned)


def faiss_search(train, test):
    try:
        import faiss
    except ImportError:
        return None
    index = faiss.IndexFlatIP(WIDTH)
    index.add(unit(np.asarray(train.features)))
    queries = unit(np.asarray(test.features))
    return lambda: index.search(queries, 50)


def neighbours(train, test):
    from sklearn.neighbors import NearestNeighbors

    announce("searching neighbours")
    knn = scorer("knn(k=50)").fit(train)
    brute = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(unit(np.asarray(train.features)))
    queries = unit(np.asarray(test.features))
    contenders = {"ours": lambda: knn.score(test), "scikit-learn": lambda: brute.kneighbors(queries)}
    search = faiss_search(train, test)
    if search is not None:
        contenders["faiss"] = search
    least = best(contenders, 3)
    case = "knn, 50k x 512, 10k queries, k = 50"
    rows = [row(case, "scikit-learn brute force / ours", least["scikit-learn"] / least["ours"], "x", ">= 1.5")]
    if search is not None:
        rows.append(row(case, "ours / flat faiss", least["ours"] / least["faiss"], "x", "<= 1.1"))
    return rows


def mahalanobis(train, test):
    """Compare with the quadratic form of every class, on 1,000 rows."""
    announce("Mahalanobis distances")
    few = test[:1000]
    chain = scorer("mds").fit(train)
    h, labels = np.asarray(train.features, np.float64), np.asarray(train.labels)
    means = np.stack([h[labels == c].mean(axis=0) for c in range(CLASSES)])
    away = h - means[labels]
    precision = np.linalg.inv(away.T @ away / len(h))
    x = np.asarray(few.features, np.float64)

    def plain():
        forms = [np.einsum("nd,nd->n", (x - m) @ precision, x - m) for m in means]
        return -np.min(forms, axis=0)

    assert np.allclose(plain(), chain.score(few), rtol=1e-6)
    least = best({"plain": plain, "ours": lambda: chain.score(few)}, 5)
    return [
        row("mds, C = 100, D = 512", "per-class quadratic form / ours", least["plain"] / least["ours"], "x", ">= 100")
    ]


def closed_forms(train, test):
    """Compare with what the equation says literally, on 200 rows."""
    announce("closed forms")
    few = test[:200]
    h, z = np.asarray(few.features, np.float64), np.asarray(few.logits, np.float64)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    head = few.head
    w, b = np.asarray(head.weight, np.float64), np.asarray(head.bias, np.float64)
    rows = []

    klm = scorer("klm").fit(train)
    typical = np.exp(klm.steps[0].instance.log_typical)
    rows.append(
        pair(
            "klm",
            "one divergence for each pair",
            lambda: -np.array([[(q * np.log(q / d)).sum() for d in typical] for q in p]).min(axis=1),
            lambda: klm.score(few),
        )
    )

    dice = scorer("dice|energy").fit(train)
    masked = dice.steps[0].instance.weight
    rows.append(
        pair(
            "dice|energy",
            "tensor of all contributions",
            lambda: energy((h[:, None, :] * masked[None]).sum(axis=2) + b),
            lambda: dice.score(few),
        )
    )

    def gradient():
        return np.array([np.abs(np.outer(q - 1 / CLASSES, x)).sum() for q, x in zip(p, h, strict=True)])

    rows.append(pair("gradnorm", "gradient of every weight", gradient, lambda: distance.gradnorm(h, z)))

    def second_head():
        factor = transforms.scale(h, z, head)["features"]
        return energy(factor @ w.T + b)

    chain = scorer("scale|energy")
    rows.append(pair("scale|energy", "a second pass through the head", second_head, lambda: chain.score(few)))

    maps = np.abs(np.random.default_rng(0).normal(size=(50, 128, 64)))

    def matrices():
        powered = maps**3
        return np.sum(powered @ powered.transpose(0, 2, 1), axis=2) ** (1 / 3)

    rows.append(pair("gram, 128 channels x 64", "Gram matrices", matrices, lambda: layers.gram_rows(maps, 3)))
    return rows


def energy(z):
    top = z.max(axis=1)
    return top + np.log(np.exp(z - top[:, None]).sum(axis=1))


def pair(case, what, plain, ours):
    assert np.allclose(plain(), ours(), rtol=1e-4), case
    least = best({"plain": plain, "ours": ours}, 5)
    return row(case, f"{what} / closed form", least["plain"] / least["ours"], "x", "one product")


PARTS = {
    "forty": (forty,),
    "neighbours": (neighbours,),
    "closed": (mahalanobis, closed_forms),
    "newer": (newer,),
}


def chosen_part():
    """Return the part that --part names; None measures all."""
    if "--part" not in sys.argv:
        return None
    place = sys.argv.index("--part") + 1
    if place == len(sys.argv) or sys.argv[place] not in PARTS:
        sys.exit(f"--part must be one of {', '.join(PARTS)}")
    return sys.argv[place]


def main():
    part = chosen_part()
    announce("simulating the rows")
    train, test = world(TRAIN, 1), world(TEST, 2)
    rows = []
    for name, measures in PARTS.items():
        if part in (None, name):
            for measure in measures:
                rows += measure(train, test)
    finish("scores", rows, options="" if part is None else f" --part {part}")


if __name__ == "__main__":
    main()
