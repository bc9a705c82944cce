"""Recipes described by text: a name, and settings of its parts."""

from __future__ import annotations

import ast
from dataclasses import fields, replace

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.recipes.catalogue import RECIPES
from twofold.nn.recipes.composition import Recipe
from twofold.nn.recipes.part import Part
from twofold.nn.recipes.views import Clean

SHARED = "weight"  # of several terms: that of each but the clean cross-entropy


def recipe(name: str, /, **settings: object) -> Recipe:
    """Return a recipe by name, with settings of its parts where they are given.

    ``weight`` is that of every loss term beside the clean cross-entropy, so that ``sure_plus(weight=0.5)`` halves both
    regularisers. Any other setting that several parts have is named with its part: ``sure_plus(mixup_weight=0.5)``,
    ``sure(averaged_lr=0.5)``. The name of a part is its class in lower case.

    Parameters
    ----------
    name : str
        A name in ``RECIPES``, or ``name(setting=value, ...)``.
    **settings
        Settings of the parts, as in the brackets; those in the brackets come first.

    Returns
    -------
    Recipe
        The recipe.

    Raises
    ------
    UnknownName
        If there is no such recipe or setting.
    InvalidInput
        If the text is not a name or a call, a value is out of range, or several parts have a setting of this name.

    Examples
    --------
    >>> print(recipe("aurc_finetune(estimator='sele')"))
    FineTune(lr=0.02) | Ranked(estimator='sele')
    >>> print(recipe("regmixup", mixup_weight=0.5))
    Clean(weight=1.0, smoothing=0.0) | MixUp(alpha=10.0, weight=0.5)
    """
    plain, bracket, _ = name.partition("(")
    if plain not in RECIPES:
        raise UnknownName.of("recipe", plain, RECIPES)
    chosen = dict(settings)
    if bracket:
        chosen |= _parse_settings(name)
    composed = RECIPES[plain]
    for setting, value in chosen.items():
        composed = _change(composed, setting, value, plain)
    return composed


def _parse_settings(text: str) -> dict[str, object]:
    """Read the keywords of a call whose values are literals."""
    settings: dict[str, object] = {}
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not a call with keywords alone")
        for keyword in call.keywords:
            settings[str(keyword.arg)] = ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"recipe {text!r} must be a name, or name(setting=value, ...)") from error
    return settings


def _change(composed: Recipe, setting: str, value: object, name: str) -> Recipe:
    """Change a setting of the parts that it names."""
    for part, field in _find_holders(composed, setting, name):
        try:
            composed |= replace(part, **{field: value})
        except InvalidInput as error:
            raise InvalidInput(f"{name}({setting}={value!r}): {error}") from error
    return composed


def _find_holders(composed: Recipe, setting: str, name: str) -> list[tuple[Part, str]]:
    """Find the parts of a recipe that a setting belongs to, and its name there."""
    holders: list[tuple[Part, str]] = []
    known: set[str] = set()
    for part in composed.parts:
        kind = type(part).__name__.lower()
        for field in fields(part):
            full_name = f"{kind}_{field.name}"
            known |= {field.name, full_name}
            if setting in (field.name, full_name):
                holders.append((part, field.name))
    if not holders:
        raise UnknownName.of(f"setting of {name}", setting, sorted(known))
    if len(holders) > 1 and setting == SHARED:
        return [(part, field) for part, field in holders if not isinstance(part, Clean)]
    if len(holders) > 1:
        names = [f"{type(part).__name__.lower()}_{field}" for part, field in holders]
        raise InvalidInput(f"several parts of {name} have {setting}; write {' or '.join(names)}")
    return holders
