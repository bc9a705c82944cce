"""The claims on unknown detection, and what the page of its study has beyond them."""

from __future__ import annotations

from study_cells import Column, Contender, FinishedCells
from study_claims import StudyClaim, direction, make_claim, printed_number
from tables import markdown

BASE = Contender("basic", "msp")
ENSEMBLE = Contender("ensemble", "mc_msp")
OUTLIER_EXPOSURE = Contender("oe", "msp")
ENERGY = Contender("energy", "energy")
EDL = Contender("edl", "msp")
CRL = Contender("crl", "msp")
MC_DROPOUT = Contender("mc_dropout", "mc_msp")

NAMES = {  # what the paper calls the rows of its table
    ENSEMBLE: "the ensemble",
    OUTLIER_EXPOSURE: "OE",
    Contender("augmix", "msp"): "AugMix",
    ENERGY: "energy fine-tuning",
    EDL: "EDL",
    Contender("basic", "openmax"): "OpenMax",
    CRL: "CRL",
    MC_DROPOUT: "MC dropout",
    Contender("basic", "react|energy"): "ReAct",
    Contender("basic", "odin"): "ODIN",
}
RECIPES = {"ensemble": "deep_ensemble", "energy": "energy_finetune"}  # of rows with a name of their own

UNKNOWN_SETS = ("cifar60", "svhn", "textures", "gaussian")
POOLED = Column("aurc", "pooled", "unknown")
MISCLASSIFICATION = Column("aurc", "test", "unknown")
TEST_ACCURACY = Column("accuracy", "test", "unknown")


# --- claims ---------------------------------------------------------------------------------------------------------


def unknown_claims() -> list[StudyClaim]:
    """Make the claims on unknown detection, misclassification, accuracy and single unknown sets."""
    rivals = [BASE]
    for contender in NAMES:
        if contender != ENSEMBLE:
            rivals.append(contender)
    text = "the ensemble is the best at unknown detection"
    claims = [make_claim(text, POOLED, ENSEMBLE, rivals, printed)]
    claims += baseline_claims("unknown detection", POOLED)
    claims += baseline_claims("misclassification", MISCLASSIFICATION)
    text = "the ensemble has the best accuracy"
    claims.append(make_claim(text, TEST_ACCURACY, ENSEMBLE, rivals, printed))
    for contender in (OUTLIER_EXPOSURE, ENERGY):
        text = f"{NAMES[contender]} loses accuracy"
        claims.append(make_claim(text, TEST_ACCURACY, contender, [BASE], printed, worse=True))
    claims += single_set_claims()
    return claims


def baseline_claims(task: str, column: Column) -> list[StudyClaim]:
    """Make the claim of every method against MCP, in the direction of the printed AURC."""
    claims = []
    for contender, name in NAMES.items():
        worse = printed(contender, column) > printed(BASE, column)
        text = f"{name} is {direction(worse)} than MCP at {task}"
        claims.append(make_claim(text, column, contender, [BASE], printed, worse))
    return claims


def single_set_claims() -> list[StudyClaim]:
    """Make the claims on AUROC against single unknown sets."""
    claims = []
    for contender, shifts, worse in (
        (ENSEMBLE, ("cifar60",), False),
        (OUTLIER_EXPOSURE, ("svhn", "textures"), False),
        (CRL, UNKNOWN_SETS, False),
        (EDL, UNKNOWN_SETS, False),
        (MC_DROPOUT, UNKNOWN_SETS, True),
    ):
        text = f"{NAMES[contender]} is {direction(worse)} than MCP against an unknown set"
        for shift in shifts:
            claims.append(make_claim(text, auroc(shift), contender, [BASE], printed, worse))
    return claims


def auroc(shift: str) -> Column:
    """Return the AUROC against an unknown set."""
    return Column("auroc_ood", shift, "unknown")


def printed(contender: Contender, column: Column) -> float | None:
    """Look up a number in Table 6 of the paper."""
    recipe = RECIPES.get(contender.row, contender.row)
    return printed_number("unknown_detection", "6", "unknown-cifar", column, recipe, contender.method)


# --- page -----------------------------------------------------------------------------------------------------------


def softmax_section(cells: FinishedCells) -> list[str]:
    """Compare these networks with those of the paper by what the plain softmax does on each unknown set."""
    lines = []
    below_half = []
    for shift in UNKNOWN_SETS:
        ours = cells.mean(BASE, auroc(shift))
        lines.append([shift, f"{printed(BASE, auroc(shift)):.5g}", f"{100 * ours:.2f}"])
        if ours < 0.5:
            below_half.append(shift)
    words = "It is above 50 % on all of them."
    if below_half:
        words = (
            f"On {', '.join(below_half)} it is below 50 %: these networks are more confident on such inputs than on known "
            "ones, which raises the pooled AURC of every method."
        )
    return [
        "## Plain softmax on each unknown set",
        f"The AUROC of MCP, known against unknown inputs. {words}",
        markdown(("set", "paper, %", "here, %"), lines),
    ]
