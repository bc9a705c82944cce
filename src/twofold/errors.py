"""Every exception and warning twofold raises, in one tree.

Each error derives from :class:`TwofoldError` and from the built-in type a caller would expect,
so ``except ValueError`` keeps working. Messages name the argument, what it must be, what came, what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

LISTED = 40  # names that a message lists where none is near


class TwofoldError(Exception):
    """Base of all twofold errors."""


class InvalidInput(TwofoldError, ValueError):
    """An argument does not fit: wrong shape, type, range or content."""


class UndefinedMetric(TwofoldError, ValueError):
    """A metric has no value on these data, for example an AUROC with one class only."""


class UnfitData(InvalidInput, UndefinedMetric):
    """Data on which this metric has no value: a needed kind of sample is missing, or an infinity has no range.

    Wrong input where a caller passed it, undefined where a resample or one metric of many meets it.
    """


class UnknownName(TwofoldError, KeyError):
    """A name that is not registered; the message suggests the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show its repr

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """Build the error for an unknown ``name`` of some ``kind``, with the nearest known names.

        >>> str(UnknownName.of("metric", "aucr", ["aurc", "auroc"]))
        "no metric 'aucr'; did you mean 'aurc' or 'auroc'?"
        """
        known = sorted(known)
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        listed = " or ".join(repr(n) for n in near) if near else ""
        hint = f"did you mean {listed}?" if near else f"known: {', '.join(known[:LISTED])}"
        if not near and len(known) > LISTED:
            hint += f" and {len(known) - LISTED} more"
        return cls(f"no {kind} {name!r}; {hint}")


class NameTaken(TwofoldError, ValueError):
    """A name is registered twice."""


class Infeasible(TwofoldError, ValueError):
    """A gate that keeps what was asked of it does not exist, or cannot be shown on these data.

    ``best`` says what is feasible: the least ``risk`` with its ``coverage``, or with a guarantee about the least
    ``risk`` at the asked delta and the least ``delta`` at the asked risk (1: none will do).
    """

    def __init__(self, message: str, best: Mapping[str, float]) -> None:
        super().__init__(message)
        self.best = dict(best)


class TooFewBlocks(InvalidInput):
    """A comparison has so few blocks that no outcome could be significant."""


class NotFitted(TwofoldError, RuntimeError):
    """A step that learns from data was used before ``fit``."""


class RunError(TwofoldError, OSError):
    """A run on disk is missing, damaged, of another format, or already holds that data set."""


class Damaged(RunError):
    """A file of a run is not as it was written."""


class MissingExtra(TwofoldError, ImportError):
    """An optional dependency is not installed; the message has the install line."""


class TwofoldWarning(UserWarning):
    """Base of all twofold warnings."""


class RejectedNaN(TwofoldWarning):
    """Confidences that are NaN were ranked lowest, as ``nan="reject"`` asks."""


class DoubtfulTable(TwofoldWarning):
    """A table of results whose shape makes a rank test unreliable."""


class DependentRows(TwofoldWarning):
    """Rows that a guarantee takes for independent are copies of each other."""


class LowPrecision(TwofoldWarning):
    """A model computes in half precision, which leaves few digits to rank by."""


class BrokenPlugin(TwofoldWarning):
    """An installed package offers scores that cannot be loaded."""


class LostScale(TwofoldWarning):
    """A score reads the scale of logits, and these are logarithms of probabilities, which have lost it."""
