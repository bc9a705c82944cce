"""The studies of the papers' training claims: which there are, and where their finished cells are kept."""

from __future__ import annotations

from dataclasses import dataclass

from timing import RESULTS
from twofold import study as studies
from twofold.study import Study
from twofold.study.folder import CellRecord, read_json

KEPT = RESULTS / "studies"
SAVE = "python benchmarks/studies.py --save"

STUDIES = ("sure_plus", "aurc_finetune", "unknown", "paradigms")


@dataclass(frozen=True)
class Variant:
    """Describe a study that is repeated with a preset.

    Parameters
    ----------
    study : str
        Name of the study.
    preset : str
        Its preset.
    label : str
        What is added to the text of its claims.
    rows : tuple of str, optional
        Rows that are trained; by default all.
    seeds : tuple of int, optional
        Seeds that are trained; by default all.
    """

    study: str
    preset: str
    label: str
    rows: tuple[str, ...] | None = None
    seeds: tuple[int, ...] | None = None


VARIANTS = {
    "aurc_converged": Variant("aurc_finetune", "converged", "from a converged network"),
    "sure_plus_long": Variant("sure_plus", "long", "after 40 epochs", rows=("basic", "sure_plus"), seeds=(0,)),
}
OTHER_PRESETS = {  # studies that no table of the short ones repeats, trained one by one with `twofold study run`
    "sure_plus_trials": ("sure_plus_tuned", "trials"),
    "sure_plus_converged": ("sure_plus_tuned", "converged"),
    "sure_plus_float32": ("sure_plus_tuned", "float32"),
}


def base_study(name: str) -> str:
    """Return the name of the study that a variant repeats, or the name itself."""
    if name in VARIANTS:
        return VARIANTS[name].study
    return name


def load_study(name: str) -> Study:
    """Load a study by the name of its folder in ``results/studies``, also where torch is missing."""
    if name in VARIANTS:
        return studies.load(VARIANTS[name].study, preset=VARIANTS[name].preset, check=False)
    study_name, preset = OTHER_PRESETS.get(name, (name, None))
    return studies.load(study_name, preset=preset, check=False)


def has_kept_cells(name: str) -> bool:
    """Tell whether ``results/studies`` has cells of a study."""
    return (KEPT / name / "cells.json").exists()


def kept_records(name: str) -> dict[str, CellRecord]:
    """Read the records of the kept cells of a study, by the names of the cells."""
    return read_json(KEPT / name / "cells.json")
