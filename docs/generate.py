"""Write docs/metrics.md from the registry: python docs/generate.py"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from twofold import metrics

HERE = Path(__file__).parent
TASKS = {
    "selective": "Selective classification: right against wrong answers",
    "detection": "Detection: safe against unsafe samples",
    "joint": "Joint: mistakes and unknown inputs together",
    "calibration": "Calibration and plain accuracy",
}


def entry(name: str) -> str:
    """One metric: facts, then its docstring without the example and the markup."""
    record = metrics.info(name)
    low, high = record.bounds
    text = (inspect.getdoc(record.function) or "").split(">>>")[0].strip()
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r":(?:func|class|mod|meth):`~?([^`]*)`", r"`\1`", text)
    text = re.sub(
        r"\.\. math::\s*(.*?)(?=\n\n|\Z)", lambda m: "$$" + " ".join(m[1].split()) + "$$", text, flags=re.DOTALL
    )
    text = text.replace("``", "`")
    text = re.sub(r"((?:^=[= ]+\n)(?:.*\n)*?(?:^=[= ]+$))", r"```text\n\1\n```", text, flags=re.MULTILINE)
    arrays = ", ".join(f"`{a}`" for a in record.arrays)
    facts = f"{record.better} is better, in [{low:g}, {high:g}]; takes {arrays}. {record.reference}."
    return f"### `{name}`\n\n{facts}\n\n{text}\n"


def page() -> str:
    """The whole page."""
    parts = [(HERE / "metrics_intro.md").read_text(encoding="utf-8").strip() + "\n"]
    for task, title in TASKS.items():
        parts.append(f"## {title}\n")
        parts += [entry(name) for name in metrics.names(task)]
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "metrics.md").write_text(page(), encoding="utf-8")
