"""What every metric needs of a sample, small enough to keep for a whole epoch, and the metrics by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from twofold import metrics
from twofold._checks import Array, Mask
from twofold.errors import InvalidInput
from twofold.outputs import Outputs
from twofold.scores.logits import probability
from twofold.steps import Chain, score_all, scorer

MAIN = ("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece")


@dataclass(frozen=True, eq=False)
class Rows:
    """Whether each sample was labelled rightly and is known, its confidences, and the probability of its label."""

    correct: Mask
    is_id: Mask
    conf: Array
    conf_ood: Array | None
    prob: Array


def chain_of(spec: str | Chain) -> Chain:
    """A chain that can score at once."""
    chain = scorer(spec)
    if not chain.ready:
        raise InvalidInput(f"{chain.spec} learns from a training set; pass the chain fitted: scorer(...).fit(train)")
    return chain


def rows_of(outputs: Outputs, first: Chain, second: Chain | None = None) -> Rows:
    """The rows of labelled outputs; label -1 is OOD."""
    seen = outputs.averaged() if first.judges == "passes" else outputs
    confs = score_all([first] if second is None else [first, second], seen)
    return Rows(seen.correct, seen.is_id, confs[0], None if second is None else confs[1], probability(seen))


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Join the rows of several batches.

    >>> rows = rows_of(Outputs([[2.0, 0.0]], labels=[0]), scorer("msp"))
    >>> concat_rows([rows, rows]).correct
    array([ True,  True])
    """
    conf_ood = None
    if parts[0].conf_ood is not None:
        conf_ood = np.concatenate([part.conf_ood for part in parts if part.conf_ood is not None])
    return Rows(
        correct=np.concatenate([part.correct for part in parts]),
        is_id=np.concatenate([part.is_id for part in parts]),
        conf=np.concatenate([part.conf for part in parts]),
        conf_ood=conf_ood,
        prob=np.concatenate([part.prob for part in parts]),
    )


def check_names(names: Iterable[str], *, two: bool) -> tuple[str, ...]:
    """Names of metrics that rows can give, looked at before the data come."""
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name == "accuracy":
            continue
        record = metrics.info(name.removesuffix("_ood"))
        if name.endswith("_ood") and record.task != "detection":
            raise InvalidInput(f"{name}: only detection metrics have a form of ID against OOD; leave out _ood")
        needs = set(record.arrays) & {"labels", "logits", "passes"}
        if needs:
            raise InvalidInput(
                f"{name} needs {' and '.join(sorted(needs))}, which are not kept; call twofold.metrics.{name}"
            )
        if "conf_ood" in record.arrays and not two:
            raise InvalidInput(f"{name} is of two scores; pass ood=, such as ood='energy'")
    return given


def values(rows: Rows, names: Iterable[str]) -> dict[str, float]:
    """Each metric; NaN where it has no value on these rows. Calibration metrics look at known samples alone.

    >>> rows = rows_of(Outputs([[2.0, 0.0], [0.0, 1.0], [1.0, 0.4]], labels=[0, 1, 1]), scorer("msp"))
    >>> values(rows, ["accuracy", "auroc"])
    {'accuracy': 0.6666666666666666, 'auroc': 1.0}
    """
    wanted = list(names)
    sure = [name for name in wanted if name != "accuracy" and "prob" in metrics.info(name.removesuffix("_ood")).arrays]
    ranked = [name for name in wanted if name not in sure]
    found = dict(metrics.evaluate(rows.correct, rows.conf, is_id=rows.is_id, conf_ood=rows.conf_ood, only=ranked))
    known = rows.is_id
    for name in sure:
        found[name] = metrics.info(name).value(rows.correct[known], rows.prob[known]) if known.any() else math.nan
    return {name: found[name] for name in wanted}
