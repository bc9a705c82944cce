"""Table 5 of unknown detection: searched and chosen hyper-parameters, beside our recipes, scores and studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twofold import study
from twofold.errors import MissingExtra
from twofold.papers.settings_tables import SettingsRow, register_settings
from twofold.scores.chain import scorer
from twofold.study import StudyRow


@register_settings("unknown_detection_settings")
def unknown_detection_settings() -> tuple[SettingsRow, ...]:
    """Compare the hyper-parameters in Table 5 of unknown detection with ours.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed hyper-parameter: of training from our recipes and presets, of scores from the full scale
        of our studies.

    Raises
    ------
    MissingExtra
        If torch is not installed, which the recipes need.
    """
    return (*_training_rows(), *_score_rows())


def _training_rows() -> list[SettingsRow]:
    """Compare what training is set by."""
    try:
        from twofold.nn.ingredients.mixing import augmix
        from twofold.nn.recipes import CRL, AugMixed, EnergyMargin, Evidential, OutlierExposure
        from twofold.nn.training import find_preset
    except ImportError as error:
        raise MissingExtra('recipes need torch: pip install "twofold[torch]"') from error
    import inspect

    margins = []
    epochs = []
    for name in ("unknown_detection_cifar", "unknown_detection_imagenet"):
        variation = find_preset(name).variations["energy_finetune"]
        margins.append((variation.parts["m_out"], variation.parts["m_in"]))
        epochs.append(variation.settings["epochs"])
    (out_cifar, in_cifar), (out_imagenet, in_imagenet) = margins
    searched = _searched_recipes()
    defaults = inspect.signature(augmix).parameters
    rows = [
        _row("CRL: loss weight", "1.0", f"{CRL().weight}"),
        _row("EDL: objective, searched", "MSE, digamma, log, cross-entropy", searched["edl"], _EDL_SEARCH),
        _row("EDL: objective, chosen", "log", Evidential().objective),
        _row("EDL: activation, chosen", "exponential", {"exp": "exponential"}.get(Evidential().evidence, "")),
        _row("OE: loss weight", "0.5", f"{OutlierExposure().weight}"),
        _row("Energy: margins, searched", "-3, -5, -7 and -15, -19, -23, -27", searched["energy_finetune"]),
        _row("Energy: outer margin, CIFAR / ImageNet", "-3 / -7", f"{out_cifar:g} / {out_imagenet:g}"),
        _row("Energy: inner margin, CIFAR / ImageNet", "-27 / -15", f"{in_cifar:g} / {in_imagenet:g}"),
        _row("Energy: epochs of fine-tuning", "10", f"{epochs[0]}", "the printed row has lost its label"),
        _row("Energy: loss weight", "not stated", f"{EnergyMargin().weight}", "0.1 is that of the method itself"),
        _row("AugMix: width", "3", f"{defaults['width'].default}"),
        _row("AugMix: Dirichlet parameter", "1.0", "1.0", "not a setting of ours"),
        _row("AugMix: severity", "3", f"{defaults['severity'].default:g}"),
    ]
    recipe = _study_row("unknown_detection", "augmix").recipe
    consistency = "False" if recipe == "augmix_no_jsd" else "True"
    note = f"{AugMixed.__name__} has no consistency loss; the released code has it (the recipe augmix)"
    rows.append(_row("AugMix: consistency loss", "False", consistency, note))
    return rows


_EDL_SEARCH = "plain cross-entropy is the recipe basic, a row of its own"


def _score_rows() -> list[SettingsRow]:
    """Compare what scores are set by, in the studies at the scale of the paper."""
    cifar = _study_row("unknown_detection", "basic")
    imagenet = _study_row("unknown_detection_imagenet", "basic")
    chosen = {name: _settings(cifar, name) for name in ("react", "openmax")}
    on_imagenet = {name: _settings(imagenet, name) for name in ("react", "openmax")}
    grid = scorer("openmax").steps[0].info.grid
    weight = chosen["openmax"].get("distance_weight", 0.005)
    return [
        _row("ODIN: temperature, searched", "1, 10, 100, 1000", "1, 10, 100, 1000", "bench extract --odin-grid"),
        _row(
            "ODIN: temperature, CIFAR / ImageNet",
            "10 / 10",
            f"{_odin(cifar)['temperature']:g} / {_odin(imagenet)['temperature']:g}",
        ),
        _row(
            "ODIN: step, CIFAR / ImageNet",
            "0.002 / 0",
            f"{_odin(cifar)['epsilon']:g} / {_odin(imagenet)['epsilon']:g}",
        ),
        _row(
            "ReAct: threshold, CIFAR / ImageNet",
            "7 / 2",
            f"{chosen['react']['constant']:g} / {on_imagenet['react']['constant']:g}",
        ),
        _row(
            "OpenMax: classes, searched",
            "1, 5, 10, 20, 30, 40",
            ", ".join(str(value) for value in grid["alpha"]),
            "a shorter grid",
        ),
        _row(
            "OpenMax: samples, searched",
            "2, 5, 10, 20, 30, 40",
            ", ".join(str(value) for value in grid["tail"]),
            "a shorter grid",
        ),
        _row("OpenMax: classes, chosen", "1", f"{chosen['openmax']['alpha']}"),
        _row("OpenMax: samples, chosen", "2", f"{chosen['openmax']['tail']}"),
        _row("OpenMax: distance weight", "0.0005", f"{weight:g}", "0.005 in the released code, which we follow"),
    ]


def _row(name: str, printed: str, ours: str, note: str = "") -> SettingsRow:
    agrees = printed == ours
    return SettingsRow(name, printed, ours, agrees, note)


def _study_row(name: str, row: str) -> StudyRow:
    return study.load(name, preset="full", check=False)[row]


def _settings(row: StudyRow, step: str) -> Mapping[str, Any]:
    """Find the settings of a step among the scores of a row."""
    for spec in row.scores:
        for one in scorer(spec).steps:
            if one.info.name == step:
                return one.settings
    return {}


def _odin(row: StudyRow) -> Mapping[str, float]:
    return row.odin or {}


def _searched_recipes() -> dict[str, str]:
    """Describe the values that the preset ``search`` tries."""
    searched = study.load("unknown_detection", preset="search", check=False)
    outer: dict[str, None] = {}
    inner: dict[str, None] = {}
    objectives: dict[str, None] = {}
    titles = {"mse": "MSE", "digamma": "digamma", "log": "log", "ce": "cross-entropy"}
    for row in searched.rows:
        settings = dict(part.split("=") for part in row.recipe.partition("(")[2].rstrip(")").split(", ") if "=" in part)
        if row.family == "energy_finetune":
            outer[f"{float(settings['m_out']):g}"] = None
            inner[f"{float(settings['m_in']):g}"] = None
        if row.family == "edl":
            objectives[titles[settings["objective"].strip("'")]] = None
    return {"edl": ", ".join(objectives), "energy_finetune": f"{', '.join(outer)} and {', '.join(inner)}"}
