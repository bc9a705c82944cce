"""Where a network runs: a device that this machine has, or one clear error."""

from __future__ import annotations

import torch

from twofold.errors import InvalidInput


def check_device(device: str | torch.device) -> torch.device:
    """Return a device on which this machine can compute.

    Parameters
    ----------
    device : str or torch.device
        Such as ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.

    Returns
    -------
    torch.device
        The same.

    Raises
    ------
    InvalidInput
        If torch knows no such device, or this machine or this build of torch has none.

    Examples
    --------
    >>> check_device("cpu")
    device(type='cpu')
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidInput(f"device must be cpu, cuda, cuda:N or mps, got {device!r}") from error
    if found.type == "meta":
        raise InvalidInput("device must hold values; meta computes shapes alone, use cpu")
    try:
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = (str(error).splitlines() or [""])[0][:120]
        raise InvalidInput(
            f"device {found} cannot be used here ({reason}); use --device cpu, or device='cpu'"
        ) from error
    return found
