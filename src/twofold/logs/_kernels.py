"""Compiled kernels of ordered streams and of counts in cells; import this inside the function that needs it."""

from __future__ import annotations

import numpy as np

from twofold._kernels import OUTSIDE, RIGHT, WRONG, kernel

RISK, RISK_ID, PRECISION, PRECISION_UNSAFE, PAIRS, GENERALISED, PAIRS_OOD = range(7)  # sums over levels
F1, RIGHT_KEPT, ID_KEPT, ID_TIED = 7, 8, 9, 10  # largest over levels
LOSS_TAKEN, OOD_TAKEN = 11, 12  # least over levels
SUMS = 13

IN_ORDER, TOO_MANY = -1, -2  # what sweep_rows returns; otherwise the first row that is out of order


@kernel
def clear(part):  # type: ignore[no-untyped-def]
    """Set the sums of no row."""
    part[:F1] = 0.0
    part[F1:LOSS_TAKEN] = -1.0
    part[LOSS_TAKEN:] = np.inf


@kernel
def merge(part, sums):  # type: ignore[no-untyped-def]
    """Add the sums of further levels."""
    for k in range(F1):
        sums[k] += part[k]
    for k in range(F1, LOSS_TAKEN):
        sums[k] = max(sums[k], part[k])
    for k in range(LOSS_TAKEN, SUMS):
        sums[k] = min(sums[k], part[k])


@kernel
def sweep_rows(conf, kind, following, rows, totals, weights, tpr, place, level, tie, seen, sums, cells):  # type: ignore[no-untyped-def]
    """Add ordered rows, most confident first in each segment, to the sums of their segments.

    ``rows[s]`` rows belong to segment s, ``totals[s]`` are the counts of the whole group and ``seen[s]`` those before.
    ``place`` (segment, rows left), ``level`` and ``tie`` hold where the last batch ended. Everything of the open
    segment is in local variables: the loop over rows writes to no array. ``following`` is the confidence after the last
    row, which may belong to the same tie.
    """
    s, left = place[0], place[1]
    top = level[0]
    tied_right, tied_wrong, tied_outside = tie[0], tie[1], tie[2]
    bins = cells.shape[1]
    right = wrong = outside = all_right = all_wrong = all_outside = 0
    weight = 1.0
    if s >= 0:
        right, wrong, outside = seen[s, 0], seen[s, 1], seen[s, 2]
        all_right, all_wrong, all_outside = totals[s, 0], totals[s, 1], totals[s, 2]
        weight = weights[s]
    all_known = float(all_right + all_wrong)
    all_loss = all_wrong + weight * all_outside
    loss = wrong + weight * outside
    accepted = right + loss
    part = np.empty(SUMS)
    clear(part)
    risk_sum = risk_id_sum = precision_sum = unsafe_sum = pair_sum = generalised_sum = ood_sum = 0.0
    f1 = right_kept = id_kept = id_tied = -1.0
    loss_taken = ood_taken = np.inf
    for t in range(conf.size):
        if left == 0:
            s += 1
            while s < rows.size and rows[s] == 0:
                s += 1
            if s >= rows.size:
                return TOO_MANY
            left = rows[s]
            right, wrong, outside = seen[s, 0], seen[s, 1], seen[s, 2]
            all_right, all_wrong, all_outside = totals[s, 0], totals[s, 1], totals[s, 2]
            weight = weights[s]
            all_known = float(all_right + all_wrong)
            all_loss = all_wrong + weight * all_outside
            loss = wrong + weight * outside
            accepted = right + loss
            risk_sum = risk_id_sum = precision_sum = unsafe_sum = pair_sum = generalised_sum = ood_sum = 0.0
            f1 = right_kept = id_kept = id_tied = -1.0
            loss_taken = ood_taken = np.inf
            top = conf[t]
        value = conf[t]
        if not value <= top:  # larger, or NaN
            return t
        top = value
        row_kind = kind[t]
        tied_right += row_kind == RIGHT
        tied_wrong += row_kind == WRONG
        tied_outside += row_kind == OUTSIDE
        left -= 1
        upcoming = conf[t + 1] if t + 1 < conf.size else following
        if left > 0 and upcoming == value:
            continue
        # one distinct confidence is complete
        if bins:
            cell = (right + wrong + outside) * bins // (all_right + all_wrong + all_outside)
            cells[s, cell, 0] += tied_right
            cells[s, cell, 1] += tied_wrong
            cells[s, cell, 2] += tied_outside
        known_before, right_before = right + wrong, right
        loss_before, accepted_before = loss, accepted
        right += tied_right
        wrong += tied_wrong
        outside += tied_outside
        loss = wrong + weight * outside
        accepted = right + loss
        known = right + wrong
        if accepted > accepted_before:  # not a level of weightless OOD samples
            risk = loss / accepted
            gained = loss - loss_before
            risk_sum += (accepted - accepted_before) * risk
            risk_id_sum += (known - known_before) * risk
            precision_sum += tied_right * (right / accepted)
            if gained > 0.0:
                unsafe_sum += gained * ((all_loss - loss_before) / (all_right + all_loss - accepted_before))
                pair_sum += gained * (right + right_before)
                generalised_sum += gained * (accepted + accepted_before)
            f1 = max(f1, 2.0 * right / (accepted + all_known))
            if (all_loss - loss) / all_loss >= tpr:
                right_kept = float(right)
            if loss < loss_taken and right / all_right >= tpr:
                loss_taken = loss
        if all_outside > 0:
            ood_sum += tied_outside * float(known + known_before)
            if (all_outside - outside) / all_outside >= tpr:
                id_kept = float(known)
            if outside < ood_taken and known / all_known >= tpr:
                ood_taken = float(outside)
        id_tied = max(id_tied, float(known - known_before))
        tied_right = tied_wrong = tied_outside = 0
        if left == 0:
            seen[s, 0], seen[s, 1], seen[s, 2] = right, wrong, outside
            part[RISK], part[RISK_ID], part[PRECISION] = risk_sum, risk_id_sum, precision_sum
            part[PRECISION_UNSAFE], part[PAIRS], part[GENERALISED] = unsafe_sum, pair_sum, generalised_sum
            part[PAIRS_OOD], part[F1], part[RIGHT_KEPT], part[ID_KEPT] = ood_sum, f1, right_kept, id_kept
            part[ID_TIED] = id_tied
            part[LOSS_TAKEN], part[OOD_TAKEN] = loss_taken, ood_taken
            merge(part, sums[s])
    if s >= 0 and left > 0:
        seen[s, 0], seen[s, 1], seen[s, 2] = right, wrong, outside
        part[RISK], part[RISK_ID], part[PRECISION] = risk_sum, risk_id_sum, precision_sum
        part[PRECISION_UNSAFE], part[PAIRS], part[GENERALISED] = unsafe_sum, pair_sum, generalised_sum
        part[PAIRS_OOD], part[F1], part[RIGHT_KEPT], part[ID_KEPT] = ood_sum, f1, right_kept, id_kept
        part[ID_TIED] = id_tied
        part[LOSS_TAKEN], part[OOD_TAKEN] = loss_taken, ood_taken
        merge(part, sums[s])
    place[0], place[1] = s, left
    level[0] = top
    tie[0], tie[1], tie[2] = tied_right, tied_wrong, tied_outside
    return IN_ORDER


@kernel
def make_guide(edges, low, scale, guide):  # type: ignore[no-untyped-def]
    """Fill ``guide[b]`` with the number of cuts below slice b of the range of the cuts, and its end with all cuts."""
    slices = guide.size - 1
    e = 0
    for b in range(slices):
        while e < edges.size and slice_of(edges[e], low, scale, slices) < b:
            e += 1
        guide[b] = e
    guide[slices] = edges.size


@kernel
def slice_of(value, low, scale, slices):  # type: ignore[no-untyped-def]
    """Return the slice of equal width that a value falls into; it never falls with rising values."""
    place = (value - low) * scale
    if not place > 0.0:
        return 0
    if place >= slices - 1:
        return slices - 1
    return int(place)


@kernel
def find_cell(value, edges, guide, low, scale):  # type: ignore[no-untyped-def]
    """Return the number of cuts at or below a value: the slice of the value narrows the search to few cuts."""
    b = slice_of(value, low, scale, guide.size - 1)
    return search_cuts(value, edges, np.uint64(guide[b]), np.uint64(guide[b + 1]))


@kernel
def search_cuts(value, edges, first, last):  # type: ignore[no-untyped-def]
    """Return the number of cuts at or below a value that lies between two of them."""
    while last - first > np.uint64(8):
        middle = (first + last) >> np.uint64(1)
        if edges[middle] <= value:
            first = middle + np.uint64(1)
        else:
            last = middle
    while first < last and edges[first] <= value:
        first += np.uint64(1)
    return first


@kernel
def count_cells(conf, kind, code, edges, guide, low, scale, cell, counts):  # type: ignore[no-untyped-def]
    """Count rows by group, cell and kind; returns the rows without a confidence, ranked lowest, and the invalid ones.

    ``code`` is the group of each row, or empty for one group. ``cell`` has room for some rows: each of the three steps
    runs over that many, so that the processor waits for many cells at once. Invalid rows have a negative kind, and are
    counted anywhere.
    """
    missing = invalid = 0
    top = np.float64(guide.size - 2)
    width = np.uint64(4 * (edges.size + 1))
    for start in range(0, conf.size, cell.size):
        rows = min(cell.size, conf.size - start)
        for t in range(rows):
            place = (conf[start + t] - low) * scale
            place = place if place > 0.0 else 0.0
            cell[t] = np.int64(min(place, top))
        for t in range(rows):
            b = np.uint64(cell[t])
            value = conf[start + t]
            if value != value:
                missing += 1
                value = -np.inf
            cell[t] = search_cuts(value, edges, np.uint64(guide[b]), np.uint64(guide[b + np.uint64(1)]))
        for t in range(rows):
            row_kind = kind[start + t]
            invalid += row_kind < 0
            target = np.uint64(4 * cell[t] + (row_kind & 3))
            if code.size:
                target += width * np.uint64(code[start + t])
            counts[target] += 1
    return missing, invalid


@kernel
def count_pairs(first, second, kind, edges1, guide1, low1, scale1, edges2, guide2, low2, scale2, counts, ends):  # type: ignore[no-untyped-def]
    """Count rows by the cells of two confidences; ``ends`` has the least and largest values of each axis."""
    for t in range(kind.size):
        i = find_cell(first[t], edges1, guide1, low1, scale1)
        j = find_cell(second[t], edges2, guide2, low2, scale2)
        counts[i, j, min(kind[t], 2)] += 1
        ends[0, i] = min(ends[0, i], first[t])
        ends[1, i] = max(ends[1, i], first[t])
        ends[2, j] = min(ends[2, j], second[t])
        ends[3, j] = max(ends[3, j], second[t])


@kernel
def sum_level_limits(level, failed, outside):  # type: ignore[no-untyped-def]
    """Sum min(1, F / (k + O)) over k = 1..level[0], at each k with a good corner (K, F, O) of those with K >= k.

    Corners come by falling K. Of two corners the one with the lower limit at the current level is kept.
    """
    total = 0.0
    best = 0
    for i in range(level.size):
        above = level[i]
        if above == 0.0:
            break
        if failed[i] * (above + outside[best]) <= failed[best] * (above + outside[i]):
            best = i
        below = level[i + 1] if i + 1 < level.size else 0.0
        if below == above:
            continue
        lowest = below + 1.0
        total += min(1.0, failed[best] / (lowest + outside[best]))
        rest = failed[best] * np.log(
            (above + outside[best]) / (lowest + outside[best])
        )  # at least the sum: an integral
        total += min(above - lowest, rest)
    return total
