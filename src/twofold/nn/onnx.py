"""Write a gate and its classifier as one ONNX file: images in; label, verdict and confidences out.

Every score and transform that ONNX can hold is one small function here, by its name in :data:`SCORES` or
:data:`TRANSFORMS`. The network runs in its own precision, everything after it in float64, as in Python.
Notation of the score modules: z logits, h features, p = softmax(z), W and b the head.

>>> sorted(TRANSFORMS)
['ash', 'dice', 'lts', 'project', 'react', 'scale', 'temperature', 'vra']
"""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from twofold._files import replacing
from twofold._math import TINY
from twofold.errors import InvalidInput, MissingExtra, TwofoldError
from twofold.gate.gate import Gate
from twofold.gate.inputs import head_print
from twofold.gate.schema import VERDICTS
from twofold.nn.extraction import Prepare
from twofold.nn.models.head import Captured, Classifier
from twofold.scores.chain import Chain
from twofold.scores.step import ChainStep

OPSET = 17
NEARLY = 1.0 - 1e-16
CLIP = 50.0  # bound of the exponent in ash and scale, as in twofold.scores.transforms
BANK = 1 << 22  # most entries of a bank of training rows that the file may hold
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class View:
    """Hold the outputs of the network on a batch in float64: the fields of outputs that scores read.

    Parameters
    ----------
    logits : Tensor, shape (N, C)
        Logits, which transforms may change.
    features : Tensor, shape (N, D)
        Features, which transforms may change.
    predictions : Tensor of int64, shape (N,)
        Predicted classes of the untouched logits.
    raw : Tensor, shape (N, D)
        Features before a cosine head made them unit vectors.
    weight : Tensor, shape (C, D), or None
        Weight of the head; None behind a transform after which no head fits.
    bias : Tensor, shape (C,), or None
        Bias of the head.
    learned : mapping of str to Tensor, shape (N,)
        Further outputs of the network by name, such as a learnt confidence.
    """

    logits: Tensor
    features: Tensor
    predictions: Tensor
    raw: Tensor  # features before a cosine head made them unit vectors
    weight: Tensor | None  # of the head
    bias: Tensor | None
    learned: Mapping[str, Tensor]

    def through(self, features: Tensor) -> View:
        """Replace the features, and the logits by those that the head computes from them.

        Parameters
        ----------
        features : Tensor, shape (N, D)
            The new features.

        Returns
        -------
        View
            A copy with the new features and logits; predictions stay those of the untouched outputs.

        Raises
        ------
        InvalidInput
            If an earlier transform left no head.

        Examples
        --------
        >>> h = torch.tensor([[3.0, -1.0]])
        >>> view = View(h, h, torch.tensor([0]), h, torch.eye(2), None, {})
        >>> view.through(h.clamp(max=1.0)).logits
        tensor([[ 1., -1.]])
        """
        if self.weight is None:
            raise InvalidInput("a transform before this one left no head; put transforms of features first")
        logits = features @ self.weight.T
        return replace(self, features=features, logits=logits if self.bias is None else logits + self.bias)


SCORES: dict[str, Callable[[Any, View], Tensor]] = {}
TRANSFORMS: dict[str, Callable[[Any, View], View]] = {}


def _of(table: dict[str, Any], *names: str) -> Callable[[F], F]:
    def enter(function: F) -> F:
        table.update(dict.fromkeys(names, function))
        return function

    return enter


def to_onnx(
    gate: Gate,
    model: nn.Module | Classifier,
    path: str | os.PathLike[str],
    *,
    shape: Sequence[int] = (3, 32, 32),
    prepare: Prepare | None = None,
    head: str | None = None,
) -> None:
    """Write a gate and the classifier it was fitted for to one ONNX file.

    The input of the graph is ``images``, float32 of shape ``(N, *shape)``, N of any size. Its outputs are, (N,) each:
    ``label`` int64; ``verdict`` int64, 0 accept, 1 unsure, 2 unknown; ``conf_id`` and, for a gate of two scores,
    ``conf_ood``, float64. The file's metadata holds the words of the verdicts, both chains, thresholds and class names.

    Parameters
    ----------
    gate : Gate
        A fitted gate.
    model : nn.Module or Classifier
        The classifier, in float32 on the CPU. It is run in evaluation mode; its own mode is restored afterwards.
    path : str or path-like
        The file to write.
    shape : sequence of int, default=(3, 32, 32)
        Shape of one input.
    prepare : Prepare, optional
        Normalisation to put inside the file: the input is then pixels in [0, 1]. By default the file takes inputs as
        the model does.
    head : str, optional
        Name of the last layer, as :class:`~twofold.nn.models.Classifier` takes it; by default it is found.

    Raises
    ------
    InvalidInput
        If ONNX cannot hold a step of a chain (the message lists those it can) or an operation of the network, if the
        model is not float32 on the CPU, or if it has other classes or another last layer than the gate was fitted with.
    MissingExtra
        If ``onnx`` is not installed.

    Notes
    -----
    A confidence that is NaN is never accepted. A bank of training rows (``knn``) is limited to 4,194,304 entries.
    Python gives the same verdicts with :meth:`twofold.Gate.decide`.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra('to_onnx needs onnx: pip install "twofold[torch]"') from error
    for chain in _chains(gate):
        _check(chain)
    classifier = model if isinstance(model, Classifier) else Classifier(model, head=head)
    for parameter in classifier.model.parameters():
        if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
            raise InvalidInput(
                f"the model must be float32 on the CPU to be written, got {parameter.dtype} on {parameter.device}; "
                "pass model.float().cpu()"
            )
    example = torch.rand((2, *shape), generator=torch.Generator().manual_seed(0))
    modes = [(module, module.training) for module in classifier.model.modules()]
    classifier.model.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the tracer warns of every shape check, and that it is deprecated
            gated = _Gated(gate, classifier, prepare)
            gated(example)  # finds the head, and raises our own errors before the tracer runs
            _check_fit(gate, classifier)
            with _without_graphs():
                raw = _traced(gated, example)
    except TwofoldError:
        raise
    except Exception as error:  # the tracer raises many kinds, with the whole graph in the message
        reason = (str(error).splitlines() or [""])[0][:200]
        raise InvalidInput(
            f"this network cannot be written to ONNX: {type(error).__name__}: {reason}; "
            "replace that operation, or decide with Gate.decide"
        ) from error
    finally:
        for module, mode in modes:
            module.training = mode
    made = onnx.load_from_string(raw)
    onnx.helper.set_model_props(made, _facts(gate, prepare))
    with replacing(Path(path)) as file:
        file.write(made.SerializeToString())


class _Gated(nn.Module):
    """The classifier, both scores and both thresholds as one module."""

    def __init__(self, gate: Gate, classifier: Classifier, prepare: Prepare | None) -> None:
        super().__init__()
        self.gate, self.classifier, self.prepare = gate, classifier, prepare
        self.model = classifier.model  # its parameters are this module's

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.prepare is not None:
            mean, std = (
                torch.tensor(v, dtype=torch.float32).view(-1, 1, 1) for v in (self.prepare.mean, self.prepare.std)
            )
            images = (images - mean) / std
        seen = self.classifier(images)
        view = _view(seen, self.classifier)
        gate, label = self.gate, view.predictions
        conf_id = _run(gate.id, view)
        verdict = torch.where(conf_id >= gate.tau_id, 0, 1)
        if gate.ood is None:
            return label, verdict, conf_id
        conf_ood = _run(gate.ood, view)
        return label, torch.where(conf_ood >= gate.tau_ood, verdict, 2), conf_id, conf_ood


def _view(seen: Captured, classifier: Classifier) -> View:
    head = classifier.head
    return View(
        seen.logits.double(),
        seen.features.double(),
        seen.logits.argmax(dim=1),
        (seen.features if seen.raw is None else seen.raw).double(),
        _tensor(head.weight),
        _tensor(head.bias),
        {name: value.double() for name, value in seen.learned.items()},
    )


def _run(chain: Chain, view: View) -> Tensor:
    for step in chain.steps[:-1]:
        view = TRANSFORMS[step.info.name](_settled(step), view)
    last = chain.steps[-1]
    return SCORES[last.info.name](_settled(last), view)


def _settled(step: ChainStep) -> Any:
    """Return an object with the settings and learnt arrays of a step as attributes."""
    if isinstance(step.info.maker, FunctionType):
        return SimpleNamespace(**{**step.info.settings, **step.settings})
    return step.instance


@contextmanager
def _without_graphs() -> Iterator[None]:
    """Keep the tracer from printing the whole graph when it fails, which it does in every mode."""
    log = getattr(torch._C, "_jit_onnx_log", None)
    if log is None:
        yield
        return
    torch._C._jit_onnx_log = lambda *_: None
    try:
        yield
    finally:
        torch._C._jit_onnx_log = log


def _traced(gated: _Gated, example: Tensor) -> bytes:
    names = ["label", "verdict", "conf_id", *(["conf_ood"] if gated.gate.ood is not None else [])]
    buffer = io.BytesIO()
    torch.onnx.export(
        gated,
        (example,),
        buffer,  # type: ignore[arg-type]
        input_names=["images"],
        output_names=names,
        dynamic_axes={name: {0: "N"} for name in ["images", *names]},
        opset_version=OPSET,
        dynamo=False,  # the tracer follows the hooks that capture features
    )
    return buffer.getvalue()


def _facts(gate: Gate, prepare: Prepare | None) -> dict[str, str]:
    from twofold import __version__

    said: dict[str, Any] = {
        "verdicts": VERDICTS,
        "id": gate.id.spec,
        "ood": None if gate.ood is None else gate.ood.spec,
        "tau_id": repr(gate.tau_id),
        "tau_ood": repr(gate.tau_ood),
        "class_names": gate.class_names,
        "images": "as the model takes them" if prepare is None else "pixels in [0, 1]",
        "version": __version__,
    }
    return {f"twofold.{name}": json.dumps(value) for name, value in said.items()}


# Checks of what ONNX can hold


def _chains(gate: Gate) -> list[Chain]:
    return [chain for chain in (gate.id, gate.ood) if chain is not None]


def _check(chain: Chain) -> None:
    """Raise an error where a step has no form in ONNX."""
    *before, last = chain.steps
    tables: list[tuple[ChainStep, dict[str, Any]]] = [*((step, TRANSFORMS) for step in before), (last, SCORES)]
    for step, table in tables:
        name, s = step.info.name, _settled(step)
        if name not in table:
            kind = "score" if table is SCORES else "transform"
            raise InvalidInput(
                f"{name} cannot be written to ONNX; the {kind}s that can: {', '.join(sorted(table))}. "
                "Fit the gate with one of them, or decide in Python"
            )
        wrong = _limit(name, s, chain)
        if wrong:
            raise InvalidInput(f"{step.spec} cannot be written to ONNX: {wrong}")
    for inner in last.inner_chains:
        _check(inner)


def _limit(name: str, s: Any, chain: Chain) -> str:
    """Return why a step that ONNX can hold cannot be written with these settings; empty if it can."""
    if name == "project" and s.kind == "class_pred":
        return 'its subspace depends on the prediction; use kind="global" or "class_avg"'
    if name == "project" and s.kind == "class" and set(chain.steps[-1].needs) - {"logits"}:
        return f'kind="class" filters logits alone, and {chain.steps[-1].info.name} reads features'
    if name in ("pca_error", "kpca_error") and s.kind != "global":
        return 'use kind="global"'
    if name == "kpca_error" and s.map == "exact":
        return 'use map="cosine", "fourier" or "nystroem"'
    if name == "knn" and s.bank.size > BANK:
        return f"its bank of {len(s.bank)} rows is too large for the file; fit it with a smaller fraction"
    if name == "energy" and s.weights is not None and not all(w > 0 for w in s.weights):
        return "weights must all be above 0"
    return ""


def _check_fit(gate: Gate, classifier: Classifier) -> None:
    if classifier.classes != gate.classes:
        raise InvalidInput(f"this gate is for {gate.classes} classes, the model has {classifier.classes}")
    mine = head_print([gate.id, gate.ood], classifier.head)
    if gate.head and mine and gate.head != mine:
        raise InvalidInput("the model has another last layer than the gate was fitted with; it is another model")


# Numerically stable building blocks


def _tensor(array: Any) -> Tensor:
    return torch.from_numpy(np.array(array, dtype=np.float64))


def _log1p(x: Tensor) -> Tensor:
    """Compute log(1 + x) by its rounded sum, whose error cancels (Kahan): ONNX has no such operator."""
    u = 1.0 + x
    return torch.where(u == 1.0, x, torch.log(u) * x / torch.where(u == 1.0, 1.0, u - 1.0))


def _expm1(x: Tensor) -> Tensor:
    """Compute exp(x) - 1 for x at most 0, in the same way."""
    u = torch.exp(x)
    flat = (u == 1.0) | (u < 1e-17)
    inside = (u - 1.0) * x / torch.where(flat, 1.0, torch.log(torch.where(flat, 2.0, u)))
    return torch.where(u == 1.0, x, torch.where(u < 1e-17, -1.0, inside))


def _softplus(x: Tensor) -> Tensor:
    return torch.clamp(x, min=0.0) + _log1p(torch.exp(-x.abs()))


def _chosen(z: Tensor, columns: Tensor) -> Tensor:
    return z.gather(1, columns[:, None])[:, 0]


def _without(z: Tensor, columns: Tensor, value: float = -math.inf) -> Tensor:
    """Replace one entry of each row."""
    return torch.where(torch.arange(_width(z)) == columns[:, None], value, z)


def _width(table: Tensor) -> int:
    return int(table.shape[1])  # a plain number, also during tracing


def _length(rows: Tensor) -> Tensor:
    return (rows * rows).sum(dim=1).sqrt()


def _unit(rows: Tensor) -> Tensor:
    return rows / _length(rows)[:, None].clamp(min=TINY)


def _squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    gap = points @ (-2.0 * centres.T) + (centres * centres).sum(dim=1) + (points * points).sum(dim=1, keepdim=True)
    return gap.clamp(min=0.0)


def _log_probabilities(z: Tensor) -> tuple[Tensor, Tensor]:
    """Compute log p and log(1 - p)."""
    log_p = functional.log_softmax(z, dim=1)
    top = log_p.argmax(dim=1)
    others = _without(log_p, top)
    rest = _log1p(-torch.exp(others))
    mine = torch.arange(_width(z)) == top[:, None]
    return log_p, torch.where(mine, others.logsumexp(dim=1, keepdim=True), rest)


def _impurity(z: Tensor) -> Tensor:
    log_p, log_miss = _log_probabilities(z)
    return torch.exp(log_p + log_miss).sum(dim=1)


# Scores of logits


@_of(SCORES, "msp")
def _msp(s: Any, v: View) -> Tensor:
    return _chosen(v.logits, v.predictions) - _without(v.logits, v.predictions).logsumexp(dim=1)


@_of(SCORES, "mls")
def _mls(s: Any, v: View) -> Tensor:
    return v.logits.amax(dim=1)


@_of(SCORES, "maxlogit_pnorm")
def _maxlogit_pnorm(s: Any, v: View) -> Tensor:
    z = v.logits - v.logits.mean(dim=1, keepdim=True)
    top = z.amax(dim=1)
    if s.p == 0:
        return top
    scale = z.abs().amax(dim=1)
    equal = scale <= TINY
    scale = torch.where(equal, 1.0, scale)
    norm = scale * ((z / scale[:, None]).abs() ** float(s.p)).sum(dim=1) ** (1.0 / s.p)
    return torch.where(equal, 0.0, top / torch.where(equal, 1.0, norm))


@_of(SCORES, "margin")
def _margin(s: Any, v: View) -> Tensor:
    first, second = v.logits.topk(2, dim=1).values.unbind(dim=1)
    return torch.exp(first - v.logits.logsumexp(dim=1)) * -_expm1(second - first)


@_of(SCORES, "entropy")
def _entropy(s: Any, v: View) -> Tensor:
    log_p = functional.log_softmax(v.logits, dim=1)
    top = log_p.argmax(dim=1)
    p = _without(torch.exp(log_p), top, 0.0)
    return (p * log_p).sum(dim=1) + torch.exp(_chosen(log_p, top)) * _log1p(-p.sum(dim=1).clamp(max=NEARLY))


@_of(SCORES, "gini")
def _gini(s: Any, v: View) -> Tensor:
    return -_impurity(v.logits)


@_of(SCORES, "collision")
def _collision(s: Any, v: View) -> Tensor:
    return _log1p(-_impurity(v.logits).clamp(max=NEARLY))


@_of(SCORES, "energy")
def _energy(s: Any, v: View) -> Tensor:
    z = v.logits / s.temperature
    return s.temperature * (z if s.weights is None else z + _tensor(np.log(s.weights))).logsumexp(dim=1)


@_of(SCORES, "gen")
def _gen(s: Any, v: View) -> Tensor:
    log_p, log_miss = _log_probabilities(v.logits)
    product = log_p + log_miss
    if s.top < _width(product):
        product = product.gather(1, log_p.topk(s.top, dim=1).indices)
    return -torch.exp(s.gamma * product).sum(dim=1)


@_of(SCORES, "renyi")
def _renyi(s: Any, v: View) -> Tensor:
    log_p = functional.log_softmax(v.logits, dim=1)
    if s.top is not None and s.top < _width(log_p):
        log_p = log_p.topk(s.top, dim=1).values
    if abs(s.alpha - 1.0) < 1e-6:
        return (torch.exp(log_p) * log_p).sum(dim=1)
    return (s.alpha * log_p).logsumexp(dim=1) / (s.alpha - 1.0)


@_of(SCORES, "guessing")
def _guessing(s: Any, v: View) -> Tensor:
    classes = _width(v.logits)
    log_p = functional.log_softmax(v.logits, dim=1).topk(classes, dim=1).values
    return -(torch.exp(log_p) * torch.arange(1, classes + 1).double()).sum(dim=1)


@_of(SCORES, "klm")
def _klm(s: Any, v: View) -> Tensor:
    log_p = functional.log_softmax(v.logits, dim=1)
    p = torch.exp(log_p)
    return -((p * log_p).sum(dim=1, keepdim=True) - p @ _tensor(s.log_typical).T).amin(dim=1)


@_of(SCORES, "edl_max")
def _edl_max(s: Any, v: View) -> Tensor:
    a = torch.exp(v.logits.clamp(-10.0, 10.0)) + 1.0
    return a.amax(dim=1) / a.sum(dim=1)


@_of(SCORES, "edl_vacuity")
def _edl_vacuity(s: Any, v: View) -> Tensor:
    return -_width(v.logits) / (torch.exp(v.logits.clamp(-10.0, 10.0)) + 1.0).sum(dim=1)


# Scores of features


@_of(SCORES, "mds")
def _mds(s: Any, v: View) -> Tensor:
    h, centres = v.features @ _tensor(s.whiten), s.centres
    if s.nearest:
        return -_squared_distances(h, _tensor(centres[~np.isnan(centres[:, 0])])).amin(dim=1)
    return -((h - _tensor(centres)[v.predictions]) ** 2).sum(dim=1)


@_of(SCORES, "rmds")
def _rmds(s: Any, v: View) -> Tensor:
    nearest = _squared_distances(v.features @ _tensor(s.whiten), _tensor(s.centres)).amin(dim=1)
    return _squared_distances(v.features @ _tensor(s.whiten_all), _tensor(s.centre))[:, 0] - nearest


@_of(SCORES, "she")
def _she(s: Any, v: View) -> Tensor:
    pattern = _tensor(s.patterns)
    if s.kind == "euclidean":
        return -_length(v.features - pattern[v.predictions])
    if s.kind == "cosine":
        return (_unit(v.features) * _unit(pattern)[v.predictions]).sum(dim=1)
    return (v.features * pattern[v.predictions]).sum(dim=1)


@_of(SCORES, "cosine_weight")
def _cosine_weight(s: Any, v: View) -> Tensor:
    assert v.weight is not None
    return (_unit(v.features) @ _unit(v.weight).T).amax(dim=1)


@_of(SCORES, "cosine_mean")
def _cosine_mean(s: Any, v: View) -> Tensor:
    return (_unit(v.features) @ _tensor(s.directions).T).amax(dim=1)


@_of(SCORES, "fdbd")
def _fdbd(s: Any, v: View) -> Tensor:
    weight = _tensor(s.inverse)[v.predictions]
    gaps = (_chosen(v.logits, v.predictions)[:, None] - v.logits) * weight
    others = _tensor(np.maximum((s.inverse > 0).sum(axis=1), 1))[v.predictions]
    return gaps.sum(dim=1) / others / _length(v.features - _tensor(s.mean)).clamp(min=TINY)


@_of(SCORES, "gradnorm")
def _gradnorm(s: Any, v: View) -> Tensor:
    p = functional.softmax(v.logits, dim=1)
    return v.raw.abs().sum(dim=1) * (p - 1.0 / _width(p)).abs().sum(dim=1)


@_of(SCORES, "nci")
def _nci(s: Any, v: View) -> Tensor:
    away = v.features - _tensor(s.mean)
    along = (_tensor(s.weight)[v.predictions] * away).sum(dim=1)
    return along / _length(away).clamp(min=TINY) + s.alpha * v.raw.abs().sum(dim=1)


@_of(SCORES, "residual")
def _residual(s: Any, v: View) -> Tensor:
    return -_length((v.features - _tensor(s.origin)) @ _tensor(s.basis))


@_of(SCORES, "vim")
def _vim(s: Any, v: View) -> Tensor:
    return v.logits.logsumexp(dim=1) + float(s.alpha) * _residual(s, v)


@_of(SCORES, "neco")
def _neco(s: Any, v: View) -> Tensor:
    h = v.raw if s.raw else v.features
    standard = (h - _tensor(s.mean)) * _tensor(s.scale)
    whole = _length(h if s.denominator == "raw" else standard)
    share = _length(standard @ _tensor(s.basis).T) / whole.clamp(min=TINY)
    if not s.scale_by_logit:
        return share
    top = v.logits.amax(dim=1)
    return torch.where(top > 0, share * top, top)


def _outside(rows: Tensor, basis: Tensor) -> Tensor:
    return _length(rows - (rows @ basis.T) @ basis)


@_of(SCORES, "pca_error")
def _pca_error(s: Any, v: View) -> Tensor:
    h = v.raw if s.raw else v.features
    share = _outside(h - _tensor(s.means[0]), _tensor(s.bases)) / _length(h).clamp(min=TINY)
    return (1.0 - share) * v.logits.logsumexp(dim=1) if s.fused else -share


@_of(SCORES, "kpca_error")
def _kpca_error(s: Any, v: View) -> Tensor:
    phi = _unit(v.features)
    if s.map == "fourier":
        phi = math.sqrt(2.0 / len(s.points)) * torch.cos(phi @ _tensor(s.points).T + _tensor(s.mixing))
    elif s.map == "nystroem":
        phi = torch.exp(-s.gamma * _squared_distances(phi, _tensor(s.points))) @ _tensor(s.mixing)
    rest = _outside(phi - _tensor(s.means[0]), _tensor(s.bases))
    return -(rest * rest) / _length(phi).clamp(min=TINY) if s.normalised else -rest


@_of(SCORES, "knn")
def _knn(s: Any, v: View) -> Tensor:
    cosines = _unit(v.features) @ _tensor(s.bank).T
    return 2.0 * cosines.topk(s.rank, dim=1).values[:, s.rank - 1] - 2.0


# Scores that a network learnt, and combinations of scores


def _said(name: str, v: View) -> Tensor:
    if name not in v.learned:
        raise InvalidInput(f"the gate reads learned[{name!r}], and this model gives no such value; it is another model")
    return v.learned[name]


@_of(SCORES, "confidnet")
def _confidnet(s: Any, v: View) -> Tensor:
    return _said("confidnet", v)


@_of(SCORES, "devries")
def _devries(s: Any, v: View) -> Tensor:
    return _said("devries", v)


@_of(SCORES, "gambler")
def _gambler(s: Any, v: View) -> Tensor:
    return 1.0 - _said("reservation", v)


def _second(name: str, s: Any, v: View) -> Tensor:
    return v.raw.abs().sum(dim=1) if name == "norm" or s.origin is None else _residual(s, v)


@_of(SCORES, "sirc")
def _sirc(s: Any, v: View) -> Tensor:
    result = _softplus(_msp(s, v)) if s.s1 == "msp" else -torch.log((-_entropy(s, v)).clamp(min=1e-300))
    for name, low, slope in zip(s.seconds, s.low.tolist(), s.slope.tolist(), strict=True):
        value = _second(name, s, v)
        if s.mean is not None and name == "residual":
            value = (v.features - _tensor(s.mean)).abs().sum(dim=1)
        result = result - _softplus(-slope * (value - low))
    return result


def _standardised(s: Any, v: View) -> list[Tensor]:
    parts = zip(s.chains, s.centre.tolist(), s.spread.tolist(), strict=True)
    return [(_run(chain, v) - centre) / spread for chain, centre, spread in parts]


@_of(SCORES, "sum")
def _sum(s: Any, v: View) -> Tensor:
    values = _standardised(s, v)
    weights = [1.0] * len(values) if s.weights is None else s.weights
    return torch.stack([w * value for w, value in zip(weights, values, strict=True)]).sum(dim=0)


@_of(SCORES, "product")
def _product(s: Any, v: View) -> Tensor:
    return -torch.stack([_softplus(-value) for value in _standardised(s, v)]).sum(dim=0)


# Transforms


@_of(TRANSFORMS, "temperature")
def _temperature(s: Any, v: View) -> View:
    t = float(s.fitted)
    weight, bias = (None if a is None else a / t for a in (v.weight, v.bias))
    return replace(v, logits=v.logits / t, weight=weight, bias=bias)


@_of(TRANSFORMS, "react")
def _react(s: Any, v: View) -> View:
    return v.through(v.features.clamp(max=float(s.limit)))


@_of(TRANSFORMS, "vra")
def _vra(s: Any, v: View) -> View:
    low, high = s.limits.tolist()
    h = v.features
    return v.through(torch.where(h < low, 0.0, torch.where(h > high, high, h + s.gain)))


@_of(TRANSFORMS, "dice")
def _dice(s: Any, v: View) -> View:
    return replace(v, weight=_tensor(s.weight)).through(v.features)


def _top(h: Tensor, percentile: float) -> tuple[int, Tensor]:
    """Return how many of the largest entries of each row are kept, and these entries."""
    width = _width(h)
    k = max(1, width - round(width * percentile / 100.0))
    return k, h.topk(k, dim=1).values


def _factor(total: Tensor, kept: Tensor) -> Tensor:
    ratio = torch.where(kept > 0, total / torch.where(kept > 0, kept, 1.0), 0.0)
    return torch.exp(ratio.clamp(-CLIP, CLIP))[:, None]


@_of(TRANSFORMS, "ash")
def _ash(s: Any, v: View) -> View:
    h = v.features
    k, top = _top(h, s.percentile)
    least = top[:, k - 1 : k]
    equal = (h == least).double()
    room = k - (h > least).double().sum(dim=1, keepdim=True)
    kept = (h > least) | ((equal > 0) & (equal.cumsum(dim=1) <= room))  # among equal entries the first are kept
    total = h.sum(dim=1)
    if s.kind == "b":
        return v.through(torch.where(kept, total[:, None] / k, 0.0))
    shaped = torch.where(kept, h, 0.0)
    return v.through(shaped * _factor(total, shaped.sum(dim=1)) if s.kind == "s" else shaped)


@_of(TRANSFORMS, "scale")
def _scale(s: Any, v: View) -> View:
    factor = _factor(v.features.sum(dim=1), _top(v.features, s.percentile)[1].sum(dim=1))
    bias = 0.0 if v.bias is None else v.bias
    return replace(v, features=v.features * factor, logits=factor * (v.logits - bias) + bias)


@_of(TRANSFORMS, "lts")
def _lts(s: Any, v: View) -> View:
    h = v.features.clamp(min=0.0)
    kept = _top(h, s.percentile)[1].sum(dim=1)
    factor = torch.where(kept > 0, h.sum(dim=1) / torch.where(kept > 0, kept, 1.0), 1.0)[:, None] ** 2
    return replace(v, logits=factor * v.logits, weight=None, bias=None)


@_of(TRANSFORMS, "project")
def _project(s: Any, v: View) -> View:
    logits = v.features @ _tensor(s.weight).T + _tensor(s.bias)
    if s.kind == "class":
        return replace(v, logits=logits, weight=_tensor(s.weight), bias=_tensor(s.bias))
    return replace(v, features=v.features @ _tensor(s.filter) + _tensor(s.offset), logits=logits)
