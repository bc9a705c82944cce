"""The table of metrics: one frozen record per metric, filled by a decorator that gives the function back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from twofold.errors import NameTaken, UnknownName

F = TypeVar("F", bound=Callable[..., Any])
Task = Literal["selective", "detection", "joint", "calibration"]
Coverage = Literal["all", "id"]

ARRAYS = (
    "labels",
    "logits",
    "passes",
    "correct",
    "truth",
    "prob",
    "conf",
    "conf_id",
    "conf_ood",
    "is_id",
    "loss",
)


@dataclass(frozen=True)
class MetricInfo:
    """What is known about one metric: enough to list it, document it and test its laws."""

    name: str
    function: Callable[..., Any]
    task: Task
    better: Literal["higher", "lower"]
    bounds: tuple[float, float]
    formula: str
    reference: str
    sweep: Callable[[Any], float] | None = None  # the same metric on a Sweep, with default settings
    coverage: Coverage | None = None  # whose coverage an area under a curve is taken over, with default settings

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arrays the metric takes, read from its signature."""
        return tuple(p for p in inspect.signature(self.function).parameters if p in ARRAYS)

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").splitlines()[0]

    def value(self, *arrays: Any, **settings: Any) -> float:
        """The metric as one float, also where the function returns a whole operating point."""
        result = self.function(*arrays, **settings)
        return float(getattr(result, "value", result))


_METRICS: dict[str, MetricInfo] = {}


def register_metric(
    name: str,
    *,
    task: Task,
    better: Literal["higher", "lower"],
    bounds: tuple[float, float],
    formula: str,
    reference: str,
    sweep: Callable[[Any], float] | None = None,
    weighted: Callable[..., Any] | None = None,
    coverage: Coverage | None = None,
) -> Callable[[F], F]:
    """Enter a metric into the table under ``name``; a name taken twice is an error.

    ``coverage`` says whose coverage an area is taken over: of ``"all"`` samples or of ``"id"`` samples; tables show it.

    ``sweep`` computes the metric from tie groups (one sort serves many metrics). ``weighted`` is what
    :func:`twofold.stats.bootstrap` calls: ``weighted(*arrays, **settings)`` sorts once and returns a function from
    row weights (how often each row is drawn) to the value, or None if it has no such form for them.
    """

    def enter(function: F) -> F:
        if name in _METRICS:
            raise NameTaken(f"a metric named {name!r} is registered already: {_METRICS[name].function!r}")
        _METRICS[name] = MetricInfo(name, function, task, better, bounds, formula, reference, sweep, coverage)
        if weighted is not None:
            function.weighted = weighted  # type: ignore[attr-defined]
        return function

    return enter


def names(task: Task | None = None) -> list[str]:
    """Names of all registered metrics, of one task if given, in the order of registration."""
    return [n for n, m in _METRICS.items() if task is None or m.task == task]


def info(name: str) -> MetricInfo:
    """The record of one metric; an unknown name is an error with the nearest names."""
    try:
        return _METRICS[name]
    except KeyError:
        raise UnknownName.of("metric", name, _METRICS) from None


def coverage_note(metrics: Iterable[str]) -> str:
    """Say in one line whose coverage the areas among some metrics are taken over.

    Parameters
    ----------
    metrics : iterable of str
        Names of metrics; those that are no areas over coverage, or not registered, are passed over.

    Returns
    -------
    str
        The line, empty where there is nothing to say.

    Examples
    --------
    >>> coverage_note(["accuracy", "aurc", "augrc", "aurc_id"])
    'aurc, augrc: coverage of all samples; aurc_id: coverage of ID samples'
    """
    groups: dict[str, list[str]] = {"all": [], "id": []}
    for name in metrics:
        record = _METRICS.get(name)
        if record is not None and record.coverage is not None:
            groups[record.coverage].append(name)
    words = {"all": "coverage of all samples", "id": "coverage of ID samples"}
    return "; ".join(f"{', '.join(members)}: {words[kind]}" for kind, members in groups.items() if members)
