"""BREEDS: super-classes cut from a hierarchy over ImageNet's classes, their sub-classes shared between two domains.

The rule of Santurkar, Tsipras, Madry, "BREEDS: Benchmarks for Subpopulation Shift", ICLR 2021, arXiv:2008.04859, with
the random split (the one that FD-Shifts uses). The hierarchy is a folder with ``dataset_class_info.json`` (number, wnid
and name of each class), ``class_hierarchy.txt`` (parent and child a line) and ``node_names.txt`` (wnid, tab, name).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.archives import existing

ROOT = "n00001740"  # "entity" in WordNet 3.0
SEED = 2  # of the published splits


@dataclass(frozen=True)
class Task:
    """Define a BREEDS task by the depth of its super-classes, their number of sub-classes, and where they lie.

    Parameters
    ----------
    level : int
        Depth of the super-classes in the hierarchy: the longest path from the root.
    subclasses : int
        Sub-classes drawn for each super-class, half of them for each domain.
    below : str, optional
        Wnid of the node under which the super-classes lie; by default the root.
    """

    level: int
    subclasses: int
    below: str | None = None


TASKS = {
    "entity13": Task(3, 20),
    "entity30": Task(4, 8),
    "living17": Task(5, 4, "n00004258"),
    "nonliving26": Task(5, 4, "n00021939"),
}
Groups: TypeAlias = dict[str, tuple[str, ...]]  # super-class name: wnids
Domain: TypeAlias = Literal["source", "target"]


def breeds_map(folder: Path, task: str) -> dict[Domain, Groups]:
    """Draw the sub-classes of a BREEDS task, those of the source and those of the target domain.

    Parameters
    ----------
    folder : Path
        The hierarchy: a folder with ``dataset_class_info.json``, ``class_hierarchy.txt`` and ``node_names.txt``.
    task : {"entity13", "entity30", "living17", "nonliving26"}
        Which of the four tasks.

    Returns
    -------
    dict
        ``{"source": {super-class: wnids}, "target": {super-class: wnids}}``, with the same super-classes in both.

    Raises
    ------
    UnknownName
        If there is no such task.
    InvalidInput
        If the hierarchy is missing or cannot be read, has a cycle, or has no super-classes for the task.

    Notes
    -----
    The draw uses the seed and the generator of the published splits (``numpy.random.RandomState(2)``).

    References
    ----------
    Santurkar, Tsipras, Madry, "BREEDS: Benchmarks for Subpopulation Shift", ICLR 2021, arXiv:2008.04859.
    """
    if task not in TASKS:
        raise UnknownName.of("BREEDS task", task, TASKS)
    rule = TASKS[task]
    leaves, edges, names = _hierarchy(folder)
    children = _ancestors_only(leaves, edges)
    depth = _depths(children)
    allowed = None if rule.below is None else _below(children, rule.below)
    nodes = sorted(n for n, d in depth.items() if d == rule.level and (allowed is None or n in allowed))
    rng = np.random.RandomState(SEED)  # the generator of the published draw
    result: dict[Domain, Groups] = {"source": {}, "target": {}}
    half = rule.subclasses // 2
    for node in nodes:
        under = sorted(_below(children, node) & leaves)
        if len(under) < rule.subclasses:
            continue
        drawn = [str(w) for w in rng.choice(under, rule.subclasses, replace=False)]
        name = names.get(node, node)
        result["source"][name] = tuple(drawn[:half])
        result["target"][name] = tuple(drawn[half:])
    if not result["source"]:
        raise InvalidInput(
            f"{folder}: no node at depth {rule.level} has {rule.subclasses} classes below it, as {task} needs"
        )
    return result


def read_map(path: Path, task: str) -> dict[Domain, Groups]:
    """Read the sub-classes of a BREEDS task from a JSON file.

    Parameters
    ----------
    path : Path
        A file with ``{"source": {super-class: [wnid, ...]}, "target": {...}}``, or with such maps by task.
    task : str
        The task to take, where the file holds several.

    Returns
    -------
    dict
        ``{"source": {super-class: wnids}, "target": {super-class: wnids}}``.

    Raises
    ------
    InvalidInput
        If the file is missing, is not JSON, has another structure, repeats a wnid within a domain, or lists other
        super-classes for source and target.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "map.json"
    ...     _ = file.write_text('{"source": {"cat": ["n1"]}, "target": {"cat": ["n2"]}}')
    ...     read_map(file, "entity13")["target"]
    {'cat': ('n2',)}
    """
    try:
        content = json.loads(existing(path, "sub-class map", folder=False).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is no JSON: {error}") from error
    found = content.get(task, content) if isinstance(content, dict) else content
    if not isinstance(found, dict) or set(found) != {"source", "target"}:
        raise InvalidInput(f'{path}: a sub-class map has the keys "source" and "target", or {task!r} with those two')
    source, target = _groups(found["source"], path), _groups(found["target"], path)
    if list(source) != list(target):
        raise InvalidInput(f"{path}: source and target must have the same super-classes in the same order")
    return {"source": source, "target": target}


def _groups(value: Any, path: Path) -> Groups:
    good = isinstance(value, dict) and all(
        isinstance(v, list) and v and all(isinstance(w, str) for w in v) for v in value.values()
    )
    if not good:
        raise InvalidInput(f"{path}: each domain must map super-classes to lists of wnids")
    wnids = [w for v in value.values() for w in v]
    if len(set(wnids)) != len(wnids):
        raise InvalidInput(f"{path}: a wnid is in two super-classes, or twice in one")
    return {str(k): tuple(v) for k, v in value.items()}


def _hierarchy(folder: Path) -> tuple[set[str], list[tuple[str, str]], dict[str, str]]:
    """Read the wnids of the classes, the edges from parent to child, and the names of nodes."""
    existing(folder, "hierarchy folder", folder=True)
    files = [folder / n for n in ("dataset_class_info.json", "class_hierarchy.txt", "node_names.txt")]
    texts = [existing(f, "hierarchy file", folder=False).read_text(encoding="utf-8") for f in files]
    try:
        leaves = {str(row[1]) for row in json.loads(texts[0])}
        edges = [(p, c) for p, c in (line.split() for line in texts[1].splitlines() if line.strip())]
        names = {row[0]: row[1] for row in (line.split("\t") for line in texts[2].splitlines() if line.strip())}
    except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
        raise InvalidInput(f"{folder}: these hierarchy files cannot be read: {error}") from error
    return leaves, edges, names


def _ancestors_only(leaves: set[str], edges: list[tuple[str, str]]) -> dict[str, set[str]]:
    """Collect the children of each node that lies on a path to a class."""
    parents: dict[str, set[str]] = {}
    for parent, child in edges:
        parents.setdefault(child, set()).add(parent)
    children: dict[str, set[str]] = {}
    seen, todo = set(leaves), list(leaves)
    while todo:
        node = todo.pop()
        for parent in parents.get(node, ()):
            children.setdefault(parent, set()).add(node)
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return children


def _depths(children: Mapping[str, set[str]]) -> dict[str, int]:
    """Compute the length of the longest path from the root to each node."""
    if ROOT not in children:
        raise InvalidInput(f"the hierarchy has no classes below its root {ROOT}")
    waiting: dict[str, int] = {}
    reached = _below(children, ROOT) | {ROOT}
    for node in reached:
        for child in children.get(node, ()):
            waiting[child] = waiting.get(child, 0) + 1
    depth, todo = {ROOT: 0}, [ROOT]
    finished = 0
    while todo:  # a node is visited once all its parents have been
        node = todo.pop()
        finished += 1
        for child in children.get(node, ()):
            depth[child] = max(depth.get(child, 0), depth[node] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                todo.append(child)
    if finished != len(reached):
        raise InvalidInput("the hierarchy has a cycle")
    return depth


def _below(children: Mapping[str, set[str]], node: str) -> set[str]:
    """Collect all nodes under a node, itself included."""
    seen, todo = {node}, [node]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in seen:
                seen.add(child)
                todo.append(child)
    return seen
