"""The compiled chaos game of :mod:`twofold.nn.ingredients.fractals`; imports numba, so import it inside functions."""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

kernel = njit(nogil=True, cache=True, error_model="numpy")

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64 (Steele et al., OOPSLA 2014) and its two mixing constants
MIX1, MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
MOST = 6  # maps of a system at most
PICKS, SHIFT = 1024, np.uint64(54)  # entries of the table that picks a map, by the upper bits of a word
SETTLE, SCOUT = 32, 1024  # steps to reach the attractor, and to measure how far it reaches
POINTS = 5  # for each pixel
SHADES = 256  # of a palette
CELLS, COVERED = 32, 0.4  # a system that touches less than this share of a coarse grid is thrown away


@kernel
def _scramble(word):
    """Mix the bits of a word, the output function of SplitMix64."""
    word = (word ^ (word >> np.uint64(30))) * MIX1
    word = (word ^ (word >> np.uint64(27))) * MIX2
    return word ^ (word >> np.uint64(31))


@kernel
def _uniform(state):
    """Draw a number in [0, 1) and advance the state."""
    state[0] += GOLDEN
    return np.float64(_scramble(state[0]) >> np.uint64(11)) * 2.0**-53


@kernel
def _draw_system(state, maps, picks):
    """Draw two to six contractions; maps are picked in proportion to the area that they keep."""
    count = 2 + int(_uniform(state) * (MOST - 1))
    budget = 0.5 * (5.0 + count + 2.5 * _uniform(state))
    shares = np.empty(count)
    for j in range(count):
        shares[j] = 0.5 + _uniform(state)
    shares /= shares.sum()
    areas = np.empty(count)
    for j in range(count):
        flat = 0.3 + 0.7 * _uniform(state)
        wide = min(budget * shares[j] / (1.0 + 2.0 * flat), 0.95)
        narrow = wide * flat
        if _uniform(state) >= 0.5:
            narrow = -narrow
        left, right = 2.0 * np.pi * _uniform(state), 2.0 * np.pi * _uniform(state)
        c, s, p, q = np.cos(left), np.sin(left), np.cos(right), np.sin(right)
        maps[j, 0], maps[j, 1] = wide * c * p - narrow * s * q, -wide * c * q - narrow * s * p
        maps[j, 2], maps[j, 3] = wide * s * p + narrow * c * q, -wide * s * q + narrow * c * p
        maps[j, 4], maps[j, 5] = 2.0 * _uniform(state) - 1.0, 2.0 * _uniform(state) - 1.0
        maps[j, 6] = _uniform(state)  # its colour, a place on the palette
        areas[j] = wide * abs(narrow) + 0.02
    areas /= areas.sum()
    j, reached = 0, areas[0]
    for k in range(PICKS):
        while j < count - 1 and (k + 0.5) / PICKS > reached:
            j += 1
            reached += areas[j]
        picks[k] = j


@kernel
def _scout(state, maps, picks, grid, box):
    """Walk the attractor: measure its box (left, top, cells across, cells down) and the share of cells touched."""
    cells = grid.shape[0]
    x = y = 0.0
    low_x = low_y = np.inf
    high_x = high_y = -np.inf
    hit = 0
    word = state[0]
    for step in range(SETTLE + SCOUT + POINTS * cells * cells):
        word += GOLDEN
        m = maps[picks[_scramble(word) >> SHIFT]]
        x, y = m[0] * x + m[1] * y + m[4], m[2] * x + m[3] * y + m[5]
        if step < SETTLE:
            continue
        if step < SETTLE + SCOUT:
            low_x, high_x = min(low_x, x), max(high_x, x)
            low_y, high_y = min(low_y, y), max(high_y, y)
            box[0], box[1] = low_x, low_y
            box[2], box[3] = 1.0 / max(high_x - low_x, 1e-9), 1.0 / max(high_y - low_y, 1e-9)
            continue
        column, row = (x - low_x) * box[2] * cells, (y - low_y) * box[3] * cells
        if 0.0 <= column < cells and 0.0 <= row < cells:
            i, j = int(row), int(column)
            hit += not grid[i, j]
            grid[i, j] = True
    state[0] = word
    return hit / (cells * cells)


@kernel
def _play(state, maps, picks, box, counts, colours):
    """Count the hits of each pixel and sum up their colours."""
    size = counts.shape[0]
    across, down = box[2] * size, box[3] * size
    x, y, t = 0.0, 0.0, 0.5
    word = state[0]
    for step in range(SETTLE + POINTS * size * size):
        word += GOLDEN
        m = maps[picks[_scramble(word) >> SHIFT]]
        x, y = m[0] * x + m[1] * y + m[4], m[2] * x + m[3] * y + m[5]
        t = 0.5 * (t + m[6])
        column, row = (x - box[0]) * across, (y - box[1]) * down
        if step >= SETTLE and 0.0 <= column < size and 0.0 <= row < size:
            i, j = int(row), int(column)
            counts[i, j] += 1
            colours[i, j] += t
    state[0] = word


@kernel
def _paint(state, counts, colours, out):
    """Paint in a palette of three cosines, brightness by the logarithm of the hits, over a gradient of the palette."""
    size = counts.shape[0]
    palette = np.empty((SHADES, 3))
    for c in range(3):
        wave, phase = 0.5 + _uniform(state), _uniform(state)
        for k in range(SHADES):
            palette[k, c] = 0.5 + 0.5 * np.cos(2.0 * np.pi * (wave * k / SHADES + phase))
    turn, light = 2.0 * np.pi * _uniform(state), 0.7 * _uniform(state)
    begin, span = _uniform(state), 0.5 * _uniform(state)
    along, beside = np.cos(turn) * span / size, np.sin(turn) * span / size
    top = 0
    for i in range(size):
        for j in range(size):
            top = max(top, counts[i, j])
    scale = 1.0 / np.log1p(top)
    for i in range(size):
        for j in range(size):
            share = np.log1p(counts[i, j]) * scale
            place = min(int(colours[i, j] / max(counts[i, j], 1) * SHADES), SHADES - 1)
            behind = int(min(max(begin + along * j + beside * i, 0.0), 1.0) * (SHADES - 1))
            for c in range(3):
                value = light * palette[behind, c]
                if counts[i, j]:
                    value = (1.0 - share) * value + share * (0.3 + 0.7 * palette[place, c])
                out[i, j, c] = np.uint8(255.0 * value + 0.5)


@kernel
def draw_fractals(seed, out):
    """Draw the pictures; picture i depends on the seed and i alone."""
    size = out.shape[1]
    maps, picks = np.empty((MOST, 7)), np.empty(PICKS, dtype=np.int64)
    counts, colours = np.empty((size, size), dtype=np.int64), np.empty((size, size))
    grid, box, state = np.empty((CELLS, CELLS), dtype=np.bool_), np.empty(4), np.empty(1, dtype=np.uint64)
    for i in range(out.shape[0]):
        state[0] = _scramble(_scramble(seed + GOLDEN) + np.uint64(i))
        covered = 0.0
        while covered < COVERED:
            grid[:] = False
            _draw_system(state, maps, picks)
            covered = _scout(state, maps, picks, grid, box)
        counts[:] = 0
        colours[:] = 0.0
        _play(state, maps, picks, box, counts, colours)
        _paint(state, counts, colours, out[i])
