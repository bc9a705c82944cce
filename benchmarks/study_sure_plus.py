"""The claims on SURE+: of the short study with every setting as printed, and of the later studies with chosen settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from study_cells import ACCURACY, AURC, Column, Contender
from study_claims import PrintedLookup, StudyClaim, make_row_claim, printed_number
from sure_plus_cells import PRINTED, PRINTED_PLAIN

PLAIN_RECIPES = ("basic", "mixup", "regmixup", "cutmix", "augmix", "pixmix")
PARTS = {  # what each step from SURE to SURE+ changes
    "sure_no_csc": "without CSC",
    "sure_no_csc_crl": "without CRL",
    "sure_ema": "EMA for SWA",
    "sure_ema_rebn": "BN statistics re-estimated",
    "sure_fsam": "F-SAM for SAM",
    "sure_plus": "with RegPixMix",
}
STEPS = ("sure", *PARTS)
FINE_TUNED_TO = {"cifar100-real": "CIFAR-100", "cifar10-real": "CIFAR-10 again"}
PRINTED_NAMES = {"mixup": "Mixup", "regmixup": "RegMixup", "augmix": "AugMix", "pixmix": "PixMix", "cutmix": "CutMix"}
ALL_RIVALS = (*PLAIN_RECIPES, *STEPS[:-1])

DOUBLE = "msp + knn"  # KNN has the paper's best DS-AURC
NEAR_F1, FAR_F1 = Column("ds_f1", "near", "joint"), Column("ds_f1", "far", "joint")
NEAR_AURC, FAR_AURC = Column("ds_aurc", "near", "joint"), Column("ds_aurc", "far", "joint")
MAIN_COLUMNS = (  # columns, and the method that judges
    (ACCURACY, "msp"),
    (AURC, "msp"),
    (NEAR_F1, DOUBLE),
    (FAR_F1, DOUBLE),
    (NEAR_AURC, DOUBLE),
    (FAR_AURC, DOUBLE),
)
BENCHMARKS = {"3": "openood-cifar100", "4": "openood-imagenet1k", "5": "openood-cifar100"}  # by table of the paper


# --- printed numbers ------------------------------------------------------------------------------------------------


def printed_in(table: str, contender: Contender, column: Column) -> float | None:
    """Look up a number in a table of the SURE+ paper.

    Parameters
    ----------
    table : str
        From scratch on CIFAR-100 with pairs (3) or single scores (5), or fine-tuned on ImageNet (4).
    contender : Contender
        Row and method of the number; settings in the name of the row are ignored.
    column : Column
        What is measured.
    """
    score, _, pair = contender.method.partition(" + ")
    if column == ACCURACY:
        score = ""
    recipe = contender.row.partition("-")[0]
    return printed_number("sure_plus", table, BENCHMARKS[table], column, recipe, score, pair)


def printed_from_scratch(contender: Contender, column: Column) -> float | None:
    """Look up a number in Table 3, which has accuracy and pairs, or in Table 5, which has single scores."""
    is_pair = " + " in contender.method
    if is_pair or column == ACCURACY:
        return printed_in("3", contender, column)
    return printed_in("5", contender, column)


# --- the short study ------------------------------------------------------------------------------------------------


def sure_plus_claims() -> list[StudyClaim]:
    """Make the claims of the short study."""
    return [*best_recipe_claims(), *single_task_claims(), *part_claims(), *augmentation_claims(), *figure_claims()]


def best_recipe_claims() -> list[StudyClaim]:
    """Make the claims on SURE+ against all recipes, and against plain training."""
    text = "SURE+ is the best of all recipes"
    claims = column_claims(text, "sure_plus", ALL_RIVALS, printed_from_scratch)
    text = "SURE+ is better than plain training"
    claims += column_claims(text, "sure_plus", ["basic"], printed_from_scratch)
    return claims


def single_task_claims() -> list[StudyClaim]:
    """Make the claims on each task alone, and on SURE."""
    claims = []
    text = "SURE+ is also the best at each task alone (Table 5)"
    for shift in ("near", "far"):
        column = Column("auroc_ood", shift, "openood")
        claims.append(make_row_claim(text, column, "msp", "sure_plus", ALL_RIVALS, printed_from_scratch))
    text = "SURE ranks its own mistakes better than plain training"
    claims.append(make_row_claim(text, AURC, "msp", "sure", ["basic"], printed_from_scratch))
    text = "SURE is worse than plain training on far sets"
    claims.append(make_row_claim(text, FAR_F1, DOUBLE, "sure", ["basic"], printed_from_scratch, worse=True))
    return claims


def part_claims() -> list[StudyClaim]:
    """Make the claims that every step from SURE to SURE+ helps."""
    claims = []
    for before, after in itertools.pairwise(STEPS):
        text = f"every part helps: {PARTS[after]}"
        for column in (NEAR_F1, FAR_F1):
            claims.append(make_row_claim(text, column, DOUBLE, after, [before], printed_from_scratch))
    return claims


def augmentation_claims() -> list[StudyClaim]:
    """Make the claims on other recipes against plain training."""
    claims = []
    for row in ("mixup", "regmixup"):
        text = f"{PRINTED_NAMES[row]} is better than plain training"
        claims.append(make_row_claim(text, NEAR_F1, DOUBLE, row, ["basic"], printed_from_scratch))
    for row in ("augmix", "pixmix", "cutmix"):
        text = f"{PRINTED_NAMES[row]} is worse than plain training"
        claims.append(make_row_claim(text, NEAR_F1, DOUBLE, row, ["basic"], printed_from_scratch, worse=True))
    return claims


def figure_claims() -> list[StudyClaim]:
    """Make the claims of Figure 1a, which is about CutMix and plain training."""
    auroc = Column("auroc_ood", "mnist", "openood")
    joint_f1, joint_aurc = Column("ds_f1", "mnist", "joint"), Column("ds_aurc", "mnist", "joint")
    claims = []
    for text, column, method_name, worse in (
        ("CutMix raises accuracy", ACCURACY, "msp", False),
        ("CutMix raises the AUROC of KLM against MNIST", auroc, "klm", False),
        ("CutMix harms the AURC on known inputs", AURC, "msp", True),
        ("DS-F1 prefers plain training to CutMix", joint_f1, "msp + klm", True),
        ("DS-AURC prefers plain training to CutMix", joint_aurc, "msp + klm", True),
    ):
        full_text = f"Figure 1a: {text}"
        claims.append(make_row_claim(full_text, column, method_name, "cutmix", ["basic"], printed_from_scratch, worse))
    return claims


# --- later studies --------------------------------------------------------------------------------------------------


def tuned_claims() -> list[StudyClaim]:
    """Make the claims of the comparison after 40 epochs."""
    lookup = printed_from_scratch
    rivals = ("basic", "mixup", "regmixup", "cutmix", "sure")
    claims = rival_claims("SURE+, its radius chosen on validation images,", "sure_plus", rivals, lookup)
    text = "SURE+, its radius chosen, is better than plain training, both with the printed learning rate"
    claims += column_claims(text, "sure_plus", [PRINTED_PLAIN], lookup)
    claims += rival_claims("SURE+ with the printed radius, after 40 epochs,", PRINTED, rivals, lookup)
    return claims


def converged_claims() -> list[StudyClaim]:
    """Make the claims of the comparison after 100 epochs."""
    return rival_claims("SURE+ after 100 epochs", "sure_plus", ("basic", "regmixup"), printed_from_scratch)


def finetune_claims() -> list[StudyClaim]:
    """Make the claims of fine-tuning."""
    lookup = partial(printed_in, "4")
    rivals = ("basic", "regmixup", "sure")
    claims = rival_claims("SURE+ in fine-tuning", "sure_plus", rivals, lookup)
    text = "SURE+ in fine-tuning, its radius relative to the weights,"
    claims += rival_claims(text, "sure_plus_relative", rivals, lookup)
    for benchmark, target in FINE_TUNED_TO.items():
        text = f"SURE+ fine-tuned to {target}, its radius relative to the weights, is better than plain training"
        for claim in column_claims(text, "sure_plus_relative", ["basic"], lookup):
            claims.append(replace(claim, benchmark=benchmark))
    return claims


LATER_CLAIMS = {  # by study that is being filled
    "sure_plus_tuned": tuned_claims,
    "sure_plus_converged": converged_claims,
    "sure_plus_finetune": finetune_claims,
}


def rival_claims(subject: str, row: str, rivals: Iterable[str], lookup: PrintedLookup) -> list[StudyClaim]:
    """Make the claims that a row is better than the best of its rivals, and than plain training."""
    claims = column_claims(f"{subject} is better than the best of its rivals", row, rivals, lookup)
    claims += column_claims(f"{subject} is better than plain training", row, ["basic"], lookup)
    return claims


def column_claims(text: str, row: str, rivals: Iterable[str], lookup: PrintedLookup) -> list[StudyClaim]:
    """Make a claim on accuracy, AURC and the joint metrics of near and far sets."""
    claims = []
    for column, method_name in MAIN_COLUMNS:
        claims.append(make_row_claim(text, column, method_name, row, rivals, lookup))
    return claims
