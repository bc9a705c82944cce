"""The page that says how far a classifier can be trusted, and tables of metrics with intervals.

Start at :func:`report`. A page is made in one pass through these modules:

1. ``source`` reads a run or a file, scores its data sets and chooses the pairs of scores to show (see ``scored``);
2. ``measure`` computes what several sections share: thresholds, counts over a ``threshold_grid``, intervals;
3. ``sections`` puts the sections in order and makes the tables; ``verdict``, ``explorer``, ``curves``, ``cases`` and
   ``provenance`` make the others, with drawings from ``charts`` and ``svg``, images from ``pictures`` and command lines
   from ``commands``;
4. ``glossary`` explains scores and words;
5. ``document`` holds the result and formats it as Markdown, LaTeX or JSON; ``html`` formats it as a page.

Benchmark results have a page of their own, ``results_page``, and so have several classifiers, ``side_by_side``, and
tables of logged predictions, ``logs_page``.
``tables`` stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from twofold import _checks
from twofold._files import replacing
from twofold.errors import InvalidInput, RunError
from twofold.metrics import intervals
from twofold.report.options import SUFFIXES, Done, Format, Images, ReportOptions
from twofold.report.tables import JOINT, joint_table
from twofold.typing import ArrayLike

if TYPE_CHECKING:  # scores, gates and benchmarks are imported when a page is made
    from twofold.bench.results import Results
    from twofold.report.document import Document
    from twofold.run import Run

ReportInput: TypeAlias = "Run | Results | Document | str | Path"

__all__ = ["JOINT", "intervals", "joint_table", "report"]


def report(
    source: ReportInput | Sequence[ReportInput],
    path: str | Path,
    *,
    id: str | None = None,  # noqa: A002 - the name of the design
    ood: str | None = None,
    scores: Sequence[str] | None = None,
    images: Images | None = None,
    ood_classes: Mapping[str, ArrayLike] | None = None,
    format: Format = "html",  # noqa: A002 - what every writer calls it
    resamples: int = 200,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    command: str | None = None,
    done: Done = lambda _: None,
) -> Path:
    """Write the report on a run, a file of outputs, benchmark results or logged predictions to one file.

    The same source and seed give the same bytes.

    Parameters
    ----------
    source : Run, Results, Document, str or Path, or sequence of these
        A run or its folder; an npz file with ``logits`` and ``labels`` (-1: unknown input), or with ``correct`` and
        ``conf`` and optionally ``is_id`` and ``conf_ood``; results or their folder; or a finished document, such as
        that of a study. A sequence of two to six runs or files makes a page that compares them, with paired
        differences from the first where they saw the same inputs. A Parquet, CSV or JSON-lines file of logged
        predictions, or a pattern or sequence of such files, makes a page from counts alone.
    path : str or Path
        File to write; it is replaced if it exists.
    id, ood : str, optional
        The pair of scores to report on. By default the best pair of ``scores`` on the run's validation data.
    scores : sequence of str, optional
        Scores to compare on a run.
    images : mapping, str or Path, optional
        Images of the data sets whose cases should be shown: by name of the data set an array (N, H, W) or
        (N, H, W, 3), or what ``twofold.nn.data.open`` returns; or an npz file of such arrays.
    ood_classes : mapping of str to array-like, optional
        For sets of unknown inputs, the class of each row, or SUPERCLASS/CLASS.
    format : {"html", "md", "latex", "json"}, default="html"
        Format of the file. All but ``html`` hold tables without figures; ``md`` and ``json`` also hold the sentences.
    resamples : int, default=200
        Upper limit on the number of bootstrap resamples; large sets use fewer.
    seed : int, default=0
        Seed of the resampling.
    columns : mapping of str to str, optional
        Columns or expressions of logged predictions, by the names ``correct``, ``conf``, ``is_id``, ``conf_ood``,
        ``by`` and ``where`` of :func:`twofold.logs.evaluate`; ``by`` separates several with commas.
    command : str, optional
        Command line to show on the page as the one that makes it. By default it is derived from the arguments.
    done : callable, optional
        Called with the name of each finished step.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidInput
        If the format is unknown, the source or the folder of ``path`` does not exist, ``resamples`` is not a positive
        whole number, or an option for one kind of source comes with another.
    RunError
        If the file cannot be written; it is then unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/scores.npz", correct=[True, False, True, True], conf=[0.9, 0.2, 0.8, 0.7])
    ...     page = report(f"{folder}/scores.npz", f"{folder}/report.html", resamples=10)
    ...     page.read_text(encoding="utf-8").startswith("<!doctype html>")
    True
    """
    _checks.choice(format, "format", tuple(SUFFIXES))
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInput(f"{target} cannot be written: there is no folder {target.parent}")
    options = ReportOptions(
        id=id,
        ood=ood,
        scores=scores,
        images=images,
        ood_classes=ood_classes,
        format=format,
        resamples=_checks.whole(resamples, "resamples", 1),
        seed=seed,
        columns=columns,
        command=command,
        done=done,
    )
    document = build_document(source, options)
    text = _format_document(document, format)
    try:
        with replacing(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunError(f"{target} cannot be written ({error.strerror}); nothing was changed") from error
    return target


def build_document(source: ReportInput | Sequence[ReportInput], options: ReportOptions) -> Document:
    """Build what :func:`report` writes, before it is formatted.

    Parameters
    ----------
    source : Run, Results, Document, str or Path, or sequence of these
        What to report on, as in :func:`report`. A document is returned as it is.
    options : ReportOptions
        The options; ``format`` changes nothing but the command line that is shown.

    Returns
    -------
    Document
        Title, headline numbers and sections.

    Raises
    ------
    InvalidInput
        If the source does not exist, or an option for runs comes with results.
    """
    from twofold.bench.results import Results
    from twofold.report.document import Document
    from twofold.report.logs_page import holds_results, logs_document

    logged = _list_logs(source, options)
    if logged:
        _reject_run_options(options, "logged predictions")
        return logs_document(logged, options)
    if options.columns:
        raise InvalidInput("columns applies to the report on logged predictions; leave it out")
    if isinstance(source, Sequence) and not isinstance(source, str):
        if len(source) == 1:
            return build_document(source[0], options)
        return _build_comparison_document(source, options)
    if isinstance(source, str | Path):
        source = Path(source)
        if not source.exists():
            raise InvalidInput(f"there is no file or folder {source}; give a run, an npz file or a folder of results")
    if isinstance(source, Document):
        _reject_run_options(options)
        return source
    if isinstance(source, Results) or (isinstance(source, Path) and holds_results(source)):
        _reject_run_options(options)
        return _build_results_document(source, options)
    return _build_classifier_document(source, options)


def _list_logs(source: ReportInput | Sequence[ReportInput], options: ReportOptions) -> list[str | Path]:
    """List the paths of a table of logged predictions; empty where the source is something else."""
    from twofold.report.logs_page import is_log

    sources = source if isinstance(source, list | tuple) else [source]
    paths = [one for one in sources if isinstance(one, str | Path)]
    if len(paths) < len(sources):
        return []
    if options.columns or all(is_log(path) for path in paths):
        return paths
    return []


def _build_comparison_document(sources: Sequence[ReportInput], options: ReportOptions) -> Document:
    from twofold.report import commands
    from twofold.report.logs_page import holds_results, is_log
    from twofold.report.side_by_side import comparison_document
    from twofold.report.source import read_source
    from twofold.run import Run

    for name in ("images", "ood_classes"):
        if getattr(options, name) is not None:
            raise InvalidInput(f"{name} applies to the report on one run, and these are {len(sources)}; leave it out")
    classifiers = []
    for source in sources:
        is_path = isinstance(source, str | Path)
        if is_path and not Path(str(source)).exists():
            raise InvalidInput(f"there is no file or folder {source}; give runs or npz files to compare")
        is_results = is_path and (is_log(str(source)) or holds_results(Path(str(source))))
        if is_results or not isinstance(source, str | Path | Run):
            raise InvalidInput("only runs and npz files are compared on one page; compare results with twofold compare")
        classifiers.append(read_source(source, options))
    command = commands.page_command([one.path for one in classifiers], options)
    return comparison_document(classifiers, command, options)


def _build_classifier_document(source: Run | Path, options: ReportOptions) -> Document:
    from twofold.report import commands, pictures, sections
    from twofold.report.source import read_source

    classifier = read_source(source, options)
    images = pictures.open_images(options.images, classifier.sets)
    page_command = commands.page_command(classifier.path, options)
    return sections.classifier_document(classifier, images, page_command, options)


def _build_results_document(source: Results | Path, options: ReportOptions) -> Document:
    from twofold.bench.results import Results
    from twofold.report.results_page import results_document

    if isinstance(source, Results):
        return results_document(source, "results", options)
    return results_document(Results.open(str(source)), str(source), options)


def _reject_run_options(options: ReportOptions, kind: str = "results") -> None:
    """Reject options that only the report on a run or on a file can use."""
    for name in ("id", "ood", "scores", "images", "ood_classes"):
        if getattr(options, name) is not None:
            raise InvalidInput(f"{name} applies to the report on a run, and these are {kind}; leave it out")


def _format_document(document: Document, format: Format) -> str:  # noqa: A002
    from twofold.report.html import format_html

    if format == "html":
        return format_html(document)
    if format == "md":
        return document.to_markdown()
    if format == "latex":
        return document.to_latex()
    return document.to_json()
