"""What a person reads: tables of metrics with intervals."""

from twofold.report.tables import JOINT, intervals, joint_table

__all__ = ["JOINT", "intervals", "joint_table"]
