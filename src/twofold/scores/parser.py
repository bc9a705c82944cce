"""Texts such as ``"react(percentile=90)|energy"``, parsed into the steps of a chain."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from twofold.errors import InvalidInput
from twofold.scores.registry import PROJECTIONS, info
from twofold.scores.step import ChainStep

EXAMPLE = '"react(percentile=90)|energy"'
CANNOT_PARSE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)  # also of NUL bytes and deep nesting


def parse_chain(spec: str, settings: Mapping[str, object] | None = None) -> tuple[ChainStep, ...]:
    """Parse the text of a chain, and check that its steps can stand together.

    Parameters
    ----------
    spec : str
        Steps separated by ``|``: transforms, then one score.
    settings : mapping of str to object, optional
        Further settings of the score.

    Returns
    -------
    tuple of ChainStep
        The steps, not fitted.

    Raises
    ------
    InvalidInput
        If the text cannot be parsed, a setting is unknown, or the steps do not go together.
    UnknownName
        If no step has a name of the text.

    Examples
    --------
    >>> [step.spec for step in parse_chain("react(percentile=90)|energy")]
    ['react(percentile=90)', 'energy']
    """
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidInput(f"a chain is a text such as {EXAMPLE}, got {spec!r}")
    *transforms, score = [_parse_step(text, spec) for text in split_steps(spec)]
    if settings:
        score = ChainStep.make(score.info, {**score.settings, **settings})
    for step in transforms:
        if step.info.kind != "transform":
            raise InvalidInput(f"{step.info.name} in {spec!r} is a score; only the last step may be one")
    if score.info.kind != "score":
        raise InvalidInput(f"{spec!r} ends with the transform {score.info.name}; add a score, such as |energy")
    _check_projections(transforms, score)
    return (*transforms, score)


def _check_projections(transforms: Sequence[ChainStep], score: ChainStep) -> None:
    """Raise if a ``project`` stands before a score that does not allow its kind."""
    allowed = score.info.projections
    for step in transforms:
        if step.info.name != "project":
            continue
        kind = step.setting("kind")
        if kind in PROJECTIONS and kind not in allowed:
            listed = " or ".join(repr(name) for name in allowed) or "nothing: it takes features as they are"
            raise InvalidInput(f"project(kind={kind!r}) cannot stand before {score.info.name}, which allows {listed}")


def split_steps(spec: str) -> list[str]:
    r"""Split a text at every ``|`` that is not inside quotes or brackets.

    Parameters
    ----------
    spec : str
        Text of a chain.

    Returns
    -------
    list of str
        Texts of the steps.

    Examples
    --------
    >>> split_steps("mc(of='react|energy')|x")
    ["mc(of='react|energy')", 'x']
    """
    steps = []
    depth, quote, start = 0, "", 0
    for i, character in enumerate(spec):
        if quote:
            if character == quote and spec[i - 1] != "\\":
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "|" and depth == 0:
            steps.append(spec[start:i])
            start = i + 1
    steps.append(spec[start:])
    return steps


def _parse_step(text: str, spec: str) -> ChainStep:
    """Parse one step: a name, optionally with settings in brackets."""
    problem = f'{text.strip()!r} in {spec!r} must be a name or name(setting=value), such as "react(percentile=90)"'
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except CANNOT_PARSE as error:
        raise InvalidInput(problem) from error
    if isinstance(tree, ast.Name):
        return ChainStep.make(info(tree.id), {})
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise InvalidInput(problem)
    record = info(tree.func.id)
    keywords = list(tree.keywords)
    if tree.args:  # mc(knn) is short for mc(of="knn")
        if len(tree.args) > 1 or "of" not in record.settings:
            raise InvalidInput(problem)
        keywords.insert(0, ast.keyword("of", _quote_name(tree.args[0])))
    settings: dict[str, object] = {}
    for keyword in keywords:
        try:
            settings[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except CANNOT_PARSE as error:
            raise InvalidInput(f"{problem}; values must be Python literals") from error
    return ChainStep.make(record, settings)


def _quote_name(node: ast.expr) -> ast.expr:
    """Turn a bare name into the text that it spells."""
    return ast.Constant(node.id) if isinstance(node, ast.Name) else node
