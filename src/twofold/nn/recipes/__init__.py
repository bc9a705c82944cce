r"""Training recipes: each is one expression that puts small parts together.

A recipe is loss terms (what the network learns from which view of a batch), an optimiser wrapper, an average of the
weights, options of the network, and stages that follow. ``a | b`` puts parts together, ``recipe - Kind`` leaves a part
out, so that the ablations of a paper are one expression each. Equations stand with the parts in
:mod:`twofold.nn.ingredients`.

``catalogue`` holds the recipes by name, ``text`` reads them from text, and ``composition`` puts parts together. The
parts are in ``views``, ``confidence``, ``outliers`` and ``prototypes`` (loss terms), ``optimisation`` (how the weights
move) and ``network`` (what the network is built with).
"""

from twofold.nn.recipes.catalogue import RECIPES
from twofold.nn.recipes.composition import ConfidNetStages, Recipe, Stage, Stages
from twofold.nn.recipes.confidence import CRL, Evidential, Gambler, Hints, LogitNorm, Ranked, TrueClass
from twofold.nn.recipes.network import Abstention, Branch, CosineClassifier, Dropout, FeatureNorm, PrototypeClassifier
from twofold.nn.recipes.optimisation import Averaged, FineTune, Frozen, Members, ReBN, Sharpness
from twofold.nn.recipes.outliers import EnergyMargin, OutlierExposure
from twofold.nn.recipes.part import AugmentedBatch, NetworkOptions, Option, Part, Remembered, Term
from twofold.nn.recipes.prototypes import Cider
from twofold.nn.recipes.text import recipe
from twofold.nn.recipes.views import AugMix, AugMixed, Clean, CutMix, MixUp, PixMix

__all__ = [
    "CRL",
    "RECIPES",
    "Abstention",
    "AugMix",
    "AugMixed",
    "AugmentedBatch",
    "Averaged",
    "Branch",
    "Cider",
    "Clean",
    "ConfidNetStages",
    "CosineClassifier",
    "CutMix",
    "Dropout",
    "EnergyMargin",
    "Evidential",
    "FeatureNorm",
    "FineTune",
    "Frozen",
    "Gambler",
    "Hints",
    "LogitNorm",
    "Members",
    "MixUp",
    "NetworkOptions",
    "Option",
    "OutlierExposure",
    "Part",
    "PixMix",
    "PrototypeClassifier",
    "Ranked",
    "ReBN",
    "Recipe",
    "Remembered",
    "Sharpness",
    "Stage",
    "Stages",
    "Term",
    "TrueClass",
    "recipe",
]
