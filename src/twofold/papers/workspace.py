"""Where the files of papers are: data that plans read, and the folder that they write."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from twofold.bench.catalogue import DATA
from twofold.errors import InvalidInput

PaperProgress: TypeAlias = Callable[[str, int, int], object]


def ignore_progress(label: str, count: int, total: int) -> None:
    """Report nothing.

    Parameters
    ----------
    label : str
        What is being done.
    count, total : int
        How much of it is finished, and how much there is.
    """


@dataclass(frozen=True)
class Workspace:
    """Hold the folders of a run of plans.

    Parameters
    ----------
    out : Path
        Folder that is written: ``cells/``, ``runs/``, ``results/`` and ``studies/``, which plans share, and
        ``PAPER/ITEM/`` for each table or figure.
    root : Path or None
        Folder of the data; None where there is none.
    progress : callable
        Called with a label, the count of what is finished and the total.
    deadline : float or None
        Time of :func:`time.monotonic` after which no further work starts.
    jobs : int
        Processes that share the work of benchmarks.
    device : str
        Where networks run.
    """

    out: Path
    root: Path | None = None
    progress: PaperProgress = field(default=ignore_progress, compare=False)
    deadline: float | None = None
    jobs: int = 1
    device: str = "cpu"

    @classmethod
    def open(
        cls,
        out: str | Path,
        *,
        root: str | Path | None = None,
        minutes: float | None = None,
        progress: PaperProgress = ignore_progress,
        jobs: int = 1,
        device: str = "cpu",
    ) -> Workspace:
        """Choose the folders.

        Parameters
        ----------
        out : str or Path
            Folder to write; it need not exist.
        root : str or Path, optional
            Folder of the data; by default that of the environment variable ``TWOFOLD_DATA``.
        minutes : float, optional
            Time after which no further work starts.
        progress : callable, optional
            Called with label, count and total.
        jobs : int, default=1
            Processes that share the work of benchmarks.
        device : str, default="cpu"
            Where networks run.

        Returns
        -------
        Workspace
            The folders; nothing is written yet.
        """
        if root is None:
            root = os.environ.get(DATA)
        deadline = None if minutes is None else time.monotonic() + 60 * minutes
        return cls(Path(out), None if root is None else Path(root), progress, deadline, jobs, device)

    @property
    def is_late(self) -> bool:
        """Whether the time is over.

        Returns
        -------
        bool
            False where there is no limit.
        """
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def minutes_left(self) -> float | None:
        """How much time is left.

        Returns
        -------
        float or None
            Minutes, at least 0; None where there is no limit.
        """
        if self.deadline is None:
            return None
        return max(0.0, (self.deadline - time.monotonic()) / 60)

    def need_root(self) -> Path:
        """Return the folder of the data.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        InvalidInput
            If none is known.
        """
        if self.root is None:
            raise InvalidInput(f"this plan reads the folder of data; set ${DATA}, or pass root=")
        return self.root

    def data_word(self, source: str) -> str:
        """Spell the path of data for a command line.

        Parameters
        ----------
        source : str
            A path, relative to the folder of data or absolute.

        Returns
        -------
        str
            A word for a shell; relative paths start with ``$TWOFOLD_DATA``.

        Examples
        --------
        >>> print(Workspace(Path("out")).data_word("nets.npz?logits=first"))
        "$TWOFOLD_DATA/nets.npz?logits=first"
        """
        if Path(source.partition("?")[0]).is_absolute():
            return shlex.quote(source)
        return f'"${DATA}/{source}"'

    def item(self, paper: str, item: str) -> Path:
        """Name the folder of a table or figure.

        Parameters
        ----------
        paper, item : str
            Short name of the paper, and which table or figure.

        Returns
        -------
        Path
            The folder; it need not exist.
        """
        return self.out / paper / item
