"""Everything that runs a network: models, data, corruptions, extraction.

Names resolve on first access, so importing this package needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from twofold.errors import MissingExtra

_HOME = {
    "Captured": "models",
    "Classifier": "models",
    "build": "models",
    "extract": "extraction",
    "load": "models",
    "recipe": "recipes",
    "to_onnx": "onnx",
    "train": "training",
}
_MODULES = (
    "clip",
    "corruptions",
    "data",
    "extraction",
    "ingredients",
    "models",
    "onnx",
    "perturb",
    "recipes",
    "training",
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _HOME and name not in _MODULES:
        raise AttributeError(f"module 'twofold.nn' has no attribute {name!r}")
    try:
        if name in _MODULES:
            return import_module(f"twofold.nn.{name}")
        value = getattr(import_module(f"twofold.nn.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f'twofold.nn.{name} needs torch: pip install "twofold[torch]"') from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
