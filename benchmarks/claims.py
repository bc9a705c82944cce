"""Claims of the papers, each with its interval and its verdict, in one small CSV file for each script that decides them.

`low` and `high` bound the signed gain of a claim: positive is as claimed. The interval decides, and nothing else:

| interval | verdict |
|---|---|
| above zero | holds |
| below zero | does not hold |
| contains zero | inconclusive at this scale |
| none, because the material here lacks what the claim is about | not testable at this scale |

A claim that something hardly matters states a margin, and its signed gain is the margin less the change.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from script import FOLDER

from twofold._csv import escape_row, unescape_cell
from twofold.errors import InvalidInput
from twofold.papers import catalogue

CLAIMS = FOLDER.parent / "results" / "claims"

HOLDS = "holds"
FAILS = "does not hold"
INCONCLUSIVE = "inconclusive at this scale"
NOT_TESTABLE = "not testable at this scale"
VERDICTS = (HOLDS, FAILS, INCONCLUSIVE, NOT_TESTABLE)

BEYOND = "beyond"  # the paper of claims that no paper makes
NOWHERE = "nowhere"  # where a claim that no paper makes is printed
DIGITS = 6  # of the numbers in a file, from which the verdict must follow


@dataclass(frozen=True)
class Claim:
    """Hold one claim, what was printed and found, and the verdict.

    Parameters
    ----------
    paper : str
        A name of ``twofold papers list``, or ``beyond``.
    claim : str
        One plain sentence.
    printed_at : str
        The table, figure or section with the claim.
    printed : str
        The printed numbers, or what the paper says.
    ours : str
        Our numbers. For a claim that is not testable, what would test it.
    low : float, optional
        Lower end of the 95 % interval of the signed gain; None if the claim is not testable.
    high : float, optional
        Upper end of the interval.
    p : float, optional
        Two-sided p-value of a gain of zero; None if the interval has none.
    unit : str
        What the interval counts, for instance ``"AUROC, points"``.
    scale : str
        Networks, data sets and numbers of samples.
    verdict : str
        What :func:`decide` says of the interval.
    command : str
        What writes the number again.
    """

    paper: str
    claim: str
    printed_at: str
    printed: str
    ours: str
    low: float | None
    high: float | None
    p: float | None
    unit: str
    scale: str
    verdict: str
    command: str

    def __post_init__(self) -> None:
        known = (*catalogue.names(), BEYOND)
        if self.paper not in known:
            raise InvalidInput(f"no paper {self.paper!r}; choose among {', '.join(known)}")
        for name in ("claim", "printed_at", "printed", "ours", "scale", "command"):
            if not getattr(self, name).strip():
                raise InvalidInput(f"{name} of the claim {self.claim!r} is empty")
        if self.p is not None and not 0 <= self.p <= 1:
            raise InvalidInput(f"p of the claim {self.claim!r} is {self.p}, which is no probability")
        expected = decide(self.low, self.high)
        if self.verdict != expected:
            raise InvalidInput(f"{self.claim!r} has the verdict {self.verdict!r}, and its interval says {expected!r}")


COLUMNS = tuple(field.name for field in fields(Claim))


def decide(low: float | None, high: float | None) -> str:
    """Return the verdict of an interval of the signed gain; without one, the claim is not testable."""
    if low is None or high is None:
        if low is not None or high is not None:
            raise InvalidInput(f"an interval has two ends, or none; got {low} and {high}")
        return NOT_TESTABLE
    if not low <= high:  # NaN too
        raise InvalidInput(f"the interval from {low} to {high} is upside down, or not a number")
    if low > 0:
        return HOLDS
    if high < 0:
        return FAILS
    return INCONCLUSIVE


def judge(
    paper: str,
    claim: str,
    *,
    printed_at: str,
    printed: str,
    ours: str,
    low: float,
    high: float,
    p: float | None = None,
    unit: str,
    scale: str,
    command: str,
) -> Claim:
    """Make a claim whose verdict follows from its interval."""
    low, high = shorten(low), shorten(high)
    p = None if p is None else shorten(p)
    return Claim(paper, claim, printed_at, printed, ours, low, high, p, unit, scale, decide(low, high), command)


def untestable(
    paper: str, claim: str, *, printed_at: str, printed: str, why: str, scale: str, command: str, unit: str = ""
) -> Claim:
    """Make a claim that the material here cannot test; `why` also says what would."""
    return Claim(paper, claim, printed_at, printed, why, None, None, None, unit, scale, NOT_TESTABLE, command)


def shorten(value: float) -> float:
    """Round a number to the digits of a file, so that what is read decides like what was written."""
    return float(f"{value:.{DIGITS}g}")


def write_claims(name: str, claims: Sequence[Claim], *, folder: Path = CLAIMS) -> Path:
    """Write claims to NAME.csv, in the order they have."""
    if not claims:
        raise InvalidInput("there are no claims to write")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for claim in claims:
            table.writerow(escape_row(getattr(claim, column) for column in COLUMNS))
    return path


def read_claims(path: Path) -> list[Claim]:
    """Read the claims of a file, each checked; its verdicts must follow from its intervals."""
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if tuple(table.fieldnames or ()) != COLUMNS:
            raise InvalidInput(f"{path} has the columns {table.fieldnames}, and should have {', '.join(COLUMNS)}")
        return [_read_row(row, f"{path}, line {table.line_num}") for row in table]


def read_all(paths: Iterable[Path] | None = None) -> dict[str, list[Claim]]:
    """Read every file of claims by its name, those of ``results/claims/`` unless others are named."""
    if paths is None:
        paths = CLAIMS.glob("*.csv")
    return {path.stem: read_claims(path) for path in sorted(paths)}


def _read_row(row: dict[str, str], place: str) -> Claim:
    if None in row or None in row.values():
        raise InvalidInput(f"{place} does not have {len(COLUMNS)} cells")
    texts = {column: unescape_cell(cell) for column, cell in row.items() if column not in ("low", "high", "p")}
    numbers = {column: _read_number(row[column], f"{column} of {place}") for column in ("low", "high", "p")}
    return Claim(**texts, **numbers)


def _read_number(cell: str, place: str) -> float | None:
    if cell == "":
        return None
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInput(f"{place} is {cell!r}, which is not a number")
    return number
