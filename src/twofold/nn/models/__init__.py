"""Classifiers: any network as logits and features, loading by name, and the networks of the papers."""

from twofold.nn.models.head import Captured, Classifier
from twofold.nn.models.load import load
from twofold.nn.models.zoo import build, names

__all__ = ["Captured", "Classifier", "build", "load", "names"]
