"""Tables of data sets: what the papers print of their benchmarks, beside our catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from twofold.bench.catalogue import Benchmark, DataSet, load
from twofold.bench.published import anchors
from twofold.papers.settings_tables import SettingsRow, register_settings

_NONE = "–"

# Table 3 of FD-Shifts: our benchmark, the printed name, and printed images of train, val, i.i.d. test, corruptions,
# sub-class shift and new-class shift; None where a dash is printed
_SPLITS = ("train", "val", "test", "corruptions", "sub-class shift", "new-class shift")
_COLUMNS = {"shift": "sub-class shift", "near": "new-class shift", "far": "new-class shift"}  # by role
_FD_SHIFTS: tuple[tuple[str, str, tuple[int | None, ...]], ...] = (
    ("fd-svhn", "SVHN", (73257, 1000, 25032, None, None, 30000)),
    ("fd-cifar10", "CIFAR-10", (50000, 1000, 9000, 750000, None, 46032)),
    ("fd-cifar100", "CIFAR-100", (50000, 1000, 9000, 750000, None, 46032)),
    ("fd-supercifar100", "CIFAR-100 (super-classes)", (38000, None, None, None, 11400, None)),
    ("fd-iwildcam", "iWildCam", (129809, 1000, 7154, None, 42791, None)),
    ("fd-camelyon", "Wilds-Camelyon-17", (302436, 1000, 32560, None, 85054, None)),
    ("fd-breeds", "BREEDS-Entity-13", (157120, 1000, 9000, None, 167592, None)),
)

# Table 2 of unknown detection: our benchmark, our data set, the printed name and images
_UNKNOWN: tuple[tuple[str, str, str, int], ...] = (
    ("unknown-cifar", "train", "CIFAR-40, train", 18000),
    ("unknown-cifar", "val", "CIFAR-40, validation", 2000),
    ("unknown-cifar", "test", "CIFAR-40, test", 4000),
    ("unknown-cifar", "ood_val", "Tiny ImageNet158-FIX, validation", 2000),
    ("unknown-cifar", "cifar60", "CIFAR-60", 6000),
    ("unknown-cifar", "lsun_fix", "LSUN-FIX", 4000),
    ("unknown-cifar", "svhn", "SVHN", 4000),
    ("unknown-cifar", "textures", "DTD", 5640),
    ("unknown-cifar", "gaussian", "Gaussian", 10000),
    ("unknown-imagenet", "train", "ImageNet-200, train", 250000),
    ("unknown-imagenet", "val", "ImageNet-200, validation", 10000),
    ("unknown-imagenet", "test", "ImageNet-200, test", 10000),
    ("unknown-imagenet", "ood_val", "External ImageNet-394, validation", 19700),
    ("unknown-imagenet", "near_imagenet", "Near ImageNet-200", 10000),
    ("unknown-imagenet", "food32", "Food-32", 10000),
    ("unknown-imagenet", "caltech45", "Caltech-45", 4792),
    ("unknown-imagenet", "places82", "Places-82", 10000),
)

# Table 3 of unknown detection: the printed classes of each super-class of CIFAR-100
_SUPERCLASSES = {
    "aquatic mammals": "beaver, dolphin, otter, seal, whale",
    "fish": "aquarium fish, flatfish, ray, shark, trout",
    "flowers": "orchids, poppies, roses, sunflowers, tulips",
    "food containers": "bottles, bowls, cans, cups, plates",
    "fruit and vegetables": "apples, mushrooms, oranges, pears, sweet peppers",
    "household electrical devices": "clock, computer keyboard, lamp, telephone, television",
    "household furniture": "bed, chair, couch, table, wardrobe",
    "insects": "bee, beetle, butterfly, caterpillar, cockroach",
    "large carnivores": "bear, leopard, lion, tiger, wolf",
    "large man-made outdoor things": "bridge, castle, house, road, skyscraper",
    "large natural outdoor scenes": "cloud, forest, mountain, plain, sea",
    "large omnivores and herbivores": "camel, cattle, chimpanzee, elephant, kangaroo",
    "medium-sized mammals": "fox, porcupine, possum, raccoon, skunk",
    "non-insect invertebrates": "crab, lobster, snail, spider, worm",
    "people": "baby, boy, girl, man, woman",
    "reptiles": "crocodile, dinosaur, lizard, snake, turtle",
    "small mammals": "hamster, mouse, rabbit, shrew, squirrel",
    "trees": "maple, oak, palm, pine, willow",
    "vehicles 1": "bicycle, bus, motorcycle, pickup truck, train",
    "vehicles 2": "lawn-mower, rocket, streetcar, tank, tractor",
}


@register_settings("fd_shifts_images")
def fd_shifts_images() -> tuple[SettingsRow, ...]:
    """Compare the images of each split in Table 3 of FD-Shifts with our catalogue.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed number.

    Examples
    --------
    >>> fd_shifts_images()[0]
    SettingsRow(name='SVHN: train', printed='73,257', ours='73,257', agrees=True, note='')
    """
    rows = []
    for name, printed_name, numbers in _FD_SHIFTS:
        benchmark = load(name)
        for split, number in zip(_SPLITS, numbers, strict=True):
            if number is not None:
                rows.append(_compare_rows(f"{printed_name}: {split}", number, _sets_of_split(benchmark, split)))
    return tuple(rows)


def _sets_of_split(benchmark: Benchmark, split: str) -> list[DataSet]:
    """Find the data sets of a benchmark that a column of the table counts."""
    found = []
    for one in benchmark.sets:
        is_corruption = one.name.startswith("corruption/")
        column = {"shift": "sub-class shift", "near": "new-class shift", "far": "new-class shift"}.get(
            one.role, one.role
        )
        if is_corruption:
            column = "corruptions"
        if column == split:
            found.append(one)
    return found


@register_settings("unknown_detection_images")
def unknown_detection_images() -> tuple[SettingsRow, ...]:
    """Compare the images of each set in Table 2 of unknown detection with our catalogue.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed number but those of external training sets, which are not sets of a benchmark.

    Examples
    --------
    >>> [row.name for row in unknown_detection_images() if not row.agrees]
    ['ImageNet-200, train']
    """
    rows = []
    for benchmark, name, printed_name, number in _UNKNOWN:
        rows.append(_compare_rows(printed_name, number, [load(benchmark)[name]]))
    return tuple(rows)


def _compare_rows(name: str, printed: int, sets: Iterable[DataSet]) -> SettingsRow:
    """Compare a printed number of images with the rows of our data sets."""
    rows = 0
    notes = []
    for one in sets:
        rows += one.rows
        notes.append(one.note)
    agrees = rows == printed
    remark = "" if agrees else "; ".join(note for note in notes if note)
    return SettingsRow(name, f"{printed:,}", f"{rows:,}" if rows else _NONE, agrees, remark)


@register_settings("cifar_superclasses")
def cifar_superclasses() -> tuple[SettingsRow, ...]:
    """Compare the super-classes of CIFAR-100 in Table 3 of unknown detection with our lists.

    Returns
    -------
    tuple of SettingsRow
        A row for each super-class, with the two known classes of our first split as the remark. Which two the paper
        took is shown by colour only.

    Examples
    --------
    >>> all(row.agrees for row in cifar_superclasses())
    True
    """
    from twofold.nn.data import class_list, superclasses

    ours = superclasses()
    known = set(class_list("cifar40/0"))
    rows = []
    for name, printed in _SUPERCLASSES.items():
        classes = ours[name]
        agrees = [_singular(word) for word in printed.split(", ")] == [_singular(word) for word in classes]
        kept = [word for word in classes if word in known]
        note = f"known in our first split: {', '.join(kept)}"
        rows.append(SettingsRow(name, printed, ", ".join(classes), agrees and len(kept) == 2, note))
    return tuple(rows)


def _singular(word: str) -> str:
    """Write a class name alike in both lists, which differ in plurals, separators and added words."""
    plain = word.replace("_", " ").replace("-", " ").removesuffix(" tree").removeprefix("computer ")
    if plain.endswith("ies"):
        return plain.removesuffix("ies") + "y"
    return plain.removesuffix("s")


@register_settings("strata_groups")
def strata_groups() -> tuple[SettingsRow, ...]:
    """Compare the near, mid and far sets in Table 1 of the stratified study with our catalogue.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed data set.

    Examples
    --------
    >>> strata_groups()[0]
    SettingsRow(name='stratified-cifar10: cifar100', printed='near', ours='near', agrees=True, note='')
    """
    rows = []
    for anchor in anchors(paper="stratified", table="1"):
        roles = {one.name: one.role for one in load(anchor.benchmark).sets}
        ours = roles.get(anchor.shift, _NONE)
        name = f"{anchor.benchmark}: {anchor.shift}"
        rows.append(SettingsRow(name, anchor.role, ours, ours == anchor.role))
    return tuple(rows)
