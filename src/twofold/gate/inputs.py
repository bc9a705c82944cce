"""Prepare what a gate works on: validation data, fitted scores, and both confidences of outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold._checks import Array, ArrayLike
from twofold._math import log_odds
from twofold.errors import InvalidInput, UnfitData
from twofold.gate.grouped import group_codes
from twofold.outputs import NAMES, Head, Outputs
from twofold.roles import OOD
from twofold.run import Run
from twofold.scores.chain import Chain
from twofold.scores.scoring import score_all, warn_of_lost_scale

BLOCK = 64  # rows whose logits stay in the cache while both scores read them


def validation_and_train(validation: Outputs | Run, train: Outputs | None) -> tuple[Outputs, Outputs | None]:
    """Return labelled validation rows, ID and OOD, and the training set, if there is one.

    Parameters
    ----------
    validation : Outputs or Run
        Labelled outputs (label -1: OOD), or a run, whose roles val and ood_val are used.
    train : Outputs or None
        The training set; by default that of the run, if it has the role train.

    Returns
    -------
    validation : Outputs
        Labelled rows, at least one of them ID.
    train : Outputs or None
        The training set.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type, the run has no role val, labels are missing, or only some of the validation
        sets have groups.
    UnfitData
        If no row is ID.
    """
    if train is not None and not isinstance(train, Outputs):
        raise InvalidInput(f"train must be Outputs, got {type(train).__name__}")
    if isinstance(validation, Run):
        run, inside = validation, validation.names("val")
        if not inside:
            raise InvalidInput("the run has no data set with the role val; add one, or pass labelled Outputs")
        if train is None and run.names("train"):
            train = joined(run, run.names("train"))
        names = [*inside, *run.names("ood_val")]
        lacking = [name for name in names if run[name].groups is None]
        if lacking and len(lacking) < len(names):
            raise InvalidInput(
                f"{lacking[0]} has no groups, and other validation sets have; give them to all or to none"
            )
        validation = joined(run, names)
    if not isinstance(validation, Outputs):
        raise InvalidInput(f"validation must be labelled Outputs or a Run, got {type(validation).__name__}")
    if validation.labels is None:
        raise InvalidInput(
            "validation needs labels (-1: OOD), and these outputs have none; pass labels= to Outputs(...)"
        )
    if not validation.is_id.any():
        raise UnfitData("validation has the label -1 everywhere; a gate needs at least one ID sample")
    return validation, train


def group_rows(rows: Outputs, groups: ArrayLike | None) -> npt.NDArray[np.int64] | None:
    """Number the groups of validation rows.

    Parameters
    ----------
    rows : Outputs
        Validation rows.
    groups : array-like of shape (N,) or None
        Group of each row, integers or strings; by default the ``groups`` of the outputs.

    Returns
    -------
    ndarray of shape (N,) or None
        Groups as numbers from 0, in the order in which they first appear; None if there are none.

    Raises
    ------
    InvalidInput
        If ``groups`` does not have one integer or string per row.

    Examples
    --------
    >>> group_rows(Outputs(np.eye(3)), ["b", "a", "b"])
    array([0, 1, 0])
    """
    if groups is not None:
        rows = rows.replace(groups=groups)
    return None if rows.groups is None else group_codes(rows.groups)


def count_copies(rows: Outputs, groups: npt.NDArray[np.int64] | None) -> int:
    """Count the rows that are exact copies of an earlier row, of another group if there are groups.

    Copies have all arrays and the label in common; ids and predictions are not compared.

    Parameters
    ----------
    rows : Outputs
        The rows.
    groups : ndarray of shape (N,) or None
        Group of each row, as numbers; copies within a group are not counted.

    Returns
    -------
    int
        Number of copies.

    Examples
    --------
    >>> count_copies(Outputs([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), None)
    1
    """
    arrays = {name: a for name, a in rows.flat().items() if name not in (*NAMES, "predictions")}
    alike = _equal_rows(arrays.pop("logits"))
    for array in arrays.values():
        counts = np.bincount(alike)
        several = np.flatnonzero(counts[alike] > 1)
        if not len(several):
            return 0
        finer = _equal_rows(array[several])
        pairs = np.column_stack([alike[several], finer])
        alike = np.arange(len(alike)) + len(alike)  # rows that equal no other
        alike[several] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        alike = np.unique(alike, return_inverse=True)[1]
    if groups is not None:
        alike = np.unique(np.column_stack([alike, groups]), axis=0)[:, 0]
    return len(alike) - len(np.unique(alike))


def _equal_rows(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Number the distinct rows of an array, by their bytes."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    whole = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize)))[:, 0]
    return np.unique(whole, return_inverse=True)[1].astype(np.int64)


def joined(run: Run, names: Sequence[str]) -> Outputs:
    """Concatenate data sets of a run, keeping the fields that all of them have; labels of OOD roles become -1.

    Parameters
    ----------
    run : Run
        The run.
    names : sequence of str
        Names of data sets.

    Returns
    -------
    Outputs
        All rows, without ids.

    Raises
    ------
    InvalidInput
        If the sets cannot be stacked, for example because features differ in width.
    """
    parts = [run[name] for name in names]
    for i, name in enumerate(names):
        if run.roles[name] in OOD:
            parts[i] = parts[i].replace(labels=np.full(len(parts[i]), -1))
    return Outputs.concat(alike(parts))


def alike(parts: list[Outputs]) -> list[Outputs]:
    """Reduce the parts to the fields that all of them have, so that they can be concatenated.

    Parameters
    ----------
    parts : list of Outputs
        Outputs of one model.

    Returns
    -------
    list of Outputs
        The parts without ids, and without features, layers, learned confidences, passes and groups that some part
        lacks. Passes that were averaged over different numbers are dropped too.

    Examples
    --------
    >>> alike([Outputs(np.eye(2), features=np.eye(2)), Outputs(np.eye(2))])
    [Outputs(2 rows, 2 classes), Outputs(2 rows, 2 classes)]
    """
    keys = set.intersection(*(set(part.flat()) for part in parts))
    means = {part.pass_count for part in parts}
    made = []
    for part in parts:
        changes: dict[str, Any] = {"ids": None}
        for group in ("layers", "learned"):
            changes[group] = {k: a for k, a in getattr(part, group).items() if f"{group}/{k}" in keys}
        for name in ("features", "groups"):
            if name not in keys:
                changes[name] = None
        if len(means) > 1 or ("passes" not in keys and "passes.mean_prob" not in keys):
            changes["passes"] = None
        made.append(part.replace(**changes))
    return made


def fitted(chain: Chain, train: Outputs | None, part: Outputs) -> Chain:
    """Return the chain, fitted if it was not.

    Parameters
    ----------
    chain : Chain
        The chain; one that is ready is returned as it is.
    train : Outputs or None
        The training set.
    part : Outputs
        Labelled validation rows: its ID rows serve as val, its OOD rows as ood_val.

    Returns
    -------
    Chain
        A chain that can score.

    Raises
    ------
    InvalidInput
        If the chain needs fitting and ``train`` is None, or the data do not suit it.
    """
    if chain.ready:
        return chain
    if train is None:
        raise InvalidInput(f"{chain.spec} learns from a training set; pass train=, or a fitted chain")
    outside = None if part.is_id.all() else part[np.flatnonzero(~part.is_id)]
    inside = part[np.flatnonzero(part.is_id)] if part.is_id.any() else None
    return chain.fit(train, val=inside, ood_val=outside)


def judged(chain: Chain, outputs: Outputs) -> Outputs:
    """Return the outputs with the predictions that the ID score judges.

    Parameters
    ----------
    chain : Chain
        The ID score.
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    Outputs
        The same outputs; for a score of several passes their predictions are the argmax of the mean probabilities.

    Raises
    ------
    InvalidInput
        If the score judges passes, and these outputs have none.
    """
    return outputs.averaged() if chain.judges == "passes" else outputs


def confidences(first: Chain, second: Chain | None, outputs: Outputs) -> tuple[Array, Any]:
    """Compute both confidences; msp and energy together need one exponential per logit.

    Parameters
    ----------
    first : Chain
        The ID score.
    second : Chain or None
        The OOD score.
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    conf_id : ndarray of shape (N,)
        Confidences of the ID score.
    conf_ood : ndarray of shape (N,) or None
        Confidences of the OOD score; None without one.

    Raises
    ------
    InvalidInput
        If the outputs lack an array that a score reads, or a confidence is NaN.

    Examples
    --------
    >>> from twofold.scores.chain import scorer
    >>> conf_id, conf_ood = confidences(scorer("msp"), scorer("energy"), Outputs([[2.0, 1.0, 1.0]]))
    >>> conf_id.round(4), conf_ood.round(4)
    (array([0.3069]), array([2.5514]))
    """
    if second is None:
        return score_all([first], outputs)[0], None
    if (first.closed_form, second.closed_form) == ("log_odds", "log_sum_exp"):
        warn_of_lost_scale([second], outputs)
        return _msp_and_energy(outputs)
    conf_id, conf_ood = score_all([first, second], outputs)
    return conf_id, conf_ood


def _msp_and_energy(outputs: Outputs) -> tuple[Array, Array]:
    n, chosen = len(outputs), outputs.predictions
    odds, energy = np.empty(n), np.empty(n)
    work, places = np.empty((BLOCK, outputs.classes)), np.arange(BLOCK)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        block, z = outputs.logits[rows], work[: rows.stop - start]
        top = block.max(axis=1).astype(np.float64)
        np.subtract(block, top[:, None], out=z)
        at = places[: len(z)], chosen[rows]
        own = z[at]
        z[at] = -np.inf
        others = np.exp(z, out=z).sum(axis=1)
        lost = others < 1e-250  # below this, digits are lost to underflow
        others[lost] = 1.0
        odds[rows] = own - np.log(others)
        others[lost] = 0.0
        energy[rows] = top + np.log(np.exp(own) + others)
        if lost.any():
            odds[start + np.flatnonzero(lost)] = log_odds(block[lost], chosen[rows][lost])
    return odds, energy


def widths(chains: list[Chain | None], outputs: Outputs) -> dict[str, int]:
    """Return the number of columns of the features and layers that the scores read.

    Parameters
    ----------
    chains : list of Chain or None
        Both scores; None for an absent one.
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    dict of str to int
        Columns by name, such as ``features`` or ``layers/NAME``.
    """
    needed = {name for chain in chains if chain is not None for name in chain.fields_read}
    arrays = outputs.flat()
    return {
        name: int(array.shape[1])
        for name, array in arrays.items()
        if array.ndim == 2 and name.split("/")[0] in needed & {"features", "layers"}
    }


def head_print(chains: list[Chain | None], head: Head | None) -> str | None:
    """Compute the SHA-256 of the last layer, if a score reads features or head.

    Parameters
    ----------
    chains : list of Chain or None
        Both scores; None for an absent one.
    head : Head or None
        The last linear layer.

    Returns
    -------
    str or None
        Hexadecimal digest; None without a head, or if no score reads it.
    """
    needed = {name for chain in chains if chain is not None for name in chain.fields_read}
    if head is None or not needed & {"head", "features"}:
        return None
    return _digest(head.weight, head.bias)


def fingerprint(outputs: Outputs) -> str:
    """Compute the SHA-256 of logits and labels, with their dtypes and shapes.

    Parameters
    ----------
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    str
        Hexadecimal digest.
    """
    arrays = [outputs.logits] + ([] if outputs.labels is None else [outputs.labels])
    return _digest(*arrays)


def _digest(*arrays: npt.NDArray[Any]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(array), 4096):
            found.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return found.hexdigest()
