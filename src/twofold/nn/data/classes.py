"""Class names and class lists of the benchmarks, kept as JSON beside this module."""

from __future__ import annotations

import json
import random
from functools import cache
from importlib.resources import files
from typing import Any

from twofold.errors import UnknownName

CIFAR40_SPLITS = 5
_HOME = {"cifar10": "cifar", "cifar100": "cifar"}
_OVERLAP = "tiny_imagenet_cifar10"
_IMAGENET = ("tiny_imagenet158", "imagenet200", "imagenet_near", "imagenet_external")
_NEAR_DRAW = "imagenet_near200"  # 200 of the classes of imagenet_near


@cache
def _read_lists(file: str) -> dict[str, Any]:
    """Read a JSON file of class lists by name."""
    path = files("twofold.nn.data").joinpath("lists", f"{file}.json")
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def list_names() -> tuple[str, ...]:
    """List the names of the class lists.

    Returns
    -------
    tuple of str
        The names that :func:`class_list` takes.

    Examples
    --------
    >>> list_names()[:3]
    ('cifar10', 'cifar100', 'cifar40/0')
    """
    inside = [f"cifar40/{split}" for split in range(CIFAR40_SPLITS)]
    outside = [f"cifar60/{split}" for split in range(CIFAR40_SPLITS)]
    return (*_HOME, *inside, *outside, *_IMAGENET, _NEAR_DRAW, _OVERLAP)


def class_list(name: str) -> tuple[str, ...]:
    """Return a class list by name: class names for CIFAR, wnids for ImageNet.

    Parameters
    ----------
    name : str
        One of :func:`list_names`.

    Returns
    -------
    tuple of str
        The classes, in the order of their numbers where the list is that of a data set.

    Raises
    ------
    UnknownName
        If there is no such list.

    Notes
    -----
    ``cifar40/K`` and ``cifar60/K`` (K from 0 to 4) are substitutes for the split of the unknown-detection benchmark,
    which is published as cell colours only; ``tiny_imagenet158``, ``imagenet_near`` and ``imagenet_external`` are
    reconstructions by its WordNet rule. ``imagenet_near200`` are 200 of ``imagenet_near``, drawn with seed 0; which 200
    the benchmark drew is not published. ``tiny_imagenet_cifar10`` are the 24 classes of Tiny-ImageNet that
    are classes of CIFAR-10 too, to be removed from a near set.

    Examples
    --------
    >>> class_list("cifar10")[:3]
    ('airplane', 'automobile', 'bird')
    """
    if name not in list_names():
        raise UnknownName.of("class list", name, list_names())
    if name in _HOME:
        return tuple(_read_lists(_HOME[name])[name])
    kind, _, split = name.partition("/")
    if kind == "cifar40":
        return tuple(_read_lists("cifar40")[split])
    if kind == "cifar60":
        inside = set(_read_lists("cifar40")[split])
        return tuple(c for c in class_list("cifar100") if c not in inside)
    if name == _NEAR_DRAW:
        return _draw(class_list("imagenet_near"), 200)
    if name == _OVERLAP:
        return tuple(_read_lists(name)["removed"])
    return tuple(_read_lists("imagenet")[name])


def _draw(names: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Draw some names with seed 0, in the order of the list."""
    drawn = set(random.Random(0).sample(names, count))
    return tuple(name for name in names if name in drawn)


def superclasses() -> dict[str, tuple[str, ...]]:
    """Return the 20 super-classes of CIFAR-100 in the order of the coarse labels, each with its five classes.

    Returns
    -------
    dict of str to tuple of str
        Names of the classes by name of the super-class.

    Examples
    --------
    >>> list(superclasses())[0], superclasses()["people"]
    ('aquatic mammals', ('baby', 'boy', 'girl', 'man', 'woman'))
    """
    return {name: tuple(members) for name, members in sorted(_read_lists("cifar")["superclasses"].items())}
