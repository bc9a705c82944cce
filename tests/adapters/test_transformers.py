"""compute_metrics inside a real Hugging Face Trainer."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

from twofold import Outputs, metrics, scorer  # noqa: E402
from twofold.adapters import compute_metrics  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402


class Tiny(torch.nn.Module):
    """Returns what Hugging Face models return: a loss, logits, and something more."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, inputs=None, labels=None):
        logits = self.layer(inputs)
        loss = torch.nn.functional.cross_entropy(logits, labels, ignore_index=-1)
        return {"loss": loss, "logits": logits, "hidden": inputs}


@pytest.mark.filterwarnings("ignore")  # the Trainer's own
@pytest.mark.parametrize("batch_eval_metrics", [False, True])
def test_the_trainer_reports_what_the_arrays_give(tmp_path, batch_eval_metrics):
    g = torch.Generator().manual_seed(1)
    x = torch.randn((70, 4), generator=g)
    y = torch.randint(-1, 3, (70,), generator=g)
    rows = [{"inputs": a, "labels": b} for a, b in zip(x, y, strict=True)]
    names = ["accuracy", "aurc", "ece", "ds_aurc"]
    model = Tiny()
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True, batch_eval_metrics=batch_eval_metrics
        ),
        eval_dataset=rows,
        compute_metrics=compute_metrics(names, ood="energy"),
    )
    found = trainer.evaluate()
    with torch.no_grad():
        seen = Outputs(model.layer(x), y)
    p = torch.from_numpy(np.array(seen.logits)).double().softmax(dim=1).amax(dim=1).numpy()
    energy = scorer("energy").score(seen)
    expected = dict(
        metrics.evaluate(seen.correct, p, is_id=seen.is_id, conf_ood=energy, only=[n for n in names if n != "ece"])
    )
    expected["ece"] = metrics.ece(seen.correct[seen.is_id], p[seen.is_id])
    assert {name: found[f"eval_{name}"] for name in names} == pytest.approx(expected)
    again = trainer.evaluate()  # the rows of the first evaluation are gone
    assert {name: again[f"eval_{name}"] for name in names} == pytest.approx(expected)


def test_names_are_looked_at_before_training():
    with pytest.raises(InvalidInput, match="pass ood="):
        compute_metrics(["ds_f1"])
