"""Define every exception and warning that twofold raises, in one tree.

Each error derives from :class:`TwofoldError` and from the built-in type a caller would expect, so ``except
ValueError`` keeps working. Messages name the argument, what it must be, what was passed, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

LISTED = 40  # names that a message lists at most if none is near


class TwofoldError(Exception):
    """Serve as the base of all twofold errors.

    Examples
    --------
    >>> issubclass(InvalidInput, TwofoldError)
    True
    """


class InvalidInput(TwofoldError, ValueError):
    """Report an argument that is not valid: wrong shape, type, range or content."""


class UnreadableImage(InvalidInput):
    """Report an image that is missing, damaged, or stored in a way that cannot be decoded to 8-bit RGB."""


class UndefinedMetric(TwofoldError, ValueError):
    """Report that a metric has no value on these data, for example an AUROC with one class only."""


class UnfitData(InvalidInput, UndefinedMetric):
    """Report data on which this metric has no value: a needed kind of sample is missing, or an infinity has no range.

    This is wrong input where a caller passed it, and an undefined metric where a resample or one metric of many meets
    it.
    """


class UnknownName(TwofoldError, KeyError):
    """Report a name that is not registered; the message suggests the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show its repr

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """Build the error for an unknown ``name`` of some ``kind``, with the nearest known names.

        Parameters
        ----------
        kind : str
            What the name should name, such as ``"metric"``.
        name : str
            The unknown name.
        known : iterable of str
            All known names; if none is near, the message lists at most 40 of them.

        Returns
        -------
        UnknownName
            The error, to be raised by the caller.

        Examples
        --------
        >>> str(UnknownName.of("metric", "aucr", ["aurc", "auroc"]))
        "no metric 'aucr'; did you mean 'aurc' or 'auroc'?"
        """
        known = sorted(known)
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        if near:
            hint = f"did you mean {' or '.join(map(repr, near))}?"
        else:
            hint = f"known: {', '.join(known[:LISTED])}"
            if len(known) > LISTED:
                hint += f" and {len(known) - LISTED} more"
        return cls(f"no {kind} {name!r}; {hint}")


class NameTaken(TwofoldError, ValueError):
    """Report a name that is registered twice."""


class Infeasible(TwofoldError, ValueError):
    """Report that no gate meets the request, or that these data cannot show that one does.

    Parameters
    ----------
    message : str
        What was requested, and what to request instead.
    best : mapping of str to float
        What is feasible: the least ``risk`` with its ``coverage``; or, with a guarantee, about the least ``risk`` at
        the requested delta and the least ``delta`` at the requested risk (1: there is none).

    Attributes
    ----------
    best : dict of str to float
        What is feasible.

    Examples
    --------
    >>> Infeasible("no pair has a risk of at most 0.01", {"risk": 0.02, "coverage": 0.4}).best["risk"]
    0.02
    """

    def __init__(self, message: str, best: Mapping[str, float]) -> None:
        super().__init__(message)
        self.best = dict(best)


class TooFewBlocks(InvalidInput):
    """Report a comparison with so few blocks that no outcome could be significant."""


class NotFitted(TwofoldError, RuntimeError):
    """Report a step that learns from data and was used before ``fit``."""


class RunError(TwofoldError, OSError):
    """Report a run on disk that is missing, damaged, of another format, or already holds that data set."""


class Damaged(RunError):
    """Report a file of a run that is not as it was written."""


class MissingExtra(TwofoldError, ImportError):
    """Report an optional dependency that is not installed; the message has the install line."""


class TwofoldWarning(UserWarning):
    """Serve as the base of all twofold warnings."""


class RejectedNaN(TwofoldWarning):
    """Warn that NaN confidences were ranked lowest, as ``nan="reject"`` asks."""


class DoubtfulTable(TwofoldWarning):
    """Warn of a table of results whose shape makes a rank test unreliable."""


class DependentRows(TwofoldWarning):
    """Warn that rows which a guarantee assumes to be independent are copies of each other."""


class LowPrecision(TwofoldWarning):
    """Warn that a model computes in half precision, which leaves few digits to rank by."""


class SkippedImages(TwofoldWarning):
    """Warn that unreadable images were left out or replaced, as ``on_bad="skip"`` asks."""


class TruncatedTexts(TwofoldWarning):
    """Warn that texts longer than a network takes were cut off."""


class BrokenPlugin(TwofoldWarning):
    """Warn of an installed package whose scores cannot be loaded."""


class LostScale(TwofoldWarning):
    """Warn that a score reads the scale of the logits, where they are logarithms of probabilities and have lost it."""
