"""Scores and transforms as steps of a chain: one registry, one parser, one way to fit, score and save.

A **score** turns :class:`~twofold.outputs.Outputs` into a confidence (N,), higher is safer; a **transform** turns
outputs into outputs. Each is a plain function of arrays, or a frozen dataclass with ``fit`` and ``score`` (or
``apply``) whose learnt arrays are declared by :func:`state`. What a step needs is read from its signature: parameters
named after the fields of outputs (``logits``, ``features``, ``head``, ...), in ``fit`` also those of other sets
(``val_logits``, ``ood_val_features``, ...), or ``outputs`` for a whole set; keyword-only parameters are settings. A
parameter with a default is used if the field is there.

    >>> scorer("energy(temperature=2)").score(Outputs([[2.0, 1.0, 0.1]])).round(6)
    array([3.379555])
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from twofold._checks import Array
from twofold._files import arrays_digest, replacing
from twofold.errors import BrokenPlugin, InvalidInput, LostScale, NameTaken, NotFitted, TwofoldError, UnknownName
from twofold.outputs import FIELDS, Outputs
from twofold.roles import FITTING

T = TypeVar("T", bound=Callable[..., Any])
R = TypeVar("R")
Kind = Literal["score", "transform"]
Judged = Literal["logits", "passes"]
Tuning = Literal["nothing to fit", "fitted on train", "fitted on val", "fitted on ood_val"]
StateKind = Literal["float", "integer", "bool", "byte"]

FORMAT, VERSION = "twofold-chain", "2"
ROWS = 1024  # rows scored at a time
PROJECTIONS = ("global", "class", "class_pred", "class_avg")


@dataclass(frozen=True)
class StateField:
    """Describe what a learnt array of a step may look like; loading rejects anything else.

    Parameters
    ----------
    shape : str or None
        Allowed shapes, in the notation of :func:`state`; None allows any.
    kind : {"float", "integer", "bool", "byte"}
        Kind of numbers.
    optional : bool
        Whether ``fit`` may leave the array empty.
    nan : bool
        Whether the array may hold NaN.
    """

    shape: str | None
    kind: StateKind
    optional: bool
    nan: bool


def state(shape: str | None = None, *, kind: StateKind = "float", optional: bool = False, nan: bool = False) -> Any:
    """Declare a learnt array of a fitted step: empty until ``fit``, stored by ``save``, checked when it is loaded.

    Parameters
    ----------
    shape : str, optional
        Sizes separated by spaces, such as ``"C D"``; ``""`` is a single number. A word stands for the same size in all
        arrays of the step, ``C+1`` for one more, a number for itself; alternatives are separated by ``|``. Without it
        any shape is accepted.
    kind : {"float", "integer", "bool", "byte"}, default="float"
        Kind of numbers; it is checked only if ``shape`` is set.
    optional : bool, default=False
        Whether ``fit`` may leave the array empty.
    nan : bool, default=False
        Whether the array may hold NaN.

    Returns
    -------
    dataclasses.Field
        Default of a field of the step.

    Notes
    -----
    A step that must check more than this, such as a tree without cycles, has a method ``check_state()`` that raises
    InvalidInput.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Centre:
    ...     mean: Array = state("D")
    >>> Centre().mean is None
    True
    """
    return field(default=None, repr=False, metadata={"state": StateField(shape, kind, optional, nan)})


def parts() -> Any:
    """Declare the fitted chains inside a step that combines chains; its method ``inner`` names them before the fit.

    Returns
    -------
    dataclasses.Field
        Default of a field of the step: an empty tuple until ``fit`` puts the fitted chains there.
    """
    return field(default=(), repr=False, metadata={"parts": True})


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
    aliases : tuple of str
        Other names.
    judges : {"logits", "passes"}
        Whose prediction a score judges.
    cost : str
        Cost of scoring one row.
    grid : mapping of str to tuple
        Values of settings that :func:`twofold.tune` tries.
    project : tuple of str or None
        Kinds of the transform ``project`` allowed before a score; None: as its needs allow.
    probabilities : bool
        Whether a score reads the logits only through their softmax.
    """

    name: str
    kind: Kind
    maker: Callable[..., Any]  # the function, or the dataclass
    paper: str
    aliases: tuple[str, ...]
    judges: Judged  # whose prediction a score judges
    cost: str
    grid: Mapping[str, tuple[Any, ...]]  # settings that ``tune`` tries
    project: tuple[str, ...] | None  # kinds of ``project`` allowed before a score; None: as its needs allow
    probabilities: bool  # whether a score reads the logits only through their softmax

    @property
    def fitted(self) -> bool:
        """Whether the step learns from a training set."""
        return hasattr(self.maker, "fit")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings and their defaults."""
        if isinstance(self.maker, FunctionType):
            parameters = inspect.signature(self.maker).parameters.values()
            return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        return {f.name: f.default for f in dataclasses.fields(self.maker) if not f.metadata}  # type: ignore[arg-type]

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that scoring or applying requires; a parameter with a default is used if it is there."""
        return tuple(n for n in _arrays(_call(self.maker), optional=False) if n not in ALWAYS)

    @property
    def fit_needs(self) -> tuple[str, ...]:
        """Arrays that fitting needs; those of other sets carry the prefix ``val_`` or ``ood_val_``."""
        return _arrays(self.maker.fit, optional=False) if self.fitted else ()  # type: ignore[attr-defined]

    @property
    def projections(self) -> tuple[str, ...]:
        """Kinds of ``project`` allowed before this score: not by class where one feature vector per row is needed."""
        if self.project is not None:
            return self.project
        return PROJECTIONS if self.needs == ("logits",) else ("global", "class_pred", "class_avg")

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.maker) or "").splitlines()[0]


ALWAYS = ("predictions", "outputs")  # what all outputs have
_STEPS: dict[str, StepInfo] = {}
_ALIASES: dict[str, str] = {}
_BUILT_IN = (
    "twofold.scores.logits",
    "twofold.scores.distance",
    "twofold.scores.neighbours",
    "twofold.scores.subspace",
    "twofold.scores.regret",
    "twofold.scores.density",
    "twofold.scores.layers",
    "twofold.scores.passes",
    "twofold.scores.learned",
    "twofold.scores.combine",
    "twofold.scores.transforms",
)


ENTRY_POINTS = "twofold.scores"
_found: list[str] = []  # entry points that were loaded, or could not be
_plugins: list[str] = []


def _load() -> None:
    """Import the built-in steps, then those of installed packages, on first use."""
    for module in _BUILT_IN:
        import_module(module)
    if not _found:
        _found.append("")  # first, because a plugin may ask for names while it is imported
        _load_entry_points()


def _load_entry_points() -> None:
    """Load the entry points of the group ``twofold.scores``; one that fails is a warning and costs only its scores."""
    from importlib.metadata import entry_points

    for point in entry_points(group=ENTRY_POINTS):
        _found.append(point.name)
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
    _load()  # first, so that a plugin cannot take a built-in name
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


def register_score(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Judged = "logits",
    cost: str = "",
    grid: Mapping[str, Iterable[Any]] | None = None,
    project: Iterable[str] | None = None,
    probabilities: bool = False,
) -> Callable[[T], T]:
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

    Returns
    -------
    callable
        A decorator.

    Raises
    ------
    NameTaken
        When the decorator is applied, if the name or an alias is already registered.

    Notes
    -----
    What the score needs is read from its signature; see :mod:`twofold.scores.chain`.
    """
    kinds = None if project is None else tuple(project)
    tried = {setting: tuple(values) for setting, values in (grid or {}).items()}
    return lambda maker: _enter(
        StepInfo(name, "score", maker, paper, tuple(aliases), judges, cost, tried, kinds, probabilities)
    )


def register_transform(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Judged = "logits",
    cost: str = "",
    grid: Mapping[str, Iterable[Any]] | None = None,
) -> Callable[[T], T]:
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
    """
    tried = {setting: tuple(values) for setting, values in (grid or {}).items()}
    return lambda maker: _enter(
        StepInfo(name, "transform", maker, paper, tuple(aliases), judges, cost, tried, None, False)
    )


def _enter(record: StepInfo) -> Any:
    for taken in (record.name, *record.aliases):
        if taken in _STEPS or taken in _ALIASES:
            raise NameTaken(f"a step named {taken!r} is registered already")
    _STEPS[record.name] = record
    _ALIASES.update(dict.fromkeys(record.aliases, record.name))
    return record.maker


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
    _load()
    record = _STEPS.get(_ALIASES.get(name, name))
    if record is None:
        raise UnknownName.of("score or transform", name, [*_STEPS, *_ALIASES])
    return record


def names(kind: Kind | None = None, needs: Iterable[str] | None = None) -> list[str]:
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
    >>> "energy" in names("score", needs=["logits"])
    True
    """
    _load()
    given = None if needs is None else {needs} if isinstance(needs, str) else set(needs)
    for field_name in given or ():
        if field_name not in FIELDS:
            raise UnknownName.of("field of outputs", field_name, FIELDS)
    return [
        n for n, s in _STEPS.items() if (kind is None or s.kind == kind) and (given is None or set(s.needs) <= given)
    ]


def _call(maker: Callable[..., Any]) -> Callable[..., Any]:
    """Return what turns arrays into the result: the function itself, or the method ``score`` or ``apply``."""
    if isinstance(maker, FunctionType):
        return maker
    return maker.score if hasattr(maker, "score") else maker.apply  # type: ignore[attr-defined]


def _arrays(function: Callable[..., Any], *, optional: bool) -> tuple[str, ...]:
    """Return the names of the arrays a function takes: positional parameters, with a default only if ``optional``."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and (optional or p.default is p.empty))


# Chains


def scorer(spec: str | Chain, **settings: Any) -> Chain:
    """Build the chain that a text such as ``"react(percentile=90)|energy"`` describes.

    Steps are separated by ``|`` and run from left to right: transforms, then one score. Settings are Python literals,
    passed by name; a ``|`` inside quotes or brackets does not separate.

    Parameters
    ----------
    spec : str or Chain
        The text; a chain is returned as it is, or rebuilt, not fitted, with further ``settings``.
    **settings
        Further settings of the score. They may be objects, such as an index for ``knn``; a chain with such an object
        cannot be saved.

    Returns
    -------
    Chain
        The chain, not fitted yet.

    Raises
    ------
    InvalidInput
        If the text cannot be parsed, a setting is unknown, or the steps do not go together.
    UnknownName
        If no step has a name of the text.

    Examples
    --------
    >>> scorer("energy").spec, scorer("temperature( value = 2.0 ) | msp").spec
    ('energy', 'temperature(value=2.0)|msp')
    """
    if isinstance(spec, Chain):
        return scorer(spec.spec, **settings) if settings else spec
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidInput(f'a chain is a text such as "react(percentile=90)|energy", got {spec!r}')
    *before, last = (_parse(part, spec) for part in _split(spec))
    last = Step.make(last.info, {**last.settings, **settings})
    for step in before:
        if step.info.kind != "transform":
            raise InvalidInput(f"{step.info.name} in {spec!r} is a score; only the last step may be one")
    if last.info.kind != "score":
        raise InvalidInput(f"{spec!r} ends with the transform {last.info.name}; add a score, such as |energy")
    for step in before:
        kind = step.setting("kind") if step.info.name == "project" else None
        if kind in PROJECTIONS and kind not in last.info.projections:
            allowed = " or ".join(repr(k) for k in last.info.projections) or "nothing: it takes features as they are"
            raise InvalidInput(f"project(kind={kind!r}) cannot stand before {last.info.name}, which allows {allowed}")
    return Chain((*before, last))


def _split(spec: str) -> list[str]:
    """Split at every ``|`` that is not inside quotes or brackets."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(spec):
        if quote:
            quote = "" if c == quote and spec[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "|" and depth == 0:
            parts.append(spec[start:i])
            start = i + 1
    return [*parts, spec[start:]]


def _parse(text: str, spec: str) -> Step:
    """Parse one step: a name, optionally with settings in brackets."""
    hint = f'{text.strip()!r} in {spec!r} must be a name or name(setting=value), such as "react(percentile=90)"'
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # those of NUL bytes and deep nesting
        raise InvalidInput(hint) from error
    if isinstance(tree, ast.Name):
        return Step.make(info(tree.id), {})
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise InvalidInput(hint)
    settings: dict[str, Any] = {}
    if tree.args:  # mc(knn) is short for mc(of="knn")
        if len(tree.args) > 1 or "of" not in info(tree.func.id).settings:
            raise InvalidInput(hint)
        tree.keywords.insert(0, ast.keyword("of", _quoted(tree.args[0])))
    for keyword in tree.keywords:
        try:
            settings[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
            raise InvalidInput(f"{hint}; values must be Python literals") from error
    return Step.make(info(tree.func.id), settings)


def _quoted(node: ast.expr) -> ast.expr:
    """Turn a bare name into the text it spells."""
    return ast.Constant(node.id) if isinstance(node, ast.Name) else node


@dataclass(frozen=True, eq=False)
class Step:
    """Hold a step with its settings and, once fitted, its learnt arrays.

    Parameters
    ----------
    info : StepInfo
        Record of the step.
    settings : mapping of str to object
        Settings that differ from the defaults, by name.
    learnt : object, optional
        The fitted dataclass; None before the fit, and for functions.
    saw : frozenset of str, default=frozenset()
        Sets that fitting used: ``train``, ``val``, ``ood_val``.
    """

    info: StepInfo
    settings: Mapping[str, Any]
    learnt: Any = None  # the fitted dataclass
    saw: frozenset[str] = frozenset()  # the sets that fitting used

    @classmethod
    def make(cls, record: StepInfo, settings: Mapping[str, Any]) -> Step:
        """Create a step, checking the names of the settings; the step itself checks their values when it runs.

        Parameters
        ----------
        record : StepInfo
            Record of the step.
        settings : mapping of str to object
            Settings by name.

        Returns
        -------
        Step
            The step, not fitted.

        Raises
        ------
        InvalidInput
            If the step has no setting of that name; the message suggests the nearest ones.
        """
        for name in settings:
            if name not in record.settings:
                problem = UnknownName.of("setting", name, record.settings or ["(none)"])
                raise InvalidInput(f"{record.name}: {problem}")
        return cls(record, dict(settings))

    @property
    def spec(self) -> str:
        """The step as text."""
        inside = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        return f"{self.info.name}({inside})" if inside else self.info.name

    def setting(self, name: str) -> Any:
        """Return the value of a setting, or its default.

        Parameters
        ----------
        name : str
            Name of the setting.

        Returns
        -------
        object
            The value; None for a setting that the step does not have.

        Examples
        --------
        >>> scorer("energy(temperature=2)").steps[0].setting("temperature")
        2
        """
        return self.settings.get(name, self.info.settings.get(name))

    @property
    def bound(self) -> Any:
        """The step as an object: the fitted one, or one built from the settings."""
        return self.learnt if self.learnt is not None else self.info.maker(**self.settings)

    @property
    def inner(self) -> tuple[Chain, ...]:
        """Chains that this step combines; empty for most steps."""
        return tuple(self.bound.inner()) if hasattr(self.info.maker, "inner") else ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that the step needs, including those of the chains inside it."""
        if hasattr(self.info.maker, "needs"):
            return tuple(self.bound.needs())
        inside = (name for chain in self.inner for name in chain.needs)
        return tuple(dict.fromkeys((*self.info.needs, *inside)))

    @property
    def wants(self) -> tuple[str, ...]:
        """Fields that fitting and running the step read; all of them where it takes whole outputs."""
        asked = _arrays(self.info.maker.fit, optional=True) if self.info.fitted else ()  # type: ignore[attr-defined]
        fields = [_origin(name)[1] for name in asked]
        return FIELDS if "outputs" in fields else (*self.needs, *fields)

    @property
    def judges(self) -> Judged:
        """Whose prediction the step judges: ``logits`` or ``passes``."""
        return "passes" if any(chain.judges == "passes" for chain in self.inner) else self.info.judges

    @property
    def ready(self) -> bool:
        """Whether the step can run: it needs no fit, or has been fitted."""
        return self.learnt is not None or not self.info.fitted

    def fit(self, sets: Mapping[str, Outputs | None]) -> Step:
        """Fit the step; arrays are taken from the sets by parameter name.

        Parameters
        ----------
        sets : mapping of str to Outputs or None
            Outputs by ``train``, ``val`` and ``ood_val``. Without ``val``, parameters ``val_...`` are taken from train.

        Returns
        -------
        Step
            The fitted step; a step that does not learn is returned as it is.

        Raises
        ------
        InvalidInput
            If a required set or field is missing, or values are so large that their squares overflow.
        """
        if not self.info.fitted:
            return self
        fit = self.info.maker.fit  # type: ignore[attr-defined]
        blank = self.info.maker(**self.settings)
        required, arrays, saw = self.info.fit_needs, {}, set()
        unused = blank.unused() if hasattr(blank, "unused") else ()
        for name in _arrays(fit, optional=True):
            if name in unused:
                continue
            which, field_name = _origin(name)
            if which == "val" and sets["val"] is None:
                which = "train"
            value = _taken(self.info, which, field_name, sets[which], required=name in required)
            if value is not None:
                arrays[name] = value
                saw.add(which)
        learnt = _in_order(_guarded(self.info.name, arrays, lambda: fit(blank, **arrays)))
        done = dataclasses.replace(self, learnt=learnt)
        if done.inner:
            saw = {which for chain in done.inner for which in chain.saw}
        return dataclasses.replace(done, saw=frozenset(saw))

    def arrays(self, outputs: Outputs) -> dict[str, Any]:
        """Collect what the step takes from outputs, by parameter name.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model.

        Returns
        -------
        dict of str to object
            Arguments of the function, or of ``score`` or ``apply``.

        Raises
        ------
        InvalidInput
            If a field that the step needs is missing.
        """
        arrays = {name: _field(self.info, name, outputs) for name in self.info.needs}
        for name in _arrays(_call(self.info.maker), optional=True):
            arrays.setdefault(name, outputs if name == "outputs" else getattr(outputs, name))
        return arrays

    def run(self, outputs: Outputs, wanted: Iterable[str] = FIELDS) -> Any:
        """Run the step on outputs.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model.
        wanted : iterable of str, default=FIELDS
            Fields that later steps read; a transform may skip the others.

        Returns
        -------
        ndarray of shape (N,) or mapping
            Confidences of a score; changed fields of a transform, by name.

        Raises
        ------
        NotFitted
            If the step learns and has not been fitted.
        InvalidInput
            If a field that the step needs is missing, the learnt arrays are for outputs of other sizes, or values are
            so large that their squares overflow.
        """
        if not self.ready:
            raise NotFitted(f"{self.info.name} is not fitted; call .fit(train) on the chain first")
        arrays, call = self.arrays(outputs), _call(self.info.maker)
        if isinstance(self.info.maker, FunctionType):
            return _guarded(self.info.name, arrays, lambda: call(**arrays, **self.settings))
        extra = {"wanted": frozenset(wanted)} if "wanted" in inspect.signature(call).parameters else {}
        try:
            return _guarded(self.info.name, arrays, lambda: call(self.bound, **arrays, **extra))
        except (ValueError, IndexError) as error:
            self._raise_misfit(arrays, error)
            raise

    def _raise_misfit(self, arrays: Mapping[str, Any], error: Exception) -> None:
        """Turn an error of NumPy about shapes into one that compares the learnt arrays with those of the outputs."""
        if self.learnt is None or isinstance(error, TwofoldError):
            return
        learnt = ", ".join(f"{name} {array.shape}" for name, array in self.tensors().items())
        came = ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if isinstance(array, np.ndarray))
        raise InvalidInput(
            f"{self.info.name} does not fit these outputs: it learnt arrays of shape {learnt}; "
            f"the outputs have {came or 'others'}; score outputs of the model that it was fitted on"
        ) from error

    def tensors(self) -> dict[str, Array]:
        """Return the learnt arrays by name, including those of the chains inside.

        Returns
        -------
        dict of str to ndarray
            Copies in C order; empty before the fit. Arrays of the i-th inner chain have the prefix ``i.``.

        Examples
        --------
        >>> scorer("energy").steps[0].tensors()
        {}
        """
        found: dict[str, Array] = {}
        if self.learnt is None:
            return found
        for f in dataclasses.fields(self.learnt):
            value = getattr(self.learnt, f.name)
            if f.metadata.get("state") and value is not None:
                found[f.name] = np.array(value, order="C")  # keeps scalars scalar
            elif f.metadata.get("parts"):
                found |= {f"{i}.{name}": a for i, chain in enumerate(value) for name, a in chain.tensors().items()}
        return found

    def restored(self, tensors: Mapping[str, Array]) -> Step:
        """Build the step with the learnt arrays that :meth:`tensors` returned.

        Parameters
        ----------
        tensors : mapping of str to ndarray
            Arrays by name.

        Returns
        -------
        Step
            The fitted step.

        Raises
        ------
        InvalidInput
            If an array is missing, unknown, or does not have the declared kind and shape.
        """
        left = set(tensors)
        if not self.info.fitted:
            _refuse_unknown(self.info.name, left)
            return self
        learnt: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for f in dataclasses.fields(self.info.maker):  # type: ignore[arg-type]
            if f.metadata.get("parts"):
                inside = []
                for i, chain in enumerate(self.inner):
                    own = _under(tensors, i)
                    left -= {f"{i}.{name}" for name in own}
                    inside.append(chain.restored(own))
                learnt[f.name] = tuple(inside)
            elif f.metadata.get("state"):
                where = f"{self.info.name}: {f.name}"
                declared: StateField = f.metadata["state"]
                if f.name in tensors:
                    _check_state(tensors[f.name], declared, sizes, where)
                    learnt[f.name] = tensors[f.name]
                    left.remove(f.name)
                elif not declared.optional:
                    raise InvalidInput(f"{where} is missing")
        _refuse_unknown(self.info.name, left)
        made = self.info.maker(**self.settings, **learnt)
        if hasattr(made, "check_state"):
            try:
                made.check_state()
            except InvalidInput as error:
                raise InvalidInput(f"{self.info.name}: {error}") from error
        return dataclasses.replace(self, learnt=made)


KINDS = {"float": "f", "integer": "iu", "bool": "b", "byte": "u"}  # NumPy's dtype kinds for each kind of StateField


def _check_state(array: Array, declared: StateField, sizes: dict[str, int], where: str) -> None:
    """Raise unless a loaded array has the declared kind and shape; ``sizes`` collects what the words stand for."""
    if declared.shape is not None:
        if array.dtype.kind not in KINDS[declared.kind]:
            raise InvalidInput(f"{where} must hold numbers of the kind {declared.kind}, got {array.dtype}")
        alternatives = declared.shape.split("|")
        if not any(_matches(array.shape, shape.split(), sizes) for shape in alternatives):
            wanted = " or ".join(f"({', '.join(shape.split())})" for shape in alternatives)
            known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
            raise InvalidInput(f"{where} must have shape {wanted}{known and f' with {known}'}, got {array.shape}")
    if not declared.nan and array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidInput(f"{where} holds NaN")


def _matches(shape: tuple[int, ...], wanted: list[str], sizes: dict[str, int]) -> bool:
    """Check whether a shape is as wanted; if so, words that were not known before get their sizes."""
    if len(shape) != len(wanted):
        return False
    found = dict(sizes)
    for size, text in zip(shape, wanted, strict=True):
        word, _, more = text.partition("+")
        base = size - int(more or 0)
        known = int(word) if word.isdigit() else found.setdefault(word, base)
        if base != known or base < 0:
            return False
    sizes.update(found)
    return True


def _refuse_unknown(name: str, left: set[str]) -> None:
    if left:
        raise InvalidInput(f"{name} has no array {min(left)!r}")


HUGE = 1e16  # beyond this, squares and products of features may leave float32, and further on float64


def _guarded(name: str, arrays: Mapping[str, Any], compute: Callable[[], R]) -> R:
    """Compute, and turn an overflow into one error where the input values are huge."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            return compute()
    except (FloatingPointError, np.linalg.LinAlgError, ValueError) as error:
        if isinstance(error, TwofoldError):
            raise
        _refuse_huge(name, arrays.values())
        if not isinstance(error, FloatingPointError):
            raise
    return compute()  # the inputs are ordinary: compute again, with the warnings of the step itself


def _refuse_huge(name: str, values: Iterable[Any]) -> None:
    """Raise if arrays hold numbers whose squares cannot be computed."""
    for value in values:
        if isinstance(value, Outputs):
            _refuse_huge(name, [value.logits, value.features, value.layers])
        elif isinstance(value, Mapping):
            _refuse_huge(name, value.values())
        elif isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            most = max(float(value.max()), -float(value.min()))
            if most > HUGE:
                raise InvalidInput(
                    f"{name} cannot be computed: it was given values up to {most:.3g}, whose squares overflow; "
                    "scale the features down, the same for all data sets"
                )


def _in_order(learnt: Any) -> Any:
    """Put the learnt arrays into the layout in which they are saved, so that loading them changes no bit of a score."""
    arrays = {f.name: getattr(learnt, f.name) for f in dataclasses.fields(learnt) if f.metadata.get("state")}
    return dataclasses.replace(learnt, **{n: np.asarray(a, order="C") for n, a in arrays.items() if a is not None})


def _under(tensors: Mapping[str, Array], place: int) -> dict[str, Array]:
    """Select the arrays whose name begins with this number, and remove it from their names."""
    start = f"{place}."
    return {name.removeprefix(start): array for name, array in tensors.items() if name.startswith(start)}


def _origin(name: str) -> tuple[str, str]:
    """Return the set and the field that a parameter of ``fit`` names."""
    for prefix in ("ood_val", "val"):
        if name.startswith(prefix + "_"):
            return prefix, name.removeprefix(prefix + "_")
    return "train", name


def _field(record: StepInfo, name: str, outputs: Outputs) -> Any:
    """Return one field of outputs, or raise an error that says what the step needs and what there is."""
    value = getattr(outputs, name, None)
    if value is None or (name in ("layers", "learned") and not value):
        have = [f for f in FIELDS if f not in ("predictions", "class_names", "ids", "groups")]
        there = [f for f in have if (v := getattr(outputs, f)) is not None and not (isinstance(v, Mapping) and not v)]
        needed = " and ".join(record.needs)
        raise InvalidInput(f"{record.name} needs {needed}; these outputs have {' and '.join(there)} only")
    return value


def _taken(record: StepInfo, which: str, name: str, outputs: Outputs | None, *, required: bool) -> Any:
    """Return an array of one set for ``fit``; a missing required array is an error."""
    value = outputs if outputs is None or name == "outputs" else getattr(outputs, name)
    if value is None and required:
        if outputs is None:
            raise InvalidInput(f"{record.name} is fitted on {which}; pass {which}= to fit")
        raise InvalidInput(f"fitting {record.name} needs {name}, and the {which} outputs have none")
    return value


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """Run transforms and a score from left to right; create a chain with :func:`scorer`.

    Parameters
    ----------
    steps : tuple of Step
        Transforms, then one score.
    tuned : str, default="nothing to fit"
        What fitting used: ``"nothing to fit"``, or ``"fitted on train"``, ``"fitted on val"`` or ``"fitted on
        ood_val"`` for the most revealing set.
    searched : {"", "val", "ood_val"}, default=""
        Set on which :func:`twofold.tune` chose the settings; empty if it did not.

    Examples
    --------
    >>> chain = scorer("klm").fit(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1]))
    >>> chain
    Chain('klm', fitted on train)
    >>> chain.score(Outputs([[2.0, 1.0]])).shape
    (1,)
    """

    steps: tuple[Step, ...]
    tuned: Tuning = "nothing to fit"  # the most revealing set that fitting used
    searched: Literal["", "val", "ood_val"] = ""  # the set on which tune chose the settings

    @property
    def spec(self) -> str:
        """The chain as text, which :func:`scorer` reads."""
        return "|".join(step.spec for step in self.steps)

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"Chain({self.spec!r}, {self.tuned if self.ready else 'not fitted'})"

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that scoring needs."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.needs))

    @property
    def judges(self) -> Judged:
        """Whose prediction the score judges: the argmax of the logits, or of the mean probabilities of the passes."""
        return "passes" if any(step.judges == "passes" for step in self.steps) else "logits"

    @property
    def ready(self) -> bool:
        """Whether every step can run."""
        return all(step.ready for step in self.steps)

    @property
    def saw(self) -> frozenset[str]:
        """Sets that fitting used."""
        return frozenset(which for step in self.steps for which in step.saw)

    @property
    def label(self) -> Literal["untuned", "ID-tuned", "OOD-tuned"]:
        """Whether settings or weights were chosen on OOD inputs (``OOD-tuned``), on ID ones (``ID-tuned``), or not."""
        if self.searched == "ood_val" or self.tuned == "fitted on ood_val":
            return "OOD-tuned"
        return "ID-tuned" if self.searched == "val" else "untuned"

    def fit(self, train: Outputs, *, val: Outputs | None = None, ood_val: Outputs | None = None) -> Chain:
        """Fit every step and return a new chain; each transform is applied to every set before the next step.

        Parameters
        ----------
        train : Outputs
            Training set. Rows labelled -1 are left out.
        val : Outputs, optional
            Validation set, without OOD rows; steps that prefer it use ``train`` if it is missing. Rows labelled -1 are
            left out.
        ood_val : Outputs, optional
            OOD validation set, for steps that learn from OOD inputs.

        Returns
        -------
        Chain
            The fitted chain; its ``tuned`` says what was used. A chain with nothing to learn returns an equal one.

        Raises
        ------
        InvalidInput
            If a set has no ID row, or lacks a field that a step learns from, or a step needs ``ood_val`` and it is
            missing.

        Notes
        -----
        Arrays that a transform changed are held in memory until the fit is done.

        Examples
        --------
        >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
        >>> scorer("klm").fit(train).tuned
        'fitted on train'
        """
        sets: dict[str, Outputs | None] = {
            "train": known(train),
            "val": None if val is None else known(val),
            "ood_val": ood_val,
        }
        fitted: list[Step] = []
        for i, step in enumerate(self.steps):
            done = step.fit(sets)
            fitted.append(done)
            if any(later.info.fitted for later in self.steps[i + 1 :]):
                wanted = {name for later in self.steps[i + 1 :] for name in later.wants}
                sets = {name: None if o is None else o.derived(done.run(o, wanted)) for name, o in sets.items()}
        saw = {which for step in fitted for which in step.saw}
        label: Tuning = "nothing to fit"
        for name in FITTING:
            if name in saw:
                label = f"fitted on {name}"  # type: ignore[assignment]
        return Chain(tuple(fitted), label, self.searched)

    def score(self, outputs: Outputs) -> Array:
        """Compute the confidence of every row, a block of rows at a time.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model that the chain was fitted on.

        Returns
        -------
        ndarray of shape (N,)
            Confidences, float64; higher is safer to accept.

        Raises
        ------
        NotFitted
            If a step learns and has not been fitted.
        InvalidInput
            If the outputs lack a field that a step needs, or a confidence is NaN.

        Warns
        -----
        LostScale
            If the score reads the scale of the logits, and these come from probabilities.

        Examples
        --------
        >>> scorer("energy").score(Outputs([[2.0, 1.0, 0.1]])).round(4)
        array([2.417])
        """
        return score_all([self], outputs)[0]

    def run(self, outputs: Outputs) -> Array:
        """Compute the confidences of all rows at once, without the checks of :meth:`score`.

        Parameters
        ----------
        outputs : Outputs
            Outputs of the model that the chain was fitted on.

        Returns
        -------
        ndarray of shape (N,)
            Confidences, float64; NaN is passed on.

        Raises
        ------
        NotFitted
            If a step learns and has not been fitted.
        InvalidInput
            If the outputs lack a field that a step needs.
        """
        for i, step in enumerate(self.steps[:-1]):
            wanted = {name for later in self.steps[i + 1 :] for name in later.needs}
            outputs = outputs.derived(step.run(outputs, wanted))
        return np.asarray(self.steps[-1].run(outputs), dtype=np.float64)

    def tensors(self) -> dict[str, Array]:
        """Return the learnt arrays of all steps.

        Returns
        -------
        dict of str to ndarray
            Arrays by position of the step and name, such as ``0.means``.

        Examples
        --------
        >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
        >>> {name: array.shape for name, array in scorer("klm").fit(train).tensors().items()}
        {'0.log_typical': (2, 2)}
        """
        return {f"{i}.{name}": a for i, step in enumerate(self.steps) for name, a in step.tensors().items()}

    def restored(self, tensors: Mapping[str, Array]) -> Chain:
        """Build the chain with the learnt arrays that :meth:`tensors` returned.

        Parameters
        ----------
        tensors : mapping of str to ndarray
            Arrays by position of the step and name.

        Returns
        -------
        Chain
            The fitted chain.

        Raises
        ------
        InvalidInput
            If an array is missing, unknown, or does not have the declared kind and shape.
        """
        places = {str(i) for i in range(len(self.steps))}
        _refuse_unknown(self.spec, {name for name in tensors if name.partition(".")[0] not in places})
        steps = tuple(step.restored(_under(tensors, i)) for i, step in enumerate(self.steps))
        return dataclasses.replace(self, steps=steps)

    def save(self, path: str | Path) -> None:
        """Write the fitted chain to one safetensors file: text and digest in its header, learnt arrays as tensors.

        Parameters
        ----------
        path : str or Path
            The file to write; an existing file is replaced atomically.

        Raises
        ------
        NotFitted
            If a step that learns has not been fitted.
        InvalidInput
            If a setting is an object, which a file cannot hold.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     scorer("energy(temperature=2)").save(f"{folder}/energy.safetensors")
        ...     load_chain(f"{folder}/energy.safetensors")
        Chain('energy(temperature=2)', nothing to fit)
        """
        from safetensors.numpy import save

        if not self.ready:
            raise NotFitted(f"{self.spec} is not fitted; call .fit(train) before .save(path)")
        try:
            scorer(self.spec)
        except InvalidInput as error:
            raise InvalidInput(
                f"{self.spec} holds an object of yours, which is not saved; save your own object"
            ) from error
        arrays = self.tensors()
        header = {
            "format": FORMAT,
            "version": VERSION,
            "spec": self.spec,
            "tuned": self.tuned,
            "searched": self.searched,
        }
        header["sha256"] = arrays_digest(arrays, header)
        with replacing(Path(path)) as file:
            file.write(save(arrays, metadata=header))


def known(outputs: Outputs) -> Outputs:
    """Select the rows with a class of the model: those not labelled -1.

    Parameters
    ----------
    outputs : Outputs
        Outputs, with labels or without.

    Returns
    -------
    Outputs
        ID rows; all rows without labels.

    Raises
    ------
    InvalidInput
        If this is not :class:`~twofold.outputs.Outputs`, or every label is -1.

    Examples
    --------
    >>> known(Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, -1]))
    Outputs(1 rows, 2 classes; labels)
    """
    if not isinstance(outputs, Outputs):
        raise InvalidInput(f"fit takes Outputs(logits, ...), got {type(outputs).__name__}")
    if outputs.labels is None or outputs.is_id.all():
        return outputs
    if not outputs.is_id.any():
        raise InvalidInput("labels must name a class for at least one row to fit on; all are -1")
    return outputs[np.flatnonzero(outputs.is_id)]


def fit_all(
    specs: Iterable[str | Chain], train: Outputs, *, val: Outputs | None = None, ood_val: Outputs | None = None
) -> list[Chain]:
    """Fit several chains on the same sets; what several of them need of a set is computed once.

    Parameters
    ----------
    specs : iterable of str or Chain
        The chains, as :func:`scorer` takes them.
    train : Outputs
        Training set.
    val : Outputs, optional
        Validation set, without OOD rows.
    ood_val : Outputs, optional
        OOD validation set.

    Returns
    -------
    list of Chain
        Fitted chains, in the order of ``specs``.

    Raises
    ------
    InvalidInput
        If a chain cannot be fitted on these sets.
    UnknownName
        If no step has a name of a text.

    Examples
    --------
    >>> train = Outputs([[2.0, 1.0], [0.0, 1.0]], labels=[0, 1])
    >>> [chain.tuned for chain in fit_all(["msp", "klm"], train)]
    ['nothing to fit', 'fitted on train']
    """
    train, val = known(train), None if val is None else known(val)
    return [scorer(spec).fit(train, val=val, ood_val=ood_val) for spec in specs]


def reads_scale(chain: Chain, outputs: Outputs) -> bool:
    """Check whether a score changes when a constant is added to all logits of a row.

    Parameters
    ----------
    chain : Chain
        A chain that needs no fit, or is fitted.
    outputs : Outputs
        Outputs that the chain can score; the first 8 rows are tried.

    Returns
    -------
    bool
        True for scores such as energy and mls, False for all scores of probabilities.

    Examples
    --------
    >>> outputs = Outputs([[2.0, 1.0], [0.5, 0.0]])
    >>> reads_scale(scorer("energy"), outputs), reads_scale(scorer("msp"), outputs)
    (True, False)
    """
    few = outputs[: min(8, len(outputs))]
    moved = few.derived({"logits": few.logits.astype(np.float64) + 3.0})
    try:
        before, after = chain.run(few), chain.run(moved)
    except TwofoldError:  # scoring says what is wrong
        return False
    return not np.allclose(before, after, rtol=1e-5, atol=1e-8)


def warn_of_lost_scale(chains: Iterable[Chain], outputs: Outputs) -> None:
    """Warn of scores that read the scale of the logits, where the logits come from probabilities.

    Parameters
    ----------
    chains : iterable of Chain
        The scores; those that are not fitted are skipped.
    outputs : Outputs
        Outputs to be scored.

    Warns
    -----
    LostScale
        If a score is affected; the message lists all of them.
    """
    if not outputs.is_scale_lost:
        return
    affected = [chain.spec for chain in chains if chain.ready and reads_scale(chain, outputs)]
    if affected:
        message = (
            f"{', '.join(affected)}: these outputs are probabilities, which have lost the scale of the logits that the "
            "score reads; use logits, or a score of probabilities such as msp, entropy or gen"
        )
        warnings.warn(message, LostScale, stacklevel=3)


def score_all(chains: Iterable[Chain], outputs: Outputs) -> list[Array]:
    """Compute the confidences of several chains, a block of rows at a time.

    Memory stays small and each row is read once. Chains that can share work do: one neighbour search serves every
    ``knn(k=)``.

    Parameters
    ----------
    chains : iterable of Chain
        Chains that need no fit, or are fitted.
    outputs : Outputs
        Outputs of the model.

    Returns
    -------
    list of ndarray of shape (N,)
        Confidences of each chain, float64; higher is safer to accept.

    Raises
    ------
    NotFitted
        If a step learns and has not been fitted.
    InvalidInput
        If the outputs lack a field that a step needs, a confidence is NaN, or values are so large that a score
        overflows.

    Warns
    -----
    LostScale
        If a score reads the scale of the logits, and these come from probabilities.

    Examples
    --------
    >>> [conf.round(3) for conf in score_all([scorer("mls"), scorer("energy")], Outputs([[2.0, 1.0]]))]
    [array([2.]), array([2.313])]
    """
    if not isinstance(outputs, Outputs):
        raise InvalidInput(f"score takes Outputs(logits, ...), got {type(outputs).__name__}")
    several = list(chains)
    warn_of_lost_scale(several, outputs)
    results = [np.empty(len(outputs)) for _ in several]
    groups = _together(several)
    first = 0
    for block in outputs.blocks(ROWS) if len(outputs) > ROWS else (outputs,):
        for members in groups:
            last = several[members[0]].steps[-1]
            if len(members) > 1:
                bound = [several[i].steps[-1].bound for i in members]
                found = _together_scores(last, bound, last.arrays(block))
            else:
                found = [several[members[0]].run(block)]
            for i, conf in zip(members, found, strict=True):
                if np.isnan(conf).any():
                    row = first + int(np.isnan(conf).argmax())
                    _refuse_huge(several[i].spec, [block])
                    raise InvalidInput(
                        f"{several[i].spec} has no value in row {row}; look at what its formula needs there"
                    )
                if np.isinf(conf).any():
                    _refuse_huge(several[i].spec, [block])
                results[i][first : first + len(block)] = conf
        first += len(block)
    return results


def _together_scores(step: Step, bound: list[Any], arrays: Mapping[str, Any]) -> list[Array]:
    """Compute the scores of several settings of one step by one call."""
    together: Callable[..., list[Array]] = step.info.maker.together  # type: ignore[attr-defined]
    try:
        return _guarded(step.info.name, arrays, lambda: together(bound, **arrays))
    except (ValueError, IndexError) as error:
        step._raise_misfit(arrays, error)
        raise


def _together(chains: list[Chain]) -> list[list[int]]:
    """Group the positions of chains that one call can score: single ready steps of one kind that offer ``together``."""
    groups: dict[Any, list[int]] = {}
    for i, chain in enumerate(chains):
        maker = chain.steps[0].info.maker
        shares = len(chain.steps) == 1 and chain.ready and hasattr(maker, "together")
        groups.setdefault(maker if shares else i, []).append(i)
    return list(groups.values())


def load_chain(path: str | Path) -> Chain:
    """Read a chain that :meth:`Chain.save` wrote; its scores are equal to the last bit.

    Parameters
    ----------
    path : str or Path
        The file to read.

    Returns
    -------
    Chain
        The fitted chain.

    Raises
    ------
    InvalidInput
        If the file is missing, damaged (its digest does not fit), of another format, or does not hold exactly the
        arrays that its steps learn, in their shapes.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scorer("msp").save(f"{folder}/msp.safetensors")
    ...     load_chain(f"{folder}/msp.safetensors").spec
    'msp'
    """
    arrays, header = _read_chain(path)
    if header["tuned"] not in get_args(Tuning) or header["searched"] not in ("", "val", "ood_val"):
        raise InvalidInput(f"{path} was not written by Chain.save: its header has unknown values; save the chain again")
    try:
        restored = scorer(header["spec"]).restored(arrays)
    except (InvalidInput, UnknownName) as error:
        raise InvalidInput(f"{path} cannot be loaded: {error}; save the chain again") from error
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:  # settings of a forged file
        raise InvalidInput(f"{path} was not written by Chain.save: its settings do not fit; save it again") from error
    return dataclasses.replace(restored, tuned=header["tuned"], searched=header["searched"])  # type: ignore[arg-type]


def _read_chain(path: str | Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read the arrays and the header of a saved chain, and check that they are unchanged since they were written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; write a chain with Chain.save") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); give the file of a saved chain") from error
    try:
        header = _header(raw)
        arrays = load(raw)
    except (SafetensorError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InvalidInput(f"{path} is damaged or no saved chain ({reason}); save it again") from error
    if header.get("format") == "twofold-chain-1":
        raise InvalidInput(f"{path} is of the older format without a digest; write it again with Chain.save")
    if header.get("format") != FORMAT:
        raise InvalidInput(f"{path} is no saved chain; write one with Chain.save")
    if header.get("version") != VERSION:
        raise InvalidInput(
            f"{path} has another format version than {VERSION}, which this twofold reads; save the chain again, "
            "or update with: pip install -U twofold"
        )
    digest = header.pop("sha256", None)
    if digest != arrays_digest(arrays, header):
        raise InvalidInput(f"{path} is damaged: its SHA-256 is not the one in its header; restore it or save it again")
    if set(header) != {"format", "version", "spec", "tuned", "searched"}:
        raise InvalidInput(f"{path} was not written by Chain.save: its header has other fields; save the chain again")
    return arrays, header


def _header(raw: bytes) -> dict[str, str]:
    """Return the texts in the header of a safetensors file."""
    size = int.from_bytes(raw[:8], "little")
    content = json.loads(raw[8 : 8 + size])
    return dict(content.get("__metadata__") or {})
