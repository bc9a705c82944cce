"""Parse the files of papers; every mistake is one error that says where it is and what should be there."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TypeAlias

from twofold import _checks, _toml
from twofold.bench.published import printed_layout
from twofold.errors import InvalidInput, TwofoldError, UnknownName
from twofold.papers import (  # noqa: F401 - they register what plans name
    class_step,
    data_tables,
    estimator_figures,
    estimator_step,
    extract_step,
    fd_shifts_figures,
    fd_shifts_tables,
    finetune_step,
    joint_figures,
    joint_tables,
    judge_step,
    strata_steps,
    stratified_figures,
    study_step,
    transfer_step,
    unknown_figures,
    unknown_tables,
)
from twofold.papers.derived import DERIVATIONS
from twofold.papers.drawings import DRAWINGS
from twofold.papers.plan import (
    KINDS,
    RUNNABLE,
    SCALES,
    STATES,
    Drawing,
    Paper,
    PaperPlan,
    PrintedTable,
    Scale,
    ScaleName,
)
from twofold.papers.settings_tables import SETTINGS
from twofold.papers.steps import STEPS, Step

Content: TypeAlias = Mapping[str, object]
KEYS = ("name", "title", "source", "printed_as", "steps", "scales", "plans")
PLAN_KEYS = ("item", "kind", "title", "says", "state", "reason", "printed", "settings", "drawing", "derive", *SCALES)
SCALE_KEYS = ("data", "minutes", "note", "steps")


def loads(text: str, *, where: str = "paper") -> Paper:
    """Parse a paper from the text of its file.

    Parameters
    ----------
    text : str
        TOML: ``name``, ``title``, ``source``; ``[steps.NAME]`` with a ``verb`` and its settings; ``[scales.NAME]`` with
        ``steps`` by name, ``data``, ``minutes`` and ``note``; ``[[plans]]``, one for each table or figure.
    where : str, default="paper"
        Name of the file in error messages.

    Returns
    -------
    Paper
        The paper.

    Raises
    ------
    InvalidInput
        If the text is not TOML, has unknown keys, lacks required ones, or a value is invalid.
    """
    content = _toml.parse(text, where)
    _toml.check_keys(content, KEYS, where)
    name = _toml.get_text(content, "name", where)
    printed_as = _toml.get_text(content, "printed_as", where, default=name)
    steps = _read_steps(content, where)
    scales = _read_scales(content, steps, where)
    plans: dict[str, PaperPlan] = {}
    for place, table in enumerate(_toml.get_tables(content, "plans", where), start=1):
        item = _toml.get_text(table, "item", f"{where}, plan {place}")
        if item in plans:
            raise InvalidInput(f"{where}, plan {place}: the item {item!r} is listed twice")
        plans[item] = _read_plan(table, name, printed_as, scales, f"{where}, {item}")
    if not plans:
        raise InvalidInput(f"{where}: a paper needs at least one table or figure, written [[plans]]")
    return Paper(
        name=name,
        title=_toml.get_text(content, "title", where),
        source=_toml.get_text(content, "source", where),
        plans=plans,
    )


def _read_steps(content: Content, where: str) -> dict[str, Step]:
    """Read the named steps; one may refer to those before it."""
    steps: dict[str, Step] = {}
    tables = _toml.get_table(content, "steps", where)
    for name in tables:
        steps[name] = _read_step(_toml.get_table(tables, name, where), steps, f"{where}, step {name}")
    return steps


def _read_step(table: dict[str, object], earlier: Mapping[str, Step], where: str) -> Step:
    verb = _toml.get_text(table, "verb", where)
    if verb not in STEPS:
        raise InvalidInput(f"{where}: {UnknownName.of('verb', verb, STEPS)}")
    kind = STEPS[verb]
    settings = {key: value for key, value in table.items() if key != "verb"}
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    _toml.check_keys(settings, names, where)
    values: dict[str, object] = {}
    for field in fields(kind):
        if field.name not in settings:
            if field.default is MISSING:
                raise InvalidInput(f"{where}: key {field.name!r} is missing")
            continue
        if field.name == "extracts":
            values[field.name] = _find_steps(settings, field.name, earlier, where)
        else:
            values[field.name] = read_option(settings[field.name], hints[field.name], f"{where}: {field.name}")
    step: Step = kind(**values)
    try:
        step.check()
    except TwofoldError as error:
        raise InvalidInput(f"{where}: {error}") from error
    return step


def _find_steps(table: Content, key: str, steps: Mapping[str, Step], where: str) -> tuple[Step, ...]:
    found = []
    for name in _toml.get_texts(table, key, where):
        if name not in steps:
            raise InvalidInput(f"{where}: {UnknownName.of('step above it', name, steps)}")
        found.append(steps[name])
    return tuple(found)


def _read_scales(content: Content, steps: Mapping[str, Step], where: str) -> dict[str, Scale]:
    scales = {}
    tables = _toml.get_table(content, "scales", where)
    for name in tables:
        table = _toml.get_table(tables, name, where)
        label = f"{where}, scale {name}"
        _toml.check_keys(table, SCALE_KEYS, label)
        minutes = table.get("minutes")
        if minutes is not None:
            minutes = read_option(minutes, float, f"{label}: minutes")
        scales[name] = Scale(
            data=_toml.get_texts(table, "data", label),
            minutes=typing.cast("float | None", minutes),
            note=_toml.get_text(table, "note", label),
            steps=_find_steps(table, "steps", steps, label),
        )
    return scales


def _read_plan(table: Content, paper: str, printed_as: str, scales: Mapping[str, Scale], where: str) -> PaperPlan:
    _toml.check_keys(table, PLAN_KEYS, where)
    kind = _checks.choice(_toml.get_text(table, "kind", where), f"{where}: kind", KINDS)
    state = _checks.choice(_toml.get_text(table, "state", where), f"{where}: state", STATES)
    plan = PaperPlan(
        paper=paper,
        item=_toml.get_text(table, "item", where),
        kind=typing.cast("typing.Any", kind),
        title=_toml.get_text(table, "title", where),
        says=_toml.get_text(table, "says", where),
        state=typing.cast("typing.Any", state),
        reason=_optional_text(table, "reason", where) or "",
        printed=_read_printed(table, printed_as, where),
        settings=_optional_text(table, "settings", where),
        drawing=_read_drawing(table, where),
        derive=_read_derivations(table, where),
        scales=_choose_scales(table, scales, where),
    )
    _check_plan(plan, where)
    return plan


def _optional_text(table: Content, key: str, where: str) -> str | None:
    if key not in table:
        return None
    return _toml.get_text(table, key, where)


def _read_printed(table: Content, paper: str, where: str) -> PrintedTable | None:
    name = _optional_text(table, "printed", where)
    if name is None:
        return None
    try:
        printed_layout(paper, name)
    except UnknownName as error:
        raise InvalidInput(f"{where}: {error}") from error
    return PrintedTable(paper, name)


def _choose_scales(table: Content, scales: Mapping[str, Scale], where: str) -> dict[ScaleName, Scale]:
    chosen: dict[ScaleName, Scale] = {}
    for name in SCALES:
        reference = _optional_text(table, name, where)
        if reference is None:
            continue
        if reference not in scales:
            raise InvalidInput(f"{where}: {UnknownName.of('scale', reference, scales)}")
        chosen[name] = scales[reference]
    return chosen


def _read_drawing(table: Content, where: str) -> Drawing | None:
    if "drawing" not in table:
        return None
    options = _toml.get_table(table, "drawing", where)
    name = _toml.get_text(options, "name", f"{where}, drawing")
    del options["name"]
    if name not in DRAWINGS:
        raise InvalidInput(f"{where}: {UnknownName.of('drawing', name, DRAWINGS)}")
    hints = typing.get_type_hints(DRAWINGS[name])
    known = [one.name for one in inspect.signature(DRAWINGS[name]).parameters.values() if one.kind is one.KEYWORD_ONLY]
    _toml.check_keys(options, known, f"{where}, drawing {name}")
    values = {key: read_option(value, hints[key], f"{where}, drawing: {key}") for key, value in options.items()}
    return Drawing(name, values)


def _read_derivations(table: Content, where: str) -> tuple[str, ...]:
    if "derive" not in table:
        return ()
    names = _toml.get_texts(table, "derive", where)
    for name in names:
        if name not in DERIVATIONS:
            raise InvalidInput(f"{where}: {UnknownName.of('derivation', name, DERIVATIONS)}")
    return names


def _check_plan(plan: PaperPlan, where: str) -> None:
    """Check that a plan has what its kind and state ask for."""
    is_illustration = plan.kind == "illustration"
    if is_illustration != (plan.state == "illustration"):
        raise InvalidInput(f"{where}: kind and state must both be 'illustration', or neither")
    if (is_illustration or plan.state == "impossible") and not plan.reason:
        raise InvalidInput(f"{where}: key 'reason' is missing; say why it is not run")
    if plan.settings is not None and plan.settings not in SETTINGS:
        raise InvalidInput(f"{where}: {UnknownName.of('table of settings', plan.settings, SETTINGS)}")
    if plan.state not in RUNNABLE:
        return
    if plan.kind == "settings":
        if plan.settings is None:
            raise InvalidInput(f"{where}: key 'settings' is missing; it names a table of {', '.join(SETTINGS)}")
        return
    if plan.drawing is None and plan.printed is None:
        raise InvalidInput(f"{where}: a result needs a drawing, or the table of its printed numbers ('printed')")
    if not plan.scales:
        raise InvalidInput(f"{where}: a result needs a scale: one of {', '.join(SCALES)}")


def read_option(value: object, hint: object, where: str) -> object:
    """Check a value of a file against the type of a parameter.

    Parameters
    ----------
    value : object
        What the file has.
    hint : type
        ``str``, ``int``, ``float``, ``bool``, a ``Literal``, one of them or None, or a tuple of any number of them.
    where : str
        Name of the value in error messages.

    Returns
    -------
    object
        The value; lists become tuples, whole numbers become floats where those are expected.

    Raises
    ------
    InvalidInput
        If the value is of another type.

    Examples
    --------
    >>> read_option([8, 16], tuple[int, ...], "sizes")
    (8, 16)
    >>> read_option("eight", int, "size")
    Traceback (most recent call last):
    ...
    twofold.errors.InvalidInput: size must be a whole number, got 'eight'
    """
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise InvalidInput(f"{where} must be a list, got {value!r}")
        return tuple(read_option(item, arguments[0], where) for item in value)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return read_option(value, inner[0], where)
    if origin is typing.Literal:
        return _checks.choice(value, where, arguments)
    return _read_plain(value, hint, where)


_PLAIN: dict[type, str] = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _read_plain(value: object, hint: object, where: str) -> object:
    """Check a string, a number or a truth value."""
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_misplaced_bool = isinstance(value, bool) and hint is not bool
    for kind, words in _PLAIN.items():
        if hint is kind and (not isinstance(value, kind) or is_misplaced_bool):
            raise InvalidInput(f"{where} must be {words}, got {value!r}")
    return value
