"""Queries of the claims on text: those of CLINC150, sentences of Python's standard library, and passes with dropout.

``text_claims.py`` says what each set is. Its network runs over what the file of stored features lacks.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from script import announce

import numpy as np

from twofold import Run
from twofold.outputs import Head, Outputs

FEATURES = "text/features_clinc150_minilm.npz"
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


# --- sentences of the standard library ------------------------------------------------------------------------------


def docstring_sentences() -> list[str]:
    """List the first sentences of docstrings of the standard library, each once, in the order of modules and names."""
    sentences: dict[str, None] = {}
    for name in MODULES:
        members = inspect.getmembers(import_module(name), callable)
        for _, member in sorted(members, key=lambda pair: pair[0]):
            for documented in (member, *methods(member)):
                sentence = first_sentence(inspect.getdoc(documented) or "")
                if sentence:
                    sentences[sentence] = None
    return list(sentences)


def methods(member: object) -> list[object]:
    """List the functions that a class defines itself, by name; anything else has none."""
    if not inspect.isclass(member):
        return []
    functions = []
    for _, value in sorted(vars(member).items()):
        if inspect.isfunction(value):
            functions.append(value)
    return functions


def first_sentence(docstring: str) -> str:
    """Return the first sentence of a docstring if it has 4 to 25 words, else nothing."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = paragraph.partition(". ")[0].rstrip(".")
    if 4 <= len(sentence.split()) <= 25:
        return sentence
    return ""


def write_far(path: Path) -> None:
    """Write the far queries as lines of JSON, without labels."""
    sentences = docstring_sentences()
    if len(sentences) < FAR:
        sys.exit(f"the standard library gives {len(sentences)} sentences, and {FAR} are needed")
    chosen = np.random.default_rng(0).permutation(len(sentences))[:FAR]
    lines = []
    for index in np.sort(chosen):
        lines.append(json.dumps({"text": sentences[index], "label": None}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- outputs --------------------------------------------------------------------------------------------------------


def extract_far(data: Path, work: Path) -> Outputs:
    """Run the network over the far queries, unless `work` has its outputs."""
    queries = work / "far.jsonl"
    if not queries.exists():
        write_far(queries)
    announce("outputs of the far queries")
    return extract_missing(data, {"far": f"text:{queries}"}, work / "far")["far"]


def extract_passes(data: Path, work: Path) -> Run:
    """Run the network several times with dropout over some test and all near queries, unless `work` has its outputs."""
    folder = data / "text/clinc150"
    sets = {
        "test": f"text:{folder}/test.jsonl.gz?sample={PASS_ROWS}&seed=0",
        "near": f"text:{folder}/oos_test.jsonl.gz",
    }
    announce("passes with dropout")
    return extract_missing(data, sets, work / "passes", passes=PASSES)


def extract_missing(data: Path, sets: Mapping[str, str], folder: Path, **options: int) -> Run:
    """Extract the sets that the run of a folder lacks; the name of a set is also its role."""
    from twofold.nn.extraction import extract_all

    held: Sequence[str] = ()
    if (folder / "run.json").exists():
        held = Run.open(folder).names()
    missing = []
    for name, spec in sets.items():
        if name not in held:
            missing.append((spec, name, name))
    if missing:
        extract_all(f"hf:{data / 'text/minilm_clinc150'}", missing, folder, batch=64, **options)
    return Run.open(folder)


def read_outputs(data: Path, far: Outputs) -> dict[str, Outputs]:
    """Read the stored outputs, and add those of the far queries."""
    stored = np.load(data / FEATURES, allow_pickle=False)
    head = Head(stored["W"], stored["b"])
    sets = {}
    for name, stored_name in (("train", "train"), ("val", "val"), ("test", "test"), ("near", "oos_test")):
        logits = stored[f"{stored_name}_logits"]
        labels = stored[f"{stored_name}_labels"].astype(int)
        features = stored[f"{stored_name}_features"].astype(np.float32)
        sets[name] = Outputs(logits, labels, features=features, head=head)
    sets["far"] = Outputs(far.logits, np.full(len(far), -1), features=np.asarray(far.features), head=head)
    return sets
