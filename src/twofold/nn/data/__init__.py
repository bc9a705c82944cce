"""Read images and texts from local files: readers, views and checks. Needs NumPy and Pillow, not torch.

``open("cifar100:PATH?split=test")`` returns :class:`Images`; ``images.read(rows)`` returns uint8 (B, H, W, 3).
``open_texts("text:PATH")`` returns :class:`Texts`.
"""

from __future__ import annotations

from twofold.nn.data.check import Report, check, contact_sheet, resize, total_variation
from twofold.nn.data.classes import class_list, superclasses
from twofold.nn.data.images import Images
from twofold.nn.data.layout import ExpectedFile, FileStatus, check_file, expected_files
from twofold.nn.data.readable import drop_unreadable, find_unreadable
from twofold.nn.data.readers import READERS
from twofold.nn.data.spec import holds_texts, open, open_any, open_texts, open_unread  # noqa: A004  # the name of the contract
from twofold.nn.data.texts import TextReport, Texts, check_texts
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
    "ExpectedFile",
    "FileStatus",
    "Images",
    "Parts",
    "Report",
    "Statistics",
    "TextReport",
    "Texts",
    "check",
    "check_file",
    "check_texts",
    "cifar40_60",
    "class_list",
    "contact_sheet",
    "drop_unreadable",
    "expected_files",
    "find_unreadable",
    "hold_out",
    "holds_texts",
    "normalise",
    "open",
    "open_any",
    "open_set",
    "open_texts",
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
