"""Studies: one TOML file says what is trained, extracted and judged; a runner does it cell by cell, and resumes.

A study file has the keys of a benchmark file (:mod:`twofold.bench.catalogue`), or ``benchmark`` with the name of one of
the catalogue (several names: each in turn) and ``sets`` with those of its data sets that are wanted. ``[images]`` keeps
at most so many images of a data set, a role or ``all`` (:mod:`twofold.bench.sampling`). Beside them:

- ``model``, ``normalise``, ``seeds``, ``resamples``, and ``[settings]``: a ``preset`` of :mod:`twofold.nn.training` and
  what differs from it. The training set is the data set of role train.
- ``[[recipes]]``: ``name``, ``recipe`` and what this row changes: settings, ``dropout``, ``outliers``, ``mixers``,
  ``checkpoint`` (another row, whose weights of the same seed it starts from, or a file of weights), ``passes`` and
  ``odin`` and ``layers`` of extraction, ``scores`` and ``pairs`` (no pairs unless the row or the benchmark lists them).
  A list in place of a value makes one row for each; tables show the one that is best on validation data.
- ``[[tables]]``: ``title`` and ``columns``, each ``[metric, shift, protocol]`` with the score or pair as a fourth.
- ``[presets.NAME]``: other values of these keys, ``recipes`` by the names of rows; for ``load(..., preset=NAME)``.

A cell is a row with a seed. Weights are in ``training/CELL``, outputs in ``runs/CELL``, its results in ``judged/CELL``,
and the results of all finished cells, with a report page (Markdown and HTML), in the folder itself.
"""

from twofold.study.folder import finished, keep, opened, results
from twofold.study.page import document, report, table
from twofold.study.parse import command, load, loads, names, titles
from twofold.study.runner import Estimate, StudyProgress, estimate, run
from twofold.study.spec import Study, StudyCell, StudyRow, StudyTable, TableBaseline, TableColumn
from twofold.study.tables import Value, values

__all__ = [
    "Estimate",
    "Study",
    "StudyCell",
    "StudyProgress",
    "StudyRow",
    "StudyTable",
    "TableBaseline",
    "TableColumn",
    "Value",
    "command",
    "document",
    "estimate",
    "finished",
    "keep",
    "load",
    "loads",
    "names",
    "opened",
    "report",
    "results",
    "run",
    "table",
    "titles",
    "values",
]
