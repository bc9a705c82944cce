"""The tiny study, its data, and a folder where it ran to its end."""

import numpy as np
import pytest
from tiny_study import ROLES, ROWS, TEXT

from twofold.bench.results import Results
from twofold.study import loads, run


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """Noise around one colour for each class, in npz files."""
    folder = tmp_path_factory.mktemp("data")
    colours = np.random.default_rng(9).integers(30, 226, (6, 1, 1, 3))
    for seed, (name, rows) in enumerate(ROWS.items()):
        kinds = np.arange(rows) % 4 if name not in ROLES else np.full(rows, 4 + (name == "noise"))
        noise = 40 * np.random.default_rng(seed).normal(size=(rows, 32, 32, 3))
        pixels = np.clip(colours[kinds] + noise, 0, 255).astype(np.uint8)
        np.savez(folder / f"{name}.npz", images=pixels, labels=kinds % 4)
    return folder


@pytest.fixture(scope="session")
def study():
    return loads(TEXT)


@pytest.fixture(scope="session")
def whole(root, study, tmp_path_factory):
    """The tiny study, run to its end in two slices."""
    out = tmp_path_factory.mktemp("whole")
    first = run(study, out, only=["basic"], seeds=[0], root=root)
    assert first.finished == ("basic-s0",)
    assert len(Results.open(out)) > 0
    rest = run(study, out, root=root)
    assert rest.finished == ("aurc-s0", "basic-s1", "aurc-s1")
    assert rest.left == ()
    return out
