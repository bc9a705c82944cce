"""Spark on this machine: every row once, with the outputs of an extraction; scores fitted on its partitions."""

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java", allow_module_level=True)

from batch_world import check_decision, extracted, fit_gate, network, pixels  # noqa: E402

from twofold import Outputs, scorer  # noqa: E402
from twofold.adapters import spark  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.nn.extraction import Prepare  # noqa: E402
from twofold.scores import fit_partitioned  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Spark
BATCH = 32


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    started = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    images = pixels(4 * BATCH)
    outputs = extracted(folder / "run", images, batch=BATCH)
    gate = fit_gate(outputs)
    gate.save(folder / "gate")
    return folder, images, outputs, gate


def test_extraction_and_gating_on_two_partitions(session, made):
    folder, images, outputs, gate = made
    table = session.createDataFrame(
        [(row, image.tobytes()) for row, image in enumerate(images)], "row int, image binary"
    )
    table = table.repartitionByRange(2, "row").sortWithinPartitions("row")
    options = {"images": "image", "shape": (8, 8, 3), "batch": BATCH, "gate": str(folder / "gate")}
    columns = spark.predict(table, network(), **options).toPandas().sort_values("row")
    assert columns["row"].tolist() == list(range(len(images)))  # nothing lost, nothing twice
    found = {name: np.stack(list(columns[name])) for name in columns}
    sizes = [size for size in table.rdd.glom().map(len).collect() if size]
    cut_alike = all(size % BATCH == 0 for size in sizes)
    tolerance = 0.0 if cut_alike else 1e-5
    assert np.abs(found["logits"] - outputs.logits).max() <= tolerance
    if cut_alike:
        assert np.array_equal(found["features"], outputs.features)
        check_decision(found, gate.decide(outputs))
    assert (found["verdict"] == gate.decide(outputs).verdict).all()


def test_a_partition_cut_as_an_extraction_is_equal_to_the_last_bit(session, made):
    folder, images, outputs, gate = made
    table = session.createDataFrame(
        [(row, image.tobytes()) for row, image in enumerate(images)], "row int, image binary"
    )
    options = {"images": "image", "shape": (8, 8, 3), "batch": BATCH, "gate": str(folder / "gate")}
    columns = spark.predict(table.coalesce(1), network(), **options).toPandas().sort_values("row")
    found = {name: np.stack(list(columns[name])) for name in columns}
    assert np.array_equal(found["logits"], outputs.logits)
    assert np.array_equal(found["features"], outputs.features)
    check_decision(found, gate.decide(outputs))


def test_an_onnx_gate(session, made):
    folder, images, outputs, gate = made
    path = str(folder / "gate.onnx")
    gate.to_onnx(network(), path, shape=(3, 8, 8), prepare=Prepare())
    floats = Prepare()(images).numpy().reshape(len(images), -1)
    table = session.createDataFrame(
        [(row, image.tolist()) for row, image in enumerate(floats)], "row int, x array<float>"
    )
    found = spark.predict(table, path, images="x", shape=(3, 8, 8)).toPandas().sort_values("row")
    assert found["verdict"].tolist() == gate.decide(outputs).verdict.tolist()


def test_mistakes_are_named_before_anything_runs(session, made):
    _folder, images, _, _ = made
    table = session.createDataFrame([(0, images[0].tobytes())], "logits int, image binary")
    with pytest.raises(InvalidInput, match="images='images' is no column"):
        spark.predict(table, network())
    with pytest.raises(InvalidInput, match="has a column 'logits' already"):
        spark.predict(table, network(), images="image")


def test_scores_are_fitted_on_partitions(session):
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 3, 500)
    features = rng.normal(size=(500, 5)) + labels[:, None]
    train = Outputs(rng.normal(size=(500, 3)), labels, features)
    rows = list(zip(features.tolist(), train.logits.tolist(), labels.tolist(), strict=True))
    table = session.createDataFrame(rows, "features array<double>, logits array<double>, labels long").repartition(3)
    merged, whole = fit_partitioned("mds", table), scorer("mds").fit(train)
    assert np.allclose(merged.score(train), whole.score(train), rtol=1e-9)
    with pytest.raises(InvalidInput, match="no column 'features'"):
        fit_partitioned("mds", table.drop("features"))
