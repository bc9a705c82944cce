"""Store the outputs of one model on several data sets in a folder, called a run.

    runs/resnet18-s0/
      run.json                 manifest: format, provenance, and of every file role, shapes, dtypes, SHA-256
      head.safetensors         the last linear layer, once per run
      test.safetensors         one file per data set; rows are the first axis of every tensor
      train.safetensors.part   a data set that is still being written in blocks, and
      train.safetensors.journal  which of its blocks are finished
      run.lock                 held while the manifest changes

A file counts once the manifest names it, and the manifest changes by one rename. Whenever a process is killed, readers
find the last complete state. Files are mapped into memory, never read whole.

A run may come from an untrusted source. Manifest and journal are checked against everything that ``Run`` itself would
write, so they cannot name a file outside the folder, and nothing is ever written through a link.
"""

from __future__ import annotations

from twofold.run.run import Run
from twofold.run.writer import Writer

__all__ = ["Run", "Writer"]
