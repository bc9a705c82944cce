"""Errors of every estimator of AURC on random batches of real test sets, for benchmarks/aurc_study.py.

The population is a whole test set of 10,000, and its AURC is the ``empirical`` one. Samples are random permutations of it,
cut into batches. An estimator weighs ranks, so batches are drawn once, as ranks, and serve all models. The bias needs no
batches: it follows exactly from the hypergeometric distribution of a sample's rank in its batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from script import announce, data_folder

import numpy as np

from twofold import metrics
from twofold._math import log_factorial, log_softmax, softmax
from twofold.metrics import aurc_weights
from twofold.outputs import Outputs
from twofold.scores.chain import scorer

Models = dict[str, tuple[np.ndarray, np.ndarray]]  # logits and labels
Risks = dict[tuple[str, str, str], np.ndarray]  # by model, loss and confidence function

ROWS = 10_000  # of every test set
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
LEAST_PERMUTATIONS, MOST_PERMUTATIONS = 64, 1000
ESTIMATORS = ("empirical", "log", "self_excluded", "sele", "2sele", "trapezoid", "continuous")
SHOWN = ESTIMATORS[:5]  # those of the paper, and the self-excluded one
LOSSES = ("0/1", "CE")
FUNCTIONS = {
    "msp": "msp",
    "entropy": "negative entropy",
    "mls": "maximum logit",
    "margin": "softmax margin",
    "maxlogit_pnorm": "maximum logit / l2 norm",
    "gini": "negative Gini",
}
FUNCTIONS_SIZE = 128  # the paper's batch size for comparing confidence functions
DETAILED = ("cifar10/resnet110", "cifar10/resnet50_ce", "cifar100/densenet_bc_100")
FILES = (
    "cifar10_real_logits.npz",
    "cifar10_real_logits.json",
    "logits_cifar10_resnet110.npz",
    "logits_cifar10_test_ensemble.npz",
    "probs_cifar100_test.npz",
)


@dataclass(frozen=True)
class Cell:
    """Hold the errors of one estimator on batches of one size; ``bias`` is exact, the rest is over random batches."""

    model: str
    loss: str
    function: str  # of confidence
    n: int  # samples of a batch
    estimator: str
    population: float
    bias: float
    std: float
    mse: float
    mae: float
    batches: int

    @property
    def rmse(self) -> float:
        return self.mse**0.5

    @property
    def relative_bias(self) -> float:
        return self.bias / self.population


@dataclass(frozen=True)
class Study:
    """Hold cells by (model, loss, function, n, estimator), and both forms of AURC on whole test sets."""

    cells: dict[tuple[str, str, str, int, str], Cell]
    forms: dict[tuple[str, str], tuple[float, float]]  # (model, loss): harmonic, log

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(model for model, _ in self.forms))

    def cell(self, model: str, loss: str, n: int, estimator: str) -> Cell:
        """Return a cell of the maximum softmax probability."""
        return self.cells[model, loss, "msp", n, estimator]

    def values(
        self, quantity: str, n: int, estimator: str, losses: tuple[str, ...] = LOSSES, function: str = "msp"
    ) -> np.ndarray:
        """Collect one quantity over losses and models, such as ``"bias"``."""
        found = []
        for loss in losses:
            for model in self.models:
                cell = self.cells.get((model, loss, function, n, estimator))
                if cell is not None:
                    found.append(getattr(cell, quantity))
        return np.array(found)

    def values_of_functions(self, quantity: str, estimator: str) -> np.ndarray:
        """Collect one quantity over models, losses and confidence functions, at the size for comparing functions."""
        found = []
        for cell in self.cells.values():
            if cell.n == FUNCTIONS_SIZE and cell.estimator == estimator:
                found.append(getattr(cell, quantity))
        return np.array(found)

    def median_share(self, quantity: str, n: int, estimator: str, loss: str, function: str = "msp") -> float:
        """Compute the median over models of a quantity, in percent of the population AURC."""
        values = self.values(quantity, n, estimator, (loss,), function)
        populations = self.values("population", n, estimator, (loss,), function)
        return 100 * float(np.median(values / populations))

    def count_wins(self, quantity: str, n: int, loss: str) -> np.ndarray:
        """Count for how many models each of the shown estimators has the least absolute value of a quantity."""
        table = np.abs([self.values(quantity, n, estimator, (loss,)) for estimator in SHOWN])
        return np.bincount(table.argmin(axis=0), minlength=len(SHOWN))


def compute_study() -> Study:
    """Compute the whole study."""
    models = load_models()
    announce(f"losses of {len(models)} classifiers")
    risks = sort_losses(models)
    check_published(models)
    return Study(measure(risks), compute_forms(risks))


# --- models and their losses ----------------------------------------------------------------------------------------


def load_models() -> Models:
    """Read logits and labels of each model; saved probabilities are read as their logarithms."""
    data = data_folder(*FILES)
    models = {}
    real = np.load(data / "cifar10_real_logits.npz")
    for key in sorted(real.files):
        if key.endswith("_test_logits"):
            name = key.removesuffix("_test_logits")
            models[f"cifar10/{name}"] = real[key], real[f"{name}_test_labels"]
    resnet110 = np.load(data / "logits_cifar10_resnet110.npz")  # the same network, so that it counts once
    assert np.array_equal(resnet110["test_logits"], models["cifar10/resnet110"][0])
    ensemble = np.load(data / "logits_cifar10_test_ensemble.npz")
    for key in sorted(ensemble.files):
        if key != "labels":
            models[f"cifar10/{key}"] = ensemble[key], ensemble["labels"]
    probabilities = np.load(data / "probs_cifar100_test.npz")
    for key in sorted(probabilities.files):
        if key != "labels":
            logits = np.log(probabilities[key].astype(np.float64))
            models[f"cifar100/{key}"] = logits, probabilities["labels"]
    return models


def sort_losses(models: Models) -> Risks:
    """Sort the losses of each model, from the least to the most confident sample of each confidence function.

    The maximum logit is left out where only probabilities are saved: up to a shift of each row it is not known.
    """
    risks = {}
    for model, (logits, labels) in models.items():
        outputs = Outputs(logits, labels.astype(int))
        losses = {
            "0/1": (~outputs.correct).astype(float),
            "CE": -log_softmax(logits)[np.arange(ROWS), outputs.labels],
        }
        for function in FUNCTIONS:
            if function == "mls" and model.startswith("cifar100/"):
                continue
            conf = scorer(function).score(outputs)
            # ties are rare, so their order does not matter
            assert len(np.unique(conf)) > 0.995 * ROWS, (model, function)
            order = np.argsort(conf, kind="stable")
            for loss, values in losses.items():
                risks[model, loss, function] = values[order]
    return risks


def check_published(models: Models) -> None:
    """Check the AURC published with the data: 0/1 loss, and CE of probabilities clipped to [1e-7, 1 - 1e-7]."""
    published = json.loads((data_folder() / "cifar10_real_logits.json").read_text())
    for model in published["models"]:
        logits, labels = models[f"cifar10/{model['key']}"]
        outputs = Outputs(logits, labels.astype(int))
        conf = scorer("msp").score(outputs)
        probability = np.clip(softmax(logits.astype(np.float64)), 1e-7, 1 - 1e-7)
        cross_entropy = -np.log(probability[np.arange(ROWS), outputs.labels])
        computed = metrics.aurc(outputs.correct, conf), metrics.aurc(outputs.correct, conf, loss=cross_entropy)
        expected = model["aurc01_x1e3"] / 1e3, model["aurcCE_x1e3"] / 1e3
        np.testing.assert_allclose(computed, expected, atol=1.5e-6)


# --- errors on batches ----------------------------------------------------------------------------------------------


def weigh_ranks(n: int) -> np.ndarray:
    """Compute the weight of each ascending rank in a batch, (n, estimators)."""
    return np.column_stack([aurc_weights(n, estimator) for estimator in ESTIMATORS])


def expect_weights(n: int) -> np.ndarray:
    """Compute the mean weight of the sample of each rank r in the population, over random batches that hold it.

    Of the n - 1 others in the batch, k are less confident with the hypergeometric chance
    C(r - 1, k) C(N - r, n - 1 - k) / C(N - 1, n - 1).

    Returns
    -------
    ndarray of shape (ROWS, estimators)
    """
    log_f = log_factorial(np.arange(ROWS + 1, dtype=float))
    weights = weigh_ranks(n)
    k = np.arange(n)
    mean = np.empty((ROWS, len(ESTIMATORS)))
    for first in range(0, ROWS, 1000):
        below = np.arange(first, first + 1000)[:, None]  # r - 1
        above = ROWS - 1 - below
        is_possible = (k <= below) & (n - 1 - k <= above)
        log_p = log_f[below] - log_f[k] - log_f[np.where(is_possible, below - k, 0)]
        log_p = log_p + log_f[above] - log_f[n - 1 - k] - log_f[np.where(is_possible, above - (n - 1 - k), 0)]
        log_p -= log_f[ROWS - 1] - log_f[n - 1] - log_f[ROWS - n]
        mean[first : first + 1000] = np.exp(np.where(is_possible, log_p, -np.inf)) @ weights
    return mean


def draw_batches(n: int) -> np.ndarray:
    """Draw the ranks in the population of each batch, ascending, (batches, n)."""
    generator = np.random.default_rng(n)
    permutations = max(LEAST_PERMUTATIONS, min(8 * n, MOST_PERMUTATIONS))
    used = ROWS // n * n
    shuffled = np.array([generator.permutation(ROWS)[:used] for _ in range(permutations)])
    return np.sort(shuffled.reshape(-1, n), axis=1)


def measure(risks: Risks) -> dict[tuple[str, str, str, int, str], Cell]:
    """Measure all cells: every size for the maximum softmax probability, the paper's size for the other functions."""
    cells = {}
    for n in SIZES:
        announce(f"batches of {n} samples")
        ranks = draw_batches(n)
        weights = weigh_ranks(n)
        expected_weights = expect_weights(n)
        for (model, loss, function), risk in risks.items():
            if function != "msp" and n != FUNCTIONS_SIZE:
                continue
            population = float(aurc_weights(ROWS) @ risk) / ROWS
            bias = risk @ expected_weights / ROWS - population
            estimates = risk[ranks] @ weights / n
            errors = estimates - population
            std = estimates.std(axis=0)
            mse = (errors**2).mean(axis=0)
            mae = np.abs(errors).mean(axis=0)
            for column, estimator in enumerate(ESTIMATORS):
                cells[model, loss, function, n, estimator] = Cell(
                    model,
                    loss,
                    function,
                    n,
                    estimator,
                    population,
                    bias=float(bias[column]),
                    std=float(std[column]),
                    mse=float(mse[column]),
                    mae=float(mae[column]),
                    batches=len(ranks),
                )
        check_weights(risks[DETAILED[0], "CE", "msp"][ranks[0]], weights)
    return cells


def check_weights(batch: np.ndarray, weights: np.ndarray) -> None:
    """Check on the losses of one batch that the weights are those of metrics.aurc."""
    n = len(batch)
    correct = np.ones(n, bool)
    conf = np.arange(n, dtype=float)
    expected = [metrics.aurc(correct, conf, loss=batch, estimator=estimator) for estimator in ESTIMATORS]
    np.testing.assert_allclose(batch @ weights / n, expected, rtol=1e-9)


def compute_forms(risks: Risks) -> dict[tuple[str, str], tuple[float, float]]:
    """Compute the harmonic and the log form of AURC on whole test sets, by model and loss."""
    weights = np.stack([aurc_weights(ROWS), aurc_weights(ROWS, "log")]) / ROWS
    forms = {}
    for (model, loss, function), risk in risks.items():
        if function == "msp":
            harmonic_form, log_form = weights @ risk
            forms[model, loss] = float(harmonic_form), float(log_form)
    return forms
