"""Groups of unknown data sets by distance, from embeddings to a file that benchmarks take as roles.

:mod:`twofold.bench.strata` has the distances and the division; here they are joined with the data sets of a benchmark:
measure, save, load, and replace the roles of the benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from twofold import _checks
from twofold._files import read_regular, replacing
from twofold._json import check_list, check_table, check_text, decode_json, encode_json
from twofold.bench.catalogue import Benchmark
from twofold.bench.results import Results
from twofold.bench.rows import ResultRow
from twofold.bench.strata import Distances, distances, strata
from twofold.errors import InvalidInput, RunError, UnknownName
from twofold.roles import OOD_TEST
from twofold.typing import ArrayLike

FORMAT, VERSION = "twofold-strata", 1
AGAIN = "write it again with `twofold bench strata`"
METRICS = {
    "mmd": "mmd_distance",
    "frechet": "frechet_distance",
    "text": "text_distance",
    "centroid": "centroid_distance",
}
"""How rows of results call the measures of :mod:`twofold.bench.strata`."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Hold the distances of data sets from a training set, and the groups of the unknown ones.

    Parameters
    ----------
    embeddings : str
        What the distances were measured on, in words.
    train : str
        The training set.
    known : Distances or None
        The row of the known test set, which is in no group; None where it was not measured.
    unknown : Distances
        A row for each unknown set.
    groups : mapping from str to tuple of str
        Names of the unknown sets in near, mid and far.
    """

    embeddings: str
    train: str
    known: Distances | None
    unknown: Distances
    groups: Mapping[str, tuple[str, ...]]

    @classmethod
    def measure(
        cls,
        embeddings: str,
        train: tuple[str, ArrayLike, ArrayLike],
        sets: Mapping[str, ArrayLike],
        *,
        test: tuple[str, ArrayLike] | None = None,
        text: ArrayLike | None = None,
    ) -> Grouping:
        """Measure the distances of data sets from a training set, and divide the unknown ones.

        Parameters
        ----------
        embeddings : str
            What the arrays are, in words.
        train : tuple of str, array-like of shape (n_train, n_columns) and array-like of shape (n_train,)
            Name, embeddings and labels of the training set.
        sets : mapping from str to array-like of shape (n_rows, n_columns)
            Embeddings of at least three unknown sets.
        test : tuple of str and array-like of shape (n_rows, n_columns), optional
            Name and embeddings of the known test set.
        text : array-like of shape (n_classes, n_columns), optional
            Embeddings of class texts.

        Returns
        -------
        Grouping
            Distances and groups.

        Raises
        ------
        InvalidInput
            If there are fewer than three unknown sets, or arrays do not fit together.

        Examples
        --------
        >>> train = ("train", [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], [0, 0, 1, 1])
        >>> sets = {"b": [[-1, -1], [-1, -0.8]], "a": [[1, 1], [1, 0.8]], "c": [[-1, 1], [-0.8, 1]]}
        >>> found = Grouping.measure("plane", train, sets, test=("test", [[1.0, 0.1], [0.1, 1.0]]))
        >>> found.groups
        {'near': ('a',), 'mid': ('c',), 'far': ('b',)}
        >>> round(float(found.known.values[0, 2]), 4)
        0.0443
        """
        name, rows, labels = train
        measured = dict(sets)
        if test is not None:
            measured = {test[0]: test[1], **measured}
        table = distances(rows, labels, measured, text=text)
        if test is None:
            return cls(embeddings, name, None, table, strata(table).groups)
        known = Distances(table.sets[:1], table.measures, table.values[:1])
        unknown = Distances(table.sets[1:], table.measures, table.values[1:])
        return cls(embeddings, name, known, unknown, strata(unknown).groups)

    @property
    def roles(self) -> dict[str, str]:
        """The group of each unknown set.

        Returns
        -------
        dict from str to str
            ``"near"``, ``"mid"`` or ``"far"`` by name.
        """
        found = {}
        for group, members in self.groups.items():
            for name in members:
                found[name] = group
        return found

    def lines(self) -> list[tuple[str, str, dict[str, float]]]:
        """List the data sets as the appendix of the study does: the known test set, then by group.

        Returns
        -------
        list of (str, str, dict)
            Name, group (``"ID"`` for the known test set) and distance by measure.
        """
        found = []
        if self.known is not None:
            for name, row in self.known.to_dict().items():
                found.append((name, "ID", row))
        table = self.unknown.to_dict()
        for group, members in self.groups.items():
            for name in members:
                found.append((name, group, table[name]))
        return found

    def regroup(self, benchmark: Benchmark) -> Benchmark:
        """Replace the roles of the unknown sets of a benchmark by these groups.

        Parameters
        ----------
        benchmark : Benchmark
            A benchmark with near, mid or far sets.

        Returns
        -------
        Benchmark
            The benchmark under its own name, with other roles.

        Raises
        ------
        InvalidInput
            If an unknown set of the benchmark is in no group.
        """
        roles = self.roles
        sets = []
        for one in benchmark.sets:
            if one.role in OOD_TEST:
                if one.name not in roles:
                    raise InvalidInput(
                        f"{one.name} of {benchmark.name} is in no group; groups were made of {', '.join(roles)}; "
                        "embed all unknown sets and group them again"
                    )
                one = replace(one, role=roles[one.name])
            sets.append(one)
        return replace(benchmark, sets=tuple(sets))

    def to_rows(self, benchmark: str) -> list[ResultRow]:
        """Convert the distances to rows of results.

        Parameters
        ----------
        benchmark : str
            Name of the benchmark of the rows.

        Returns
        -------
        list of dict
            A row for each data set and measure; the role is the group, or ``"iid"``.
        """
        rows = []
        for name, group, table in self.lines():
            role = "iid" if group == "ID" else group
            for measure, value in table.items():
                rows.append(
                    {
                        "benchmark": benchmark,
                        "model": self.embeddings,
                        "shift": name,
                        "role": role,
                        "metric": METRICS[measure],
                        "value": value,
                    }
                )
        return list(Results.of(rows).to_dicts())

    def to_dict(self) -> dict[str, object]:
        """Convert to plain values for JSON.

        Returns
        -------
        dict
            Embeddings, training set, distances and groups.
        """
        known = None
        if self.known is not None:
            known = self.known.to_dict()
        groups = {group: list(members) for group, members in self.groups.items()}
        return {
            "embeddings": self.embeddings,
            "train": self.train,
            "known": known,
            "distances": self.unknown.to_dict(),
            "groups": groups,
        }

    def save(self, path: str | Path) -> None:
        """Write the groups to a file, which :meth:`load` reads.

        Parameters
        ----------
        path : str or Path
            The file; one that exists is replaced.
        """
        content = {"format": FORMAT, "version": VERSION, **self.to_dict()}
        with replacing(Path(path)) as file:
            file.write(encode_json(content))

    @classmethod
    def load(cls, path: str | Path) -> Grouping:
        """Read groups from a file.

        Parameters
        ----------
        path : str or Path
            A file that :meth:`save` wrote.

        Returns
        -------
        Grouping
            Distances and groups.

        Raises
        ------
        RunError
            If the file cannot be read, is damaged, or is not one of groups.
        """
        path = Path(path)
        raw = read_regular(path)
        content = decode_json(raw, path, kind="a file of groups", form=FORMAT, version=VERSION, again=AGAIN)
        try:
            return cls._from_content(content)
        except (InvalidInput, UnknownName, TypeError, ValueError) as error:
            raise RunError(f"{path} is not a file of groups: {error}; {AGAIN}") from error

    @classmethod
    def _from_content(cls, content: Mapping[str, object]) -> Grouping:
        known = None
        if content.get("known") is not None:
            known = _check_distances(content["known"], "known")
        unknown = _check_distances(content.get("distances"), "distances")
        groups = {}
        for group, members in check_table(content.get("groups"), "groups").items():
            _checks.choice(group, "groups", OOD_TEST)
            groups[group] = tuple(check_text(name, f"groups of {group}") for name in check_list(members, group))
        grouping = cls(
            embeddings=check_text(content.get("embeddings"), "embeddings"),
            train=check_text(content.get("train"), "train"),
            known=known,
            unknown=unknown,
            groups=groups,
        )
        if sorted(grouping.roles) != sorted(unknown.sets):
            raise InvalidInput("groups must have each data set of distances once")
        return grouping


def _check_distances(content: object, where: str) -> Distances:
    """Check a table of distances that comes from a file."""
    table: dict[str, dict[str, float]] = {}
    for name, row in check_table(content, where).items():
        table[name] = {}
        for measure, value in check_table(row, f"{where} of {name}").items():
            _checks.choice(measure, f"{where} of {name}", METRICS)
            if not isinstance(value, float | int):
                raise InvalidInput(f"{where} of {name}: {measure} must be a number, got {value!r}")
            table[name][measure] = float(value)
    return Distances.of(table)
