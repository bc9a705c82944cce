"""BREEDS: super-classes cut from a hierarchy over ImageNet's classes, their sub-classes shared between two domains.

The rule of Santurkar, Tsipras, Madry, "BREEDS: Benchmarks for Subpopulation Shift", ICLR 2021, arXiv:2008.04859, with
the random split (the one that FD-Shifts uses). The hierarchy is a folder with ``dataset_class_info.json`` (number, wnid
and name of each class), ``class_hierarchy.txt`` (parent and child a line) and ``node_names.txt`` (wnid, tab, name).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from twofold.errors import InvalidInput, UnknownName
from twofold.nn.data.image_files import check_path

ROOT = "n00001740"  # "entity" in WordNet 3.0
SEED = 2  # of the published splits


@dataclass(frozen=True)
class BreedsTask:
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
    "entity13": BreedsTask(3, 20),
    "entity30": BreedsTask(4, 8),
    "living17": BreedsTask(5, 4, "n00004258"),
    "nonliving26": BreedsTask(5, 4, "n00021939"),
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
    hierarchy = _read_hierarchy(folder)
    children = _find_children(hierarchy)
    _check_acyclic(children, folder)
    depths = _measure_depths(children)
    allowed = _find_below(children, rule.below or ROOT)
    nodes = sorted(node for node in allowed if depths.get(node) == rule.level)
    rng = np.random.RandomState(SEED)  # the generator of the published draw
    result: dict[Domain, Groups] = {"source": {}, "target": {}}
    half = rule.subclasses // 2
    for node in nodes:
        candidates = sorted(_find_below(children, node) & hierarchy.leaves)
        if len(candidates) < rule.subclasses:
            continue
        drawn = rng.choice(candidates, rule.subclasses, replace=False).tolist()
        name = hierarchy.names.get(node, node)
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
        content = json.loads(check_path(path, "sub-class map", folder=False).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise InvalidInput(f"{path} is not a sub-class map: its JSON is nested too deeply") from error
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON: {error}") from error
    found = content.get(task, content) if isinstance(content, dict) else content
    if not isinstance(found, dict) or set(found) != {"source", "target"}:
        raise InvalidInput(f'{path}: a sub-class map has the keys "source" and "target", or {task!r} with those two')
    source = _check_groups(found["source"], path)
    target = _check_groups(found["target"], path)
    if list(source) != list(target):
        raise InvalidInput(f"{path}: source and target must have the same super-classes in the same order")
    return {"source": source, "target": target}


def _check_groups(domain: object, path: Path) -> Groups:
    """Check the sub-classes of one domain: lists of wnids by super-class, none of them twice."""
    wrong = InvalidInput(f"{path}: each domain must map super-classes to lists of wnids")
    if not isinstance(domain, dict):
        raise wrong
    groups: Groups = {}
    seen: set[str] = set()
    for name, wnids in domain.items():
        if not isinstance(wnids, list) or not wnids:
            raise wrong
        for wnid in wnids:
            if not isinstance(wnid, str):
                raise wrong
            if wnid in seen:
                raise InvalidInput(f"{path}: a wnid is in two super-classes, or twice in one")
            seen.add(wnid)
        groups[str(name)] = tuple(wnids)
    return groups


@dataclass(frozen=True)
class _Hierarchy:
    """Hold a hierarchy as its files have it."""

    leaves: set[str]  # wnids of the classes
    edges: list[tuple[str, str]]  # parent and child
    names: dict[str, str]  # of nodes, by wnid


def _read_hierarchy(folder: Path) -> _Hierarchy:
    check_path(folder, "hierarchy folder", folder=True)
    class_info = _read_text(folder / "dataset_class_info.json")
    edge_lines = _read_text(folder / "class_hierarchy.txt").splitlines()
    name_lines = _read_text(folder / "node_names.txt").splitlines()
    edges, names = [], {}
    try:
        leaves = {str(row[1]) for row in json.loads(class_info)}
        for line in edge_lines:
            if line.strip():
                parent, child = line.split()
                edges.append((parent, child))
        for line in name_lines:
            if line.strip():
                fields = line.split("\t")
                names[fields[0]] = fields[1]
    except RecursionError as error:
        raise InvalidInput(f"{folder}: dataset_class_info.json is nested too deeply") from error
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise InvalidInput(f"{folder}: these hierarchy files cannot be read: {error}") from error
    return _Hierarchy(leaves, edges, names)


def _read_text(file: Path) -> str:
    return check_path(file, "hierarchy file", folder=False).read_text(encoding="utf-8")


def _find_children(hierarchy: _Hierarchy) -> dict[str, set[str]]:
    """Collect the children of each node that lies on a path to a class."""
    parents: dict[str, set[str]] = {}
    for parent, child in hierarchy.edges:
        parents.setdefault(child, set()).add(parent)
    children: dict[str, set[str]] = {}
    seen = set(hierarchy.leaves)
    todo = list(hierarchy.leaves)
    while todo:
        node = todo.pop()
        for parent in parents.get(node, ()):
            children.setdefault(parent, set()).add(node)
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return children


def _check_acyclic(children: Mapping[str, set[str]], folder: Path) -> None:
    """Refuse a hierarchy in which a node lies below itself."""
    try:
        TopologicalSorter(children).prepare()
    except CycleError as error:
        parent, child = error.args[1][1], error.args[1][0]  # the sorter lists a cycle from child to parent
        raise InvalidInput(
            f"{folder}: the hierarchy has a cycle through {parent} and its child {child}; correct class_hierarchy.txt"
        ) from error


def _measure_depths(children: Mapping[str, set[str]]) -> dict[str, int]:
    """Compute the length of the longest path from the root to each node."""
    if ROOT not in children:
        raise InvalidInput(f"the hierarchy has no classes below its root {ROOT}")
    waiting: dict[str, int] = {}  # parents of a node that are still to be visited
    reached = _find_below(children, ROOT) | {ROOT}
    for node in reached:
        for child in children.get(node, ()):
            waiting[child] = waiting.get(child, 0) + 1
    depth = {ROOT: 0}
    todo = [ROOT]
    while todo:  # a node is visited once all its parents have been
        node = todo.pop()
        for child in children.get(node, ()):
            depth[child] = max(depth.get(child, 0), depth[node] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                todo.append(child)
    return depth


def _find_below(children: Mapping[str, set[str]], node: str) -> set[str]:
    """Collect all nodes under a node, itself included."""
    seen = {node}
    todo = [node]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in seen:
                seen.add(child)
                todo.append(child)
    return seen
