"""The page on estimating AURC from few samples, and its tables, for benchmarks/aurc_study.py."""

from __future__ import annotations

from collections.abc import Iterator

import twofold
from aurc_cells import DETAILED, FUNCTIONS, FUNCTIONS_SIZE, LOSSES, SHOWN, SIZES, Study
from aurc_sentences import confirmed, refuted, self_excluded

COMMAND = "python benchmarks/aurc_study.py --save"
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


def write_page(study: Study) -> str:
    """Write the page."""
    counts = [cell.batches for cell in study.cells.values()]
    lines = [
        "# Estimating AURC from few samples",
        "",
        f"How well can AURC be estimated from a batch? This page tests the claims of Zhou et al. (ICML 2025) on {len(study.models)} "
        "real classifiers on CIFAR-10 and CIFAR-100. "
        f"`{COMMAND}` writes it (with `$TWOFOLD_DATA` set; twofold {twofold.__version__}).",
        "",
        f"- **Method.** Test sets of 10,000 are the populations; {min(counts):,} to {max(counts):,} random batches of each size are drawn. "
        "Bias is exact (hypergeometric). RMSE and MAE are those of single estimates, so they include the variance.",
        "- **Estimators.** `empirical` has harmonic weights (the harmonic plug-in). `log`, `sele` and `2sele` are as in the "
        "paper. `self_excluded` is harmonic without the sample itself. `expected` equals `empirical` without ties.",
        "- **Units.** Numbers are x1000 unless in percent. `aurc_study.csv` has every model and size, and also `trapezoid` "
        "and `continuous`.",
        "",
        "## Which claims hold",
        "",
        "Confirmed:",
        "",
        *confirmed(study),
        "",
        "Not confirmed, or only in part:",
        "",
        *refuted(study),
        "",
        "## The self-excluded estimator",
        "",
        self_excluded(study),
        "",
        "## Errors in the paper and its code",
        "",
        MISPRINTS,
        "",
        "## Bias / RMSE / MAE against batch size",
        "",
        "The confidence is the maximum softmax probability.",
        "",
        *detail_table(study),
        "",
        "![bias, RMSE and MAE against batch size](aurc_study_error.png)",
        "",
        f"## For how many of the {len(study.models)} models each estimator is best",
        "",
        f"Each cell counts models in the order {' / '.join(SHOWN)}.",
        "",
        *winner_table(study),
        "",
        f"## Six confidence functions, n = {FUNCTIONS_SIZE}",
        "",
        "Bias / RMSE in percent of the population AURC, medians over models. The maximum logit is without the three models "
        "that saved probabilities only.",
        "",
        *function_table(study),
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
        *form_table(study),
        "",
        "![harmonic against log form](aurc_study_forms.png)",
        "",
    ]
    return "\n".join(lines)


def table_row(*cells: object) -> str:
    """Write one row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def detail_table(study: Study) -> Iterator[str]:
    """Yield bias, RMSE and MAE of the detailed models, by loss and batch size."""
    yield table_row("model", "loss", "n", *SHOWN)
    yield "|---" * (3 + len(SHOWN)) + "|"
    for model in DETAILED:
        for loss in LOSSES:
            population = study.cell(model, loss, SIZES[0], SHOWN[0]).population
            name = f"`{model}`, AURC {1000 * population:.2f}"
            for n in (8, 32, 128, 1024):
                yield table_row(name, loss, n, *detail_cells(study, model, loss, n))
                name = ""  # only the first line of a model and loss has it


def detail_cells(study: Study, model: str, loss: str, n: int) -> Iterator[str]:
    """Yield bias, RMSE and MAE of each shown estimator."""
    for estimator in SHOWN:
        cell = study.cell(model, loss, n, estimator)
        yield f"{1000 * cell.bias:+.2f} / {1000 * cell.rmse:.1f} / {1000 * cell.mae:.1f}"


def winner_table(study: Study) -> Iterator[str]:
    """Yield for how many models each estimator is best."""
    yield table_row("loss", "n", "least absolute bias", "least RMSE", "least MAE")
    yield "|---|---|---|---|---|"
    for loss in LOSSES:
        for n in SIZES:
            cells = []
            for quantity in ("bias", "mse", "mae"):
                wins = study.count_wins(quantity, n, loss)
                cells.append(" / ".join(map(str, wins)))
            yield table_row(loss, n, *cells)


def function_table(study: Study) -> Iterator[str]:
    """Yield the median bias and RMSE for each confidence function and loss."""
    yield table_row("confidence", "loss", *SHOWN)
    yield "|---" * (2 + len(SHOWN)) + "|"
    for function, name in FUNCTIONS.items():
        for loss in LOSSES:
            cells = []
            for estimator in SHOWN:
                bias = study.median_share("bias", FUNCTIONS_SIZE, estimator, loss, function)
                rmse = study.median_share("rmse", FUNCTIONS_SIZE, estimator, loss, function)
                cells.append(f"{bias:+.1f} / {rmse:.0f}")
            yield table_row(name, loss, *cells)


def form_table(study: Study) -> Iterator[str]:
    """Yield both forms of AURC on whole test sets, and their difference."""
    yield table_row("model", "0/1: harmonic", "log", "difference", "CE: harmonic", "log", "difference")
    yield "|---" * 7 + "|"
    for model in study.models:
        cells = []
        for loss in LOSSES:
            harmonic_form, log_form = study.forms[model, loss]
            difference = 100 * (log_form / harmonic_form - 1)
            cells += [f"{1000 * harmonic_form:.3f}", f"{1000 * log_form:.3f}", f"{difference:+.3f} %"]
        yield table_row(f"`{model}`", *cells)
