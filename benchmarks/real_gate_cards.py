"""What was promised on real classifiers, and the report cards of what became of it, for benchmarks/real_gate.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from real_gate_classifier import MSP, GateScores
from records import Records

Promise = tuple[GateScores, float, str, int]  # scores, risk, unknown set that chose, and seed

SHARE, SHARES = 0.25, (0.0, 0.1, 0.25, 0.5, 0.75)  # the share that is promised for, and those that are met
DELTA = 0.1
ALONE = {10: (0.01, 0.02, 0.05), 100: (0.05, 0.1, 0.15)}  # risks promised where all inputs are known, by classes
MIXED = {10: (0.02, 0.05, 0.1), 100: (0.05, 0.1, 0.2)}  # and where a quarter is unknown
WITH_ENERGY: GateScores = ("msp", "energy")
KNOWN_GATES = (MSP, WITH_ENERGY)
ALL_LEVELS = range(6)  # of corruption; 0 is clean
CARRIED = (MSP, WITH_ENERGY, ("msp", "knn"))  # gates whose promises are carried to shifted data


@dataclass(frozen=True)
class Card:
    """Hold what became of a promise."""

    scores: GateScores
    asked: float  # the promised risk
    source: str  # the unknown set that chose the thresholds
    seed: int
    kind: str  # fresh, level, type, set, share
    target: str  # the level, type, set or share
    risk: float
    coverage: float
    kept: str  # yes, inconclusive, no
    accepted_unknown: float  # share of the unknown inputs
    wrong: float  # share of wrong labels among accepted known inputs
    alarm: bool | None = None  # of the monitor, where it watched

    @property
    def is_broken(self) -> bool:
        return self.kept == "no"

    @property
    def is_exceeded(self) -> bool:
        return self.risk > self.asked

    @property
    def ratio(self) -> float:
        """Return the risk found over the risk promised."""
        return self.risk / self.asked

    @property
    def promise(self) -> Promise:
        return self.scores, self.asked, self.source, self.seed


@dataclass(frozen=True)
class Watch:
    """Hold whether a monitor alarmed, and after how many inputs it stopped."""

    level: int  # of corruption; 0 is clean
    alarm: bool
    inputs: int


@dataclass
class KnownPromises:
    """Collect promises for known inputs alone."""

    cards: Records[Card] = field(default_factory=Records)
    watches: Records[Watch] = field(default_factory=Records)
    made: int = 0
    refused: int = 0


@dataclass
class MixedPromises:
    """Collect promises for a quarter of unknown inputs."""

    cards: Records[Card] = field(default_factory=Records)
    tried: list[Promise] = field(default_factory=list)
    best: dict[Promise, float] = field(default_factory=dict)  # coverage of the best pair with hindsight

    @property
    def carried(self) -> Records[Card]:
        """Return the cards of the gates whose promises are carried to shifted data."""
        return self.cards.within("scores", CARRIED)


@dataclass(frozen=True)
class Promises:
    """Hold the promises of one classifier."""

    known: KnownPromises
    mixed: MixedPromises


def by_level(cards: Records[Card], scores: GateScores, risk: float, level: int) -> Records[Card]:
    """Select the cards of one gate and risk at one level of corruption; 0 is clean."""
    cards = cards.where(scores=scores, asked=risk)
    if level == 0:
        return cards.where(kind="fresh")
    return cards.where(kind="level", target=str(level))
