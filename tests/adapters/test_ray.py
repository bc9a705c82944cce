"""Ray Data on a local cluster: every row once, with the outputs of an extraction to the last bit."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
ray = pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("ray.data", reason="ray.data is not installed")

from batch_world import check_decision, extracted, fit_gate, network, pixels  # noqa: E402

from twofold.adapters import BatchPredictor  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Ray
BATCH = 32


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_extraction_and_gating_on_two_workers(cluster, tmp_path):
    images = pixels(6 * BATCH)
    outputs = extracted(tmp_path / "run", images, batch=BATCH)
    gate = fit_gate(outputs)
    gate.save(tmp_path / "gate")
    rows = [{"image": image, "row": row} for row, image in enumerate(images)]
    table = ray.data.from_items(rows, override_num_blocks=6)
    options = {"model": network(), "gate": str(tmp_path / "gate"), "images": "image"}
    judged = table.map_batches(BatchPredictor, fn_constructor_kwargs=options, batch_size=BATCH, concurrency=2)
    columns = sorted(judged.take_all(), key=lambda row: row["row"])
    assert [row["row"] for row in columns] == list(range(len(images)))  # nothing lost, nothing twice
    found = {name: np.stack([row[name] for row in columns]) for name in columns[0]}
    assert np.array_equal(found["logits"], outputs.logits)
    assert np.array_equal(found["features"], outputs.features)
    check_decision(found, gate.decide(outputs))
    path = str(tmp_path / "gate.onnx")
    gate.to_onnx(network(), path, shape=(3, 8, 8), prepare=Prepare())
    onnx = table.map_batches(
        BatchPredictor, fn_constructor_kwargs={"model": path, "images": "image"}, batch_size=BATCH, concurrency=1
    )
    verdicts = {row["row"]: row["verdict"] for row in onnx.take_all()}
    assert [verdicts[row] for row in range(len(images))] == gate.decide(outputs).verdict.tolist()
