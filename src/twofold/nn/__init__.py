"""Everything that runs a network: models, data, corruptions, extraction.

Names resolve on first access, so importing this package needs no torch.
"""

from __future__ import annotations

import lazy_loader

from twofold.errors import MissingExtra

_resolve, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _resolve(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f'twofold.nn.{name} needs torch: pip install "twofold[torch]"') from error
