"""The processes that train one network together, through Hugging Face accelerate."""

from __future__ import annotations

import atexit
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from twofold import _checks
from twofold.errors import MissingExtra
from twofold.nn.training.settings import Precision

Sliceable = TypeVar("Sliceable", Tensor, npt.NDArray[np.int64], npt.NDArray[np.float64])


@dataclass(frozen=True)
class ProcessGroup:
    """Hold the processes that train one network together; a group of one needs no accelerate.

    Parameters
    ----------
    device : torch.device
        Where this process computes.
    accelerator : accelerate.Accelerator, optional
        What connects the processes and switches to half precision; None for one process in float32.

    Examples
    --------
    >>> alone = ProcessGroup(torch.device("cpu"))
    >>> alone.world_size, alone.rank, alone.is_main_process
    (1, 0, True)
    """

    device: torch.device
    accelerator: Any = None  # accelerate has no types

    @classmethod
    def start(cls, device: torch.device, precision: Precision) -> ProcessGroup:
        """Join the processes that ``torchrun`` or ``accelerate launch`` started.

        Parameters
        ----------
        device : torch.device
            Where to compute.
        precision : {"float32", "bf16"}
            Precision of forward passes.

        Returns
        -------
        ProcessGroup
            The group of this process.

        Raises
        ------
        InvalidInput
            If the precision is none of these.
        MissingExtra
            If there are several processes, or half precision, and accelerate is not installed.
        """
        _checks.choice(precision, "precision", ("float32", "bf16"))
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 and precision == "float32":
            return cls(device)
        try:
            from accelerate import Accelerator
            from accelerate.state import AcceleratorState
        except ImportError as error:
            raise MissingExtra('several processes and bf16 need accelerate: pip install "twofold[torch]"') from error
        AcceleratorState._reset_state()  # an earlier training of this process may have had another precision
        mixed_precision = "no" if precision == "float32" else "bf16"
        accelerator = Accelerator(cpu=str(device) == "cpu", mixed_precision=mixed_precision)
        atexit.unregister(_leave)  # once is enough, however many trainings there are
        atexit.register(_leave)
        return cls(accelerator.device, accelerator)

    @property
    def world_size(self) -> int:
        """Number of processes.

        Examples
        --------
        >>> ProcessGroup(torch.device("cpu")).world_size
        1
        """
        if self.accelerator is None:
            return 1
        return int(self.accelerator.num_processes)

    @property
    def rank(self) -> int:
        """Number of this process, from 0.

        Examples
        --------
        >>> ProcessGroup(torch.device("cpu")).rank
        0
        """
        if self.accelerator is None:
            return 0
        return int(self.accelerator.process_index)

    @property
    def is_main_process(self) -> bool:
        """Whether this process is the one that writes the files.

        Examples
        --------
        >>> ProcessGroup(torch.device("cpu")).is_main_process
        True
        """
        return self.accelerator is None or bool(self.accelerator.is_main_process)

    def own_share(self, rows: Sliceable) -> Sliceable:
        """Select the rows of this process from those of the whole batch.

        Parameters
        ----------
        rows : ndarray or Tensor
            One entry for each row of the batch.

        Returns
        -------
        ndarray or Tensor
            Every ``world_size``-th entry, starting at ``rank``.
        """
        return rows[self.rank :: self.world_size]

    def gather(self, tensor: Tensor) -> Tensor:
        """Concatenate the rows of all processes, one process after the other.

        Parameters
        ----------
        tensor : Tensor
            The rows of this process, as many as in every other.

        Returns
        -------
        Tensor
            The rows of all.
        """
        if self.world_size == 1:
            return tensor
        return self.accelerator.gather(tensor)

    def average(self, tensor: Tensor) -> Tensor:
        """Compute the mean of a tensor over all processes.

        Parameters
        ----------
        tensor : Tensor
            The value of this process.

        Returns
        -------
        Tensor
            The mean, the same in every process.
        """
        if self.world_size == 1:
            return tensor
        return self.accelerator.reduce(tensor, "mean")

    def wait(self) -> None:
        """Wait until all processes are here.

        In a group of one this returns at once.
        """
        if self.world_size > 1:
            self.accelerator.wait_for_everyone()

    def autocast(self) -> AbstractContextManager[object]:
        """Switch to half precision while open, where it was asked for.

        Returns
        -------
        context manager
            That of accelerate, or one that does nothing.
        """
        if self.accelerator is None:
            return nullcontext()
        return self.accelerator.autocast()


def _leave() -> None:
    """Leave the process group before the interpreter ends: its threads would abort a process that has finished."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
