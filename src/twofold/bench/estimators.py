"""How well AURC is estimated from few samples: bias, spread and error of every estimator on a model's saved outputs.

The population is the whole data set, and its AURC the ``empirical`` one. Samples are random permutations of it, cut
into batches. An estimator weighs ranks, so batches are drawn once, as ranks, and serve every confidence and loss. The
bias needs no batches: it follows exactly from the hypergeometric distribution of a sample's rank in its batch.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._csv import escape_cell, unescape_cell
from twofold._math import log_factorial, log_softmax
from twofold.bench.saved import SavedConfidences
from twofold.errors import InvalidInput
from twofold.metrics import aurc_weights
from twofold.metrics.selective import Estimator
from twofold.outputs import Outputs
from twofold.scores.chain import scorer
from twofold.typing import Array

Loss: TypeAlias = Literal["0/1", "ce"]
Progress: TypeAlias = Callable[[str, int, int], object]

ESTIMATORS: tuple[Estimator, ...] = ("empirical", "log", "self_excluded", "sele", "2sele", "trapezoid", "continuous")
PAPER_ESTIMATORS: tuple[Estimator, ...] = ("empirical", "log", "sele", "2sele")
LOSSES: tuple[Loss, ...] = ("0/1", "ce")
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
_MOST_DRAWN = 10_000_000  # samples of all batches of one size
_RANKS_AT_ONCE = 1000  # rows of the table of hypergeometric chances that are in memory together


@dataclass(frozen=True)
class EstimatorCell:
    """Hold how one estimator does on batches of one size.

    Parameters
    ----------
    model : str
        Name of the saved outputs.
    loss : {"0/1", "ce"}
        Loss of a sample: whether the prediction is wrong, or its cross-entropy.
    score : str
        Confidence by which samples are ranked.
    size : int
        Samples in a batch.
    estimator : str
        Name of the estimator, as :func:`twofold.metrics.aurc` takes it.
    population : float
        AURC of the whole data set.
    bias : float
        Expected estimate minus the population's AURC; exact.
    std : float
        Standard deviation of the estimate over batches.
    mse : float
        Mean squared error over batches.
    mae : float
        Mean absolute error over batches.
    batches : int
        Number of batches drawn.
    tied : float
        Share of samples whose confidence another sample has too; their order is drawn at random.
    """

    model: str
    loss: Loss
    score: str
    size: int
    estimator: str
    population: float
    bias: float
    std: float
    mse: float
    mae: float
    batches: int
    tied: float

    @property
    def mean(self) -> float:
        """The expected estimate.

        Returns
        -------
        float
            The population's AURC plus the bias.
        """
        return self.population + self.bias

    @property
    def rmse(self) -> float:
        """The root of the mean squared error.

        Returns
        -------
        float
            In the unit of the AURC.
        """
        return math.sqrt(self.mse)

    @property
    def published_mse(self) -> float:
        """What the released code of the paper calls MSE.

        Returns
        -------
        float
            The squared bias, without the variance.
        """
        return self.bias**2

    @property
    def published_mae(self) -> float:
        """What the released code of the paper calls MAE.

        Returns
        -------
        float
            The absolute value of the bias.
        """
        return abs(self.bias)


def measure_estimators(
    outputs: Mapping[str, Outputs | SavedConfidences],
    *,
    losses: Sequence[Loss] = LOSSES,
    scores: Sequence[str] = ("msp",),
    sizes: Sequence[int] = SIZES,
    estimators: Sequence[Estimator] = ESTIMATORS,
    permutations: int | None = None,
    whole: bool = False,
    progress: Progress | None = None,
) -> list[EstimatorCell]:
    """Measure estimators of AURC on random batches of saved outputs.

    Parameters
    ----------
    outputs : mapping from str to Outputs or SavedConfidences
        Labelled outputs of in-distribution data by name. Outputs of equal length share their batches. Where only
        confidences were saved, the loss must be 0/1 and the score msp.
    losses : sequence of {"0/1", "ce"}, default=("0/1", "ce")
        Losses to estimate the AURC of.
    scores : sequence of str, default=("msp",)
        Confidences that need no fitting, as :func:`twofold.scorer` takes them.
    sizes : sequence of int, default=(8, 16, 32, 64, 128, 256, 512, 1024)
        Batch sizes; those larger than the data set are left out.
    estimators : sequence of str
        Names of estimators; by default all seven.
    permutations : int, optional
        How often the data set is shuffled and cut into batches. By default 8 times the batch size, at least 64 and at
        most 1,000, and fewer for data sets of more than 10,000 samples, so that at most 10 million are drawn.
    whole : bool, default=False
        Whether the estimators are also applied to the whole data set, as a batch of all its samples.
    progress : callable, optional
        Called with a label, the number of finished batch sizes and their total.

    Returns
    -------
    list of EstimatorCell
        One cell for each size, model, loss, score and estimator.

    Raises
    ------
    InvalidInput
        If outputs have no labels or hold OOD samples, a loss is unknown, or no batch size fits.

    References
    ----------
    Zhou et al., A Novel Characterization of the Population Area Under the Risk Coverage Curve, ICML 2025,
    arXiv:2410.15361.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=200)
    >>> logits = rng.normal(size=(200, 3)) + 2 * np.eye(3)[labels]
    >>> cells = measure_estimators({"toy": Outputs(logits, labels)}, losses=["0/1"], sizes=[8], permutations=20)
    >>> {cell.estimator: round(cell.bias, 3) for cell in cells if cell.estimator in ("empirical", "sele")}
    {'empirical': 0.016, 'sele': 0.011}
    """
    risks = _rank_losses(outputs, losses, scores)
    fitting = _fitting_sizes(sizes, min(len(one) for one in outputs.values()))
    lengths = sorted({len(risk.losses) for risk in risks})
    cells = []
    for done, size in enumerate(fitting):
        for length in lengths:
            count = permutations or _permutation_count(size, length)
            sampled = _SampledBatches.draw(length, size, count, tuple(estimators))
            same_length = [risk for risk in risks if len(risk.losses) == length]
            for risk in same_length:
                cells += sampled.measure(risk)
        if progress is not None:
            progress(f"batches of {size}", done + 1, len(fitting))
    if whole:
        for risk in risks:
            cells += _measure_whole(risk, tuple(estimators))
    return cells


def cells_from_csv(text: str) -> list[EstimatorCell]:
    """Read cells from CSV text.

    Parameters
    ----------
    text : str
        What :func:`cells_to_csv` wrote.

    Returns
    -------
    list of EstimatorCell
        The cells, equal to those that were written.

    Raises
    ------
    InvalidInput
        If a column is missing or a value is not a number.

    Examples
    --------
    >>> cell = EstimatorCell("net", "ce", "msp", 8, "log", 0.1, 0.02, 0.3, 0.09, 0.2, 640, 0.0)
    >>> cells_from_csv(cells_to_csv([cell])) == [cell]
    True
    """
    cells = []
    for row in csv.DictReader(io.StringIO(text)):
        try:
            cells.append(_parse_cell(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"line {len(cells) + 2} is not one of `twofold bench estimators`: {error}") from error
    return cells


def _parse_cell(row: Mapping[str, str]) -> EstimatorCell:
    """Parse one line."""
    loss = _checks.choice(row["loss"], "loss", LOSSES)
    return EstimatorCell(
        model=unescape_cell(row["model"]),
        loss="ce" if loss == "ce" else "0/1",
        score=row["score"],
        size=int(row["size"]),
        estimator=row["estimator"],
        population=float(row["population"]),
        bias=float(row["bias"]),
        std=float(row["std"]),
        mse=float(row["mse"]),
        mae=float(row["mae"]),
        batches=int(row["batches"]),
        tied=float(row["tied"]),
    )


def cells_to_csv(cells: Iterable[EstimatorCell]) -> str:
    """Write cells as CSV text, one line each.

    Parameters
    ----------
    cells : iterable of EstimatorCell
        The cells.

    Returns
    -------
    str
        The text with a header line.

    Examples
    --------
    >>> cells_to_csv([]).startswith("model,loss,score,size,estimator,population")
    True
    """
    names = [field.name for field in fields(EstimatorCell)]
    with io.StringIO() as text:
        writer = csv.DictWriter(text, [*names, "rmse", "published_mse", "published_mae"], lineterminator="\n")
        writer.writeheader()
        for cell in cells:
            derived = {"rmse": cell.rmse, "published_mse": cell.published_mse, "published_mae": cell.published_mae}
            writer.writerow({**asdict(cell), "model": escape_cell(cell.model), **derived})
        return text.getvalue()


def _permutation_count(size: int, rows: int) -> int:
    """Choose how often a data set is shuffled: more often for larger batches, of which it has fewer."""
    wanted = max(64, min(8 * size, 1000))
    return max(1, min(wanted, _MOST_DRAWN // rows))


@dataclass(frozen=True, eq=False)
class _RankedLosses:
    """The losses of one model, from the least to the most confident sample."""

    model: str
    loss: Loss
    score: str
    losses: Array
    tied: float


def _rank_losses(
    outputs: Mapping[str, Outputs | SavedConfidences], losses: Sequence[Loss], scores: Sequence[str]
) -> list[_RankedLosses]:
    """Sort the losses of every model by every confidence."""
    if not outputs:
        raise InvalidInput("outputs must name at least one set of saved outputs, got none")
    for loss in losses:
        _checks.choice(loss, "loss", LOSSES)
    ranked = []
    for model, one in outputs.items():
        if isinstance(one, SavedConfidences):
            ranked.append(_rank_saved(model, one, losses, scores))
            continue
        _check_labels(model, one)
        for score in scores:
            conf = scorer(score).score(one)
            order = _random_tie_order(conf)
            tied = _tied_share(conf)
            for loss in losses:
                ranked.append(_RankedLosses(model, loss, score, _sample_losses(one, loss)[order], tied))
    return ranked


def _check_labels(model: str, outputs: Outputs) -> None:
    """Check that every sample has a label and is ID."""
    if outputs.labels is None:
        raise InvalidInput(f"outputs {model!r} have no labels; AURC needs to know which predictions are correct")
    if not outputs.is_id.all():
        raise InvalidInput(f"outputs {model!r} hold OOD samples (label -1); pass those of an ID test set alone")


def _rank_saved(model: str, saved: SavedConfidences, losses: Sequence[Loss], scores: Sequence[str]) -> _RankedLosses:
    """Sort the errors of a model of which only the confidence and the prediction were saved."""
    if tuple(losses) != ("0/1",) or tuple(scores) != ("msp",):
        raise InvalidInput(
            f"of {model!r} only confidences were saved: they have the loss 0/1 and the score msp and no other, "
            f"got {', '.join(losses)} and {', '.join(scores)}"
        )
    order = _random_tie_order(saved.conf)
    errors = (~saved.correct).astype(np.float64)
    return _RankedLosses(model, "0/1", "msp", errors[order], _tied_share(saved.conf))


def _sample_losses(outputs: Outputs, loss: Loss) -> Array:
    """Compute the loss of each sample."""
    if loss == "0/1":
        return (~outputs.correct).astype(np.float64)
    log_probs = log_softmax(np.asarray(outputs.logits, dtype=np.float64))
    labels = np.asarray(outputs.labels, dtype=np.intp)
    return -log_probs[np.arange(len(labels)), labels]


def _random_tie_order(conf: Array) -> npt.NDArray[np.intp]:
    """Order samples by confidence, ascending; samples of equal confidence in a random order."""
    jitter = np.random.default_rng(0).permutation(len(conf))
    return np.lexsort((jitter, conf))


def _tied_share(conf: Array) -> float:
    """Compute the share of samples that share their confidence with another."""
    _, counts = np.unique(conf, return_counts=True)
    return float(counts[counts > 1].sum() / len(conf))


def _fitting_sizes(sizes: Sequence[int], shortest: int) -> list[int]:
    """List the batch sizes that every data set can fill."""
    for size in sizes:
        _checks.whole(size, "size", 2)
    fitting = [size for size in sizes if size <= shortest]
    if not fitting:
        raise InvalidInput(f"sizes must include one of at most {shortest}, the rows of the smallest set; got {sizes}")
    return fitting


def _measure_whole(risk: _RankedLosses, estimators: Sequence[Estimator]) -> list[EstimatorCell]:
    """Apply every estimator to the whole data set; the result is one number, without spread."""
    rows = len(risk.losses)
    population = float(aurc_weights(rows) @ risk.losses) / rows
    cells = []
    for name in estimators:
        error = float(aurc_weights(rows, name) @ risk.losses) / rows - population
        cell = EstimatorCell(
            model=risk.model,
            loss=risk.loss,
            score=risk.score,
            size=rows,
            estimator=name,
            population=population,
            bias=error,
            std=0.0,
            mse=error**2,
            mae=abs(error),
            batches=1,
            tied=risk.tied,
        )
        cells.append(cell)
    return cells


@dataclass(frozen=True, eq=False)
class _SampledBatches:
    """Batches of one size as ranks in the population, with the weights that estimators give to ranks."""

    size: int
    estimators: tuple[Estimator, ...]
    ranks: Array  # (batches, size) ascending ranks in the population
    weights: Array  # (size, estimators) weight of each rank in a batch
    expected: Array  # (rows, estimators) mean weight of each rank in the population
    population: Array  # (rows,) weight of each rank in the whole data set

    @classmethod
    def draw(cls, rows: int, size: int, permutations: int, estimators: tuple[Estimator, ...]) -> _SampledBatches:
        """Shuffle the population several times and cut it into batches."""
        rng = np.random.default_rng(size)
        whole = rows // size * size
        shuffled = np.array([rng.permutation(rows)[:whole] for _ in range(permutations)])
        ranks = np.sort(shuffled.reshape(-1, size), axis=1)
        weights = np.column_stack([aurc_weights(size, name) for name in estimators])
        return cls(size, estimators, ranks, weights, _expected_weights(rows, weights), aurc_weights(rows))

    def measure(self, risk: _RankedLosses) -> list[EstimatorCell]:
        """Compare what every estimator gives on the batches with the AURC of the population."""
        rows = len(risk.losses)
        population = float(self.population @ risk.losses) / rows
        bias = risk.losses @ self.expected / rows - population
        estimates = risk.losses[self.ranks] @ self.weights / self.size
        errors = estimates - population
        cells = []
        for j, name in enumerate(self.estimators):
            cells.append(
                EstimatorCell(
                    model=risk.model,
                    loss=risk.loss,
                    score=risk.score,
                    size=self.size,
                    estimator=name,
                    population=population,
                    bias=float(bias[j]),
                    std=float(estimates[:, j].std()),
                    mse=float((errors[:, j] ** 2).mean()),
                    mae=float(np.abs(errors[:, j]).mean()),
                    batches=len(self.ranks),
                    tied=risk.tied,
                )
            )
        return cells


def _expected_weights(rows: int, weights: Array) -> Array:
    """Compute the mean weight of each population rank over the random batches that hold it.

    Of the n - 1 others in a batch, k are less confident than the sample of rank r with the hypergeometric chance
    C(r - 1, k) C(N - r, n - 1 - k) / C(N - 1, n - 1).
    """
    size = len(weights)
    log_f = log_factorial(np.arange(rows + 1, dtype=float))
    less = np.arange(size)  # k
    more = size - 1 - less
    log_total = log_f[rows - 1] - log_f[size - 1] - log_f[rows - size]
    mean = np.empty((rows, weights.shape[1]))
    for first in range(0, rows, _RANKS_AT_ONCE):
        below = np.arange(first, min(first + _RANKS_AT_ONCE, rows))[:, None]  # r - 1
        above = rows - 1 - below
        possible = (less <= below) & (more <= above)
        ways_below = log_f[below] - log_f[less] - log_f[np.where(possible, below - less, 0)]
        ways_above = log_f[above] - log_f[more] - log_f[np.where(possible, above - more, 0)]
        chances = np.exp(np.where(possible, ways_below + ways_above - log_total, -np.inf))
        mean[first : first + len(below)] = chances @ weights
    return mean
