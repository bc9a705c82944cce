"""Public types for code that calls or extends twofold.

:data:`ArrayLike`, :data:`Array`, :data:`Floats`, :data:`Labels` and :data:`Mask` are the array types of all signatures,
and :data:`Changes` is what a transform returns. :func:`state` declares the learnt arrays of a score or transform that
has a ``fit``, :func:`array_setting` a setting that may be an array, and :class:`StepHooks` lists the optional methods
by which such a class influences its chain. Methods that a base class documents are marked by :func:`override`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from numpy.typing import ArrayLike

from twofold._checks import Array, Labels, Mask
from twofold._math import Floats

__all__ = [
    "Array",
    "ArrayLike",
    "Changes",
    "Floats",
    "Labels",
    "Mask",
    "StateField",
    "StateKind",
    "StepHooks",
    "array_setting",
    "chain_state",
    "override",
    "state",
]

if sys.version_info >= (3, 12):
    from typing import override
else:
    Method = TypeVar("Method")

    def override(method: Method) -> Method:
        """Mark a method that replaces one of its base class, which documents it.

        Parameters
        ----------
        method : function
            The method.

        Returns
        -------
        function
            The method, unchanged.
        """
        return method


Changes: TypeAlias = dict[str, Any]
"""What a transform returns: the changed fields of outputs, by name. None removes a field, such as a head that no longer
fits the logits."""

StateKind: TypeAlias = Literal["float", "integer", "bool", "byte"]


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
        any shape is accepted. ``C`` counts classes: a gate does not load if it is more than the classes of the model.
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
    A step that must check more than this, such as a tree without cycles, overrides :meth:`StepHooks.check_state`.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Centre:
    ...     mean: Array = state("D")
    >>> Centre().mean is None
    True
    """
    return field(default=None, repr=False, metadata={"state": StateField(shape, kind, optional, nan)})


def array_setting(shape: str, *, default: str | None = None) -> Any:
    """Declare a setting that may be an array: stored by ``save`` beside the learnt arrays, checked when it is loaded.

    In the text of a chain an array stands as ``name=...``.

    Parameters
    ----------
    shape : str
        Allowed shapes, in the notation of :func:`state`; the words stand for sizes of their own.
    default : str, optional
        Value where no array is given; by default None.

    Returns
    -------
    dataclasses.Field
        Default of a field of the step.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Nearest:
    ...     points: Array | None = array_setting("M D")
    >>> Nearest().points is None
    True
    """
    return field(default=default, repr=False, metadata={"array": StateField(shape, "float", True, False)})


def chain_state() -> Any:
    """Declare the fitted chains inside a step that combines chains.

    :meth:`StepHooks.inner_chains` returns these chains, and before the fit those that will be fitted.

    Returns
    -------
    dataclasses.Field
        Default of a field of the step: an empty tuple until ``fit`` puts the fitted chains there.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Twice:
    ...     chains: tuple[object, ...] = chain_state()
    >>> Twice().chains
    ()
    """
    return field(default=(), repr=False, metadata={"chains": True})


@runtime_checkable
class StepHooks(Protocol):
    """List the optional methods of a registered class; derive from it to override one.

    A class registered with :func:`twofold.register_score` or :func:`twofold.register_transform` must have ``score`` or
    ``apply``, has ``fit`` if it learns, and needs nothing else. Override a hook where the signatures of these methods
    do not tell the chain enough, or where several calls can share work. Registration rejects a class that defines a
    hook without deriving from this protocol, because its signature would not be checked.

    Examples
    --------
    >>> @dataclass(frozen=True, eq=False)
    ... class Centre(StepHooks):
    ...     mean: Array = state("D")
    ...
    ...     def check_state(self) -> None:
    ...         if not len(self.mean):
    ...             raise ValueError("mean is empty")
    >>> Centre().inner_chains(), Centre().needed_fields()
    ((), None)
    """

    def inner_chains(self) -> tuple[Any, ...]:
        """Return the chains that the step combines: fitted ones if the step is fitted, else new ones.

        Returns
        -------
        tuple of twofold.Chain
            Chains in the order in which :func:`chain_state` holds them. By default none.
        """
        return ()

    def needed_fields(self) -> tuple[str, ...] | None:
        """Return the fields of outputs that scoring needs, where the settings change them.

        Returns
        -------
        tuple of str or None
            Names such as ``"features"``. By default None: the required parameters of ``score`` or ``apply``, and what
            the inner chains need.
        """
        return None

    def unused_arguments(self) -> tuple[str, ...]:
        """Return the parameters of ``fit`` that these settings do not need, so that the chain leaves them out.

        Returns
        -------
        tuple of str
            Names such as ``"ood_val_layers"``. By default none.
        """
        return ()

    def check_state(self) -> None:
        """Check loaded arrays beyond the shapes that :func:`state` declares.

        Raises
        ------
        InvalidInput
            If the arrays do not belong together. By default nothing is checked.
        """

    def apply_wanted(self, wanted: frozenset[str], arrays: Mapping[str, Any]) -> Changes | None:
        """Apply a transform, computing only fields that later steps read.

        Parameters
        ----------
        wanted : frozenset of str
            Fields of outputs that later steps of the chain read.
        arrays : mapping of str to object
            Arguments of ``apply``, by name.

        Returns
        -------
        dict of str to object or None
            Changed fields, by name. By default None: the chain calls ``apply``.
        """
        return None

    @classmethod
    def family(cls) -> type:
        """Return the class whose :meth:`score_together` scores steps of this class, perhaps together with others.

        Returns
        -------
        type
            A base class that several share. By default this class.
        """
        return cls

    @classmethod
    def score_together(cls, fitted: Sequence[Self], arrays: Mapping[str, Any]) -> list[Array] | None:
        """Score by several settings of one class, or of the classes of one family, for example with one search.

        Parameters
        ----------
        fitted : sequence of this class
            Fitted steps.
        arrays : mapping of str to object
            Arguments of ``score`` of all of them, by name.

        Returns
        -------
        list of ndarray of shape (n_samples,) or None
            Confidences of each step. By default None: the chain calls ``score`` of each.
        """
        return None
