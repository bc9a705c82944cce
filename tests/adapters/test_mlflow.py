"""What is logged can be read back from a real MLflow store."""

import json

import numpy as np
import pytest

mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
pytest.importorskip("sqlalchemy", reason="the sqlite store of mlflow needs sqlalchemy")

from twofold import Outputs, evaluate  # noqa: E402
from twofold.adapters import log  # noqa: E402
from twofold.bench.results import Results  # noqa: E402
from twofold.bench.rows import COLUMNS  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402
from twofold.gate import Gate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'store.db'}")
    experiment = mlflow.create_experiment("twofold", artifact_location=(folder / "artifacts").as_uri())
    yield experiment
    mlflow.set_tracking_uri(None)


def logged(store, *what, **options):
    with mlflow.start_run(experiment_id=store) as run:
        for one in what:
            log(one, **options)
    return mlflow.get_run(run.info.run_id)


def artifact(run, path, folder):
    return mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=path, dst_path=str(folder))


def outputs():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(200, 3))
    return Outputs(logits, np.where(rng.random(200) < 0.7, logits.argmax(axis=1), -1))


def test_an_evaluation_with_its_undefined_values(store, tmp_path):
    result = evaluate([True, True], [0.9, 0.8])
    run = logged(store, result, name="test")
    assert run.data.metrics == {f"test/{k}": v for k, v in result.items() if not np.isnan(v)}
    with open(artifact(run, "test/evaluation.json", tmp_path)) as file:
        kept = json.load(file)
    assert kept["metrics"]["auroc"] is None
    assert "auroc" in kept["reasons"]


def test_a_gate_and_its_report_card(store, tmp_path):
    seen = outputs()
    gate = Gate.fit(seen)
    card = gate.report_card(seen)
    run = logged(store, gate, card)
    assert float(run.data.params["twofold/tau_ood"]) == gate.tau_ood
    assert run.data.metrics["twofold/coverage"] == card.coverage
    again = Gate.load(artifact(run, "twofold/gate", tmp_path))
    assert (again.decide(seen).verdict == gate.decide(seen).verdict).all()


def test_results_row_by_row_and_a_report_as_a_file(store, tmp_path):
    row = dict.fromkeys(COLUMNS) | {
        "run": "resnet, seed 0", "score": "react(percentile=90)|energy", "shift": "svhn", "protocol": "joint",
        "metric": "auroc_ood", "value": 0.75, "better": "higher", "tuned": "untuned",
    }  # fmt: skip
    page = tmp_path / "report.html"
    page.write_text("<p>all is well</p>", encoding="utf-8")
    run = logged(store, Results.of([row]), page)
    assert run.data.metrics == {"twofold/resnet_ seed 0/svhn/joint/react_percentile_90__energy/auroc_ood": 0.75}
    kept = Results.open(artifact(run, "twofold/results.csv", tmp_path / "back"))
    assert kept.rows[0]["value"] == 0.75
    with open(artifact(run, "twofold/report.html", tmp_path / "back")) as file:
        assert file.read() == "<p>all is well</p>"


def test_what_cannot_be_logged_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="log takes an Evaluation"):
        log(tmp_path / "nothing")
