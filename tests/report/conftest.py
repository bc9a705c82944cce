"""The page that several tests look at."""

import numpy as np
import pytest
from example import EVIL, world, write

from twofold.bench.results import Results


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A run whose model, classes and ids hold markup."""
    folder = tmp_path_factory.mktemp("report") / "a run & <more>"
    return write(folder, world(), model=f"net{EVIL}", command="made here")


@pytest.fixture(scope="session")
def page(run, tmp_path_factory):
    """Its page, with images."""
    from twofold.report import report

    rng = np.random.default_rng(1)
    images = {"test": rng.random((300, 8, 8)), "strange": rng.integers(0, 255, (150, 8, 8, 3), dtype=np.uint8)}
    return report(run, tmp_path_factory.mktemp("page") / "report.html", images=images, resamples=20)


@pytest.fixture
def results(tmp_path):
    """Three methods on four data sets, two models and two seeds, and one that could not be scored."""
    rng = np.random.default_rng(0)
    rows = [
        {"benchmark": "b", "model": model, "run": f"{model}-{seed}", "seed": seed, "score": score, "shift": shift}
        | {"role": role, "protocol": "fd_shifts", "metric": "aurc", "value": base + 0.01 * rng.random()}
        for score, base in (("msp", 0.3), (f"knn{EVIL}", 0.1), ("mds", 0.2))
        for model in ("resnet", "vit")
        for seed in (0, 1)
        for shift, role in (("svhn", "far"), ("lsun", "far"), ("cifar", "near"), ("tin", "near"))
    ]
    rows.append({"score": "odd", "value": float("nan"), "reason": "needs <passes>", "protocol": "fd_shifts"})
    return Results.of(rows).save(tmp_path / "results")
