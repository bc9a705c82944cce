"""Compiled search for the least risk at every ID coverage over all pairs of thresholds, which exact DS-AURC averages.

Samples lie on a plane, a row for each level on the OOD axis and a column for each on the ID axis. A pair of thresholds
is a corner of it and accepts what lies at or before it on both axes. ``seed_envelope`` tries some corners.
``refine_envelope`` cuts the plane into ever smaller cells and drops those whose bound shows that no corner in them
improves any coverage. This module imports numba, so import it inside the function that needs it.
"""

from __future__ import annotations

import numpy as np

from twofold._kernels import OUTSIDE, RIGHT, kernel

FEW = 8  # samples a line, on average, that are compared one by one rather than by bisection
NARROW = 16  # lines of a part of a cell whose pairs are all tried; 8 to 32 are equally good


@kernel
def seed_envelope(starts, columns, kinds, counts, levels, weight, lines, right, known, outside, best, arg):  # type: ignore[no-untyped-def]
    """Give every ID coverage level a good first value: walk all columns of some evenly spaced rows.

    ``right``, ``known`` and ``outside`` are zeros, one for each column.
    """
    rows = starts.size - 1
    line = 1
    for row in range(rows):
        for s in range(starts[row], starts[row + 1]):
            if kinds[s] == OUTSIDE:
                outside[columns[s]] += counts[s]
            else:
                known[columns[s]] += counts[s]
                if kinds[s] == RIGHT:
                    right[columns[s]] += counts[s]
        if row + 1 < (rows * line) // lines:
            continue
        line += 1
        r = k = o = 0
        for c in range(levels):
            r += right[c]
            k += known[c]
            o += outside[c]
            if known[c] and r > best[k] * (k + weight * o):
                best[k] = r / (k + weight * o)
                arg[k, 0], arg[k, 1] = c, row


@kernel
def order_by_column(starts, columns, kinds, counts, column_starts, rows, row_sums, column_sums):  # type: ignore[no-untyped-def]
    """Sort samples by column, then row, and add up right, ID and OOD samples in both orders.

    Fills ``column_starts`` and ``rows`` like ``starts`` and ``columns``, and the sums before each sample, in both
    orders, in the columns of ``row_sums`` and ``column_sums``.
    """
    for s in range(columns.size):
        column_starts[columns[s] + 1] += 1
    for c in range(1, column_starts.size):
        column_starts[c] += column_starts[c - 1]
    free = column_starts[:-1].copy()
    for row in range(starts.size - 1):
        for s in range(starts[row], starts[row + 1]):
            place = free[columns[s]]
            free[columns[s]] += 1
            rows[place] = row
            right = counts[s] if kinds[s] == RIGHT else 0
            outside = counts[s] if kinds[s] == OUTSIDE else 0
            for sums, at in ((row_sums, s), (column_sums, place)):
                sums[at + 1, 0] = right
                sums[at + 1, 1] = counts[s] - outside
                sums[at + 1, 2] = outside
    for s in range(columns.size):
        for f in range(3):
            row_sums[s + 1, f] += row_sums[s, f]
            column_sums[s + 1, f] += column_sums[s, f]


@kernel
def first_at_least(values, low, high, limit):  # type: ignore[no-untyped-def]
    """Find the first place in ``values[low:high]``, which ascend, with a value of at least ``limit``."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def read_strip(starts, lines, other, sums, first, last, near, far, middle, profile, inner):  # type: ignore[no-untyped-def]
    """Add up what each line of a cell, a row or a column, accepts before the cell.

    Lines ``first`` to ``last`` of one axis are read; ``near`` to ``far`` are the lines of the cell on the other axis.
    ``profile[i]`` is set to the right, ID and OOD samples of lines ``first`` to ``first + i`` that lie before ``near``.
    ``inner`` receives those inside the cell and, in its last three places, those in its first quarter, which ends at
    ``first + middle`` and ``near + middle``.
    """
    inner[:] = 0
    begin, end = starts[first], starts[last]
    if end - begin > FEW * (last - first):
        read_long_lines(starts, other, sums, first, last, near, far, middle, profile, inner)
        return
    r = k = o = 0
    for s in range(begin, end):  # a line has few samples, so that a loop over each would mispredict its end
        before = np.int32(other[s] < near)
        r += before * (sums[s + 1, 0] - sums[s, 0])
        k += before * (sums[s + 1, 1] - sums[s, 1])
        o += before * (sums[s + 1, 2] - sums[s, 2])
        line = lines[s] - first
        profile[line, 0] = r
        profile[line, 1] = k
        profile[line, 2] = o
        if np.uint32(other[s] - near) < np.uint32(far - near):  # one comparison: two would be mispredicted
            early = line < middle and other[s] < near + middle
            for f in range(3):
                inner[f] += sums[s + 1, f] - sums[s, f]
                if early:
                    inner[3 + f] += sums[s + 1, f] - sums[s, f]


@kernel
def read_long_lines(starts, other, sums, first, last, near, far, middle, profile, inner):  # type: ignore[no-untyped-def]
    """Do the work of ``read_strip`` where lines have many samples, by bisection in each."""
    r = k = o = 0
    for line in range(first, last):
        start = starts[line]
        stop = starts[line + 1]
        inside = first_at_least(other, start, stop, near)
        r += sums[inside, 0] - sums[start, 0]
        k += sums[inside, 1] - sums[start, 1]
        o += sums[inside, 2] - sums[start, 2]
        profile[line - first, 0] = r
        profile[line - first, 1] = k
        profile[line - first, 2] = o
        if inside == stop or other[inside] >= far:
            continue
        beyond = first_at_least(other, inside, stop, far)
        for f in range(3):
            inner[f] += sums[beyond, f] - sums[inside, f]
        if line < first + middle:
            beyond = first_at_least(other, inside, stop, near + middle)
            for f in range(3):
                inner[3 + f] += sums[beyond, f] - sums[inside, f]


@kernel
def raise_edge(profile, lines, r, k, o, weight, best, arg, axis, first, other):  # type: ignore[no-untyped-def]
    """Raise ``best`` by the pairs along one edge of a cell; line ``other`` of the other axis is the edge."""
    for i in range(lines):
        known = k + profile[i, 1]
        accepted = known + weight * (o + profile[i, 2])
        if known > 0 and r + profile[i, 0] > best[known] * accepted:
            best[known] = (r + profile[i, 0]) / accepted
            arg[known, axis] = first + i
            arg[known, 1 - axis] = other


@kernel
def largest_gain(profile, first, last, price, slope):  # type: ignore[no-untyped-def]
    """Compute the largest of right samples - price * OOD samples - slope * ID samples in part of a strip.

    Samples are counted from line ``first`` on, of a strip whose profile counts them from its own first line.
    """
    largest = -np.inf
    for i in range(first, last):
        largest = max(largest, profile[i, 0] - price * profile[i, 2] - slope * profile[i, 1])
    if first:
        largest -= profile[first - 1, 0] - price * profile[first - 1, 2] - slope * profile[first - 1, 1]
    return largest


@kernel
def can_improve(across, left, end, down, top, bottom, inner_right, inner_known, r, k, o, weight, best):  # type: ignore[no-untyped-def]
    """Bound all pairs of a cell: whether one of them may exceed ``best`` at the number of ID samples it accepts.

    The cell has columns ``left`` to ``end`` and rows ``top`` to ``bottom`` of the strips ``across`` and ``down``.
    A pair of the cell accepts what the corner before the cell accepts, a prefix of both strips, and some samples inside
    the cell. With ``price`` at most ``weight * best``, its gain over the corner, right - price * OOD, is at most
    ``slope`` for each further ID sample plus the largest excess over that slope in either strip; samples inside the
    cell are counted at their best. This holds for every slope; that of what has to be exceeded makes it tight.
    """
    added = across[end - 1, 1] + down[bottom - 1, 1] + inner_known
    if left:
        added -= across[left - 1, 1]
    if top:
        added -= down[top - 1, 1]
    if added == 0:
        return False
    least = np.inf
    for known in range(k + 1, k + added + 1):
        least = min(least, best[known])
    if least < 0.0:
        return True  # a number of ID samples that no pair accepts so far
    price = weight * least
    low = best[k + 1] * (k + 1 + weight * o)
    high = best[k + added] * (k + added + weight * o)
    slope = (high - low) / max(added - 1, 1)
    most = r + largest_gain(across, left, end, price, slope) + largest_gain(down, top, bottom, price, slope)
    most += inner_right * max(0.0, 1.0 - slope) + (inner_known - inner_right) * max(0.0, -slope)
    for known in range(k + 1, k + added + 1):
        if most + slope * (known - k) > best[known] * (known + weight * o) * (1.0 + 4e-15):
            return True
    return False


@kernel
def scan_cell(starts, columns, kinds, counts, row_sums, left, end, top, bottom, across, r, k, o, weight, best, arg):  # type: ignore[no-untyped-def]
    """Raise ``best`` by every pair of a small cell; ``across`` is the profile of its columns, and is changed."""
    wide = end - left
    for row in range(top, bottom):
        place = first_at_least(columns, starts[row], starts[row + 1], left)
        added = row_sums[place, 1] - row_sums[starts[row], 1]
        lowest = 0 if added else wide  # columns left of the row's first ID sample repeat the row before
        r += row_sums[place, 0] - row_sums[starts[row], 0]
        k += added
        o += row_sums[place, 2] - row_sums[starts[row], 2]
        while place < starts[row + 1] and columns[place] < end:
            if kinds[place] != OUTSIDE and counts[place]:
                lowest = min(lowest, columns[place] - left)
            for c in range(columns[place] - left, wide):
                if kinds[place] == OUTSIDE:
                    across[c, 2] += counts[place]
                else:
                    across[c, 1] += counts[place]
                    if kinds[place] == RIGHT:
                        across[c, 0] += counts[place]
            place += 1
        for c in range(lowest, wide):
            known = k + across[c, 1]
            accepted = known + weight * (o + across[c, 2])
            if r + across[c, 0] > best[known] * accepted:
                best[known] = (r + across[c, 0]) / accepted
                arg[known, 0], arg[known, 1] = left + c, row


@kernel
def search_strips(across, wide, down, high, left, top, r, k, o, weight, best, arg, waiting):  # type: ignore[no-untyped-def]
    """Raise ``best`` by every pair of a cell without samples inside, whose pairs accept a prefix of either strip.

    A part of such a cell has part of its profiles, so that no sample is read again. Parts that may improve a level are
    cut into four until they are narrow. ``waiting`` has room for the columns and rows of those still to be searched.
    """
    waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3] = 0, wide, 0, high
    count = 1
    while count:
        count -= 1
        start, end, above, below = waiting[count, 0], waiting[count, 1], waiting[count, 2], waiting[count, 3]
        corner_r, corner_k, corner_o = r, k, o
        if start:
            corner_r += across[start - 1, 0]
            corner_k += across[start - 1, 1]
            corner_o += across[start - 1, 2]
        if above:
            corner_r += down[above - 1, 0]
            corner_k += down[above - 1, 1]
            corner_o += down[above - 1, 2]
        if not can_improve(across, start, end, down, above, below, 0, 0, corner_r, corner_k, corner_o, weight, best):
            continue
        if max(end - start, below - above) > NARROW:
            column, row = (start + end) // 2, (above + below) // 2
            for first, last in ((start, column), (column, end)):
                for upper, lower in ((above, row), (row, below)):
                    if first < last and upper < lower:
                        waiting[count, 0], waiting[count, 1] = first, last
                        waiting[count, 2], waiting[count, 3] = upper, lower
                        count += 1
            continue
        for row in range(above, below):
            if row and down[row, 1] == down[row - 1, 1]:
                continue  # the row before accepts the same ID samples and no more OOD samples
            for column in range(start, end):
                right = r + across[column, 0] + down[row, 0]
                known = k + across[column, 1] + down[row, 1]
                accepted = known + weight * (o + across[column, 2] + down[row, 2])
                if right > best[known] * accepted:
                    best[known] = right / accepted
                    arg[known, 0], arg[known, 1] = left + column, top + row


@kernel
def cut_cell(left, top, wide, high, half, across, down, inner, r, k, o, weight, best, children, count):  # type: ignore[no-untyped-def]
    """Add those quarters of a cell to ``children`` that may improve a level, and return the new ``count``."""
    for lower in range(2):
        for later in range(2):
            first, last = later * half, wide if later else min(half, wide)
            above, below = lower * half, high if lower else min(half, high)
            if first >= last or above >= below:
                continue
            child = children[count]
            child[0], child[1] = left + first, top + above
            child[2], child[3], child[4] = r, k, o
            for f in range(3):
                if later:
                    child[2 + f] += across[half - 1, f]
                if lower:
                    child[2 + f] += down[half - 1, f]
                if later and lower:
                    child[2 + f] += inner[3 + f]
            right, known = inner[0], inner[1]  # of the samples inside, those that pairs of the quarter may accept
            if later and lower:
                right, known = right - inner[3], known - inner[4]
            elif not later and not lower:
                right, known = inner[3], inner[4]
            count += can_improve(
                across, first, last, down, above, below, right, known, child[2], child[3], child[4], weight, best
            )
    return count


@kernel
def refine_envelope(by_row, by_column, kinds, counts, weight, cells, size, leaf, best, arg, children):  # type: ignore[no-untyped-def]
    """Raise ``best[k]``, the largest TA / accepted over pairs that accept exactly k ID samples, in cells of the plane.

    A cell is a square of ``size`` columns and rows: its first column and row, and the right, ID and OOD samples before
    both. The pairs along its first edges are tried. A cell without samples inside is searched to its end, one of
    ``leaf`` rows is scanned, and larger ones are cut into ``children``, whose number is returned; what improves no k by
    its bound is dropped. ``by_row`` and ``by_column`` are the samples in both orders: starts of lines, line, line of
    the other axis, and sums.
    """
    starts, row_lines, columns, row_sums = by_row
    column_starts, column_lines, rows, column_sums = by_column
    levels, height = column_starts.size - 1, starts.size - 1
    across = np.empty((size, 3), np.int32)
    down = np.empty((size, 3), np.int32)
    inner = np.empty(6, np.int64)
    unused = np.empty(6, np.int64)
    waiting = np.empty((128, 4), np.int64)  # three parts wait at each halving, of at most 31
    half = size // 2
    count = 0
    for i in range(cells.shape[0]):
        left, top, r, k, o = cells[i, 0], cells[i, 1], cells[i, 2], cells[i, 3], cells[i, 4]
        end, bottom = min(left + size, levels), min(top + size, height)
        wide, high = end - left, bottom - top
        read_strip(column_starts, column_lines, rows, column_sums, left, end, top, bottom, half, across, inner)
        read_strip(starts, row_lines, columns, row_sums, top, bottom, left, end, 0, down, unused)
        if top // size % 2:  # otherwise the cell that was cut has tried them
            raise_edge(across, wide, r, k, o, weight, best, arg, 0, left, top - 1)
        if left // size % 2:
            raise_edge(down, high, r, k, o, weight, best, arg, 1, top, left - 1)
        new_across, new_down = across[wide - 1, 1] + inner[1], down[high - 1, 1] + inner[1]
        if (left > 0 and new_across == 0) or (top > 0 and new_down == 0) or new_across + new_down == 0:
            continue  # the pairs on an edge accept the same ID samples and no more OOD samples
        if inner[1] + inner[2] == 0:
            search_strips(across, wide, down, high, left, top, r, k, o, weight, best, arg, waiting)
            continue
        if size <= leaf:
            if can_improve(across, 0, wide, down, 0, high, inner[0], inner[1], r, k, o, weight, best):
                scan_cell(
                    starts, columns, kinds, counts, row_sums, left, end, top, bottom, across, r, k, o, weight, best, arg
                )
            continue
        count = cut_cell(left, top, wide, high, half, across, down, inner, r, k, o, weight, best, children, count)
    return count


@kernel
def share_best(best, pair):  # type: ignore[no-untyped-def]
    """Give all searches the best ratio of each level, and its pair, that any of them found; of equals the first."""
    for known in range(best.shape[1]):
        first = 0
        for search in range(1, best.shape[0]):
            if best[search, known] > best[first, known]:
                first = search
        for search in range(best.shape[0]):
            best[search, known] = best[first, known]
            pair[search, known, 0] = pair[first, known, 0]
            pair[search, known, 1] = pair[first, known, 1]
