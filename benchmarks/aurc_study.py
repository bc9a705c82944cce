"""Measure how well AURC is estimated from few samples: bias, true MSE and MAE of every estimator on nineteen classifiers.

    TWOFOLD_DATA=... python benchmarks/aurc_study.py [--save]        (35 s of processor time)

The estimator study of Zhou et al. (ICML 2025, arXiv:2410.15361) on saved outputs. The population is the whole test set
of 10,000, its AURC the ``empirical`` one; samples are random permutations of it cut into batches. An estimator weighs
ranks, so batches are drawn once, as ranks, and serve all models; the bias needs no batches: it is exact, from the
hypergeometric distribution of a sample's rank in its batch. ``--save`` writes results/aurc_study.csv, .md and figures;
the page is made of the computed numbers, and a sentence that they do not bear out stops the script.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass
from itertools import pairwise

from script import announce, data_folder

import numpy as np

import twofold
from timing import RESULTS, said
from twofold import metrics
from twofold._math import harmonic, log_factorial, log_softmax, softmax
from twofold.metrics import aurc_weight_bias, aurc_weight_mse, aurc_weights
from twofold.outputs import Outputs
from twofold.plot.themes import COLOURS, DASHES, drawing_style
from twofold.scores.chain import scorer

COMMAND = "python benchmarks/aurc_study.py --save"
ROWS = 10_000  # of every test set
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
PERMUTATIONS = {n: max(64, min(8 * n, 1000)) for n in SIZES}
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
AT = 128  # the paper's batch size for comparing confidence functions
WEAK = "cifar100/lenet_5"  # correct in one of eight, and often wrong where it is confident
DETAILED = ("cifar10/resnet110", "cifar10/resnet50_ce", "cifar100/densenet_bc_100")


# --- the material ---------------------------------------------------------------------------------------------------


FILES = (
    "cifar10_real_logits.npz",
    "cifar10_real_logits.json",
    "logits_cifar10_resnet110.npz",
    "logits_cifar10_test_ensemble.npz",
    "probs_cifar100_test.npz",
)


def load():
    """Read logits and labels of each model; saved probabilities are read as their logarithms."""
    data = data_folder(*FILES)
    models = {}
    real = np.load(data / "cifar10_real_logits.npz")
    for key in sorted(k for k in real.files if k.endswith("_test_logits")):
        name = key.removesuffix("_test_logits")
        models[f"cifar10/{name}"] = real[key], real[f"{name}_test_labels"]
    again = np.load(data / "logits_cifar10_resnet110.npz")  # the same network, so that it counts once
    assert np.array_equal(again["test_logits"], models["cifar10/resnet110"][0])
    nets = np.load(data / "logits_cifar10_test_ensemble.npz")
    models |= {f"cifar10/{k}": (nets[k], nets["labels"]) for k in sorted(nets.files) if k != "labels"}
    probs = np.load(data / "probs_cifar100_test.npz")
    for key in sorted(k for k in probs.files if k != "labels"):
        models[f"cifar100/{key}"] = np.log(probs[key].astype(np.float64)), probs["labels"]
    return models


def risks(models):
    """Collect the losses of each model, loss and confidence function, from the least to the most confident sample.

    The maximum logit is left out where only probabilities are saved: up to a shift of each row it is not known.
    """
    found = {}
    for name, (logits, labels) in models.items():
        outputs = Outputs(logits, labels.astype(int))
        cost = {"0/1": (~outputs.correct).astype(float), "CE": -log_softmax(logits)[np.arange(ROWS), outputs.labels]}
        functions = [f for f in FUNCTIONS if f != "mls" or not name.startswith("cifar100/")]
        for function in functions:
            conf = scorer(function).score(outputs)
            assert len(np.unique(conf)) > 0.995 * ROWS, (
                name,
                function,
            )  # ties are rare, so their order does not matter
            order = np.argsort(conf, kind="stable")
            found |= {(name, loss, function): values[order] for loss, values in cost.items()}
    return found


# --- what is computed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """Hold one estimator on batches of one size; ``bias`` is exact, the rest is over ``batches`` random ones."""

    model: str
    loss: str
    function: str
    n: int
    estimator: str
    population: float
    bias: float
    std: float
    mse: float
    mae: float
    batches: int

    @property
    def rmse(self):
        return self.mse**0.5


def weights(n):
    """Weight of each ascending rank in a batch, (n, estimators)."""
    return np.column_stack([aurc_weights(n, e) for e in ESTIMATORS])


def expected_weights(n):
    """Compute the mean weight, over random batches that hold it, of the sample of each rank in the population, (rows, estimators).

    Of the n - 1 others in the batch k are less confident with the hypergeometric chance
    C(r - 1, k) C(N - r, n - 1 - k) / C(N - 1, n - 1).
    """
    log_f = log_factorial(np.arange(ROWS + 1, dtype=float))
    k, w = np.arange(n), weights(n)
    mean = np.empty((ROWS, len(ESTIMATORS)))
    for first in range(0, ROWS, 1000):
        below = np.arange(first, first + 1000)[:, None]  # r - 1
        above = ROWS - 1 - below
        fits = (k <= below) & (n - 1 - k <= above)
        log_p = log_f[below] - log_f[k] - log_f[np.where(fits, below - k, 0)]
        log_p = log_p + log_f[above] - log_f[n - 1 - k] - log_f[np.where(fits, above - (n - 1 - k), 0)]
        log_p -= log_f[ROWS - 1] - log_f[n - 1] - log_f[ROWS - n]
        mean[first : first + 1000] = np.exp(np.where(fits, log_p, -np.inf)) @ w
    return mean


def batches(n):
    """Draw the ranks in the population of each batch, ascending, (batches, n)."""
    rng = np.random.default_rng(n)
    shuffled = np.array([rng.permutation(ROWS)[: ROWS // n * n] for _ in range(PERMUTATIONS[n])])
    return np.sort(shuffled.reshape(-1, n), axis=1)


def measure(found):
    """Measure all cells: every size for the maximum softmax probability, the paper's size for the other functions."""
    cells = []
    for n in SIZES:
        announce(f"batches of {n} samples")
        ranks, w, mean = batches(n), weights(n), expected_weights(n)
        for (model, loss, function), risk in found.items():
            if function != "msp" and n != AT:
                continue
            population = float(aurc_weights(ROWS) @ risk) / ROWS
            bias = risk @ mean / ROWS - population
            values = risk[ranks] @ w / n
            wrong = values - population
            columns = zip(
                ESTIMATORS, bias, values.std(axis=0), (wrong**2).mean(axis=0), np.abs(wrong).mean(axis=0), strict=True
            )
            cells += [
                Cell(model, loss, function, n, e, population, *map(float, rest), len(ranks)) for e, *rest in columns
            ]
        check(found, ranks, w)
    return cells


def check(found, ranks, w):
    """Check that the weights are those of metrics.aurc: the first batch of a model agrees."""
    batch = found[DETAILED[0], "CE", "msp"][ranks[0]]
    conf = np.arange(len(batch), dtype=float)
    expected = [metrics.aurc(np.ones(len(batch), bool), conf, loss=batch, estimator=e) for e in ESTIMATORS]
    np.testing.assert_allclose(batch @ w / len(batch), expected, rtol=1e-9)


# --- what follows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """Hold cells by (model, loss, function, n, estimator), and both forms of AURC on whole test sets."""

    cells: dict[tuple[str, str, str, int, str], Cell]
    forms: dict[tuple[str, str], tuple[float, float]]  # (model, loss): harmonic, log

    @property
    def models(self):
        return list(dict.fromkeys(model for model, _ in self.forms))

    def column(self, loss, n, estimator, of, function="msp"):
        """Collect one quantity over models."""
        keys = [(m, loss, function, n, estimator) for m in self.models]
        return np.array([getattr(self.cells[k], of) for k in keys if k in self.cells])

    def winners(self, loss, n, of):
        """Count for how many models each of the shown estimators has the least of a quantity."""
        table = np.abs([self.column(loss, n, e, of) for e in SHOWN])
        return np.bincount(table.argmin(axis=0), minlength=len(SHOWN))

    def combinations(self):
        """List all (model, loss, function) measured at the size ``AT``."""
        return [key[:3] for key in self.cells if key[3:] == (AT, "empirical")]

    def at(self, key, estimator):
        return self.cells[(*key, AT, estimator)]


def study():
    """Compute the whole study."""
    models = load()
    announce(f"losses of {len(models)} classifiers")
    found = risks(models)
    anchors(models)
    cells = {(c.model, c.loss, c.function, c.n, c.estimator): c for c in measure(found)}
    both = np.stack([aurc_weights(ROWS), aurc_weights(ROWS, "log")]) / ROWS
    forms = {(m, loss): tuple(map(float, both @ risk)) for (m, loss, f), risk in found.items() if f == "msp"}
    return Study(cells, forms)


def anchors(models):
    """Yield the AURC published with the data: 0/1 loss, and CE of probabilities clipped to [1e-7, 1 - 1e-7]."""
    published = json.loads((data_folder() / "cifar10_real_logits.json").read_text())
    for model in published["models"]:
        logits, labels = models[f"cifar10/{model['key']}"]
        outputs = Outputs(logits, labels.astype(int))
        prob = np.clip(softmax(logits.astype(np.float64)), 1e-7, 1 - 1e-7)
        conf = scorer("msp").score(outputs)
        cost = -np.log(prob[np.arange(ROWS), outputs.labels])
        values = metrics.aurc(outputs.correct, conf), metrics.aurc(outputs.correct, conf, loss=cost)
        np.testing.assert_allclose(values, (model["aurc01_x1e3"] / 1e3, model["aurcCE_x1e3"] / 1e3), atol=1.5e-6)


# --- the page -------------------------------------------------------------------------------------------------------


def detail_table(s):
    yield "| model | loss | n | " + " | ".join(SHOWN) + " |"
    yield "|---" * (3 + len(SHOWN)) + "|"
    for model in DETAILED:
        for loss in LOSSES:
            for n in (8, 32, 128, 1024):
                cells = [s.cells[model, loss, "msp", n, e] for e in SHOWN]
                population = f"{1000 * cells[0].population:.2f}"
                name = f"`{model}`, AURC {population}" if n == 8 else ""
                numbers = [f"{1000 * c.bias:+.2f} / {1000 * c.rmse:.1f} / {1000 * c.mae:.1f}" for c in cells]
                yield f"| {name} | {loss} | {n} | " + " | ".join(numbers) + " |"


def winner_table(s):
    yield "| loss | n | least absolute bias | least RMSE | least MAE |"
    yield "|---|---|---|---|---|"
    for loss in LOSSES:
        for n in SIZES:
            cells = [" / ".join(map(str, s.winners(loss, n, of))) for of in ("bias", "mse", "mae")]
            yield f"| {loss} | {n} | " + " | ".join(cells) + " |"


def relative(s, loss, n, estimator, of, function="msp"):
    """Compute the median over models of a quantity in percent of the population AURC."""
    share = s.column(loss, n, estimator, of, function) / s.column(loss, n, estimator, "population", function)
    return 100 * float(np.median(share))


def function_table(s):
    yield "| confidence | loss | " + " | ".join(SHOWN) + " |"
    yield "|---" * (2 + len(SHOWN)) + "|"
    for function, name in FUNCTIONS.items():
        for loss in LOSSES:
            pairs = [
                (relative(s, loss, AT, e, "bias", function), relative(s, loss, AT, e, "rmse", function)) for e in SHOWN
            ]
            yield f"| {name} | {loss} | " + " | ".join(f"{b:+.1f} / {r:.0f}" for b, r in pairs) + " |"


def form_table(s):
    yield "| model | 0/1: harmonic | log | difference | CE: harmonic | log | difference |"
    yield "|---" * 7 + "|"
    for model in s.models:
        cells = []
        for loss in LOSSES:
            first, second = s.forms[model, loss]
            cells += [f"{1000 * first:.3f}", f"{1000 * second:.3f}", f"{100 * (second / first - 1):+.3f} %"]
        yield f"| `{model}` | " + " | ".join(cells) + " |"


def confirmed(s):
    """Yield the claims of the paper that hold here."""
    pairs = [(m, loss) for loss in LOSSES for m in s.models]

    def of(m, loss, n, e):
        return s.cells[m, loss, "msp", n, e]

    yield said(
        "- **The log plug-in never exceeds the harmonic one** (Figure 3). Every weight is smaller, so this holds in every "
        "batch.",
        all((aurc_weights(n, "log") < aurc_weights(n)).all() for n in SIZES),
    )
    shrinks = [
        abs(of(m, x, 2 * n, "empirical").bias) < abs(of(m, x, n, "empirical").bias)
        for m, x in pairs
        for n in SIZES[:-1]
    ]
    yield said(
        "- **The harmonic plug-in converges to the population value.** Its bias falls at every doubling of n for all "
        f"{len(pairs)} pairs of model and loss.",
        all(shrinks),
    )
    keys = s.combinations()
    low = sum(s.at(k, "sele").bias < 0 for k in keys)
    high = sum(s.at(k, "2sele").bias > 0 for k in keys)
    yield said(
        f"- **SELE is too low and 2 x SELE too high.** At n = {AT}, SELE is too low for {low} of {len(keys)} combinations of model, "
        f"loss and confidence function, and 2 x SELE too high for {high}: mostly, not always, as the paper says.",
        low == len(keys) and 0.9 * len(keys) < high < len(keys),
    )
    less = sum(
        max(abs(s.at(k, e).bias) for e in ("empirical", "log")) < min(abs(s.at(k, e).bias) for e in ("sele", "2sele"))
        for k in keys
    )
    yield said(
        f"- **Both plug-ins are less biased than SELE and 2 x SELE**, at n = {AT} for {less} of {len(keys)} combinations ("
        "Figure 6).",
        less > 0.9 * len(keys),
    )
    yield said(
        "- **The log plug-in has the smaller error of the two, although its weights have the larger one** (text under Figure 5, "
        "whose last symbol must be the other estimator's). By true MSE this holds for all models, losses and sizes.",
        all(of(m, x, n, "log").mse < of(m, x, n, "empirical").mse for m, x in pairs for n in SIZES)
        and all((aurc_weight_mse(n, "log") >= aurc_weight_mse(n)).all() for n in SIZES),
    )
    grid = [(m, n) for m in s.models for n in SIZES]
    wide = sum(of(m, "0/1", n, "empirical").std < of(m, "CE", n, "empirical").std for m, n in grid)
    share = sum(spread(of(m, "0/1", n, "empirical")) < spread(of(m, "CE", n, "empirical")) for m, n in grid)
    yield said(
        f"- **The 0/1 loss has the smaller variance**: in {wide} of {len(grid)} cases, and in {share} also relative to AURC.",
        wide == len(grid) and share > 0.75 * len(grid),
    )
    across = {x: [relative(s, x, AT, "empirical", "rmse", f) for f in FUNCTIONS] for x in LOSSES}
    yield said(
        f"- **The loss matters more than the confidence function.** The median RMSE of the harmonic plug-in at n = {AT} is "
        f"{min(across['0/1']):.0f} to {max(across['0/1']):.0f} % of AURC over the functions with 0/1 loss and "
        f"{min(across['CE']):.0f} to {max(across['CE']):.0f} % with CE.",
        max(across["0/1"]) < min(across["CE"]),
    )
    gaps = [1 - second / first for first, second in s.forms.values()]
    yield said(
        "- **Harmonic and log form agree in practice on whole test sets** (Figure S7). They differ by "
        f"{100 * min(gaps):.3f} to {100 * max(gaps):.3f} %.",
        min(gaps) > 0 and max(gaps) < 0.002,
    )


def spread(cell):
    return cell.std / cell.population


def refuted(s):
    """Yield the claims of the paper that do not hold here, and what holds instead."""
    pairs = [(m, loss) for loss in LOSSES for m in s.models]

    def of(m, loss, n, e):
        return s.cells[m, loss, "msp", n, e]

    def better(n, a, b, quantity="mse"):
        return sum(getattr(of(m, x, n, a), quantity) < getattr(of(m, x, n, b), quantity) for m, x in pairs)

    share = np.median([of(m, x, AT, "empirical").bias ** 2 / of(m, x, AT, "empirical").mse for m, x in pairs])
    yield said(
        "- **The plots named MSE and MAE show squared and absolute bias**, which is what the released code computes. At n = "
        f"{AT}, the squared bias is {100 * share:.1f} % of the true MSE of the harmonic plug-in (median).",
        share < 0.05,
    )
    won = [better(n, "sele", "log") for n in (32, AT, 1024)]
    yield said(
        f"- **Both plug-ins do better than SELE**: false by true MSE. SELE beats both of them for {won[0]}, {won[1]} "
        f"and {won[2]} of {len(pairs)} pairs of model and loss at n = 32, {AT} and 1024. That is shrinkage, not a better "
        f"estimate: on the one weak model, `{WEAK}`, SELE is {-100 * of(WEAK, '0/1', 1024, 'sele').bias / of(WEAK, '0/1', 1024, 'sele').population:.0f}"
        " % too low even at n = 1024.",
        won[0] > 30
        and won[1] > 25
        and won[2] > len(pairs) / 2
        and of(WEAK, "0/1", 1024, "sele").bias < 0
        and better(AT, "sele", "log", "std") == len(pairs),
    )
    small = {x: int((s.column(x, 8, "sele", "bias") < 0).sum()) for x in LOSSES}
    yield said(
        f"- **SELE is a lower bound**: of the harmonic plug-in, but not of the population value. At n = 8 it is too low for only "
        f"{small['0/1']} (0/1) and {small['CE']} (CE) of {len(s.models)} models.",
        max(small.values()) < len(s.models) / 4,
    )
    scaled = np.array(
        [[of(m, x, n, "empirical").std * (n / (1 - n / ROWS)) ** 0.5 for n in (AT, 1024)] for m, x in pairs]
    )
    change = 100 * (scaled[:, 1] / scaled[:, 0] - 1)
    rate = 100 * ((np.log(1024) / np.log(AT)) ** 0.5 - 1)
    yield said(
        "- **The rate $\\sqrt{\\ln n / n}$** is an upper bound that is not attained. From n = "
        f"{AT} to 1024, $\\sqrt{{n}}$ times the standard deviation (corrected for the finite test set) changes by "
        f"{change.min():+.1f} to {change.max():+.1f} %, where that rate would add {rate:.0f} %. The rate is $1 / \\sqrt{{n}}$.",
        np.abs(change).max() < rate / 3,
    )
    same = sum(second < first for first, second in s.forms.values())
    yield said(
        f"- **Figure S7's t-test (p = 0.998)** does not show equality. Paired, the log form is smaller in {same} of "
        f"{len(s.forms)} cases, by little.",
        same == len(s.forms),
    )
    top = float(aurc_weight_mse(1024)[-1])
    yield said(
        "- **The MSE of a weight has the order $\\beta / (n (1 - \\beta) + 1)$.** The order is right, its constant is not: at "
        f"the most confident of 1,024 samples the error is {top:.2f}, and the formula gives {paper_order(1024)[-1]:.2f}. The mean "
        "over ranks is exactly $H_n / n$.",
        top > 3 * paper_order(1024)[-1]
        and all(np.isclose(aurc_weight_mse(n).mean(), float(harmonic(float(n))) / n) for n in SIZES),
    )
    grows = sum(any(of(m, x, b, "sele").mae > of(m, x, a, "sele").mae for a, b in pairwise(SIZES)) for m, x in pairs)
    drifts = sum(
        any(abs(of(m, x, b, "sele").bias) > abs(of(m, x, a, "sele").bias) for a, b in pairwise(SIZES)) for m, x in pairs
    )
    yield said(
        f"- **SELE's MAE can grow with n.** The true MAE does so for {grows} of {len(pairs)} pairs; for the others it falls "
        f"with n at every step. The absolute bias grows at some step for {drifts}.",
        0 < grows < len(pairs) / 2 < drifts,
    )


def self_excluded(s):
    """Describe the estimator that is not in the paper."""
    pairs = [(m, loss) for loss in LOSSES for m in s.models]

    def of(m, loss, n, e):
        return s.cells[m, loss, "msp", n, e]

    low, high = AT, 1024
    least = {x: [int(s.winners(x, n, "bias")[SHOWN.index("self_excluded")]) for n in SIZES] for x in LOSSES}
    shift = [abs(of(m, x, AT, "self_excluded").bias) / of(m, x, AT, "self_excluded").population for m, x in pairs]
    whole = [of(m, x, AT, "empirical").bias / of(m, x, AT, "empirical").population for m, x in pairs]
    first = said(
        f"It has the least bias of the five for {min(least['0/1'])} to {max(least['0/1'])} of {len(s.models)} models with "
        f"0/1 loss and {min(least['CE'])} to {max(least['CE'])} with CE, over all sizes. At n = {AT} its bias is at most "
        f"{100 * max(shift):.1f} % of AURC; that of the harmonic plug-in is {100 * min(whole):.1f} to {100 * max(whole):.1f} %.",
        min(least["0/1"] + least["CE"]) > 0.8 * len(s.models) and max(shift) < 0.005 < max(whole),
    )
    beats = {
        e: [sum(of(m, x, n, "self_excluded").mse < of(m, x, n, e).mse for m, x in pairs) for n in (8, low, high)]
        for e in ("empirical", "log")
    }
    second = said(
        f"By true MSE it beats the harmonic plug-in for {beats['empirical'][0]}, {beats['empirical'][1]} and "
        f"{beats['empirical'][2]} of {len(pairs)} pairs at n = 8, {low} and {high}, and the log plug-in for "
        f"{beats['log'][0]}, {beats['log'][1]} and {beats['log'][2]}.",
        min(beats["empirical"]) > 0.9 * len(pairs) and min(beats["log"]) > 0.6 * len(pairs),
    )
    weak = of(WEAK, "0/1", 8, "self_excluded"), of(WEAK, "0/1", 8, "empirical")
    third = said(
        f"No estimator is best everywhere: on `{WEAK}`, whose confident predictions are also wrong, its bias at n = 8 is "
        f"{1000 * weak[0].bias:+.1f} (x1000), and that of the harmonic plug-in {1000 * weak[1].bias:+.1f}.",
        abs(weak[0].bias) > abs(weak[1].bias) and weak[0].population > 0.5,
    )
    return f"{first} {second} {third}"


def paper_order(n):
    """Compute the paper's Eq. 24 at beta = r / (n + 1)."""
    beta = np.arange(1, n + 1) / (n + 1)
    return beta / (n * (1 - beta) + 1)


MISPRINTS = """\
These errors of the paper do not change its conclusions. They are corrected here:

- Eq. 12 lacks a factor 1/n in the middle, and Eq. 36 lacks it on both sums.
- Eqs. 21, 22 and 28 use one index for two things, and Eq. 28 names the wrong estimator.
- The small term in the third line of Eq. 27 should be $-\\beta / ((1 - \\beta)(n + 1))$.
- Eq. 25 writes a sample mean as an expectation.
- The log form needs a confidence without ties.
- Table S2 has z log z instead of p log p, and the norm of z instead of the maximum logit over that norm.

The released code differs from the paper:

- It has five confidence functions, not six: its l2 norm is that of the probabilities, and ranks like the negative Gini score.
- It computes the negative entropy from clamped logits.
- It does not shuffle the batches of ImageNet and Amazon.
- It clips probabilities at 1e-7 for CE.

Here, all six functions are as defined and ranked in double precision, batches are random, and CE is exact."""


def page(s):
    """Write the page."""
    count = f"{min(c.batches for c in s.cells.values()):,} to {max(c.batches for c in s.cells.values()):,}"
    return "\n".join(
        [
            "# Estimating AURC from few samples",
            "",
            f"How well can AURC be estimated from a batch? This page tests the claims of Zhou et al. (ICML 2025) on {len(s.models)} "
            "real classifiers on CIFAR-10 and CIFAR-100. "
            f"`{COMMAND}` writes it (with `$TWOFOLD_DATA` set; twofold {twofold.__version__}).",
            "",
            f"- **Method.** Test sets of 10,000 are the populations; {count} random batches of each size are drawn. Bias is exact "
            "(hypergeometric). RMSE and MAE are those of single estimates, so they include the variance.",
            "- **Estimators.** `empirical` has harmonic weights (the harmonic plug-in). `log`, `sele` and `2sele` are as in the "
            "paper. `self_excluded` is harmonic without the sample itself. `expected` equals `empirical` without ties.",
            "- **Units.** Numbers are x1000 unless in percent. `aurc_study.csv` has every model and size, and also `trapezoid` "
            "and `continuous`.",
            "",
            "## Which claims hold",
            "",
            "Confirmed:",
            "",
            *confirmed(s),
            "",
            "Not confirmed, or only in part:",
            "",
            *refuted(s),
            "",
            "## The self-excluded estimator",
            "",
            self_excluded(s),
            "",
            "## Errors in the paper and its code",
            "",
            MISPRINTS,
            "",
            "## Bias / RMSE / MAE against batch size",
            "",
            "The confidence is the maximum softmax probability.",
            "",
            *detail_table(s),
            "",
            "![bias, RMSE and MAE against batch size](aurc_study_error.png)",
            "",
            f"## For how many of the {len(s.models)} models each estimator is best",
            "",
            f"Each cell counts models in the order {' / '.join(SHOWN)}.",
            "",
            *winner_table(s),
            "",
            f"## Six confidence functions, n = {AT}",
            "",
            "Bias / RMSE in percent of the population AURC, medians over models. The maximum logit is without the three models "
            "that saved probabilities only.",
            "",
            *function_table(s),
            "",
            "## Weights",
            "",
            "The first figure shows the bias of a weight, given the quantile of the sample (Figures 1 and S8 of the paper). The "
            "second shows the mean squared error of a weight, given the rank, beside the paper's order (Figure 2).",
            "",
            "![bias of the weights](aurc_study_weight_bias.png)",
            "",
            "![mean squared error of the weights](aurc_study_weight_mse.png)",
            "",
            "## Harmonic against log form on whole test sets",
            "",
            *form_table(s),
            "",
            "![harmonic against log form](aurc_study_forms.png)",
            "",
        ]
    )


# --- figures --------------------------------------------------------------------------------------------------------

LOOK = {e: {"color": COLOURS[i], "linestyle": DASHES[i], "linewidth": 1.2, "label": e} for i, e in enumerate(SHOWN)}


def drawing(rows, columns, width, height, **options):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def saved(figure, name):
    """Save a PNG of 64 colours, which is all these lines need and a third of the size."""
    from PIL import Image

    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=110)
        Image.open(file).convert("RGB").quantize(64).save(RESULTS / f"aurc_study_{name}.png", optimize=True)


def draw_error(s):
    """Draw bias, RMSE and MAE in percent of AURC against batch size, by model and loss."""
    cases = [(m, loss) for m in (DETAILED[0], DETAILED[2]) for loss in LOSSES]
    figure, axes = drawing(len(cases), 3, 8.2, 8.4, sharex=True, sharey="col")
    for line, (model, loss) in zip(axes, cases, strict=True):
        line[0].set_ylabel(f"{model.split('/')[1]}, {loss}")
        line[0].axhline(0, color="#5C5C5C", linewidth=0.6)
        for ax, of in zip(line, ("bias", "rmse", "mae"), strict=True):
            for e in SHOWN:
                cells = [s.cells[model, loss, "msp", n, e] for n in SIZES]
                share = [100 * getattr(c, of) / c.population for c in cells]
                ax.plot(SIZES, share, marker=".", markersize=4, **LOOK[e])
    for ax, name in zip(axes[0], ("bias", "RMSE", "MAE"), strict=True):
        ax.set_title(f"{name}, % of AURC")
        ax.set_xscale("log", base=2)
        ax.set_xticks((8, 32, 128, 512), ("8", "32", "128", "512"))
        ax.set_yscale("symlog", linthresh=1) if name == "bias" else ax.set_yscale("log")
        marks = (-10, -1, 0, 1, 10, 100) if name == "bias" else (10, 20, 50, 100, 200, 500)
        ax.set_yticks(marks, [str(mark) for mark in marks])
        ax.minorticks_off()
    for ax in axes[-1]:
        ax.set_xlabel("batch size n")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    saved(figure, "error")


def draw_weight_bias():
    """Draw the bias of the weights against the quantile, for four sizes."""
    beta = 1 - np.logspace(0, -4, 400)
    figure, axes = drawing(1, 4, 9.6, 2.9, sharey=True)
    for ax, n in zip(axes, (8, 32, 128, 1024), strict=True):
        for e in SHOWN:
            ax.plot(beta, aurc_weight_bias(beta, n, e), **LOOK[e])
        ax.axhline(0, color="#5C5C5C", linewidth=0.6)
        ax.set_ylim(-1.5, 0.75)
        ax.set_title(f"n = {n}")
        ax.set_xlabel("quantile beta")
    axes[0].set_ylabel("bias of the weight")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    saved(figure, "weight_bias")


def draw_weight_mse():
    """Draw the mean squared error of the weights against the rank, with the published order."""
    figure, axes = drawing(1, 4, 9.6, 2.9, sharey=True)
    for ax, n in zip(axes, (8, 32, 128, 1024), strict=True):
        place = np.arange(1, n + 1) / (n + 1)
        for e in ("empirical", "log", "sele"):
            ax.plot(place, aurc_weight_mse(n, e), **LOOK[e])
        ax.plot(place, paper_order(n), color="#5C5C5C", linestyle=":", linewidth=1.2, label="Eq. 24")
        ax.set_yscale("log")
        ax.set_title(f"n = {n}")
        ax.set_xlabel("rank / (n + 1)")
    axes[0].set_ylabel("MSE of the weight")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    saved(figure, "weight_mse")


def draw_forms(s):
    """Draw the log form against the harmonic one, and their difference."""
    figure, (left, right) = drawing(1, 2, 8.2, 3.3)
    for i, loss in enumerate(LOSSES):
        first, second = np.array([s.forms[m, loss] for m in s.models]).T
        look = {"color": COLOURS[i], "marker": "os"[i], "s": 18, "label": loss, "facecolors": "none"}
        left.scatter(first, second, **look)
        right.scatter(first, 100 * (1 - second / first), **look)
    left.axline((1.0, 1.0), slope=1, color="#5C5C5C", linewidth=0.6)
    left.set(
        xscale="log", yscale="log", xlabel="harmonic form", ylabel="log form", title=f"AURC of {len(s.models)} models"
    )
    right.set(xscale="log", xlabel="harmonic form", ylabel="log form below it, %", title="difference", ylim=(0, None))
    left.legend(frameon=False)
    saved(figure, "forms")


def draw(s):
    """Draw all figures, in matplotlib's style and ours."""
    with drawing_style():
        draw_error(s)
        draw_weight_bias()
        draw_weight_mse()
        draw_forms(s)


def write(s):
    """Write a row per cell."""
    with open(RESULTS / "aurc_study.csv", "w", newline="", encoding="utf-8") as file:
        heads = ("model", "loss", "confidence", "n", "estimator", "population", "bias", "std", "rmse", "mae", "batches")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*heads, "version", "command"))
        for c in s.cells.values():
            numbers = [f"{v:.5g}" for v in (c.population, c.bias, c.std, c.rmse, c.mae)]
            key = c.model, c.loss, c.function, c.n, c.estimator
            writer.writerow((*key, *numbers, c.batches, twofold.__version__, COMMAND))


def main():
    s = study()
    text = page(s)
    print(text)
    if "--save" in sys.argv:
        draw(s)
        write(s)
        (RESULTS / "aurc_study.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
