"""Run a network once over a data set and stream its outputs to a :class:`~twofold.run.Run`.

:func:`extract` takes a network and a data set, :func:`extract_all` takes text, as the command line does. ``prepare``
normalises images; ``reading`` reads rows as inputs, labels and ids; ``recording`` computes what is stored of a batch;
``layers`` and ``dropout`` are what it records of layers and of stochastic passes; ``stream`` writes shards.
"""

from twofold.nn.extraction.layers import gram_rows
from twofold.nn.extraction.prepare import ImageInput, Prepare
from twofold.nn.extraction.several import extract_all
from twofold.nn.extraction.stream import extract

__all__ = ["ImageInput", "Prepare", "extract", "extract_all", "gram_rows"]
