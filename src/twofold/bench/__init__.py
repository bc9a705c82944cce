"""Benchmarks: what the papers measure on which rows, as protocols that turn scored data sets into tables."""

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
