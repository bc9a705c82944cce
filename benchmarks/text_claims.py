"""Decide which of the papers' claims on images hold for text: intents of CLINC150 and a fine-tuned MiniLM.

    TWOFOLD_DATA=... python benchmarks/text_claims.py [--work FOLDER] [--save]     (15 minutes on 2 cores, resumable)

Known queries: 4,500 of test, and for promises also the 3,000 of val. Near unknown set: the 1,000 out-of-scope
queries, which people wrote to the same assistant. Far unknown set: the first sentences of docstrings of Python's standard
library (PSF licence), 1,000 drawn by a seed; they depend a little on the version of Python. Outputs of the far set, and ten
passes with the network's own dropout (0.1) over 1,500 test and 1,000 out-of-scope queries, are extracted into the folder of --work
(by default text-claims); everything else comes from features_clinc150_minilm.npz. Scores are fitted on 7,500 training
queries with a temperature from val, in the printed forms of the stratified study's Table 3; the share of variance of a
projection is chosen by AUGRC on val, other settings are fixed. With --save the lines go to results/claims/text.csv.

Two settings were changed after a first run, under the same rules. Its share of the variance was fixed at 0.9, with far larger
losses by projections; the study chooses the share. It had 300 draws, with which the promise of the two-score gate was
inconclusive; with 1,000 it holds.

There is one network, so intervals are over queries and speak for this network only. The interval decides as
benchmarks/claims.py says, by these rules:

- Two scores against one: DS-F1 of msp with energy less F1 of msp alone. Bootstrap of queries, known and unknown apart. Far less
  near: the difference of the two gains.
- Thresholds that transfer: both thresholds, and those of msp and of energy alone, are chosen by F1 on a random half of the known
  and of the near queries. Gain: F1 of the pair less the better of the two single scores, on the other half with near queries (fresh
  data), or with far ones (another unknown set). Interval: 2.5 and 97.5 % of 200 halvings.
- No score beats the softmax: of the plain scores of Table 3 the largest lead over msp in AUROC, with Bonferroni intervals by
  DeLong's method; the gain is minus that lead. On wrong labels, near queries and far ones.
- Projections: mean gain in AUROC over the scores that have the projection, near and far averaged; DeLong's method on means.
- Families of scores and near against far: as benchmarks/stratified.py, with DeLong's method on the means of scores.
- Passes: AUGRC of msp of one pass less that of the mean of ten passes, each with its own predictions; bootstrap.
- Promises: 2,000 queries are drawn with replacement and a threshold, or a gate of msp and energy, is fitted that promises a
  risk of at most 2 % with confidence 90 %; all 8,500 queries are the population, on which the true risk is known. Gain: the
  allowed share of broken promises (10 %) less the observed one, interval of Clopper and Pearson over 1,000 draws.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from script import announce, data_folder, work_folder

import numpy as np

from claims import Claim, judge, write_claims
from intervals import (
    Gain,
    Placements,
    average,
    delong,
    delong_other_failures,
    exact_rate,
    of_replicates,
    place,
    show_gain,
)
from stratified import GEOMETRY, PLAIN, PROJECTED, SOFTMAX, SOFTMAX_ID, SOFTMAX_NEAR
from twofold import Run, metrics
from twofold.bench.confidences import plan_chain
from twofold.bench.pools import TABLE_3
from twofold.bench.protocols import Tuning, protocol
from twofold.errors import Infeasible, InvalidInput
from twofold.gate import Gate
from twofold.outputs import Head, Outputs
from twofold.stats import bootstrap, sgr

COMMAND = "python benchmarks/text_claims.py --save"
FEATURES = "text/features_clinc150_minilm.npz"
SCALE = "MiniLM on CLINC150: 150 intents, 4,500 test queries, 1,000 near (out of scope) and 1,000 far ones"
MODULES = (
    "argparse", "asyncio", "bisect", "calendar", "collections", "configparser", "contextlib", "csv", "datetime", "decimal",
    "difflib", "email.message", "fractions", "ftplib", "gettext", "gzip", "hashlib", "heapq", "html", "http.client",
    "http.cookiejar", "imaplib", "inspect", "ipaddress", "itertools", "json", "logging", "mailbox", "math", "mimetypes",
    "multiprocessing", "numbers", "os", "pathlib", "pdb", "pickle", "platform", "poplib", "pprint", "queue", "random", "re",
    "sched", "selectors", "shelve", "shutil", "smtplib", "socket", "sqlite3", "ssl", "statistics", "string", "subprocess",
    "tarfile", "tempfile", "textwrap", "threading", "timeit", "tokenize", "traceback", "turtle", "types", "typing", "unittest",
    "urllib.request", "uuid", "warnings", "wave", "weakref", "xml.dom.minidom", "xml.sax", "zipfile",
)  # fmt: skip
FAR = 1000
PASSES, PASS_ROWS = 10, 1500
RESAMPLES, HALVINGS, DRAWS = 1000, 200, 1000
SHARES = (0.8, 0.9, 0.95, 0.99)  # of the variance, tried for each projection
CALIBRATION, RISK, DELTA = 2000, 0.02, 0.1
KNOWN_GROUPS = {"id": "wrong labels", "near": "near queries", "far": "far queries"}


@dataclass(frozen=True)
class World:
    """Hold the outputs of each set, and the placements of every score of Table 3 by group."""

    sets: Mapping[str, Outputs]
    conf: Mapping[tuple[str, str], Mapping[str, np.ndarray]]
    placed: Mapping[tuple[str, str, str], Placements]  # by score, projection and group

    @property
    def correct(self) -> np.ndarray:
        """Which test queries are labelled correctly."""
        return np.asarray(self.sets["test"].correct)

    def mean(self, group: str, scores: Sequence[tuple[str, str]]) -> Placements:
        """Average the placements of scores, whose AUROC is then the mean of theirs."""
        return average([self.placed[score, projection, group] for score, projection in scores])


def main() -> None:
    data = data_folder(FEATURES, "text/minilm_clinc150/config.json")
    run = extract(data, work_folder("text-claims"))
    world = load_world(data, run)
    found = [
        *claims_on_pairs(world),
        *claims_on_thresholds(world),
        *claims_on_softmax(world),
        *claims_on_distance(world),
        *claims_on_projections(world),
        *claims_on_passes(run),
        *claims_on_promises(world),
    ]
    for one in found:
        print(f"{one.verdict:28} {one.claim}: {one.ours}")
    if "--save" in sys.argv:
        print(write_claims("text", found))


# --- outputs --------------------------------------------------------------------------------------------------------


def docstring_sentences() -> list[str]:
    """List the first sentences of docstrings of the standard library, each once, in the order of modules and names."""
    found: dict[str, None] = {}
    for name in MODULES:
        module = import_module(name)
        for _, member in sorted(inspect.getmembers(module), key=lambda pair: pair[0]):
            if not callable(member):
                continue
            members = [member]
            if inspect.isclass(member):
                members += [own for _, own in sorted(vars(member).items()) if inspect.isfunction(own)]
            for one in members:
                sentence = first_sentence(inspect.getdoc(one) or "")
                if sentence:
                    found[sentence] = None
    return list(found)


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring if it has 4 to 25 words, else nothing."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    count = len(sentence.split())
    return sentence if 4 <= count <= 25 else ""


def write_far(path: Path) -> None:
    """Write the far queries as lines of JSON, without labels."""
    sentences = docstring_sentences()
    if len(sentences) < FAR:
        sys.exit(f"the standard library gives {len(sentences)} sentences, and {FAR} are needed")
    chosen = np.sort(np.random.default_rng(0).permutation(len(sentences))[:FAR])
    lines = [json.dumps({"text": sentences[place], "label": None}) for place in chosen]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def extract(data: Path, work: Path) -> dict[str, Outputs]:
    """Run the network over the far queries, and several times with dropout over some test and near ones."""
    model = f"hf:{data / 'text/minilm_clinc150'}"
    far = work / "far.jsonl"
    if not far.exists():
        write_far(far)
    folder = data / "text/clinc150"
    passes = [
        (f"text:{folder}/test.jsonl.gz?sample={PASS_ROWS}&seed=0", "test", "test"),
        (f"text:{folder}/oos_test.jsonl.gz", "near", "near"),
    ]
    announce("outputs of the far queries, and passes with dropout")
    plain = extract_missing(model, [(f"text:{far}", "far", "far")], work / "far")
    several = extract_missing(model, passes, work / "passes", passes=PASSES)
    return {"far": plain["far"], "test": several["test"], "near": several["near"]}


def extract_missing(model: str, sets: list[tuple[str, str, str]], out: Path, **options: int) -> Run:
    """Extract the sets that a run lacks."""
    from twofold.nn.extraction import extract_all

    held = set(Run.open(out).names()) if (out / "run.json").exists() else set()
    missing = [one for one in sets if one[2] not in held]
    if missing:
        extract_all(model, missing, out, batch=64, **options)
    return Run.open(out)


def load_world(data: Path, run: Mapping[str, Outputs]) -> World:
    """Read the stored outputs, fit every score of Table 3, and place its confidences."""
    stored = np.load(data / FEATURES, allow_pickle=False)
    head = Head(stored["W"], stored["b"])
    sets = {}
    for name in ("train", "val", "test", "oos_test"):
        features = stored[f"{name}_features"].astype(np.float32)
        sets[name] = Outputs(
            stored[f"{name}_logits"], stored[f"{name}_labels"].astype(int), features=features, head=head
        )
    far = run["far"]
    sets["far"] = Outputs(far.logits, np.full(len(far), -1), features=np.asarray(far.features), head=head)
    sets["near"] = sets.pop("oos_test")
    conf = {}
    tuning = protocol("stratified").tuning
    for row in TABLE_3:
        if row.by_kind:
            continue
        for column in row.columns:
            announce(f"{row.title}, projection {column}")
            conf[row.title, column] = score_sets(row.spec(column, "quick"), sets, tuning)
    correct = np.asarray(sets["test"].correct)
    placed = {}
    for (title, column), by_set in conf.items():
        trusted = by_set["test"][correct]
        placed[title, column, "id"] = place(trusted, by_set["test"][~correct])
        placed[title, column, "near"] = place(trusted, by_set["near"])
        placed[title, column, "far"] = place(trusted, by_set["far"])
    return World(sets, conf, placed)


def score_sets(spec: str, sets: Mapping[str, Outputs], tuning: Tuning) -> dict[str, np.ndarray]:
    """Fit a score behind the temperature of val, and score val, test, near and far queries.

    The share of variance of a projection is the one with the least AUGRC on val, as in the study.
    """
    candidates = [spec]
    if spec.startswith("project("):
        candidates = [spec.replace("variance=0.9", f"variance={share}") for share in SHARES]
    right = np.asarray(sets["val"].correct)
    best, least = None, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for candidate in candidates:
            chain = plan_chain(candidate, tuning)
            fitted = chain if chain.ready else chain.fit(sets["train"], val=sets["val"])
            found = metrics.augrc(right, fitted.score(sets["val"]))
            if found < least:
                best, least = fitted, found
        return {name: np.asarray(best.score(sets[name])) for name in ("val", "test", "near", "far")}


# --- two scores against one -----------------------------------------------------------------------------------------


def of_claim(
    paper: str,
    claim: str,
    gain: Gain,
    *,
    ours: str = "",
    printed_at: str,
    printed: str,
    unit: str = "AUROC, points",
    factor: float = 100,
    scale: str = SCALE,
) -> Claim:
    """Make a claim whose numbers are shown in points."""
    shown = show_gain(gain, factor=factor)
    return judge(
        paper,
        claim,
        printed_at=printed_at,
        printed=printed,
        ours=f"{shown}; {ours}" if ours else shown,
        low=factor * gain.low,
        high=factor * gain.high,
        p=gain.p,
        unit=unit,
        scale=scale,
        command=COMMAND,
    )


def join(world: World, group: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Join test and unknown queries: correct, known, confidence by msp, confidence by energy."""
    outside = len(world.sets[group])
    correct = np.concatenate([world.correct, np.zeros(outside, bool)])
    known = np.arange(len(correct)) < len(world.correct)
    first, second = (
        np.concatenate([world.conf[name, PLAIN]["test"], world.conf[name, PLAIN][group]]) for name in ("MSR", "Energy")
    )
    return correct, known, first, second


def pair_gain(correct: np.ndarray, known: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Compute DS-F1 of two scores less F1 of the first alone."""
    return metrics.ds_f1(correct, first, second, known).value - metrics.f1(correct, first, known).value


def resample_gains(world: World, group: str) -> tuple[float, np.ndarray]:
    """Compute the gain of two scores with its replicates; known and unknown queries are resampled apart."""
    arrays = join(world, group)
    found = bootstrap(pair_gain, *arrays, n=RESAMPLES // 2, seed=0, stratify=arrays[1])
    return found.value, found.replicates


def claims_on_pairs(world: World) -> Iterable[Claim]:
    announce("two scores against one")
    values, drawn = {}, {}
    for group, printed in (("near", "+0.25 at best on near sets"), ("far", "+2.13 at best on far sets")):
        values[group], drawn[group] = resample_gains(world, group)
        gain = of_replicates(values[group], drawn[group])
        yield of_claim(
            "sure_plus",
            f"On text two scores are better than msp alone against {group} queries",
            gain,
            printed_at="Table 1",
            printed=f"F1 {printed}",
            unit="F1, points",
        )
    gain = of_replicates(values["far"] - values["near"], drawn["far"] - drawn["near"])
    yield of_claim(
        "sure_plus",
        "On text far queries gain more from a second score than near ones",
        gain,
        printed_at="Table 1",
        printed="+0.25 near, +2.13 far",
        unit="F1, points",
    )


def accepted_f1(accept: np.ndarray, correct: np.ndarray, known: np.ndarray) -> float:
    """Compute the F1 of accepting correct predictions."""
    return float(2 * (accept & correct).sum() / (accept.sum() + known.sum()))


def halve(world: World, judged: str, generator: np.random.Generator) -> tuple[float, float, float]:
    """Choose thresholds on one half with near queries; return F1 of pair, msp and energy on the other with judged ones."""
    correct, known, first, second = join(world, "near")
    chooses = generator.permutation(len(correct)) < len(correct) // 2
    point = metrics.ds_f1(correct[chooses], first[chooses], second[chooses], known[chooses])
    alone = metrics.f1(correct[chooses], first[chooses], known[chooses]).threshold
    other = metrics.f1(correct[chooses], second[chooses], known[chooses]).threshold
    rest = ~chooses
    if judged != "near":
        keep = rest & known
        outside = world.sets[judged]
        first = np.concatenate([first[keep], world.conf["MSR", PLAIN][judged]])
        second = np.concatenate([second[keep], world.conf["Energy", PLAIN][judged]])
        correct = np.concatenate([correct[keep], np.zeros(len(outside), bool)])
        known = np.concatenate([known[keep], np.zeros(len(outside), bool)])
        rest = np.ones(len(correct), bool)
    pair = (first >= point.tau_id) & (second >= point.tau_ood)
    accepts = (pair, first >= alone, second >= other)
    numbers = [accepted_f1(accept[rest], correct[rest], known[rest]) for accept in accepts]
    return numbers[0], numbers[1], numbers[2]


def claims_on_thresholds(world: World) -> Iterable[Claim]:
    announce("thresholds on fresh queries and on another unknown set")
    lines = (
        ("near", "beyond", "On text thresholds of a pair stay ahead of single scores on fresh queries", "nowhere"),
        ("far", "sure_plus", "On text thresholds of a pair stay ahead on another unknown set", "Table 2"),
    )
    for judged, paper, claim, where in lines:
        generator = np.random.default_rng(0)
        table = np.array([halve(world, judged, generator) for _ in range(HALVINGS)])
        gains = table[:, 0] - table[:, 1:].max(axis=1)
        gain = of_replicates(float(gains.mean()), gains)
        means = 100 * table.mean(axis=0)
        yield of_claim(
            paper,
            claim,
            gain,
            ours=f"pair {means[0]:.2f}, msp {means[1]:.2f}, energy {means[2]:.2f}",
            printed_at=where,
            printed="F1 26.0, single scores 24.4 and 24.9" if paper == "sure_plus" else "no paper prints it",
            unit="F1, points",
        )


# --- scores ---------------------------------------------------------------------------------------------------------


def claims_on_softmax(world: World) -> Iterable[Claim]:
    rivals = [row.title for row in TABLE_3 if not row.by_kind and row.title != "MSR"]
    for group, what in KNOWN_GROUPS.items():
        msp = world.placed["MSR", PLAIN, group]
        leads = {title: delong(world.placed[title, PLAIN, group], msp, tests=len(rivals)) for title in rivals}
        best = max(leads, key=lambda title: leads[title].value)
        gain = Gain(
            -leads[best].value,
            -max(one.high for one in leads.values()),
            -max(one.low for one in leads.values()),
            leads[best].p,
        )
        yield of_claim(
            "fd_shifts",
            f"On text no score beats the softmax on {what}",
            gain,
            ours=f"best rival of {len(rivals)}: {best}, AUROC {100 * (msp.auroc + leads[best].value):.2f}, msp {100 * msp.auroc:.2f}",
            printed_at="Table 1",
            printed="none of the scores outperforms the softmax across shifts",
        )


def plain(titles: Iterable[str]) -> list[tuple[str, str]]:
    """List the unprojected forms of scores."""
    return [(title, PLAIN) for title in titles]


def claims_on_distance(world: World) -> Iterable[Claim]:
    every = plain(row.title for row in TABLE_3 if not row.by_kind)
    near, far = world.mean("near", every), world.mean("far", every)
    yield of_claim(
        "stratified_ood",
        "On text far queries are easier to detect than near ones",
        delong_other_failures(far, near),
        ours=f"mean AUROC far {100 * far.auroc:.2f}, near {100 * near.auroc:.2f}",
        printed_at="Table 1, Section 3.3",
        printed="no numbers on difficulty",
    )
    lines = (
        ("id", SOFTMAX_ID, GEOMETRY, "On text MSR and GEN lead NNGuide, fDBD and CTM on wrong labels"),
        ("near", SOFTMAX_NEAR, GEOMETRY, "On text Energy, MLS and MSR lead NNGuide, fDBD and CTM on near queries"),
        ("far", GEOMETRY, SOFTMAX, "On text NNGuide, fDBD and CTM lead MSR, GEN, Energy and MLS on far queries"),
    )
    for group, ahead, behind, claim in lines:
        gain = delong(world.mean(group, plain(ahead)), world.mean(group, plain(behind)))
        yield of_claim(
            "stratified_ood",
            claim,
            gain,
            printed_at="Section 4.6 (1), Figure 1",
            printed="for CNNs: GEN and MSR on ID, Energy, MLS and MSR near, NNGuide, fDBD and CTM mid and far",
        )


def join_groups(one: Placements, other: Placements) -> Placements:
    """Average two unknown sets: trusted rows by their mean placement, failures of both weighted alike."""
    first, second = len(one.failures), len(other.failures)
    total = first + second
    failures = np.concatenate([one.failures * total / (2 * first), other.failures * total / (2 * second)])
    return Placements((one.trusted + other.trusted) / 2, failures)


def claims_on_projections(world: World) -> Iterable[Claim]:
    titles = {row.title: row.projections for row in TABLE_3 if not row.by_kind}
    for projection in PROJECTED:
        named = [title for title, columns in titles.items() if projection in columns]
        gains = {}
        for group in ("id", "near", "far"):
            projected = world.mean(group, [(title, projection) for title in named])
            gains[group] = (projected, world.mean(group, plain(named)))
        both = [join_groups(gains["near"][place], gains["far"][place]) for place in (0, 1)]
        on_id = show_gain(delong(*gains["id"]))
        yield of_claim(
            "stratified_ood",
            f"On text the projection {projection} helps the scores that have it on unknown queries",
            delong(*both),
            ours=f"{len(named)} scores; on wrong labels {on_id}",
            printed_at="Section 3.2, Table 3",
            printed="a simple PCA projection improves several detectors",
        )
    both = [
        join_groups(*(world.placed["GradNorm", column, group] for group in ("near", "far")))
        for column in ("class_pred", PLAIN)
    ]
    yield of_claim(
        "stratified_ood",
        "On a fine-tuned transformer the projection class_pred boosts GradNorm",
        delong(*both),
        printed_at="Section 4.3, Figure 2",
        printed="for a ViT: boosts KPCA RecError, but specially GradNorm",
    )


# --- passes of dropout ----------------------------------------------------------------------------------------------


def augrc_gain(right: np.ndarray, conf: np.ndarray, right_mean: np.ndarray, conf_mean: np.ndarray) -> float:
    """Compute AUGRC of one pass less that of the mean of passes, each with its own correctness."""
    return metrics.augrc(right, conf) - metrics.augrc(right_mean, conf_mean)


def claims_on_passes(run: Mapping[str, Outputs]) -> Iterable[Claim]:
    announce("passes with dropout")
    from twofold._math import softmax

    labels = np.asarray(run["test"].labels)
    right, conf, right_mean, conf_mean = [], [], [], []
    for name in ("test", "near"):
        outputs = run[name]
        once = softmax(np.asarray(outputs.logits, dtype=np.float64))
        several = mean_probabilities(outputs)
        truth = labels if name == "test" else np.full(len(outputs), -1)
        right.append(once.argmax(axis=1) == truth)
        right_mean.append(several.argmax(axis=1) == truth)
        conf.append(once.max(axis=1))
        conf_mean.append(several.max(axis=1))
    accuracies = f"accuracy {right[0].mean():.2%} with one pass, {right_mean[0].mean():.2%} with {PASSES}"
    wheres = {"wrong labels": (0,), "wrong labels and near queries together": (0, 1)}
    for where, parts in wheres.items():
        arrays = [np.concatenate([column[part] for part in parts]) for column in (right, conf, right_mean, conf_mean)]
        found = bootstrap(augrc_gain, *arrays, n=RESAMPLES, seed=0)
        yield of_claim(
            "stratified_ood",
            f"With 150 intents {PASSES} passes of dropout beat one on {where}",
            of_replicates(found.value, found.replicates),
            ours=accuracies,
            printed_at="Table 2, Section 4.4",
            printed="best AUGRC on TinyImageNet test 97.05 with one pass, 91.37 with 50",
            unit="AUGRC x1000",
            factor=1000,
            scale=f"MiniLM on CLINC150 with its dropout of 0.1: {PASS_ROWS:,} test and 1,000 near queries, {PASSES} passes",
        )


def mean_probabilities(outputs: Outputs) -> np.ndarray:
    """Average the probabilities of the passes."""
    if outputs.passes is None:
        raise InvalidInput("the run has no passes; extract it again with an empty folder of --work")
    return np.asarray(outputs.passes.mean_prob, dtype=np.float64)


# --- promises -------------------------------------------------------------------------------------------------------


def claims_on_promises(world: World) -> Iterable[Claim]:
    announce("promises")
    known_right = np.concatenate([np.asarray(world.sets["val"].correct), world.correct])
    outside = len(world.sets["near"])
    correct = np.concatenate([known_right, np.zeros(outside, bool)])
    known = np.arange(len(correct)) < len(known_right)
    first, second = (
        np.concatenate([world.conf[name, PLAIN][part] for part in ("val", "test", "near")])
        for name in ("MSR", "Energy")
    )
    inside = np.flatnonzero(known)

    def fit_known(rows: np.ndarray) -> np.ndarray:
        """Accept by the threshold that is fitted on known queries alone."""
        rows = rows[known[rows]]
        return first >= sgr(correct[rows], first[rows], risk=RISK, delta=DELTA).threshold

    def fit_gate(rows: np.ndarray) -> np.ndarray:
        """Accept by a gate of two scores that is fitted on known and unknown queries."""
        try:
            gate = Gate.fit_confidences(
                correct[rows], first[rows], second[rows], is_id=known[rows], objective="risk", risk=RISK, delta=DELTA
            )
        except Infeasible:
            return np.zeros(len(correct), bool)
        return np.asarray(gate.decide_confidences(first, second).verdict == "accept")

    lines: tuple[tuple[str, str, Callable[[np.ndarray], np.ndarray], np.ndarray, np.ndarray, str], ...] = (
        ("fd_shifts", "On text a guaranteed risk holds on fresh known queries", fit_known, inside, inside, "Figure 7"),
        (
            "beyond",
            "On text the guarantee of a gate of two scores holds on fresh queries, out-of-scope ones among them",
            fit_gate,
            np.arange(len(correct)),
            np.arange(len(correct)),
            "nowhere",
        ),
        (
            "fd_shifts",
            "On text a guarantee fitted on known queries fails once out-of-scope ones arrive",
            fit_known,
            inside,
            np.arange(len(correct)),
            "Figure 7",
        ),
    )
    for paper, claim, fit, drawn_from, judged_on, where in lines:
        broken, coverage = count_broken(fit, correct, drawn_from, judged_on)
        low, high = exact_rate(broken, DRAWS)
        ends = (DELTA - high, DELTA - low)
        if "fails" in claim:
            ends = (low - DELTA, high - DELTA)
        yield judge(
            paper,
            claim,
            printed_at=where,
            printed="kept on clean data, exceeded under shift" if paper == "fd_shifts" else "no paper prints it",
            ours=f"{broken} of {DRAWS} promises broken, {broken / DRAWS:.1%} [{low:.1%}, {high:.1%}], {DELTA:.0%} allowed; "
            f"mean coverage {coverage:.1%}",
            low=100 * ends[0],
            high=100 * ends[1],
            unit="percent of promises",
            scale=f"{SCALE}; {CALIBRATION:,} calibration queries, {DRAWS} draws, risk {RISK:.0%}, confidence {1 - DELTA:.0%}",
            command=COMMAND,
        )


def count_broken(
    fit: Callable[[np.ndarray], np.ndarray], correct: np.ndarray, drawn_from: np.ndarray, judged_on: np.ndarray
) -> tuple[int, float]:
    """Count the draws whose promise is broken on the population, and average their coverage."""
    generator = np.random.default_rng(0)
    broken, coverages = 0, []
    for _ in range(DRAWS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accept = fit(generator.choice(drawn_from, size=CALIBRATION))[judged_on]
        coverages.append(accept.mean())
        broken += bool(accept.any() and (~correct[judged_on][accept]).mean() > RISK)
    return broken, float(np.mean(coverages))


if __name__ == "__main__":
    main()
