"""The processes that train one network together, through Hugging Face accelerate."""

from __future__ import annotations

import atexit
import os
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from twofold import _checks
from twofold.errors import InvalidInput, MissingExtra
from twofold.nn.training.settings import Precision

SHARDING = ("FSDP", "DEEPSPEED", "MEGATRON_LM", "TP")  # as accelerate names them
SECONDS_TO_FINISH = 0.5  # of the threads of Gloo, which have nothing to do but to free tensors

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
            If the precision is none of these, or accelerate was configured to shard the network.
        MissingExtra
            If there are several processes, or half precision, and accelerate is not installed.
        """
        _checks.choice(precision, "precision", ("float32", "bf16"))
        if int(os.environ.get("WORLD_SIZE", "1")) == 1 and precision == "float32":
            return cls(device)
        try:
            from accelerate import Accelerator, DistributedDataParallelKwargs
            from accelerate.state import AcceleratorState
        except ImportError as error:
            raise MissingExtra('several processes and bf16 need accelerate: pip install "twofold[torch]"') from error
        AcceleratorState._reset_state()  # an earlier training of this process may have had another precision
        accelerator = Accelerator(
            cpu=device.type == "cpu",
            mixed_precision="no" if precision == "float32" else "bf16",
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],  # a step has several passes
        )
        _check_distributed_type(str(accelerator.distributed_type.value))
        atexit.unregister(_leave)  # once is enough, however many trainings there are
        atexit.register(_leave)
        if accelerator.num_processes == 1:
            return cls(device, accelerator)  # which may be another than the first GPU
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

    def wrap(self, module: nn.Module, ignored: Sequence[str] = ()) -> nn.Module:
        """Wrap a module so that the gradients of its parameters are averaged over all processes.

        It is the wrapper that accelerate chooses: ``DistributedDataParallel``, which reduces gradients in buckets while
        the backward pass still runs.

        Parameters
        ----------
        module : torch.nn.Module
            The module, on the device of this process.
        ignored : sequence of str, optional
            Names of parameters that get no gradient.

        Returns
        -------
        torch.nn.Module
            The wrapped module; ``module`` itself in a group of one.
        """
        if self.world_size == 1:
            return module
        module._ddp_params_and_buffers_to_ignore = list(ignored)  # type: ignore[assignment]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated")  # accelerate knows no other name
            wrapped: nn.Module = self.accelerator.prepare_model(module)
        return wrapped

    def hold_gradients(self, wrapped: nn.Module) -> AbstractContextManager[object]:
        """Add gradients up in this process while open, without reducing them; the next pass outside reduces the sum.

        Parameters
        ----------
        wrapped : torch.nn.Module
            What :meth:`wrap` returned.

        Returns
        -------
        context manager
            That of accelerate, or one that does nothing in a group of one.
        """
        if self.world_size == 1:
            return nullcontext()
        return self.accelerator.no_sync(wrapped)

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


def _check_distributed_type(name: str) -> None:
    """Raise InvalidInput where accelerate would cut the network into shards."""
    if name in SHARDING:
        raise InvalidInput(
            f"accelerate is configured for {name}, which cuts the network into shards; twofold trains with the whole "
            "network in each process: use `torchrun`, or `accelerate launch --multi_gpu`"
        )


def is_first_process() -> bool:
    """Say whether this process is the one that writes and prints, by what ``torchrun`` or ``accelerate launch`` set.

    Returns
    -------
    bool
        True in the first process, and in one that was started alone.

    Examples
    --------
    >>> is_first_process()
    True
    """
    return os.environ.get("RANK", "0") == "0"


def _leave() -> None:
    """Leave the process group before the interpreter ends: its threads would abort a process that has finished.

    Threads of Gloo free the tensors of the last exchange, and need the interpreter for it. They outlive the group,
    because ``DistributedDataParallel`` still refers to it, so they get time to finish.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        time.sleep(SECONDS_TO_FINISH)
