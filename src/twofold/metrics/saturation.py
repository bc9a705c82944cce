"""Count the samples whose maximum softmax a float type can no longer distinguish from 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from twofold import _checks as checks
from twofold._checks import AnyArray, ArrayLike
from twofold._math import log_odds
from twofold.errors import InvalidInput
from twofold.metrics.calibration import check_logits

__all__ = [
    "round_to_one",
]

FloatType: TypeAlias = Literal["float16", "bfloat16", "float32", "float64"]
_SIGNIFICAND = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # bits, the implicit one included


@dataclass(frozen=True)
class RoundToOne:
    r"""Hold how much of the maximum softmax a float type loses.

    Attributes
    ----------
    rate : float
        Share of samples whose maximum softmax is exactly 1.
    count : int
        Number of samples whose maximum softmax is exactly 1.
    rows : int
        Number of samples.
    dtype : str
        Type that holds the probability.
    threshold : float
        Margin :math:`z_{\max} - \mathrm{LSE}(\mathrm{others})` from which an exactly summed softmax rounds to 1.
    beyond : int
        Number of samples at or past that margin.
    distinct : int
        Number of distinct values of the maximum softmax.
    compute : str
        Type in which the softmax was computed.
    """

    rate: float
    count: int
    rows: int
    dtype: str
    threshold: float
    beyond: int
    distinct: int
    compute: str


def round_to_one(logits: ArrayLike, *, dtype: FloatType = "float32", compute: FloatType | None = None) -> RoundToOne:
    r"""Count the samples whose maximum softmax is exactly 1 in a float type, and the distinct values that are left.

    .. math:: m = z_{\max} - \mathrm{LSE}_{k \ne \max}(z_k) \ge p \ln 2 \;\Rightarrow\; \max_k p_k = 1

    for a significand of p bits: margins of 5.55 (bfloat16, p = 8), 7.62 (float16, 11), 16.64 (float32, 24)
    and 36.74 (float64, 53).

    Parameters
    ----------
    logits : array-like of shape (n_samples, n_classes)
        Finite logits.
    dtype : {"float16", "bfloat16", "float32", "float64"}, default="float32"
        Type in which the probability is stored.
    compute : {"float16", "bfloat16", "float32", "float64"}, default=None
        Type in which the softmax is computed, by default ``dtype``. Set it to a wider type for probabilities that are
        computed precisely and saved in half precision.

    Returns
    -------
    RoundToOne
        Rate and count of ones, the margin threshold, and the number of distinct values.

    Raises
    ------
    InvalidInput
        If ``dtype`` or ``compute`` is unknown, or if ``logits`` is not two-dimensional, not finite, or too large for
        ``compute``.

    Notes
    -----
    ``count`` and ``distinct`` come from an actual softmax: logits are cast to ``compute`` (default: ``dtype``), shifted
    by the row's maximum, exponentiated and summed (16-bit types are summed in float32 and rounded, as NumPy does), and
    the result is cast to ``dtype``. ``beyond`` counts by the margin; it is at most ``count`` up to rounding at the very
    threshold, because a sum that meets the 1 early loses small terms one by one. A softmax that runs in a wider type
    and is *stored* in ``dtype`` (probabilities saved in half precision) rounds to one from
    :math:`\ln(2^{p+1} - 1)` on: request it with ``compute="float64"``. With one class the maximum is always 1.
    Ranking by the log-odds, as ``scorer("msp")`` does, has no such loss.

    References
    ----------
    Jaeger et al., ICLR 2023, arXiv:2211.15259, on why softmax responses need float64.

    Examples
    --------
    >>> lost = round_to_one([[20.0, 0.0], [10.0, 0.0], [1.0, 0.0]])
    >>> lost.count, lost.rows, lost.distinct, round(lost.threshold, 2)
    (1, 3, 3, 16.64)
    >>> round_to_one([[20.0, 0.0], [10.0, 0.0], [1.0, 0.0]], dtype="float16").count
    2
    """
    compute = dtype if compute is None else compute
    checks.choice(dtype, "dtype", _SIGNIFICAND)
    checks.choice(compute, "compute", _SIGNIFICAND)
    raw = checks.floats(logits, "logits", ndim=2)
    checks.finite(raw, "logits")
    z = _in(compute, raw)
    if not np.isfinite(z).all():
        row = int((~np.isfinite(z)).any(axis=1).argmax())
        raise InvalidInput(f"logits in row {row} are too large for {compute}: {np.abs(raw[row]).max():g}")
    top = _in(dtype, _maximum_softmax(z, compute))
    ones = int((top == 1).sum())
    kept = math.log1p(-(2.0 ** -(_SIGNIFICAND[dtype] + 1))) + (_SIGNIFICAND[dtype] + 1) * math.log(2.0)
    threshold = min(_SIGNIFICAND[compute] * math.log(2.0), kept)
    return RoundToOne(
        rate=ones / len(top),
        count=ones,
        rows=len(top),
        dtype=dtype,
        threshold=threshold,
        beyond=int((log_odds(check_logits(z)) >= threshold).sum()),
        distinct=int(np.unique(top).size),
        compute=compute,
    )


def _maximum_softmax(z: AnyArray, compute: str) -> AnyArray:
    """Compute 1 / sum exp(z - max), with each operation rounded to ``compute``."""
    # exp is rounded from float64: NumPy's float32 exp differs between processors in the last bit
    with np.errstate(over="ignore"):
        shifted = _in(compute, z - z.max(axis=1, keepdims=True))
    terms = _in(compute, np.exp(shifted.astype(np.float64)))
    wide = np.float64 if compute == "float64" else np.float32
    total = _in(compute, np.ascontiguousarray(terms).sum(axis=1, dtype=wide))
    return _in(compute, np.ones_like(total) / total)


def _in(dtype: str, x: AnyArray) -> AnyArray:
    """Round to a float type; NumPy lacks bfloat16, which is the upper half of a float32."""
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype)
        bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))  # to nearest, ties to even
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)
