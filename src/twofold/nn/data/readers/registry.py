"""The table of readers, by the kind that a specification starts with."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from twofold.errors import NameTaken
from twofold.nn.data.images import Images
from twofold.nn.data.texts import Texts

ReadFunction: TypeAlias = Callable[..., Images] | Callable[..., Texts]


@dataclass(frozen=True)
class Reader:
    """Hold a registered kind of data set: its function and the types of its keys.

    Parameters
    ----------
    kind : str
        What a specification starts with, such as ``"cifar10"``.
    read : callable
        Takes the path and the keys of the kind as keyword-only arguments, and returns
        :class:`Images` or :class:`~twofold.nn.data.texts.Texts`.

    Examples
    --------
    >>> READERS["idx"].keys
    {'labels': str | None}
    """

    kind: str
    read: ReadFunction

    @property
    def summary(self) -> str:
        """First line of the function's docstring."""
        return (inspect.getdoc(self.read) or "").partition("\n")[0]

    @cached_property
    def is_text(self) -> bool:
        """Whether the kind holds texts and not images.

        Examples
        --------
        >>> READERS["idx"].is_text
        False
        """
        return typing.get_type_hints(self.read)["return"] is Texts

    @cached_property
    def keys(self) -> dict[str, object]:
        """Types of the kind's own keys, by name."""
        hints = typing.get_type_hints(self.read)
        return {parameter.name: hints[parameter.name] for parameter in self._key_parameters()}

    @cached_property
    def required(self) -> list[str]:
        """Names of the keys without a default."""
        parameters = self._key_parameters()
        return [parameter.name for parameter in parameters if parameter.default is parameter.empty]

    def _key_parameters(self) -> list[inspect.Parameter]:
        parameters = inspect.signature(self.read).parameters.values()
        return [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]


READERS: dict[str, Reader] = {}


Read = TypeVar("Read", bound=ReadFunction)


def reader(kind: str, *, replace: bool = False) -> Callable[[Read], Read]:
    """Register a function as the reader of a kind.

    Parameters
    ----------
    kind : str
        What a specification starts with.
    replace : bool, default=False
        Whether to replace the reader of a kind that is already registered.

    Returns
    -------
    callable
        A decorator that returns the function unchanged.

    Raises
    ------
    NameTaken
        When the decorator is applied, if the kind is already registered and ``replace`` is not set.

    Examples
    --------
    >>> import numpy as np
    >>> from twofold.nn.data import open
    >>> @reader("blank")
    ... def blank(path: str, *, n: int = 1) -> Images:
    ...     return Images.of(np.zeros((n, 8, 8), np.uint8))
    >>> len(open("blank:any?n=3"))
    3
    >>> _ = READERS.pop("blank")
    """

    def register(read: Read) -> Read:
        if kind in READERS and not replace:
            raise NameTaken(f"a reader of the kind {kind!r} is registered already; pass replace=True to replace it")
        READERS[kind] = Reader(kind, read)
        return read

    return register
