"""Sentences on the claims of Zhou et al. (ICML 2025, arXiv:2410.15361), for benchmarks/aurc_study.py.

Each sentence has the condition under which it is true. A sentence that the numbers do not bear out stops the script.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from aurc_cells import FUNCTIONS, FUNCTIONS_SIZE, LOSSES, ROWS, SHOWN, SIZES, Study
from timing import said
from twofold._math import harmonic
from twofold.metrics import aurc_weight_mse, aurc_weights

LARGEST = SIZES[-1]
WEAK = "cifar100/lenet_5"  # correct in one of eight, and often wrong where it is confident


# --- claims that hold -----------------------------------------------------------------------------------------------


def confirmed(study: Study) -> Iterator[str]:
    """Yield the claims of the paper that hold here."""
    yield log_below_harmonic()
    yield harmonic_converges(study)
    yield sele_on_both_sides(study)
    yield plug_ins_less_biased(study)
    yield log_has_smaller_error(study)
    yield smaller_variance_of_zero_one(study)
    yield loss_matters_more(study)
    yield forms_agree(study)


def log_below_harmonic() -> str:
    is_below = [(aurc_weights(n, "log") < aurc_weights(n)).all() for n in SIZES]
    return said(
        "- **The log plug-in never exceeds the harmonic one** (Figure 3). Every weight is smaller, so this holds in every "
        "batch.",
        all(is_below),
    )


def harmonic_converges(study: Study) -> str:
    shrinks = []
    for n, doubled in pairwise(SIZES):
        before = np.abs(study.values("bias", n, "empirical"))
        after = np.abs(study.values("bias", doubled, "empirical"))
        shrinks.append((after < before).all())
    return said(
        "- **The harmonic plug-in converges to the population value.** Its bias falls at every doubling of n for all "
        f"{len(study.forms)} pairs of model and loss.",
        all(shrinks),
    )


def sele_on_both_sides(study: Study) -> str:
    sele = study.values_of_functions("bias", "sele")
    twice = study.values_of_functions("bias", "2sele")
    low = (sele < 0).sum()
    high = (twice > 0).sum()
    total = len(sele)
    return said(
        f"- **SELE is too low and 2 x SELE too high.** At n = {FUNCTIONS_SIZE}, SELE is too low for {low} of {total} combinations of model, "
        f"loss and confidence function, and 2 x SELE too high for {high}: mostly, not always, as the paper says.",
        low == total and 0.9 * total < high < total,
    )


def plug_ins_less_biased(study: Study) -> str:
    bias = {estimator: np.abs(study.values_of_functions("bias", estimator)) for estimator in SHOWN}
    worse_plug_in = np.maximum(bias["empirical"], bias["log"])
    better_sele = np.minimum(bias["sele"], bias["2sele"])
    less = (worse_plug_in < better_sele).sum()
    total = len(worse_plug_in)
    return said(
        f"- **Both plug-ins are less biased than SELE and 2 x SELE**, at n = {FUNCTIONS_SIZE} for {less} of {total} combinations ("
        "Figure 6).",
        less > 0.9 * total,
    )


def log_has_smaller_error(study: Study) -> str:
    holds = []
    for n in SIZES:
        log_is_smaller = count_better(study, n, "log", "empirical") == len(study.forms)
        log_weights_are_not = (aurc_weight_mse(n, "log") >= aurc_weight_mse(n)).all()
        holds.append(log_is_smaller and log_weights_are_not)
    return said(
        "- **The log plug-in has the smaller error of the two, although its weights have the larger one** (text under Figure 5, "
        "whose last symbol must be the other estimator's). By true MSE this holds for all models, losses and sizes.",
        all(holds),
    )


def smaller_variance_of_zero_one(study: Study) -> str:
    absolute = 0
    relative = 0
    for n in SIZES:
        std = {}
        population = {}
        for loss in LOSSES:
            std[loss] = study.values("std", n, "empirical", (loss,))
            population[loss] = study.values("population", n, "empirical", (loss,))
        absolute += (std["0/1"] < std["CE"]).sum()
        relative += (std["0/1"] / population["0/1"] < std["CE"] / population["CE"]).sum()
    total = len(SIZES) * len(study.models)
    return said(
        f"- **The 0/1 loss has the smaller variance**: in {absolute} of {total} cases, and in {relative} also relative to AURC.",
        absolute == total and relative > 0.75 * total,
    )


def loss_matters_more(study: Study) -> str:
    least = {}
    most = {}
    for loss in LOSSES:
        errors = [study.median_share("rmse", FUNCTIONS_SIZE, "empirical", loss, function) for function in FUNCTIONS]
        least[loss] = min(errors)
        most[loss] = max(errors)
    return said(
        f"- **The loss matters more than the confidence function.** The median RMSE of the harmonic plug-in at n = {FUNCTIONS_SIZE} is "
        f"{least['0/1']:.0f} to {most['0/1']:.0f} % of AURC over the functions with 0/1 loss and "
        f"{least['CE']:.0f} to {most['CE']:.0f} % with CE.",
        most["0/1"] < least["CE"],
    )


def forms_agree(study: Study) -> str:
    harmonic_forms, log_forms = np.array(list(study.forms.values())).T
    gaps = 1 - log_forms / harmonic_forms
    return said(
        "- **Harmonic and log form agree in practice on whole test sets** (Figure S7). They differ by "
        f"{100 * min(gaps):.3f} to {100 * max(gaps):.3f} %.",
        min(gaps) > 0 and max(gaps) < 0.002,
    )


# --- claims that do not ---------------------------------------------------------------------------------------------


def refuted(study: Study) -> Iterator[str]:
    """Yield the claims of the paper that do not hold here, and what holds instead."""
    yield plots_show_bias(study)
    yield sele_beats_plug_ins(study)
    yield sele_is_no_lower_bound(study)
    yield rate_is_not_attained(study)
    yield test_shows_no_equality(study)
    yield order_of_weight_error()
    yield sele_grows(study)


def plots_show_bias(study: Study) -> str:
    squared_bias = study.values("bias", FUNCTIONS_SIZE, "empirical") ** 2
    share = np.median(squared_bias / study.values("mse", FUNCTIONS_SIZE, "empirical"))
    return said(
        "- **The plots named MSE and MAE show squared and absolute bias**, which is what the released code computes. At n = "
        f"{FUNCTIONS_SIZE}, the squared bias is {100 * share:.1f} % of the true MSE of the harmonic plug-in (median).",
        share < 0.05,
    )


def sele_beats_plug_ins(study: Study) -> str:
    total = len(study.forms)
    small = count_better(study, 32, "sele", "log")  # and so better than the harmonic one, which is worse than log
    medium = count_better(study, FUNCTIONS_SIZE, "sele", "log")
    large = count_better(study, LARGEST, "sele", "log")
    is_shrinkage = count_better(study, FUNCTIONS_SIZE, "sele", "log", "std") == total
    weak_bias = study.cell(WEAK, "0/1", LARGEST, "sele").relative_bias
    return said(
        f"- **Both plug-ins do better than SELE**: false by true MSE. SELE beats both of them for {small}, {medium} "
        f"and {large} of {total} pairs of model and loss at n = 32, {FUNCTIONS_SIZE} and {LARGEST}. That is shrinkage, not a better "
        f"estimate: on the one weak model, `{WEAK}`, SELE is {-100 * weak_bias:.0f}"
        f" % too low even at n = {LARGEST}.",
        small > 30 and medium > 25 and large > total / 2 and weak_bias < 0 and is_shrinkage,
    )


def sele_is_no_lower_bound(study: Study) -> str:
    low = {loss: (study.values("bias", 8, "sele", (loss,)) < 0).sum() for loss in LOSSES}
    return said(
        f"- **SELE is a lower bound**: of the harmonic plug-in, but not of the population value. At n = 8 it is too low for only "
        f"{low['0/1']} (0/1) and {low['CE']} (CE) of {len(study.models)} models.",
        max(low.values()) < len(study.models) / 4,
    )


def rate_is_not_attained(study: Study) -> str:
    change = 100 * (scaled_std(study, LARGEST) / scaled_std(study, FUNCTIONS_SIZE) - 1)
    rate = 100 * ((np.log(LARGEST) / np.log(FUNCTIONS_SIZE)) ** 0.5 - 1)
    return said(
        "- **The rate $\\sqrt{\\ln n / n}$** is an upper bound that is not attained. From n = "
        f"{FUNCTIONS_SIZE} to {LARGEST}, $\\sqrt{{n}}$ times the standard deviation (corrected for the finite test set) changes by "
        f"{change.min():+.1f} to {change.max():+.1f} %, where that rate would add {rate:.0f} %. The rate is $1 / \\sqrt{{n}}$.",
        np.abs(change).max() < rate / 3,
    )


def scaled_std(study: Study, n: int) -> np.ndarray:
    """Multiply the standard deviation by the root of n, corrected for drawing without replacement."""
    return study.values("std", n, "empirical") * (n / (1 - n / ROWS)) ** 0.5


def test_shows_no_equality(study: Study) -> str:
    harmonic_forms, log_forms = np.array(list(study.forms.values())).T
    smaller = (log_forms < harmonic_forms).sum()
    return said(
        f"- **Figure S7's t-test (p = 0.998)** does not show equality. Paired, the log form is smaller in {smaller} of "
        f"{len(study.forms)} cases, by little.",
        smaller == len(study.forms),
    )


def order_of_weight_error() -> str:
    error = float(aurc_weight_mse(1024)[-1])
    formula = paper_order(1024)[-1]
    means_are_exact = []
    for n in SIZES:
        expected = float(harmonic(float(n))) / n
        means_are_exact.append(np.isclose(aurc_weight_mse(n).mean(), expected))
    return said(
        "- **The MSE of a weight has the order $\\beta / (n (1 - \\beta) + 1)$.** The order is right, its constant is not: at "
        f"the most confident of 1,024 samples the error is {error:.2f}, and the formula gives {formula:.2f}. The mean "
        "over ranks is exactly $H_n / n$.",
        error > 3 * formula and all(means_are_exact),
    )


def paper_order(n: int) -> np.ndarray:
    """Compute the paper's Eq. 24 at beta = r / (n + 1)."""
    beta = np.arange(1, n + 1) / (n + 1)
    return beta / (n * (1 - beta) + 1)


def sele_grows(study: Study) -> str:
    total = len(study.forms)
    error_grows = np.zeros(total, bool)
    bias_grows = np.zeros(total, bool)
    for n, doubled in pairwise(SIZES):
        error_grows |= study.values("mae", doubled, "sele") > study.values("mae", n, "sele")
        bias_grows |= np.abs(study.values("bias", doubled, "sele")) > np.abs(study.values("bias", n, "sele"))
    return said(
        f"- **SELE's MAE can grow with n.** The true MAE does so for {error_grows.sum()} of {total} pairs; for the others it falls "
        f"with n at every step. The absolute bias grows at some step for {bias_grows.sum()}.",
        0 < error_grows.sum() < total / 2 < bias_grows.sum(),
    )


# --- the estimator that is not in the paper -------------------------------------------------------------------------


def self_excluded(study: Study) -> str:
    """Describe the estimator that is not in the paper: its bias, its MSE, and where it fails."""
    return f"{bias_of_self_excluded(study)} {error_of_self_excluded(study)} {weakness_of_self_excluded(study)}"


def bias_of_self_excluded(study: Study) -> str:
    place = SHOWN.index("self_excluded")
    wins = {}
    for loss in LOSSES:
        wins[loss] = [study.count_wins("bias", n, loss)[place] for n in SIZES]
    own = np.abs(study.values("relative_bias", FUNCTIONS_SIZE, "self_excluded"))
    plug_in = study.values("relative_bias", FUNCTIONS_SIZE, "empirical")
    return said(
        f"It has the least bias of the five for {min(wins['0/1'])} to {max(wins['0/1'])} of {len(study.models)} models with "
        f"0/1 loss and {min(wins['CE'])} to {max(wins['CE'])} with CE, over all sizes. At n = {FUNCTIONS_SIZE} its bias is at most "
        f"{100 * max(own):.1f} % of AURC; that of the harmonic plug-in is {100 * min(plug_in):.1f} to {100 * max(plug_in):.1f} %.",
        min(wins["0/1"] + wins["CE"]) > 0.8 * len(study.models) and max(own) < 0.005 < max(plug_in),
    )


def error_of_self_excluded(study: Study) -> str:
    sizes = (8, FUNCTIONS_SIZE, LARGEST)
    total = len(study.forms)
    over_harmonic = [count_better(study, n, "self_excluded", "empirical") for n in sizes]
    over_log = [count_better(study, n, "self_excluded", "log") for n in sizes]
    return said(
        f"By true MSE it beats the harmonic plug-in for {over_harmonic[0]}, {over_harmonic[1]} and "
        f"{over_harmonic[2]} of {total} pairs at n = {sizes[0]}, {sizes[1]} and {sizes[2]}, and the log plug-in for "
        f"{over_log[0]}, {over_log[1]} and {over_log[2]}.",
        min(over_harmonic) > 0.9 * total and min(over_log) > 0.6 * total,
    )


def weakness_of_self_excluded(study: Study) -> str:
    own = study.cell(WEAK, "0/1", 8, "self_excluded")
    plug_in = study.cell(WEAK, "0/1", 8, "empirical")
    return said(
        f"No estimator is best everywhere: on `{WEAK}`, whose confident predictions are also wrong, its bias at n = 8 is "
        f"{1000 * own.bias:+.1f} (x1000), and that of the harmonic plug-in {1000 * plug_in.bias:+.1f}.",
        abs(own.bias) > abs(plug_in.bias) and own.population > 0.5,
    )


def count_better(study: Study, n: int, first: str, second: str, quantity: str = "mse") -> int:
    """Count the pairs of model and loss where the first estimator has less of a quantity than the second."""
    return (study.values(quantity, n, first) < study.values(quantity, n, second)).sum()
