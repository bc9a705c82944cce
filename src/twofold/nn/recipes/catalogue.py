"""The recipes by name, each one expression."""

from __future__ import annotations

from collections.abc import Mapping

from twofold.nn.recipes.composition import ConfidNetStages, Recipe
from twofold.nn.recipes.confidence import CRL, Evidential, Gambler, Hints, LogitNorm, Ranked
from twofold.nn.recipes.network import Abstention, Branch, CosineClassifier, Dropout, FeatureNorm, PrototypeClassifier
from twofold.nn.recipes.optimisation import Averaged, FineTune, Members, ReBN, Sharpness
from twofold.nn.recipes.outliers import EnergyMargin, OutlierExposure
from twofold.nn.recipes.prototypes import Cider
from twofold.nn.recipes.views import AugMix, AugMixed, Clean, CutMix, MixUp, PixMix

SURE = Clean() | MixUp(10.0) | CRL() | CosineClassifier() | Sharpness("sam") | Averaged("swa")
SURE_PLUS = Clean() | MixUp(10.0) | PixMix() | Sharpness("fsam") | Averaged("ema")

RECIPES: Mapping[str, Recipe] = {
    "basic": Recipe((Clean(),)),
    "mixup": Recipe((MixUp(0.2),)),
    "regmixup": Clean() | MixUp(10.0),
    "cutmix": Recipe((CutMix(),)),
    "augmix": Clean() | AugMix(),
    "augmix_no_jsd": Recipe((AugMixed(),)),
    "pixmix": Recipe((PixMix(),)),
    "regpixmix": Clean() | PixMix(),
    "label_smoothing": Recipe((Clean(smoothing=0.1),)),
    "logitnorm": Recipe((LogitNorm(),)),
    "t2fnorm": Clean() | FeatureNorm(),
    "cider": Cider() | PrototypeClassifier(),
    "crl": Clean() | CRL(),
    "sam": Clean() | Sharpness("sam", rho=0.05),
    "fsam": Clean() | Sharpness("fsam"),
    "swa": Clean() | Averaged("swa"),
    "ema": Clean() | Averaged("ema"),
    "fmfp": Clean() | Sharpness("sam", rho=0.05) | Averaged("swa"),
    "sure": SURE,
    "sure_no_csc": SURE - CosineClassifier,
    "sure_no_csc_crl": SURE - CosineClassifier - CRL,
    "sure_ema": SURE - CosineClassifier - CRL | Averaged("ema", rebn=False),
    "sure_ema_rebn": SURE - CosineClassifier - CRL | Averaged("ema"),
    "sure_fsam": SURE - CosineClassifier - CRL | Sharpness("fsam") | Averaged("ema"),
    "sure_plus": SURE_PLUS,
    "sure_plus_released": SURE_PLUS
    | PixMix(compat="published")
    | Sharpness("fsam", redraw=True)
    | Averaged("ema", rebn=False, released=True, decay=0.9998, ramp=2000.0),
    "sure_plus_printed": SURE_PLUS | PixMix(rounds=(1, 4)) | Sharpness("fsam", variant="printed"),
    "sure_plus_fast": SURE_PLUS | Sharpness("fsam", ascent="clean"),
    "rebn": FineTune() | ReBN(),
    "edl": Recipe((Evidential(),)),
    "edl_original": Recipe((Evidential(1.0, objective="mse", evidence="relu", annealing=10.0),)),
    "oe": Clean() | OutlierExposure(),
    "energy_finetune": Clean() | EnergyMargin() | FineTune(0.02),
    "mc_dropout": Clean() | Dropout(),
    "deep_ensemble": Clean() | Members(),
    "confidnet": Clean() | Branch("confidnet") | ConfidNetStages(),
    "devries": Hints() | Branch("devries"),
    "gamblers": Gambler() | Abstention(),
    "aurc_finetune": Ranked() | FineTune(0.02),
}
