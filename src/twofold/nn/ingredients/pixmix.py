"""PixMix: an image mixed, a few times over, with pictures of rich structure and with augmented copies of itself."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import ArrayLike
from twofold.errors import InvalidInput
from twofold.nn.ingredients.augment import OPERATIONS, batch, check_severity, operation_codes, sample_index, uniforms
from twofold.nn.ingredients.fractals import Mixers

Rounds: TypeAlias = int | tuple[int, int]  # exactly so many, or the least and the largest number


def check_rounds(rounds: object) -> tuple[int, int]:
    """Check a number of mixing rounds.

    Parameters
    ----------
    rounds : int or tuple of two int
        Number of rounds, at least 1, or the least and the largest number.

    Returns
    -------
    tuple of two int
        The least and the largest number.

    Raises
    ------
    InvalidInput
        If it is neither, the least is negative or the largest below 1 or below the least.

    Examples
    --------
    >>> check_rounds(1), check_rounds((0, 4))
    ((1, 1), (0, 4))
    """
    if not isinstance(rounds, tuple | list):
        exactly = _checks.whole(rounds, "rounds", 1)
        return exactly, exactly
    if len(rounds) != 2:
        raise InvalidInput(f"rounds must be a number or the least and the largest, as (1, 4), got {rounds!r:.40}")
    least = _checks.whole(rounds[0], "the least of rounds", 0)
    most = _checks.whole(rounds[1], "the largest of rounds", 1)
    if least > most:
        raise InvalidInput(f"the least of rounds must not exceed the largest, got {rounds!r:.40}")
    return least, most


def pixmix(
    images: ArrayLike,
    mixers: Mixers,
    index: ArrayLike,
    *,
    rounds: Rounds = (0, 4),
    beta: float = 3.0,
    severity: float = 3.0,
    compat: Literal["paper", "published"] = "paper",
    seed: int = 0,
    epoch: int = 0,
) -> npt.NDArray[np.float32]:
    r"""Mix each image, a few times over, with structured pictures and augmented copies of itself (PixMix).

    Start from the image or, with probability 1/2, an augmented copy of it. Then, as often as ``rounds`` says (uniform),
    mix it with a partner y, clipping the result to [0, 1]: y is an augmented copy of the image or, with probability
    1/2, a crop of one picture of ``mixers``. With probability 1/2 each

    .. math:: x \leftarrow \tfrac12 \left( a (2x - 1) + b (2y - 1) + 1 \right) \quad \text{or} \quad
              x \leftarrow \tfrac12 (2x)^a \max(2y, 10^{-37})^b

    and with probability 1/2 each :math:`a \sim B(\beta, 1), b \sim B(1, \beta)` or
    :math:`a = 1 + B(1, \beta), b = -B(1, \beta)`. Copies are augmented by one of 13 operations at ``severity``.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    mixers : Mixers
        Pictures to mix in, at least as large as the images.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    rounds : int or tuple of two int, default=(0, 4)
        Number of mixing rounds, or the least and the largest: ``(0, 4)`` in the original PixMix, ``(1, 4)`` as printed
        in SURE+.
    beta : float, default=3.0
        Parameter of the Beta distributions, above 0. Larger values keep more of the image.
    severity : float, default=3.0
        Largest level of an operation, from 0.1 to 10.
    compat : {"paper", "published"}, default="paper"
        ``"published"`` is the released code of SURE+: a partner is drawn 1 to n times, with n the largest of
        ``rounds``, and the last one is mixed in once.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), float32
        Mixed images in [0, 1]; labels stay the same.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range, or the pictures are smaller than the images.

    References
    ----------
    Hendrycks et al., CVPR 2022, arXiv:2112.05135.

    Examples
    --------
    >>> mixers = Mixers(np.zeros((2, 5, 5, 3), np.uint8))
    >>> mixed = pixmix(np.full((1, 4, 4, 3), 128, np.uint8), mixers, [0])
    >>> mixed.shape, mixed.dtype
    ((1, 4, 4, 3), dtype('float32'))
    """
    from twofold.nn.ingredients._image_kernels import pixmix_all

    x = batch(images)
    if not isinstance(mixers, Mixers):
        raise InvalidInput(
            f"mixers must be Mixers, got {type(mixers).__name__}; "
            "use Mixers.fractals(size=...), Mixers.folder(path, size=...) or Mixers(array)"
        )
    height, width = x.shape[1:3]
    pictures = mixers.images
    if height > pictures.shape[1] or width > pictures.shape[2]:
        raise InvalidInput(
            f"mixers hold pictures of {pictures.shape[1]}x{pictures.shape[2]}, smaller than the images of "
            f"{height}x{width}; make them with size={round(max(height, width) * 9 / 8)}"
        )
    least, most = check_rounds(rounds)
    power = _checks.number(beta, "beta", 0.0, np.inf, open_low=True, open_high=True)
    published = _checks.choice(compat, "compat", ("paper", "published")) == "published"
    highest_level = check_severity(severity)
    draws = uniforms(sample_index(index, len(x)), 8 + 8 * most, name="pixmix", seed=seed, epoch=epoch)
    result = np.empty(x.shape, dtype=np.float32)
    pixmix_all(x, pictures, operation_codes(OPERATIONS), highest_level, least, most, power, published, draws, result)
    return result
