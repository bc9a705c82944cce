"""Reliability: the exact metric over batches, collections and processes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from sklearn.metrics import roc_auc_score  # noqa: E402

from twofold import Outputs, metrics, scorer  # noqa: E402
from twofold.adapters import Reliability  # noqa: E402
from twofold.errors import InvalidInput, UnknownName  # noqa: E402

NAMES = ("accuracy", "aurc", "augrc", "auroc", "fpr95", "ece", "auroc_ood", "fpr95_ood", "f1", "ds_f1", "ds_aurc")


def batch(rows=400, seed=0, ood=0.2):
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn((rows, 5), generator=g)
    labels = torch.where(torch.rand(rows, generator=g) < 0.7, logits.argmax(dim=1), 0)
    return logits, torch.where(torch.rand(rows, generator=g) < ood, -1, labels)


@pytest.mark.parametrize("name", NAMES)
def test_batches_give_the_metric_of_all_rows(name):
    logits, labels = batch()
    metric = Reliability(name, ood="energy")
    for part in (slice(0, 7), slice(7, 250), slice(250, 400)):
        metric.update(logits[part], labels[part])
    rows = Outputs(logits, labels)
    msp, energy = scorer("msp").score(rows), scorer("energy").score(rows)
    if name == "ece":
        known = rows.is_id
        p = logits.double().softmax(dim=1).amax(dim=1).numpy()
        expected = metrics.ece(rows.correct[known], p[known])
    else:
        expected = metrics.evaluate(rows.correct, msp, is_id=rows.is_id, conf_ood=energy, only=[name])[name]
    assert float(metric.compute()) == pytest.approx(expected, rel=1e-12)
    metric.reset()
    assert not metric.conf


def test_auroc_of_failures_is_that_of_scikit_learn():
    logits, labels = batch(ood=0.0)
    metric = Reliability("auroc")
    metric.update(logits, labels)
    right = logits.argmax(dim=1) == labels
    p = logits.double().softmax(dim=1).amax(dim=1)
    assert float(metric.compute()) == pytest.approx(roc_auc_score(right.numpy(), p.numpy()), abs=1e-12)


def test_states_merge_as_over_processes():
    logits, labels = batch()
    one, two, whole = (Reliability("augrc") for _ in range(3))
    one.update(logits[:100], labels[:100])
    two.update(logits[100:], labels[100:])
    whole.update(logits, labels)
    one.merge_state(two)
    assert float(one.compute()) == pytest.approx(float(whole.compute()), rel=1e-12)
    assert set(one._reductions.values()) == {torchmetrics.utilities.dim_zero_cat}


SHARES = {  # the rows of each of two processes
    "uneven": (slice(0, 130), slice(130, 400)),
    "a process without rows": (slice(0, 400), None),
    "an empty batch alone": (slice(0, 0), slice(0, 400)),
}


def process(rank, world, file, found, shares):
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    logits, labels = batch()
    pair = Reliability("ds_f1", ood="energy")
    single = Reliability("augrc")
    share = shares[rank]
    for metric in (pair, single):
        if share is not None:
            metric.update(logits[share], labels[share])
    found.put((rank, float(pair.compute()), float(single.compute())))
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn where there are threads
@pytest.mark.filterwarnings("ignore:The ``compute`` method:UserWarning")  # torchmetrics', of the process without rows
@pytest.mark.parametrize("shares", SHARES.values(), ids=SHARES)
def test_two_processes_agree_on_the_metric_of_all_rows(tmp_path, shares):
    context = torch.multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    several = [context.Process(target=process, args=(rank, 2, tmp_path / "meet", found, shares)) for rank in range(2)]
    for one in several:
        one.start()
    for one in several:
        one.join(120)
        if one.is_alive():  # one waits for the other
            one.terminate()
    assert [one.exitcode for one in several] == [0, 0]
    pair, single = Reliability("ds_f1", ood="energy"), Reliability("augrc")
    pair.update(*batch())
    single.update(*batch())
    values = {rank: rest for rank, *rest in (found.get() for _ in several)}
    assert values[0] == values[1] == pytest.approx([float(pair.compute()), float(single.compute())], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_are_no_value(name):
    metric = Reliability(name, ood="energy")
    with pytest.warns(UserWarning, match="before the ``update`` method"):
        assert torch.isnan(metric.compute())
    metric.update(torch.empty((0, 5)), torch.empty(0, dtype=torch.long))
    assert torch.isnan(metric.compute())
    metric.update(*batch())
    metric.update(torch.empty((0, 5)), torch.empty(0, dtype=torch.long))
    whole = Reliability(name, ood="energy")
    whole.update(*batch())
    assert float(metric.compute()) == float(whole.compute())


def test_it_draws_itself_with_the_bounds_of_its_metric():
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    metric = Reliability("auroc")
    values = [metric(*batch(60, seed, ood=0.0)) for seed in range(3)]
    figure, axes = metric.plot(values)
    assert axes.get_ylabel() == "auroc"
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([float(value) for value in values])
    assert (metric.plot_lower_bound, metric.plot_upper_bound) == (0.0, 1.0)
    assert Reliability("accuracy").plot_upper_bound == 1.0
    _, one = Reliability("augrc").plot(torch.tensor(0.1))
    assert one.get_ylabel() == "augrc"
    collection = torchmetrics.MetricCollection([metric])
    assert len(collection.plot()) == 1
    matplotlib.pyplot.close("all")
    assert figure is not None


def test_a_collection_shares_its_rows_and_knows_what_is_better():
    collection = torchmetrics.MetricCollection({name: Reliability(name, ood="energy") for name in NAMES})
    for seed in range(3):
        collection.update(*batch(50, seed))
    assert len(collection.compute_groups) == 1
    values = collection.compute()
    assert set(values) == set(NAMES)
    assert all(np.isfinite(float(v)) for v in values.values())
    assert not Reliability("aurc").higher_is_better
    assert Reliability("auroc").higher_is_better


def test_a_fitted_chain_reads_features():
    g = torch.Generator().manual_seed(0)
    logits, labels = batch(ood=0.0)
    features = torch.randn((400, 6), generator=g)
    chain = scorer("knn(k=3)").fit(Outputs(logits, labels, features))
    metric = Reliability("augrc", id=chain)
    metric.update(logits, labels, features)
    rows = Outputs(logits, labels, features)
    assert float(metric.compute()) == pytest.approx(metrics.augrc(rows.correct, chain.score(rows)))


def test_what_has_no_value_is_nan_and_what_cannot_be_is_an_error():
    metric = Reliability("auroc")
    metric.update(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert torch.isnan(metric.compute())
    outside = torchmetrics.MetricCollection({n: Reliability(n, ood="energy") for n in NAMES})
    outside.update(torch.tensor([[1.0, 0.0], [0.5, 0.0]]), torch.tensor([-1, -1]))
    assert {n for n, value in outside.compute().items() if torch.isnan(value)} >= {"accuracy", "auroc", "ece"}
    inside = Reliability("f1")
    inside.update(torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0, 1]))
    assert float(inside.compute()) == pytest.approx(0.8)  # both right ones accepted: 2 * 2 / (2 + 3)
    with pytest.raises(UnknownName, match="no metric 'ece_ood'"):
        Reliability("ece_ood")
    with pytest.raises(UnknownName, match="augrc"):
        Reliability("augcr")
    with pytest.raises(InvalidInput, match="pass ood="):
        Reliability("ds_f1")
    with pytest.raises(InvalidInput, match="learns from a training set"):
        Reliability("aurc", id="knn")
    with pytest.raises(InvalidInput, match="nll needs labels and logits"):
        Reliability("nll")
