from . import clip, corruptions, data, embedding, extraction, ingredients, models, onnx, perturb, recipes, training
from .extraction import extract
from .models import Captured, Classifier, build, load
from .onnx import to_onnx
from .recipes import recipe
from .training import train

__all__ = [
    "Captured",
    "Classifier",
    "build",
    "clip",
    "corruptions",
    "data",
    "embedding",
    "extract",
    "extraction",
    "ingredients",
    "load",
    "models",
    "onnx",
    "perturb",
    "recipe",
    "recipes",
    "to_onnx",
    "train",
    "training",
]
