"""Describe a data set, detect artefacts of resizing, and resize with antialiasing, which leaves none."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from twofold._checks import Array, choice, whole
from twofold._files import replacing
from twofold.errors import InvalidInput
from twofold.nn.data.decoding import import_pillow
from twofold.nn.data.images import Images
from twofold.nn.data.readable import find_unreadable
from twofold.nn.data.sizing import SizeRule
from twofold.nn.data.views import Channels, own_statistics
from twofold.nn.rows import Pixels, draw_rows

# Standardised difference of total variation from which a set is suspected. Against CIFAR-10, antialiased sets of real
# photographs reach 0.55 (Tiny-ImageNet at 32 pixels); halved by nearest neighbour they give 0.9 (scenes) to 1.5
# (Tiny-ImageNet). Sets smooth by nature (SVHN, close textures) stay below it even when badly resized.
SUSPECT = 0.75
SAMPLE = 2000  # images whose total variation is measured, at most


class Smoothness(NamedTuple):
    """Hold the total variation of a set's images: mean, standard deviation and how many images were measured.

    Attributes
    ----------
    mean : float
        Mean of :func:`total_variation` over the images.
    std : float
        Standard deviation over the images.
    looked_at : int
        Number of images measured.
    """

    mean: float
    std: float
    looked_at: int


@dataclass(frozen=True)
class Report:
    """Hold what :func:`check` found; ``str(report)`` is text for people, ``as_dict()`` plain values for programs.

    Attributes
    ----------
    name : str
        Name of the data set.
    rows : int
        Number of images.
    height, width : int
        Size of the images in pixels.
    class_names : tuple of str or None
        Names of the classes, if the set has any.
    class_counts : tuple of int
        Number of images of each class, by class number.
    unlabelled : int
        Number of images without a class (label -1).
    first_ids : tuple of str or int
        Ids of the first five rows.
    mean, std : tuple of 3 floats
        Mean and standard deviation of the channels, of values in [0, 1].
    smoothness : Smoothness
        Total variation of the images.
    reference : str or None
        Name of the reference set, if one was compared.
    reference_smoothness : Smoothness or None
        Total variation of the reference set.
    difference : float or None
        Standardised difference of the two total variations; positive where this set is rougher.
    warning : str or None
        Why the set is suspected of resizing without antialiasing, or None.
    unreadable : int
        Number of images that cannot be read and were left out of all other values.
    first_unreadable : str or None
        What is wrong with the first of them.
    """

    name: str
    rows: int
    height: int
    width: int
    class_names: tuple[str, ...] | None
    class_counts: tuple[int, ...]  # by class number
    unlabelled: int
    first_ids: tuple[str | int, ...]
    mean: Channels
    std: Channels
    smoothness: Smoothness
    reference: str | None = None
    reference_smoothness: Smoothness | None = None
    difference: float | None = None
    warning: str | None = None
    unreadable: int = 0
    first_unreadable: str | None = None

    def as_dict(self) -> dict[str, object]:
        """Return the report as a dictionary of plain values.

        Returns
        -------
        dict
            The fields by name; ``smoothness`` and ``reference_smoothness`` are dictionaries too.

        Examples
        --------
        >>> check(Images.of(np.zeros((3, 8, 8), np.uint8))).as_dict()["smoothness"]
        {'mean': 0.0, 'std': 0.0, 'looked_at': 3}
        """
        result = asdict(self)
        result["smoothness"] = self.smoothness._asdict()
        if self.reference_smoothness is not None:
            result["reference_smoothness"] = self.reference_smoothness._asdict()
        return result

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.rows} images of {self.height}x{self.width}",
            f"classes: {self._format_classes()}",
            f"rows without a class: {self.unlabelled}",
            f"first ids: {', '.join(str(id_) for id_ in self.first_ids)}",
            f"mean: {_format_channels(self.mean)}  std: {_format_channels(self.std)}",
            f"total variation: {self.smoothness.mean:.4f} (std {self.smoothness.std:.4f})",
        ]
        if self.reference_smoothness is not None:
            lines.append(
                f"against {self.reference}: {self.reference_smoothness.mean:.4f} "
                f"(std {self.reference_smoothness.std:.4f}), standardised difference {self.difference:+.2f}"
            )
        if self.unreadable:
            lines.append(f"unreadable: {self.unreadable}, left out; the first: {self.first_unreadable}")
        if self.warning is not None:
            lines.append(f"warning: {self.warning}")
        return "\n".join(lines)

    def _format_classes(self) -> str:
        """List the first ten classes with their counts."""
        if not self.class_counts:
            return "none"
        names = self.class_names or [str(number) for number in range(len(self.class_counts))]
        classes = [f"{name} {count}" for name, count in zip(names, self.class_counts, strict=True)]
        listed = ", ".join(classes[:10])
        if len(classes) > 10:
            listed += f", ... {len(classes) - 10} more"
        return listed


def _format_channels(values: Channels) -> str:
    red, green, blue = values
    return f"{red:.4f} {green:.4f} {blue:.4f}"


def total_variation(batch: Pixels) -> Array:
    r"""Compute the mean absolute difference between neighbouring pixels of each image, of values in [0, 1].

    .. math:: \frac{1}{M} \sum_{i,j,c} |x_{i+1,j,c} - x_{i,j,c}| + |x_{i,j+1,c} - x_{i,j,c}|

    over the M pairs of neighbours, so that images of any size are comparable.

    Parameters
    ----------
    batch : ndarray of uint8, shape (B, H, W, 3)
        The images, at least 2x2 pixels.

    Returns
    -------
    ndarray of float64, shape (B,)
        One value in [0, 1] for each image; 0 for an image of one colour.

    Raises
    ------
    InvalidInput
        If the batch has another number of dimensions, or a side shorter than 2 pixels.

    Examples
    --------
    >>> total_variation(np.full((1, 4, 4, 3), 7, np.uint8))
    array([0.])
    """
    x = np.asarray(batch).astype(np.int16)
    if x.ndim != 4 or min(x.shape[1:3]) < 2:
        raise InvalidInput(f"batch must be images (B, H, W, 3) of at least 2x2 pixels, got shape {x.shape}")
    down = np.abs(np.diff(x, axis=1))
    across = np.abs(np.diff(x, axis=2))
    pairs = math.prod(down.shape[1:]) + math.prod(across.shape[1:])
    total = down.sum(axis=(1, 2, 3), dtype=np.int64) + across.sum(axis=(1, 2, 3), dtype=np.int64)
    return total / (255 * pairs)


def smoothness(images: Images) -> Smoothness:
    """Measure the total variation of a set's images.

    Parameters
    ----------
    images : Images
        The data set.

    Returns
    -------
    Smoothness
        Mean and standard deviation of :func:`total_variation` over at most 2,000 rows, drawn with a fixed seed.

    Examples
    --------
    >>> smoothness(Images.of(np.zeros((3, 4, 4), np.uint8)))
    Smoothness(mean=0.0, std=0.0, looked_at=3)
    """
    rows = draw_rows(len(images), min(SAMPLE, len(images)), seed=0)
    values = np.concatenate([total_variation(batch) for batch in images[rows].blocks()])
    return Smoothness(float(values.mean()), float(values.std()), len(values))


def check(images: Images, reference: Images | None = None, *, on_bad: Literal["stop", "skip"] = "stop") -> Report:
    """Report counts, sizes, classes, channel statistics and smoothness of a data set; every image is decoded.

    With a ``reference`` the total variation is compared: the difference of the means over the root mean square of the
    two standard deviations. Resizing without antialiasing leaves jagged pixels, which raise the total variation
    strongly. A network can distinguish such images from any clean image, so OOD detection looks easier than it is. The
    report warns from a difference of 0.75 on.

    Parameters
    ----------
    images : Images
        The data set to look at.
    reference : Images, optional
        The in-distribution set to compare with, at the same image size.
    on_bad : {"stop", "skip"}, default="stop"
        What an image that cannot be read does: raise an error with its name, or be counted and left out.

    Returns
    -------
    Report
        What was found.

    Raises
    ------
    InvalidInput
        If an image cannot be read and is not to be skipped, none can be read, or the two sets differ in image size.

    Notes
    -----
    Images that are rough by nature (gravel, noise) raise the difference as well, and sets that are smooth by nature
    (digits) hide it. Look at a :func:`contact_sheet` to decide.

    Examples
    --------
    >>> report = check(Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 1]))
    >>> report.rows, report.class_counts, report.unlabelled
    (3, (1, 2), 0)
    """
    unreadable: dict[int, str] = {}
    if choice(on_bad, "on_bad", ("stop", "skip")) == "skip":
        unreadable = find_unreadable(images)
        if len(unreadable) == len(images):
            raise InvalidInput(f"{images.name}: none of {len(images)} images can be read; the first: {unreadable[0]}")
        images = images[np.setdiff1d(np.arange(len(images)), list(unreadable))]
    height, width = images.shape
    channels = own_statistics(images)
    own = smoothness(images)
    other, difference, warning = None, None, None
    if reference is not None:
        _check_same_shape(images, reference)
        other = smoothness(reference)
        difference = _standardise_difference(own, other)
        if difference >= SUSPECT:
            warning = _suspect_resizing(images.name, reference.name, difference)
    is_labelled = images.labels >= 0
    counts = np.bincount(images.labels[is_labelled], minlength=len(images.class_names or ()))
    return Report(
        name=images.name,
        rows=len(images),
        height=height,
        width=width,
        class_names=images.class_names,
        class_counts=tuple(counts.tolist()),
        unlabelled=int((~is_labelled).sum()),
        first_ids=tuple(images.ids[:5].tolist()),
        mean=channels.mean,
        std=channels.std,
        smoothness=own,
        reference=None if reference is None else reference.name,
        reference_smoothness=other,
        difference=difference,
        warning=warning,
        unreadable=len(unreadable),
        first_unreadable=next(iter(unreadable.values()), None),
    )


def _check_same_shape(images: Images, reference: Images) -> None:
    if images.shape != reference.shape:
        (height, width), (reference_height, reference_width) = images.shape, reference.shape
        raise InvalidInput(
            f"{images.name} is {height}x{width} but the reference {reference.name} is "
            f"{reference_height}x{reference_width}; total variation compares at one size, "
            "so open both with the same size="
        )


def _standardise_difference(own: Smoothness, other: Smoothness) -> float:
    """Divide the difference of the means by the root mean square of the standard deviations."""
    spread = float(np.sqrt((own.std**2 + other.std**2) / 2))
    difference = own.mean - other.mean
    if spread > 0:
        return difference / spread
    return 0.0 if difference == 0 else math.copysign(math.inf, difference)


def _suspect_resizing(name: str, reference: str, difference: float) -> str:
    """Word the warning about images that look resized without antialiasing."""
    return (
        f"{name} is much rougher than {reference} (total variation {difference:+.2f} standard deviations, "
        f"suspect from {SUSPECT:+.2f}): it looks resized without antialiasing; look at a contact sheet, and make it "
        "again from the original images (data resize --rule fix)"
    )


def contact_sheet(images: Images, path: str | Path, *, n: int = 64, seed: int = 0) -> Path:
    """Write a PNG file with a sample of the images in a square grid.

    Parameters
    ----------
    images : Images
        The data set.
    path : str or Path
        The file to write; its folder must exist.
    n : int, default=64
        Number of rows to draw, at most; they are kept in stored order.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1, the folder does not exist, or ``path`` is a folder.
    MissingExtra
        If Pillow is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     contact_sheet(Images.of(np.zeros((5, 8, 8), np.uint8)), f"{folder}/sheet.png").name
    'sheet.png'
    """
    count = min(whole(n, "n", 1), len(images))
    tiles = images.read(draw_rows(len(images), count, seed=seed))
    columns = int(np.ceil(np.sqrt(count)))
    lines = -(-count // columns)
    height, width = tiles.shape[1:3]
    gap = 2
    canvas = np.full((lines * (height + gap) + gap, columns * (width + gap) + gap, 3), 255, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        line, column = divmod(i, columns)
        top = line * (height + gap) + gap
        left = column * (width + gap) + gap
        canvas[top : top + height, left : left + width] = tile
    image = import_pillow().fromarray(canvas)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    target = _check_target(Path(path))
    with replacing(target) as file:
        file.write(buffer.getvalue())
    return target


FIX_SIDE = 256  # of the recipe: shorter side and centre crop before the last resize


def resize(images: Images, out: str | Path, *, size: int = 32, rule: Literal["fix", "shorter"] = "fix") -> Path:
    """Write the images at one size to an .npz file with images, labels, ids and class names; open it with ``npz:``.

    Rows are streamed, and the file appears whole or not at all; the same images give the same bytes.

    Parameters
    ----------
    images : Images
        The data set.
    out : str or Path
        The file to write; its name must end in ``.npz`` and its folder must exist.
    size : int, default=32
        Height and width of the written images.
    rule : {"fix", "shorter"}, default="fix"
        ``"fix"`` is the recipe of the FIX sets: shorter side to 256, centre crop 256, then ``size``, each step bilinear
        with antialiasing. It is meant for the original large images: small ones are enlarged first. ``"shorter"``
        brings the shorter side to ``size`` and crops the centre.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If ``rule``, ``size`` or ``out`` is not valid, or an image cannot be read.

    References
    ----------
    Tack, Mo, Jeong, Shin, "CSI: Novelty Detection via Contrastive Learning on Distributionally Shifted Instances",
    NeurIPS 2020, arXiv:2007.08176.

    Examples
    --------
    >>> import tempfile
    >>> from twofold.nn.data import open
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = resize(Images.of(np.zeros((2, 9, 9), np.uint8)), f"{folder}/small.npz", size=4, rule="shorter")
    ...     open(f"npz:{file}").shape
    (4, 4)
    """
    choice(rule, "rule", ("fix", "shorter"))
    whole(size, "size", 1)
    target = _check_target(Path(out))
    if target.suffix != ".npz":
        raise InvalidInput(f"out must end in .npz, got {target}")
    if rule == "fix":
        fix_rules: tuple[SizeRule, ...] = (("shorter", FIX_SIDE), ("crop", FIX_SIDE), ("exact", size))
        resized = images.with_size_rules(*fix_rules)
    else:
        resized = images.fit(size=size)
    arrays: dict[str, npt.NDArray[np.generic]] = {"labels": resized.labels, "ids": resized.ids}
    if resized.class_names is not None:
        arrays["class_names"] = np.array(resized.class_names)
    with replacing(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_zip_entry("images"), "w", force_zip64=True) as stream:
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(resized), size, size, 3)}
            np.lib.format.write_array_header_1_0(stream, header)
            for batch in resized.blocks():
                stream.write(batch.tobytes())
        for name, array in arrays.items():
            with archive.open(_zip_entry(name), "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return target


def _zip_entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))  # no clock in the bytes


def _check_target(path: Path) -> Path:
    if not path.parent.is_dir():
        raise InvalidInput(f"{path.parent}: there is no such folder to write {path.name} to")
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder; name a file")
    return path
