"""Augmentations of whole batches: uint8 images (N, H, W, 3) in, the same out, before any normalisation.

Every function takes the images and ``index``, the number of each sample in its data set. What happens to a sample
depends on its pixels, its index, the epoch and the seed alone, so batches of any size and order, in any process, give
the same bytes. The draws of a sample are those of NumPy's Philox generator::

    np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, index, STREAMS[name], view])).random(count)

Operations compute what Pillow computes, with its rounding, in compiled code. After a rotation or a resize, single
pixels may be one grey level off, where Pillow's sines or its order of rows and columns differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike, Mask
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.rows import Pixels

Index: TypeAlias = npt.NDArray[np.uint64]

# The order is fixed: the kernels use the position as the number of the operation.
OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "colour",
    "contrast",
    "brightness",
    "sharpness",
)
HUE = len(OPERATIONS)
# The numbers are fixed: each augmentation draws from the stream of its number.
STREAMS = {
    "padded_crop": 0,
    "flip": 1,
    "cutout": 2,
    "rotation": 3,
    "resized_crop": 4,
    "colour_jitter": 5,
    "random_operation": 6,
    "augmix": 7,
    "pixmix": 8,
    "mixup": 9,
    "cutmix": 10,
}
TRIES = 10  # boxes that a random-resized crop draws before it takes the centre


# --- validation and random numbers ----------------------------------------------------------------------------------


def batch(images: ArrayLike) -> Pixels:
    """Check a batch of images and return it as one C-contiguous, writable array.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        The same images, copied only if they are not yet contiguous and writable.

    Raises
    ------
    InvalidInput
        If the images are not uint8 of shape (N, H, W, 3), or have no pixels.

    Examples
    --------
    >>> batch(np.zeros((2, 4, 4, 3), np.uint8)).shape
    (2, 4, 4, 3)
    """
    array = _checks.plain(images, "images")
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or 0 in array.shape[1:3]:
        raise InvalidInput(
            f"images must be uint8 of shape (N, H, W, 3), before normalisation, got {array.dtype} of {array.shape}"
        )
    return np.require(array, requirements=["C", "W"])


def sample_index(index: ArrayLike, rows: int) -> Index:
    """Check the numbers of samples in their data set and return them as uint64.

    Parameters
    ----------
    index : array-like of shape (N,), int
        Number of each sample in its data set, 0 or more.
    rows : int
        Number of images, which the index must match.

    Returns
    -------
    numpy.ndarray of shape (N,), uint64
        The numbers, contiguous.

    Raises
    ------
    InvalidInput
        If the index does not hold integers, has another length than ``rows``, or holds a negative number.

    Examples
    --------
    >>> sample_index([3, 0], 2)
    array([3, 0], dtype=uint64)
    """
    array = _checks.plain(index, "index")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInput(f"index must be integers (N,), got {array.dtype} of shape {array.shape}")
    if len(array) != rows:
        raise InvalidInput(f"index has {len(array)} rows but images has {rows}")
    if array.dtype.kind == "i" and (array < 0).any():
        row = int((array < 0).argmax())
        raise InvalidInput(f"index must be the samples' numbers in the data set, 0 or more, got {array[row]}")
    return np.ascontiguousarray(array, dtype=np.uint64)


def uniforms(index: Index, count: int, *, name: str, seed: int, epoch: int, view: int = 0) -> Array:
    """Draw uniform random numbers for each sample from the sample's own stream.

    Parameters
    ----------
    index : numpy.ndarray of shape (N,), uint64
        Number of each sample in its data set, as :func:`sample_index` returns it.
    count : int
        Number of draws for each sample.
    name : str
        Key of ``STREAMS``: the augmentation that draws. Different augmentations draw independent numbers.
    seed : int
        Seed of the random numbers, below 2^64.
    epoch : int
        Epoch of training, below 2^64; each epoch draws new random numbers.
    view : int, default=0
        Number of the copy of the sample; different views draw independent numbers.

    Returns
    -------
    numpy.ndarray of shape (N, count), float64
        Numbers in [0, 1).

    Raises
    ------
    InvalidInput
        If ``seed``, ``epoch`` or ``view`` is not a whole number from 0 to 2^64 - 1.

    Notes
    -----
    Row i equals the output of NumPy's Philox generator with key ``[seed, epoch]`` and counter
    ``[0, index[i], STREAMS[name], view]``.

    Examples
    --------
    >>> ours = uniforms(sample_index([5], 1), 3, name="flip", seed=1, epoch=2)
    >>> key, counter = np.array([1, 2], np.uint64), np.array([0, 5, STREAMS["flip"], 0], np.uint64)
    >>> reference = np.random.Generator(np.random.Philox(key=key, counter=counter)).random(3)
    >>> bool((ours[0] == reference).all())
    True
    """
    from twofold.nn.ingredients._image_kernels import fill_uniforms

    result = np.empty((len(index), count), dtype=np.float64)
    stream = np.uint64(STREAMS[name])
    fill_uniforms(index, word(seed, "seed"), word(epoch, "epoch"), stream, word(view, "view"), result)
    return result


def word(value: int, name: str) -> np.uint64:
    """Check one part of a generator's key or counter: a whole number of 64 bits.

    Parameters
    ----------
    value : int
        Number to check.
    name : str
        Name of the argument in error messages.

    Returns
    -------
    numpy.uint64
        The number.

    Raises
    ------
    InvalidInput
        If the value is not a whole number from 0 to 2^64 - 1.

    Examples
    --------
    >>> int(word(7, "seed"))
    7
    """
    number = _checks.whole(value, name, 0)
    if number >= 1 << 64:
        raise InvalidInput(f"{name} must be below 2^64, got {number}")
    return np.uint64(number)


def operation_codes(operations: Sequence[str]) -> npt.NDArray[np.int64]:
    """Translate names of operations into the numbers that the kernels use.

    Parameters
    ----------
    operations : sequence of str
        Names from ``OPERATIONS``, at least one.

    Returns
    -------
    numpy.ndarray, int64
        Position of each name in ``OPERATIONS``.

    Raises
    ------
    InvalidInput
        If ``operations`` is a string or empty.
    UnknownName
        If a name is not in ``OPERATIONS``.

    Examples
    --------
    >>> operation_codes(["rotate", "autocontrast"])
    array([3, 0])
    """
    if isinstance(operations, str) or not operations:
        raise InvalidInput(f"operations must be a list with at least one name, got {operations!r}")
    for name in operations:
        if name not in OPERATIONS:
            raise UnknownName.of("operation", str(name), OPERATIONS)
    return np.array([OPERATIONS.index(name) for name in operations], dtype=np.int64)


def check_severity(value: float) -> float:
    """Check a severity, the upper end of the levels that are drawn from U(0.1, severity).

    Parameters
    ----------
    value : float
        Severity, from 0.1 to 10.

    Returns
    -------
    float
        The severity.

    Raises
    ------
    InvalidInput
        If the value is not a number from 0.1 to 10.

    Examples
    --------
    >>> check_severity(3)
    3.0
    """
    return _checks.number(value, "severity", 0.1, 10.0)


def _to_colour(fill: int | Sequence[int]) -> Pixels:
    """Check a colour, one grey level or three channels, and return its three channels."""
    values = np.asarray(fill)
    if values.shape not in ((), (3,)) or values.dtype.kind not in "iu" or (values < 0).any() or (values > 255).any():
        raise InvalidInput(f"fill must be one or three integers in 0..255, got {fill!r}")
    return np.array(np.broadcast_to(values, 3), dtype=np.uint8)


# --- base augmentations ---------------------------------------------------------------------------------------------


def padded_crop(
    images: ArrayLike,
    index: ArrayLike,
    *,
    padding: int = 4,
    fill: int | Sequence[int] = 0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """Cut a random window of the image's own size after padding the image on all sides.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    padding : int, default=4
        Number of pixels added on each side; 4 is common for images of 32 pixels.
    fill : int or sequence of three int, default=0
        Colour of the padding, one grey level or three channels from 0 to 255.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Examples
    --------
    >>> one = np.arange(12, dtype=np.uint8).reshape(1, 2, 2, 3)
    >>> bool((padded_crop(one, [0], padding=0) == one).all())
    True
    """
    from twofold.nn.ingredients._image_kernels import shift

    x = batch(images)
    pad = _checks.whole(padding, "padding", 0)
    draws = uniforms(sample_index(index, len(x)), 2, name="padded_crop", seed=seed, epoch=epoch)
    moves = (draws * (2 * pad + 1)).astype(np.int64) - pad
    result = np.empty_like(x)
    down, right = np.ascontiguousarray(moves.T)
    shift(x, down, right, _to_colour(fill), result)
    return result


def flip(images: ArrayLike, index: ArrayLike, *, chance: float = 0.5, seed: int = 0, epoch: int = 0) -> Pixels:
    """Mirror each image left to right with a fixed probability.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    chance : float, default=0.5
        Probability of a flip, from 0 to 1.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Examples
    --------
    >>> one = np.arange(6, dtype=np.uint8).reshape(1, 1, 2, 3)
    >>> flip(one, [0], chance=1.0).ravel()
    array([3, 4, 5, 0, 1, 2], dtype=uint8)
    """
    x = batch(images)
    probability = _checks.number(chance, "chance", 0.0, 1.0)
    draws = uniforms(sample_index(index, len(x)), 1, name="flip", seed=seed, epoch=epoch)
    is_flipped = draws[:, 0] < probability
    result = x.copy()
    result[is_flipped] = x[is_flipped, :, ::-1]
    return result


def cutout(
    images: ArrayLike,
    index: ArrayLike,
    *,
    side: int = 16,
    chance: float = 1.0,
    fill: int | Sequence[int] = 0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """Fill a square at a random position with one colour.

    The centre of the square may lie anywhere in the image; the part beyond the border is lost.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    side : int, default=16
        Side of the square in pixels.
    chance : float, default=1.0
        Probability that an image is changed, from 0 to 1.
    fill : int or sequence of three int, default=0
        Colour of the square, one grey level or three channels from 0 to 255.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Notes
    -----
    The paper sets zeros after normalisation. To do the same, set ``fill`` to the mean colour of the data set.
    FD-Shifts cuts 16 of 32 pixels in half of the images (``chance=0.5``).

    References
    ----------
    DeVries and Taylor, 2017, arXiv:1708.04552.

    Examples
    --------
    >>> white = np.full((1, 4, 4, 3), 255, np.uint8)
    >>> int(cutout(white, [0], side=8).max())
    0
    """
    x = batch(images)
    edge = _checks.whole(side, "side", 1)
    probability = _checks.number(chance, "chance", 0.0, 1.0)
    draws = uniforms(sample_index(index, len(x)), 3, name="cutout", seed=seed, epoch=epoch)
    is_changed = draws[:, 0] < probability
    rows = _cover(draws[:, 1], x.shape[1], edge)
    columns = _cover(draws[:, 2], x.shape[2], edge)
    hole = rows[:, :, None] & columns[:, None, :] & is_changed[:, None, None]
    return np.where(hole[..., None], _to_colour(fill), x)


def _cover(draws: Array, length: int, edge: int) -> Mask:
    """Return which of ``length`` pixels lie within an edge whose centre is drawn, one row for each draw."""
    start = (draws * length).astype(np.int64)[:, None] - edge // 2
    pixel = np.arange(length)
    return (pixel >= start) & (pixel < start + edge)


def rotation(images: ArrayLike, index: ArrayLike, *, degrees: float = 15.0, seed: int = 0, epoch: int = 0) -> Pixels:
    """Rotate each image about its centre by a random angle from U(-degrees, degrees).

    The interpolation is bilinear; pixels from outside the image are black.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    degrees : float, default=15.0
        Largest angle in either direction, from 0 to 180.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Examples
    --------
    >>> rotation(np.zeros((2, 4, 4, 3), np.uint8), [0, 1], degrees=30).shape
    (2, 4, 4, 3)
    """
    x = batch(images)
    most = _checks.number(degrees, "degrees", 0.0, 180.0)
    draws = uniforms(sample_index(index, len(x)), 1, name="rotation", seed=seed, epoch=epoch)
    return operate(x, "rotate", (2 * draws[:, 0] - 1) * most)


def resized_crop(
    images: ArrayLike,
    index: ArrayLike,
    *,
    size: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """Cut a box of random area and aspect ratio and resize it to a square.

    The area is uniform over ``scale``, the aspect ratio log-uniform over ``ratio``. The resize is bilinear and
    antialiased, as in Pillow.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    size : int
        Side of the result in pixels.
    scale : tuple of two float, default=(0.08, 1.0)
        Smallest and largest area of the box as a share of the image, above 0 and at most 1.
    ratio : tuple of two float, default=(3/4, 4/3)
        Smallest and largest aspect ratio, width over height, above 0.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, size, size, 3), uint8
        The resized crops.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Notes
    -----
    A box that does not fit is drawn again, up to ten times. After that the largest centred box of allowed aspect ratio
    is taken, as in torchvision.

    Examples
    --------
    >>> resized_crop(np.zeros((2, 8, 8, 3), np.uint8), [0, 1], size=4).shape
    (2, 4, 4, 3)
    """
    from twofold.nn.ingredients._image_kernels import resize_crops

    x = batch(images)
    side = _checks.whole(size, "size", 1)
    low, high = _check_span(scale, "scale", 1.0)
    narrow, wide = _check_span(ratio, "ratio", np.inf)
    draws = uniforms(sample_index(index, len(x)), 2 * TRIES + 2, name="resized_crop", seed=seed, epoch=epoch)
    height, width = x.shape[1:3]
    top, left, h, w = _place_boxes(draws, height, width, (low, high), (narrow, wide))
    result = np.empty((len(x), side, side, 3), dtype=np.uint8)
    resize_crops(x, top, left, h, w, result)
    return result


def crop_boxes(
    index: ArrayLike,
    sizes: Sequence[tuple[int, int]],
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    seed: int = 0,
    epoch: int = 0,
) -> npt.NDArray[np.int64]:
    """Draw the boxes that :func:`resized_crop` cuts out, for images of any sizes.

    Parameters
    ----------
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    sizes : sequence of (int, int)
        Height and width of each image.
    scale : tuple of two float, default=(0.08, 1.0)
        Smallest and largest area of the box as a share of the image, above 0 and at most 1.
    ratio : tuple of two float, default=(3/4, 4/3)
        Smallest and largest aspect ratio, width over height, above 0.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, 4), int64
        Top, left, height and width of each box.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Notes
    -----
    The distribution is that of torchvision's ``RandomResizedCrop``: ten tries, then the largest centred box of allowed
    aspect ratio.

    Examples
    --------
    >>> top, left, height, width = crop_boxes([0], [(375, 500)])[0]
    >>> bool(top + height <= 375 and left + width <= 500)
    True
    """
    spans = _check_span(scale, "scale", 1.0), _check_span(ratio, "ratio", np.inf)
    draws = uniforms(sample_index(index, len(sizes)), 2 * TRIES + 2, name="resized_crop", seed=seed, epoch=epoch)
    boxes = np.empty((len(sizes), 4), dtype=np.int64)
    for row, (height, width) in enumerate(sizes):
        placed = _place_boxes(draws[row : row + 1], height, width, *spans)
        boxes[row] = [edge[0] for edge in placed]
    return boxes


def _place_boxes(
    draws: Array, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[npt.NDArray[np.int64], ...]:
    """Return top, left, height and width of one box for each row of draws, in images of one size."""
    low, high = scale
    narrow, wide = ratio
    area = height * width * (low + (high - low) * draws[:, :TRIES])
    aspect = np.exp(np.log(narrow) + (np.log(wide) - np.log(narrow)) * draws[:, TRIES : 2 * TRIES])
    widths = np.rint(np.sqrt(area * aspect))
    heights = np.rint(np.sqrt(area / aspect))
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    is_found = fits.any(axis=1)
    first_fit = fits.argmax(axis=1)[:, None]
    centre_height, centre_width = _centre_box(height, width, narrow, wide)
    h = np.where(is_found, np.take_along_axis(heights, first_fit, axis=1)[:, 0], centre_height).astype(np.int64)
    w = np.where(is_found, np.take_along_axis(widths, first_fit, axis=1)[:, 0], centre_width).astype(np.int64)
    top = np.where(is_found, draws[:, -2] * (height - h + 1), (height - h) // 2).astype(np.int64)
    left = np.where(is_found, draws[:, -1] * (width - w + 1), (width - w) // 2).astype(np.int64)
    return top, left, h, w


def _check_span(value: tuple[float, float], name: str, high: float) -> tuple[float, float]:
    """Check two numbers in ascending order, above 0 and at most ``high``."""
    try:
        first, last = value
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be two numbers, got {value!r}") from error
    is_unbounded = high == np.inf
    smallest = _checks.number(first, f"{name}[0]", 0.0, high, open_low=True, open_high=is_unbounded)
    largest = _checks.number(last, f"{name}[1]", smallest, high, open_high=is_unbounded)
    return smallest, largest


def _centre_box(height: int, width: int, narrow: float, wide: float) -> tuple[int, int]:
    """Return height and width of the largest box in an image whose aspect ratio is allowed."""
    if width / height < narrow:
        return max(round(width / narrow), 1), width
    if width / height > wide:
        return height, max(round(height * wide), 1)
    return height, width


def colour_jitter(
    images: ArrayLike,
    index: ArrayLike,
    *,
    brightness: float = 0.0,
    contrast: float = 0.0,
    saturation: float = 0.0,
    hue: float = 0.0,
    seed: int = 0,
    epoch: int = 0,
) -> Pixels:
    """Change brightness, contrast, saturation and hue by random amounts, in random order.

    Brightness, contrast and saturation are multiplied by factors from U(max(0, 1 - v), 1 + v); the hue is turned by
    U(-v, v). Here v is the argument of the same name.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    brightness : float, default=0.0
        Range of the brightness factor, 0 or more; 0 leaves the brightness unchanged.
    contrast : float, default=0.0
        Range of the contrast factor, 0 or more.
    saturation : float, default=0.0
        Range of the saturation factor, 0 or more.
    hue : float, default=0.0
        Largest turn of the hue in either direction, a share of the colour circle from 0 to 0.5.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.

    Notes
    -----
    The rule is that of torchvision on Pillow images.

    Examples
    --------
    >>> grey = np.full((1, 2, 2, 3), 100, np.uint8)
    >>> bool((colour_jitter(grey, [0]) == grey).all())
    True
    """
    from twofold.nn.ingredients._image_kernels import operate_all

    x = batch(images)
    reaches = np.array(
        [
            _checks.number(brightness, "brightness", 0.0, np.inf, open_high=True),
            _checks.number(contrast, "contrast", 0.0, np.inf, open_high=True),
            _checks.number(saturation, "saturation", 0.0, np.inf, open_high=True),
            _checks.number(hue, "hue", 0.0, 0.5),
        ]
    )
    codes = np.array([*operation_codes(["brightness", "contrast", "colour"]), HUE])
    codes[reaches == 0] = -1  # copies the image
    low = np.maximum(1.0 - reaches, 0.0)
    high = 1.0 + reaches
    low[3], high[3] = -reaches[3], reaches[3]  # the hue is turned, the others are factors
    draws = uniforms(sample_index(index, len(x)), 8, name="colour_jitter", seed=seed, epoch=epoch)
    amounts = low + (high - low) * draws[:, :4]
    order = np.argsort(draws[:, 4:], axis=1, kind="stable")
    result = x
    for turn in range(4):
        chosen = order[:, turn]
        chosen_amounts = np.take_along_axis(amounts, chosen[:, None], axis=1)[:, 0]
        source, result = result, np.empty_like(x)
        operate_all(source, codes[chosen], chosen_amounts, result)
    return result


# --- the operations of AugMix and PixMix ----------------------------------------------------------------------------


def operate(images: ArrayLike, name: str, amount: ArrayLike = 0.0) -> Pixels:
    """Apply one of ``OPERATIONS`` to every image.

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    name : str
        Name of the operation, one of ``OPERATIONS``.
    amount : float or array-like of shape (N,), default=0.0
        Strength of the operation, one for all images or one for each. Its unit is Pillow's: bits kept (posterize, 0 to
        8), degrees (rotate), threshold (solarize), input pixels per row or column (shear), input pixels (translate),
        factor (colour, contrast, brightness, sharpness). Autocontrast and equalize ignore it.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If the images or the amounts have the wrong type, shape or range.
    UnknownName
        If there is no such operation.

    Examples
    --------
    >>> operate(np.full((1, 1, 1, 3), 200, np.uint8), "solarize", 128).ravel()
    array([55, 55, 55], dtype=uint8)
    """
    from twofold.nn.ingredients._image_kernels import operate_all

    x = batch(images)
    (code,) = operation_codes([name])
    amounts = _checks.plain(amount, "amount").astype(np.float64)
    if amounts.shape not in ((), (len(x),)):
        raise InvalidInput(f"amount must be one number or one for each of {len(x)} images, got shape {amounts.shape}")
    _checks.finite(np.atleast_1d(amounts), "amount")
    if name == "posterize" and ((amounts < 0) | (amounts > 8)).any():
        raise InvalidInput("amount of posterize must be 0 to 8 bits")
    result = np.empty_like(x)
    operate_all(x, np.full(len(x), code), np.array(np.broadcast_to(amounts, len(x))), result)
    return result


def random_operation(
    images: ArrayLike,
    index: ArrayLike,
    *,
    severity: float = 3.0,
    operations: Sequence[str] = OPERATIONS,
    seed: int = 0,
    epoch: int = 0,
    view: int = 0,
) -> Pixels:
    """Apply one randomly drawn operation to each image, at a random level.

    The operation is uniform over ``operations``, the level l uniform over (0.1, severity).

    Parameters
    ----------
    images : array-like of shape (N, H, W, 3), uint8
        Images before normalisation.
    index : array-like of shape (N,), int
        Number of each image in its data set, 0 or more. It selects the random numbers of the image.
    severity : float, default=3.0
        Largest level, from 0.1 to 10.
    operations : sequence of str, default=OPERATIONS
        Names of the operations to draw from.
    seed : int, default=0
        Seed of the random numbers, below 2^64.
    epoch : int, default=0
        Epoch of training, below 2^64; each epoch draws new random numbers.
    view : int, default=0
        Number of the copy of the sample; different views draw independent numbers.

    Returns
    -------
    numpy.ndarray of shape (N, H, W, 3), uint8
        New array; the input is left unchanged.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, shape or range.
    UnknownName
        If there is no operation of a name.

    Notes
    -----
    The scale is that of AugMix. At level l, posterize keeps 4 - int(0.4 l) bits; rotate turns by ±int(3 l) degrees;
    solarize starts from 256 - int(25.6 l); shear moves by ±0.03 l; translate moves by ±int(side/3 · l/10) pixels;
    colour, contrast, brightness and sharpness have the factor 0.1 + 0.18 l.

    References
    ----------
    Hendrycks et al., ICLR 2020, arXiv:1912.02781.

    Examples
    --------
    >>> random_operation(np.zeros((2, 4, 4, 3), np.uint8), [0, 1], operations=["solarize"]).shape
    (2, 4, 4, 3)
    """
    from twofold.nn.ingredients._image_kernels import operate_all_randomly

    x = batch(images)
    codes = operation_codes(operations)
    highest_level = check_severity(severity)
    draws = uniforms(sample_index(index, len(x)), 3, name="random_operation", seed=seed, epoch=epoch, view=view)
    result = np.empty_like(x)
    operate_all_randomly(x, codes, highest_level, draws, result)
    return result
