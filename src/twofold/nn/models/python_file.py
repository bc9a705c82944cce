"""Networks that a function in a Python file returns."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

from twofold.errors import InvalidInput, UnknownName


def build_from_file(spec: str) -> nn.Module:
    """Return the network that a function in a Python file returns.

    Parameters
    ----------
    spec : str
        The file and the function, as ``file.py:function``; the function takes no arguments.

    Returns
    -------
    torch.nn.Module
        What the function returned.

    Raises
    ------
    InvalidInput
        If there is no such file, it cannot be imported, the function needs arguments or returns something else.
    UnknownName
        If the file has no such function.
    """
    file, _, function = spec.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise InvalidInput(f"{spec}: there is no file {file}")
    with _import_path(path.parent):
        module = _import_file(path)
        make = getattr(module, function, None)
        if not callable(make):
            raise UnknownName.of(f"function in {file}", function, _list_functions(module))
        try:
            model = make()
        except TypeError as error:
            raise InvalidInput(f"{spec} could not be called without arguments: {error}") from error
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"{spec} must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _list_functions(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


@contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """Put the folder first on the import path, so that a file finds its neighbours."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _import_file(path: Path) -> ModuleType:
    """Import a Python file as a module with its own name, executed again each time."""
    name = f"_twofold_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidInput(f"{path.name} cannot be imported: {type(error).__name__}: {error}") from error
    return module
