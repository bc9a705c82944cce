"""Open every data set by one string: ``kind:PATH?key=value&key=value``.

Each kind is one function of :mod:`twofold.nn.data.readers`; its keyword-only parameters are the keys it knows. The keys
that all kinds share are those of :class:`~twofold.nn.data.shared_keys.SharedKeys`. All files are local; nothing is
downloaded.
"""

from __future__ import annotations

import typing
from os.path import expanduser
from typing import Literal

import numpy as np

from twofold._checks import number, whole
from twofold._data_spec import DataSpec
from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.images import Images
from twofold.nn.data.readers import READERS, Reader
from twofold.nn.data.shared_keys import SHARED_KEYS, SharedKeys
from twofold.nn.data.texts import Texts

BOOLEAN_WORDS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def open(spec: str, **options: object) -> Images:  # noqa: A001  # the name of the contract; builtin open is not used here
    """Open a data set named by a string.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``; the kinds are the keys of ``twofold.nn.data.READERS``, and the keys that all
        kinds share are ``pad``, ``size``, ``crop``, ``classes``, ``without``, ``keep_labels``, ``shuffle``, ``rows``,
        ``limit``, ``sample``, ``corrupt``, ``level``, ``seed`` and ``name``. A leading ``~`` is the home folder.
    **options
        More keys, which override those of ``spec``. None counts as not set.

    Returns
    -------
    Images
        The data set. One image is decoded at once, so that unreadable data are noticed early.

    Raises
    ------
    UnknownName
        If the kind, a key, or a value with a fixed choice does not exist.
    InvalidInput
        If ``spec`` is malformed, a key is missing or does not fit another, or files are missing or damaged.
    MissingExtra
        If a library that the kind needs (Pillow, datasets) is not installed.

    Examples
    --------
    >>> images = open("noise:uniform?n=10&size=8&seed=3", limit=4)
    >>> len(images), images.shape
    (4, (8, 8))
    """
    images = open_unread(spec, **options)
    _ = images.shape  # decodes one image, so that unreadable data raise now
    return images


def open_unread(spec: str, **options: object) -> Images:
    """Open a data set named by a string without decoding an image.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``, as :func:`open` takes it.
    **options
        More keys, which override those of ``spec``. None counts as not set.

    Returns
    -------
    Images
        The data set; unreadable images are noticed when they are read.

    Raises
    ------
    UnknownName, InvalidInput, MissingExtra
        As :func:`open` does.

    Examples
    --------
    >>> len(open_unread("noise:uniform?n=10&size=8"))
    10
    """
    found = _read(spec, options)
    if not isinstance(found, Images):
        raise InvalidInput(f"{spec} holds texts, and images are needed here; `twofold extract` takes texts")
    return found


def open_texts(spec: str, **options: object) -> Texts:
    """Open a data set of texts named by a string.

    Parameters
    ----------
    spec : str
        ``text:FILE?text=COLUMN&label=COLUMN``; ``shuffle``, ``rows``, ``limit``, ``sample``, ``seed`` and ``name`` are
        further keys.
    **options
        More keys, which override those of ``spec``. None counts as not set.

    Returns
    -------
    Texts
        The data set, in the order of the file.

    Raises
    ------
    UnknownName
        If the kind or a key does not exist.
    InvalidInput
        If ``spec`` is malformed or of images, or the file is missing or damaged.
    MissingExtra
        If a Parquet file is read without pyarrow.

    Examples
    --------
    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with gzip.open(f"{folder}/queries.jsonl.gz", "wt") as file:
    ...         _ = file.write('{"text": "what is my balance", "label": "balance"}')
    ...     open_texts(f"text:{folder}/queries.jsonl.gz").targets
    ('balance',)
    """
    found = _read(spec, options)
    if not isinstance(found, Texts):
        raise InvalidInput(f"{spec} holds images, and texts are needed here; write text:FILE")
    return found


def open_any(spec: str) -> Images | Texts:
    """Open a data set of images or texts, whichever the string names.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``.

    Returns
    -------
    Images or Texts
        The data set; one image is decoded at once.

    Raises
    ------
    UnknownName, InvalidInput, MissingExtra
        As :func:`open` and :func:`open_texts` do.

    Examples
    --------
    >>> len(open_any("noise:uniform?n=10&size=8"))
    10
    """
    if holds_texts(spec):
        return open_texts(spec)
    return open(spec)


def holds_texts(spec: str) -> bool:
    """Tell whether a data set is one of texts, by its kind.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``.

    Returns
    -------
    bool
        True for texts, False for images.

    Examples
    --------
    >>> holds_texts("text:queries.csv"), holds_texts("folder:photos")
    (True, False)
    """
    return READERS[parse(spec).kind].is_text


def _read(spec: str, options: dict[str, object]) -> Images | Texts:
    """Read a data set by its kind, and apply the keys that all kinds share."""
    kind, path, keys = parse(spec)
    reader = READERS[kind]
    values = _convert_keys(reader, {**keys, **options})
    if "corrupt" in values and "level" in reader.keys:
        raise InvalidInput(f"{kind}: holds corrupted images already; corrupt= is for clean ones")
    own_keys, shared_values = _divide_keys(reader, values)
    shared = SharedKeys(**shared_values)  # type: ignore[arg-type]  # converted to the types of the fields
    found = reader.read(_expand_home(path), **own_keys)
    if isinstance(found, Texts):
        return shared.apply_to_texts(found)
    return shared.apply(found)


def parse(spec: str) -> DataSpec:
    """Split a specification into kind, path and keys.

    Parameters
    ----------
    spec : str
        ``kind:PATH?key=value&key=value``.

    Returns
    -------
    DataSpec
        The parts; neither keys nor values are checked yet.

    Raises
    ------
    InvalidInput
        If the text has another form, or a key is repeated.
    UnknownName
        If the kind is not registered.

    Examples
    --------
    >>> kind, path, keys = parse("cifar100:data/c100?split=test&labels=coarse")
    >>> kind, path, keys
    ('cifar100', 'data/c100', {'split': 'test', 'labels': 'coarse'})
    """
    if not isinstance(spec, str):
        raise InvalidInput(f"a data set is named by a string kind:PATH?key=value, got {type(spec).__name__}")
    kind, colon, _ = spec.partition(":")
    if not colon and kind not in READERS:
        raise InvalidInput(f"{spec!r} has no kind; write kind:PATH?key=value, kinds: {', '.join(sorted(READERS))}")
    if kind not in READERS:
        raise UnknownName.of("kind of data", kind, READERS)
    parts = DataSpec.parse(spec)
    if not parts.path:
        raise InvalidInput(f"{spec!r} has no path; write {kind}:PATH?key=value")
    return parts


def _convert_keys(reader: Reader, values: dict[str, object]) -> dict[str, object]:
    """Check the keys of a specification and convert their values; those that are None are left out."""
    types = {**SHARED_KEYS, **reader.keys}
    converted = {}
    for key, value in values.items():
        if value is None:
            continue
        if key not in types:
            raise UnknownName.of(f"option of {reader.kind}:", key, types)
        converted[key] = _convert(_expand_home(value), types[key], key)
    for key in reader.required:
        if key not in converted:
            raise InvalidInput(f"{reader.kind}: needs {key}=; write {reader.kind}:PATH?{key}=VALUE")
    return converted


def _divide_keys(reader: Reader, values: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Divide the keys into those of the kind and those that all kinds share.

    Two names are used by both: ``rows`` is a slice for all kinds and an array for npz, ``seed`` is that of a sample or
    corruption for all kinds and also that of the images for noise.
    """
    own, shared = {}, {}
    for key, value in values.items():
        is_shared = key not in reader.keys
        if key == "rows" and ":" in str(value):
            is_shared = True
        if is_shared:
            shared[key] = value
        else:
            own[key] = value
    if "seed" in own and ("sample" in values or "corrupt" in values):
        shared["seed"] = own["seed"]
    return own, shared


def _convert(value: object, kind: object, key: str) -> object:
    """Convert a value to the type that its key has; ``X | None`` counts as X."""
    if type(None) in typing.get_args(kind):
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise UnknownName.of(f"value of {key}=", str(value), [str(choice) for choice in choices])
        return value
    if kind is bool:
        return _convert_bool(value, key)
    if kind is int:
        return _convert_int(value, key)
    if kind is float:
        return _convert_float(value, key)
    return value


def _convert_bool(value: object, key: str) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in BOOLEAN_WORDS:
        raise InvalidInput(f"{key} must be true or false, got {value!r}")
    return BOOLEAN_WORDS[word]


def _convert_int(value: object, key: str) -> int:
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        value = int(value)
    return whole(value, key, 0)


def _convert_float(value: object, key: str) -> float:
    try:
        return number(float(value), key, -np.inf, np.inf, open_low=True, open_high=True)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{key} must be a number, got {value!r}") from error


def _expand_home(value: object) -> object:
    """Replace a leading ~ by the user's folder: the shell leaves it alone behind a colon."""
    if isinstance(value, str) and value.startswith("~"):
        return expanduser(value)
    return value
