"""Drawings of the AURC-estimators paper: weights, estimates, errors and confidence functions.

Zhou et al., A Novel Characterization of the Population Area Under the Risk Coverage Curve, ICML 2025, arXiv:2410.15361.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from twofold.bench.estimators import LOSSES, EstimatorCell, Loss
from twofold.errors import InvalidInput
from twofold.metrics import aurc_weight_bias, aurc_weight_mse
from twofold.metrics.selective import Estimator
from twofold.papers.drawings import DrawnFigure, register_drawing
from twofold.papers.material import Material
from twofold.plot.themes import COLOURS, DASHES, LIGHT
from twofold.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

SHOWN: tuple[Estimator, ...] = ("empirical", "log", "self_excluded", "sele", "2sele")
_WITH_MSE: tuple[Estimator, ...] = ("empirical", "log", "sele")
LABELS = {
    "empirical": "harmonic plug-in",
    "log": "log plug-in",
    "self_excluded": "self-excluded (not in the paper)",
    "sele": "SELE",
    "2sele": "2 x SELE",
}
LOSS_LABELS = {"0/1": "0/1 loss", "ce": "cross-entropy"}
CONFIDENCES = {
    "msp": "MSP",
    "entropy": "negative\nentropy",
    "mls": "maximum\nlogit",
    "margin": "softmax\nmargin",
    "maxlogit_pnorm": "logit /\nl2 norm",
    "gini": "negative\nGini",
}
MOST_COLUMNS = 4  # panels beside each other
Quantity: TypeAlias = Literal["bias", "mae", "mse"]
_PRINTED = {"mae": "published_mae", "mse": "published_mse"}
_TITLES = {"bias": "bias", "mae": "mean absolute error", "mse": "mean squared error"}


# --- weights --------------------------------------------------------------------------------------------------------


@register_drawing("weight_bias")
def draw_weight_bias(material: Material, *, sizes: tuple[int, ...] = (8, 32, 128, 1024)) -> DrawnFigure:
    """Draw the bias of each estimator's weight given the quantile of a sample's confidence.

    Parameters
    ----------
    material : Material
        Not used; the bias follows from the definition.
    sizes : tuple of int, default=(8, 32, 128, 1024)
        Batch sizes, a panel each.

    Returns
    -------
    DrawnFigure
        The figure.
    """
    beta = 1 - np.logspace(0, -4, 400)
    figure, panels = _make_panels(len(sizes), share_y=True)
    rows = []
    for axes, n in zip(panels, sizes, strict=True):
        for name in SHOWN:
            bias = aurc_weight_bias(beta, n, name)
            axes.plot(beta, bias, **_look(name))
            for quantile, value in zip(beta, bias, strict=True):
                rows.append((n, name, float(quantile), float(value)))
        axes.axhline(0, color=LIGHT.soft, linewidth=0.6)
        axes.set_ylim(-1.5, 0.75)
        axes.set_title(f"n = {n}")
        axes.set_xlabel("quantile of the confidence")
    panels[0].set_ylabel("bias of the weight")
    _add_legend(figure, panels)
    note = (
        "Exact: given the quantile, the rank less one is binomial. The bias is positive for small quantiles and falls "
        "without bound near 1."
    )
    return DrawnFigure(figure, ("n", "estimator", "quantile", "bias"), tuple(rows), (note,))


@register_drawing("weight_mse")
def draw_weight_mse(material: Material, *, sizes: tuple[int, ...] = (8, 32, 128, 1024)) -> DrawnFigure:
    """Draw the order of the weights' mean squared error that the paper gives, and the exact error beside it.

    Parameters
    ----------
    material : Material
        Not used; the errors follow from the definition.
    sizes : tuple of int, default=(8, 32, 128, 1024)
        Batch sizes.

    Returns
    -------
    DrawnFigure
        The figure: all orders in the first panel, then a panel for each size.
    """
    figure, panels = _make_panels(1 + len(sizes), share_y=True)
    rows = []
    for place, n in enumerate(sizes):
        quantile = np.arange(1, n + 1) / (n + 1)
        order = quantile / (n * (1 - quantile) + 1)
        panels[0].plot(quantile, order, color=COLOURS[place], linestyle=DASHES[place], label=f"n = {n}")
        axes = panels[1 + place]
        for name in _WITH_MSE:
            error = aurc_weight_mse(n, name)
            axes.plot(quantile, error, **_look(name))
            for numbers in zip(quantile, error, order, strict=True):
                rows.append((n, name, *map(float, numbers)))
        axes.plot(quantile, order, color=LIGHT.soft, linestyle=":", linewidth=1.4, label="Eq. 24")
        axes.set_title(f"n = {n}")
    for axes in panels:
        axes.set_yscale("log")
        axes.set_xlabel("rank / (n + 1)")
    panels[0].set_title("Eq. 24")
    panels[0].set_ylabel("squared error of the weight")
    panels[0].legend(frameon=False, fontsize=7)
    _add_legend(figure, panels[1:])
    note = (
        "Eq. 24 gives the right order in n, not the constant: at the most confident sample the exact error is about "
        "three times as large."
    )
    return DrawnFigure(figure, ("n", "estimator", "quantile", "mse", "order"), tuple(rows), (note,))


# --- estimates and their errors -------------------------------------------------------------------------------------


@register_drawing("estimates")
def draw_estimates(material: Material, *, losses: tuple[Loss, ...] = LOSSES) -> DrawnFigure:
    """Draw the mean estimate against the batch size, with its spread over batches and the population's value.

    Parameters
    ----------
    material : Material
        Cells of estimators ranked by the maximum softmax probability.
    losses : tuple of {"0/1", "ce"}, default=("0/1", "ce")
        Losses to draw.

    Returns
    -------
    DrawnFigure
        A panel for each network and loss.
    """
    cells = _select(material, losses)
    figure, panels, cases = _make_case_panels(cells)
    for axes, (model, loss) in zip(panels, cases, strict=True):
        own = _keep(cells, model=model, loss=loss)
        axes.axhline(own[0].population, color=LIGHT.soft, linewidth=0.9, linestyle=":", label="population")
        for name in SHOWN:
            line = _keep(own, estimator=name)
            means = _values(line, "mean")
            spread = _values(line, "std")
            sizes = _values(line, "size")
            axes.plot(sizes, means, marker=".", markersize=4, **_look(name))
            axes.fill_between(sizes, means - spread, means + spread, color=_colour(name), alpha=0.08, linewidth=0)
        axes.set_ylim(0, None)
        _finish_size_axis(axes)
    _label_left(panels, "AURC")
    _add_legend(figure, panels)
    note = "Lines are expected estimates, bands one standard deviation over random batches."
    return _with_cells(figure, cells, note)


@register_drawing("errors")
def draw_errors(
    material: Material, *, quantity: Quantity, losses: tuple[Loss, ...] = LOSSES, pooled: bool = False
) -> DrawnFigure:
    """Draw the bias or the error of each estimator against the batch size.

    Parameters
    ----------
    material : Material
        Cells of estimators ranked by the maximum softmax probability.
    quantity : {"bias", "mae", "mse"}
        What is drawn. Errors are drawn twice: the true one, and as the paper's code computes it, from the mean over
        batches, which is the absolute or squared bias.
    losses : tuple of {"0/1", "ce"}, default=("0/1", "ce")
        Losses to draw.
    pooled : bool, default=False
        Whether networks share a panel, as their mean with one standard deviation.

    Returns
    -------
    DrawnFigure
        Panels for each network, or for all, and loss.
    """
    cells = _select(material, losses)
    if pooled:
        figure, panels = _make_panels(2 * len(losses), share_y=False)
        for place, loss in enumerate(losses):
            own = _keep(cells, loss=loss)
            _draw_pooled(panels[2 * place], own, quantity, f"{LOSS_LABELS[loss]}: true")
            _draw_pooled(panels[2 * place + 1], own, _PRINTED[quantity], f"{LOSS_LABELS[loss]}: as printed")
    else:
        figure, panels, cases = _make_case_panels(cells)
        for axes, (model, loss) in zip(panels, cases, strict=True):
            own = _keep(cells, model=model, loss=loss)
            _draw_case(axes, own, quantity)
    for axes in panels:
        _finish_size_axis(axes)
        if quantity != "bias":
            axes.set_yscale("log")
    _label_left(panels, _TITLES[quantity])
    _add_legend(figure, panels)
    return _with_cells(figure, cells, _error_note(quantity, pooled=pooled))


def _error_note(quantity: Quantity, *, pooled: bool) -> str:
    if quantity == "bias":
        return (
            "The bias is exact, from the hypergeometric distribution of a sample's rank in its batch. Bands are one "
            "standard deviation of a single estimate over batches, cut where they leave the panel."
        )
    printed = {"mae": "the absolute value of the bias", "mse": "the squared bias, without the variance"}[quantity]
    if pooled:
        return (
            f"Means over networks with one standard deviation. The paper's code computes {printed}; the true error of "
            "a single estimate is drawn beside it."
        )
    return (
        "Lines with dots are the true error of a single estimate, faint lines what the paper's code computes: "
        f"{printed}."
    )


def _draw_case(axes: Axes, cells: Sequence[EstimatorCell], quantity: Quantity) -> None:
    """Draw one network and loss."""
    drawn: list[float] = []
    if quantity == "bias":
        axes.axhline(0, color=LIGHT.soft, linewidth=0.6)
    for name in SHOWN:
        line = _keep(cells, estimator=name)
        sizes = _values(line, "size")
        values = _values(line, quantity)
        axes.plot(sizes, values, marker=".", markersize=4, **_look(name))
        drawn += list(values)
        if quantity == "bias":
            spread = _values(line, "std")
            axes.fill_between(sizes, values - spread, values + spread, color=_colour(name), alpha=0.06, linewidth=0)
        else:
            faint = {**_look(name), "label": None, "alpha": 0.45, "linewidth": 0.9}
            axes.plot(sizes, _values(line, _PRINTED[quantity]), **faint)
    if quantity == "bias":
        axes.set_ylim(*_widen(drawn))


def _widen(values: Sequence[float]) -> tuple[float, float]:
    """Choose limits that show all values with some room; wider bands are cut."""
    low, high = min(*values, 0.0), max(*values, 0.0)
    room = 0.25 * (high - low)
    return low - room, high + room


def _draw_pooled(axes: Axes, cells: Sequence[EstimatorCell], quantity: str, title: str) -> None:
    """Draw the mean over networks with one standard deviation."""
    sizes = sorted({cell.size for cell in cells})
    for name in SHOWN:
        means, spreads = [], []
        for size in sizes:
            values = _values(_keep(cells, estimator=name, size=size), quantity)
            means.append(values.mean())
            spreads.append(values.std())
        axes.errorbar(sizes, means, yerr=_positive_part(means, spreads), capsize=2, elinewidth=0.6, **_look(name))
    axes.set_title(title)


def _positive_part(means: Sequence[float], spreads: Sequence[float]) -> Array:
    """Cut error bars below so that a logarithmic axis can show them."""
    centre, spread = np.array(means), np.array(spreads)
    return np.stack([np.minimum(spread, 0.95 * centre), spread])


@register_drawing("confidences")
def draw_confidences(material: Material, *, losses: tuple[Loss, ...] = LOSSES, size: int = 128) -> DrawnFigure:
    """Draw the estimates for several confidence functions at one batch size.

    Parameters
    ----------
    material : Material
        Cells of several confidences.
    losses : tuple of {"0/1", "ce"}, default=("0/1", "ce")
        Losses to draw.
    size : int, default=128
        Batch size.

    Returns
    -------
    DrawnFigure
        A panel for each network and loss.
    """
    cells = []
    for cell in material.cells:
        if cell.loss in losses and cell.size == size:
            cells.append(cell)
    if not cells:
        raise InvalidInput(f"there are no cells of batch size {size}; measure them with --size {size}")
    figure, panels, cases = _make_case_panels(cells, wide=True)
    for axes, (model, loss) in zip(panels, cases, strict=True):
        own = _keep(cells, model=model, loss=loss)
        scores = list(dict.fromkeys(cell.score for cell in own))
        for column, score in enumerate(scores):
            _draw_confidence(axes, _keep(own, score=score), column)
        axes.set_xticks(range(len(scores)), [CONFIDENCES.get(score, score) for score in scores], fontsize=7)
        axes.set_ylim(0, None)
    _label_left(panels, f"AURC at n = {size}")
    _add_legend(figure, panels)
    note = (
        "Marks are expected estimates, bars one standard deviation over batches, grey lines the value of the whole "
        "data set."
    )
    return _with_cells(figure, cells, note)


def _draw_confidence(axes: Axes, cells: Sequence[EstimatorCell], column: int) -> None:
    """Draw the estimates of one confidence function beside each other; the first column gets the legend."""
    is_first = column == 0
    label = "population" if is_first else ""
    axes.hlines(cells[0].population, column - 0.4, column + 0.4, color=LIGHT.soft, linewidth=1.2, label=label)
    for place, name in enumerate(SHOWN):
        cell = _keep(cells, estimator=name)[-1]
        axes.errorbar(
            [column + 0.15 * (place - 2)],
            [cell.mean],
            yerr=[cell.std],
            color=_colour(name),
            marker="osD^v"[place],
            markersize=4,
            capsize=2,
            elinewidth=0.8,
            linestyle="none",
            label=LABELS[name] if is_first else None,
        )


@register_drawing("forms")
def draw_forms(material: Material, *, losses: tuple[Loss, ...] = LOSSES) -> DrawnFigure:
    """Draw the logarithmic form of AURC against the harmonic one on whole data sets, and their difference.

    Parameters
    ----------
    material : Material
        Cells of whole data sets.
    losses : tuple of {"0/1", "ce"}, default=("0/1", "ce")
        Losses to draw.

    Returns
    -------
    DrawnFigure
        Two panels.
    """
    cells = []
    for cell in _keep(material.cells, batches=1, estimator="log"):
        if cell.loss in losses:
            cells.append(cell)
    if not cells:
        raise InvalidInput("there are no cells of whole data sets; measure them with --whole")
    figure, (left, right) = _make_panels(2, share_y=False, width=3.6, height=3.2)
    rows = []
    for place, loss in enumerate(losses):
        own = _keep(cells, loss=loss)
        harmonic = _values(own, "population")
        logarithmic = _values(own, "mean")
        below = 100 * (1 - logarithmic / harmonic)
        look: dict[str, Any] = {"color": COLOURS[place], "marker": "os"[place], "s": 20, "facecolors": "none"}
        left.scatter(harmonic, logarithmic, label=LOSS_LABELS[loss], **look)
        right.scatter(harmonic, below, **look)
        for cell, share in zip(own, below, strict=True):
            rows.append((cell.model, cell.loss, cell.population, cell.mean, float(share)))
    left.axline((0.01, 0.01), slope=1, color=LIGHT.soft, linewidth=0.6)
    left.set(xscale="log", yscale="log", xlabel="harmonic form", ylabel="log form", title="AURC of whole data sets")
    right.set(xscale="log", ylim=(0, None), xlabel="harmonic form", ylabel="log form below it, %", title="difference")
    left.legend(frameon=False)
    shares = [row[-1] for row in rows]
    note = (
        f"The log form is smaller for every network, by {min(shares):.3f} to {max(shares):.3f} %: every one of its "
        "weights is smaller."
    )
    return DrawnFigure(figure, ("model", "loss", "harmonic", "log", "below_percent"), tuple(rows), (note,))


# --- parts ----------------------------------------------------------------------------------------------------------


def _colour(estimator: Estimator) -> str:
    return COLOURS[SHOWN.index(estimator)]


def _look(estimator: Estimator) -> dict[str, Any]:
    """Choose colour, dashes and label of an estimator."""
    place = SHOWN.index(estimator)
    return {"color": COLOURS[place], "linestyle": DASHES[place], "linewidth": 1.2, "label": LABELS[estimator]}


def _keep(cells: Sequence[EstimatorCell], **facts: object) -> list[EstimatorCell]:
    """Keep the cells that have these values, such as ``loss="ce", estimator="log"``."""
    kept = []
    for cell in cells:
        if all(getattr(cell, name) == value for name, value in facts.items()):
            kept.append(cell)
    return kept


def _values(cells: Sequence[EstimatorCell], quantity: str) -> Array:
    return np.array([getattr(cell, quantity) for cell in cells], dtype=np.float64)


def _select(material: Material, losses: Sequence[Loss]) -> list[EstimatorCell]:
    """Keep the batches ranked by the maximum softmax probability."""
    cells = []
    for cell in _keep(material.cells, score="msp"):
        if cell.loss in losses and cell.batches > 1:
            cells.append(cell)
    if not cells:
        raise InvalidInput(f"there are no cells of the score msp and the loss {' or '.join(losses)} to draw")
    return cells


def _make_panels(
    count: int, *, share_y: bool, width: float = 2.4, height: float = 2.4
) -> tuple[MatplotlibFigure, list[Axes]]:
    """Make a figure with a number of axes, at most four in a row; five are one row."""
    columns = min(count, MOST_COLUMNS)
    if count == 5:
        columns = 5
    lines = math.ceil(count / columns)
    size = (width * columns, height * lines + 0.5)
    figure = import_module("matplotlib.figure").Figure(figsize=size, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=share_y).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, list(grid[:count])


def _make_case_panels(
    cells: Sequence[EstimatorCell], *, wide: bool = False
) -> tuple[MatplotlibFigure, list[Axes], list[tuple[str, Loss]]]:
    """Make a panel for each network and loss, titled."""
    cases = list(dict.fromkeys((cell.model, cell.loss) for cell in cells))
    order = list(dict.fromkeys(cell.model for cell in cells))
    cases.sort(key=lambda case: (case[1], order.index(case[0])))
    width = 4.4 if wide else 2.5
    figure, panels = _make_panels(len(cases), share_y=False, width=width, height=2.2)
    for axes, (model, loss) in zip(panels, cases, strict=True):
        axes.set_title(f"{_shorten(model)}, {LOSS_LABELS[loss]}", fontsize=8, parse_math=False)
    return figure, panels, cases


def _shorten(name: str, most: int = 28) -> str:
    """Cut the beginning of a long name."""
    if len(name) <= most:
        return name
    return "…" + name[1 - most :]


def _finish_size_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks((8, 32, 128, 512), ("8", "32", "128", "512"))
    axes.minorticks_off()
    axes.set_xlabel("batch size n")


def _label_left(panels: Sequence[Axes], label: str) -> None:
    """Label the vertical axis of the first panel of each row."""
    for axes in panels:
        place = axes.get_subplotspec()
        if place is not None and place.is_first_col():
            axes.set_ylabel(label)


def _add_legend(figure: MatplotlibFigure, panels: Sequence[Axes]) -> None:
    handles, labels = panels[0].get_legend_handles_labels()
    fitting = max(1, int(figure.get_figwidth() / 1.6))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(fitting, 6), frameon=False, fontsize=7.5)


_COLUMNS = (
    *("model", "loss", "score", "size", "estimator", "population", "mean", "bias", "std", "mae", "mse", "rmse"),
    *("published_mae", "published_mse", "batches", "tied"),
)


def _with_cells(figure: MatplotlibFigure, cells: Sequence[EstimatorCell], *notes: str) -> DrawnFigure:
    """Add the numbers of the cells to a figure; those of every estimator, also of those that are not drawn."""
    rows = []
    for cell in cells:
        rows.append(tuple(getattr(cell, column) for column in _COLUMNS))
    tied = max(cell.tied for cell in cells)
    if tied > 0.005:
        notes = (
            *notes,
            f"Up to {100 * tied:.1f} % of the samples share their confidence; their order is drawn at random.",
        )
    return DrawnFigure(figure, _COLUMNS, tuple(rows), notes)
