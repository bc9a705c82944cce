"""The pair of scores that gates, wrapped classifiers, reports and commands use unless another is chosen."""

from __future__ import annotations

DEFAULT_ID = "msp"
"""Score of correct against wrong labels; it needs logits alone."""

DEFAULT_OOD = "energy"
"""Score of known against unknown inputs beside it; it needs logits that have kept their scale."""
