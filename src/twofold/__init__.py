"""twofold tells how far a classifier can be trusted, and turns that into a gate one can deploy."""

__version__ = "0.1.0"
