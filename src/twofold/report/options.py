"""The options of a report, collected once by :func:`twofold.report.report` and passed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from twofold.typing import ArrayLike

if TYPE_CHECKING:
    from twofold.report.pictures import ImageReader

Format: TypeAlias = Literal["html", "md", "latex", "json"]
Done: TypeAlias = Callable[[str], object]
Images: TypeAlias = "Mapping[str, ArrayLike | ImageReader] | str | Path"

SUFFIXES: dict[Format, str] = {"html": ".html", "md": ".md", "latex": ".tex", "json": ".json"}
"""Formats of a report, and how their files end."""


@dataclass(frozen=True, eq=False)
class ReportOptions:
    """Hold the options of a report; :func:`twofold.report.report` describes each of them.

    Parameters
    ----------
    id, ood : str, optional
        The pair of scores to report on. By default the best pair of ``scores`` on the run's validation data.
    scores : sequence of str, optional
        Scores to compare.
    images : mapping, str or Path, optional
        Images by data set, or an npz file of them.
    ood_classes : mapping of str to array-like, optional
        For sets of unknown inputs, the class of each row.
    format : {"html", "md", "latex", "json"}, default="html"
        Format of the file.
    resamples : int, default=200
        Upper limit on the number of bootstrap resamples.
    seed : int, default=0
        Seed of the resampling.
    columns : mapping of str to str, optional
        Columns of a table of logged predictions.
    command : str, optional
        Command line to show on the page. By default it is derived from the other options.
    done : callable, optional
        Called with the name of each finished step.
    """

    id: str | None = None
    ood: str | None = None
    scores: Sequence[str] | None = None
    images: Images | None = None
    ood_classes: Mapping[str, ArrayLike] | None = None
    format: Format = "html"
    resamples: int = 200
    seed: int = 0
    columns: Mapping[str, str] | None = None
    command: str | None = None
    done: Done = lambda _: None

    def named_scores(self) -> list[str]:
        """List the scores that the pair of the report names.

        Returns
        -------
        list of str
            ``id`` and ``ood``, without None and without ``"none"``, which stands for no second score.

        Examples
        --------
        >>> ReportOptions(id="msp", ood="none").named_scores()
        ['msp']
        """
        return name_scores(self.id, self.ood)


def name_scores(*specs: str | None) -> list[str]:
    """List the scores that options name.

    Parameters
    ----------
    *specs : str or None
        Values of options; None was not set, and ``"none"`` stands for no second score.

    Returns
    -------
    list of str
        The scores.

    Examples
    --------
    >>> name_scores("msp", "none", None)
    ['msp']
    """
    return [spec for spec in specs if spec is not None and spec != "none"]
