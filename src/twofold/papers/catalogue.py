"""The papers that come with the package, one file each."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from twofold.errors import InvalidInput, UnknownName
from twofold.papers.parse import loads
from twofold.papers.plan import Paper, PaperPlan


@cache
def names() -> tuple[str, ...]:
    """List the papers by short name.

    Returns
    -------
    tuple of str
        Names that :func:`load` takes.

    Examples
    --------
    >>> names()
    ('aurc_estimators', 'fd_shifts', 'stratified_ood', 'sure_plus', 'unknown_detection')
    """
    folder = files("twofold.papers").joinpath("files")
    found = [file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")]
    return tuple(sorted(found))


def load(name: str | Path) -> Paper:
    """Load a paper by its short name, or by the path of a file of your own.

    Parameters
    ----------
    name : str or Path
        A name of :func:`names`, or a path that ends in ``.toml``.

    Returns
    -------
    Paper
        The paper.

    Raises
    ------
    UnknownName
        If there is no such paper.
    InvalidInput
        If the file cannot be read or is invalid.

    Examples
    --------
    >>> load("aurc_estimators").plan("figureS7").kind
    'result'
    """
    if isinstance(name, Path) or str(name).endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{name} cannot be read as the file of a paper: {error}") from error
        return loads(text, where=str(name))
    if name not in names():
        raise UnknownName.of("paper", str(name), names())
    return _load_packaged(str(name))


@cache
def _load_packaged(name: str) -> Paper:
    text = files("twofold.papers").joinpath("files", f"{name}.toml").read_text(encoding="utf-8")
    return loads(text, where=f"paper {name}")


def find(id: str) -> PaperPlan:  # noqa: A002 - the name of the contract
    """Find a table or figure of a paper.

    Parameters
    ----------
    id : str
        ``PAPER/ITEM``; the paper by name, or by the path of a file that ends in ``.toml``.

    Returns
    -------
    PaperPlan
        The plan.

    Raises
    ------
    UnknownName
        If there is no such paper or item.
    InvalidInput
        If the text is not ``PAPER/ITEM``.

    Examples
    --------
    >>> find("aurc_estimators/figure4").title
    'Absolute error of the estimators on CIFAR, 0/1 loss'
    """
    paper, slash, item = id.rpartition("/")
    if not slash or not paper or not item:
        raise InvalidInput(f"a table or figure is named PAPER/ITEM, such as sure_plus/table1, got {id!r}")
    return load(paper).plan(item)
