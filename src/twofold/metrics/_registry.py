"""Register metrics in one table: a frozen record per metric, filled by a decorator."""

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
    """Describe one metric: enough to list it, document it and test its laws.

    Parameters
    ----------
    name : str
        Name under which it is registered.
    function : callable
        The metric itself.
    task : {"selective", "detection", "joint", "calibration"}
        What it measures.
    better : {"higher", "lower"}
        Which direction is better.
    bounds : tuple of float
        Least and largest possible value.
    formula : str
        Definition in LaTeX.
    reference : str
        Where it was published.
    sweep : callable, optional
        The same metric computed from tie groups (a ``Sweep``), with default settings.
    coverage : {"all", "id"}, optional
        For an area under a curve: whose coverage it is taken over, with default settings.

    Examples
    --------
    >>> from twofold.metrics import info
    >>> record = info("auroc")
    >>> record.better, record.bounds, record.arrays
    ('higher', (0, 1), ('truth', 'conf'))
    """

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
        """Names of the arrays that the metric takes, read from its signature."""
        return tuple(p for p in inspect.signature(self.function).parameters if p in ARRAYS)

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").splitlines()[0]

    def value(self, *arrays: Any, **settings: Any) -> float:
        """Compute the metric as one float, also where the function returns a whole operating point.

        Parameters
        ----------
        *arrays : array-like
            The arrays of the metric, in its order.
        **settings
            Settings of the metric, or arrays by name.

        Returns
        -------
        float
            What the function returns, or its ``value``.

        Examples
        --------
        >>> from twofold.metrics import info
        >>> info("f1").value([True, True, False], [0.9, 0.6, 0.5])
        0.8
        """
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
    r"""Register a function as a metric, so that it can be listed, documented, tested and computed by name.

    Use it as a decorator. Positional parameters of the function are arrays with the names used throughout the library
    (``correct``, ``truth``, ``conf``, ``conf_id``, ``conf_ood``, ``is_id``, ``loss``, ``labels``, ``logits``,
    ``passes``, ``prob``); keyword-only parameters are settings.

    Parameters
    ----------
    name : str
        Name of the metric; it must be new.
    task : {"selective", "detection", "joint", "calibration"}
        What it measures. Metrics of the task ``detection`` also have an ID-against-OOD form in
        :func:`twofold.metrics.evaluate`, with the suffix ``_ood``.
    better : {"higher", "lower"}
        Which direction is better.
    bounds : tuple of float
        Least and largest possible value; may be infinite.
    formula : str
        Definition in LaTeX.
    reference : str
        Where it was published.
    sweep : callable, optional
        ``sweep(s)`` computes the metric from tie groups, so that one sort serves many metrics.
    weighted : callable, optional
        Fast form for :func:`twofold.stats.bootstrap`: ``weighted(*arrays, **settings)`` sorts once and returns a
        function from row weights (how often each row is drawn) to the value, or None if it has no such form for these
        settings. It is attached to the function as ``function.weighted``.
    coverage : {"all", "id"}, optional
        For an area under a curve: whose coverage it is taken over, that of all samples or of ID samples. Tables show
        it.

    Returns
    -------
    callable
        A decorator that registers a function and returns it unchanged.

    Raises
    ------
    NameTaken
        When the decorator is applied, if a metric of this name is registered already.

    Examples
    --------
    >>> from twofold.metrics import auroc
    >>> @register_metric("gini_demo", task="detection", better="higher", bounds=(-1, 1),
    ...                  formula=r"2\,\mathrm{AUROC} - 1", reference="Example")
    ... def gini_demo(truth, conf):
    ...     return 2 * auroc(truth, conf) - 1
    >>> info("gini_demo").value([True, False, True, False], [0.9, 0.8, 0.4, 0.3])
    0.5
    >>> del _METRICS["gini_demo"]  # only so that this example leaves no trace
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
    """List the names of all registered metrics, in the order of registration.

    Parameters
    ----------
    task : {"selective", "detection", "joint", "calibration"}, optional
        List only the metrics of this task.

    Returns
    -------
    list of str
        The names.

    Examples
    --------
    >>> from twofold import metrics
    >>> "ds_f1" in metrics.names("joint"), "ds_f1" in metrics.names("detection")
    (True, False)
    """
    return [n for n, m in _METRICS.items() if task is None or m.task == task]


def info(name: str) -> MetricInfo:
    """Look up the record of one metric.

    Parameters
    ----------
    name : str
        Name of a registered metric.

    Returns
    -------
    MetricInfo
        Direction, bounds, formula, reference and the function itself.

    Raises
    ------
    UnknownName
        If there is no such metric; the message suggests the nearest names.

    Examples
    --------
    >>> from twofold import metrics
    >>> metrics.info("aurc").better
    'lower'
    """
    try:
        return _METRICS[name]
    except KeyError:
        raise UnknownName.of("metric", name, _METRICS) from None


def coverage_note(metrics: Iterable[str]) -> str:
    """Say in one line whose coverage the areas among some metrics are taken over.

    Parameters
    ----------
    metrics : iterable of str
        Names of metrics; those that are not areas over coverage, or not registered, are skipped.

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
