"""Benchmarks: data sets, protocols and scores, run on extracted outputs and kept as rows of results.

Protocols are here: they say what the papers measure on which rows, and turn scored data sets into metric inputs. To
judge runs, start at :func:`twofold.bench.runner.run`; it returns :class:`twofold.bench.results.Results`, which
:func:`twofold.bench.compare.compare` ranks and :func:`twofold.bench.agreement.agreement` compares with published
numbers. :mod:`twofold.bench.catalogue` lists the benchmarks.
"""

from twofold.bench.protocols import (
    PROTOCOLS,
    Average,
    Choice,
    MetricInputs,
    Protocol,
    ProtocolView,
    ScoredSet,
    Tuning,
    protocol,
    select,
)

__all__ = [
    "PROTOCOLS",
    "Average",
    "Choice",
    "MetricInputs",
    "Protocol",
    "ProtocolView",
    "ScoredSet",
    "Tuning",
    "protocol",
    "select",
]
