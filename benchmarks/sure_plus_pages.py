"""What the page of SURE+ has beyond its claims: the tests of its loops, and the studies of its radius and of longer training.

Reads the committed cells below ``results/studies``; what is not finished is reported as missing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from network_cells import read_csv
from sure_plus_cells import (
    ACCURACY,
    COMPARISONS,
    FASTER,
    FINE_TUNING,
    LONGER,
    MEASURES,
    SINGLE,
    SWEPT,
    Cells,
    chosen_by_trials,
    compared_rows,
    label_of,
    open_comparison,
    opened_trials,
    recipe_of,
    setting,
    title_of,
)
from sure_plus_figures import figure_name, has_figure
from sure_plus_gains import EXPLANATION, gain_table
from tables import markdown
from twofold import study
from twofold.study import Study

LOOPS = "tests/nn/test_independent_loops.py"
FAITHFUL = (  # what is compared with a plain reference, and the test that does it
    ("SURE+: F-SAM on clean, mixed and textured images, exponential average", LOOPS, "sure_plus(decay=0.9, ramp=5)"),
    ("SURE: SAM, CRL, cosine head (CSC), average of the last epochs", LOOPS, "sure"),
    ("CRL", LOOPS, "crl"),
    ("F-SAM, step by step", "tests/nn/test_sharpness.py", "test_fsam_follows_its_definition"),
    ("SAM, step by step", "tests/nn/test_sharpness.py", "test_sam_follows_its_definition"),
    ("RegMixup: its images", "tests/nn/test_mixing.py", "test_mixup_is_its_equation"),
    ("RegMixup: its loss", "tests/nn/test_losses.py", "test_mixed_cross_entropy_is_that_of_the_mixed_label"),
    ("PixMix", "tests/nn/test_pixmix.py", "test_equals_one_by_one"),
    ("Exponential average (EMA)", "tests/nn/test_averaging.py", "test_ema_is_its_closed_form"),
    (
        "Statistics of batch norm estimated again",
        "tests/nn/test_averaging.py",
        "test_rebn_gives_the_statistics_of_a_full_pass",
    ),
)
TITLES = [measure.title for measure in MEASURES]
CHOSEN_SETTINGS = (
    "The trials chose the settings of SURE+, plain training and RegMixup; mixup, CutMix and SURE have their printed settings (learning rate "
    "0.05). The row of plain training with its printed rate of 0.1, and the claim about it, were added after the first seed of SURE+ and of "
    "that row had been seen."
)


def sure_plus_sections(root: Path) -> list[str]:
    """Write the sections of the page."""
    return [*faithful(root), *radius(root), *longer(root)]


def faithful(root: Path) -> list[str]:
    """Name the tests that compare our training with plain loops; a test that is not there ends the script."""
    rows = []
    for what, file, test in FAITHFUL:
        text = (root / file).read_text(encoding="utf-8")
        if file == LOOPS:
            is_there = f'"{test}":' in text
            named = f"{file}::test_weights_are_those_of_an_independent_loop[{test}]"
        else:
            is_there = re.search(rf"^def {test}\(", text, re.MULTILINE) is not None
            named = f"{file}::{test}"
        if not is_there:
            sys.exit(f"there is no test {named}")
        rows.append([what, f"`{named}`"])
    return [
        "## Is our SURE+ the paper's SURE+?",
        "The answer does not rest on accuracy. Tests run whole trainings and compare the final weights with those of loops written from the "
        "paper in plain PyTorch; changing the weight of one loss by 5 % makes them fail. Other tests compare every part with its definition.",
        markdown(["what is compared", "test"], rows),
    ]


def radius(root: Path) -> list[str]:
    """Show every trial of the radius and of the learning rates of the rivals, finished or not."""
    cells = opened_trials(root)
    epochs = dict(cells.study.settings)["epochs"]
    parts = [
        "## The radius",
        "The sharpness radius rho is a distance in the space of the weights. The printed 0.2 suits the paper's ResNet-18; our network has a "
        "smaller weight norm, for which the same distance is a larger perturbation. SURE+ and SURE+ without RegPixMix (`sure_fsam`) therefore try "
        f"six radii, and plain training and RegMixup six learning rates. Each trial trains for {epochs} epochs with one seed, and the lowest AURC on "
        "validation images wins. The table lists every trial. DS-F1 is that of msp + knn. Minutes are wall-clock time on one core that other "
        "work shared.",
    ]
    rows: list[list[str]] = []
    missing: dict[str, list[str]] = {}
    for one in cells.study.rows:
        if not cells.has_trials(one.family):
            continue
        done = cells.cells_of(one.name)
        if not done:
            missing.setdefault(one.family, []).append(setting(one))
            continue
        first = shown(cells.validation(one.name))
        mark = ""
        if one.family != FASTER and cells.chosen(one.family) == one.name:
            mark = " (chosen)" if cells.is_complete(one.family) else " (chosen so far)"
        rows.append([recipe_of(one), setting(one) + mark, first, *measured(cells, one.name), minutes_of(cells, done)])
    head = ["recipe", "setting", "AURC, validation", *TITLES, "minutes"]
    if rows:
        parts.append(markdown(head, rows))
    left = sum(len(settings) for settings in missing.values())
    parts.append(
        f"{len(rows)} of {len(rows) + left} trials are finished.{sweep_words(cells)} `{trial_command(cells)}` runs them."
    )
    if missing:
        parts.append("Missing:")
        parts.append("\n".join(f"- {family}: {'; '.join(settings)}" for family, settings in missing.items()))
    if any(cells.chosen(family) for family in SWEPT):
        parts.append("![The radius of SURE+](sure_plus_radius.png)")
    return parts


def trial_command(cells: Cells) -> str:
    """Write the command that runs the trials."""
    families = [family for family in cells.study.families if cells.has_trials(family)]
    return command_for(cells.study, families)


def command_for(one: Study, rows: Iterable[str], seeds: Sequence[int] | None = None) -> str:
    """Write the command that runs some rows or families of a study, with all seeds or some."""
    options = [f"--row {row}" for row in rows]
    options += [f"--seed {seed}" for seed in seeds or ()]
    return " ".join([study.command(one), *options])


def sweep_words(cells: Cells) -> str:
    """Say which radius validation images choose, once all are tried, and whether larger learning rates are better."""
    words = ""
    for family, title in SWEPT.items():
        if cells.is_complete(family):
            best = next(row for row in cells.study.rows if row.name == cells.chosen(family))
            words += f" For {title}, validation images choose {setting(best)}."
    fastest, chosen = cells.chosen(FASTER), cells.chosen("sure_plus")
    if fastest is not None and chosen is not None and cells.is_complete(FASTER):
        faster, own = cells.validation(fastest) or 0.0, cells.validation(chosen) or 0.0
        answer = "One is better" if faster < own else "Neither is better"
        words += (
            " Plain training and RegMixup do best with a learning rate of 0.2, so SURE+ also tried two rates above its printed 0.05, two trials more "
            f"than its rivals have. {answer}: their lowest AURC is {faster:.2f}, against {own:.2f}."
        )
    return words


def longer(root: Path) -> list[str]:
    """Show the longer comparisons as far as their cells are there."""
    trials = opened_trials(root)
    parts = ["## Longer training, precision and fine-tuning", EXPLANATION]
    for comparison in COMPARISONS:
        cells = open_comparison(root, comparison)
        rows = compared_rows(cells, trials, comparison)
        parts += [f"### {comparison.title}", state(cells, rows, comparison.seeds)]
        if comparison is SINGLE:
            parts += precision_table(open_comparison(root, LONGER), cells)
            parts += precision_verdicts(root / "results" / "precision.csv")
            continue
        for benchmark in cells.study.benchmarks:
            lines = list(finished_rows(cells, trials, benchmark.name))
            if not lines:
                continue
            if len(cells.study.benchmarks) > 1:
                parts.append(f"On {benchmark.name}:")
            head = ["recipe", "setting", "seeds", *TITLES, "minutes of a cell"]
            parts += [markdown(head, lines), *gain_table(comparison, rows, benchmark.name)]
        if has_figure(cells, trials, comparison):
            parts.append(f"![{comparison.title}]({figure_name(comparison)})")
        if comparison is LONGER:
            parts.append(CHOSEN_SETTINGS)
        elif comparison is FINE_TUNING:
            parts.append(few_epochs(cells.study))
    return parts


def few_epochs(one: Study) -> str:
    """Say what fine-tuning for few epochs leaves open, and which claims were added later."""
    settings = dict(one.settings)
    return (
        f"All layers are trained for {settings['epochs']} epochs, by every recipe with the same learning rate of {settings['lr']}. That is far from "
        "the end of training on CIFAR-100, and SURE+ sees each batch three times, clean, mixed and textured, where plain training sees it once: its "
        "lead there may be one of speed. The claims on one data set alone were added after the first two seeds had been seen."
    )


def precision_table(half: Cells, single: Cells) -> list[str]:
    """Show the cells that were trained in both precisions, one below the other; nothing where there are none."""
    lines = []
    for cell in single.study.cells():
        if cell.name in single.minutes and cell.name in half.minutes:
            for precision, cells in (("bfloat16", half), ("float32", single)):
                numbers = [shown(cells.values(cell.row.name, measure).get(cell.seed)) for measure in MEASURES]
                minutes = minutes_of(cells, [cell.name])
                lines.append([label_of(cell.row), str(cell.seed), precision, *numbers, minutes])
    if not lines:
        return []
    return [markdown(["recipe", "seed", "precision", *TITLES, "minutes"], lines), *spread_words(half, single)]


def spread_words(half: Cells, single: Cells) -> list[str]:
    """Say how far the seeds lie apart in bfloat16, for the rows that one seed in single precision repeats."""
    words = []
    for row in single.study.rows:
        accuracies = half.values(row.name, ACCURACY).values()
        if single.cells_of(row.name) and len(accuracies) > 1:
            words.append(
                f"In bfloat16 the accuracies of {len(accuracies)} seeds run from {min(accuracies):.2f} to {max(accuracies):.2f}, so one pair "
                "cannot tell the precision from the seed; what can be said is whether a verdict depends on it."
            )
    return words


def precision_verdicts(file: Path) -> list[str]:
    """Say which verdicts change when plain training has single precision."""
    if not file.exists():
        return []
    lines = list(read_csv(file))
    changed = [line for line in lines if line["verdict_bf16"] != line["verdict_float32"]]
    words = (
        "We decided every claim about this row again with its seed in single precision in place of bfloat16: "
        f"{len(changed)} of {len(lines)} verdicts change. `results/precision.csv` has both intervals of each."
    )
    if not changed:
        return [words]
    bullets = []
    for line in changed:
        bullets.append(f"- {line['claim']}: {line['verdict_bf16']} in bfloat16, {line['verdict_float32']} in float32")
    return [words, "\n".join(bullets)]


def state(cells: Cells, rows: Sequence[str], seeds: Sequence[int] | None = None) -> str:
    """Say which cells of the compared rows and seeds are finished and which are missing, and how to resume."""
    if not rows:
        return "No cell is finished: the trials that choose its settings are missing."
    wanted = cells.study.cells(rows, seeds)
    missing: dict[str, list[str]] = {}
    for cell in wanted:
        if cell.name not in cells.minutes:
            missing.setdefault(title_of(cell), []).append(str(cell.seed))
    command = f"`{command_for(cells.study, rows, seeds)}`"
    count = sum(len(own) for own in missing.values())
    if not missing:
        done = "The only cell is finished." if len(wanted) == 1 else f"All {len(wanted)} cells are finished."
        return f"{done} Command: {command}."
    if count == len(wanted):
        return f"No cell is finished: all {count} are missing. {command} runs them."
    names = "; ".join(f"{title}, seed {', '.join(own)}" for title, own in missing.items())
    return f"{len(wanted) - count} of {len(wanted)} cells are finished. Missing: {names}. {command} runs them."


def finished_rows(cells: Cells, trials: Cells, benchmark: str) -> Iterator[list[str]]:
    """Write every row that has a finished cell on a benchmark, and mark those that the trials chose."""
    families = {row.family for row in trials.study.rows}
    for row in cells.study.rows:
        done = cells.cells_of(row.name, benchmark)
        if not done:
            continue
        mark = ""
        if cells.has_trials(row.family) and row.family in families:
            mark = " (chosen)" if chosen_by_trials(trials, row.family) == row.name else ""
        numbers = measured(cells, row.name, benchmark)
        yield [recipe_of(row), setting(row) + mark, str(len(done)), *numbers, minutes_of(cells, done)]


def measured(cells: Cells, name: str, benchmark: str | None = None) -> list[str]:
    """Write the measures of a row of the study."""
    return [shown(cells.mean(name, measure, benchmark)) for measure in MEASURES]


def minutes_of(cells: Cells, done: list[str]) -> str:
    """Write the minutes of each cell."""
    return ", ".join(f"{cells.minutes[name]:.0f}" for name in done)


def shown(value: float | None) -> str:
    """Write a number, or a dash where there is none."""
    return "–" if value is None else f"{value:.2f}"
