"""Compiled kernels. This module imports numba, so import it inside the function that needs it.

Nothing is compiled at import; each kernel compiles on its first call and is cached on disk afterwards.
All release the GIL and none starts its own threads: callers spread blocks over ``concurrent.futures``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

kernel = njit(nogil=True, cache=True, error_model="numpy")  # indices are unsigned where loops are hot: no wrap-around

RIGHT, WRONG, OUTSIDE = 0, 1, 3  # kinds of sample: correct ID, wrong ID, OOD; bit 0 is failure, bit 1 is OOD
LAST = 4  # tag of the last sample of a tie group
FEW = 8  # samples a line, on average, that are compared one by one rather than by bisection
NARROW = 16  # lines of a part of a cell whose pairs are all tried; 8 to 32 are equally good
UNCLEAR = 128  # in the table of Poisson counts, all below 16: these bits alone do not decide


@kernel
def split(conf, right, inside, rights, wrongs, outsides):  # type: ignore[no-untyped-def]
    """Copy confidences of right, wrong and OOD samples into three arrays; ``inside`` may be empty (all are ID).

    Every value is written to each array and kept by moving on in one of them: no branch to mispredict.
    """
    i = j = k = 0
    if inside.size == 0:
        for t in range(conf.size):
            rights[i] = conf[t]
            wrongs[j] = conf[t]
            i += right[t]
            j += 1 - right[t]
        return i, j, k
    for t in range(conf.size):
        rights[i] = conf[t]
        wrongs[j] = conf[t]
        outsides[k] = conf[t]
        i += right[t]
        j += inside[t] & (1 - right[t])
        k += 1 - inside[t]
    return i, j, k


@kernel
def merge_levels(right, wrong, outside, weight, level, accepted, loss, known, counted):  # type: ignore[no-untyped-def]
    """Merge three ascending arrays into tie groups, most confident first; returns the number of groups.

    Fills, cumulative at each level, the accepted weight, its loss and, where there are OOD samples, the ID samples
    (``known``) and right answers (``counted``) in it; and the levels themselves, if there is room for them. An OOD
    sample counts ``weight``.
    """
    i, j, k = right.size - 1, wrong.size - 1, outside.size - 1
    r = q = o = g = 0
    before = 0.0
    while i >= 0 or j >= 0 or k >= 0:
        top = -np.inf
        if i >= 0:
            top = right[i]
        if j >= 0 and wrong[j] > top:
            top = wrong[j]
        if k >= 0 and outside[k] > top:
            top = outside[k]
        while i >= 0 and right[i] == top:
            i -= 1
            r += 1
        while j >= 0 and wrong[j] == top:
            j -= 1
            q += 1
        while k >= 0 and outside[k] == top:
            k -= 1
            o += 1
        if level.size:
            level[g] = top
        accepted[g] = r + q + weight * o
        loss[g] = q + weight * o
        if known.size:
            known[g] = r + q
            counted[g] = r
        if accepted[g] > before:  # not a group of weightless OOD samples
            before = accepted[g]
            g += 1
    return g


@kernel
def cumulate(weights, order, tags, weight, accepted, loss, known, counted):  # type: ignore[no-untyped-def]
    """Compute what ``merge_levels`` gives, without levels, when row i is present ``weights[i]`` times.

    ``order`` holds the rows from most to least confident, ``tags`` their kind, plus LAST where a tie group ends.
    Groups without weight are overwritten by the next. Kinds are added up without branches: a resample is random.
    """
    n = f = o = g = 0
    before = 0.0
    for t in range(order.size):
        w = np.int64(weights[order[t]])
        n += w
        f += w * (tags[t] & 1)
        o += w * ((tags[t] >> 1) & 1)
        if tags[t] & LAST:
            accepted[g] = n - o + weight * o
            loss[g] = f - o + weight * o
            if known.size:
                known[g] = n - o
                counted[g] = n - f
            g += accepted[g] > before
            before = n - o + weight * o
    return g


@kernel
def mean_risk(weights, order, tags, inverse, only_id):  # type: ignore[no-untyped-def]
    """Compute the mean selective risk of a resample (the empirical AURC) over all or over ID samples of unit weight.

    One pass of what ``cumulate`` and ``ratio_sum`` do; ``inverse[n]`` is 1/n, and looking it up beats dividing.
    """
    n = f = counted = before = 0
    area = 0.0
    for t in range(order.size):
        w = np.int64(weights[order[t]])
        n += w
        f += w * (tags[t] & 1)
        if only_id:
            counted += w * (1 - ((tags[t] >> 1) & 1))
        else:
            counted = n
        if tags[t] & LAST:
            area += ((counted - before) * f) * inverse[np.uint64(n)]
            before = counted
    return area / counted if counted else np.nan


@kernel
def ratio_sum(steps, above, below):  # type: ignore[no-untyped-def]
    """Sum over t of (steps[t] - steps[t-1]) * above[t] / below[t], with steps[-1] = 0."""
    total = last = 0.0
    for t in range(steps.size):
        total += (steps[t] - last) * (above[t] / below[t])
        last = steps[t]
    return total


@kernel
def ratio_sum_upward(steps, below):  # type: ignore[no-untyped-def]
    """Compute ``ratio_sum(steps, steps, below)`` of the same samples taken from the other end."""
    total = steps_before = below_before = 0.0
    last = steps.size - 1
    for t in range(steps.size):
        rest = steps[last] - steps_before
        total += (steps[t] - steps_before) * (rest / (below[last] - below_before))
        steps_before, below_before = steps[t], below[t]
    return total


@kernel
def trapezoid(x, y):  # type: ignore[no-untyped-def]
    """Compute the area under y over x by trapezoids, from the origin."""
    total = x_before = y_before = 0.0
    for t in range(x.size):
        total += (x[t] - x_before) * (y[t] + y_before)
        x_before, y_before = x[t], y[t]
    return total / 2.0


@kernel
def mix(state):  # type: ignore[no-untyped-def]
    """Apply the output function of splitmix64, a counter-based generator: number i of a key is mix(key + i * STEP)."""
    z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def resample(key, members, starts, poisson, table, weights):  # type: ignore[no-untyped-def]
    """Count how often each row is drawn when every stratum is drawn with replacement to its own size.

    ``weights`` has room for the rows and up to three more, which are of no meaning.

    Independent Poisson(1) counts are a resample of random size; adding or removing single draws at random makes the
    size exact, and leaves an exact multinomial. ``table`` has the count by 12 random bits; where these do not decide
    it, 20 more do, by ``poisson``, the distribution function times 2^32. Rows of stratum s are
    ``members[starts[s]:starts[s+1]]``. The draw depends on ``key`` alone, so it is the same for every metric and on any
    number of threads.
    """
    step, half, low = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), np.uint64(0xFFFFFFFF)
    state = np.uint64(key)
    for first in range(0, weights.size, 4):
        state += step
        z = mix(state)
        unclear = np.uint8(0)
        for lane in range(4):
            weights[first + lane] = table[(z >> np.uint64(16 * lane)) & np.uint64(0xFFF)]
            unclear |= weights[first + lane]
        if unclear >= UNCLEAR:
            for lane in range(4):
                if weights[first + lane] >= UNCLEAR:
                    state += step
                    u = ((z >> np.uint64(16 * lane)) & np.uint64(0xFFF)) << np.uint64(20) | mix(state) >> np.uint64(44)
                    count = 0
                    while count < poisson.size and u >= poisson[count]:
                        count += 1
                    weights[first + lane] = count
    for s in range(starts.size - 1):
        size = np.uint64(starts[s + 1] - starts[s])
        drawn = 0
        if starts.size == 2:
            for i in range(members.size):
                drawn += weights[i]
        else:
            for i in range(starts[s], starts[s + 1]):
                drawn += weights[members[i]]
        excess = drawn - np.int64(size)
        while excess:
            state += step
            z = mix(state)
            row = members[starts[s] + np.int64(((z & low) * size) >> half)]
            if excess < 0:
                weights[row] += 1
                excess += 1
            elif z >> np.uint64(60) < np.uint64(weights[row]):  # weights are below 16 here
                weights[row] -= 1
                excess -= 1


@kernel
def mean_risks(keys, members, starts, poisson, table, order, tags, inverse, only_id, weights, out):  # type: ignore[no-untyped-def]
    """Compute ``mean_risk`` of the resample of every key, without returning to Python in between."""
    for i in range(keys.size):
        resample(keys[i], members, starts, poisson, table, weights)
        out[i] = mean_risk(weights, order, tags, inverse, only_id)


@kernel
def put(tree, leaf, kind, count):  # type: ignore[no-untyped-def]
    """Add samples to a leaf of ``best_pair``'s tree, whose best prefix is itself."""
    if kind == OUTSIDE:
        tree[leaf, 2] += count
        tree[leaf, 5] += count
    else:
        tree[leaf, 1] += count
        tree[leaf, 4] += count
        if kind == RIGHT:
            tree[leaf, 0] += count
            tree[leaf, 3] += count


@kernel
def join(tree, node, weight, right, total):  # type: ignore[no-untyped-def]
    """Compute counts and best prefix of a node from its children: the left one's, or all of it and the right one's."""
    a, b = 2 * node, 2 * node + 1
    r = tree[a, 0] + tree[b, 3]
    k = tree[a, 1] + tree[b, 4]
    o = tree[a, 2] + tree[b, 5]
    here = k + weight * o
    there = tree[a, 4] + weight * tree[a, 5]
    gain = total * (r - tree[a, 3]) - right * (here - there)
    for f in range(3):
        tree[node, f] = tree[a, f] + tree[b, f]
    if gain > 0 or (gain == 0 and here < there):
        tree[node, 3], tree[node, 4], tree[node, 5], tree[node, 6] = r, k, o, tree[b, 6]
    else:
        for f in range(3, 7):
            tree[node, f] = tree[a, f]


@kernel
def best_pair(starts, columns, kinds, counts, first, inside, weight, right, total, tree):  # type: ignore[no-untyped-def]
    """Compute the exact DS-F1 by Dinkelbach's iteration.

    Samples come sorted by row (level on the OOD axis, ``starts[r]`` to ``starts[r+1]``) with their column (level
    on the ID axis), kind and multiplicity; ``inside`` is the number of ID samples, ``weight`` that of one OOD sample,
    and ``right / total`` a ratio some pair attains. Each pass maximises ``total * TA - right * accepted`` over all
    pairs from row ``first`` on: rows are added one by one to ``tree``, over columns, whose nodes hold the counts of
    their span (right, ID, OOD) and of the best prefix of it (right, ID, OOD, last column). Counts are integers, so
    without ``weight`` all comparisons are exact. Returns TA, accepted ID and OOD samples, column and row of that pair.
    """
    size = tree.shape[0] // 2
    best_r = best_k = best_o = 0
    best_column = best_row = -1
    while True:
        for leaf in range(size, 2 * size):
            for f in range(6):
                tree[leaf, f] = 0
            tree[leaf, 6] = leaf - size
        for s in range(starts[first]):
            put(tree, size + columns[s], kinds[s], counts[s])
        for node in range(size - 1, 0, -1):
            join(tree, node, weight, right, total)
        top, fewest = -np.inf, np.inf
        found_r = found_k = found_o = found_row = 0
        found_column = -1
        for row in range(first, starts.size - 1):
            for s in range(starts[row], starts[row + 1]):
                if counts[s] == 0:
                    continue
                node = size + columns[s]
                put(tree, node, kinds[s], counts[s])
                while node > 1:
                    node //= 2
                    join(tree, node, weight, right, total)
            accepted = tree[1, 4] + weight * tree[1, 5]
            value = total * tree[1, 3] - right * accepted
            if (
                value > top
                or (value == top and accepted < fewest)
                or (value == top and accepted == fewest and tree[1, 6] < found_column)
            ):
                top, fewest = value, accepted
                found_r, found_k, found_o = tree[1, 3], tree[1, 4], tree[1, 5]
                found_column, found_row = tree[1, 6], row
        gain = found_r * total - right * (fewest + inside)
        if gain >= 0 or best_row < 0:
            best_r, best_k, best_o = found_r, found_k, found_o
            best_column, best_row = found_column, found_row
        if gain <= 0:
            return best_r, best_k, best_o, best_column, best_row
        right = float(found_r)
        total = fewest + inside


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


@kernel
def assign_levels(conf, at, order, level, thresholds):  # type: ignore[no-untyped-def]
    """Give each sample the first of the distinct, decreasing values of ``conf[at]`` that it reaches.

    ``order`` sorts ``conf``. The values are written to ``thresholds``, and their number is returned.
    """
    count = 0
    is_threshold = False
    value = np.inf
    for place in range(order.size - 1, -1, -1):
        sample = order[place]
        if conf[sample] != value:
            count += is_threshold
            is_threshold = False
            value = conf[sample]
        level[sample] = count
        if at[sample]:
            thresholds[count] = value
            is_threshold = True
    return count + is_threshold


@kernel
def order_samples(rows, places, starts, by_place, order):  # type: ignore[no-untyped-def]
    """Sort samples by row, then place, by counting.

    ``starts`` and ``by_place`` are zeros, one more than there are rows and places. ``starts`` becomes the first
    position of each row in ``order``, and the end of the last.
    """
    for s in range(rows.size):
        starts[rows[s] + 1] += 1
        by_place[places[s] + 1] += 1
    for row in range(1, starts.size):
        starts[row] += starts[row - 1]
    for place in range(1, by_place.size):
        by_place[place] += by_place[place - 1]
    placed = np.empty_like(order)
    for s in range(rows.size):
        placed[by_place[places[s]]] = s
        by_place[places[s]] += 1
    free = starts[:-1].copy()
    for s in placed:
        order[free[rows[s]]] = s
        free[rows[s]] += 1


@kernel
def double_histogram(rows, columns, kinds, weights, table, least):  # type: ignore[no-untyped-def]
    """Compute best F1 and mean least risk over the ID coverages, of all pairs of thresholds of a grid.

    Sample i lies in cell (rows[i], columns[i]) and is accepted by the pairs at or below it on both axes; ``table``
    (3, R, C) of integers and ``least`` (ID samples + 1) are scratch.
    """
    table[:] = 0
    inside = 0
    for i in range(rows.size):
        w = weights[i]
        kind = kinds[i]
        r, c = rows[i], columns[i]
        table[2, r, c] += w
        if kind != OUTSIDE:
            table[1, r, c] += w
            inside += w
            if kind == RIGHT:
                table[0, r, c] += w
    least[: inside + 1] = np.inf
    best = 0.0
    height, width = table.shape[1], table.shape[2]
    for r in range(height - 1, -1, -1):
        right = known = total = 0
        for c in range(width - 1, -1, -1):
            right += table[0, r, c]
            known += table[1, r, c]
            total += table[2, r, c]
            if r + 1 < height:
                table[0, r, c] = right + table[0, r + 1, c]
                table[1, r, c] = known + table[1, r + 1, c]
                table[2, r, c] = total + table[2, r + 1, c]
            else:
                table[0, r, c], table[1, r, c], table[2, r, c] = right, known, total
            a, k, n = table[0, r, c], table[1, r, c], table[2, r, c]
            if k > 0:
                least[k] = min(least[k], 1.0 - a / n)
                best = max(best, 2.0 * a / (n + inside))
    area, risk = 0.0, 1.0
    for k in range(inside, 0, -1):  # a coverage that no pair attains takes the next one above
        if least[k] < np.inf:
            risk = least[k]
        area += risk
    return best, area / max(inside, 1)


@kernel
def keep_largest(products, scale, shift, first, values, places):  # type: ignore[no-untyped-def]
    """Merge ``scale[c] * products[r, c] + shift[c]`` into the min-heap of each row; ``first`` is the place of column 0.

    Empty ``scale`` and ``shift`` mean 1 and 0. Columns are looked at in runs of 64: one that holds nothing above the
    least kept value is passed over.
    """
    columns, k, plain = products.shape[1], values.shape[1], scale.size == 0
    for r in range(products.shape[0]):
        heap, place, row = values[r], places[r], products[r]
        for start in range(0, columns, 64):
            run = row[start : start + 64]
            least = heap[0]
            above = 0
            if plain:
                for c in range(np.uint32(run.size)):
                    above += run[c] > least
            else:
                for c in range(np.uint32(run.size)):
                    above += scale[start + c] * run[c] + shift[start + c] > least
            if above == 0:
                continue
            for c in range(run.size):
                value = run[c] if plain else scale[start + c] * run[c] + shift[start + c]
                if value <= heap[0]:
                    continue
                i = 0
                while True:  # sift down from the top, which is dropped
                    child = 2 * i + 1
                    if child >= k:
                        break
                    if child + 1 < k and heap[child + 1] < heap[child]:
                        child += 1
                    if heap[child] >= value:
                        break
                    heap[i], place[i] = heap[child], place[child]
                    i = child
                heap[i], place[i] = value, first + start + c


@kernel
def drop(x, keys, limit, scale, result):  # type: ignore[no-untyped-def]
    """Set entries to zero where their 16 random bits are below the limit, and scale the others.

    The bits of four entries are a SplitMix64 hash of the row's key and their position.
    """
    rows, entries = x.shape
    words = np.empty((entries + 3) // 4, np.uint64)
    bits = words.view(np.uint16)
    stride = np.uint64(0x9E3779B97F4A7C15)
    for r in range(rows):
        key = keys[r]
        for w in range(words.size):
            z = key + np.uint64(w + 1) * stride
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            words[w] = z ^ (z >> np.uint64(31))
        before = x[r]
        after = result[r]
        for i in range(entries):
            after[i] = before[i] * scale if bits[i] >= limit else np.float32(0.0)
