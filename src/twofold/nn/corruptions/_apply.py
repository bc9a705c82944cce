"""Apply one corruption to the images of some global rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import numpy as np

from twofold import _checks
from twofold.nn.corruptions._blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from twofold.nn.corruptions._digital import contrast, elastic_transform, jpeg_compression, pixelate
from twofold.nn.corruptions._noise import gaussian_noise, impulse_noise, shot_noise
from twofold.nn.corruptions._pixels import Bytes, DrawBits, Whole
from twofold.nn.corruptions._random import make_draw
from twofold.nn.corruptions._weather import brightness, fog, frost, snow
from twofold.nn.corruptions.severities import CIFAR, IMAGENET, LARGE, NAMES, Setting

Constants: TypeAlias = Literal["size", "cifar", "imagenet"]

BLOCK = 2**20  # pixel values processed at once
APPLY: Mapping[str, Callable[[Bytes, Setting, DrawBits], Bytes]] = {
    "brightness": brightness,
    "contrast": contrast,
    "defocus_blur": defocus_blur,
    "elastic_transform": elastic_transform,
    "fog": fog,
    "frost": frost,
    "gaussian_noise": gaussian_noise,
    "glass_blur": glass_blur,
    "impulse_noise": impulse_noise,
    "jpeg_compression": jpeg_compression,
    "motion_blur": motion_blur,
    "pixelate": pixelate,
    "shot_noise": shot_noise,
    "snow": snow,
    "zoom_blur": zoom_blur,
}


def corrupt_rows(pixels: Bytes, rows: Whole, name: str, level: int, seed: int, constants: Constants) -> Bytes:
    """Corrupt the images of these global rows, block by block."""
    _checks.choice(constants, "constants", ("size", "cifar", "imagenet"))
    is_large = constants == "imagenet"
    if constants == "size":
        is_large = min(pixels.shape[1:3]) >= LARGE
    table = IMAGENET if is_large else CIFAR
    setting = table[name][level - 1]
    entropy = [_checks.whole(seed, "seed", 0), NAMES.index(name), level]
    key = np.random.SeedSequence(entropy).generate_state(2, np.uint64).astype(np.uint64)
    step = max(1, BLOCK // max(1, pixels[:1].size))
    result = np.empty_like(pixels)
    for start in range(0, len(pixels), step):
        part = slice(start, start + step)
        result[part] = APPLY[name](pixels[part], setting, make_draw(key, rows[part]))
    return result
