r"""Scores from statistics of several layers, recorded at extraction.

``layers["NAME/mean"]`` and ``["NAME/var"]`` hold the mean and variance of each channel of layer NAME,
``["NAME/gram1"]``, ``["NAME/gram2"]``, ... the result of :func:`gram_rows` for its feature maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import TINY, log_softmax, squared_distances
from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.moments import ROWS, Moments, blocks, whiten_rows, whitening
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, Mask, StepHooks, state

Layers = Mapping[str, Floats]
Packed = npt.NDArray[np.uint8]

MARGIN = 1e-6  # added to the denominators of gram
RESOLUTION = 1e-12  # a variance below this share of its inputs is rounding error


def _layer_of(key: str) -> str:
    """Return the name of the layer of a key: the part before the last slash."""
    return key.rpartition("/")[0]


def _statistic_of(key: str) -> str:
    """Return the statistic of a key: the part after the last slash."""
    return key.rpartition("/")[2]


def _group_by_layer(keys: Iterable[str]) -> dict[str, list[str]]:
    """Group the keys by layer, in the order in which the layers first occur."""
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(_layer_of(key), []).append(key)
    return groups


def _layer_numbers(keys: Sequence[str]) -> list[int]:
    """Return the number of the layer of each key."""
    names = list(_group_by_layer(keys))
    return [names.index(_layer_of(key)) for key in keys]


def pack_keys(keys: Sequence[str]) -> Packed:
    """Encode the names of keys as an array, which is all that a saved chain can hold: UTF-8 text, one to a line.

    Parameters
    ----------
    keys : sequence of str
        Names of recorded layers.

    Returns
    -------
    ndarray of shape (n_bytes,), uint8
        The text.

    Raises
    ------
    InvalidInput
        If a name has a line break.
    """
    text = "\n".join(keys)
    if text.count("\n") != len(keys) - 1:
        raise InvalidInput(f"keys of layers must have no line breaks, got {list(keys)}")
    return np.frombuffer(text.encode(), np.uint8)


def unpack_keys(packed: Packed) -> list[str]:
    """Decode what :func:`pack_keys` encoded.

    Parameters
    ----------
    packed : ndarray of shape (n_bytes,), uint8
        The text.

    Returns
    -------
    list of str
        Names of recorded layers.

    Examples
    --------
    >>> unpack_keys(pack_keys(["relu1/max", "relu1/min"]))
    ['relu1/max', 'relu1/min']
    """
    return packed.tobytes().decode().split("\n")


def _measure_widths(layers: Layers, keys: Sequence[str]) -> Labels:
    """Return the number of columns of each key."""
    return np.array([layers[key].shape[1] for key in keys], dtype=np.int64)


def _list_layers(layers: Layers) -> str:
    """List the recorded layers, for an error."""
    if not layers:
        return "no layers"
    return f"layers {', '.join(map(repr, sorted(layers)))} only"


def _check_layers(score: str, layers: Layers, keys: Sequence[str], widths: Labels, whose: str = "these") -> None:
    """Raise unless the outputs hold the layers that the score was fitted on."""
    for key, width in zip(keys, widths, strict=True):
        if key not in layers:
            raise InvalidInput(f"{score} was fitted on layers[{key!r}]; {whose} outputs have {_list_layers(layers)}")
        if layers[key].shape[1] != width:
            got = layers[key].shape[1]
            raise InvalidInput(f"{score} was fitted on {width} columns of layers[{key!r}]; {whose} outputs have {got}")


def _check_keys(packed: Packed, widths: Labels) -> list[str]:
    """Return the keys in loaded arrays; raise unless they are distinct names, each with a width."""
    try:
        keys = unpack_keys(packed)
    except UnicodeDecodeError as error:
        raise InvalidInput("keys holds no UTF-8 text") from error
    if len(set(keys)) != len(keys) or len(keys) != len(widths) or (widths < 1).any():
        raise InvalidInput("keys must be different names of layers, each with a width of at least 1")
    return keys


def _slices(widths: Labels) -> list[slice]:
    """Return the columns of arrays of these widths when they stand side by side."""
    ends = np.cumsum(widths).tolist()
    starts = [0, *ends[:-1]]
    return list(map(slice, starts, ends))


# Gram matrices


def gram_rows(maps: Floats, power: int) -> Array:
    r"""Compute the row sums of the channels' Gram matrix of a power of the feature maps.

    .. math:: r = A A^T 1, \quad A = F^q, \qquad \text{result} = \mathrm{sign}(r) |r|^{1/q}

    with the power q taken of each entry. The matrix itself is never built, as its row sums are :math:`A (A^T 1)`.

    Parameters
    ----------
    maps : ndarray of shape (n_samples, n_channels, n_positions)
        Feature maps F with the spatial positions flattened.
    power : int
        The power q, at least 1.

    Returns
    -------
    ndarray of shape (n_samples, n_channels)
        Row sums, brought back to the scale of q = 1 by the q-th root.

    Raises
    ------
    InvalidInput
        If ``maps`` is not three-dimensional, or ``power`` is not a whole number of at least 1.

    Examples
    --------
    >>> gram_rows(np.array([[[1.0, 2.0], [0.0, -1.0]]]), 1)
    array([[ 3., -1.]])
    """
    f, q = np.asarray(maps, dtype=np.float64), _checks.whole(power, "power", 1)
    if f.ndim != 3:
        raise InvalidInput(f"maps must be three-dimensional (N, channels, positions), got shape {f.shape}")
    scale = np.abs(f).max(axis=(1, 2), keepdims=True, initial=0.0)  # divided out, so that no power overflows
    a = (f / np.where(scale > 0, scale, 1.0)) ** q
    r = np.einsum("ncp,np->nc", a, a.sum(axis=1))
    return np.sign(r) * np.abs(r) ** (1.0 / q) * scale[:, 0] ** 2


@register_score("gram", paper="Sastry & Oore, ICML 2020, arXiv:1912.12510", cost="K of all layers", project=())
@dataclass(frozen=True, eq=False)
class Gram(StepHooks):
    r"""Score by the negative amount by which the layers' correlations leave the range of the predicted class.

    .. math:: s = -\frac{1}{p_{\hat y}} \sum_l \frac{\delta_l}{n_l}, \qquad \delta_l = \sum_{q, i}
              \frac{\max(m_{\hat y} - g, 0)}{|m_{\hat y}| + 10^{-6}} +
              \frac{\max(g - M_{\hat y}, 0)}{|M_{\hat y}| + 10^{-6}}

    with g the values ``layers["NAME/gramq"]`` of layer l, q in ``powers`` (see :func:`gram_rows`), m and M their least
    and largest values over the training rows of a class, separately for each channel and power, and :math:`n_l` the
    mean of :math:`\delta_l` over training rows that are kept out of the ranges.

    Parameters
    ----------
    powers : tuple of int, default=(1, 2, 3, 4, 5)
        Powers to use, each at least 1; they must be recorded at extraction. The paper's are 1 to 10.
    split : float, default=0.1
        Share of the rows of each class to keep out of the ranges, in [0, 1), rounded down.
    seed : int, default=0
        Seed of the draw of the rows kept out.

    Attributes
    ----------
    keys : ndarray of shape (n_bytes,), uint8
        Names of the layers used, as UTF-8 text; set by ``fit``.
    widths : ndarray of shape (n_keys,)
        Number of columns of each key; set by ``fit``.
    low : ndarray of shape (n_classes, n_columns)
        Least values m, in the precision of the layers; learnt by ``fit``.
    high : ndarray of shape (n_classes, n_columns)
        Largest values M, in the precision of the layers; learnt by ``fit``.
    typical : ndarray of shape (n_layers,)
        Mean deviations :math:`n_l` of the rows kept out; learnt by ``fit``.

    Notes
    -----
    :math:`n_l` is 1 for a layer where no row kept out leaves its range, or if there are no such rows. Inside all ranges
    s is 0, however confident the classifier.

    Ranges are by label; the authors' code groups the training rows by predicted class, which is the same where training
    predictions are correct. A class without training rows has the range of all rows. An older version of a widely used
    benchmark pooled all channels of a layer into one range and had no :math:`n_l`, which is another score.

    References
    ----------
    Sastry & Oore, ICML 2020, arXiv:1912.12510.

    Examples
    --------
    >>> g, y = {"a/gram1": np.array([[1.0], [2.0], [5.0], [6.0]])}, np.array([0, 0, 1, 1])
    >>> fitted = Gram(powers=(1,)).fit(g, y, y, np.zeros((4, 2)))
    >>> fitted.score({"a/gram1": np.array([[1.5], [3.0]])}, np.zeros((2, 2)), np.array([0, 0])).round(4)
    array([-0., -1.])
    """

    powers: tuple[int, ...] = (1, 2, 3, 4, 5)
    split: float = 0.1
    seed: int = 0
    keys: Packed = state("B", kind="byte")
    widths: Labels = state("N", kind="integer")  # number of columns of each key
    low: Floats = state("C K")  # in the precision of the layers, which is exact
    high: Floats = state("C K")
    typical: Array = state("L")  # mean deviation of the rows kept out

    def fit(self, layers: Layers, labels: Labels, predictions: Labels, logits: Floats) -> Self:
        """Find the ranges of the classes, a block of rows at a time, then the typical deviation of the rows kept out.

        Parameters
        ----------
        layers : mapping of str to ndarray
            Recorded layers by name; ``"NAME/gramq"`` is read for every power q.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows, for the rows kept out.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.

        Returns
        -------
        Gram
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, no layer or not every power of a layer was recorded, or every label is -1.
        """
        keys = self._find_keys(layers)
        share = _checks.number(self.split, "split", 0.0, 1.0, open_high=True)
        seed = _checks.whole(self.seed, "seed", 0)
        truth, classes = np.asarray(labels), np.shape(logits)[1]
        if (truth < 0).all():
            raise InvalidInput("labels must name a class for at least one training row; all are -1")
        widths = _measure_widths(layers, keys)
        held_out = _draw_rows(truth, share, seed)
        low, high = _class_ranges(layers, keys, widths, np.where(held_out, -1.0, truth), classes)
        fitted = replace(self, keys=pack_keys(keys), widths=widths, low=low, high=high)
        rows = np.flatnonzero(held_out)
        total = fitted._total_deviation(layers, rows, np.asarray(predictions))
        return replace(fitted, typical=np.where(total > 0, total / max(len(rows), 1), 1.0))

    def _total_deviation(self, layers: Layers, rows: Labels, predictions: Labels) -> Array:
        """Sum the deviations of these rows from the ranges of their predicted classes, for each layer."""
        keys = unpack_keys(self.keys)
        numbers = _layer_numbers(keys)
        total = np.zeros(max(numbers) + 1)
        for key, columns, layer in zip(keys, _slices(self.widths), numbers, strict=True):
            low, high = self.low[:, columns], self.high[:, columns]
            for first in range(0, len(rows), ROWS):
                block = rows[first : first + ROWS]
                chosen = predictions[block]
                total[layer] += _deviate(layers[key][block], low[chosen], high[chosen]).sum()
                release(layers[key])
        return total

    def check_state(self) -> None:
        """Check that the ranges fit the keys.

        Raises
        ------
        InvalidInput
            If names, widths and ranges are inconsistent.
        """
        keys = _check_keys(self.keys, self.widths)
        if self.low.shape[1] != self.widths.sum() or len(self.low) == 0:
            raise InvalidInput(f"low has shape {self.low.shape}, but the layers have {self.widths.sum()} columns")
        if len(self.typical) != len(_group_by_layer(keys)):
            raise InvalidInput(f"typical has {len(self.typical)} entries for {len(_group_by_layer(keys))} layers")

    def score(self, layers: Layers, logits: Floats, predictions: Labels) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        layers : mapping of str to ndarray
            Recorded layers by name, with the keys that were fitted.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If a layer that was fitted is missing or has another width.
        """
        keys, chosen = unpack_keys(self.keys), np.asarray(predictions)
        _check_layers("gram", layers, keys, self.widths)
        deviation = np.zeros((len(chosen), len(self.typical)))
        for key, columns, layer in zip(keys, _slices(self.widths), _layer_numbers(keys), strict=True):
            deviation[:, layer] += _deviate(layers[key], self.low[chosen, columns], self.high[chosen, columns])
        p = np.exp(log_softmax(logits)[np.arange(len(chosen)), chosen])
        # predictions other than the argmax of the logits may have no probability at all
        return -(deviation / self.typical).sum(axis=1) / np.maximum(p, TINY)

    def _find_keys(self, layers: Layers) -> list[str]:
        """Return the keys to use, sorted; a layer with one of the powers must have all."""
        if not isinstance(self.powers, tuple | list) or not self.powers:
            raise InvalidInput(f"powers must be a tuple of whole numbers such as (1, 2, 3), got {self.powers!r}")
        statistics = {f"gram{_checks.whole(power, 'powers', 1)}" for power in self.powers}
        recorded = [key for key in layers if _statistic_of(key) in statistics]
        if not recorded:
            raise InvalidInput(
                f"gram needs layers['NAME/{min(statistics)}'], recorded at extraction; "
                f"these outputs have {_list_layers(layers)}"
            )
        for name in sorted(_group_by_layer(recorded)):
            for statistic in sorted(statistics):
                key = f"{name}/{statistic}"
                if key not in layers:
                    there = sorted(_group_by_layer(layers)[name])
                    raise InvalidInput(
                        f"gram(powers={self.powers}) needs layers[{key!r}]; of this layer there are "
                        f"{', '.join(there)}; record it at extraction, or choose powers that every layer has"
                    )
        return sorted(recorded)


def _class_ranges(
    layers: Layers, keys: Sequence[str], widths: Labels, labels: Array, classes: int
) -> tuple[Floats, Floats]:
    """Find the least and largest value (C, K) of each column by class, a block of rows at a time.

    Rows labelled -1 are left out. A class without rows has the range of all classes.
    """
    kind = np.result_type(*[layers[key].dtype for key in keys])
    low = np.full((classes, widths.sum()), np.inf, kind)
    high = np.full((classes, widths.sum()), -np.inf, kind)
    for key, columns in zip(keys, _slices(widths), strict=True):
        for values, block_labels in blocks(layers[key], labels):
            used = block_labels >= 0
            _widen(low[:, columns], high[:, columns], block_labels[used].astype(np.int64), values[used])
    known = np.isfinite(low[:, 0])
    low[~known], high[~known] = low[known].min(axis=0), high[known].max(axis=0)
    return low, high


def _draw_rows(labels: Labels, share: float, seed: int) -> Mask:
    """Draw this share of the rows of each class, rounded down, so that no class loses all its rows."""
    known = np.flatnonzero(labels >= 0)
    order = known[np.lexsort((np.random.default_rng(seed).random(len(known)), labels[known]))]
    _, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    drawn = np.zeros(len(labels), dtype=bool)
    drawn[order] = rank < np.repeat(np.floor(share * count), count)
    return drawn


def _widen(low: Floats, high: Floats, classes: Labels, values: Array) -> None:
    """Widen the ranges of classes, in place, by the values of their rows."""
    order = np.argsort(classes, kind="stable")
    present, first = np.unique(classes[order], return_index=True)
    if len(present):
        low[present] = np.minimum(low[present], np.minimum.reduceat(values[order], first, axis=0))
        high[present] = np.maximum(high[present], np.maximum.reduceat(values[order], first, axis=0))


def _deviate(values: Floats, low: Floats, high: Floats) -> Array:
    """Compute how far each row is outside the ranges, relative to their ends, summed over the columns."""
    g = np.asarray(values, dtype=np.float64)
    m = np.asarray(low, dtype=np.float64)
    top = np.asarray(high, dtype=np.float64)
    below = np.maximum(m - g, 0.0) / (np.abs(m) + MARGIN)
    above = np.maximum(g - top, 0.0) / (np.abs(top) + MARGIN)
    return (below + above).sum(axis=1)


# Mahalanobis distances


@register_score(
    "mds_layers",
    paper="Lee et al., NeurIPS 2018, arXiv:1807.03888",
    aliases=("mds_ensemble",),
    cost="K^2 + CK of each layer",
    project=(),
)
@dataclass(frozen=True, eq=False)
class MahalanobisLayers(StepHooks):
    r"""Score by a weighted sum of the negative Mahalanobis distances to the nearest class mean in every layer.

    .. math:: s = \sum_l a_l s_l, \qquad
              s_l = -\tfrac12 \min_c (h_l - \mu_{lc})^T \Sigma_l^{-1} (h_l - \mu_{lc})

    with :math:`h_l` the channel statistics of layer l, and :math:`\Sigma_l` their pooled covariance within classes.

    Parameters
    ----------
    statistics : {("mean",), ("mean", "var")}, default=("mean",)
        The channel means ``layers["NAME/mean"]``, or also the channel variances ``layers["NAME/var"]`` where the layer
        has them.
    weights : {"fitted", "equal"}, default="fitted"
        ``"fitted"``: :math:`a` from a logistic regression (L2, C = 1, on standardised :math:`s_l`, both sets with the
        same total weight) of validation rows against ``ood_val``; without validation outputs, of training rows, whose
        distances are too short. Weights may be negative. ``"equal"``: one over the standard deviation of :math:`s_l` on
        the training set (1 if that is 0), which needs no ``ood_val``.

    Attributes
    ----------
    keys : ndarray of shape (n_bytes,), uint8
        Names of the layers used, as UTF-8 text; set by ``fit``.
    widths : ndarray of shape (n_keys,)
        Number of columns of each key; set by ``fit``.
    ranks : ndarray of shape (n_layers,)
        Number of whitened directions of each layer; learnt by ``fit``.
    shift : ndarray of shape (n_columns,)
        Mean of each column, layer after layer; learnt by ``fit``.
    whiten : ndarray of shape (n_entries,)
        Whitening matrices of the layers, flattened, one after the other; learnt by ``fit``.
    centres : ndarray of shape (n_centre_entries,)
        Whitened class means of the layers, flattened, one after the other; learnt by ``fit``.
    slopes : ndarray of shape (n_layers,)
        The weights :math:`a_l`; learnt by ``fit``.

    Notes
    -----
    Directions without variance are ignored, as are layers without variance within classes and classes without training
    rows. The paper also perturbs the input: that is the score ``mds_perturbed``, which extraction computes. A widely
    used benchmark ships this method with the first convolution alone; its published numbers are those of one layer.

    References
    ----------
    Lee et al., NeurIPS 2018, arXiv:1807.03888.

    Examples
    --------
    >>> rng, y = np.random.default_rng(0), np.array([0, 1] * 20)
    >>> train = {"a/mean": rng.normal(size=(40, 2)) + 4 * np.eye(2)[y], "b/mean": rng.normal(size=(40, 3))}
    >>> fitted = MahalanobisLayers(weights="equal").fit(train, y, np.zeros((40, 2)))
    >>> test = {"a/mean": np.array([[4.0, 0.0], [2.0, 2.0]]), "b/mean": np.zeros((2, 3))}
    >>> bool(np.diff(fitted.score(test))[0] < 0)
    True
    """

    statistics: tuple[str, ...] = ("mean",)
    weights: Literal["fitted", "equal"] = "fitted"
    keys: Packed = state("B", kind="byte")
    widths: Labels = state("N", kind="integer")  # number of columns of each key
    ranks: Labels = state("L", kind="integer")  # number of whitened directions R of each layer
    shift: Array = state("D")  # mean of each column, layer after layer
    whiten: Array = state("W")  # whitening matrices of the layers, flat, one after the other
    centres: Array = state("P")  # whitened class means of each layer, flat, one after the other
    slopes: Array = state("L")  # weights of the layers

    def unused_arguments(self) -> tuple[str, ...]:
        """List the arguments of ``fit`` that the settings make unnecessary.

        Returns
        -------
        tuple of str
            The layers of the validation and OOD validation sets with ``weights="equal"``, else nothing.

        Examples
        --------
        >>> MahalanobisLayers(weights="equal").unused_arguments()
        ('val_layers', 'ood_val_layers')
        """
        if self.weights == "equal":
            return ("val_layers", "ood_val_layers")
        return ()

    def fit(
        self,
        layers: Layers,
        labels: Labels,
        logits: Floats,
        val_layers: Layers | None = None,
        ood_val_layers: Layers | None = None,
    ) -> Self:
        """Estimate the means and covariance of each layer from blocks of rows, then the weights.

        Parameters
        ----------
        layers : mapping of str to ndarray
            Recorded layers by name; ``"NAME/mean"`` is read, and ``"NAME/var"`` with that statistic.
        labels : ndarray of shape (n_samples,)
            Training labels; rows labelled -1 belong to no class and are ignored.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits; only their number of classes is used.
        val_layers : mapping of str to ndarray, optional
            Layers of the validation set, for fitted weights; by default the training layers.
        ood_val_layers : mapping of str to ndarray, optional
            Layers of the OOD validation set; required by ``weights="fitted"``.

        Returns
        -------
        MahalanobisLayers
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is unknown, ``ood_val_layers`` is missing with fitted weights, no layer was recorded or varies
            within classes, every label is -1, or the sets have different layers.
        """
        if tuple(self.statistics) not in (("mean",), ("mean", "var")):
            raise InvalidInput(f'statistics must be ("mean",) or ("mean", "var"), got {self.statistics!r}')
        _checks.choice(self.weights, "weights", ("fitted", "equal"))
        if self.weights == "fitted" and not ood_val_layers:
            raise InvalidInput(
                'mds_layers(weights="fitted") is fitted on layers of ood_val; pass ood_val= to fit, or weights="equal"'
            )
        recorded = sorted(key for key in layers if _statistic_of(key) in self.statistics)
        gaussians = []
        for name, keys in _group_by_layer(recorded).items():
            if f"{name}/mean" in keys:
                gaussians.append(_LayerGaussian.fit(layers, keys, labels, np.shape(logits)[1]))
        if not gaussians:
            raise InvalidInput(
                "mds_layers needs layers['NAME/mean'], recorded at extraction; "
                f"these outputs have {_list_layers(layers)}"
            )
        varying = [gaussian for gaussian in gaussians if gaussian is not None]
        if not varying:
            raise InvalidInput("mds_layers: no layer varies within the classes of the training rows; check the layers")
        fitted = self._flatten(varying, layers)
        if self.weights == "equal" or ood_val_layers is None:
            return replace(fitted, slopes=1.0 / _spread(fitted._score_set(layers, "train")))
        if val_layers is None:
            id_scores = fitted._score_set(layers, "train")
        else:
            id_scores = fitted._score_set(val_layers, "val")
        return replace(fitted, slopes=_fit_weights(id_scores, fitted._score_set(ood_val_layers, "ood_val")))

    def _flatten(self, gaussians: Sequence[_LayerGaussian], layers: Layers) -> Self:
        """Store the parts of all layers in flat arrays, one layer after the other."""
        keys: list[str] = []
        ranks, means, whitens, centres = [], [], [], []
        for gaussian in gaussians:
            keys += gaussian.keys
            ranks.append(gaussian.whiten.shape[1])
            means.append(gaussian.mean)
            whitens.append(gaussian.whiten.ravel())
            centres.append(gaussian.centres.ravel())
        return replace(
            self,
            keys=pack_keys(keys),
            widths=_measure_widths(layers, keys),
            ranks=np.array(ranks, dtype=np.int64),
            shift=np.concatenate(means),
            whiten=np.concatenate(whitens),
            centres=np.concatenate(centres),
        )

    def _unflatten(self) -> list[_LayerGaussian]:
        """Cut the flat arrays into the parts of each layer."""
        groups = _group_by_layer(unpack_keys(self.keys)).values()
        classes = len(self.centres) // int(self.ranks.sum())
        sizes = _layer_sizes(unpack_keys(self.keys), self.widths)
        means = np.split(self.shift, np.cumsum(sizes)[:-1])
        whitens = np.split(self.whiten, np.cumsum(sizes * self.ranks)[:-1])
        centres = np.split(self.centres, np.cumsum(classes * self.ranks)[:-1])
        gaussians = []
        for i, keys in enumerate(groups):
            rank = int(self.ranks[i])
            whiten, centre = whitens[i].reshape(-1, rank), centres[i].reshape(-1, rank)
            gaussians.append(_LayerGaussian(keys, means[i], whiten, centre))
        return gaussians

    def check_state(self) -> None:
        """Check that the flat arrays have the sizes which keys, widths and ranks imply.

        Raises
        ------
        InvalidInput
            If a size is inconsistent.
        """
        keys = _check_keys(self.keys, self.widths)
        sizes = _layer_sizes(keys, self.widths)
        if len(sizes) != len(self.ranks) or (self.ranks < 1).any() or (self.ranks > sizes).any():
            raise InvalidInput(f"ranks must be from 1 to the columns of each of {len(sizes)} layers")
        wanted = {"shift": int(sizes.sum()), "whiten": int((sizes * self.ranks).sum())}
        for name, size in wanted.items():
            if len(getattr(self, name)) != size:
                raise InvalidInput(f"{name} has {len(getattr(self, name))} entries, its layers need {size}")
        if len(self.centres) == 0 or len(self.centres) % int(self.ranks.sum()):
            raise InvalidInput(f"centres has {len(self.centres)} entries, no multiple of the ranks' sum")

    def score(self, layers: Layers) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        layers : mapping of str to ndarray
            Recorded layers by name, with the keys that were fitted.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If a layer that was fitted is missing or has another width.
        """
        return self._score_layers(layers) @ self.slopes

    def _score_layers(self, layers: Layers) -> Array:
        """Compute the scores (N, L) of the single layers."""
        _check_layers("mds_layers", layers, unpack_keys(self.keys), self.widths)
        return np.stack([gaussian.score(layers) for gaussian in self._unflatten()], axis=1)

    def _score_set(self, layers: Layers, whose: str) -> Array:
        """Compute the scores (N, L) of the single layers for a whole set, a block of rows at a time."""
        keys = unpack_keys(self.keys)
        _check_layers("mds_layers", layers, keys, self.widths, f"the {whose}")
        scores = []
        for first in range(0, len(layers[keys[0]]), ROWS):
            scores.append(self._score_layers({key: layers[key][first : first + ROWS] for key in keys}))
            for key in keys:
                release(layers[key])
        return np.concatenate(scores)


@dataclass(frozen=True, eq=False)
class _LayerGaussian:
    """Hold the class means of one layer under a shared covariance, for the statistics of its keys side by side."""

    keys: list[str]
    mean: Array  # (K,) of all rows
    whiten: Array  # (K, R), whiten @ whiten.T is the precision
    centres: Array  # (C, R) whitened class means

    @classmethod
    def fit(cls, layers: Layers, keys: list[str], labels: Labels, classes: int) -> _LayerGaussian | None:
        """Estimate means and covariance; None if rows differ from their class mean by rounding alone."""
        moments = _moments(labels, classes, [layers[key] for key in keys])
        if not _varies(moments):
            return None
        whiten = whitening(moments.within, moments.floor)
        centres = (moments.class_means[moments.present] - moments.mean) @ whiten
        return cls(keys, moments.mean, whiten, centres)

    def score(self, layers: Layers) -> Array:
        """Compute minus half the squared distance to the nearest class mean."""
        h = np.concatenate([np.asarray(layers[key], dtype=np.float64) for key in self.keys], axis=1)
        distances = squared_distances(whiten_rows(h - self.mean, self.whiten), self.centres)
        return -0.5 * distances.min(axis=1)


def _layer_sizes(keys: Sequence[str], widths: Labels) -> Labels:
    """Return the number of columns of each layer."""
    return np.bincount(_layer_numbers(keys), weights=widths).astype(np.int64)


def _moments(labels: Labels, classes: int, parts: Sequence[Floats]) -> Moments:
    """Compute the moments of arrays side by side, a block of rows at a time."""
    total: Moments | None = None
    for *columns, block_labels in blocks(*parts, np.asarray(labels, dtype=np.float64)):
        if (block_labels >= 0).any():
            block = Moments.of(np.concatenate(columns, axis=1), block_labels.astype(np.int64), classes)
            total = block if total is None else total + block
    if total is None:
        raise InvalidInput("labels must name a class for at least one training row; all are -1")
    return total


def _varies(moments: Moments) -> bool:
    """Check whether rows differ from their class mean by more than rounding does."""
    within, overall = float(np.trace(moments.within)), float(np.trace(moments.covariance))
    return overall > RESOLUTION**2 * float(moments.mean @ moments.mean) and within > RESOLUTION * overall


def _spread(scores: Array) -> Array:
    """Compute the standard deviation of each column, replaced by 1 where it is rounding noise."""
    spread = scores.std(axis=0)
    return np.where(spread > np.sqrt(RESOLUTION) * np.abs(scores).max(axis=0), spread, 1.0)


def _fit_weights(id_scores: Array, ood_scores: Array) -> Array:
    """Fit the weights of the columns that separate in-distribution rows from OOD rows."""
    from sklearn.linear_model import LogisticRegression

    scores = np.concatenate([id_scores, ood_scores])
    spread = _spread(scores)
    model = LogisticRegression(class_weight="balanced", tol=1e-8, max_iter=10_000)
    model.fit((scores - scores.mean(axis=0)) / spread, np.arange(len(scores)) < len(id_scores))
    return np.asarray(model.coef_[0] / spread, dtype=np.float64)
