"""Register metrics in one table: a frozen record per metric, filled by a decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, SupportsFloat, TypeVar

from twofold import _checks
from twofold._checks import ArrayLike
from twofold.errors import NameTaken, UnknownName

if TYPE_CHECKING:
    from twofold.metrics._sweep import Sweep, Weighted


class HasValue(Protocol):
    """Describe a result that holds more than the metric, such as an operating point."""

    @property
    def value(self) -> float:
        """The metric itself."""


Metric = Callable[..., SupportsFloat | HasValue]
F = TypeVar("F", bound=Metric)
Task = Literal["selective", "detection", "ood", "joint", "calibration"]
Direction = Literal["higher", "lower"]
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
    """Describe one metric: enough to list it, document it, test its laws and compute it by name.

    Parameters
    ----------
    name : str
        Name under which it is registered.
    function : callable
        The metric itself.
    task : {"selective", "detection", "ood", "joint", "calibration"}
        What it measures. ``"ood"`` is the form of a detection metric that compares ID with OOD samples.
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
    from_correct : callable, optional
        The same metric computed from ``correct``, where ``function`` takes labels and logits.
    failure_form : str, optional
        For the task ``"ood"``: name of the same metric of correct predictions against failures.

    Examples
    --------
    >>> from twofold.metrics import info
    >>> record = info("auroc")
    >>> record.better, record.bounds, record.arrays
    ('higher', (0, 1), ('truth', 'conf'))
    >>> info("auroc_ood").arrays
    ('is_id', 'conf')
    """

    name: str
    function: Metric
    task: Task
    better: Direction
    bounds: tuple[float, float]
    formula: str
    reference: str
    sweep: Callable[[Sweep], float] | None = None
    coverage: Coverage | None = None
    from_correct: Metric | None = None
    failure_form: str | None = None

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays that the metric takes, read from its signature."""
        return _array_parameters(self.function)

    @property
    def evaluated(self) -> Metric:
        """The function that :func:`twofold.metrics.evaluate` computes: ``from_correct`` where there is one."""
        return self.from_correct or self.function

    @property
    def evaluated_arrays(self) -> tuple[str, ...]:
        """Names of the arrays that :attr:`evaluated` takes."""
        return _array_parameters(self.evaluated)

    @property
    def required_arrays(self) -> tuple[str, ...]:
        """Those of :attr:`evaluated_arrays` that have no default."""
        parameters = inspect.signature(self.evaluated).parameters
        empty = inspect.Parameter.empty
        return tuple(name for name in self.evaluated_arrays if parameters[name].default is empty)

    @property
    def takes_ood_share(self) -> bool:
        """Whether :attr:`evaluated` has the setting ``ood_share``."""
        return "ood_share" in inspect.signature(self.evaluated).parameters

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.function) or "").splitlines()[0]

    def value(self, *arrays: ArrayLike, **settings: object) -> float:
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
        return as_float(self.function(*arrays, **settings))


def as_float(result: SupportsFloat | HasValue) -> float:
    """Return a metric's result as a float: its ``value``, where it is a whole operating point."""
    if isinstance(result, SupportsFloat):
        return float(result)
    return float(result.value)


def _array_parameters(function: Metric) -> tuple[str, ...]:
    return tuple(name for name in inspect.signature(function).parameters if name in ARRAYS)


_METRICS: dict[str, MetricInfo] = {}
_PUBLISHED: dict[str, MetricInfo] = {}  # forms of registered metrics, which names() does not list
_PUBLISHED_SUFFIX = "_published"


def register_metric(
    name: str,
    *,
    task: Task,
    better: Direction,
    bounds: tuple[float, float],
    formula: str,
    reference: str,
    sweep: Callable[[Sweep], float] | None = None,
    weighted: Callable[..., Weighted | None] | None = None,
    coverage: Coverage | None = None,
    from_correct: Metric | None = None,
) -> Callable[[F], F]:
    r"""Register a function as a metric, so that it can be listed, documented, tested and computed by name.

    Use it as a decorator. Positional parameters of the function are arrays with the names used throughout the library
    (``correct``, ``truth``, ``conf``, ``conf_id``, ``conf_ood``, ``is_id``, ``loss``, ``labels``, ``logits``,
    ``passes``, ``prob``); keyword-only parameters are settings. A metric of the task ``detection``, a function of
    ``truth`` and ``conf``, is also registered as ``NAME_ood``, a function of ``is_id`` and ``conf`` that compares ID
    with OOD samples.

    Parameters
    ----------
    name : str
        Name of the metric; it must be new.
    task : {"selective", "detection", "joint", "calibration"}
        What it measures.
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
    from_correct : callable, optional
        The same metric as a function of ``correct`` (and ``is_id``), for a metric of labels and logits that
        :func:`twofold.metrics.evaluate` shall compute too.

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
    >>> info("gini_demo_ood").value([True, True, False], [0.9, 0.8, 0.4])
    1.0
    >>> del _METRICS["gini_demo"], _METRICS["gini_demo_ood"]  # only so that this example leaves no trace
    """

    def register(function: F) -> F:
        if weighted is not None:
            function.weighted = weighted  # type: ignore[attr-defined]
        record = MetricInfo(name, function, task, better, bounds, formula, reference, sweep, coverage, from_correct)
        records = [record, _id_against_ood(record)] if task == "detection" else [record]
        for one in records:
            if one.name in _METRICS:
                taken = _METRICS[one.name].function
                raise NameTaken(f"a metric named {one.name!r} is registered already: {taken!r}")
        _METRICS.update({one.name: one for one in records})
        return function

    return register


def _id_against_ood(record: MetricInfo) -> MetricInfo:
    """Return the form of a detection metric whose safe class is ID and whose unsafe class is OOD."""
    metric = record.function

    def function(is_id: ArrayLike, conf: ArrayLike, **settings: object) -> SupportsFloat | HasValue:
        return metric(_checks.mask(is_id, "is_id"), conf, **settings)

    def weighted(is_id: ArrayLike, conf: ArrayLike, **settings: object) -> Weighted | None:
        return metric.weighted(_checks.mask(is_id, "is_id"), conf, **settings)  # type: ignore[attr-defined]

    function.__name__ = function.__qualname__ = f"{record.name}_ood"
    function.__doc__ = f"Compute :func:`{record.name}` of ID against OOD samples.\n\n{_OOD_DOCUMENTATION}"
    if hasattr(metric, "weighted"):
        function.weighted = weighted  # type: ignore[attr-defined]
    return replace(record, name=f"{record.name}_ood", function=function, task="ood", failure_form=record.name)


def register_published_form(metric: str, function: Metric, *, formula: str) -> None:
    """Register a metric as a paper's released code computes it, under the name ``METRIC_published``.

    Such a form is computed by name like any metric, and stands beside the metric itself. It serves only to reproduce
    printed numbers, so :func:`names` does not list it.

    Parameters
    ----------
    metric : str
        Name of a registered metric.
    function : callable
        Function of the same arrays, without settings.
    formula : str
        Definition in LaTeX.
    """
    record = _METRICS[metric]
    name = metric + _PUBLISHED_SUFFIX
    _PUBLISHED[name] = replace(record, name=name, function=function, formula=formula, sweep=None)


def published_form(metric: str) -> str | None:
    """Look up the name of a metric's published form.

    Parameters
    ----------
    metric : str
        Name of a metric.

    Returns
    -------
    str or None
        The name, which :func:`info` takes; None if there is no such form.

    Examples
    --------
    >>> from twofold import metrics
    >>> metrics.published_form("ds_f1"), metrics.published_form("auroc")
    ('ds_f1_published', None)
    """
    name = metric + _PUBLISHED_SUFFIX
    if name in _PUBLISHED:
        return name
    return None


def is_published_form(name: str) -> bool:
    """Tell whether a name is that of a published form.

    Parameters
    ----------
    name : str
        Name of a metric.

    Returns
    -------
    bool
        True for names such as ``ds_f1_published``.

    Examples
    --------
    >>> from twofold import metrics
    >>> metrics.is_published_form("ds_f1_published"), metrics.is_published_form("ds_f1")
    (True, False)
    """
    return name in _PUBLISHED


_OOD_DOCUMENTATION = """Parameters
----------
is_id : array-like of bool, shape (n_samples,)
    True for ID samples, the safe class.
conf : array-like of float, shape (n_samples,)
    Confidence that the input is in-distribution, higher is safer to accept.
**settings
    Settings of the metric.

Returns
-------
float
    The value.
"""


def names(task: Task | None = None) -> list[str]:
    """List the names of all registered metrics, in the order of registration.

    Parameters
    ----------
    task : {"selective", "detection", "ood", "joint", "calibration"}, optional
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
    if name in _PUBLISHED:
        return _PUBLISHED[name]
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
        record = _METRICS.get(name) or _PUBLISHED.get(name)
        if record is not None and record.coverage is not None:
            groups[record.coverage].append(name)
    words = {"all": "coverage of all samples", "id": "coverage of ID samples"}
    return "; ".join(f"{', '.join(members)}: {words[kind]}" for kind, members in groups.items() if members)
