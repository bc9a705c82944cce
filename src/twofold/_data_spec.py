"""How a data set is named by a string: ``kind:PATH?key=value&key=value``."""

from __future__ import annotations

from typing import NamedTuple

from twofold.errors import InvalidInput


class DataSpec(NamedTuple):
    """Hold the parts of a data set's name; neither kind, keys nor values are checked.

    Parameters
    ----------
    kind : str
        What stands before the colon.
    path : str
        What stands between the colon and the question mark.
    keys : dict of str to str
        The values as text.

    Examples
    --------
    >>> spec = DataSpec.parse("sheet:{data}/ood.webp?labels=image_labels.npz")
    >>> spec.kind, spec.path, spec.keys
    ('sheet', '{data}/ood.webp', {'labels': 'image_labels.npz'})
    >>> str(spec.having(sample="100"))
    'sheet:{data}/ood.webp?labels=image_labels.npz&sample=100'
    """

    kind: str
    path: str
    keys: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> DataSpec:
        """Split the name of a data set.

        Parameters
        ----------
        text : str
            ``kind:PATH?key=value&key=value``; kind and path may be empty.

        Returns
        -------
        DataSpec
            The parts.

        Raises
        ------
        InvalidInput
            If a key has no value, or is repeated.
        """
        kind, _, rest = text.partition(":")
        path, _, query = rest.partition("?")
        keys: dict[str, str] = {}
        for piece in query.split("&") if query else ():
            key, equals, value = piece.partition("=")
            if not equals or not key:
                raise InvalidInput(f"{text!r}: {piece!r} must be key=value")
            if key in keys:
                raise InvalidInput(f"{text!r}: {key} is given twice")
            keys[key] = value
        return cls(kind, path, keys)

    def having(self, **keys: str) -> DataSpec:
        """Set keys, in place of the values that they had.

        Parameters
        ----------
        **keys : str
            Values as text.

        Returns
        -------
        DataSpec
            The changed name.
        """
        return self._replace(keys={**self.keys, **keys})

    def __str__(self) -> str:
        name = f"{self.kind}:{self.path}"
        if not self.keys:
            return name
        query = "&".join(f"{key}={value}" for key, value in self.keys.items())
        return f"{name}?{query}"
