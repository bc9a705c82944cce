"""Kinds of values that options take: names are checked while the command line is read, and shells complete them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from twofold.errors import InvalidInput, TwofoldError, UnknownName

if TYPE_CHECKING:
    TextType = click.ParamType[str]
    NumbersType = click.ParamType[tuple[int | float, ...]]
    NamesType = click.ParamType[tuple[str, ...]]
else:  # older versions of click do not have the type argument
    TextType = NumbersType = NamesType = click.ParamType

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
RUN = click.Path(path_type=Path)  # Run.open says what to do if the folder is not a run
SHARE = click.FloatRange(0, 1, max_open=True)
OPEN_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
POSITIVE_SHARE = click.FloatRange(0, 1, min_open=True)
COST = click.FloatRange(0)


WORKERS = click.option(
    "--workers", type=click.IntRange(min=0), default=0, show_default=True, help="Processes that read ahead."
)
ON_BAD = click.option(
    "--on-bad",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Whether an unreadable image ends the command, or is skipped and counted.",
)
RESAMPLES = click.option(
    "--resamples",
    type=click.IntRange(min=10),
    default=1000,
    show_default=True,
    help="Bootstrap resamples per interval.",
)
METHOD = click.option(
    "--method",
    type=click.Choice(["exact", "published"]),
    default="exact",
    show_default=True,
    help="published: f1, aurc_id, ds_f1 and ds_aurc also as the code of SURE+ computes them, as NAME_published.",
)
METHOD_OF_THRESHOLDS = click.option(
    "--method",
    type=click.Choice(["exact", "published"]),
    default="exact",
    show_default=True,
    help="Every threshold, or those of the code of SURE+: a linear grid on scores scaled to [0, 1].",
)
ROOT = click.option("--root", type=click.Path(path_type=Path), help="Folder of data; by default $TWOFOLD_DATA.")


class AliasedOption(click.Option):
    """Accept further names of an option without showing them.

    Parameters
    ----------
    names : sequence of str
        Names that the help shows.
    aliases : sequence of str, default=()
        Names that work too.
    **settings
        Settings of :class:`click.Option`.
    """

    def __init__(self, names: Sequence[str], *, aliases: Sequence[str] = (), **settings: Any) -> None:
        super().__init__([*names, *aliases], **settings)
        self.aliases = tuple(aliases)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the names that are shown, and the help text."""
        shown = copy.copy(self)
        shown.opts = [name for name in self.opts if name not in self.aliases]
        return super(AliasedOption, shown).get_help_record(ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the first name, in quotes."""
        return repr(self.opts[0])


class NameType(TextType):
    """Accept a registered name, or several separated by commas; a mistyped name is a usage error.

    Parameters
    ----------
    kind : str
        What the names are of, as messages say it.
    known : callable
        Returns the known names. It is called when a value is checked or completed, so that nothing heavy is imported
        before.
    check : callable, optional
        Raises an error of twofold if a value is wrong; by default the value must be a known name.
    many : bool, default=False
        Whether the value may hold several names with commas between them.
    """

    def __init__(
        self,
        kind: str,
        known: Callable[[], Iterable[str]],
        *,
        check: Callable[[str], object] | None = None,
        many: bool = False,
    ) -> None:
        self.name = kind
        self.known = known
        self.check = check
        self.many = many

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the value and return it as it is."""
        text = str(value)
        names = text.split(",") if self.many else [text]
        for name in names:
            self._check_name(name.strip(), param, ctx)
        return text

    def _check_name(self, name: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        try:
            if self.check is not None:
                self.check(name)
            elif name not in set(self.known()):
                raise UnknownName.of(self.name, name, self.known())
        except (UnknownName, InvalidInput) as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last of the names."""
        before, comma, word = "", "", incomplete
        if self.many:
            before, comma, word = incomplete.rpartition(",")
        try:
            known = list(self.known())
        except TwofoldError:  # an extra is missing
            return []
        return _complete(word, known, before + comma)


def _complete(word: str, known: Iterable[str], before: str) -> list[CompletionItem]:
    """List the known names that begin with a word, each after the text that stands before it."""
    return [CompletionItem(before + name) for name in known if name.startswith(word)]


class ScoreType(TextType):
    """Accept a score or a chain such as ``react(percentile=90)|energy``.

    Parameters
    ----------
    none : bool, default=False
        Whether the word ``none`` is allowed, for no score.
    """

    name = "score"

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check that the text is a chain and return it as it is."""
        from twofold.scores.chain import scorer

        text = str(value)
        if self.none and text == "none":
            return text
        if Path(text).suffix == ".npz":
            self.fail(
                f"{text!r} is a file, but this option takes a score; pass unknown inputs with --unknown", param, ctx
            )
        try:
            scorer(text)
        except (UnknownName, InvalidInput) as error:
            self.fail(str(error), param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete the last step of the chain: scores, and transforms, which another step must follow."""
        from twofold.scores.registry import step_names

        before, bar, word = incomplete.rpartition("|")
        known = [*step_names("score"), *(f"{name}|" for name in step_names("transform"))]
        if self.none and not bar:
            known.append("none")
        return _complete(word, known, before + bar)


class RateType(TextType):
    """A rate from 0 to below 1, or the word ``paper``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the rate as a number, or the word."""
        if value == "paper":
            return value
        return SHARE.convert(value, param, ctx)


def _field_names() -> tuple[str, ...]:
    from twofold.outputs import FIELDS

    return FIELDS


def _metric_names() -> list[str]:
    from twofold import metrics

    return sorted(metrics.names())


def _metrics_or_all() -> list[str]:
    return ["all", *_metric_names()]


def _benchmark_names() -> tuple[str, ...]:
    from twofold.bench.catalogue import names

    return names()


def _check_benchmark(name: str) -> None:
    if not name.endswith(".toml") and name not in _benchmark_names():
        raise UnknownName.of("benchmark", name, _benchmark_names())


def _protocol_names() -> list[str]:
    from twofold.bench.protocols import PROTOCOLS

    return list(PROTOCOLS)


def _role_names() -> tuple[str, ...]:
    from twofold.roles import ROLES

    return ROLES


def _study_names() -> list[str]:
    from twofold.study import titles

    return list(titles())


def _check_study(name: str) -> None:
    if not name.endswith(".toml") and name not in _study_names():
        raise UnknownName.of("study", name, _study_names())


def _recipe_names() -> list[str]:
    from twofold.cli.shared import from_torch

    return list(from_torch("recipes").RECIPES)


def _check_recipe(name: str) -> None:
    from twofold.cli.shared import from_torch

    from_torch("recipes").recipe(name)


def _preset_names() -> list[str]:
    from twofold.cli.shared import from_torch

    return list(from_torch("training").PRESETS)


def _model_names() -> list[str]:
    from twofold.cli.shared import from_torch

    models = from_torch("models")
    return [*models.names(), *models.TRANSFORMERS]


def _check_model(name: str) -> None:
    """Check a network of twofold by its name; timm:NAME, file.py:function, folders, ... are left to the command."""
    from twofold.cli.shared import from_torch

    own = name.partition("?")[0]
    if ":" in own or Path(name).is_dir() or from_torch("models").is_transformer(own):
        return
    if own not in _model_names():
        raise UnknownName.of("network", own, _model_names())


def _check_nothing(name: str) -> None:
    """Leave the check to the command."""


class DropsType(NumbersType):
    """Take the epochs, or the shares of a run, at which a learning rate drops."""

    name = "list"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | float, ...]:
        """Turn ``30,60`` into epochs and ``0.3,0.6`` into shares."""
        drops: list[int | float] = []
        for text in str(value).split(","):
            try:
                drops.append(int(text) if text.strip().isdigit() else float(text))
            except ValueError:
                self.fail(f"{text!r} is neither an epoch nor a share of the run; write 30,60 or 0.3,0.6", param, ctx)
        return tuple(drops)


class AugmentationsType(NamesType):
    """Take names of augmentations separated by commas."""

    name = "names"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Turn ``padded_crop,flip`` into names, and ``none`` into no name."""
        if str(value).strip() == "none":
            return ()
        return tuple(name.strip() for name in str(value).split(","))


DROPS = DropsType()
AUGMENTATIONS = AugmentationsType()
RATE = RateType()
SCORE = ScoreType()
SCORE_OR_NONE = ScoreType(none=True)
FIELDS = NameType("field of outputs", _field_names, many=True)
METRIC = NameType("metric", _metric_names, check=_check_nothing)  # results may hold unregistered metrics
METRICS = NameType("metric", _metrics_or_all, many=True)
BENCHMARK = NameType("benchmark", _benchmark_names, check=_check_benchmark)
PROTOCOL = NameType("protocol", _protocol_names)
ROLE = NameType("role", _role_names)
STUDY = NameType("study", _study_names, check=_check_study)
RECIPE = NameType("recipe", _recipe_names, check=_check_recipe)
PRESET = NameType("preset", _preset_names)
MODEL = NameType("model", _model_names, check=_check_model)


def _load_plugins(ctx: click.Context, param: click.Parameter, modules: tuple[str, ...]) -> None:
    from twofold.scores.registry import load_plugin

    for module in modules:
        try:
            load_plugin(module)
        except (UnknownName, InvalidInput) as error:
            raise click.BadParameter(str(error), ctx=ctx, param=param) from error


PLUGIN = click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    is_eager=True,
    expose_value=False,
    callback=_load_plugins,
    help="Import a Python module that registers scores; may be repeated.",
)
