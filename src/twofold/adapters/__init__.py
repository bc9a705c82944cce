"""Use twofold inside other libraries: scikit-learn, torchmetrics, Lightning, transformers, pandas, MLflow, Ray, Spark.

Names resolve on first access, so importing this package needs none of them.
"""

from __future__ import annotations

import lazy_loader

from twofold.errors import MissingExtra

_resolve, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _resolve(name)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("twofold"):
            raise
        raise MissingExtra(f'twofold.adapters.{name} needs {error.name}: pip install "twofold[adapters]"') from error
