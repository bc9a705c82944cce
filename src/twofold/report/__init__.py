"""What a person reads: tables of metrics with intervals, and the page on how far a classifier can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twofold.metrics import intervals
from twofold.report.tables import JOINT, joint_table

if TYPE_CHECKING:
    from twofold.report.page import report as report

__all__ = ["JOINT", "intervals", "joint_table", "report"]


def __getattr__(name: str) -> Any:
    if name == "report":  # scores, gates and benchmarks are imported when a page is made
        from twofold.report.page import report

        return report
    raise AttributeError(f"module 'twofold.report' has no attribute {name!r}")
