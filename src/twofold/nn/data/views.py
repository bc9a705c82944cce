"""Take parts of data sets: class hold-outs, seeded splits, the validation rule of each protocol; and normalise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from twofold._checks import Labels, choice, number, whole
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.classes import class_list, superclasses
from twofold.nn.data.image_files import read_image_list
from twofold.nn.data.images import ClassSelection, Images
from twofold.nn.rows import Pixels, draw_rows

Channels: TypeAlias = tuple[float, float, float]


class Statistics(NamedTuple):
    """Hold mean and standard deviation of the three channels, of values in [0, 1].

    Attributes
    ----------
    mean : tuple of 3 floats
        Mean of red, green and blue.
    std : tuple of 3 floats
        Standard deviation of red, green and blue.
    """

    mean: Channels
    std: Channels


STATISTICS = {
    "cifar10": Statistics((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Statistics((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "imagenet": Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "unknown_detection_cifar": Statistics((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    # FD-Shifts normalises TinyImageNet and 384-pixel Camelyon17 with .384 where ImageNet has .224: a search-and-replace
    # slip in its code, kept to reproduce its numbers
    "fd_shifts_384": Statistics((0.485, 0.456, 0.406), (0.229, 0.384, 0.225)),
    "clip": Statistics((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": Statistics((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


def statistics(name: str) -> Statistics:
    """Return normalisation constants by name.

    Parameters
    ----------
    name : {"cifar10", "cifar100", "imagenet", "unknown_detection_cifar", "fd_shifts_384", "half"}
        Whose constants.

    Returns
    -------
    Statistics
        Mean and standard deviation of the channels.

    Raises
    ------
    UnknownName
        If there are no constants of that name.

    Notes
    -----
    ``"fd_shifts_384"`` has .384 where ImageNet has .224: a slip in the code of FD-Shifts (TinyImageNet and 384-pixel
    Camelyon17), kept to reproduce its numbers.

    Examples
    --------
    >>> statistics("imagenet").std
    (0.229, 0.224, 0.225)
    """
    if name not in STATISTICS:
        raise UnknownName.of("normalisation", name, STATISTICS)
    return STATISTICS[name]


def own_statistics(images: Images) -> Statistics:
    """Compute mean and standard deviation of a set's own pixels; FD-Shifts normalises each external set with these.

    Parameters
    ----------
    images : Images
        The data set; every image is decoded.

    Returns
    -------
    Statistics
        Of values in [0, 1], over all pixels of all images.

    Examples
    --------
    >>> own_statistics(Images.of(np.full((2, 4, 4), 51, np.uint8))).mean
    (0.2, 0.2, 0.2)
    """
    total, squares, count = np.zeros(3), np.zeros(3), 0
    for batch in images.blocks():
        block = batch.reshape(-1, 3).astype(np.uint32)
        total += block.sum(axis=0, dtype=np.uint64)  # exact: integers below 2^53
        squares += (block * block).sum(axis=0, dtype=np.uint64)
        count += len(block)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return Statistics(_channels(mean / 255), _channels(std / 255))


def _channels(values: npt.NDArray[np.float64]) -> Channels:
    red, green, blue = values.tolist()
    return red, green, blue


def normalise(
    batch: Pixels, mean: Sequence[float], std: Sequence[float], *, out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Turn uint8 images (B, H, W, 3) into float32 (B, 3, H, W): (x / 255 - mean) / std by channel.

    Parameters
    ----------
    batch : ndarray of uint8, shape (B, H, W, 3)
        The images.
    mean, std : sequence of 3 floats
        Mean and standard deviation of the channels, of values in [0, 1].
    out : ndarray of float32, shape (B, 3, H, W), optional
        Where to write the result; by default a new array.

    Returns
    -------
    ndarray of float32, shape (B, 3, H, W)
        The normalised images. Values are computed in float64 and rounded once.

    Raises
    ------
    InvalidInput
        If the batch or ``out`` have another type or shape, or ``mean`` and ``std`` are not three numbers each with
        ``std`` above 0.

    Examples
    --------
    >>> normalise(np.full((1, 1, 1, 3), 255, np.uint8), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).ravel()
    array([1., 1., 1.], dtype=float32)
    """
    if batch.ndim != 4 or batch.shape[3] != 3 or batch.dtype != np.uint8:
        raise InvalidInput(f"batch must be uint8 of shape (B, H, W, 3), got {batch.dtype} of {batch.shape}")
    means = np.asarray(mean, dtype=np.float64)
    stds = np.asarray(std, dtype=np.float64)
    if means.shape != (3,) or stds.shape != (3,) or not (stds > 0).all():
        raise InvalidInput(f"mean and std must be three numbers each, std above 0, got {mean} and {std}")
    # one table of 256 values a channel, computed in float64, so that the division is rounded once
    table = ((np.arange(256)[:, None] / 255 - means) / stds).astype(np.float32)
    shape = (len(batch), 3, *batch.shape[1:3])
    result = np.empty(shape, dtype=np.float32) if out is None else out
    if result.shape != shape or result.dtype != np.float32:
        raise InvalidInput(f"out must be float32 of shape {shape}, got {result.dtype} of {result.shape}")
    for channel in range(3):  # no byte is out of range; the mode clip is faster
        np.take(table[:, channel], batch[..., channel], out=result[:, channel], mode="clip")
    return result


# --- classes held out -----------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Hold two parts of a data set: the one kept or drawn, and the rest.

    Attributes
    ----------
    first : Images
        The part that was kept or drawn.
    rest : Images
        The other rows.
    """

    first: Images
    rest: Images


def hold_out(images: Images, classes: ClassSelection, *, keep_labels: bool = False) -> Parts:
    """Hold out classes: split a set into the rows of the other classes and the rows of these, labelled -1.

    Parameters
    ----------
    images : Images
        The data set, with labels.
    classes : str, int, or sequence of str or int
        The classes to hold out, by name or number.
    keep_labels : bool, default=False
        Keep the numbers of the remaining classes. By default they are renumbered 0, 1, ...

    Returns
    -------
    Parts
        ``first``: rows of the remaining classes. ``rest``: rows of the held-out classes, labelled -1.

    Raises
    ------
    InvalidInput
        If all classes are held out, a class is not in the set, or a part would have no rows.
    UnknownName
        If a class name does not exist.

    Examples
    --------
    >>> images = Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 2])
    >>> inside, outside = hold_out(images, [1])
    >>> inside.labels, outside.labels
    (array([0, 1]), array([-1]))
    """
    held_out = images.class_numbers(classes)
    kept = [label for label in range(images.class_count) if label not in held_out]
    if not kept:
        raise InvalidInput(f"{images.name}: all classes are held out; leave at least one")
    known = images.subset(kept, keep_labels=keep_labels)
    unknown = images.subset(sorted(held_out)).relabel(-1, known.class_names)
    return Parts(known, unknown)


def open_set_classes(count: int, *, share: float = 0.4, seed: int = 0) -> list[int]:
    """Draw the numbers of the classes that an open-set study holds out.

    The draw depends on the number of classes and the seed only, so train and test sets agree.

    Parameters
    ----------
    count : int
        Number of classes, at least 2.
    share : float, default=0.4
        Share of the classes to hold out, between 0 and 1; at least one class is held out and one kept.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    list of int
        Class numbers, sorted.

    Raises
    ------
    InvalidInput
        If ``count`` is below 2, or ``share`` is not between 0 and 1.

    Examples
    --------
    >>> len(open_set_classes(10)), len(open_set_classes(100, seed=3))
    (4, 40)
    """
    number(share, "share", 0, 1, open_low=True, open_high=True)
    wanted = round(share * whole(count, "count", 2))
    held_out = min(max(wanted, 1), count - 1)
    return np.sort(np.random.default_rng(seed).choice(count, held_out, replace=False)).tolist()


def open_set(images: Images, *, share: float = 0.4, seed: int = 0, keep_labels: bool = False) -> Parts:
    """Split a set into known classes and a seeded draw of held-out ones, labelled -1.

    Parameters
    ----------
    images : Images
        The data set, with labels.
    share : float, default=0.4
        Share of the classes to hold out. FD-Shifts holds out 40 %.
    seed : int, default=0
        Seed of the draw. FD-Shifts draws again for each run.
    keep_labels : bool, default=False
        Keep the numbers of the known classes; by default they are renumbered.

    Returns
    -------
    Parts
        ``first``: rows of the known classes. ``rest``: rows of the held-out classes, labelled -1.

    Raises
    ------
    InvalidInput
        If the set has no labels, ``share`` is not between 0 and 1, or a part would have no rows.

    Examples
    --------
    >>> known, unknown = open_set(Images.of(np.zeros((10, 8, 8), np.uint8), range(10)))
    >>> len(known), len(unknown)
    (6, 4)
    """
    _check_has_labels(images)
    held_out = open_set_classes(images.class_count, share=share, seed=seed)
    return hold_out(images, held_out, keep_labels=keep_labels)


def cifar40_60(images: Images, *, split: int = 0) -> Parts:
    """Split CIFAR-100 into CIFAR-40 (renumbered) and CIFAR-60 (labelled -1), by one of five substitute splits.

    Parameters
    ----------
    images : Images
        CIFAR-100 with its fine labels.
    split : int, default=0
        Which of the five splits, 0 to 4.

    Returns
    -------
    Parts
        ``first``: the 40 known classes. ``rest``: the 60 held-out classes, labelled -1.

    Raises
    ------
    InvalidInput
        If ``images`` do not have the 100 fine classes.
    UnknownName
        If there is no such split.

    Notes
    -----
    The published split is not recoverable, so numbers are not comparable with its tables cell by cell; use several
    splits and report the spread.

    Examples
    --------
    >>> images = Images.of(np.zeros((100, 8, 8), np.uint8), range(100), class_names=class_list("cifar100"))
    >>> known, unknown = cifar40_60(images, split=3)
    >>> len(known.class_names), len(unknown)
    (40, 60)
    """
    _check_is_cifar100(images)
    return hold_out(images, class_list(f"cifar60/{split}"))


# one class of each super-class of CIFAR-100 is shifted in FD-Shifts; its super-class "vehicles 2" (tractor) is dropped
SUPER_CIFAR_HELD_OUT = (
    *("seal", "flatfish", "tulip", "bowl", "pear", "lamp", "couch", "beetle", "lion", "skyscraper", "sea", "cattle"),
    *("raccoon", "lobster", "girl", "lizard", "hamster", "oak_tree", "motorcycle", "tractor"),
)


def subclass_shift(images: Images, groups: Mapping[str, Sequence[str]], held_out: Sequence[str]) -> Parts:
    """Label rows by groups of classes, and split off the rows of held-out classes as the shifted part.

    Parameters
    ----------
    images : Images
        The data set, labelled by classes.
    groups : mapping of str to sequence of str
        Classes of each group, by the group's name. The groups become the new classes; rows of other classes are
        dropped.
    held_out : sequence of str
        The classes that are shifted: some, but not all, of those in the groups.

    Returns
    -------
    Parts
        ``first``: rows of the other classes. ``rest``: rows of the held-out classes. Both have the groups as labels.

    Raises
    ------
    InvalidInput
        If ``held_out`` names none or all classes of the groups, or a part would have no rows.
    UnknownName
        If a class name does not exist.

    Examples
    --------
    >>> images = Images.of(np.zeros((3, 8, 8), np.uint8), [0, 1, 2], class_names=("cat", "lion", "oak"))
    >>> source, shifted = subclass_shift(images, {"cats": ["cat", "lion"], "trees": ["oak"]}, ["lion"])
    >>> source.labels, shifted.labels
    (array([0, 1]), array([0]))
    """
    group_of: dict[int, int] = {}
    for group_number, group in enumerate(groups.values()):
        for name in group:
            group_of[images.class_numbers(name)[0]] = group_number
    shifted = set(images.class_numbers(held_out)) & set(group_of)
    source = set(group_of) - shifted
    if not shifted or not source:
        raise InvalidInput("held_out must name some, but not all, classes of the groups")

    def label_by_group(classes: set[int]) -> Images:
        rows = images.subset(sorted(classes), keep_labels=True)
        return rows.relabel({label: group_of[label] for label in classes}, tuple(groups))

    return Parts(label_by_group(source), label_by_group(shifted))


def super_cifar100(images: Images) -> Parts:
    """Split fine-labelled CIFAR-100 by the sub-class shift of FD-Shifts: 19 super-classes, one class of each shifted.

    Parameters
    ----------
    images : Images
        CIFAR-100 with its fine labels.

    Returns
    -------
    Parts
        ``first``: the source part. ``rest``: the shifted part. Both are labelled by the 19 super-classes; the
        super-class "vehicles 2" is dropped, as in FD-Shifts.

    Raises
    ------
    InvalidInput
        If ``images`` do not have the 100 fine classes.

    Examples
    --------
    >>> images = Images.of(np.zeros((100, 8, 8), np.uint8), range(100), class_names=class_list("cifar100"))
    >>> source, shifted = super_cifar100(images)
    >>> len(source), len(shifted), len(source.class_names)
    (76, 19, 19)
    """
    _check_is_cifar100(images)
    groups = {name: members for name, members in superclasses().items() if name != "vehicles 2"}
    held_out = [name for name in SUPER_CIFAR_HELD_OUT if name != "tractor"]  # the one of "vehicles 2"
    return subclass_shift(images, groups, held_out)


def _check_is_cifar100(images: Images) -> None:
    if images.class_names != class_list("cifar100"):
        raise InvalidInput(f"{images.name} must have the 100 fine classes of CIFAR-100; open it with labels=fine")


def _check_has_labels(images: Images) -> None:
    if images.class_count == 0:
        raise InvalidInput(f"{images.name} has no labels, so no classes can be held out")


# --- splits ---------------------------------------------------------------------------------------------------------


FD_SHIFTS_SEED = 12345


def shuffled(images: Images, *, seed: int = FD_SHIFTS_SEED) -> Images:
    """Put all rows in a seeded random order.

    Parameters
    ----------
    images : Images
        The data set.
    seed : int, default=12345
        Seed of the order. The default is the draw that FD-Shifts makes on Camelyon17 and BREEDS.

    Returns
    -------
    Images
        A view with the same rows in another order.

    Examples
    --------
    >>> sorted(shuffled(Images.of(np.zeros((4, 8, 8), np.uint8))).ids.tolist())
    [0, 1, 2, 3]
    """
    return images[np.random.default_rng(seed).permutation(len(images))]


def split(images: Images, n: int, *, seed: int) -> Parts:
    """Split off a seeded draw of ``n`` rows.

    Parameters
    ----------
    images : Images
        The data set.
    n : int
        Number of rows to draw, less than the set has.
    seed : int
        Seed of the draw.

    Returns
    -------
    Parts
        ``first``: the rows drawn. ``rest``: the others. Both are in stored order.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1, or not less than the number of rows.

    Examples
    --------
    >>> some, others = split(Images.of(np.zeros((5, 8, 8), np.uint8)), 2, seed=0)
    >>> len(some), len(others)
    (2, 3)
    """
    if whole(n, "n", 1) >= len(images):
        raise InvalidInput(f"n must be less than the {len(images)} rows of {images.name}, got {n}")
    return _split_off(images, draw_rows(len(images), n, seed=seed))


def split_by_class(images: Images, n: int, *, seed: int) -> Parts:
    """Split off a seeded draw of ``n`` rows of every class.

    Parameters
    ----------
    images : Images
        The data set, with labels. Rows without a class go to the rest.
    n : int
        Number of rows to draw of each class, less than any class has.
    seed : int
        Seed of the draw.

    Returns
    -------
    Parts
        ``first``: the rows drawn. ``rest``: the others. Both are in stored order.

    Raises
    ------
    InvalidInput
        If ``n`` is below 1, the set has no labels, or a class has ``n`` rows or fewer.

    Examples
    --------
    >>> some, _ = split_by_class(Images.of(np.zeros((6, 8, 8), np.uint8), [0, 0, 0, 1, 1, 1]), 2, seed=0)
    >>> some.labels
    array([0, 0, 1, 1])
    """
    whole(n, "n", 1)
    rng = np.random.default_rng(seed)
    _check_has_labels(images)
    drawn = []
    for label in range(images.class_count):
        rows = np.flatnonzero(images.labels == label)
        if len(rows) <= n:
            raise InvalidInput(f"{images.name}: class {label} has {len(rows)} rows, so {n} of them leave no rest")
        drawn.append(rng.choice(rows, n, replace=False))
    return _split_off(images, np.sort(np.concatenate(drawn)))


def _split_off(images: Images, rows: Labels) -> Parts:
    is_rest = np.ones(len(images), dtype=bool)
    is_rest[rows] = False
    return Parts(images[rows], images[is_rest])


RULES = ("fd_shifts", "unknown_detection", "openood")


def validation_split(
    images: Images,
    rule: Literal["fd_shifts", "unknown_detection", "openood"],
    *,
    seed: int = 0,
    val: str | Path | None = None,
    test: str | Path | None = None,
) -> Parts:
    """Split a set into a validation part and the rest, by the rule of a protocol.

    Parameters
    ----------
    images : Images
        The test set for ``"fd_shifts"``, the training set for ``"unknown_detection"``, the images that the lists name
        for ``"openood"``.
    rule : {"fd_shifts", "unknown_detection", "openood"}
        ``"fd_shifts"``: the first 1,000 rows of the i.i.d. test set in stored order. ``"unknown_detection"``: 50 rows
        of each class of the training set, drawn with ``seed`` (the published draw is unknown). ``"openood"``: the image
        lists ``val`` and ``test``, matched to the ids.
    seed : int, default=0
        Seed of the draw of ``"unknown_detection"``.
    val, test : str or Path, optional
        Image lists of ``"openood"``, and only of it. They must not share an image.

    Returns
    -------
    Parts
        ``first``: the validation part. ``rest``: the other rows; with ``"openood"`` those of the list ``test``.

    Raises
    ------
    InvalidInput
        If ``rule`` is not known, there are too few rows, or lists are missing, not needed, overlapping, or name an
        image that the set does not have.

    Notes
    -----
    For Camelyon17 (id_val) and BREEDS (source) FD-Shifts shuffles first: pass :func:`shuffled` rows, for BREEDS the
    first 10,000 of them (the others are for training).

    Examples
    --------
    >>> val, test = validation_split(Images.of(np.zeros((1200, 2, 2), np.uint8)), "fd_shifts")
    >>> len(val), len(test)
    (1000, 200)
    """
    choice(rule, "rule", RULES)
    if rule != "openood" and (val is not None or test is not None):
        raise InvalidInput(f"val and test are image lists of the rule 'openood', not of {rule!r}")
    if rule == "fd_shifts":
        if len(images) <= 1000:
            raise InvalidInput(f"{images.name} has {len(images)} rows; the fd_shifts rule takes the first 1000 of more")
        return Parts(images[:1000], images[1000:])
    if rule == "unknown_detection":
        return split_by_class(images, 50, seed=seed)
    if val is None or test is None:
        raise InvalidInput("the rule 'openood' needs val=FILE and test=FILE, its image lists")
    return _split_by_lists(images, Path(val), Path(test))


def _split_by_lists(images: Images, val: Path, test: Path) -> Parts:
    """Select the rows named by two image lists, in the order of the lists."""
    row_of = {str(name): row for row, name in enumerate(images.ids.tolist())}
    if len(row_of) != len(images):
        raise InvalidInput(f"{images.name}: ids are not unique, so lists cannot be matched to rows")
    val_rows = _match_list(val, row_of, images)
    test_rows = _match_list(test, row_of, images)
    shared = set(val_rows) & set(test_rows)
    if shared:
        raise InvalidInput(
            f"{val} and {test} share {len(shared)} images, the first is {images.ids[min(shared)].item()!r}; "
            "tuning on test images makes every number too good"
        )
    return Parts(images[val_rows], images[test_rows])


def _match_list(file: Path, row_of: Mapping[str, int], images: Images) -> list[int]:
    """Look up the rows of the images that a list names."""
    names, _ = read_image_list(file)
    for name in names:
        if name not in row_of:
            first = images.ids[0].item()
            raise InvalidInput(f"{file}: {name!r} is not an id of {images.name}, whose first is {first!r}")
    return [row_of[name] for name in names]
