"""The callback in a real Trainer: what it logs is what the arrays give."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from twofold import Outputs, metrics, scorer  # noqa: E402
from twofold.adapters import ReliabilityCallback  # noqa: E402
from twofold.errors import InvalidInput  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about workers and loggers


class Linear(lightning.LightningModule):
    def __init__(self, answer=lambda logits, labels: {"logits": logits}):
        super().__init__()
        self.layer, self.answer = torch.nn.Linear(4, 3), answer

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        return self.answer(self.layer(batch[0]), batch[1])

    def test_step(self, batch, batch_idx, dataloader_idx=0):
        return self.answer(self.layer(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader(rows=90, seed=0, ood=False, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn((rows, 4), generator=g) + shift
    y = torch.full((rows,), -1) if ood else (x[:, :3] + torch.randn((rows, 3), generator=g)).argmax(dim=1)
    return DataLoader(TensorDataset(x, y), batch_size=32)


def trainer(callback, **options):
    plain = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return lightning.Trainer(callbacks=[callback], enable_model_summary=False, **plain, **options)


def test_two_loaders_make_one_data_set():
    torch.manual_seed(0)
    model, known, unknown = Linear(), loader(), loader(50, 1, ood=True, shift=3.0)
    names = ["accuracy", "augrc", "auroc_ood", "ds_f1"]
    callback = ReliabilityCallback(names, ood="energy", prefix="val/")
    fitting = trainer(callback, max_epochs=2)
    fitting.fit(model, loader(seed=5), [known, unknown])
    with torch.no_grad():
        logits = torch.cat([model.layer(l.dataset.tensors[0]) for l in (known, unknown)])
    rows = Outputs(logits, torch.cat([l.dataset.tensors[1] for l in (known, unknown)]))
    energy = scorer("energy").score(rows)
    expected = metrics.evaluate(rows.correct, scorer("msp").score(rows), is_id=rows.is_id, conf_ood=energy, only=names)
    logged = {name: float(fitting.callback_metrics[f"val/{name}"]) for name in names}
    assert logged == pytest.approx(dict(expected), abs=1e-6)  # rows of the last epoch alone, float32 when logged


def test_the_test_loop_logs_its_own_names():
    torch.manual_seed(0)
    model, known, unknown = Linear(), loader(), loader(50, 1, ood=True, shift=3.0)
    names = ["accuracy", "augrc", "ds_f1"]
    callback = ReliabilityCallback(names, ood="energy")
    testing = trainer(callback)
    testing.validate(model, loader(seed=3), verbose=False)  # its rows must not count below
    logged = testing.test(model, [known, unknown], verbose=False)[0]
    with torch.no_grad():
        logits = torch.cat([model.layer(l.dataset.tensors[0]) for l in (known, unknown)])
    rows = Outputs(logits, torch.cat([l.dataset.tensors[1] for l in (known, unknown)]))
    energy = scorer("energy").score(rows)
    expected = metrics.evaluate(rows.correct, scorer("msp").score(rows), is_id=rows.is_id, conf_ood=energy, only=names)
    found = {name: logged[f"test_{name}"] for name in names}
    assert found == pytest.approx(dict(expected), abs=1e-6)
    other = trainer(ReliabilityCallback(["accuracy"], test_prefix="final/"))
    assert set(other.test(model, known, verbose=False)[0]) == {"final/accuracy"}
    with pytest.raises(InvalidInput, match='test_step must return a dict with "logits"'):
        trainer(ReliabilityCallback()).test(Linear(lambda logits, labels: None), known, verbose=False)


def test_labels_may_come_from_the_step():
    model = Linear(lambda logits, labels: {"logits": logits, "labels": labels * 0})
    callback = ReliabilityCallback(["accuracy"])
    validating = trainer(callback)
    validating.validate(model, loader(), verbose=False)
    with torch.no_grad():
        share = (model.layer(loader().dataset.tensors[0]).argmax(dim=1) == 0).double().mean()
    assert float(validating.callback_metrics["val_accuracy"]) == pytest.approx(float(share), abs=1e-6)
    assert np.isfinite(float(share))


def test_a_step_without_logits_is_an_error():
    with pytest.raises(InvalidInput, match='must return a dict with "logits"'):
        trainer(ReliabilityCallback()).validate(Linear(lambda logits, labels: None), loader(), verbose=False)
