"""What the studies cannot test at this scale, and what they have of the papers' scale on a GPU."""

from __future__ import annotations

from functools import cache

import numpy as np

from claims import NOT_TESTABLE
from study_catalogue import STUDIES, VARIANTS, base_study, load_study
from study_cells import ACCURACY, Contender, FinishedCells
from study_claims import StudyClaim
from study_sure_plus import STEPS
from sure_plus_cells import PRINTED
from twofold import study as studies
from twofold.study import Study

PAPER_NETWORK = {  # by study: the network of the paper's code
    "sure_plus": "resnet18_32",
    "aurc_finetune": "resnet18_32",
    "unknown": "resnet20_cifar",  # printed as ResNet-18, built as a ResNet-20 by the released code
    "paradigms": "vgg13",
}
PAPER_CLASSES = 100  # of the data on which the paper trains SURE+
TOO_LARGE = 2.0  # how many times larger than in the paper a perturbation may be, relative to the weights
DECISIVE = {"aurc_finetune": "aurc_converged"}  # the variant that has what a claim is about: a trained network


def verdict_without_numbers(name: str, claim: StudyClaim) -> str | None:
    """Return the verdict on a claim that a study cannot test, whatever its numbers are; None where it can."""
    if name in DECISIVE:
        return NOT_TESTABLE
    if has_printed_radius(name, claim) and perturbation_ratio(load_study(name)) > TOO_LARGE:
        return NOT_TESTABLE
    return None


def has_printed_radius(name: str, claim: StudyClaim) -> bool:
    """Tell whether a claim is about a recipe that perturbs the weights by the printed length."""
    if base_study(name) == "sure_plus":
        return not claim.rows.isdisjoint(STEPS)  # SURE and all that follows from it
    if name == "sure_plus_finetune":
        return claim.contender.row == "sure_plus"
    return claim.contender.row == PRINTED


def perturbation_ratio(study: Study) -> float:
    """Compute how many times larger than in the paper a perturbation of one length is, relative to the weights."""
    return paper_weight_norm() / study_weight_norm(study)


def paper_weight_norm() -> float:
    """Compute the norm of the weights of the network of the SURE+ paper."""
    return weight_norm(PAPER_NETWORK["sure_plus"], PAPER_CLASSES)


def study_weight_norm(study: Study) -> float:
    """Compute the norm of the weights of the network of a study."""
    return weight_norm(study.model, study.benchmarks[0].classes)


@cache
def weight_norm(model: str, classes: int) -> float:
    """Compute the Euclidean norm of the parameters of a network at the start of training."""
    import torch

    from twofold.nn.models import build

    torch.manual_seed(0)
    squares = 0.0
    for parameter in build(model, classes=classes).parameters():
        squares += float(parameter.detach().double().pow(2).sum())
    return float(np.sqrt(squares))


def starting_accuracy(cells: FinishedCells) -> float:
    """Return the accuracy, in percent, of the networks that a study fine-tunes."""
    return 100 * cells.mean(Contender("basic", "msp"), ACCURACY)


def untestable_words(cells: FinishedCells, variants: dict[str, FinishedCells]) -> list[str]:
    """Say on the page of a study why some of its claims are not testable; nothing where all are testable.

    Parameters
    ----------
    cells : FinishedCells
        Cells of the study.
    variants : dict of str to FinishedCells
        Cells of its variants, by name.
    """
    if cells.name == "sure_plus":
        return radius_words(cells.study)
    decisive = DECISIVE.get(cells.name)
    if decisive not in variants:
        return []
    return [
        "The claim is about fine-tuning a trained network. The short study starts from a network with "
        f"{starting_accuracy(cells):.1f} % accuracy, so its lines are {NOT_TESTABLE}. The study "
        f"{VARIANTS[decisive].label} decides instead."
    ]


def radius_words(study: Study) -> list[str]:
    """Say how large the radius of SURE+ is relative to the weights, if it is too large for a verdict."""
    ratio = perturbation_ratio(study)
    if ratio <= TOO_LARGE:
        return []
    return [
        "SURE, SURE+ and the steps between them perturb the weights by a fixed length (rho = 0.2) before each update, "
        "whatever the norm of the weights. At the start of training this norm is "
        f"{study_weight_norm(study):.1f} for {study.model} and {paper_weight_norm():.1f} for the paper's "
        f"{PAPER_NETWORK['sure_plus']}. Relative to the weights, rho is therefore {ratio:.1f} times larger here than in the "
        f"paper. Training is also much shorter. For both reasons every claim about these recipes is {NOT_TESTABLE}, after "
        "40 epochs too: the table shows the numbers, but no verdict follows from them."
    ]


def reason(cells: FinishedCells, seeds: int) -> str:
    """Say why a line of a study, with some number of seeds, is not testable, and what would test it."""
    if cells.name in DECISIVE:
        return (
            f"Not testable: fine-tuning starts from a network with {starting_accuracy(cells):.1f} % accuracy; a trained "
            "one tests it"
        )
    is_short = base_study(cells.name) == "sure_plus"
    if seeds < 2 and not is_short:
        return "Not testable yet: one seed; the other seeds of the study test it"
    remedy = "a radius that is chosen here, or relative to the weights, tests it"
    if is_short:
        remedy = "a chosen radius and longer training (study sure_plus_tuned) test it"
    return (
        f"Not testable: relative to the weights, the printed rho is {perturbation_ratio(cells.study):.1f} times larger "
        f"than in the paper; {remedy}"
    )


def full_scale() -> str:
    """Say for which studies the preset ``full`` has the scale of the paper, and what differs for the others."""
    same = []
    other = []
    for name in STUDIES:
        model = studies.load(name, preset="full", check=False).model
        paper_model = PAPER_NETWORK[name]
        if model == paper_model:
            same.append(f"`{name}`")
        else:
            other.append(f"`{name}` trains a {model}, while the paper's code has a {paper_model}")
    return (
        f"On a GPU, `twofold study run NAME --preset full --device cuda --out DIR` runs {' and '.join(same)} with the networks and data of their "
        f"papers. For the others `full` differs from the paper: {'; '.join(other)}."
    )
