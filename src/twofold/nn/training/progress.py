"""What training reports while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from twofold.errors import MissingExtra

Done: TypeAlias = Callable[[Mapping[str, float]], object]


def ignore_progress(values: Mapping[str, float]) -> None:
    """Do nothing with the values of a step or an epoch.

    Parameters
    ----------
    values : mapping from str to float
        ``loss`` and ``step`` after a step; ``epoch``, ``lr``, ``loss``, ``train_accuracy`` and, with validation data,
        its values after an epoch.
    """


@contextmanager
def tensorboard(folder: str | Path) -> Iterator[Done]:
    """Make a ``done`` for :func:`~twofold.nn.training.train` that writes for TensorBoard.

    Every step writes its loss, every epoch all its values.

    Parameters
    ----------
    folder : str or Path
        Where the event files go.

    Yields
    ------
    callable
        What to pass as ``done``.

    Raises
    ------
    MissingExtra
        If TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra('TensorBoard is not installed: pip install "twofold[tensorboard]"') from error
    with SummaryWriter(str(folder)) as writer:

        def done(values: Mapping[str, float]) -> None:
            if "step" in values:
                writer.add_scalar("step/loss", values["loss"], int(values["step"]))
                return
            for name, value in values.items():
                if name != "epoch":
                    writer.add_scalar(f"epoch/{name}", value, int(values["epoch"]))

        yield done
