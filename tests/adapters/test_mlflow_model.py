"""A gate as an MLflow model: nothing pickled, the same decisions, also behind the real server and on Spark."""

import json
import shutil
import sys

import numpy as np
import pytest

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
pytest.importorskip("sqlalchemy", reason="the sqlite store of mlflow needs sqlalchemy")
pd = pytest.importorskip("pandas", reason="pandas is not installed")

from local_servers import post, serving  # noqa: E402

from twofold import Head, Outputs  # noqa: E402
from twofold.adapters.mlflow import RESULT, load_model, log_model, save_model  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.gate import Gate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow


@pytest.fixture(scope="module")
def outputs():
    rng = np.random.default_rng(0)
    head = Head(rng.normal(size=(3, 5)), rng.normal(size=3))
    features = rng.normal(size=(200, 5))
    logits = head.logits(features)
    labels = np.where(rng.random(200) < 0.7, logits.argmax(axis=1), -1)
    return Outputs(logits, labels, features, head)


@pytest.fixture(scope="module")
def gates(outputs):
    train = outputs[np.flatnonzero(outputs.is_id)]
    return {
        "logits": Gate.fit(outputs, "msp", "energy"),
        "features": Gate.fit(outputs, "msp", "mds", train=train),
        "head": Gate.fit(outputs, "msp", "react(percentile=90)|energy", train=train),
        "one score": Gate.fit(outputs, "msp", None),
    }


def table(outputs, names=("logits", "features")):
    return pd.DataFrame({name: list(getattr(outputs, name)) for name in names})


def check(frame, decision):
    assert frame["prediction"].tolist() == decision.labels.tolist()
    assert frame["verdict"].tolist() == decision.verdict.tolist()
    assert np.array_equal(frame["conf_id"], decision.conf_id)
    assert ("conf_ood" in frame) == (decision.conf_ood is not None)
    if decision.conf_ood is not None:
        assert np.array_equal(frame["conf_ood"], decision.conf_ood)


@pytest.mark.parametrize("kind", ["logits", "features", "head", "one score"])
def test_a_saved_model_decides_as_the_gate(kind, gates, outputs, tmp_path):
    gate = gates[kind]
    save_model(gate, tmp_path / "model", head=outputs.head)
    files = [path.suffix for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert ".pkl" not in files
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    names = ["logits"] if kind in ("logits", "one score") else ["logits", "features"]
    assert loaded.metadata.signature.inputs.input_names() == names
    check(loaded.predict(table(outputs, names)), gate.decide(outputs))
    example = loaded.input_example
    assert len(loaded.predict(example)) == 1
    again = load_model(tmp_path / "model")
    check(pd.DataFrame(vars(again.decide(outputs))).rename(columns={"labels": "prediction"}).dropna(axis=1),
          gate.decide(outputs))  # fmt: skip


def test_a_logged_model_is_loaded_by_its_uri(gates, outputs, tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        experiment = mlflow.create_experiment("models", artifact_location=(tmp_path / "artifacts").as_uri())
        with mlflow.start_run(experiment_id=experiment):
            info = log_model(gates["logits"], "gate")
        check(
            mlflow.pyfunc.load_model(info.model_uri).predict(table(outputs, ["logits"])),
            gates["logits"].decide(outputs),
        )
        assert load_model(info.model_uri).taus() == gates["logits"].taus()
    finally:
        mlflow.set_tracking_uri(None)


def test_a_model_that_holds_its_classifier(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from batch_world import extracted, fit_gate, network, pixels

    from twofold.nn.extraction import Prepare

    images = pixels(40)
    outputs = extracted(tmp_path / "run", images, batch=40)
    gate = fit_gate(outputs)
    save_model(gate, tmp_path / "model", model=network(), shape=(3, 8, 8), prepare=Prepare())
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    frame = loaded.predict({"images": Prepare()(images).numpy()})
    assert frame["verdict"].tolist() == gate.decide(outputs).verdict.tolist()


def test_mistakes_are_named(gates, outputs, tmp_path):
    with pytest.raises(InvalidInput, match="pass head="):
        save_model(gates["head"], tmp_path / "model")
    with pytest.raises(InvalidInput, match="shape belong to model="):
        save_model(gates["logits"], tmp_path / "model", shape=(3, 8, 8))
    save_model(gates["features"], tmp_path / "model")
    with pytest.raises(Exception, match="features"):
        mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(table(outputs, ["logits"]))
    gate = tmp_path / "model" / "data" / "twofold" / "gate" / "gate.json"
    gate.write_text(gate.read_text().replace("mds", "knn"))
    with pytest.raises(RunError, match="is damaged or was edited"):
        load_model(tmp_path / "model")


@pytest.mark.slow
def test_the_real_server_decides_as_the_gate(gates, outputs, tmp_path):
    save_model(gates["features"], tmp_path / "model")
    with serving(
        [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(tmp_path / "model"), "--env-manager", "local"],
        ["--host", "127.0.0.1", "--port", "{port}"],
        ready="/ping",
    ) as url:
        answer = post(f"{url}/invocations", {"dataframe_split": json.loads(table(outputs).to_json(orient="split"))})
        check_close(pd.DataFrame(answer["predictions"]), gates["features"].decide(outputs))


def check_close(frame, decision):
    """JSON of pandas keeps 10 digits."""
    assert frame["verdict"].tolist() == decision.verdict.tolist()
    assert np.allclose(frame["conf_ood"], decision.conf_ood, rtol=1e-6)


@pytest.mark.slow
def test_spark_applies_the_model_to_columns(gates, outputs, tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    from pyspark.sql import SparkSession

    save_model(gates["features"], tmp_path / "model")
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = list(zip(range(200), outputs.logits.tolist(), outputs.features.tolist(), strict=True))
        frame = session.createDataFrame(rows, "row int, logits array<double>, features array<double>")
        decide = mlflow.pyfunc.spark_udf(session, str(tmp_path / "model"), result_type=RESULT, env_manager="local")
        judged = frame.withColumn("gate", decide("logits", "features")).select("row", "gate.*").toPandas()
        check(judged.sort_values("row").reset_index(), gates["features"].decide(outputs))
    finally:
        session.stop()
