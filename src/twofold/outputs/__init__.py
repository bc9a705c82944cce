"""What one model computed for one data set: logits, and whatever else was recorded beside them.

Everything after extraction works on :class:`Outputs`. Arrays are validated once, when :class:`Outputs` is built. They
keep their own float precision, are not copied without need, and are read-only views afterwards.
"""

from __future__ import annotations

from twofold._checks import AnyArray
from twofold.outputs._fields import FIELDS, FINE, KNOWN_KEYS, NAMES, PASS_ARRAYS, check_rows, is_half
from twofold.outputs._memory import build_unchecked, release, row_slices
from twofold.outputs.head import Head, check_head, check_head_shape
from twofold.outputs.npz import load_npz
from twofold.outputs.outputs import Outputs, assemble
from twofold.outputs.passes import Passes

__all__ = [
    "FIELDS",
    "FINE",
    "KNOWN_KEYS",
    "NAMES",
    "PASS_ARRAYS",
    "AnyArray",
    "Head",
    "Outputs",
    "Passes",
    "assemble",
    "build_unchecked",
    "check_head",
    "check_head_shape",
    "check_rows",
    "is_half",
    "load_npz",
    "release",
    "row_slices",
]
