"""Classifiers: any network as logits and features, loading by name, and the networks of the papers."""

from twofold.nn.models.adapted import AdaptedNetwork, adapt, find_head
from twofold.nn.models.checkpoint import LoadedWeights
from twofold.nn.models.description import ModelDescription, NetworkDescription, read_description
from twofold.nn.models.head import Captured, Classifier
from twofold.nn.models.load import load
from twofold.nn.models.stages import freeze, stages
from twofold.nn.models.zoo import TRANSFORMERS, build, is_transformer, names, paper_dropout, summarise

__all__ = [
    "TRANSFORMERS",
    "AdaptedNetwork",
    "Captured",
    "Classifier",
    "LoadedWeights",
    "ModelDescription",
    "NetworkDescription",
    "adapt",
    "build",
    "find_head",
    "freeze",
    "is_transformer",
    "load",
    "names",
    "paper_dropout",
    "read_description",
    "stages",
    "summarise",
]
