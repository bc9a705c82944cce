"""Read images from local files as arrays: readers, views and checks. Needs NumPy and Pillow, not torch.

``open("cifar100:PATH?split=test")`` returns :class:`Images`; ``images.read(rows)`` returns uint8 (B, H, W, 3).
"""

from __future__ import annotations

from twofold.nn.data.check import Report, check, contact_sheet, resize, total_variation
from twofold.nn.data.classes import class_list, superclasses
from twofold.nn.data.images import Images
from twofold.nn.data.readable import drop_unreadable, find_unreadable
from twofold.nn.data.readers import READERS
from twofold.nn.data.spec import open, open_unread  # noqa: A004  # the name of the contract
from twofold.nn.data.views import (
    STATISTICS,
    Parts,
    Statistics,
    cifar40_60,
    hold_out,
    normalise,
    open_set,
    own_statistics,
    shuffled,
    split,
    split_by_class,
    statistics,
    subclass_shift,
    super_cifar100,
    validation_split,
)

__all__ = [
    "READERS",
    "STATISTICS",
    "Images",
    "Parts",
    "Report",
    "Statistics",
    "check",
    "cifar40_60",
    "class_list",
    "contact_sheet",
    "drop_unreadable",
    "find_unreadable",
    "hold_out",
    "normalise",
    "open",
    "open_set",
    "open_unread",
    "own_statistics",
    "resize",
    "shuffled",
    "split",
    "split_by_class",
    "statistics",
    "subclass_shift",
    "super_cifar100",
    "superclasses",
    "total_variation",
    "validation_split",
]
