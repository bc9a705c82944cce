"""The gate: two scores, two thresholds, a promise, and a verdict for every input.

>>> from twofold.outputs import Outputs
>>> logits = [[4.0, 0.0], [0.0, 5.0], [0.5, 0.4], [1.0, 1.0], [3.0, 0.2], [0.1, 0.0]]
>>> gate = Gate.fit(Outputs(logits, labels=[0, 1, 1, -1, 0, -1]))
>>> gate.decide(Outputs([[3.5, 0.0], [0.2, 0.3]])).verdict
array(['accept', 'unknown'], dtype='<U7')
"""

from __future__ import annotations

from twofold.gate.card import ReportCard
from twofold.gate.gate import Decision, Gate
from twofold.gate.monitor import Monitor
from twofold.gate.promise import Promise
from twofold.gate.thresholds import Costs, Thresholds

__all__ = ["Costs", "Decision", "Gate", "Monitor", "Promise", "ReportCard", "Thresholds"]
