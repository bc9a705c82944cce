"""Results and settings are values: frozen, and those that hold arrays compare by identity."""

import dataclasses
import importlib
import pkgutil

import pytest

import twofold

ELSEWHERE = {"nn", "adapters", "plot", "report", "study", "demo", "wrapping", "cli"}  # torch, figures or pages
CHANGING = {"Monitor"}  # counts what it sees
ARRAYS = ("Array", "Mask", "Labels", "Floats", "NDArray", "Weights", "Outputs", "Head")


def all_dataclasses():
    found = set()
    for module in pkgutil.walk_packages(twofold.__path__, "twofold."):
        if module.name.split(".")[1] not in ELSEWHERE:
            members = vars(importlib.import_module(module.name)).values()
            found |= {m for m in members if isinstance(m, type) and dataclasses.is_dataclass(m)}
    return sorted(found, key=lambda c: (c.__module__, c.__qualname__))


DATACLASSES = all_dataclasses()


def test_there_are_some():
    assert len(DATACLASSES) > 50


@pytest.mark.parametrize("cls", DATACLASSES, ids=lambda c: f"{c.__module__}.{c.__qualname__}")
def test_a_value_cannot_be_changed(cls):
    assert cls.__dataclass_params__.frozen == (cls.__name__ not in CHANGING)


@pytest.mark.parametrize("cls", DATACLASSES, ids=lambda c: f"{c.__module__}.{c.__qualname__}")
def test_values_with_arrays_are_equal_to_themselves_alone(cls):
    """Comparing arrays element by element would leave the truth of ``a == b``, and the hash, undefined."""
    annotations = " ".join(str(field.type) for field in dataclasses.fields(cls))
    machinery = ("twofold.scores.pairs", "twofold.scores.registry", "twofold.scores.tuning")
    is_step = cls.__module__.startswith("twofold.scores.") and cls.__module__ not in machinery  # may hold other steps
    if any(word in annotations for word in ARRAYS) or cls.__name__ in CHANGING or is_step:
        assert cls.__eq__ is object.__eq__
        assert cls.__hash__ is object.__hash__
