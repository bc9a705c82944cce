"""The claims on AURC as a loss."""

from __future__ import annotations

from study_cells import AURC, Column, Contender
from study_claims import StudyClaim, make_row_claim, printed_number

LOSSES = ("empirical", "log", "sele", "self_excluded")
PLUG_INS = ("empirical", "log")


def aurc_claims() -> list[StudyClaim]:
    """Make the claims on each estimator of AURC as the loss."""
    claims = []
    for row in LOSSES:
        text = f"AURC ({row}) as the loss beats cross-entropy"
        claims.append(make_row_claim(text, AURC, "msp", row, ["ce"], printed))
    for row in PLUG_INS:
        text = f"the plug-in ({row}) is a better loss than SELE"
        claims.append(make_row_claim(text, AURC, "msp", row, ["sele"], printed))
    return claims


def printed(contender: Contender, column: Column) -> float | None:
    """Look up a number in Table 1 of the paper."""
    recipe = f"aurc_finetune(estimator='{contender.row}')"
    if contender.row == "ce":
        recipe = "basic"
    return printed_number("aurc_estimators", "1", "aurc-cifar100", column, recipe, model="resnet18")
