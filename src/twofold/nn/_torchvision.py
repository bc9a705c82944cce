"""One clear line where the installed torchvision does not fit the installed torch.

timm, open_clip and the image models of transformers import torchvision. A build for another torch fails there with
whatever its compiled operators raise, far from what was asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from twofold.errors import MissingExtra, TwofoldError


@contextmanager
def explain_torchvision(needed_by: str) -> Iterator[None]:
    """Explain what is raised inside if its cause is a torchvision that cannot be imported.

    Parameters
    ----------
    needed_by : str
        What was asked for, such as ``"timm:resnet18"``; the message begins with it.

    Raises
    ------
    MissingExtra
        If torchvision is installed and cannot be imported.
    """
    try:
        yield
    except TwofoldError:
        raise
    except Exception as error:  # compiled operators fail with RuntimeError, OSError, ImportError, AttributeError, ...
        reason = find_import_problem()
        if reason is None:
            raise
        raise MissingExtra(
            f"{needed_by} needs torchvision, which cannot be imported beside torch {torch.__version__} ({reason}); "
            "install the torchvision that belongs to this torch, from where torch came from"
        ) from error


def find_import_problem() -> str | None:
    """Return why the installed torchvision cannot be imported, None if it can or is not installed."""
    if find_spec("torchvision") is None:
        return None
    try:
        importlib.import_module("torchvision")
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return lines[0]
    return None
