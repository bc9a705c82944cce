"""Weather: fog, frost, snow and brightness."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from twofold.nn.corruptions._blur import apply_operator, smear, zoom_operator
from twofold.nn.corruptions._pixels import Bytes, DrawBits, Single, Words, truncate
from twofold.nn.corruptions._random import normal_quantiles, to_uniform
from twofold.nn.corruptions.severities import FROST, FROST_SIDE, FROST_STEP, LARGE


def brightness(x: Bytes, add: float, draw: DrawBits) -> Bytes:
    """Add to the value of HSV: each channel keeps its ratio to the largest, so a 256 x 256 table holds every result."""
    value = np.arange(256) / 255.0
    lifted = np.clip(value + add, 0, 1)[:, None]
    saturation = np.clip(value[:, None] - value, 0, None) / np.maximum(value[:, None], 1e-9)
    table = (np.clip(lifted * (1 - saturation), 0, 1) * 255).astype(np.uint8)
    top = np.maximum(np.maximum(x[..., 0], x[..., 1]), x[..., 2]).astype(np.uint16) << 8
    return table.ravel().take(top[..., None] | x, mode="clip")


def fog(x: Bytes, setting: tuple[float, float], draw: DrawBits) -> Bytes:
    """Add a plasma fractal, then scale back to the old maximum."""
    strength, decay = setting
    _, height, width, _ = x.shape
    side = 1 << (max(height, width) - 1).bit_length()
    fractals = plasma_fractals(draw(side * side - 1), side, decay)
    haze = fractals[:, :height, :width, None] * np.float32(255 * strength)
    top = x.max(axis=(1, 2, 3)).astype(np.float32)[:, None, None, None] / 255
    scale = top / (top + np.float32(strength))
    return truncate(x * scale + haze * scale)


def plasma_fractals(words: Words, side: int, decay: float) -> Single:
    """Make diamond-square fractals on a torus, scaled to [0, 1]."""
    random = to_uniform(words) * 2 - 1
    maps = np.zeros((len(words), side, side), dtype=np.float32)
    step, roughness, used = side, 100.0, 0

    def add_noise(total: Single) -> Single:
        """Average four neighbours and add noise of the present roughness."""
        nonlocal used
        count = total[0].size if len(total) else 0
        noise = random[:, used : used + count].reshape(total.shape)
        used += count
        return total / 4 + noise * np.float32(roughness**2)

    while step >= 2:
        half = step // 2
        corners = maps[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = add_noise(pairs + np.roll(pairs, -1, axis=2))
        maps[:, half::step, half::step] = centres
        beside = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        maps[:, ::step, half::step] = add_noise(beside)
        beside = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        maps[:, half::step, ::step] = add_noise(beside)
        step, roughness = half, roughness / decay
    maps -= maps.min(axis=(1, 2), keepdims=True)
    maps /= maps.max(axis=(1, 2), keepdims=True)
    return maps


def frost(x: Bytes, setting: tuple[float, float], draw: DrawBits) -> Bytes:
    """Add a crop of a frost texture; which one and where is drawn for each row."""
    _, height, width, _ = x.shape
    textures = _frost_textures()
    if min(height, width) < LARGE:
        textures = textures[:, FROST_STEP // 2 :: FROST_STEP, FROST_STEP // 2 :: FROST_STEP]
    count, side, _, _ = textures.shape
    words = draw(3).astype(np.int64)
    which = words[:, 0] * count >> 16
    top, left = words[:, 1] * side >> 16, words[:, 2] * side >> 16
    ys = (top[:, None] + np.arange(height)) % side
    xs = (left[:, None] + np.arange(width)) % side
    values = textures[which[:, None, None], ys[:, :, None], xs[:, None, :]] * np.float32(setting[1])
    values += x * np.float32(setting[0])
    return truncate(values)


@lru_cache(maxsize=1)
def _frost_textures() -> Bytes:
    """Make five periodic textures: the maximum of three 1/f fields, each stretched in one direction like needles."""
    across = np.fft.fftfreq(FROST_SIDE) * FROST_SIDE
    textures = np.empty((len(FROST), FROST_SIDE, FROST_SIDE, 3), dtype=np.uint8)
    for index, (mean, spread) in enumerate(FROST):
        noise = np.random.Philox(key=index).random_raw(3 * FROST_SIDE**2).astype("<u8").view("<u2")[::4]
        noise = normal_quantiles()[noise].reshape(3, FROST_SIDE, FROST_SIDE)
        fields = []
        for turn, white in enumerate(noise):
            angle = np.pi * (turn / 3 + index / 15)
            along = across[:, None] * np.sin(angle) + across * np.cos(angle)
            aside = across[:, None] * np.cos(angle) - across * np.sin(angle)
            frequency = np.hypot(3 * along, aside)
            frequency[0, 0] = np.inf
            field = np.fft.ifft2(np.fft.fft2(white) / frequency).real
            fields.append(field / field.std())
        needles = np.max(fields, axis=0)
        needles = (needles - needles.mean()) / needles.std()
        textures[index] = np.clip(needles[..., None] * spread + np.array(mean) + 0.5, 0, 255)
    return textures


def snow(x: Bytes, setting: tuple[float, float, float, float, int, float, float], draw: DrawBits) -> Bytes:
    """Whiten the image, then add smeared flakes and the same flakes rotated by 180 degrees."""
    mean, spread, zoom, threshold, radius, sigma, weight = setting
    n, height, width, _ = x.shape
    words = draw(1 + height * width)
    flakes = (mean + spread * normal_quantiles()).astype(np.float32).take(words[:, 1:], mode="clip")
    flakes = apply_operator(zoom_operator(height, width, (zoom,)), flakes.reshape(n, height, width, 1))
    flakes[flakes < threshold] = 0
    flakes *= 255
    degrees = to_uniform(words[:, 0]) * 90.0 - 135.0
    fallen = np.rint(smear(truncate(flakes), radius, sigma, degrees))
    fallen += fallen[:, ::-1, ::-1]
    values = x.astype(np.float32)
    red, green, blue = np.split(values, 3, axis=3)
    grey = np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue
    pale = np.maximum(values, grey * np.float32(1.5) + np.float32(127.5))
    return truncate(values * np.float32(weight) + pale * np.float32(1 - weight) + fallen)
