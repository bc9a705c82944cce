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
from twofold._checks import Array, Labels, Mask
from twofold._math import TINY, Floats, log_softmax, squared_distances
from twofold.errors import InvalidInput
from twofold.outputs import release
from twofold.scores._fitting.moments import ROWS, Moments, blocks, whitened, whitening
from twofold.scores.registry import register_score
from twofold.typing import StepHooks, state

Layers = Mapping[str, Floats]
Packed = npt.NDArray[np.uint8]

MARGIN = 1e-6  # added to the denominators of gram
RESOLUTION = 1e-12  # a variance below this share of its inputs is rounding error


def _packed(keys: Sequence[str]) -> Packed:
    """Encode the names of keys as an array, which is all that a saved chain can hold: UTF-8 text, one to a line."""
    if any("\n" in key for key in keys):
        raise InvalidInput(f"keys of layers must have no line breaks, got {list(keys)}")
    return np.frombuffer("\n".join(keys).encode(), np.uint8)


def _unpacked(packed: Packed) -> list[str]:
    return packed.tobytes().decode().split("\n")


def _by_layer(keys: Iterable[str]) -> dict[str, list[str]]:
    """Group the keys by layer; the part before the last slash is the name of the layer."""
    grouped: dict[str, list[str]] = {}
    for key in keys:
        grouped.setdefault(key.rpartition("/")[0], []).append(key)
    return grouped


def _there(layers: Layers) -> str:
    return f"layers {', '.join(map(repr, sorted(layers)))} only" if layers else "no layers"


def _check(score: str, layers: Layers, keys: Sequence[str], widths: Labels, whose: str = "these") -> None:
    """Raise unless the outputs hold the layers that the score was fitted on."""
    for key, width in zip(keys, widths, strict=True):
        if key not in layers:
            raise InvalidInput(f"{score} was fitted on layers[{key!r}]; {whose} outputs have {_there(layers)}")
        if layers[key].shape[1] != width:
            got = layers[key].shape[1]
            raise InvalidInput(f"{score} was fitted on {width} columns of layers[{key!r}]; {whose} outputs have {got}")


def _check_keys(packed: Packed, widths: Labels) -> list[str]:
    """Return the keys in loaded arrays; raise unless they are distinct names, each with a width."""
    try:
        keys = _unpacked(packed)
    except UnicodeDecodeError as error:
        raise InvalidInput("keys holds no UTF-8 text") from error
    if len(set(keys)) != len(keys) or len(keys) != len(widths) or (widths < 1).any():
        raise InvalidInput("keys must be different names of layers, each with a width of at least 1")
    return keys


def _slices(widths: Labels) -> list[slice]:
    """Return the columns of arrays of these widths when they stand side by side."""
    ends = np.cumsum(widths)
    return [slice(end - width, end) for end, width in zip(ends.tolist(), widths.tolist(), strict=True)]


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
        keys = self._keys(layers)
        share = _checks.number(self.split, "split", 0.0, 1.0, open_high=True)
        seed = _checks.whole(self.seed, "seed", 0)
        truth, chosen, classes = np.asarray(labels), np.asarray(predictions), np.shape(logits)[1]
        if (truth < 0).all():
            raise InvalidInput("labels must name a class for at least one training row; all are -1")
        aside = _set_aside(truth, share, seed)
        owners = np.where(aside, -1.0, truth)
        widths = np.array([layers[key].shape[1] for key in keys], dtype=np.int64)
        kind = np.result_type(*(layers[key].dtype for key in keys))
        low = np.full((classes, widths.sum()), np.inf, kind)
        high = np.full((classes, widths.sum()), -np.inf, kind)
        for key, columns in zip(keys, _slices(widths), strict=True):
            for values, owner in blocks(layers[key], owners):
                used = owner >= 0
                _widen(low[:, columns], high[:, columns], owner[used].astype(np.int64), values[used])
        known = np.isfinite(low[:, 0])
        low[~known], high[~known] = low[known].min(axis=0), high[known].max(axis=0)

        rows, place = np.flatnonzero(aside), _places(keys)
        total = np.zeros(max(place) + 1)
        for key, columns, layer in zip(keys, _slices(widths), place, strict=True):
            for first in range(0, len(rows), ROWS):
                some = rows[first : first + ROWS]
                class_ = chosen[some]
                total[layer] += _outside(layers[key][some], low[class_, columns], high[class_, columns]).sum()
                release(layers[key])
        typical = np.where(total > 0, total / max(len(rows), 1), 1.0)
        return replace(self, keys=_packed(keys), widths=widths, low=low, high=high, typical=typical)

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
        if len(self.typical) != len(_by_layer(keys)):
            raise InvalidInput(f"typical has {len(self.typical)} entries for {len(_by_layer(keys))} layers")

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
        keys, chosen = _unpacked(self.keys), np.asarray(predictions)
        _check("gram", layers, keys, self.widths)
        deviation = np.zeros((len(chosen), len(self.typical)))
        for key, columns, layer in zip(keys, _slices(self.widths), _places(keys), strict=True):
            deviation[:, layer] += _outside(layers[key], self.low[chosen, columns], self.high[chosen, columns])
        p = np.exp(log_softmax(logits)[np.arange(len(chosen)), chosen])
        # predictions other than the argmax of the logits may have no probability at all
        return -(deviation / self.typical).sum(axis=1) / np.maximum(p, TINY)

    def _keys(self, layers: Layers) -> list[str]:
        """Return the keys to use, sorted; a layer with one of the powers must have all."""
        if not isinstance(self.powers, tuple | list) or not self.powers:
            raise InvalidInput(f"powers must be a tuple of whole numbers such as (1, 2, 3), got {self.powers!r}")
        ends = {f"gram{_checks.whole(power, 'powers', 1)}" for power in self.powers}
        names = {name for name, _, end in (key.rpartition("/") for key in layers) if end in ends}
        if not names:
            raise InvalidInput(
                f"gram needs layers['NAME/{min(ends)}'], recorded at extraction; these outputs have {_there(layers)}"
            )
        keys = sorted(f"{name}/{end}" for name in names for end in ends)
        for key in keys:
            if key not in layers:
                have = sorted(k for k in layers if k.rpartition("/")[0] == key.rpartition("/")[0])
                raise InvalidInput(
                    f"gram(powers={self.powers}) needs layers[{key!r}]; of this layer there are {', '.join(have)}; "
                    "record it at extraction, or choose powers that every layer has"
                )
        return keys


def _places(keys: Sequence[str]) -> list[int]:
    """Return the number of the layer of each key."""
    number = {name: i for i, name in enumerate(_by_layer(keys))}
    return [number[key.rpartition("/")[0]] for key in keys]


def _set_aside(labels: Labels, share: float, seed: int) -> Mask:
    """Draw this share of the rows of each class, rounded down, so that no class loses all its rows."""
    known = np.flatnonzero(labels >= 0)
    order = known[np.lexsort((np.random.default_rng(seed).random(len(known)), labels[known]))]
    _, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    aside = np.zeros(len(labels), dtype=bool)
    aside[order] = rank < np.repeat(np.floor(share * count), count)
    return aside


def _widen(low: Floats, high: Floats, classes: Labels, values: Array) -> None:
    """Widen the ranges of classes, in place, by the values of their rows."""
    order = np.argsort(classes, kind="stable")
    present, first = np.unique(classes[order], return_index=True)
    if len(present):
        low[present] = np.minimum(low[present], np.minimum.reduceat(values[order], first, axis=0))
        high[present] = np.maximum(high[present], np.maximum.reduceat(values[order], first, axis=0))


def _outside(values: Floats, low: Floats, high: Floats) -> Array:
    """Compute how far each row is outside the ranges, relative to their ends, summed over the columns."""
    g, m, top = (np.asarray(a, dtype=np.float64) for a in (values, low, high))
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
        return ("val_layers", "ood_val_layers") if self.weights == "equal" else ()

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
            Layers of the validation set, for fitted weights. A chain without validation outputs passes the training
            layers; without either, the equal weights are used.
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
        used = sorted(key for key in layers if key.rpartition("/")[2] in self.statistics)
        groups = {name: keys for name, keys in _by_layer(used).items() if f"{name}/mean" in keys}
        if not groups:
            raise InvalidInput(
                f"mds_layers needs layers['NAME/mean'], recorded at extraction; these outputs have {_there(layers)}"
            )
        kept: list[str] = []
        parts: list[tuple[Array, Array, Array]] = []
        for keys in groups.values():
            moments = _moments(labels, np.shape(logits)[1], [layers[key] for key in keys])
            if _varies(moments):
                whiten = whitening(moments.within, moments.floor)
                kept += keys
                parts.append((moments.mean, whiten, (moments.class_means[moments.present] - moments.mean) @ whiten))
        if not parts:
            raise InvalidInput("mds_layers: no layer varies within the classes of the training rows; check the layers")
        shifts, whitens, centres = zip(*parts, strict=True)
        made = replace(
            self,
            keys=_packed(kept),
            widths=np.array([layers[key].shape[1] for key in kept], dtype=np.int64),
            ranks=np.array([w.shape[1] for w in whitens], dtype=np.int64),
            shift=np.concatenate(shifts),
            whiten=np.concatenate([w.ravel() for w in whitens]),
            centres=np.concatenate([c.ravel() for c in centres]),
        )
        if self.weights == "equal" or ood_val_layers is None or val_layers is None:
            return replace(made, slopes=1.0 / _spread(made._blocked(layers, "train")))
        safe, odd = made._blocked(val_layers, "val"), made._blocked(ood_val_layers, "ood_val")
        return replace(made, slopes=_regression(safe, odd))

    def check_state(self) -> None:
        """Check that the flat arrays have the sizes which keys, widths and ranks imply.

        Raises
        ------
        InvalidInput
            If a size is inconsistent.
        """
        keys = _check_keys(self.keys, self.widths)
        width = dict(zip(keys, self.widths.tolist(), strict=True))
        sizes = np.array([sum(width[key] for key in own) for own in _by_layer(keys).values()])
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
        return self._each(layers) @ self.slopes

    def _each(self, layers: Layers) -> Array:
        """Compute the scores (N, L) of the single layers."""
        keys = _unpacked(self.keys)
        _check("mds_layers", layers, keys, self.widths)
        width = dict(zip(keys, self.widths.tolist(), strict=True))
        scores, column, entry, centre = [], 0, 0, 0
        count = len(self.centres) // int(self.ranks.sum())
        for own, rank in zip(_by_layer(keys).values(), self.ranks.tolist(), strict=True):
            h = np.concatenate([np.asarray(layers[key], dtype=np.float64) for key in own], axis=1)
            size = sum(width[key] for key in own)
            whiten = self.whiten[entry : entry + size * rank].reshape(size, rank)
            centres = self.centres[centre : centre + count * rank].reshape(count, rank)
            scores.append(
                -0.5 * squared_distances(whitened(h - self.shift[column : column + size], whiten), centres).min(axis=1)
            )
            column, entry, centre = column + size, entry + size * rank, centre + count * rank
        return np.stack(scores, axis=1)

    def _blocked(self, layers: Layers, whose: str) -> Array:
        """Compute the scores (N, L) of the single layers for a whole set, a block of rows at a time."""
        keys = _unpacked(self.keys)
        _check("mds_layers", layers, keys, self.widths, f"the {whose}")
        own = {key: layers[key] for key in keys}
        scores = []
        for first in range(0, len(own[keys[0]]), ROWS):
            scores.append(self._each({key: array[first : first + ROWS] for key, array in own.items()}))
            for array in own.values():
                release(array)
        return np.concatenate(scores)


def _moments(labels: Labels, classes: int, parts: Sequence[Floats]) -> Moments:
    """Compute the moments of arrays side by side, a block of rows at a time."""
    made: Moments | None = None
    for *columns, owner in blocks(*parts, np.asarray(labels, dtype=np.float64)):
        if (owner >= 0).any():
            block = Moments.of(np.concatenate(columns, axis=1), owner.astype(np.int64), classes)
            made = block if made is None else made + block
    if made is None:
        raise InvalidInput("labels must name a class for at least one training row; all are -1")
    return made


def _varies(moments: Moments) -> bool:
    """Check whether rows differ from their class mean by more than rounding does."""
    within, overall = float(np.trace(moments.within)), float(np.trace(moments.covariance))
    return overall > RESOLUTION**2 * float(moments.mean @ moments.mean) and within > RESOLUTION * overall


def _spread(scores: Array) -> Array:
    """Compute the standard deviation of each column, replaced by 1 where it is rounding noise."""
    spread = scores.std(axis=0)
    return np.where(spread > np.sqrt(RESOLUTION) * np.abs(scores).max(axis=0), spread, 1.0)


def _regression(safe: Array, odd: Array) -> Array:
    """Fit the weights of the columns that separate in-distribution rows (``safe``) from OOD rows (``odd``)."""
    from sklearn.linear_model import LogisticRegression

    scores = np.concatenate([safe, odd])
    spread = _spread(scores)
    model = LogisticRegression(class_weight="balanced", tol=1e-8, max_iter=10_000)
    model.fit((scores - scores.mean(axis=0)) / spread, np.arange(len(scores)) < len(safe))
    return np.asarray(model.coef_[0] / spread, dtype=np.float64)
