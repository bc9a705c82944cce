"""Several data sets with one network, all named by text: what ``twofold extract`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twofold import _checks
from twofold.errors import InvalidInput
from twofold.nn import data
from twofold.nn.extraction.prepare import ImageInput, Prepare
from twofold.nn.extraction.stored import find_input, name_statistics, remember_input
from twofold.nn.extraction.stream import extract
from twofold.nn.models import load
from twofold.nn.models.description import list_members
from twofold.nn.perturb import (
    PRO_STEPS,
    Extremes,
    IOdin,
    Odin,
    OdinGrid,
    Perturbation,
    PerturbedFeatures,
    PerturbedMahalanobis,
    Pro,
    RankFeat,
)
from twofold.run import Run
from twofold.scores.chain import Chain, scorer


def extract_all(
    model: str,
    sets: Sequence[tuple[str, str, str]],
    out: str | Path,
    *,
    checkpoints: Sequence[str] = (),
    classes: int | None = None,
    head: str | None = None,
    normalise: str | None = None,
    resize: int | None = None,
    crop: int | None = None,
    layers: str | None = None,
    odin: float | None = None,
    odin_grid: str | None = None,
    mahalanobis: float | None = None,
    rankfeat: str | None = None,
    iodin: float | None = None,
    pro: str | None = None,
    adascale: bool = False,
    extremes: bool = False,
    half: bool = False,
    begin: Callable[[str, int], object] = lambda name, rows: None,
    replace: bool = False,
    **options: Any,
) -> Run:
    """Extract several data sets with a model, all named by text; the command ``twofold extract`` calls this.

    Data sets that the run already holds are skipped, so repeating the same call finishes what is missing.

    Parameters
    ----------
    model : str
        A model as :func:`twofold.nn.models.load` takes it, or the folder of a trained ensemble.
    sets : sequence of (spec, role, name)
        Each data set: its specification for :func:`twofold.nn.data.open` or ``open_texts``, its role and its name in
        the run. Put the training set first if ``mahalanobis`` is set.
    out : str or Path
        Folder of the run, created if it does not exist.
    checkpoints : sequence of str, default=()
        Weights to load into the model; several make a deep ensemble.
    classes : int, optional
        Number of classes, where the model does not say it.
    head : str, optional
        Name of the last linear layer; by default it is found.
    normalise : str, optional
        Name of the channel statistics, one of ``twofold.nn.data.STATISTICS``, or ``"none"`` to only divide by 255. By
        default those of the training folder that holds the weights, else ``"none"``.
    resize : int, optional
        Length of the shorter side of images before the crop; by default that of the training folder, else 8/7 of
        ``crop``.
    crop : int, optional
        Side of the square that is cut from the centre; by default that of the training folder. Without either, images
        keep the size that the data set gives them.
    layers : str, optional
        Names of modules separated by commas, or ``"all"``, whose channel statistics are recorded.
    odin : float, optional
        Step size of ODIN's input perturbation; by default its values are not recorded.
    odin_grid : str, optional
        Temperatures and step sizes of ODIN, as ``"1,10,100,1000:0,0.0014,0.0028"``; every pair is recorded.
    mahalanobis : float, optional
        Step size of the perturbed Mahalanobis score, which is fitted on the first training set of the run. Not recorded
        for data sets with role ``"train"``.
    rankfeat : str, optional
        Names of modules separated by commas, for RankFeat.
    iodin : float, optional
        Step size of iODIN; by default its values are not recorded.
    pro : str, optional
        Scores that PRO lowers, ``msp``, ``entropy`` or ``gen``, separated by commas.
    adascale : bool, default=False
        Record the features of perturbed inputs that the transform ``adascale`` reads.
    extremes : bool, default=False
        Record the largest and smallest input of every ReLU, which the score ``combood`` reads.
    half : bool, default=False
        Store features and layer statistics as float16.
    begin : callable, optional
        Called with the name and number of rows of each data set before it is extracted.
    replace : bool, default=False
        Extract data sets again that the run already holds.
    **options
        Further arguments of :func:`extract`, such as ``batch``, ``device``, ``passes`` or ``done``; the rest is kept
        with the run.

    Returns
    -------
    Run
        The run with all data sets.

    Raises
    ------
    UnknownName
        If there are no statistics called ``normalise``.
    InvalidInput
        If ``mahalanobis`` is set and no training set has been extracted; if size, normalisation or classes are not
        those of the training folder; also what :func:`extract` raises.
    """
    trained = find_input([*checkpoints, model])
    given = None if normalise is None else Prepare.named(normalise)
    if trained is not None:
        trained.check_normalisation(given)
        trained.check_size(resize, crop)
        image_input = trained.image_input
    else:
        image_input = ImageInput(resize, crop, given or Prepare())
    prepare = image_input.prepare
    if checkpoints:
        members = [load(model, classes=classes, checkpoint=checkpoint) for checkpoint in checkpoints]
    else:
        members = [load(spec, classes=classes) for spec in list_members(model)]
    for member in members:
        remember_input(member, trained)
    opened = {name: _open_set(spec, on_bad=options.get("on_bad")) for spec, _, name in sets}
    if any(isinstance(one, data.Texts) for one in opened.values()):
        pixel_options = {
            "normalise": normalise,
            "resize": resize,
            "crop": crop,
            "odin": odin,
            "odin_grid": odin_grid,
            "mahalanobis": mahalanobis,
            "iodin": iodin,
            "pro": pro,
            "adascale": adascale or None,
        }
        _refuse_pixel_options(pixel_options)
    for _, role, name in sets:
        if not replace and _holds(out, name):
            continue
        learned: dict[str, Perturbation] = {}
        if odin is not None:
            learned["odin"] = Odin(epsilon=odin, std=prepare.std)
        if odin_grid is not None:
            learned["odin_grid"] = OdinGrid.parse(odin_grid, prepare.std)
        if mahalanobis is not None and role != "train":
            learned["mds_perturbed"] = PerturbedMahalanobis(_fit_mds(out), mahalanobis, prepare.std)
        if rankfeat is not None:
            learned["rankfeat"] = RankFeat(tuple(rankfeat.split(",")))
        if iodin is not None:
            learned["iodin"] = IOdin(epsilon=iodin, std=prepare.std)
        for one in pro.split(",") if pro is not None else ():
            learned[f"pro/{one}"] = Pro(_checks.choice(one, "pro", tuple(PRO_STEPS)))
        if adascale:
            learned["adascale"] = PerturbedFeatures()
        if extremes:
            learned["extremes"] = Extremes()
        rows = opened[name]
        facts = {"model": model}
        transform = None
        if not isinstance(rows, data.Texts):
            facts["normalise"] = name_statistics(prepare)
            transform = prepare
            if trained is None:
                rows = image_input.fit(rows)
        begin(name, len(rows))
        extract(
            members if len(members) > 1 else members[0],
            rows,
            out,
            name=name,
            role=role,
            prepare=transform,
            head=head,
            features="float16" if half else "float32",
            layers=_parse_layers(layers),
            learned=learned,
            replace=replace,
            **{**facts, **options},
        )
    return Run.open(out)


def _open_set(spec: str, *, on_bad: object) -> data.Images | data.Texts:
    """Open a data set of images or texts."""
    if on_bad == "skip" and not data.holds_texts(spec):
        return data.open_unread(spec)
    return data.open_any(spec)


def _refuse_pixel_options(options: Mapping[str, object]) -> None:
    """Raise if an option is set that means nothing for texts."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidInput(f"{' and '.join(given)} need pixels, and these data sets hold texts")


def _is_run(out: str | Path) -> bool:
    return (Path(out) / "run.json").exists()


def _holds(out: str | Path, name: str) -> bool:
    """Tell whether a run exists and holds a complete data set of this name."""
    return _is_run(out) and name in Run.open(out)


def _parse_layers(text: str | None) -> Sequence[str] | bool:
    if text == "all":
        return True
    return text.split(",") if text else ()


def _fit_mds(out: str | Path) -> Chain:
    """Fit ``mds`` on the training outputs of the run."""
    run = Run.open(out) if _is_run(out) else None
    if run is None or not run.names("train"):
        raise InvalidInput(
            "the perturbed Mahalanobis score is fitted on train; extract a data set with role train first"
        )
    return scorer("mds").fit(run[run.names("train")[0]])
