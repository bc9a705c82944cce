"""The table of scores and transforms: registration, listing, and what is known about each step.

A **score** turns :class:`~twofold.outputs.Outputs` into a confidence (N,), higher is safer; a **transform** turns
outputs into outputs. Each is a plain function of arrays, or a frozen dataclass with ``fit`` and ``score`` (or
``apply``) whose learnt arrays are declared by :func:`twofold.typing.state`.

What a step needs is read from its signature: parameters named after the fields of outputs (``logits``, ``features``,
``head``, ...), in ``fit`` also those of other sets (``val_logits``, ``ood_val_features``, ...), or ``outputs`` for a
whole set; keyword-only parameters are settings. A parameter with a default is used if the field is there. Where
signatures do not say enough, a class overrides a method of :class:`twofold.typing.StepHooks`.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeAlias, TypeVar

from twofold._checks import as_names
from twofold.errors import BrokenPlugin, InvalidInput, NameTaken, UnknownName
from twofold.outputs import FIELDS
from twofold.typing import StateField, StepHooks

Maker: TypeAlias = Callable[..., Any]
M = TypeVar("M", bound=Maker)
StepKind = Literal["score", "transform"]
Judged = Literal["logits", "passes"]
ClosedForm = Literal["log_odds", "log_sum_exp"]
Grid: TypeAlias = Mapping[str, Iterable[object]]

PROJECTIONS = ("global", "class", "class_pred", "class_avg")
"""Kinds of the transform ``project``."""

ALWAYS = ("predictions", "outputs")  # what all outputs have
ENTRY_POINTS = "twofold.scores"
HOOKS = tuple(name for name in vars(StepHooks) if not name.startswith("_"))

_STEPS: dict[str, StepInfo] = {}
_ALIASES: dict[str, str] = {}
_BUILT_IN = (
    "twofold.scores.logits",
    "twofold.scores.distance",
    "twofold.scores.neighbours",
    "twofold.scores.nearest",
    "twofold.scores.subspace",
    "twofold.scores.activations",
    "twofold.scores.gradients",
    "twofold.scores.regret",
    "twofold.scores.density",
    "twofold.scores.layers",
    "twofold.scores.passes",
    "twofold.scores.learned",
    "twofold.scores.combine",
    "twofold.scores.zero_shot",
    "twofold.scores.transforms",
    "twofold.scores.shaping",
)
_entry_points: list[str] = []  # those that were loaded, or could not be; begins with "" once loading has started
_plugins: list[str] = []


@dataclass(frozen=True)
class StepInfo:
    """Record what is known about one step: enough to list, document, build and test it.

    Parameters
    ----------
    name : str
        Name in chains.
    kind : {"score", "transform"}
        What the step is.
    maker : callable
        The function, or the dataclass.
    paper : str
        Reference.
    aliases : tuple of str, default=()
        Other names.
    judges : {"logits", "passes"}, default="logits"
        Whose prediction a score judges.
    cost : str, default=""
        Cost of scoring one row.
    grid : mapping of str to tuple, default={}
        Values of settings that :func:`twofold.tune` tries.
    project : tuple of str, optional
        Kinds of the transform ``project`` allowed before a score; None: as its needs allow.
    probabilities : bool, default=False
        Whether a score reads the logits only through their softmax.
    closed_form : {"log_odds", "log_sum_exp"}, optional
        Closed form of the logits that the score computes with its default settings.
    """

    name: str
    kind: StepKind
    maker: Maker
    paper: str
    aliases: tuple[str, ...] = ()
    judges: Judged = "logits"
    cost: str = ""
    grid: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)
    project: tuple[str, ...] | None = None
    probabilities: bool = False
    closed_form: ClosedForm | None = None

    @property
    def is_function(self) -> bool:
        """Whether the step is a plain function, which has settings but learns nothing."""
        return isinstance(self.maker, FunctionType)

    @property
    def learns(self) -> bool:
        """Whether the step learns from a training set."""
        return hasattr(self.maker, "fit")

    @property
    def fit_method(self) -> Maker:
        """The method ``fit`` of a step that learns."""
        return self._method("fit")

    @property
    def run_method(self) -> Maker:
        """What turns arrays into the result: the function itself, or the method ``score`` or ``apply``."""
        if self.is_function:
            return self.maker
        return self._method(self.method_name)

    @property
    def method_name(self) -> str:
        """Name of the method that a class needs in order to run: ``score`` or ``apply``."""
        return "score" if self.kind == "score" else "apply"

    def _method(self, name: str) -> Maker:
        """Return a method of the class, not bound to an object."""
        return getattr(self.maker, name)

    @cached_property
    def has_hooks(self) -> bool:
        """Whether the step is a class that derives from :class:`twofold.typing.StepHooks`."""
        return isinstance(self.maker, type) and issubclass(self.maker, StepHooks)

    @property
    def settings(self) -> dict[str, object]:
        """Settings and their defaults."""
        if self.is_function:
            parameters = inspect.signature(self.maker).parameters.values()
            return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        found = {}
        for field in dataclass_fields(self.maker):
            if not field.metadata or "array" in field.metadata:
                found[field.name] = field.default
        return found

    @property
    def array_settings(self) -> dict[str, StateField]:
        """Settings that may be arrays, and the shapes that they may have."""
        if self.is_function:
            return {}
        found = {}
        for field in dataclass_fields(self.maker):
            if "array" in field.metadata:
                found[field.name] = field.metadata["array"]
        return found

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that scoring or applying requires; a parameter with a default is used if it is there."""
        return tuple(name for name in array_parameters(self.run_method, optional=False) if name not in ALWAYS)

    @property
    def fit_needs(self) -> tuple[str, ...]:
        """Arrays that fitting needs; those of other sets carry the prefix ``val_`` or ``ood_val_``."""
        return array_parameters(self.fit_method, optional=False) if self.learns else ()

    @property
    def projections(self) -> tuple[str, ...]:
        """Kinds of ``project`` allowed before this score: not by class where one feature vector per row is needed."""
        if self.project is not None:
            return self.project
        if self.needs == ("logits",):
            return PROJECTIONS
        return ("global", "class_pred", "class_avg")

    @property
    def summary(self) -> str:
        """First line of the docstring; empty without one."""
        return (inspect.getdoc(self.maker) or "").partition("\n")[0]


def dataclass_fields(instance_or_class: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a step that is a dataclass.

    Parameters
    ----------
    instance_or_class : object
        The dataclass, or an object of it.

    Returns
    -------
    tuple of dataclasses.Field
        Settings have no metadata, or ``"array"``; learnt arrays have ``"state"``, learnt chains ``"chains"``.
    """
    return dataclasses.fields(instance_or_class)


def array_parameters(function: Callable[..., object], *, optional: bool) -> tuple[str, ...]:
    """Return the names of the arrays that a function takes: its positional parameters.

    Parameters
    ----------
    function : callable
        A step, or its method ``fit``, ``score`` or ``apply``.
    optional : bool
        Whether to include parameters with a default.

    Returns
    -------
    tuple of str
        Names of parameters, without ``self``.

    Examples
    --------
    >>> array_parameters(lambda logits, features=None, *, power=1: logits, optional=False)
    ('logits',)
    """
    found = []
    for parameter in inspect.signature(function).parameters.values():
        is_array = parameter.name != "self" and parameter.kind is not parameter.KEYWORD_ONLY
        if is_array and (optional or parameter.default is parameter.empty):
            found.append(parameter.name)
    return tuple(found)


def register_score(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Judged = "logits",
    cost: str = "",
    grid: Grid | None = None,
    project: Iterable[str] | None = None,
    probabilities: bool = False,
    closed_form: ClosedForm | None = None,
) -> Callable[[M], M]:
    """Register a score under a name; the decorated function or class is returned unchanged.

    Parameters
    ----------
    name : str
        Name in chains.
    paper : str
        Reference, such as ``"Liu et al., NeurIPS 2020, arXiv:2010.03759"``.
    aliases : iterable of str, default=()
        Other names.
    judges : {"logits", "passes"}, default="logits"
        Whose prediction it judges: that of the logits, or of the averaged passes.
    cost : str, default=""
        Cost of scoring one row, for the documentation.
    grid : mapping of str to iterable, optional
        Values of settings that :func:`twofold.tune` tries.
    project : iterable of str, optional
        Kinds of the transform ``project`` that may stand before it; by default as its needs allow.
    probabilities : bool, default=False
        Whether it reads the logits only through their softmax, so that its form for several passes reads the mean
        probabilities.
    closed_form : {"log_odds", "log_sum_exp"}, optional
        What it computes from the logits with its default settings, if that is the log-odds of the predicted class or
        the logarithm of the sum of exponentials; code that needs both computes them together.

    Returns
    -------
    callable
        A decorator.

    Raises
    ------
    NameTaken
        When the decorator is applied, if the name or an alias is already registered.
    InvalidInput
        When the decorator is applied, if a class has no method ``score``, or defines a method of
        :class:`twofold.typing.StepHooks` without deriving from it.

    Notes
    -----
    What the score needs is read from its signature; see :mod:`twofold.scores.registry`.
    """

    def register(maker: M) -> M:
        record = StepInfo(
            name,
            "score",
            maker,
            paper,
            aliases=tuple(aliases),
            judges=judges,
            cost=cost,
            grid=_freeze_grid(grid),
            project=None if project is None else tuple(project),
            probabilities=probabilities,
            closed_form=closed_form,
        )
        _add(record)
        return maker

    return register


def register_transform(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Judged = "logits",
    cost: str = "",
    grid: Grid | None = None,
) -> Callable[[M], M]:
    """Register a transform under a name; the decorated function or class is returned unchanged.

    A transform returns the changed fields of the outputs, by name.

    Parameters
    ----------
    name : str
        Name in chains.
    paper : str
        Reference.
    aliases : iterable of str, default=()
        Other names.
    judges : {"logits", "passes"}, default="logits"
        Whose prediction a chain with this transform judges.
    cost : str, default=""
        Cost of transforming one row, for the documentation.
    grid : mapping of str to iterable, optional
        Values of settings that :func:`twofold.tune` tries.

    Returns
    -------
    callable
        A decorator.

    Raises
    ------
    NameTaken
        When the decorator is applied, if the name or an alias is already registered.
    InvalidInput
        When the decorator is applied, if a class has no method ``apply``, or defines a method of
        :class:`twofold.typing.StepHooks` without deriving from it.
    """

    def register(maker: M) -> M:
        _add(
            StepInfo(
                name,
                "transform",
                maker,
                paper,
                aliases=tuple(aliases),
                judges=judges,
                cost=cost,
                grid=_freeze_grid(grid),
            )
        )
        return maker

    return register


def _freeze_grid(grid: Grid | None) -> dict[str, tuple[object, ...]]:
    """Copy a grid with its values as tuples."""
    if grid is None:
        return {}
    return {setting: tuple(values) for setting, values in grid.items()}


def _add(record: StepInfo) -> None:
    """Add a record to the table, if its names are free and its class is complete."""
    for name in (record.name, *record.aliases):
        if name in _STEPS or name in _ALIASES:
            raise NameTaken(f"a step named {name!r} is registered already")
    if isinstance(record.maker, type):
        _check_class(record)
    _STEPS[record.name] = record
    for alias in record.aliases:
        _ALIASES[alias] = record.name


def _check_class(record: StepInfo) -> None:
    """Raise unless a class can be run, and derives from StepHooks if it defines a hook."""
    title = record.maker.__name__
    if not hasattr(record.maker, record.method_name):
        raise InvalidInput(f"{title} is registered as a {record.kind} and has no method {record.method_name}; add it")
    if record.has_hooks:
        return
    for hook in HOOKS:
        if hasattr(record.maker, hook):
            raise InvalidInput(f"{title} defines {hook}; derive it from twofold.typing.StepHooks, which declares it")


def info(name: str) -> StepInfo:
    """Look up the record of a step.

    Parameters
    ----------
    name : str
        Name or alias of a score or transform.

    Returns
    -------
    StepInfo
        What is known about the step.

    Raises
    ------
    UnknownName
        If no step has this name; the message suggests the nearest ones.

    Examples
    --------
    >>> info("energy").kind, info("energy").needs
    ('score', ('logits',))
    """
    _load_steps()
    record = _STEPS.get(_ALIASES.get(name, name))
    if record is None:
        raise UnknownName.of("score or transform", name, [*_STEPS, *_ALIASES])
    return record


def step_names(kind: StepKind | None = None, needs: Iterable[str] | None = None) -> list[str]:
    """List the registered steps.

    Parameters
    ----------
    kind : {"score", "transform"}, optional
        List steps of this kind only.
    needs : iterable of str, optional
        Fields of outputs; list only the steps that need no others.

    Returns
    -------
    list of str
        Names, in the order of registration.

    Raises
    ------
    UnknownName
        If ``needs`` has a name that is not a field of outputs.

    Examples
    --------
    >>> "energy" in step_names("score", needs=["logits"])
    True
    """
    _load_steps()
    available: set[str] | None = None
    if needs is not None:
        available = set(as_names(needs))
        for name in available:
            if name not in FIELDS:
                raise UnknownName.of("field of outputs", name, FIELDS)
    found = []
    for name, record in _STEPS.items():
        can_run = available is None or available.issuperset(record.needs)
        if kind in (None, record.kind) and can_run:
            found.append(name)
    return found


def _load_steps() -> None:
    """Import the built-in steps, then those of installed packages, on first use."""
    for module in _BUILT_IN:
        import_module(module)
    if not _entry_points:
        _entry_points.append("")  # first, because a plugin may ask for names while it is imported
        _load_entry_points()


def _load_entry_points() -> None:
    """Load the entry points of the group ``twofold.scores``; one that fails is a warning and costs only its scores."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        _entry_points.append(point.name)
        try:
            point.load()
        except Exception as error:
            owner = "an unknown package" if point.dist is None else point.dist.name
            reason = f"{type(error).__name__}: {error}"
            message = f"the scores {point.value} of {owner} cannot be loaded ({reason}); update or uninstall it"
            warnings.warn(message, BrokenPlugin, stacklevel=2)


def load_plugin(module: str) -> None:
    """Import a module that registers scores, transforms or metrics, as ``--plugin`` of the command line does.

    Modules of the current folder are found too, after all installed ones. ``bench run`` passes the names of loaded
    plugins on to the processes that share its work.

    Parameters
    ----------
    module : str
        Dotted name of the module.

    Raises
    ------
    UnknownName
        If there is no such module.
    InvalidInput
        If the module raises an error while it is imported, for example because a name is already registered.

    Examples
    --------
    >>> load_plugin("no_such_module")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    twofold.errors.UnknownName: no module 'no_such_module'; ...
    """
    _load_steps()  # first, so that a plugin cannot take a built-in name
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UnknownName(
                f"no module {module!r}; give the name of a module (without .py) that is installed, on PYTHONPATH or "
                "in the current folder"
            ) from error
        raise InvalidInput(f"the plugin {module} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    if module not in _plugins:
        _plugins.append(module)


def plugins() -> tuple[str, ...]:
    """Return the names of the modules that :func:`load_plugin` imported.

    Returns
    -------
    tuple of str
        Dotted names, in the order of their import.
    """
    return tuple(_plugins)
