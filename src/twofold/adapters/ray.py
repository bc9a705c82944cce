"""Extract outputs and gate inputs batch by batch on Ray Data.

images = ray.data.read_images("photographs")
judged = images.map_batches(
    BatchPredictor,
    fn_constructor_kwargs={"model": "runs/resnet18", "gate": "gate", "images": "image", "outputs": ()},
    batch_size=256,
    concurrency=4,
)
judged.write_parquet("predictions")
"""

from __future__ import annotations

from twofold.adapters._batches import BatchPredictor

__all__ = ["BatchPredictor"]
