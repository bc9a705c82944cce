"""The command line: one file per verb. Results go to stdout, messages to stderr, and every verb takes ``--json``."""

from __future__ import annotations

import click

from twofold import __version__
from twofold.cli.bench import bench_group
from twofold.cli.compare import compare_command
from twofold.cli.completion import completion_command
from twofold.cli.data import data_group
from twofold.cli.demo import demo_command
from twofold.cli.evaluate import evaluate_command
from twofold.cli.extract import extract_command
from twofold.cli.gate import gate_group
from twofold.cli.list import list_command
from twofold.cli.logs import logs_group
from twofold.cli.papers import papers_group
from twofold.cli.report import report_command
from twofold.cli.score import score_command
from twofold.cli.shared import Verbs
from twofold.cli.study import study_group
from twofold.cli.train import train_command
from twofold.cli.verify import verify_command
from twofold.cli.watch import watch_command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="twofold")
@click.option("--debug", is_flag=True, help="Show where an error comes from.")
def main(debug: bool) -> None:
    """Tell how far a classifier can be trusted.

    A classifier fails in two ways: it mislabels what it knows, or it labels what it does not know. twofold measures
    both, exactly and with intervals, and turns the result into a gate that can be deployed.

    \b
      twofold demo
      twofold evaluate scores.npz --intervals

    Exit codes: 0 success, 1 check failed or infeasible, 2 usage error, 3 invalid input data, 130 interrupted.
    """


for command in (
    bench_group,
    compare_command,
    completion_command,
    data_group,
    demo_command,
    evaluate_command,
    extract_command,
    gate_group,
    list_command,
    logs_group,
    papers_group,
    report_command,
    score_command,
    study_group,
    train_command,
    verify_command,
    watch_command,
):
    main.add_command(command)
