"""Named lists of scores that benchmarks are judged by.

``projections`` are the 21 rows of Table 3 of the stratified study, each with the projections that the table has a cell
for. Where the study prints another form of a score than ours, both are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from twofold.errors import UnknownName
from twofold.scores.registry import PROJECTIONS

CellForm: TypeAlias = Literal["ours", "printed", "quick"]
Form: TypeAlias = Literal["ours", "printed", "quick", "both"]
UNPROJECTED = "none"
BUT_CLASS = ("global", "class_pred", "class_avg")
BUT_AVERAGE = ("global", "class", "class_pred")
LEARNED = ("confidnet", "devries", "gambler")
"""The learned confidence of each paradigm of training, which the study calls Confidence."""


@dataclass(frozen=True)
class ProjectedScore:
    """Describe a row of Table 3 of the stratified study.

    Parameters
    ----------
    title : str
        What the study calls it.
    score : str
        Our score.
    projections : tuple of str
        Columns of the table that have a cell, beside the unprojected one.
    printed : str, default=""
        The form that the study prints, where it is another one.
    differs : tuple of str, default=()
        Columns in which it is another one.
    by_kind : bool, default=False
        Whether the projection is a setting of the score itself, which then has no unprojected form.
    quick : str, default=""
        The printed form with settings that are not searched; empty where it has none to search.
    """

    title: str
    score: str
    projections: tuple[str, ...]
    printed: str = ""
    differs: tuple[str, ...] = ()
    by_kind: bool = False
    quick: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the table that have a cell.

        Returns
        -------
        tuple of str
            ``"none"`` for the unprojected form, and projections.
        """
        if self.by_kind:
            return self.projections
        return (UNPROJECTED, *self.projections)

    def spec(self, column: str, form: CellForm = "ours") -> str:
        """Spell the score of a cell.

        Parameters
        ----------
        column : str
            One of ``columns``.
        form : {"ours", "printed", "quick"}, default="ours"
            Whose form it is where they differ; ``"quick"`` is the printed one without a search for settings.

        Returns
        -------
        str
            A score.

        Examples
        --------
        >>> ProjectedScore("MLS", "mls", PROJECTIONS).spec("global")
        "project(kind='global')|mls"
        """
        score = self.score
        if form != "ours" and column in self.differs:
            score = self.printed
        if form == "quick" and self.quick:
            score = self.quick
        if column == UNPROJECTED:
            return score
        if self.by_kind:
            name, _, settings = score.rstrip(")").partition("(")
            listed = f", {settings}" if settings else ""
            return f"{name}(kind='{column}'{listed})"
        share = ", variance=0.9" if form == "quick" else ""
        return f"project(kind='{column}'{share})|{score}"


TABLE_3 = (
    ProjectedScore("CTM", "cosine_weight", PROJECTIONS),
    ProjectedScore("CTM(mean)", "cosine_mean", PROJECTIONS, "cosine_mean(unfiltered=True)", BUT_CLASS),
    ProjectedScore("Energy", "energy", PROJECTIONS),
    ProjectedScore("MSR", "msp", PROJECTIONS, "msp(of='largest')", PROJECTIONS),
    ProjectedScore("MLS", "mls", PROJECTIONS),
    ProjectedScore("PE", "entropy", PROJECTIONS),
    ProjectedScore("GEN", "gen", PROJECTIONS, quick="gen(gamma=0.1, top=10)"),
    ProjectedScore("REN", "renyi", PROJECTIONS, quick="renyi(alpha=0.5, top=10)"),
    ProjectedScore("GE", "guessing", PROJECTIONS),
    ProjectedScore("PCE", "collision", PROJECTIONS),
    ProjectedScore("Maha", "mds", BUT_CLASS, "mds(covariance='total', nearest=True)", (UNPROJECTED, *BUT_CLASS)),
    ProjectedScore("NNGuide", "nnguide", BUT_CLASS, quick="nnguide(k=10, fraction=1.0)"),
    ProjectedScore(
        "fDBD",
        "fdbd",
        BUT_CLASS,
        "fdbd(center=True, absolute=True)",
        BUT_CLASS,
        quick="fdbd(center=True, absolute=True)",
    ),
    ProjectedScore("pNML", "pnml", BUT_CLASS, "pnml(unit=False)", (UNPROJECTED, *BUT_CLASS)),
    ProjectedScore("GradNorm", "gradnorm", BUT_CLASS),
    ProjectedScore("PCA Error", "pca_error", BUT_AVERAGE, by_kind=True, quick="pca_error(variance=0.9)"),
    ProjectedScore(
        "KPCA Error",
        "kpca_error(map='nystroem', landmarks=512)",
        BUT_AVERAGE,
        by_kind=True,
        quick="kpca_error(map='nystroem', landmarks=128, gamma=1.0, variance=0.9)",
    ),
    ProjectedScore("VIM", "vim", ()),
    ProjectedScore("NeCo", "neco", (), "neco(standardise=False, scale_by_logit=False)", (UNPROJECTED,)),
    ProjectedScore("Residual", "residual", ()),
)
"""The rows of the table in its order; the last one, Confidence, is :data:`LEARNED`."""


def projections(form: Form = "both", *, passes: bool = False) -> tuple[str, ...]:
    """List the scores of Table 3 of the stratified study, row by row.

    Parameters
    ----------
    form : {"ours", "printed", "quick", "both"}, default="both"
        Whose form of a score is listed where the study prints another one; ``"both"`` lists ours and the printed one.
    passes : bool, default=False
        Whether to list the forms on several passes of dropout instead.

    Returns
    -------
    tuple of str
        Scores, each once.

    Examples
    --------
    >>> len(projections("ours")), len(projections("printed")), len(projections())
    (82, 82, 101)
    >>> projections("printed")[16:19]
    ("project(kind='global')|msp(of='largest')", "project(kind='class')|msp(of='largest')", \
"project(kind='class_pred')|msp(of='largest')")
    """
    specs: dict[str, None] = {}
    for row in TABLE_3:
        for column in row.columns:
            specs |= dict.fromkeys(_forms(row, column, form))
    specs |= dict.fromkeys(LEARNED)
    if not passes:
        return tuple(specs)
    return tuple(f'mc("{spec}")' for spec in specs)


def _forms(row: ProjectedScore, column: str, form: Form) -> Iterator[str]:
    if form != "both":
        yield row.spec(column, form)
        return
    yield row.spec(column, "ours")
    yield row.spec(column, "printed")


POOLS: Mapping[str, tuple[str, ...]] = {
    "projections": projections(),
    "projections_ours": projections("ours"),
    "projections_printed": projections("printed"),
    "projections_quick": projections("quick"),
}
"""Lists of scores by the name that files give them: ``scores = "projections"``."""


def pool(name: str) -> tuple[str, ...]:
    """Look up a list of scores.

    Parameters
    ----------
    name : str
        A name of :data:`POOLS`.

    Returns
    -------
    tuple of str
        Scores.

    Raises
    ------
    UnknownName
        If there is none of that name.
    """
    if name not in POOLS:
        raise UnknownName.of("list of scores", name, POOLS)
    return POOLS[name]


def find_name(scores: tuple[str, ...]) -> str | None:
    """Find the name of a list of scores.

    Parameters
    ----------
    scores : tuple of str
        Scores in order.

    Returns
    -------
    str or None
        A name of :data:`POOLS`; None where the list has none.

    Examples
    --------
    >>> find_name(projections("printed")), find_name(("msp",))
    ('projections_printed', None)
    """
    for name, listed in POOLS.items():
        if listed == scores:
            return name
    return None
