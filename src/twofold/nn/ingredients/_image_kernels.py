"""Compiled operations on batches of uint8 images (N, H, W, 3). Imports numba: import this module inside functions.

One image is finished before the next begins, so its result cannot depend on its neighbours. All release the GIL.
The operations compute what Pillow computes, with its rounding: tables for point operations, truncation after blends
and after bilinear sampling, 22-bit fixed point for resizing.
"""

# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

kernel = njit(nogil=True, cache=True, error_model="numpy")

AUTOCONTRAST, EQUALIZE, POSTERIZE, ROTATE, SOLARIZE, SHEAR_X, SHEAR_Y = 0, 1, 2, 3, 4, 5, 6
TRANSLATE_X, TRANSLATE_Y, COLOUR, CONTRAST, BRIGHTNESS, SHARPNESS, HUE = 7, 8, 9, 10, 11, 12, 13
FIXED = 22  # bits behind the point in resizing weights

# Philox4x64-10 (Salmon et al., SC 2011): multipliers and Weyl constants
M0, M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
W0, W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


# --- random numbers -------------------------------------------------------------------------------------------------


@kernel
def _multiply_high(a, b):
    """Compute the upper half of a 64 x 64 bit product."""
    a_low, a_high = a & LOW, a >> HALF
    b_low, b_high = b & LOW, b >> HALF
    middle = a_high * b_low + ((a_low * b_low) >> HALF)
    other = a_low * b_high + (middle & LOW)
    return a_high * b_high + (middle >> HALF) + (other >> HALF)


@kernel
def fill_uniforms(index, seed, epoch, stream, view, out):
    """Draw numbers in [0, 1) for each sample: Philox with key (seed, epoch), counter (block, index, stream, view)."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            place = j % 4  # each block of the generator gives four words
            if place == 0:
                c0, c1, c2, c3 = np.uint64(j // 4 + 1), index[i], stream, view
                k0, k1 = seed, epoch
                for _ in range(10):
                    high0, high1 = _multiply_high(M0, c0), _multiply_high(M1, c2)
                    c0, c1, c2, c3 = high1 ^ c1 ^ k0, M1 * c2, high0 ^ c3 ^ k1, M0 * c0
                    k0 += W0
                    k1 += W1
                word = c0
            elif place == 1:
                word = c1
            elif place == 2:
                word = c2
            else:
                word = c3
            out[i, j] = np.float64(word >> np.uint64(11)) * 2.0**-53


# --- point operations -----------------------------------------------------------------------------------------------


@kernel
def _clip(value):
    """Clip to 0..255."""
    return np.uint8(min(max(value, 0), 255))


@kernel
def _blend(low, high, factor):
    """Blend as Pillow does: in single precision, clipped to the range, truncated."""
    value = np.float32(low) + factor * np.float32(np.int32(high) - np.int32(low))
    return np.uint8(min(max(value, np.float32(0)), np.float32(255)))


@kernel
def _grey(pixel):
    """Compute the luma of ITU-R 601 in 16-bit fixed point."""
    return (np.int64(pixel[0]) * 19595 + np.int64(pixel[1]) * 38470 + np.int64(pixel[2]) * 7471 + 0x8000) >> 16


@kernel
def _fill_autocontrast_table(counts, table):
    """Map the darkest and the brightest value of a histogram to 0 and 255, and those between linearly."""
    low, high = 0, 255
    while low < 255 and counts[low] == 0:
        low += 1
    while high > 0 and counts[high] == 0:
        high -= 1
    for v in range(256):
        table[v] = v
        if high > low:
            scale = 255.0 / (high - low)
            table[v] = _clip(int(v * scale - low * scale))


@kernel
def _fill_equalize_table(counts, table):
    """Spread the values of a histogram so that all are about equally frequent."""
    total, last = 0, 0
    for v in range(256):
        total += counts[v]
        if counts[v]:
            last = counts[v]
    step = (total - last) // 255
    n = step // 2
    for v in range(256):
        table[v] = v
        if step > 0:
            table[v] = _clip(n // step)
        n += counts[v]


@kernel
def _count_values(source, counts):
    """Add the pixels of an image to the histogram of each channel."""
    for y in range(source.shape[0]):
        for x in range(source.shape[1]):
            for c in range(3):
                counts[c, source[y, x, c]] += 1


@kernel
def _mean_grey(source):
    """Compute the mean luma of an image, rounded."""
    height, width = source.shape[0], source.shape[1]
    total = 0
    for y in range(height):
        for x in range(width):
            total += _grey(source[y, x])
    return int(total / (height * width) + 0.5)


@kernel
def _map_value(v, code, amount, centre):
    """Compute the new value of v under posterize, solarize, contrast or brightness."""
    if code == POSTERIZE:
        return np.uint8(v & (256 - (1 << (8 - int(amount)))))
    if code == SOLARIZE:
        if v < amount:
            return np.uint8(v)
        return np.uint8(255 - v)
    return _blend(centre, v, np.float32(amount))


@kernel
def _apply_table(source, code, amount, out):
    """Apply an operation that is a table of 256 values, one for each channel where it depends on the histogram."""
    height, width = source.shape[0], source.shape[1]
    table = np.empty((3, 256), dtype=np.uint8)
    if code in (AUTOCONTRAST, EQUALIZE):
        counts = np.zeros((3, 256), dtype=np.int64)
        _count_values(source, counts)
        for c in range(3):
            if code == AUTOCONTRAST:
                _fill_autocontrast_table(counts[c], table[c])
            else:
                _fill_equalize_table(counts[c], table[c])
    else:
        centre = 0
        if code == CONTRAST:
            centre = _mean_grey(source)
        for v in range(256):
            table[:, v] = _map_value(v, code, amount, centre)
    for y in range(height):
        for x in range(width):
            for c in range(3):
                out[y, x, c] = table[c, source[y, x, c]]


@kernel
def _colour(source, factor, out):
    """Blend with the grey image."""
    for y in range(source.shape[0]):
        for x in range(source.shape[1]):
            grey = _grey(source[y, x])
            for c in range(3):
                out[y, x, c] = _blend(grey, source[y, x, c], factor)


@kernel
def _sharpness(source, factor, out):
    """Blend with a 3 x 3 mean whose centre weighs 5 of 13; the outermost pixels have no such mean and stay."""
    height, width = source.shape[0], source.shape[1]
    for y in range(height):
        for x in range(width):
            inner = 0 < y < height - 1 and 0 < x < width - 1
            for c in range(3):
                own = source[y, x, c]
                if inner:
                    total = 4 * np.int64(own)
                    for i in range(y - 1, y + 2):
                        for j in range(x - 1, x + 2):
                            total += source[i, j, c]
                    own = np.uint8((2 * total + 13) // 26)
                out[y, x, c] = _blend(own, source[y, x, c], factor)


@kernel
def _hue(source, shift, out):
    """Turn the hue by a share of the circle, in Pillow's 8-bit HSV."""
    turn = int(shift * 255) & 255
    for y in range(source.shape[0]):
        for x in range(source.shape[1]):
            r, g, b = np.int64(source[y, x, 0]), np.int64(source[y, x, 1]), np.int64(source[y, x, 2])
            top, bottom = max(r, g, b), min(r, g, b)
            hue, saturation = 0, 0
            if top > bottom:
                span = np.float32(top - bottom)
                rest = (np.float32(top - r) / span, np.float32(top - g) / span, np.float32(top - b) / span)
                if r == top:
                    sector = rest[2] - rest[1]
                elif g == top:
                    sector = np.float32(2.0 + rest[0] - rest[2])
                else:
                    sector = np.float32(4.0 + rest[1] - rest[0])
                hue = int(np.float32((sector / 6.0 + 1.0) % 1.0) * 255.0)
                saturation = int(np.float32(span / np.float32(top)) * 255.0)
            hue = (hue + turn) & 255
            if saturation == 0:
                out[y, x, 0] = out[y, x, 1] = out[y, x, 2] = top
                continue
            share = np.float32(saturation / 255.0)
            place = np.float32(hue * 6.0 / 255.0)
            part = np.float32(place - np.floor(place))
            p = np.uint8(np.floor(top * (1.0 - share) + 0.5))
            q = np.uint8(np.floor(top * (1.0 - share * part) + 0.5))
            t = np.uint8(np.floor(top * (1.0 - share * (1.0 - part)) + 0.5))
            v = np.uint8(top)
            sixth = int(np.floor(place)) % 6
            if sixth == 0:
                red, green, blue = v, t, p
            elif sixth == 1:
                red, green, blue = q, v, p
            elif sixth == 2:
                red, green, blue = p, v, t
            elif sixth == 3:
                red, green, blue = p, q, v
            elif sixth == 4:
                red, green, blue = t, p, v
            else:
                red, green, blue = v, p, q
            out[y, x, 0], out[y, x, 1], out[y, x, 2] = red, green, blue


# --- geometry -------------------------------------------------------------------------------------------------------


@kernel
def _affine(source, a, b, c, d, e, f, out):
    """Sample bilinearly at (a x + b y + c, d x + e y + f), measured from the corner to pixel centres; black outside."""
    height, width = source.shape[0], source.shape[1]
    for y in range(height):
        for x in range(width):
            u = a * (x + 0.5) + b * (y + 0.5) + c
            v = d * (x + 0.5) + e * (y + 0.5) + f
            if u < 0 or u >= width or v < 0 or v >= height:
                out[y, x, 0] = out[y, x, 1] = out[y, x, 2] = 0
                continue
            u -= 0.5
            v -= 0.5
            left, top = int(np.floor(u)), int(np.floor(v))
            du, dv = u - left, v - top
            x0, x1 = max(left, 0), min(left + 1, width - 1)
            y0, y1 = max(top, 0), min(top + 1, height - 1)
            for k in range(3):
                upper = source[y0, x0, k] + (np.float64(source[y0, x1, k]) - source[y0, x0, k]) * du
                lower = source[y1, x0, k] + (np.float64(source[y1, x1, k]) - source[y1, x0, k]) * du
                out[y, x, k] = np.uint8(upper + (lower - upper) * dv)


@kernel
def _rotate(source, degrees, out):
    """Rotate about the centre."""
    angle = -degrees * (np.pi / 180.0)
    a = np.rint(np.cos(angle) * 1e15) / 1e15  # as Pillow rounds them
    b = np.rint(np.sin(angle) * 1e15) / 1e15
    x, y = source.shape[1] / 2.0, source.shape[0] / 2.0
    _affine(source, a, b, (-a * x - b * y) + x, -b, a, (b * x - a * y) + y, out)


@kernel
def _weights(size, wide, starts, counts, weights):
    """Compute fixed-point weights of the triangle filter from ``wide`` pixels to ``size``, wider when it shrinks."""
    scale = wide / size
    support = max(scale, 1.0)
    for i in range(size):
        centre = (i + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), wide)
        total = 0.0
        for j in range(first, last):
            total += max(1.0 - abs((j - centre + 0.5) / support), 0.0)
        for j in range(first, last):
            share = max(1.0 - abs((j - centre + 0.5) / support), 0.0) / total
            weights[i, j - first] = int(0.5 + share * (1 << FIXED))
        starts[i], counts[i] = first, last - first


@kernel
def resize_crops(images, tops, lefts, heights, widths, out):
    """Resize each image's own box as Pillow does: rows first, rounded to 8 bits, then columns."""
    n, full, across = images.shape[0], images.shape[1], images.shape[2]
    rows, columns = out.shape[1], out.shape[2]
    side = max(full, across, rows, columns)
    starts, counts = np.empty((2, side), dtype=np.int64), np.empty((2, side), dtype=np.int64)
    taps = int(2 * max(full / rows, across / columns, 1.0)) + 3
    weights = np.empty((2, max(rows, columns), taps), dtype=np.int64)
    between = np.empty((full, columns, 3), dtype=np.uint8)
    half = 1 << (FIXED - 1)
    for i in range(n):
        _weights(columns, widths[i], starts[0], counts[0], weights[0])
        _weights(rows, heights[i], starts[1], counts[1], weights[1])
        for y in range(heights[i]):
            for x in range(columns):
                for c in range(3):
                    total = half
                    for k in range(counts[0, x]):
                        total += weights[0, x, k] * images[i, tops[i] + y, lefts[i] + starts[0, x] + k, c]
                    between[y, x, c] = _clip(total >> FIXED)
        for y in range(rows):
            for x in range(columns):
                for c in range(3):
                    total = half
                    for k in range(counts[1, y]):
                        total += weights[1, y, k] * between[starts[1, y] + k, x, c]
                    out[i, y, x, c] = _clip(total >> FIXED)


@kernel
def shift(images, down, right, fill, out):
    """Cut windows of the images' own size, moved by whole pixels; what lies outside is filled."""
    n, height, width = images.shape[0], images.shape[1], images.shape[2]
    for i in range(n):
        for y in range(height):
            row = y + down[i]
            for x in range(width):
                column = x + right[i]
                is_inside = 0 <= row < height and 0 <= column < width
                for c in range(3):
                    if is_inside:
                        out[i, y, x, c] = images[i, row, column, c]
                    else:
                        out[i, y, x, c] = fill[c]


# --- random operations ----------------------------------------------------------------------------------------------


@kernel
def operate(source, code, amount, out):
    """Apply one operation to one image; every pixel of ``out`` is written."""
    if code == ROTATE:
        _rotate(source, amount, out)
    elif code == SHEAR_X:
        _affine(source, 1.0, amount, 0.0, 0.0, 1.0, 0.0, out)
    elif code == SHEAR_Y:
        _affine(source, 1.0, 0.0, 0.0, amount, 1.0, 0.0, out)
    elif code == TRANSLATE_X:
        _affine(source, 1.0, 0.0, amount, 0.0, 1.0, 0.0, out)
    elif code == TRANSLATE_Y:
        _affine(source, 1.0, 0.0, 0.0, 0.0, 1.0, amount, out)
    elif code == COLOUR:
        _colour(source, np.float32(amount), out)
    elif code == SHARPNESS:
        _sharpness(source, np.float32(amount), out)
    elif code == HUE:
        _hue(source, amount, out)
    else:
        _apply_table(source, code, amount, out)


@kernel
def amount_at(code, level, negative, height, width):
    """Translate a level of 0 to 10 for an operation: into bits, degrees, threshold, slope, pixels or factor."""
    sign = -1.0 if negative else 1.0
    share = level / 10.0
    if code == POSTERIZE:
        return 4.0 - int(4 * share)
    if code == ROTATE:
        return sign * int(30 * share)
    if code == SOLARIZE:
        return 256.0 - int(256 * share)
    if code in (SHEAR_X, SHEAR_Y):
        return sign * 0.3 * share
    if code == TRANSLATE_X:
        return sign * int(width / 3 * share)
    if code == TRANSLATE_Y:
        return sign * int(height / 3 * share)
    return 0.1 + 1.8 * share


@kernel
def operate_randomly(source, codes, severity, draws, out):
    """Apply an operation of ``codes`` at a level of U(0.1, severity) with a random sign, by three draws."""
    code = codes[int(draws[0] * codes.size)]
    level = 0.1 + (severity - 0.1) * draws[1]
    amount = amount_at(code, level, draws[2] < 0.5, source.shape[0], source.shape[1])
    operate(source, code, amount, out)


@kernel
def operate_all(images, codes, amounts, out):
    """Apply operation ``codes[i]`` to image i; a negative code copies it."""
    for i in range(images.shape[0]):
        if codes[i] < 0:
            out[i] = images[i]
        else:
            operate(images[i], codes[i], amounts[i], out[i])


@kernel
def operate_all_randomly(images, codes, severity, draws, out):
    """Apply to each image the operation that it drew."""
    for i in range(images.shape[0]):
        operate_randomly(images[i], codes, severity, draws[i], out[i])


@kernel
def augmix_all(images, codes, severity, width, depth, draws, out):
    """Mix each image with chains of augmented copies of itself.

    Draws of an image: mixing weight, ``width`` weights of chains, then for each chain its depth and operations.
    """
    n, pixels = images.shape[0], images.shape[1] * images.shape[2] * 3
    buffers = np.empty((2, images.shape[1], images.shape[2], 3), dtype=np.uint8)
    weights = np.empty(width, dtype=np.float64)
    for i in range(n):
        total = 0.0
        for j in range(width):
            weights[j] = -np.log1p(-draws[i, 1 + j])  # exponentials over their sum: Dirichlet(1)
            total += weights[j]
        plain = images[i].reshape(pixels)
        mixed = out[i].reshape(pixels)
        mixed[:] = 0
        for j in range(width):
            at = 1 + width + j * (1 + 3 * depth)
            length = 1 + int(draws[i, at] * depth)
            for k in range(length):
                source = images[i]
                if k > 0:
                    source = buffers[1 - k % 2]  # the result before
                own_draws = draws[i, at + 1 + 3 * k : at + 4 + 3 * k]
                operate_randomly(source, codes, severity, own_draws, buffers[k % 2])
            chain = buffers[(length - 1) % 2].reshape(pixels)
            weight = np.float32(weights[j] / total)
            for p in range(pixels):
                mixed[p] += weight * np.float32(chain[p])
        mixing = np.float32(draws[i, 0])
        for p in range(pixels):
            value = (np.float32(1) - mixing) * np.float32(plain[p]) + mixing * mixed[p]
            mixed[p] = min(value / np.float32(255), np.float32(1))


@kernel
def _mix(base, first, partner, multiply, a, b, current):
    """Add or multiply in [0, 1]: ``base`` (uint8) with the partner in the first round, later ``current``; cut to range.

    The partner is uint8, so what depends on it alone is a table; so is what depends on the base.
    """
    one, zero = np.float32(1), np.float32(0)
    own, other = np.empty(256, dtype=np.float32), np.empty(256, dtype=np.float32)
    for v in range(256):
        x = 2.0 * v / 255.0
        if multiply:
            other[v] = 0.5 * max(x, 1e-37) ** b
            own[v] = x**a if first else 0.0
        else:
            other[v] = 0.5 * (b * (x - 1.0) + 1.0)
            own[v] = 0.5 * a * (x - 1.0)
    power, slope, intercept = np.float32(a), np.float32(a), np.float32(0.5 * a)
    height, width = partner.shape[0], partner.shape[1]
    for y in range(height):
        for x in range(width):
            for c in range(3):
                there = other[partner[y, x, c]]
                if multiply:
                    here = own[base[y, x, c]] if first else (current[y, x, c] * np.float32(2)) ** power
                    value = here * there
                else:
                    here = own[base[y, x, c]] if first else slope * current[y, x, c] - intercept
                    value = here + there
                current[y, x, c] = min(max(value, zero), one)


@kernel
def pixmix_all(images, pictures, codes, severity, least, most, beta, published, draws, out):
    """Mix each image, a few times over, with a picture or with augmented copies of itself.

    Draws of an image: start, rounds, picture, its crop (2), operation of the start (3), then eight for each round.
    Draws of a round: partner, operation (3), add or multiply, which weights, a, b.
    """
    n, height, width = images.shape[0], images.shape[1], images.shape[2]
    buffers = np.empty((2, height, width, 3), dtype=np.uint8)
    for i in range(n):
        u = draws[i]
        base = images[i]
        if u[0] < 0.5:
            operate_randomly(images[i], codes, severity, u[5:8], buffers[0])
            base = buffers[0]
        top = int(u[3] * (pictures.shape[1] - height + 1))
        left = int(u[4] * (pictures.shape[2] - width + 1))
        picture = pictures[int(u[2] * pictures.shape[0])][top : top + height, left : left + width]
        begin, end = 0, least + int(u[1] * (most - least + 1))
        if published:
            begin = int(u[1] * most)
            end = begin + 1
        for k in range(begin, end):
            r = u[8 + 8 * k : 16 + 8 * k]
            partner = picture
            if r[0] < 0.5:
                operate_randomly(images[i], codes, severity, r[1:4], buffers[1])
                partner = buffers[1]
            if r[5] < 0.5:
                a, b = r[6] ** (1.0 / beta), 1.0 - r[7] ** (1.0 / beta)
            else:
                a, b = 2.0 - r[6] ** (1.0 / beta), r[7] ** (1.0 / beta) - 1.0
            _mix(base, k == begin, partner, r[4] >= 0.5, a, b, out[i])
        if end == begin:
            for y in range(height):
                for x in range(width):
                    for c in range(3):
                        out[i, y, x, c] = np.float32(base[y, x, c]) / np.float32(255)
