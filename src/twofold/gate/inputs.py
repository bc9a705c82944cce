"""Prepare what a gate works on: validation data, fitted scores, and both confidences of outputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, ArrayLike
from twofold._math import log_odds
from twofold.errors import InvalidInput, UnfitData
from twofold.gate.grouped import count_groups, group_codes
from twofold.metrics.operating_points import check_ood_share
from twofold.outputs import NAMES, AnyArray, Head, Outputs
from twofold.roles import OOD
from twofold.run import Run
from twofold.scores.chain import Chain
from twofold.scores.scoring import score_all, warn_of_lost_scale

BLOCK = 64  # rows whose logits stay in the cache while both scores read them


@dataclass(frozen=True, eq=False)
class ValidationData:
    """Hold the labelled rows on which a gate is fitted, and what else they need.

    Parameters
    ----------
    rows : Outputs
        Labelled rows, at least one of them ID.
    train : Outputs or None
        The training set.
    share : float or None
        OOD share expected in deployment; None for that of the rows.
    groups : ndarray of shape (N,) or None
        Groups of dependent rows, as numbers from 0; None where every row is independent.
    group_count : int or None
        Number of groups that the caller named, each row its own included; None without groups.
    copies : int
        Number of rows that are exact copies of others.
    """

    rows: Outputs
    train: Outputs | None
    share: float | None
    groups: npt.NDArray[np.int64] | None
    group_count: int | None
    copies: int


def prepare_validation(
    validation: Outputs | Run, train: Outputs | None, *, groups: ArrayLike | None, ood_share: float | None
) -> ValidationData:
    """Collect and check the rows on which a gate is fitted.

    Parameters
    ----------
    validation : Outputs or Run
        Labelled outputs (label -1: OOD), or a run, whose roles val and ood_val are used.
    train : Outputs or None
        The training set; by default that of the run, if it has the role train.
    groups : array-like of shape (N,) or None
        Group of each row; by default the ``groups`` of the outputs.
    ood_share : float or None
        OOD share expected in deployment.

    Returns
    -------
    ValidationData
        The rows, checked.

    Raises
    ------
    InvalidInput
        If an argument has the wrong type or value, the run has no role val, labels are missing, or only some of the
        validation sets have groups.
    UnfitData
        If no row is ID.
    """
    if train is not None and not isinstance(train, Outputs):
        raise InvalidInput(f"train must be Outputs, got {type(train).__name__}")
    if isinstance(validation, Run):
        run = validation
        validation = _validation_of_run(run)
        if train is None and run.names("train"):
            train = join_sets(run, run.names("train"))
    if not isinstance(validation, Outputs):
        raise InvalidInput(f"validation must be labelled Outputs or a Run, got {type(validation).__name__}")
    if validation.labels is None:
        raise InvalidInput(
            "validation needs labels (-1: OOD), and these outputs have none; pass labels= to Outputs(...)"
        )
    if not validation.is_id.any():
        raise UnfitData("validation has the label -1 everywhere; a gate needs at least one ID sample")
    codes = group_rows(validation, groups)
    group_count = count_groups(codes)
    share = check_ood_share(ood_share, validation.is_id)
    copies = count_copies(validation, codes)
    if group_count == len(validation):
        codes = None  # a group of one row is a row
    return ValidationData(validation, train, share, codes, group_count, copies)


CONF_ID, CONF_OOD = "conf_id", "conf_ood"  # names of plain confidences among the learned outputs


def prepare_confidences(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike | None,
    *,
    is_id: ArrayLike | None,
    groups: ArrayLike | None,
    ood_share: float | None,
) -> ValidationData:
    """Check plain confidences, and bring them to the form in which a gate is fitted.

    Parameters
    ----------
    correct : array-like of bool, shape (N,)
        Whether each answer is correct; False on every OOD row.
    conf_id : array-like of shape (N,)
        Confidence that the answer is correct.
    conf_ood : array-like of shape (N,) or None
        Confidence that the input is in-distribution.
    is_id : array-like of bool, shape (N,), or None
        True for ID rows; None where all are.
    groups : array-like of shape (N,) or None
        Group of each row.
    ood_share : float or None
        OOD share expected in deployment.

    Returns
    -------
    ValidationData
        The rows; equal ones are not counted as copies, because different inputs often have equal confidences.

    Raises
    ------
    InvalidInput
        If an array has the wrong shape or values, or an OOD row is correct.
    UnfitData
        If no row is ID.
    """
    rows = outputs_of_confidences(correct, conf_id, conf_ood, is_id=is_id, groups=groups)
    if not rows.is_id.any():
        raise UnfitData("is_id is False everywhere; a gate needs at least one ID sample")
    codes = group_rows(rows, None)
    group_count = count_groups(codes)
    share = check_ood_share(ood_share, rows.is_id)
    if group_count == len(rows):
        codes = None  # a group of one row is a row
    return ValidationData(rows, None, share, codes, group_count, copies=0)


def outputs_of_confidences(
    correct: ArrayLike,
    conf_id: ArrayLike,
    conf_ood: ArrayLike | None,
    *,
    is_id: ArrayLike | None,
    groups: ArrayLike | None,
) -> Outputs:
    """Hold plain confidences as outputs of a made-up model with the classes correct and wrong, which answers correct.

    Parameters
    ----------
    correct : array-like of bool, shape (N,)
        Whether each answer is correct.
    conf_id : array-like of shape (N,)
        Confidence that the answer is correct.
    conf_ood : array-like of shape (N,) or None
        Confidence that the input is in-distribution.
    is_id : array-like of bool, shape (N,), or None
        True for ID rows.
    groups : array-like of shape (N,) or None
        Group of each row.

    Returns
    -------
    Outputs
        The confidences are the learned outputs ``conf_id`` and ``conf_ood``.

    Raises
    ------
    InvalidInput
        If an array has the wrong shape or values, or an OOD row is correct.

    Examples
    --------
    >>> outputs = outputs_of_confidences([True, False], [0.9, 0.4], None, is_id=None, groups=None)
    >>> outputs.correct, outputs.learned["conf_id"]
    (array([ True, False]), array([0.9, 0.4]))
    """
    learned = {CONF_ID: _checks.confidence(conf_id, CONF_ID)}
    if conf_ood is not None:
        learned[CONF_OOD] = _checks.confidence(conf_ood, CONF_OOD)
    checked, inside = _checks.joint(correct, is_id, **learned)
    labels = np.where(checked, 0, 1)
    if inside is not None:
        labels[~inside] = -1
    return Outputs(np.zeros((len(labels), 2)), labels, learned=learned, groups=groups)


def fingerprint_confidences(rows: Outputs) -> str:
    """Compute the SHA-256 of plain confidences and of what is correct.

    Parameters
    ----------
    rows : Outputs
        What :func:`outputs_of_confidences` made.

    Returns
    -------
    str
        Hexadecimal digest.
    """
    arrays = [np.asarray(rows.learned[name]) for name in sorted(rows.learned)]
    return _digest(rows.correct, rows.is_id, *arrays)


def _validation_of_run(run: Run) -> Outputs:
    """Join the validation sets of a run, ID and OOD."""
    if not run.names("val"):
        raise InvalidInput("the run has no data set with the role val; add one, or pass labelled Outputs")
    names = [*run.names("val"), *run.names("ood_val")]
    lacking = [name for name in names if run[name].groups is None]
    if lacking and len(lacking) < len(names):
        raise InvalidInput(f"{lacking[0]} has no groups, and other validation sets have; give them to all or to none")
    return join_sets(run, names)


def group_rows(rows: Outputs, groups: ArrayLike | None) -> npt.NDArray[np.int64] | None:
    """Enumerate the groups of validation rows.

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
    if rows.groups is None:
        return None
    return group_codes(rows.groups)


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
    kinds = _number_rows(rows.logits)  # equal rows have the same number
    for name, array in rows.flat().items():
        if name in (*NAMES, "logits", "predictions"):
            continue
        repeated = np.flatnonzero(np.bincount(kinds)[kinds] > 1)
        if not len(repeated):
            return 0
        pairs = np.column_stack([kinds[repeated], _number_rows(array[repeated])])
        kinds = np.arange(len(kinds)) + len(kinds)  # rows that equal no other
        kinds[repeated] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
        kinds = np.unique(kinds, return_inverse=True)[1]
    if groups is not None:
        kinds = np.unique(np.column_stack([kinds, groups]), axis=0)[:, 0]
    return len(kinds) - len(np.unique(kinds))


def _number_rows(array: AnyArray) -> npt.NDArray[np.int64]:
    """Enumerate the distinct rows of an array, by their bytes."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    whole = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize)))[:, 0]
    return np.unique(whole, return_inverse=True)[1].astype(np.int64)


def join_sets(run: Run, names: Sequence[str]) -> Outputs:
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
    roles = run.roles
    parts = []
    for name in names:
        part = run[name]
        if roles[name] in OOD:
            part = part.replace(labels=np.full(len(part), -1))
        parts.append(part)
    return Outputs.concat(keep_common_fields(parts))


def keep_common_fields(parts: list[Outputs]) -> list[Outputs]:
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
    >>> keep_common_fields([Outputs(np.eye(2), features=np.eye(2)), Outputs(np.eye(2))])
    [Outputs(2 rows, 2 classes), Outputs(2 rows, 2 classes)]
    """
    common = set.intersection(*(set(part.flat()) for part in parts))
    pass_counts = {part.pass_count for part in parts}
    dropped: dict[str, None] = {"ids": None}
    for name in ("features", "groups"):
        if name not in common:
            dropped[name] = None
    if len(pass_counts) > 1 or common.isdisjoint({"passes", "passes.mean_prob"}):
        dropped["passes"] = None
    reduced = []
    for part in parts:
        layers = _select_common(part.layers, "layers", common)
        learned = _select_common(part.learned, "learned", common)
        reduced.append(part.replace(layers=layers, learned=learned, **dropped))
    return reduced


def _select_common(arrays: Mapping[str, AnyArray], group: str, common: set[str]) -> dict[str, AnyArray]:
    """Select the arrays of a group that all parts have."""
    return {name: array for name, array in arrays.items() if f"{group}/{name}" in common}


def fit_chain(chain: Chain, train: Outputs | None, part: Outputs) -> Chain:
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
    is_id = part.is_id
    val = ood_val = None
    if is_id.any():
        val = part[is_id]
    if not is_id.all():
        ood_val = part[~is_id]
    return chain.fit(train, val=val, ood_val=ood_val)


def confidences(first: Chain, second: Chain | None, outputs: Outputs) -> tuple[Array, Array | None]:
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
    """Compute the log-odds of the prediction and the log-sum-exp of the logits from the same exponentials."""
    n, predictions = len(outputs), outputs.predictions
    odds, energy = np.empty(n), np.empty(n)
    work = np.empty((BLOCK, outputs.classes))
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        logits, predicted = outputs.logits[rows], predictions[rows]
        shifted = work[: len(logits)]
        top = logits.max(axis=1).astype(np.float64)
        np.subtract(logits, top[:, None], out=shifted)
        at_prediction = np.arange(len(logits)), predicted
        own = shifted[at_prediction]
        shifted[at_prediction] = -np.inf
        others = np.exp(shifted, out=shifted).sum(axis=1)
        lost = others < 1e-250  # below this, digits are lost to underflow
        others[lost] = 1.0
        odds[rows] = own - np.log(others)
        others[lost] = 0.0
        energy[rows] = top + np.log(np.exp(own) + others)
        if lost.any():
            odds[start + np.flatnonzero(lost)] = log_odds(logits[lost], predicted[lost])
    return odds, energy


def measure_widths(chains: list[Chain | None], outputs: Outputs) -> dict[str, int]:
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
    read = _fields_read(chains)
    columns = {}
    if "features" in read and outputs.features is not None:
        columns["features"] = int(outputs.features.shape[1])
    if "layers" in read:
        for name, layer in outputs.layers.items():
            columns[f"layers/{name}"] = int(layer.shape[1])
    return columns


def _fields_read(chains: Sequence[Chain | None]) -> set[str]:
    """Return the fields of outputs that fitting or running the scores reads."""
    read: set[str] = set()
    for chain in chains:
        if chain is not None:
            read.update(chain.fields_read)
    return read


def head_fingerprint(chains: list[Chain | None], head: Head | None) -> str | None:
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
    if head is None or _fields_read(chains).isdisjoint({"head", "features"}):
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
    if outputs.labels is None:
        return _digest(outputs.logits)
    return _digest(outputs.logits, outputs.labels)


def _digest(*arrays: AnyArray) -> str:
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(array), 4096):
            hashed.update(np.ascontiguousarray(array[start : start + 4096]).tobytes())
    return hashed.hexdigest()
