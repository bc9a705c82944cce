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


# Pipelines with verdicts

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "pay", "bill", "hello", "there", "now", "rain"]


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    hf = pytest.importorskip("transformers", reason="transformers is not installed")
    home = tmp_path_factory.mktemp("pipe")
    (home / "vocab.txt").write_text("\n".join(WORDS))
    hf.BertTokenizer(str(home / "vocab.txt"), model_max_length=16).save_pretrained(home / "model")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = hf.BertConfig(
        vocab_size=len(WORDS), id2label={0: "pay", 1: "greet"}, label2id={"pay": 0, "greet": 1}, **sizes
    )
    hf.BertForSequenceClassification(config).eval().save_pretrained(home / "model")
    return hf.pipeline("text-classification", model=str(home / "model"), device="cpu")


def test_a_gated_pipeline_returns_its_own_format_with_a_verdict(pipe):
    import twofold
    from twofold.adapters import gated

    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:], size=rng.integers(1, 8))) for _ in range(40)]
    labels = rng.choice(["pay", "greet"], size=40).tolist()
    wrapped = twofold.wrap(pipe, train=(texts, labels), val=(texts, labels), keep=0.5)
    safe = gated(pipe, wrapped.gate)
    verdicts = wrapped.decide(texts).verdict.tolist()
    assert len(set(verdicts)) > 1
    for options in ({}, {"batch_size": 8}, {"top_k": None}):
        plain = pipe(texts, **options)
        marked = safe(texts, **options)
        for before, after, verdict in zip(plain, marked, verdicts, strict=True):
            one, other = (before, after) if isinstance(before, list) else ([before], [after])
            assert {entry["verdict"] for entry in other} == {verdict}
            for entry, more in zip(one, other, strict=True):
                assert more["label"] == entry["label"]
                assert more["score"] == pytest.approx(entry["score"], rel=1e-4)
    single = safe(texts[0])
    assert single[0]["verdict"] == verdicts[0]
    assert [entry["label"] for entry in single] == [entry["label"] for entry in pipe(texts[0])]
    assert safe([]) == []


def test_other_pipelines_and_gates_are_refused(pipe):
    from types import SimpleNamespace

    import twofold
    from twofold.adapters import gated
    from twofold.errors import InvalidInput

    with pytest.raises(InvalidInput, match="got fill-mask"):
        gated(SimpleNamespace(task="fill-mask"), None)
    other = twofold.Gate.fit(twofold.Outputs(np.eye(3), labels=[0, 1, 2]))
    with pytest.raises(InvalidInput, match="this gate is for 3 classes"):
        gated(pipe, other)("pay now")
