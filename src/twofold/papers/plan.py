"""What a paper's tables and figures are, as plans that can be listed, shown and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from twofold.errors import UnknownName
from twofold.papers.steps import Step

Kind: TypeAlias = Literal["result", "settings", "illustration"]
ScaleName: TypeAlias = Literal["paper", "here"]
State: TypeAlias = Literal["verified", "built", "paper", "impossible", "planned", "illustration"]

KINDS: tuple[Kind, ...] = ("result", "settings", "illustration")
SCALES: tuple[ScaleName, ...] = ("paper", "here")
STATES: Mapping[State, str] = {
    "verified": "verified here at small scale",
    "built": "built, and not yet run to its end here",
    "paper": "runs at the scale of the paper, not verified here",
    "impossible": "not reproducible",
    "planned": "not built yet",
    "illustration": "an illustration or survey, not computed",
}


RUNNABLE: tuple[State, ...] = ("verified", "built", "paper")  # states of plans that `papers run` takes


@dataclass(frozen=True)
class Scale:
    """Say with which data and by which steps a plan runs.

    Parameters
    ----------
    data : tuple of str
        The data it needs, in words.
    minutes : float or None
        How long it takes on two cores; None where nobody has measured it.
    note : str
        How this differs from what the paper did.
    steps : tuple of Step
        What is done, in order.
    """

    data: tuple[str, ...]
    minutes: float | None
    note: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Drawing:
    """Name a drawing and its options.

    Parameters
    ----------
    name : str
        A name in :data:`twofold.papers.drawings.DRAWINGS`.
    options : mapping from str to object
        Keywords of the drawing.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


class PrintedTable(NamedTuple):
    """Name a table of :func:`twofold.bench.published.anchors`.

    Parameters
    ----------
    paper, table : str
        As the anchors name them.
    """

    paper: str
    table: str


@dataclass(frozen=True)
class PaperPlan:
    """Describe one table or figure of a paper.

    Parameters
    ----------
    paper : str
        Short name of the paper.
    item : str
        Which table or figure, such as ``table3`` or ``figureS7``.
    kind : {"result", "settings", "illustration"}
        Whether it is computed, made from a catalogue, or only listed.
    title : str
        What it shows.
    says : str
        What the paper concludes from it.
    state : {"verified", "built", "paper", "impossible", "planned", "illustration"}
        How far it is reproduced; a key of :data:`STATES`.
    reason : str
        Why it is not run, for an illustration and for what cannot be reproduced.
    printed : PrintedTable or None
        Where its printed numbers are.
    settings : str or None
        A name in :data:`twofold.papers.settings_tables.SETTINGS`, for a table of settings.
    drawing : Drawing or None
        How a figure is drawn.
    derive : tuple of str
        Names in :data:`twofold.papers.derived.DERIVATIONS`: rows that the table needs and no benchmark measures.
    scales : mapping from str to Scale
        By ``"paper"`` and ``"here"``, how it runs.
    """

    paper: str
    item: str
    kind: Kind
    title: str
    says: str
    state: State
    reason: str
    printed: PrintedTable | None
    settings: str | None
    drawing: Drawing | None
    derive: tuple[str, ...]
    scales: Mapping[ScaleName, Scale]

    @property
    def id(self) -> str:
        """The name by which commands take the plan.

        Returns
        -------
        str
            ``PAPER/ITEM``.
        """
        return f"{self.paper}/{self.item}"


@dataclass(frozen=True)
class Paper:
    """Hold a paper and its plans.

    Parameters
    ----------
    name : str
        Short name.
    title : str
        Title.
    source : str
        Authors, venue and identifier.
    plans : mapping from str to PaperPlan
        The tables and figures by item, in the order of the paper.
    """

    name: str
    title: str
    source: str
    plans: Mapping[str, PaperPlan]

    def plan(self, item: str) -> PaperPlan:
        """Find a table or figure.

        Parameters
        ----------
        item : str
            Such as ``table3``.

        Returns
        -------
        PaperPlan
            The plan.

        Raises
        ------
        UnknownName
            If the paper has no such item.
        """
        if item not in self.plans:
            raise UnknownName.of(f"table or figure of {self.name}", item, self.plans)
        return self.plans[item]
