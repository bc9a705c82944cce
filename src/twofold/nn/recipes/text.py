"""Recipes described by text: a name, and settings of its parts."""

from __future__ import annotations

import ast
from dataclasses import fields, replace

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.recipes.catalogue import RECIPES
from twofold.nn.recipes.composition import Recipe
from twofold.nn.recipes.part import Part


def recipe(name: str) -> Recipe:
    """Return a recipe by name, with settings of its parts where they are given.

    Parameters
    ----------
    name : str
        A name in ``RECIPES``, or ``name(setting=value, ...)`` where exactly one part of the recipe has each setting.

    Returns
    -------
    Recipe
        The recipe.

    Raises
    ------
    UnknownName
        If there is no such recipe or setting.
    InvalidInput
        If the text is not a name or a call, or several parts have a setting of this name.

    Examples
    --------
    >>> print(recipe("aurc_finetune(estimator='sele')"))
    FineTune(lr=0.02) | Ranked(estimator='sele')
    """
    plain, bracket, _ = name.partition("(")
    if plain not in RECIPES:
        raise UnknownName.of("recipe", plain, RECIPES)
    if not bracket:
        return RECIPES[plain]
    changed = RECIPES[plain]
    for setting, value in _parse_settings(name).items():
        part = _find_part_with(changed, setting, plain)
        changed |= replace(part, **{setting: value})
    return changed


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


def _find_part_with(composed: Recipe, setting: str, name: str) -> Part:
    """Find the one part of a recipe that has a setting."""
    known: set[str] = set()
    holders = []
    for part in composed.parts:
        names = {field.name for field in fields(part)}
        known |= names
        if setting in names:
            holders.append(part)
    if not holders:
        raise UnknownName.of(f"setting of {name}", setting, sorted(known))
    if len(holders) > 1:
        kinds = " and ".join(type(part).__name__ for part in holders)
        raise InvalidInput(f"{setting} is a setting of {kinds} of this recipe; compose it in Python instead")
    return holders[0]
