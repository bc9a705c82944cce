"""Tables of settings of FD-Shifts: its trainings beside our presets, its choices beside our study, and its Listing 1.

Jaeger et al., A Call to Reflect on Evaluation Practices for Failure Detection, ICLR 2023, arXiv:2211.15259.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from twofold import metrics
from twofold import study as studies
from twofold.bench.published import Anchor, anchors
from twofold.papers.settings_tables import SettingsRow, register_settings
from twofold.scores.chain import scorer
from twofold.study import StudyRow

if TYPE_CHECKING:
    from twofold.nn.training import Preset


class _Training(NamedTuple):
    """A line of Table 4, and the preset that it should be."""

    name: str
    preset: str
    lr: float
    weight_decay: float
    batch: int
    epochs: int
    plain_epochs: int
    branch_epochs: int
    encoder_epochs: int


_TRAININGS = (
    _Training("SVHN", "fd_svhn_printed", 1e-2, 15e-4, 128, 100, 50, 200, 20),
    _Training("CIFAR-10", "fd_cifar10_printed", 1e-1, 5e-4, 128, 250, 50, 200, 20),
    _Training("CIFAR-100", "fd_cifar100_printed", 1e-1, 5e-4, 128, 250, 50, 200, 20),
    _Training("iWildCam", "fd_iwildcam_printed", 1e-3, 0.0, 16, 12, 6, 5, 3),
    _Training("Wilds-Camelyon-17", "fd_camelyon_printed", 1e-2, 1e-2, 32, 5, 3, 3, 1),
    _Training("BREEDS-Entity-13", "fd_breeds", 1e-1, 1e-4, 128, 300, 50, 200, 20),
)
_STUDY_PRESETS: dict[str, str | None] = {  # of the study fd_shifts, by benchmark
    "fd-cifar10": None,
    "fd-cifar100": "cifar100",
    "fd-svhn": "svhn",
    "fd-iwildcam": "iwildcam",
    "fd-camelyon": "camelyon",
    "fd-breeds": "breeds",
}
_VIT_PRESETS = {  # what stands in the middle of their names, by benchmark
    "fd-svhn": "svhn",
    "fd-cifar10": "cifar10",
    "fd-cifar100": "cifar100",
    "fd-supercifar100": "super_cifar100_printed",
    "fd-iwildcam": "iwildcam_printed",
    "fd-camelyon": "camelyon",
    "fd-breeds": "breeds",
}


@register_settings("fd_shifts_trainings")
def fd_shifts_trainings() -> tuple[SettingsRow, ...]:
    """Compare the trainings in Table 4 of FD-Shifts with our presets.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed number.
    """
    from twofold.nn.training import find_preset

    rows = []
    for line in _TRAININGS:
        preset = find_preset(line.preset)
        ours = _preset_numbers(preset)
        printed = line._asdict()
        for key, value in ours.items():
            agrees = abs(value - printed[key]) < 1e-12
            name = f"{line.name}: {key.replace('_', ' ')}"
            rows.append(SettingsRow(name, f"{printed[key]:g}", f"{value:g}", agrees, f"preset {line.preset}"))
    return tuple(rows)


def _preset_numbers(preset: Preset) -> dict[str, float]:
    """Read the numbers of Table 4 from a preset."""
    settings = preset.settings
    gamblers = preset.variations["gamblers"]
    confidnet = preset.variations["confidnet"].parts
    plain_epochs = float(str(gamblers.parts["warm_up"])) * preset.settings_for("gamblers").epochs
    return {
        "lr": settings.lr,
        "weight_decay": settings.weight_decay,
        "batch": settings.batch,
        "epochs": settings.epochs,
        "plain_epochs": round(plain_epochs, 9),
        "branch_epochs": float(str(confidnet["branch_epochs"])),
        "encoder_epochs": float(str(confidnet["encoder_epochs"])),
    }


@register_settings("fd_shifts_rewards")
def fd_shifts_rewards() -> tuple[SettingsRow, ...]:
    """Compare the rewards in Table 5 of FD-Shifts with those among which our study chooses.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed reward; it agrees if the study has it for that score and data set.

    Examples
    --------
    >>> [row.name for row in fd_shifts_rewards() if not row.agrees]
    ['fd-cifar10: mc_msp']
    """
    rows = []
    for anchor in anchors(paper="fd_shifts", table="5"):
        rewards = []
        for row in _study_rows(anchor):
            rewards.append(float(row.recipe.partition("reward=")[2].rstrip(")")))
        agrees = anchor.value in rewards
        ours = ", ".join(f"{reward:g}" for reward in dict.fromkeys(rewards))
        note = "" if agrees else "the paper's own list for this data set does not have it"
        rows.append(SettingsRow(_name(anchor), f"{anchor.value:g}", f"one of {ours}", agrees, note))
    return tuple(rows)


@register_settings("fd_shifts_dropout")
def fd_shifts_dropout() -> tuple[SettingsRow, ...]:
    """Compare the choice of dropout in Table 6 of FD-Shifts with the rows among which our study chooses.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed choice; it agrees if the study has such a training with that score.

    Examples
    --------
    >>> all(row.agrees for row in fd_shifts_dropout())
    True
    """
    rows = []
    for anchor in anchors(paper="fd_shifts", table="6"):
        choices = sorted({int(row.dropout > 0) for row in _study_rows(anchor)})
        ours = " or ".join(map(str, choices))
        rows.append(SettingsRow(_name(anchor), f"{anchor.value:g}", ours, anchor.value in choices))
    return tuple(rows)


def _study_rows(anchor: Anchor) -> list[StudyRow]:
    """Find the rows of our study that train as a printed line does, and have its score."""
    study = studies.load("fd_shifts", preset=_STUDY_PRESETS[anchor.benchmark], check=False)
    found = []
    for row in study.rows:
        scores = [scorer(score).spec for score in row.scores or study.benchmarks[0].scores]
        if row.recipe.partition("(")[0] == anchor.recipe and anchor.score in scores:
            found.append(row)
    return found


def _name(anchor: Anchor) -> str:
    return f"{anchor.benchmark}: {anchor.score}"


@register_settings("fd_shifts_vit")
def fd_shifts_vit() -> tuple[SettingsRow, ...]:
    """Compare the trainings of ViT in Table 7 of FD-Shifts with our presets.

    Returns
    -------
    tuple of SettingsRow
        A row for each printed number.
    """
    from twofold.nn.training import find_preset

    rows = []
    for anchor in anchors(paper="fd_shifts", table="7"):
        name = f"fd_vit_{_VIT_PRESETS[anchor.benchmark]}_{_vit_kind(anchor.score)}"
        preset = find_preset(name)
        settings = preset.settings
        numbers = {
            "init_lr": settings.lr,
            "dropout": float(bool(preset.dropout)),
            "weight_decay": settings.weight_decay,
            "batch_size": float(settings.batch),
            "steps": float(settings.steps or 0),
        }
        ours = numbers[anchor.metric]
        agrees = abs(ours - anchor.value) < 1e-12
        label = f"{anchor.benchmark}, {anchor.score}: {anchor.metric}"
        rows.append(SettingsRow(label, f"{anchor.value:g}", f"{ours:g}", agrees, f"preset {name}"))
    return tuple(rows)


def _vit_kind(score: str) -> str:
    """Name the preset of a score: what its learning rate was chosen for."""
    if score == "mds":
        return "maha"
    if score == "mcd":  # any score of several passes
        return "mcd"
    return "msr"


class _ListingCase(NamedTuple):
    """An input whose result under the printed code is known."""

    name: str
    correct: tuple[bool, ...]
    conf: tuple[float, ...]
    printed: float  # x1000, four decimals


_RISING = tuple(range(100))
_WRONG_FIRST = (False,) * 50 + (True,) * 50
_IN_TURN = tuple(place % 2 == 0 for place in range(100))
_LISTING = (
    _ListingCase("100 mistakes without ties", (False,) * 100, _RISING, 990.0),
    _ListingCase("50 wrong, then 50 right, one confidence for all", _WRONG_FIRST, (0.5,) * 100, 490.0253),
    _ListingCase("right at 1, wrong at 0, in turn", _IN_TURN, tuple(map(float, _IN_TURN)), 128.7121),
)


@register_settings("fd_shifts_listing")
def fd_shifts_listing() -> tuple[SettingsRow, ...]:
    """Compare what Listing 1 of FD-Shifts computes with our estimator ``listing``.

    Returns
    -------
    tuple of SettingsRow
        A row for each input; the remark has our default and the corrected trapezoids.

    Examples
    --------
    >>> all(row.agrees for row in fd_shifts_listing())
    True
    """
    rows = []
    for case in _LISTING:
        ours = 1000 * metrics.aurc(case.correct, case.conf, estimator="listing")
        plain = 1000 * metrics.aurc(case.correct, case.conf)
        trapezoid = 1000 * metrics.aurc(case.correct, case.conf, estimator="trapezoid")
        note = f"aurc x1000; {plain:.4f} by default, {trapezoid:.4f} by trapezoids between the ends of tie groups"
        agrees = abs(ours - case.printed) < 1e-3
        rows.append(SettingsRow(case.name, f"{case.printed:.4f}", f"{ours:.4f}", agrees, note))
    return tuple(rows)
