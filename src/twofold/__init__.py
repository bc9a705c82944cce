"""twofold tells how far a classifier can be trusted, and turns that into a gate one can deploy.

Nothing heavy is imported before it is used: submodules and names resolve on first access (SPEC 1). ``__init__.pyi``
lists them, for this module, type checkers and editors alike.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
