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
    (``known``) and correct predictions (``counted``) in it; and the levels themselves, if there is room for them. An
    OOD sample counts ``weight``.
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
