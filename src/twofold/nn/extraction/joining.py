"""Let the first of several processes close a data set only after all the others have opened it.

A process that came later would find the data set closed, and could not tell whether this launch or an earlier one had
closed it. Each of the other processes therefore leaves an empty file in the folder of the run once it has joined.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

STARTED = time.time()  # when this process began, to within the seconds that imports take
LAUNCH = 60.0  # seconds within which the processes of a launch start, differences of their clocks included


def announce_process(folder: Path, name: str, rank: int) -> None:
    """Leave a file which says that a process has opened the writer of a data set.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    name : str
        Name of the data set.
    rank : int
        Rank of the process.
    """
    path = _announcement(folder, name, rank)
    path.unlink(missing_ok=True)  # that of a launch that was killed has an older time
    path.touch()


def have_joined(folder: Path, name: str, world_size: int) -> bool:
    """Check whether every process but the first has opened the writer of a data set.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    name : str
        Name of the data set.
    world_size : int
        Number of processes.

    Returns
    -------
    bool
        Whether all of them have; files that a killed launch left are too old to count.
    """
    for rank in range(1, world_size):
        try:
            joined = _announcement(folder, name, rank).stat().st_mtime
        except FileNotFoundError:
            return False
        if joined < STARTED - LAUNCH:
            return False
    return True


def remove_announcements(folder: Path, name: str) -> None:
    """Remove the files that the processes left.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    name : str
        Name of the data set.
    """
    for path in folder.glob(f"{_stem(name)}*"):
        path.unlink(missing_ok=True)


def _announcement(folder: Path, name: str, rank: int) -> Path:
    return folder / f"{_stem(name)}{rank}"


def _stem(name: str) -> str:
    """Name the files of a data set, whose own name may not be one of a file."""
    return f".joined-{hashlib.sha256(name.encode()).hexdigest()[:16]}-"
