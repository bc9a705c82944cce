"""Devices on which a network runs: one that this machine has, or one clear error."""

from __future__ import annotations

import torch

from twofold.errors import InvalidInput


def check_device(device: str | torch.device) -> torch.device:
    """Check that this machine can compute on a device, and return it.

    Parameters
    ----------
    device : str or torch.device
        Such as ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``.

    Returns
    -------
    torch.device
        The same device.

    Raises
    ------
    InvalidInput
        If torch has no such device, this machine or this build of torch cannot use it, or it is ``"meta"``, which holds
        no values.

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
