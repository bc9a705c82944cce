"""One step of a chain: a registered score or transform with its settings and, once fitted, its learnt arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from twofold.errors import InvalidInput, NotFitted, TwofoldError, UnknownName
from twofold.outputs import FIELDS, Outputs
from twofold.scores.overflow import guard_overflow
from twofold.scores.registry import Judged, StepInfo, array_parameters
from twofold.scores.tensors import (
    check_array_setting,
    collect_arrays,
    is_array_like,
    make_contiguous,
    reject_unknown,
    restore_settings,
    restore_step,
)
from twofold.typing import Array, StepHooks

if TYPE_CHECKING:
    from twofold.scores.chain import Chain

R = TypeVar("R")
NOT_DATA = ("predictions", "class_names", "ids", "groups")  # fields that no error message has to list


@dataclass(frozen=True, eq=False)
class ChainStep:
    """Hold a step with its settings and, once fitted, its learnt arrays.

    Parameters
    ----------
    info : StepInfo
        Record of the step.
    settings : mapping of str to object
        Settings that differ from the defaults, by name.
    learnt : object, optional
        The fitted dataclass; None before the fit, and for functions.
    sets_used : frozenset of str, default=frozenset()
        Sets that fitting used: ``train``, ``val``, ``ood_val``. Empty for a step that was loaded from a file.
    """

    info: StepInfo
    settings: Mapping[str, object]
    learnt: Any = None
    sets_used: frozenset[str] = frozenset()

    @classmethod
    def make(cls, record: StepInfo, settings: Mapping[str, object]) -> ChainStep:
        """Create a step, checking the names of the settings; the step itself checks their values when it runs.

        Arrays among the settings are checked and copied, so that later changes of the caller's array have no effect.

        Parameters
        ----------
        record : StepInfo
            Record of the step.
        settings : mapping of str to object
            Settings by name.

        Returns
        -------
        ChainStep
            The step, not fitted.

        Raises
        ------
        InvalidInput
            If the step has no setting of that name; the message suggests the nearest ones. If an array does not have
            the declared shape, or holds values that are not finite.
        """
        for name in settings:
            if name not in record.settings:
                problem = UnknownName.of("setting", name, record.settings or ["(none)"])
                raise InvalidInput(f"{record.name}: {problem}")
        checked = dict(settings)
        for name, declared in record.array_settings.items():
            if is_array_like(checked.get(name)):
                checked[name] = check_array_setting(checked[name], declared, f"{record.name}: {name}")
        return cls(record, checked)

    @property
    def spec(self) -> str:
        """The step as text."""
        if not self.settings:
            return self.info.name
        inside = ", ".join(f"{name}={_format_setting(value)}" for name, value in self.settings.items())
        return f"{self.info.name}({inside})"

    @property
    def arrays(self) -> dict[str, Array]:
        """Settings that are arrays, by name."""
        return {name: value for name, value in self.settings.items() if isinstance(value, np.ndarray)}

    @property
    def missing_arrays(self) -> tuple[str, ...]:
        """Settings whose array is not there, because the step was built from the text of another chain."""
        return tuple(name for name in self.info.array_settings if self.settings.get(name) is ...)

    def _require_arrays(self) -> None:
        """Raise if a text such as ``mcm(text=...)`` stands for an array that is not there."""
        if self.missing_arrays:
            name = self.missing_arrays[0]
            raise InvalidInput(
                f"{self.spec}: the array {name} is not part of the text; pass {name}= to scorer({self.info.name!r})"
            )

    def setting(self, name: str) -> object:
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
        >>> from twofold.scores.chain import scorer
        >>> scorer("energy(temperature=2)").steps[0].setting("temperature")
        2
        """
        return self.settings.get(name, self.info.settings.get(name))

    @property
    def instance(self) -> Any:
        """The step as an object of its class: the fitted one, or one built from the settings."""
        if self.learnt is not None:
            return self.learnt
        return self.info.maker(**self.settings)

    @property
    def inner_chains(self) -> tuple[Chain, ...]:
        """Chains that this step combines; empty for most steps."""
        if not self.info.has_hooks:
            return ()
        hooks: StepHooks = self.instance
        return tuple(hooks.inner_chains())

    @property
    def needs(self) -> tuple[str, ...]:
        """Fields of outputs that the step needs, including those of the chains inside it."""
        if self.info.has_hooks:
            hooks: StepHooks = self.instance
            declared = hooks.needed_fields()
            if declared is not None:
                return declared
        names = list(self.info.needs)
        for chain in self.inner_chains:
            names += chain.needs
        return tuple(dict.fromkeys(names))

    @property
    def fields_read(self) -> tuple[str, ...]:
        """Fields that fitting and running the step read; all of them where it takes whole outputs."""
        names = list(self.needs)
        if self.info.learns:
            for parameter in array_parameters(self.info.fit_method, optional=True):
                _, field = _split_parameter(parameter)
                if field == "outputs":
                    return FIELDS
                names.append(field)
        return tuple(names)

    @property
    def judges(self) -> Judged:
        """Whose prediction the step judges: ``logits`` or ``passes``."""
        if any(chain.judges == "passes" for chain in self.inner_chains):
            return "passes"
        return self.info.judges

    @property
    def ready(self) -> bool:
        """Whether the step can run: it needs no fit, or has been fitted, and its arrays are there."""
        if self.missing_arrays:
            return False
        return self.learnt is not None or not self.info.learns

    def fit(self, sets: Mapping[str, Outputs | None]) -> ChainStep:
        """Fit the step; arrays are taken from the sets by parameter name.

        Parameters
        ----------
        sets : mapping of str to Outputs or None
            Outputs by ``train``, ``val`` and ``ood_val``. Without ``val``, parameters ``val_...`` are taken from train.

        Returns
        -------
        ChainStep
            The fitted step; a step that does not learn is returned as it is.

        Raises
        ------
        InvalidInput
            If a required set or field is missing, or values are so large that their squares overflow.
        """
        self._require_arrays()
        if not self.info.learns:
            return self
        blank = self.info.maker(**self.settings)
        arguments, sets_used = self._fit_arguments(blank, sets)
        fitted = guard_overflow(self.info.name, arguments, lambda: self.info.fit_method(blank, **arguments))
        step = dataclasses.replace(self, learnt=make_contiguous(fitted))
        if step.inner_chains:
            sets_used = set()
            for chain in step.inner_chains:
                sets_used |= chain.sets_used
        return dataclasses.replace(step, sets_used=frozenset(sets_used))

    def _fit_arguments(self, blank: object, sets: Mapping[str, Outputs | None]) -> tuple[dict[str, object], set[str]]:
        """Collect the arguments of ``fit`` by parameter name, and the sets that they come from."""
        arguments: dict[str, object] = {}
        sets_used = set()
        unused = blank.unused_arguments() if isinstance(blank, StepHooks) else ()
        for parameter in array_parameters(self.info.fit_method, optional=True):
            if parameter in unused:
                continue
            which, field = _split_parameter(parameter)
            if which == "val" and sets["val"] is None:
                which = "train"
            value = _fit_argument(sets[which], field)
            if value is not None:
                arguments[parameter] = value
                sets_used.add(which)
            elif parameter in self.info.fit_needs:
                raise self._missing_argument(which, field, sets[which])
        return arguments, sets_used

    def _missing_argument(self, which: str, field: str, outputs: Outputs | None) -> InvalidInput:
        """Build the error for a set or field that fitting needs."""
        if outputs is None:
            return InvalidInput(f"{self.info.name} is fitted on {which}; pass {which}= to fit")
        return InvalidInput(f"fitting {self.info.name} needs {field}, and the {which} outputs have none")

    def arguments(self, outputs: Outputs) -> dict[str, object]:
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
        found: dict[str, object] = {}
        required = self.info.needs
        for name in array_parameters(self.info.run_method, optional=True):
            if name in required and not holds_field(outputs, name):
                needed, there = " and ".join(required), " and ".join(_filled_fields(outputs))
                raise InvalidInput(f"{self.info.name} needs {needed}; these outputs have {there} only")
            found[name] = outputs if name == "outputs" else getattr(outputs, name)
        return found

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
        self._require_arrays()
        if not self.ready:
            raise NotFitted(f"{self.info.name} is not fitted; call .fit(train) on the chain first")
        arguments = self.arguments(outputs)
        return self.guard(arguments, lambda: self._call(arguments, frozenset(wanted)))

    def guard(self, arguments: Mapping[str, object], compute: Callable[[], R]) -> R:
        """Compute, with one clear error where values overflow or the learnt arrays do not fit the outputs.

        Parameters
        ----------
        arguments : mapping of str to object
            What the computation reads.
        compute : callable
            The computation.

        Returns
        -------
        object
            What ``compute`` returns.

        Raises
        ------
        InvalidInput
            If input values are so large that their squares overflow, or have other sizes than those of the fit.
        """
        try:
            return guard_overflow(self.info.name, arguments, compute)
        except (ValueError, IndexError) as error:
            if self.learnt is None or isinstance(error, TwofoldError):
                raise
            learnt, present = _format_shapes(self.tensors()), _format_shapes(arguments)
            raise InvalidInput(
                f"{self.info.name} does not fit these outputs: it learnt arrays of shape {learnt}; "
                f"the outputs have {present or 'others'}; score outputs of the model that it was fitted on"
            ) from error

    def _call(self, arguments: Mapping[str, object], wanted: frozenset[str]) -> object:
        """Call the function, or ``score`` or ``apply`` of the object."""
        if self.info.is_function:
            return self.info.maker(**arguments, **self.settings)
        step = self.instance
        if self.info.kind == "transform" and self.info.has_hooks:
            changes = cast(StepHooks, step).apply_wanted(wanted, arguments)
            if changes is not None:
                return changes
        return self.info.run_method(step, **arguments)

    def tensors(self) -> dict[str, Array]:
        """Return the learnt arrays and the arrays among the settings by name, including those of the chains inside.

        Returns
        -------
        dict of str to ndarray
            Copies in C order. Before the fit there are no learnt arrays. Arrays of the i-th inner chain have the prefix
            ``i.``.

        Examples
        --------
        >>> from twofold.scores.chain import scorer
        >>> scorer("energy").steps[0].tensors()
        {}
        """
        learnt = {} if self.learnt is None else collect_arrays(self.learnt)
        return {**self.arrays, **learnt}

    def restore(self, tensors: Mapping[str, Array]) -> ChainStep:
        """Build the step with the arrays that :meth:`tensors` returned.

        Parameters
        ----------
        tensors : mapping of str to ndarray
            Arrays by name.

        Returns
        -------
        ChainStep
            The fitted step.

        Raises
        ------
        InvalidInput
            If an array is missing, unknown, or does not have the declared kind and shape.
        """
        settings, tensors = restore_settings(self.info, self.settings, tensors)
        step = dataclasses.replace(self, settings=settings)
        if not self.info.learns:
            reject_unknown(self.info.name, tensors.keys())
            return step
        learnt = restore_step(self.info, settings, step.inner_chains, tensors)
        return dataclasses.replace(step, learnt=learnt)


def _format_setting(value: object) -> str:
    """Return the text of a setting; an array, which has none, is written as ``...``."""
    if isinstance(value, np.ndarray) or value is ...:
        return "..."
    return repr(value)


def _split_parameter(parameter: str) -> tuple[str, str]:
    """Return the set and the field that a parameter of ``fit`` names: ``val_logits`` is the field logits of val."""
    for name in ("ood_val", "val"):
        if parameter.startswith(name + "_"):
            return name, parameter.removeprefix(name + "_")
    return "train", parameter


def _fit_argument(outputs: Outputs | None, field: str) -> object:
    """Return a field of a set, or the whole set; None if it is not there."""
    if outputs is None or field == "outputs":
        return outputs
    return getattr(outputs, field)


def _format_shapes(arrays: Mapping[str, object]) -> str:
    """List the shapes of arrays by name; what is not an array is left out."""
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items() if isinstance(array, np.ndarray))


def holds_field(outputs: Outputs, name: str) -> bool:
    """Check whether outputs hold a field; an empty mapping does not count.

    Parameters
    ----------
    outputs : Outputs
        Outputs of the model.
    name : str
        Name of the field, such as ``"features"``.

    Returns
    -------
    bool
        Whether the field is there and not empty.

    Examples
    --------
    >>> holds_field(Outputs([[2.0, 1.0]]), "logits"), holds_field(Outputs([[2.0, 1.0]]), "layers")
    (True, False)
    """
    value = getattr(outputs, name, None)
    is_empty = isinstance(value, Mapping) and not value
    return value is not None and not is_empty


def _filled_fields(outputs: Outputs) -> list[str]:
    """List the fields of data that outputs hold."""
    return [name for name in FIELDS if name not in NOT_DATA and holds_field(outputs, name)]
