"""Parse the content of the files of gates and monitors; anything that a damaged or forged file adds is rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, TypeVar

from twofold._json import check_count, check_flag, check_list, check_sha256, check_table, check_text
from twofold.gate.promise import SETTINGS, Objective, Promise, mean_cost
from twofold.gate.thresholds import Costs
from twofold.metrics.operating_points import ood_weight, operating_point

Checked = TypeVar("Checked")

VERDICTS = ("accept", "unsure", "unknown")
LARGEST = 1 << 53  # largest count that a float holds exactly
WIDEST = 1 << 24  # most classes, and most columns in all, that a gate can record
CLOSE = 1e-9
LOG_LINES = 512  # of a monitor, at most
GATE_KEYS = (
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
PROMISE_KEYS = (
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
MONITOR_KEYS = ("low", "high", "false_alarms", "counts", "alarm", "log", "stride", "updates")
LOG_KEYS = ("n", *VERDICTS, "log_e", "alarm")


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


# Gates


@dataclass(frozen=True)
class GateRecord:
    """Hold the content of gate.json.

    Parameters
    ----------
    id : dict of str to str
        Header of the ID score, for :meth:`twofold.scores.chain.Chain.from_header`.
    ood : dict of str to str, or None
        Header of the OOD score.
    tau_id, tau_ood : float
        Thresholds.
    promise : Promise
        What the gate was fitted for.
    classes : int
        Number of classes.
    class_names : tuple of str or None
        Names of the classes.
    widths : dict of str to int
        Columns of the features and layers that the scores read.
    head : str or None
        SHA-256 of the last layer.
    data : dict of str to str
        SHA-256 of the data that the gate was fitted on.
    versions : dict of str to str
        Versions at the fit.
    tensors_file : str
        Name of the file beside it that holds the learnt arrays.
    tensors_sha256 : str
        SHA-256 of that file.
    """

    id: dict[str, str]
    ood: dict[str, str] | None
    tau_id: float
    tau_ood: float
    promise: Promise
    classes: int
    class_names: tuple[str, ...] | None
    widths: dict[str, int]
    head: str | None
    data: dict[str, str]
    versions: dict[str, str]
    tensors_file: str
    tensors_sha256: str


def parse_gate(content: object) -> GateRecord:
    """Parse the content of a gate.json; raise ValueError unless Gate.save could have written it.

    Parameters
    ----------
    content : object
        The parsed JSON, without its format, version and checksum.

    Returns
    -------
    GateRecord
        The content.

    Raises
    ------
    ValueError
        If a key is missing or unknown, a value has the wrong type or range, or the numbers of the promise do not follow
        from its counts.
    """
    table = check_table(content, "the gate", GATE_KEYS)
    id_score = _parse_header(table["id"], "id")
    ood_score = None
    if table["ood"] is not None:
        ood_score = _parse_header(table["ood"], "ood")
    tau_id, tau_ood = map(_parse_threshold, check_list(table["thresholds"], "thresholds", 2))
    require(ood_score is not None or tau_ood == -math.inf, "a gate of one score has one threshold")
    classes = _check_whole(table["classes"], "classes", 1)
    require(classes <= WIDEST, f"classes must be at most {WIDEST}")
    class_names = None
    if table["class_names"] is not None:
        class_names = _check_each(check_text, table["class_names"], "class_names", classes)
    widths = _parse_widths(table["widths"])
    head = None
    if table["head"] is not None:
        head = check_sha256(table["head"], "head")
    data = check_table(table["data"], "data")
    require("validation" in data and set(data) <= {"validation", "train"}, "data must be those of validation and train")
    versions = check_table(table["versions"], "versions")
    tensors = check_table(table["tensors"], "tensors", ("file", "sha256"))
    digest = check_sha256(tensors["sha256"], "tensors")
    file = check_text(tensors["file"], "tensors")
    require(file == f"scores-{digest[:16]}.safetensors", "tensors must be in a file of their own")
    return GateRecord(
        id=id_score,
        ood=ood_score,
        tau_id=tau_id,
        tau_ood=tau_ood,
        promise=_parse_promise(table["promise"], one_score=ood_score is None),
        classes=classes,
        class_names=class_names,
        widths=widths,
        head=head,
        data={name: check_sha256(value, "data") for name, value in data.items()},
        versions={name: check_text(value, "versions") for name, value in versions.items()},
        tensors_file=file,
        tensors_sha256=digest,
    )


def _parse_header(content: object, name: str) -> dict[str, str]:
    table = check_table(content, name, ("spec", "tuned", "searched"))
    return {key: check_text(value, f"{name}.{key}") for key, value in table.items()}


def _parse_threshold(content: object) -> float:
    """Parse a number; infinities are text, because JSON has none."""
    if content in ("inf", "-inf"):
        return float(str(content))
    return _check_real(content, "thresholds")


def _parse_widths(content: object) -> dict[str, int]:
    widths = {}
    for name, width in check_table(content, "widths").items():
        require(name == "features" or name.startswith("layers/"), "widths must be those of features and layers")
        widths[name] = _check_whole(width, "widths", 1)
    require(sum(widths.values()) <= WIDEST, f"widths must sum to at most {WIDEST}")
    return widths


def _parse_promise(content: object, *, one_score: bool) -> Promise:
    table = check_table(content, "promise", PROMISE_KEYS)
    objective = _parse_objective(table)
    risk = _parse_share(table["risk"], "risk")
    delta = _parse_share(table["delta"], "delta")
    coverage = _parse_share(table["coverage"], "coverage")
    share = _parse_share(table["ood_share"], "ood_share")
    require(risk is None or risk < 1.0, "risk must be below 1")
    if delta is not None:
        require(0.0 < delta < 1.0 and risk is not None and risk > 0.0, "delta must be in (0, 1)")
    require(coverage is None or coverage > 0.0, "coverage must be above 0")
    require(share is None or share < 1.0, "ood_share must be below 1")
    known = _parse_counts(table["known"], "known")
    outside = _parse_counts(table["outside"], "outside")
    require(sum(known) > 0, "known must count at least one sample")
    require(share is None or sum(outside) > 0, "ood_share needs OOD samples")
    require(not one_score or known[2] + outside[2] == 0, "a gate of one score calls nothing unknown")
    groups = None
    if table["groups"] is not None:
        groups = _check_whole(table["groups"], "groups", 1)
        require(groups <= sum(known) + sum(outside), "groups must not be more than samples")
    seen_cost = None
    if table["seen_cost"] is not None:
        seen_cost = _check_cost(table["seen_cost"])
    promise = Promise(
        objective=objective,
        risk=risk,
        delta=delta,
        coverage=coverage,
        costs=_parse_costs(table["costs"]),
        ood_share=share,
        seen_risk=_check_share(table["seen_risk"], "seen_risk"),
        seen_coverage=_check_share(table["seen_coverage"], "seen_coverage"),
        seen_f1=_check_share(table["seen_f1"], "seen_f1"),
        seen_cost=seen_cost,
        known=known,
        outside=outside,
        cautions=_check_each(check_text, table["cautions"], "cautions"),
        groups=groups,
    )
    _check_seen(promise)
    return promise


def _parse_objective(promise: dict[str, object]) -> Objective:
    """Parse the objective; it must have its own setting, and no other's."""
    objective = promise["objective"]
    require(objective in SETTINGS, "objective is unknown")
    own = SETTINGS[str(objective)]
    for name in ("risk", "coverage", "costs"):
        require((promise[name] is not None) == (name in own), f"{name} does not fit the objective")
    require(promise["delta"] is None or objective == "risk", "delta does not fit the objective")
    return objective  # type: ignore[return-value]  # as just required


def _parse_counts(content: object, name: str) -> tuple[int, int, int]:
    accept, unsure, unknown = (_check_whole(count, name, 0) for count in check_list(content, name, 3))
    return accept, unsure, unknown


def _parse_costs(content: object) -> Costs | None:
    if content is None:
        return None
    return Costs(*(_check_cost(value) for value in check_list(content, "costs", 3)))


def _check_seen(promise: Promise) -> None:
    """Raise ValueError unless the numbers seen on validation data follow from the counts."""
    known, outside = promise.known, promise.outside
    ids, oods = sum(known), sum(outside)
    weight = 1.0
    if oods:
        weight = ood_weight(promise.ood_share, ids, oods)
    accepted = known[0] + weight * outside[0]
    right = round((1.0 - promise.seen_risk) * accepted)
    require(0 <= right <= known[0], "seen_risk does not fit the counts")
    point = operating_point(right, known[0], weight * outside[0], ids)
    require(abs(promise.seen_risk - point["risk"]) <= CLOSE, "seen_risk does not fit the counts")
    require(abs(promise.seen_coverage - point["coverage"]) <= CLOSE, "seen_coverage does not fit the counts")
    require(abs(promise.seen_f1 - point["value"]) <= CLOSE, "seen_f1 does not fit the counts")
    if promise.costs is None:
        require(promise.seen_cost is None, "seen_cost goes with costs")
        return
    mean = mean_cost(promise.costs, right, known, outside, weight)
    is_close = promise.seen_cost is not None and abs(promise.seen_cost - mean) <= CLOSE * max(1.0, mean)
    require(is_close, "seen_cost does not fit the counts")


# Monitors


class LogLine(TypedDict):
    """Name the entries of one line in the log of a monitor."""

    n: int
    accept: float
    unsure: float
    unknown: float
    log_e: float
    alarm: bool


@dataclass(frozen=True)
class MonitorRecord:
    """Hold the state of a monitor as its file has it.

    Parameters
    ----------
    low, high : tuple of three floats
        Rates that validation leaves possible.
    false_alarms : float
        Largest share of deployments with a false alarm.
    counts : tuple of three ints
        Verdicts counted.
    alarm : bool
        Whether an alarm was raised.
    log : list of dict
        Lines of the log.
    stride : int
        Every how many updates one is logged.
    updates : int
        Number of batches counted.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    false_alarms: float
    counts: tuple[int, ...]
    alarm: bool
    log: list[LogLine]
    stride: int
    updates: int


def parse_monitor(content: object) -> MonitorRecord:
    """Parse the state of a monitor; raise ValueError unless Monitor.save could have written it.

    Parameters
    ----------
    content : object
        The parsed JSON, without its format, version and checksum.

    Returns
    -------
    MonitorRecord
        The state.

    Raises
    ------
    ValueError
        If a key is missing or unknown, a value has the wrong type or range, or the log does not fit the counts.
    """
    table = check_table(content, "the monitor", MONITOR_KEYS)
    low = _check_each(_check_share, table["low"], "low", len(VERDICTS))
    high = _check_each(_check_share, table["high"], "high", len(VERDICTS))
    for lowest, highest in zip(low, high, strict=True):
        require(lowest <= highest, "low must not exceed high")
    require(sum(low) <= 1.0 + CLOSE and sum(high) >= 1.0 - CLOSE, "low and high must leave rates that sum to 1")
    false_alarms = _check_share(table["false_alarms"], "false_alarms")
    require(0.0 < false_alarms < 1.0, "false_alarms must be in (0, 1)")
    counts = _parse_counts(table["counts"], "counts")
    n = sum(counts)
    alarm = check_flag(table["alarm"], "alarm")
    require(not alarm or n > 0, "alarm needs inputs")
    stride = _check_whole(table["stride"], "stride", 1)
    require(stride & (stride - 1) == 0, "stride must be a power of 2")
    updates = _check_whole(table["updates"], "updates", 0)
    require((updates == 0) == (n == 0), "updates must be 0 just where nothing was counted")
    lines = check_list(table["log"], "log")
    require(len(lines) <= min(updates, LOG_LINES), "log must not be longer than the updates")
    log: list[LogLine] = []
    for content_of_line in lines:
        line = _parse_log_line(content_of_line)
        last = log[-1]["n"] if log else 0
        require(last <= line["n"] <= n, "the log must be in order")
        require(alarm or not line["alarm"], "an alarm of the log must stay")
        log.append(line)
    return MonitorRecord(low, high, false_alarms, counts, alarm, log, stride, updates)


def _parse_log_line(content: object) -> LogLine:
    table = check_table(content, "a line of the log", LOG_KEYS)
    line = LogLine(
        n=_check_whole(table["n"], "n", 1),
        accept=_check_share(table["accept"], "accept"),
        unsure=_check_share(table["unsure"], "unsure"),
        unknown=_check_share(table["unknown"], "unknown"),
        log_e=_check_real(table["log_e"], "log_e"),
        alarm=check_flag(table["alarm"], "alarm"),
    )
    total = line["accept"] + line["unsure"] + line["unknown"]
    require(abs(total - 1.0) <= CLOSE, "rates of the log must sum to 1")
    return line


# Lists and numbers


def _check_each(
    check: Callable[[object, str], Checked], content: object, name: str, length: int | None = None
) -> tuple[Checked, ...]:
    """Check every item of a list."""
    return tuple([check(item, name) for item in check_list(content, name, length)])


def _check_whole(content: object, name: str, low: int) -> int:
    count = check_count(content, name, low)
    require(count <= LARGEST, f"{name} must be at most 2**53")
    return count


def _check_real(content: object, name: str) -> float:
    if type(content) is not float or not math.isfinite(content):
        raise ValueError(f"{name} must be a number, got {content!r:.80}")
    return content


def _check_share(content: object, name: str) -> float:
    value = _check_real(content, name)
    require(0.0 <= value <= 1.0, f"{name} must be in [0, 1]")
    return value


def _parse_share(content: object, name: str) -> float | None:
    if content is None:
        return None
    return _check_share(content, name)


def _check_cost(content: object) -> float:
    value = _check_real(content, "costs")
    require(value >= 0.0, "costs must be numbers of at least 0")
    return value
