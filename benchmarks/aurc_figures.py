"""Figures of the page on estimating AURC, for benchmarks/aurc_study.py."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from aurc_cells import DETAILED, LOSSES, SHOWN, SIZES, Study
from aurc_sentences import paper_order
from timing import RESULTS
from twofold.metrics import aurc_weight_bias, aurc_weight_mse
from twofold.plot.themes import COLOURS, DASHES, drawing_style

GREY = "#5C5C5C"
PANEL_SIZES = (8, 32, 128, 1024)  # of the figures of weights
QUANTITIES = {"bias": "bias", "rmse": "RMSE", "mae": "MAE"}


def draw_figures(study: Study) -> None:
    """Draw all figures, in the style of twofold's plots."""
    with drawing_style():
        draw_error(study)
        draw_weight_bias()
        draw_weight_mse()
        draw_forms(study)


def save(figure: Figure, name: str) -> None:
    """Save a PNG of 64 colours, which is all these lines need and a third of the size."""
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=110)
        Image.open(file).convert("RGB").quantize(64).save(RESULTS / f"aurc_study_{name}.png", optimize=True)


def line_style(estimator: str) -> dict[str, Any]:
    """Return the keyword arguments of every line of an estimator."""
    i = SHOWN.index(estimator)
    return {"color": COLOURS[i], "linestyle": DASHES[i], "linewidth": 1.2, "label": estimator}


def add_legend(figure: Figure, axes: Axes, columns: int) -> None:
    """Put the legend of one panel below the figure."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, frameon=False)


def draw_error(study: Study) -> None:
    """Draw bias, RMSE and MAE in percent of AURC against batch size, by model and loss."""
    cases = []
    for model in (DETAILED[0], DETAILED[2]):
        for loss in LOSSES:
            cases.append((model, loss))
    figure = Figure(figsize=(8.2, 8.4), layout="constrained")
    panels = figure.subplots(len(cases), len(QUANTITIES), sharex=True, sharey="col")
    for line, (model, loss) in zip(panels, cases, strict=True):
        line[0].set_ylabel(f"{model.split('/')[1]}, {loss}")
        line[0].axhline(0, color=GREY, linewidth=0.6)
        for axes, quantity in zip(line, QUANTITIES, strict=True):
            for estimator in SHOWN:
                shares = error_shares(study, model, loss, estimator, quantity)
                axes.plot(SIZES, shares, marker=".", markersize=4, **line_style(estimator))
    for axes, (quantity, title) in zip(panels[0], QUANTITIES.items(), strict=True):
        axes.set_title(f"{title}, % of AURC")
        axes.set_xscale("log", base=2)
        axes.set_xticks((8, 32, 128, 512), ("8", "32", "128", "512"))
        if quantity == "bias":
            axes.set_yscale("symlog", linthresh=1)
            marks = (-10, -1, 0, 1, 10, 100)
        else:
            axes.set_yscale("log")
            marks = (10, 20, 50, 100, 200, 500)
        axes.set_yticks(marks, [str(mark) for mark in marks])
        axes.minorticks_off()
    for axes in panels[-1]:
        axes.set_xlabel("batch size n")
    add_legend(figure, panels[0, 0], columns=5)
    save(figure, "error")


def error_shares(study: Study, model: str, loss: str, estimator: str, quantity: str) -> list[float]:
    """Compute an error in percent of the population AURC at every batch size."""
    shares = []
    for n in SIZES:
        cell = study.cell(model, loss, n, estimator)
        shares.append(100 * getattr(cell, quantity) / cell.population)
    return shares


def draw_weight_bias() -> None:
    """Draw the bias of the weights against the quantile, for four sizes."""
    quantiles = 1 - np.logspace(0, -4, 400)
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    panels = figure.subplots(1, len(PANEL_SIZES), sharey=True)
    for axes, n in zip(panels, PANEL_SIZES, strict=True):
        for estimator in SHOWN:
            axes.plot(quantiles, aurc_weight_bias(quantiles, n, estimator), **line_style(estimator))
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.set_ylim(-1.5, 0.75)
        axes.set_title(f"n = {n}")
        axes.set_xlabel("quantile beta")
    panels[0].set_ylabel("bias of the weight")
    add_legend(figure, panels[0], columns=5)
    save(figure, "weight_bias")


def draw_weight_mse() -> None:
    """Draw the mean squared error of the weights against the rank, with the published order."""
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    panels = figure.subplots(1, len(PANEL_SIZES), sharey=True)
    for axes, n in zip(panels, PANEL_SIZES, strict=True):
        ranks = np.arange(1, n + 1) / (n + 1)
        for estimator in ("empirical", "log", "sele"):
            axes.plot(ranks, aurc_weight_mse(n, estimator), **line_style(estimator))
        axes.plot(ranks, paper_order(n), color=GREY, linestyle=":", linewidth=1.2, label="Eq. 24")
        axes.set_yscale("log")
        axes.set_title(f"n = {n}")
        axes.set_xlabel("rank / (n + 1)")
    panels[0].set_ylabel("MSE of the weight")
    add_legend(figure, panels[0], columns=4)
    save(figure, "weight_mse")


def draw_forms(study: Study) -> None:
    """Draw the log form against the harmonic one, and their difference."""
    figure = Figure(figsize=(8.2, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for loss, colour, marker in zip(LOSSES, COLOURS, "os", strict=False):
        forms = np.array([study.forms[model, loss] for model in study.models])
        harmonic_form, log_form = forms.T
        style = {"color": colour, "marker": marker, "s": 18, "label": loss, "facecolors": "none"}
        left.scatter(harmonic_form, log_form, **style)
        right.scatter(harmonic_form, 100 * (1 - log_form / harmonic_form), **style)
    left.axline((1.0, 1.0), slope=1, color=GREY, linewidth=0.6)
    left.set(xscale="log", yscale="log", xlabel="harmonic form", ylabel="log form")
    left.set_title(f"AURC of {len(study.models)} models")
    right.set(xscale="log", xlabel="harmonic form", ylabel="log form below it, %", title="difference", ylim=(0, None))
    left.legend(frameon=False)
    save(figure, "forms")
