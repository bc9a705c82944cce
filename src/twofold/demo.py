"""Run the embedded example: a small classifier of digits, judged on what it knows and on what it does not.

scikit-learn's bundled digits are 8x8 images. The classifier learns the digits 0 to 6; the digits 7 to 9 are near OOD
(the same kind of image, classes it never saw) and patches of scikit-learn's two bundled photographs, shrunk to 8x8, are
far OOD. Nothing is downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold._checks import Array, Labels
from twofold._defaults import DEFAULT_ID, DEFAULT_OOD
from twofold._files import is_temporary
from twofold.errors import RunError
from twofold.outputs import Head, Outputs
from twofold.report import JOINT, joint_table
from twofold.run import Run
from twofold.scores.chain import fit_all
from twofold.scores.pairs import Recommendation, choose_pairs
from twofold.scores.scoring import score_all
from twofold.stats import Interval

MODEL = "twofold demo: MLPClassifier on digits 0-6"
KNOWN = 7  # digits below are ID
HIDDEN, EPOCHS, TRAIN, VAL = 64, 60, 150, 200
PATCH, PATCHES = 64, 400
UNKNOWN = {"near": "other_digits", "far": "photographs"}  # data sets by role
PLAIN = ((DEFAULT_ID, DEFAULT_ID), (DEFAULT_ID, DEFAULT_OOD))  # what everybody tries first
BEST = 3  # pairs recommended beside them

Report = Callable[[str], object]
LabelledRows = tuple[Array, Labels]


@dataclass(frozen=True)
class Row:
    """Hold one row of the demo's table.

    Parameters
    ----------
    ood_set : str
        ``"near"`` or ``"far"``.
    id_score, ood_score : str
        The pair of scores.
    values : dict of str to Interval
        The metrics of :func:`twofold.report.joint_table`.
    """

    ood_set: str
    id_score: str
    ood_score: str
    values: dict[str, Interval]


def steps() -> int:
    """Estimate how many times :func:`demo` reports progress.

    Returns
    -------
    int
        The total for a progress bar.
    """
    return EPOCHS + 24 + 2 * (len(PLAIN) + BEST) * len(JOINT)


def demo(
    path: str | Path, *, resamples: int = 1000, seed: int = 0, done: Report = lambda _: None
) -> tuple[list[Row], Recommendation]:
    """Train a small classifier, write its run, choose the best pairs of scores, and judge them on near and far OOD.

    Pairs are chosen by :func:`twofold.scores.pairs.choose_pairs`, as the report chooses them, on validation digits
    and on a third of the unknown inputs of both kinds; the tables are made from the rest.

    Parameters
    ----------
    path : str or Path
        Folder of the run. The run of an earlier demo is replaced.
    resamples : int, default=1000
        Number of bootstrap resamples.
    seed : int, default=0
        Seed of the split, the training and the resampling.
    done : callable, optional
        Called with the name of each finished step.

    Returns
    -------
    tuple of (list of Row, Recommendation)
        The table, and how the pairs were chosen.

    Raises
    ------
    RunError
        If the folder holds another run, or files that no demo wrote.
    """
    _remove_earlier_demo(Path(path))
    run = _write_run(Path(path), _split(seed), seed, done)
    chosen = choose_pairs(run, show=BEST, n=resamples, seed=seed, done=done)
    pairs = list(PLAIN)
    for best in chosen.pairs:
        if (best.id_score, best.ood_score) not in pairs:
            pairs.append((best.id_score, best.ood_score))
    specs = sorted({spec for pair in pairs for spec in pair})
    chains = fit_all(specs, run["train"], val=run["val"])
    rows = []
    for name in ("near", "far"):
        outputs = Outputs.concat([run["test"], run[UNKNOWN[name]]])
        scores = dict(zip(specs, score_all(chains, outputs), strict=True))
        for id_score, ood_score in pairs:
            label = f"{name}: {id_score} + {ood_score}"
            values = joint_table(
                outputs.correct,
                scores[id_score],
                scores[ood_score],
                outputs.is_id,
                n=resamples,
                seed=seed,
                done=lambda label=label: done(label),  # type: ignore[misc]
            )
            rows.append(Row(name, id_score, ood_score, values))
    return rows, chosen


def _remove_earlier_demo(path: Path) -> None:
    """Remove the run of an earlier demo; a folder with anything else in it is left alone."""
    if not (path / "run.json").exists():
        return
    earlier = Run.open(path)
    if earlier.provenance.get("model") != MODEL:
        raise RunError(f"{path} holds another run; choose another folder with --out")
    own = {"run.json", "run.lock", "head.safetensors"}
    own.update(f"{name}.safetensors" for name in earlier.names())
    for entry in sorted(path.iterdir()):
        if entry.name not in own and not is_temporary(entry.name):
            raise RunError(f"{path} also holds {entry.name}, which no demo wrote; choose another folder with --out")
    shutil.rmtree(path)


def _split(seed: int) -> dict[str, LabelledRows]:
    """Split images in [0, 1], as rows with labels, by role."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    known = rng.permutation(np.flatnonzero(labels < KNOWN))
    train, val, test = np.split(known, [TRAIN, TRAIN + VAL])
    split = {}
    for role, rows in (("train", train), ("val", val), ("test", test)):
        split[role] = images[rows] / 16.0, labels[rows]
    unknown_digits = images[labels >= KNOWN] / 16.0
    patches = _cut_patches(rng)
    # a third of each kind is there to choose on; the tables never see it
    digits_to_choose = rng.permutation(len(unknown_digits)) % 3 == 0
    patches_to_choose = rng.permutation(len(patches)) % 3 == 0
    unknown = {
        "near": unknown_digits[~digits_to_choose],
        "far": patches[~patches_to_choose],
        "ood_val": np.concatenate([unknown_digits[digits_to_choose], patches[patches_to_choose]]),
    }
    for role, inputs in unknown.items():
        split[role] = inputs, np.full(len(inputs), -1)
    return split


def _cut_patches(rng: np.random.Generator) -> Array:
    """Cut square pieces from the two photographs, in grey, averaged down to 8x8."""
    from sklearn.datasets import load_sample_images

    photos = [photo.mean(axis=2) / 255.0 for photo in load_sample_images().images]
    cell = PATCH // 8
    patches = []
    for i in range(PATCHES):
        photo = photos[i % len(photos)]
        top = int(rng.integers(photo.shape[0] - PATCH + 1))
        left = int(rng.integers(photo.shape[1] - PATCH + 1))
        piece = photo[top : top + PATCH, left : left + PATCH]
        patches.append(piece.reshape(8, cell, 8, cell).mean(axis=(1, 3)).ravel())
    return np.stack(patches)


def _write_run(path: Path, split: dict[str, LabelledRows], seed: int, done: Report) -> Run:
    """Train on the training digits, and store the outputs of the classifier on every set."""
    from sklearn.neural_network import MLPClassifier

    images, labels = split["train"]
    model = MLPClassifier((HIDDEN,), batch_size=32, random_state=seed)
    for epoch in range(EPOCHS):
        model.partial_fit(images, labels, classes=np.arange(KNOWN))
        done(f"training, epoch {epoch + 1}")
    (inner, outer), (inner_bias, outer_bias) = model.coefs_, model.intercepts_
    head = Head(outer.T, outer_bias)
    names = [f"digit {k}" for k in range(KNOWN)]
    run = Run.create(path, model=MODEL, class_names=names, command="twofold demo", seed=seed)
    for role, (inputs, truth) in split.items():
        features = np.maximum(inputs @ inner + inner_bias, 0.0)  # the hidden layer, input of the last one
        outputs = Outputs(head.logits(features), truth, features, head, class_names=names)
        run.add(UNKNOWN.get(role, role), outputs, role=role)
    return run
