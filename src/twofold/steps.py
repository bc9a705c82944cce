"""Scores and transforms as steps of a chain: one table, one parser, one way to fit, score and save.

A **score** turns :class:`~twofold.outputs.Outputs` into a confidence (N,), higher is safer; a **transform** turns
outputs into outputs. Each is a plain function of arrays, or a frozen dataclass with ``fit`` and ``score`` (or
``apply``) whose learnt arrays are declared by :func:`state`. What a step needs is read from its signature: parameters
named after the fields of outputs (``logits``, ``features``, ``head``, ...), in ``fit`` also those of other sets
(``val_logits``, ``ood_val_features``, ...); keyword-only parameters are settings.

    >>> scorer("energy(temperature=2)").score(Outputs([[2.0, 1.0, 0.1]])).round(6)
    array([3.379555])
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeVar

import numpy as np

from twofold._checks import Array
from twofold._files import replacing
from twofold.errors import InvalidInput, NameTaken, NotFitted, UnknownName
from twofold.outputs import FIELDS, Outputs

T = TypeVar("T", bound=Callable[..., Any])
Kind = Literal["score", "transform"]
Tuning = Literal["nothing to fit", "fitted on train", "fitted on val", "fitted on ood_val"]

SETS = ("train", "val", "ood_val")
FORMAT = "twofold-chain-1"


def state() -> Any:
    """Declare a learnt array of a fitted step: empty until ``fit``, kept by ``save``."""
    return field(default=None, repr=False, metadata={"state": True})


@dataclass(frozen=True)
class StepInfo:
    """What is known about one step: enough to list, document, build and test it."""

    name: str
    kind: Kind
    maker: Callable[..., Any]  # the function, or the dataclass
    paper: str
    aliases: tuple[str, ...]
    judges: Literal["logits", "passes"]  # whose prediction a score judges
    cost: str

    @property
    def fitted(self) -> bool:
        """Whether the step learns from a training set."""
        return hasattr(self.maker, "fit")

    @property
    def settings(self) -> dict[str, Any]:
        """Settings and their defaults."""
        if isinstance(self.maker, FunctionType):
            parameters = inspect.signature(self.maker).parameters.values()
            return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        return {f.name: f.default for f in dataclasses.fields(self.maker) if not f.metadata.get("state")}  # type: ignore[arg-type]

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields of outputs that scoring, or applying, needs; a parameter with a default is taken if there."""
        return tuple(n for n in _arrays(_call(self.maker), optional=False) if n != "predictions")  # always there

    @property
    def fit_needs(self) -> tuple[str, ...]:
        """The arrays that fitting needs; those of other sets carry the prefix ``val_`` or ``ood_val_``."""
        return _arrays(self.maker.fit, optional=False) if self.fitted else ()  # type: ignore[attr-defined]

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return (inspect.getdoc(self.maker) or "").splitlines()[0]


_STEPS: dict[str, StepInfo] = {}
_ALIASES: dict[str, str] = {}
_BUILT_IN = ("twofold.scores.logits", "twofold.scores.distance", "twofold.scores.passes", "twofold.transforms")


def _load() -> None:
    """Built-in steps register when their modules are imported, which happens on first use."""
    for module in _BUILT_IN:
        import_module(module)


def register_score(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Literal["logits", "passes"] = "logits",
    cost: str = "",
) -> Callable[[T], T]:
    """Enter a score into the table; the function or class is given back unchanged, a name taken twice is an error."""
    return _register("score", name, paper, aliases, judges, cost)


def register_transform(
    name: str,
    *,
    paper: str,
    aliases: Iterable[str] = (),
    judges: Literal["logits", "passes"] = "logits",
    cost: str = "",
) -> Callable[[T], T]:
    """Enter a transform into the table; what it returns are the changed fields of the outputs, by name."""
    return _register("transform", name, paper, aliases, judges, cost)


def _register(
    kind: Kind, name: str, paper: str, aliases: Iterable[str], judges: Literal["logits", "passes"], cost: str
) -> Callable[[T], T]:
    def enter(maker: T) -> T:
        record = StepInfo(name, kind, maker, paper, tuple(aliases), judges, cost)
        for taken in (name, *record.aliases):
            if taken in _STEPS or taken in _ALIASES:
                raise NameTaken(f"a step named {taken!r} is registered already")
        _STEPS[name] = record
        _ALIASES.update(dict.fromkeys(record.aliases, name))
        return maker

    return enter


def info(name: str) -> StepInfo:
    """The record of a step, also by one of its aliases; an unknown name is an error with the nearest names."""
    _load()
    record = _STEPS.get(_ALIASES.get(name, name))
    if record is None:
        raise UnknownName.of("score or transform", name, [*_STEPS, *_ALIASES])
    return record


def names(kind: Kind | None = None, needs: Iterable[str] | None = None) -> list[str]:
    """Names of registered steps, of one kind if given; with ``needs``, those that these fields suffice to score.

    >>> "energy" in names("score", needs=["logits"])
    True
    """
    _load()
    given = None if needs is None else {needs} if isinstance(needs, str) else set(needs)
    return [
        n for n, s in _STEPS.items() if (kind is None or s.kind == kind) and (given is None or set(s.needs) <= given)
    ]


def _call(maker: Callable[..., Any]) -> Callable[..., Any]:
    """What turns arrays into the result: the function itself, or the method ``score`` or ``apply``."""
    if isinstance(maker, FunctionType):
        return maker
    return maker.score if hasattr(maker, "score") else maker.apply  # type: ignore[attr-defined]


def _arrays(function: Callable[..., Any], *, optional: bool) -> tuple[str, ...]:
    """Names of the arrays a function takes: the positional parameters, with a default only if ``optional``."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY and (optional or p.default is p.empty))


# Chains


def scorer(spec: str | Chain) -> Chain:
    """The chain that a text such as ``"react(percentile=90)|energy"`` describes.

    Steps are separated by ``|`` and run from left to right: transforms, then one score. Settings are Python literals
    given by name; a ``|`` inside quotes or brackets does not separate.

    >>> scorer("energy").spec, scorer("temperature( value = 2.0 ) | msp").spec
    ('energy', 'temperature(value=2.0)|msp')
    """
    if isinstance(spec, Chain):
        return spec
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidInput(f'a chain is a text such as "react(percentile=90)|energy", got {spec!r}')
    steps = tuple(_parse(part, spec) for part in _split(spec))
    *before, last = steps
    for step in before:
        if step.info.kind != "transform":
            raise InvalidInput(f"{step.info.name} in {spec!r} is a score; only the last step may be one")
    if last.info.kind != "score":
        raise InvalidInput(f"{spec!r} ends with the transform {last.info.name}; add a score, such as |energy")
    return Chain(steps)


def _split(spec: str) -> list[str]:
    """Cut at every ``|`` that is not inside quotes or brackets."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(spec):
        if quote:
            quote = "" if c == quote and spec[i - 1] != "\\" else quote
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "|" and depth == 0:
            parts.append(spec[start:i])
            start = i + 1
    return [*parts, spec[start:]]


def _parse(text: str, spec: str) -> Step:
    """One step: a name, optionally with settings in brackets."""
    hint = f'{text.strip()!r} in {spec!r} must be a name or name(setting=value), such as "react(percentile=90)"'
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise InvalidInput(hint) from error
    if isinstance(tree, ast.Name):
        return Step.make(info(tree.id), {})
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.args:
        raise InvalidInput(hint)
    settings = {}
    for keyword in tree.keywords:
        try:
            settings[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError as error:
            raise InvalidInput(f"{hint}; values must be Python literals") from error
    return Step.make(info(tree.func.id), settings)


@dataclass(frozen=True, eq=False)
class Step:
    """A step with its settings and, once fitted, its learnt arrays."""

    info: StepInfo
    settings: Mapping[str, Any]
    learnt: Any = None  # the fitted dataclass

    @classmethod
    def make(cls, record: StepInfo, settings: Mapping[str, Any]) -> Step:
        """Check the settings by name; the step itself checks their values when it runs."""
        for name in settings:
            if name not in record.settings:
                problem = UnknownName.of("setting", name, record.settings or ["(none)"])
                raise InvalidInput(f"{record.name}: {problem}")
        return cls(record, dict(settings))

    @property
    def spec(self) -> str:
        """The step as text."""
        inside = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        return f"{self.info.name}({inside})" if inside else self.info.name

    @property
    def ready(self) -> bool:
        """Whether the step can run: it needs no fit, or has been fitted."""
        return self.learnt is not None or not self.info.fitted

    def fit(self, sets: Mapping[str, Outputs | None]) -> Step:
        """The fitted step; arrays are taken from the sets by parameter name."""
        if not self.info.fitted:
            return self
        blank = self.info.maker(**self.settings)
        arrays = {name: _taken(self.info, name, sets) for name in self.info.fit_needs}
        return dataclasses.replace(self, learnt=blank.fit(**arrays))

    def run(self, outputs: Outputs) -> Any:
        """The result of the step on outputs."""
        if not self.ready:
            raise NotFitted(f"{self.info.name} is not fitted; call .fit(train) on the chain first")
        arrays = {name: _field(self.info, name, outputs) for name in self.info.needs}
        for name in _arrays(_call(self.info.maker), optional=True):
            arrays.setdefault(name, getattr(outputs, name))
        if isinstance(self.info.maker, FunctionType):
            return self.info.maker(**arrays, **self.settings)
        bound = self.learnt if self.learnt is not None else self.info.maker(**self.settings)
        return _call(type(bound))(bound, **arrays)


def _field(record: StepInfo, name: str, outputs: Outputs) -> Any:
    """One field of outputs, or an error that says what the step needs and what there is."""
    value = getattr(outputs, name, None)
    if value is None or (name in ("layers", "learned") and not value):
        have = [f for f in FIELDS if f not in ("predictions", "class_names", "ids")]
        there = [f for f in have if (v := getattr(outputs, f)) is not None and not (isinstance(v, Mapping) and not v)]
        needed = " and ".join(record.needs)
        raise InvalidInput(f"{record.name} needs {needed}; these outputs have {' and '.join(there)} only")
    return value


def _taken(record: StepInfo, name: str, sets: Mapping[str, Outputs | None]) -> Any:
    """An array for ``fit``: of train, or of the set its prefix names; val falls back to train, ood_val does not."""
    which, bare = "train", name
    for prefix in ("ood_val", "val"):
        if name.startswith(prefix + "_"):
            which, bare = prefix, name.removeprefix(prefix + "_")
            break
    outputs = sets[which]
    if outputs is None and which == "val":
        outputs = sets["train"]
    if outputs is None:
        raise InvalidInput(f"{record.name} is fitted on {which}; pass {which}= to fit")
    value = getattr(outputs, bare)
    if value is None:
        raise InvalidInput(f"fitting {record.name} needs {bare}, and the {which} outputs have none")
    return value


@dataclass(frozen=True, eq=False)
class Chain:
    """Transforms and a score, run from left to right; made by :func:`scorer`."""

    steps: tuple[Step, ...]
    tuned: Tuning = "nothing to fit"  # the most revealing set that fitting used

    @property
    def spec(self) -> str:
        """The chain as text, which :func:`scorer` reads."""
        return "|".join(step.spec for step in self.steps)

    def __str__(self) -> str:
        return self.spec

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The fields of outputs that scoring needs."""
        return tuple(dict.fromkeys(name for step in self.steps for name in step.info.needs))

    @property
    def judges(self) -> Literal["logits", "passes"]:
        """Whose prediction the score judges: the argmax of the logits, or of the mean probabilities of the passes."""
        return "passes" if any(step.info.judges == "passes" for step in self.steps) else "logits"

    @property
    def ready(self) -> bool:
        """Whether every step can run."""
        return all(step.ready for step in self.steps)

    def fit(self, train: Outputs, *, val: Outputs | None = None, ood_val: Outputs | None = None) -> Chain:
        """A new chain whose steps have learnt from the sets; each transform is applied to every set before the next.

        Steps that prefer ``val`` use ``train`` without it. ``tuned`` of the result says what was used.
        """
        sets: dict[str, Outputs | None] = {"train": train, "val": val, "ood_val": ood_val}
        fitted: list[Step] = []
        used: set[str] = set()
        for step in self.steps:
            done = step.fit(sets)
            for name in step.info.fit_needs:
                prefix = next((p for p in ("ood_val", "val") if name.startswith(p + "_")), "train")
                used.add("train" if prefix == "val" and val is None else prefix)
            fitted.append(done)
            if step.info.kind == "transform":
                sets = {name: None if o is None else o.replace(**done.run(o)) for name, o in sets.items()}
        label: Tuning = "nothing to fit"
        for name in SETS:
            if name in used:
                label = f"fitted on {name}"  # type: ignore[assignment]
        return Chain(tuple(fitted), label)

    def score(self, outputs: Outputs) -> Array:
        """Confidences (N,) in float64, higher is safer to accept."""
        if not isinstance(outputs, Outputs):
            raise InvalidInput(f"score takes Outputs(logits, ...), got {type(outputs).__name__}")
        *before, last = self.steps
        for step in before:
            outputs = outputs.replace(**step.run(outputs))
        return np.asarray(last.run(outputs), dtype=np.float64)

    def save(self, path: str | Path) -> None:
        """Write the fitted chain to one safetensors file: its text in the header, its learnt arrays as tensors."""
        from safetensors.numpy import save

        if not self.ready:
            raise NotFitted(f"{self.spec} is not fitted; call .fit(train) before .save(path)")
        tensors = {}
        for i, step in enumerate(self.steps):
            for name in _learnt_names(step):
                tensors[f"{i}.{name}"] = np.array(getattr(step.learnt, name), order="C")  # keeps scalars scalar
        header = {"format": FORMAT, "spec": self.spec, "tuned": self.tuned}
        with replacing(Path(path)) as file:
            file.write(save(tensors, metadata=header))


def _learnt_names(step: Step) -> list[str]:
    if step.learnt is None:
        return []
    return [f.name for f in dataclasses.fields(step.learnt) if f.metadata.get("state")]


def load_chain(path: str | Path) -> Chain:
    """Read a chain that :meth:`Chain.save` wrote; its scores are equal to the last bit."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; write a chain with Chain.save") from error
    except SafetensorError as error:
        raise InvalidInput(f"{path} is damaged or no saved chain ({error}); save it again") from error
    if header.get("format") != FORMAT:
        raise InvalidInput(f"{path} is no saved chain of this format ({FORMAT}); write it with Chain.save")
    steps = []
    for i, step in enumerate(scorer(header["spec"]).steps):
        learnt = {n.split(".", 1)[1]: a for n, a in arrays.items() if n.split(".", 1)[0] == str(i)}
        fitted = step.info.maker(**step.settings, **learnt) if step.info.fitted else None
        steps.append(dataclasses.replace(step, learnt=fitted))
    return Chain(tuple(steps), header["tuned"])
