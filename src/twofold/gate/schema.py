"""Check the content of the files of gates and monitors; anything that a damaged or forged file adds is rejected."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Any

from twofold.metrics.operating_points import ood_weight, operating_point
from twofold.scores.chain import FITTINGS

VERDICTS = ("accept", "unsure", "unknown")
LARGEST = 1 << 53  # largest count that a float holds exactly
WIDEST = 1 << 24  # most classes, and most columns in all, that a gate can record
CLOSE = 1e-9
GATE = (
    "id",
    "ood",
    "thresholds",
    "promise",
    "classes",
    "class_names",
    "widths",
    "head",
    "data",
    "versions",
    "tensors",
)
PROMISE = (
    "objective",
    "risk",
    "delta",
    "coverage",
    "costs",
    "ood_share",
    "seen_risk",
    "seen_coverage",
    "seen_f1",
    "seen_cost",
    "known",
    "outside",
    "cautions",
    "groups",
)
ASKED = {"f1": (), "risk": ("risk",), "coverage": ("coverage",), "cost": ("costs",), "given": ()}
MONITOR = ("low", "high", "false_alarms", "counts", "alarm", "log", "stride", "updates")
LINE = ("n", *VERDICTS, "log_e", "alarm")


def require(holds: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds.

    Parameters
    ----------
    holds : bool
        The condition.
    message : str
        What must hold, as a sentence for the error.

    Raises
    ------
    ValueError
        If ``holds`` is False.

    Examples
    --------
    >>> require(2 < 1, "two must be below one")
    Traceback (most recent call last):
        ...
    ValueError: two must be below one
    """
    if not holds:
        raise ValueError(message)


def check_gate(content: Any) -> None:
    """Raise ValueError unless this could be the content of a gate.json that Gate.save wrote.

    Parameters
    ----------
    content : object
        The parsed JSON, without its format, version and checksum.

    Raises
    ------
    ValueError
        If a key is missing or unknown, a value has the wrong type or range, or the numbers of the promise do not follow
        from its counts.
    """
    _table(content, "the gate", GATE)
    _side(content["id"], "id")
    if content["ood"] is not None:
        _side(content["ood"], "ood")
    thresholds = _items(content["thresholds"], "thresholds", 2)
    for value in thresholds:
        require(value in ("inf", "-inf") or _is_real(value), "thresholds must be numbers")
    require(content["ood"] is not None or thresholds[1] == "-inf", "a gate of one score has one threshold")
    classes = _whole(content["classes"], "classes", 1)
    require(classes <= WIDEST, f"classes must be at most {WIDEST}")
    if content["class_names"] is not None:
        names = _items(content["class_names"], "class_names", classes)
        require(all(isinstance(name, str) for name in names), "class_names must be text")
    for name, width in _table(content["widths"], "widths").items():
        require(name == "features" or name.startswith("layers/"), "widths must be those of features and layers")
        _whole(width, "widths", 1)
    require(sum(content["widths"].values()) <= WIDEST, f"widths must sum to at most {WIDEST}")
    if content["head"] is not None:
        _digest(content["head"], "head")
    data = _table(content["data"], "data")
    require("validation" in data and set(data) <= {"validation", "train"}, "data must be those of validation and train")
    for digest in data.values():
        _digest(digest, "data")
    for version in _table(content["versions"], "versions").values():
        _text(version, "versions")
    tensors = _table(content["tensors"], "tensors", ("file", "sha256"))
    _digest(tensors["sha256"], "tensors")
    require(tensors["file"] == f"scores-{tensors['sha256'][:16]}.safetensors", "tensors must be in a file of their own")
    _check_promise(content["promise"], alone=content["ood"] is None)


def _check_promise(promise: Any, *, alone: bool) -> None:
    _table(promise, "promise", PROMISE)
    objective = _text(promise["objective"], "objective")
    require(objective in ASKED, "objective is unknown")
    for name in ("risk", "coverage", "costs"):
        require((promise[name] is not None) == (name in ASKED[objective]), f"{name} does not fit the objective")
    require(promise["delta"] is None or objective == "risk", "delta does not fit the objective")
    for name in ("risk", "delta", "coverage", "ood_share"):
        if promise[name] is not None:
            _share(promise[name], name)
    require(promise["risk"] is None or promise["risk"] < 1.0, "risk must be below 1")
    require(
        promise["delta"] is None or (0.0 < promise["delta"] < 1.0 and promise["risk"] > 0.0), "delta must be in (0, 1)"
    )
    require(promise["coverage"] is None or promise["coverage"] > 0.0, "coverage must be above 0")
    require(promise["ood_share"] is None or promise["ood_share"] < 1.0, "ood_share must be below 1")
    known = [_whole(count, "known", 0) for count in _items(promise["known"], "known", 3)]
    outside = [_whole(count, "outside", 0) for count in _items(promise["outside"], "outside", 3)]
    require(sum(known) > 0, "known must count at least one sample")
    require(promise["ood_share"] is None or sum(outside) > 0, "ood_share needs OOD samples")
    require(not alone or known[2] + outside[2] == 0, "a gate of one score calls nothing unknown")
    for caution in _items(promise["cautions"], "cautions"):
        _text(caution, "cautions")
    if promise["groups"] is not None:
        groups = _whole(promise["groups"], "groups", 1)
        require(groups <= sum(known) + sum(outside), "groups must not be more than samples")
    _check_seen(promise, known, outside)


def _check_seen(promise: dict[str, Any], known: list[int], outside: list[int]) -> None:
    """Raise ValueError unless the numbers seen on validation data follow from the counts."""
    for name in ("seen_risk", "seen_coverage", "seen_f1"):
        _share(promise[name], name)
    ids, oods = sum(known), sum(outside)
    weight = ood_weight(promise["ood_share"], ids, oods) if oods else 1.0
    accepted = known[0] + weight * outside[0]
    right = round((1.0 - promise["seen_risk"]) * accepted)
    require(0 <= right <= known[0], "seen_risk does not fit the counts")
    point = operating_point(right, known[0], weight * outside[0], ids)
    for name, value in (("seen_risk", "risk"), ("seen_coverage", "coverage"), ("seen_f1", "value")):
        require(abs(promise[name] - point[value]) <= CLOSE, f"{name} does not fit the counts")
    if promise["costs"] is None:
        require(promise["seen_cost"] is None, "seen_cost goes with costs")
        return
    wrong, ood, reject = _items(promise["costs"], "costs", 3)
    for cost in (wrong, ood, reject, promise["seen_cost"]):
        require(_is_real(cost) and cost >= 0.0, "costs must be numbers of at least 0")
    paid = wrong * (known[0] - right) + ood * weight * outside[0]
    paid += reject * (ids - known[0]) + reject * weight * (oods - outside[0])
    mean = paid / (ids + weight * oods)
    require(abs(promise["seen_cost"] - mean) <= CLOSE * max(1.0, mean), "seen_cost does not fit the counts")


def check_monitor(content: Any) -> None:
    """Raise ValueError unless this could be the state that Monitor.save wrote.

    Parameters
    ----------
    content : object
        The parsed JSON, without its format, version and checksum.

    Raises
    ------
    ValueError
        If a key is missing or unknown, a value has the wrong type or range, or the log does not fit the counts.
    """
    _table(content, "the monitor", MONITOR)
    low, high = (_items(content[name], name, len(VERDICTS)) for name in ("low", "high"))
    for a, b in zip(low, high, strict=True):
        _share(a, "low")
        _share(b, "high")
        require(a <= b, "low must not exceed high")
    require(sum(low) <= 1.0 + CLOSE and sum(high) >= 1.0 - CLOSE, "low and high must leave rates that sum to 1")
    _share(content["false_alarms"], "false_alarms")
    require(0.0 < content["false_alarms"] < 1.0, "false_alarms must be in (0, 1)")
    n = sum(_whole(count, "counts", 0) for count in _items(content["counts"], "counts", len(VERDICTS)))
    _flag(content["alarm"], "alarm")
    stride = _whole(content["stride"], "stride", 1)
    require(stride & (stride - 1) == 0, "stride must be a power of 2")
    updates = _whole(content["updates"], "updates", 0)
    require((updates == 0) == (n == 0), "updates must be 0 just where nothing was counted")
    lines = _items(content["log"], "log")
    require(len(lines) <= min(updates, 512), "log must not be longer than the updates")
    last = 0
    for line in lines:
        _table(line, "a line of the log", LINE)
        require(last <= _whole(line["n"], "n", 1) <= n, "the log must be in order")
        last = line["n"]
        for name in VERDICTS:
            _share(line[name], name)
        require(abs(sum(line[name] for name in VERDICTS) - 1.0) <= CLOSE, "rates of the log must sum to 1")
        require(_is_real(line["log_e"]), "log_e must be a number")
        require(_flag(line["alarm"], "alarm") <= content["alarm"], "an alarm of the log must stay")
    require(content["alarm"] is False or n > 0, "alarm needs inputs")


def _side(content: Any, name: str) -> None:
    _table(content, name, ("spec", "tuned", "searched"))
    _text(content["spec"], f"{name}.spec")
    require(_text(content["tuned"], "tuned") in FITTINGS, "tuned is unknown")
    require(_text(content["searched"], "searched") in ("", "val", "ood_val"), "searched is unknown")


def _table(content: Any, name: str, keys: Collection[str] | None = None) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{name} must be a table")
    if keys is not None and set(content) != set(keys):
        raise ValueError(f"{name} must have the keys {', '.join(keys)}")
    return content


def _items(content: Any, name: str, length: int | None = None) -> list[Any]:
    if not isinstance(content, list) or length not in (None, len(content)):
        raise ValueError(f"{name} must be a list" + ("" if length is None else f" of {length}"))
    return content


def _text(content: Any, name: str) -> str:
    if not isinstance(content, str):
        raise ValueError(f"{name} must be text")
    return content


def _flag(content: Any, name: str) -> bool:
    if not isinstance(content, bool):
        raise ValueError(f"{name} must be true or false")
    return content


def _whole(content: Any, name: str, low: int) -> int:
    if type(content) is not int or not low <= content <= LARGEST:
        raise ValueError(f"{name} must be a whole number of at least {low}")
    return content


def _is_real(content: Any) -> bool:
    return type(content) is float and math.isfinite(content)


def _share(content: Any, name: str) -> None:
    require(_is_real(content) and 0.0 <= content <= 1.0, f"{name} must be in [0, 1]")


def _digest(content: Any, name: str) -> None:
    if re.fullmatch("[0-9a-f]{64}", _text(content, name)) is None:
        raise ValueError(f"{name} must be a SHA-256")
