"""Run the code of a page as its reader would: block by block, in one folder, with one Python session.

``python docs/executed.py PAGE`` in a folder with ``twofold-demo`` prints what each block prints, as JSON; with
``python`` after it, only blocks of that language are run. The site shows it below the block, and the tests run every
page.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
ELSEWHERE = ("twofold demo", "twofold extract", "twofold train", "twofold bench extract")  # long, or need other data
ELSEWHERE += ("twofold study run sure_plus --preset full",)  # at the papers' scale
LINES = 40  # of what a block prints


def run(text: str, languages: Sequence[str] = ("sh", "python")) -> Iterator[str]:
    """Run each block and collect what it prints; the first error ends it."""
    session: dict[str, Any] = {"__name__": "__main__"}
    for language, code in BLOCK.findall(text):
        if language not in languages:
            yield ""
        else:
            yield _shell(code) if language == "sh" else _python(code, session)


def with_outputs(text: str, outputs: list[str]) -> str:
    """Return the page with what each block printed below it."""
    printed = iter(outputs)

    def shown(found: re.Match[str]) -> str:
        lines = next(printed).rstrip().splitlines()
        if len(lines) > LINES:
            lines = [*lines[:LINES], f"... {len(lines) - LINES} more lines"]
        return found[0] + ("\n\n```text\n" + "\n".join(lines) + "\n```" if lines else "")

    return BLOCK.sub(shown, text)


def _python(code: str, session: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), session)
    return printed.getvalue()


def _shell(code: str) -> str:
    from click.testing import CliRunner

    from twofold.cli import main

    printed = []
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("twofold ") and not line.startswith(ELSEWHERE):
            result = CliRunner().invoke(main, shlex.split(line.partition(" > ")[0])[1:])
            if result.exit_code != 0:
                raise SystemExit(f"{line}\n{result.output}")
            printed.append(result.stdout if " > " not in line else "")
    return "".join(printed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    page, *only = sys.argv[1:]
    sys.stdout.write(json.dumps(list(run(Path(page).read_text(encoding="utf-8"), only or ("sh", "python")))))
