"""Choose the settings of a score by a metric on validation outputs.

Everything is computed from stored outputs; the network never runs again. The result records what was chosen on which
data: ``label`` of a chain is ``untuned``, ``ID-tuned`` or ``OOD-tuned``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from twofold import metrics
from twofold.errors import InvalidInput, UndefinedMetric
from twofold.metrics import MetricInfo
from twofold.outputs import Outputs
from twofold.scores.chain import Chain, TunedOn, TuningLabel, scorer, select_id_rows
from twofold.scores.parser import parse_chain
from twofold.scores.scoring import score_all
from twofold.scores.step import ChainStep
from twofold.typing import Array, Mask

Progress = Callable[[str], object]
Grid = Mapping[str, Iterable[object]]
OpenSettings = dict[tuple[int, str], tuple[object, ...]]  # values to try, by place of the step and name of the setting


def ignore_progress(text: str) -> None:
    """Report nothing.

    Parameters
    ----------
    text : str
        What was finished.
    """


@dataclass(frozen=True)
class Trial:
    """Record one choice of settings and the value it reached.

    Parameters
    ----------
    spec : str
        The chain as text.
    value : float
        Value of the metric; NaN where the settings could not be tried, or the metric is undefined.
    problem : str, default=""
        Why the value is NaN.
    """

    spec: str
    value: float
    problem: str = ""


@dataclass(frozen=True)
class Tuned:
    """Hold the best chain, fitted, and every trial, best first.

    Parameters
    ----------
    chain : Chain
        The best chain, fitted.
    value : float
        Its value on the validation outputs.
    metric : str
        Name of the metric.
    trials : tuple of Trial
        All trials, best first; those that could not be tried come last.
    """

    chain: Chain
    value: float
    metric: str
    trials: tuple[Trial, ...]

    @property
    def label(self) -> TuningLabel:
        """On what the settings were chosen: ``ID-tuned`` or ``OOD-tuned``."""
        return self.chain.label


def tune(
    chain: str | Chain,
    train: Outputs,
    val: Outputs,
    ood_val: Outputs | None = None,
    metric: str = "augrc",
    *,
    grid: Grid | None = None,
    done: Progress = ignore_progress,
) -> Tuned:
    """Try the settings that the steps of a chain declare, and keep the best by a metric on validation outputs.

    Parameters
    ----------
    chain : str or Chain
        The chain. Settings that it states are not changed.
    train : Outputs
        Training set for steps that learn. Rows labelled -1 are left out.
    val : Outputs
        Labelled validation set. Rows labelled -1 are left out.
    ood_val : Outputs, optional
        OOD validation set. Without it the metric separates correct from wrong predictions (ID-tuned). With it, all its
        rows are failures too, and detection metrics separate ID from OOD inputs (OOD-tuned: such numbers are optimistic
        for OOD inputs of that kind).
    metric : str, default="augrc"
        Name of a registered metric of one confidence, such as aurc, augrc or auroc.
    grid : mapping of str to iterable, optional
        Values to try instead of the declared ones: ``{"react.percentile": (85, 95)}``.
    done : callable, optional
        Called with the text of each finished trial, for progress.

    Returns
    -------
    Tuned
        The best chain, fitted, its value and all trials.

    Raises
    ------
    UnknownName
        If there is no such metric or step.
    InvalidInput
        If nothing is left to tune, ``grid`` names no step or setting of the chain, no settings fit the outputs, or the
        metric needs arrays that are not there.
    UndefinedMetric
        If the metric has no value for any setting.

    Notes
    -----
    Settings that do not fit the data are skipped and listed with the reason. Among equal values the first in the grid
    wins, and the defaults come before all others.

    Examples
    --------
    >>> train = Outputs([[2.0, 1.0], [0.0, 1.0], [1.0, 0.5], [0.0, 3.0]], labels=[0, 1, 1, 1])
    >>> found = tune("maxlogit_pnorm", train, train)
    >>> found.chain.spec, found.label, len(found.trials)
    ('maxlogit_pnorm(p=0)', 'ID-tuned', 10)
    """
    record = metrics.info(metric)
    base = scorer(chain)
    candidates = [base, *_vary(base, _open_settings(base, grid))]
    train, val = select_id_rows(train), select_id_rows(val)
    fitted, failed = _fit_candidates(candidates, train, val, ood_val)
    if not fitted:
        raise InvalidInput(
            f"none of the settings of {base.spec} fit these outputs; the first problem: {failed[0].problem}"
        )
    judged = _JudgedRows.of(val, ood_val, base)
    trials = []
    for candidate, conf in zip(fitted, judged.score(fitted), strict=True):
        trials.append(_try(record, candidate.spec, conf, judged))
        done(candidate.spec)
    order = _rank(trials, record)
    best = trials[order[0]]
    if math.isnan(best.value):
        raise UndefinedMetric(f"{metric} has no value for any setting of {base.spec}: {best.problem}")
    tuned_on: TunedOn = "ood_val"
    if ood_val is None:
        tuned_on = "val"
    found = dataclasses.replace(fitted[order[0]], tuned_on=tuned_on)
    ranked = [trials[i] for i in order]
    return Tuned(found, best.value, metric, (*ranked, *failed))


def _open_settings(base: Chain, grid: Grid | None) -> OpenSettings:
    """Collect the values to try: those of ``grid``, or what the steps declare for settings that are not stated."""
    found: OpenSettings = {}
    if grid is not None:
        for key, values in grid.items():
            step_name, _, setting = key.rpartition(".")
            found[_find_step(base, step_name, key), setting] = tuple(values)
    else:
        for place, step in enumerate(base.steps):
            for setting, declared in step.info.grid.items():
                if setting not in step.settings:
                    found[place, setting] = declared
    for place, setting in found:
        ChainStep.make(base.steps[place].info, {setting: None})  # raises at an unknown setting
    if not found:
        raise InvalidInput(
            f"{base.spec} declares nothing to tune; pass grid={{'step.setting': values}}, or use it as it is"
        )
    return found


def _find_step(base: Chain, name: str, key: str) -> int:
    """Return the place of the first step of this name; ``key`` is what the caller wrote."""
    names = [step.info.name for step in base.steps]
    if name not in names:
        known = ", ".join(f"{step}.SETTING" for step in names)
        raise InvalidInput(f"grid: {key!r} names no step of {base.spec}; write {known}")
    return names.index(name)


def _vary(base: Chain, open_settings: OpenSettings) -> list[Chain]:
    """Build one chain for each combination of the values of open settings."""
    chains = []
    for values in product(*open_settings.values()):
        settings = [dict(step.settings) for step in base.steps]
        for (place, name), value in zip(open_settings, values, strict=True):
            settings[place][name] = value
        steps = [ChainStep.make(step.info, own) for step, own in zip(base.steps, settings, strict=True)]
        chains.append(Chain(tuple(steps)))
    return chains


def _fit_candidates(
    chains: Sequence[Chain], train: Outputs, val: Outputs, ood_val: Outputs | None
) -> tuple[list[Chain], list[Trial]]:
    """Return the chains that could be fitted, and why the others could not."""
    fitted, failed = [], []
    for chain in chains:
        try:
            parse_chain(chain.spec)  # raises if the steps do not go together
            fitted.append(chain.fit(train, val=val, ood_val=ood_val))
        except InvalidInput as error:
            failed.append(Trial(chain.spec, math.nan, str(error)))
    return fitted, failed


@dataclass(frozen=True, eq=False)
class _JudgedRows:
    """Hold the validation rows, followed by the OOD validation rows if there are any."""

    sets: tuple[Outputs, ...]
    correct: Mask
    is_id: Mask | None  # None without OOD rows

    @classmethod
    def of(cls, val: Outputs, ood_val: Outputs | None, chain: Chain) -> _JudgedRows:
        """Join both sets, with the prediction that the chain judges."""
        judged = chain.judged_outputs(val)
        if ood_val is None:
            return cls((val,), judged.correct, None)
        correct = np.concatenate([judged.correct, np.zeros(len(ood_val), bool)])
        return cls((val, ood_val), correct, np.arange(len(correct)) < len(val))

    def score(self, chains: Sequence[Chain]) -> list[Array]:
        """Compute the confidences of all rows by each chain."""
        by_set = [score_all(chains, outputs) for outputs in self.sets]
        return [np.concatenate(parts) for parts in zip(*by_set, strict=True)]

    def arrays(self, conf: Array) -> dict[str, Array | Mask]:
        """Return what a metric may take, by parameter name."""
        arrays: dict[str, Array | Mask] = {"correct": self.correct, "truth": self.correct}
        arrays |= {"conf": conf, "conf_id": conf, "conf_ood": conf}
        if self.is_id is not None:
            arrays |= {"is_id": self.is_id, "truth": self.is_id}
        return arrays


def _try(record: MetricInfo, spec: str, conf: Array, rows: _JudgedRows) -> Trial:
    """Compute the metric for one choice of settings."""
    arrays = rows.arrays(conf)
    missing = [name for name in record.arrays if name not in (*arrays, "loss", "is_id")]
    if rows.is_id is None and "is_id" in record.arrays and record.task in ("joint", "ood"):
        missing.append("ood_val")
    if missing:
        raise InvalidInput(
            f"{record.name} cannot choose settings here: it needs {missing[0]}; use aurc, augrc or auroc"
        )
    taken = {name: arrays[name] for name in record.arrays if name in arrays}
    try:
        return Trial(spec, record.value(**taken))
    except UndefinedMetric as error:
        return Trial(spec, math.nan, str(error))


def _rank(trials: Sequence[Trial], record: MetricInfo) -> list[int]:
    """Return the places of the trials, best first; equal values keep their order, and NaN comes last."""
    values = np.array([trial.value for trial in trials])
    if record.better == "higher":
        values = -values
    order: list[int] = np.argsort(values, kind="stable").tolist()
    return order
