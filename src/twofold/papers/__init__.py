"""Papers: every numbered table and figure as a plan that is listed, shown and run.

The file of a paper (``files/NAME.toml``) has ``name``, ``title``, ``source`` and

- ``[steps.NAME]``: a ``verb`` of :data:`twofold.papers.steps.STEPS` and its settings. Steps call what the commands
  ``twofold bench estimators``, ``bench extract`` and ``bench run`` call, and no shell. Equal steps share their files.
- ``[scales.NAME]``: ``steps`` by name, ``data`` in words, ``minutes`` where they were measured, and a ``note`` that
  says what differs from the paper.
- ``[[plans]]``: one for each table or figure: ``item`` (``table1``, ``figureS7``), ``kind`` (``result``, ``settings``,
  ``illustration``), ``title``, ``says``, ``state``, a ``reason`` where it is not run, the scales ``here`` and
  ``paper``, and what is made: ``drawing`` (a name of :data:`twofold.papers.drawings.DRAWINGS` and its options),
  ``printed`` (the table of printed numbers that results stand beside) or ``settings``.

``printed_as`` is the name that the printed numbers are stored under, where it is not that of the paper.
"""

from twofold.papers.catalogue import find, load, names
from twofold.papers.parse import loads
from twofold.papers.plan import Drawing, Paper, PaperPlan, PrintedTable, Scale
from twofold.papers.runner import PlanOutcome, run
from twofold.papers.workspace import Workspace

__all__ = [
    "Drawing",
    "Paper",
    "PaperPlan",
    "PlanOutcome",
    "PrintedTable",
    "Scale",
    "Workspace",
    "find",
    "load",
    "loads",
    "names",
    "run",
]
