"""Class lists by the WordNet rules of the unknown-detection benchmark (Kim, Koo, Hwang; arXiv:2112.00337).

You supply the noun files of WordNet 3.x (``data.noun`` and ``index.noun``, format wndb(5WN)); nothing is
downloaded. A wnid is "n" and the eight-digit offset of a synset, so wnids belong to one WordNet version: those of
ImageNet are of 3.0. Parents are hypernyms (``@``) and instance hypernyms (``@i``); a synset may have several.

The paper leaves two things to manual work that no rule replaces: which sense a class name has, and what a short name
stands for. The caller chooses senses (``WordNet.senses`` lists them); the short names known here are ``SHORT``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from twofold import _checks
from twofold.errors import InvalidInput

# what a short name stands for; chimp is the paper's example
SHORT: Mapping[str, tuple[str, ...]] = {
    "bike": ("bicycle", "motorbike"),
    "chimp": ("chimpanzee",),
    "fridge": ("refrigerator",),
    "gym": ("gymnasium",),
    "hippo": ("hippopotamus",),
    "lab": ("laboratory",),
    "limo": ("limousine",),
    "phone": ("telephone",),
    "plane": ("airplane",),
    "rhino": ("rhinoceros",),
    "tee": ("tshirt", "teeshirt"),
    "teeshirt": ("tshirt", "tee"),
    "tshirt": ("tee", "teeshirt"),
    "tv": ("television",),
}
IRREGULAR: Mapping[str, str] = {  # plural: singular
    "children": "child",
    "feet": "foot",
    "geese": "goose",
    "mice": "mouse",
    "oxen": "ox",
    "people": "person",
    "teeth": "tooth",
}
SINGULAR = (
    ("(?<=..)ies$", "y"),
    ("ves$", "f"),
    ("ves$", "fe"),
    ("men$", "man"),
    ("(?<=s|x|z|o)es$|(?<=ch|sh)es$", ""),
    ("(?<=[^siu])s$", ""),
)
PLURAL = (
    ("(?<=[^s])$", "s"),
    ("(?<=s|x|z|o)$|(?<=ch|sh)$", "es"),
    ("(?<=[^aeiou])y$", "ies"),
    ("(?<=[^f])fe?$", "ves"),
    ("man$", "men"),
)
APOSTROPHES = "['\u2019]"
LONGEST_RUN = 4  # words of a class name that are looked up together
WNID = re.compile(r"n\d{8}")
RESTORE = "the file is damaged or cut short, take a fresh copy of WordNet 3.x"


class Synset(NamedTuple):
    """Hold one meaning: its words as WordNet spells them, and the synsets right above and below it.

    Parameters
    ----------
    wnid : str
        "n" and the eight-digit offset.
    words : tuple of str
        Its words.
    parents, children : tuple of str
        Wnids right above and below.
    """

    wnid: str
    words: tuple[str, ...]
    parents: tuple[str, ...]
    children: tuple[str, ...]


class Cut(NamedTuple):
    """Hold what a rule keeps and what it removes.

    Parameters
    ----------
    kept : tuple of str
        The classes kept, in the caller's order.
    removed : dict of str to str
        Why each other class is removed.
    """

    kept: tuple[str, ...]
    removed: dict[str, str]


@dataclass(frozen=True, eq=False)
class WordNet:
    """Hold the nouns of one WordNet.

    Parameters
    ----------
    synsets : mapping of str to Synset
        Synsets by wnid.
    index : mapping of str to tuple of str
        Wnids by word.
    version : str, default=""
        The version that its files name, empty if they name none.
    """

    synsets: Mapping[str, Synset]
    index: Mapping[str, tuple[str, ...]]
    version: str = ""

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read ``data.noun`` and ``index.noun`` and check them against each other.

        Parameters
        ----------
        folder : str or Path
            Folder with both files.

        Returns
        -------
        WordNet
            The nouns.

        Raises
        ------
        InvalidInput
            If a file is missing or damaged, the files disagree, or a synset is its own ancestor.
        """
        data_file = Path(folder) / "data.noun"
        licence, lines = _read_lines(data_file)
        parsed: dict[str, _ParsedSynset] = {}
        for number, line in lines:
            one = _parse_synset(line, f"{data_file}, line {number}")
            if one.wnid in parsed:
                raise InvalidInput(f"{data_file}, line {number}: synset {one.wnid} is listed twice; {RESTORE}")
            parsed[one.wnid] = one
        synsets = _link_children(parsed, data_file)
        _refuse_cycles(synsets, data_file)
        version = re.search(r"WordNet (\d+\.\d+)", licence)
        return cls(synsets, _read_index(Path(folder) / "index.noun", synsets), version[1] if version else "")

    def __len__(self) -> int:
        return len(self.synsets)

    def senses(self, word: str) -> tuple[str, ...]:
        """List all wnids of a word, most frequent sense first.

        Parameters
        ----------
        word : str
            The word; case does not matter, and spaces stand for underscores.

        Returns
        -------
        tuple of str
            Wnids; empty for a word that is not a noun here.
        """
        return self.index.get(word.strip().replace(" ", "_").lower(), ())

    def name(self, wnid: str) -> str:
        """Format a synset for people by its first word and wnid, such as ``hand tool (n03489162)``.

        Parameters
        ----------
        wnid : str
            The synset.

        Returns
        -------
        str
            Word and wnid.
        """
        return f"{self.synsets[wnid].words[0].replace('_', ' ')} ({wnid})"

    def subtree(self, wnids: Iterable[str]) -> frozenset[str]:
        """Collect synsets and all their ancestors.

        Parameters
        ----------
        wnids : iterable of str
            The synsets.

        Returns
        -------
        frozenset of str
            Wnids.

        Raises
        ------
        InvalidInput
            If a wnid is unknown or listed twice.
        """
        waiting = list(self._check_wnids(wnids, "wnids"))
        seen = set(waiting)
        while waiting:
            above = set(self.synsets[waiting.pop()].parents) - seen
            seen |= above
            waiting.extend(above)
        return frozenset(seen)

    def descends(self, wnid: str, ancestor: str) -> bool:
        """Check whether a synset equals another or lies anywhere below it.

        Parameters
        ----------
        wnid : str
            The lower synset.
        ancestor : str
            The upper synset.

        Returns
        -------
        bool
            True if ``wnid`` is ``ancestor`` or descends from it.

        Raises
        ------
        InvalidInput
            If a wnid is unknown.
        """
        self._check_wnids((ancestor,), "ancestor")
        return ancestor in self.subtree((wnid,))

    def external(self, candidates: Iterable[str], id_wnids: Iterable[str]) -> Cut:
        """Keep the candidates that neither are an ID class nor descend from one.

        Parameters
        ----------
        candidates : iterable of str
            Wnids to choose from.
        id_wnids : iterable of str
            Wnids of the ID classes.

        Returns
        -------
        Cut
            Candidates kept, and why the others are removed.

        Raises
        ------
        InvalidInput
            If a wnid is unknown or listed twice.
        """
        id_classes = set(self._check_wnids(id_wnids, "id_wnids"))
        checked = self._check_wnids(candidates, "candidates")
        removed: dict[str, str] = {}
        for wnid in checked:
            above = self.subtree((wnid,)) & id_classes
            if wnid in id_classes:
                removed[wnid] = "is an ID class"
            elif above:
                removed[wnid] = f"descends from the ID class {self.name(min(above))}"
        return Cut(_without(checked, removed), removed)

    def near_candidates(self, pool: Iterable[str], id_wnids: Iterable[str]) -> tuple[str, ...]:
        """List the pool classes, other than ID classes, that are or descend from a direct parent of an ID class.

        Parameters
        ----------
        pool : iterable of str
            Wnids to choose from.
        id_wnids : iterable of str
            Wnids of the ID classes.

        Returns
        -------
        tuple of str
            The candidates in the order of the pool.

        Raises
        ------
        InvalidInput
            If a wnid is unknown or listed twice.
        """
        return tuple(self._near_reasons(pool, id_wnids))

    def external_remainder(self, pool: Iterable[str], id_wnids: Iterable[str], near: Iterable[str]) -> tuple[str, ...]:
        """List the pool without the ID classes and without *all* near candidates, drawn or not.

        Parameters
        ----------
        pool : iterable of str
            Wnids to choose from.
        id_wnids : iterable of str
            Wnids of the ID classes.
        near : iterable of str
            All near candidates.

        Returns
        -------
        tuple of str
            The remaining classes in the order of the pool.

        Raises
        ------
        InvalidInput
            If a wnid is unknown or listed twice.
        """
        taken = {*self._check_wnids(id_wnids, "id_wnids"), *self._check_wnids(near, "near")}
        return _without(self._check_wnids(pool, "pool"), taken)

    def far(self, names: Iterable[str], id_wnids: Iterable[str]) -> Cut:
        """Keep the class names none of whose keywords is a word of the subtree of the ID classes.

        Parameters
        ----------
        names : iterable of str
            Class names of a far set.
        id_wnids : iterable of str
            Wnids of the ID classes.

        Returns
        -------
        Cut
            Names kept, and why the others are removed.

        Raises
        ------
        InvalidInput
            If a wnid is unknown, or a wnid or name is listed twice.

        Notes
        -----
        The paper asks further whether an ID class is at, above, below or beside the matching node. The subtree consists
        of ID classes and their ancestors, so the answer is always yes and any match removes the class.

        The published far lists do not follow from the written rule: the paper kept LSUN's ``bridge``, also a class of
        CIFAR-100, and fewer of the Food, Caltech and Places classes than stay here.
        """
        synset_of: dict[str, str] = {}  # by spelling; the first wnid wins
        for wnid in sorted(self.subtree(self._check_wnids(id_wnids, "id_wnids"))):
            for word in self.synsets[wnid].words:
                synset_of.setdefault(spelling(word), wnid)
        checked = _check_distinct(names, "names")
        removed: dict[str, str] = {}
        for name in checked:
            for keyword in keywords(name):
                if keyword in synset_of:
                    removed[name] = f"{keyword!r} names {self.name(synset_of[keyword])}"
                    break
        return Cut(_without(checked, removed), removed)

    def _near_reasons(self, pool: Iterable[str], id_wnids: Iterable[str]) -> dict[str, str]:
        """Find the near candidates of a pool, and the parent of an ID class that each lies below."""
        id_classes = set(self._check_wnids(id_wnids, "id_wnids"))
        child_of: dict[str, str] = {}  # the first ID class below each parent of one
        for wnid in sorted(id_classes):
            for parent in self.synsets[wnid].parents:
                child_of.setdefault(parent, wnid)
        reasons: dict[str, str] = {}
        for wnid in self._check_wnids(pool, "pool"):
            above = self.subtree((wnid,)) & child_of.keys()
            if above and wnid not in id_classes:
                parent = min(above)
                reasons[wnid] = f"{self.name(parent)}, parent of {self.name(child_of[parent])}"
        return reasons

    def _check_wnids(self, wnids: Iterable[str], name: str) -> tuple[str, ...]:
        """Check that wnids are distinct nouns of this WordNet, and return them in their order."""
        checked = _check_distinct(wnids, name)
        absent = _without(checked, self.synsets)
        if not absent:
            return checked
        if not WNID.fullmatch(absent[0]):
            raise InvalidInput(f'{name} must hold wnids such as "n02437136", got {absent[0]!r}')
        raise InvalidInput(
            f"{name}: {len(absent)} of {len(checked)} wnids are not in this WordNet {self.version}, first {absent[0]}"
            "; wnids belong to one version, those of ImageNet to WordNet 3.0"
        )


@dataclass(frozen=True)
class Built:
    """Hold class lists built by the rules, and the reason for every class that was left out.

    Parameters
    ----------
    wordnet : str
        Version of WordNet.
    id : tuple of str
        Wnids of the ID classes.
    near, external : tuple of str
        Wnids of the near and external classes.
    far : dict of str to tuple of str
        The kept names of each far set.
    removed : dict of str to str
        Why the other classes of the pool are left out.
    far_removed : dict of str to dict of str to str
        Why the other names of each far set are left out.
    near_count : int or None
        Number of near classes asked for.
    seed : int
        Seed of the draw.
    """

    wordnet: str
    id: tuple[str, ...]
    near: tuple[str, ...]
    external: tuple[str, ...]
    far: dict[str, tuple[str, ...]]
    removed: dict[str, str]
    far_removed: dict[str, dict[str, str]]
    near_count: int | None
    seed: int

    def to_json(self) -> str:
        """Format the lists and reasons as JSON.

        Returns
        -------
        str
            JSON; equal inputs result in equal text.
        """
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def build(
    folder: str | Path,
    *,
    id: Iterable[str],  # noqa: A002
    pool: Iterable[str] = (),
    far: Mapping[str, Sequence[str]] | None = None,
    near_count: int | None = 200,
    seed: int = 0,
) -> Built:
    """Apply the rules to a pool of wnids and to sets of far class names.

    Parameters
    ----------
    folder : str or Path
        Folder with ``data.noun`` and ``index.noun``.
    id : iterable of str
        Wnids of the ID classes.
    pool : iterable of str, default=()
        Wnids to take near and external classes from.
    far : mapping of str to sequence of str, optional
        Class names of each far set.
    near_count : int or None, default=200
        Number of near classes to draw; None where the near classes come with the data set. See Notes.
    seed : int, default=0
        Seed of the draw.

    Returns
    -------
    Built
        Class lists and reasons.

    Raises
    ------
    InvalidInput
        If a file is missing or damaged, ``id`` is empty, a wnid is unknown or listed twice, ``far`` is not a mapping,
        or there are fewer candidates than ``near_count``.

    Notes
    -----
    With ``near_count``, as for ImageNet: near = that many of the near candidates drawn at random, external = the pool
    without ID classes and candidates, and far names are compared with the subtree of ID and pool together. With
    ``near_count=None``, as for CIFAR: pass all CIFAR-100 classes as ``id``; external = the pool without same or
    descending classes, and far names are compared with the ID subtree.

    The draw depends on the seed and the set of candidates, not on their order; the paper's own draw is not published.
    """
    net = WordNet.read(folder)
    id_classes = net._check_wnids(id, "id")
    wide = net._check_wnids(pool, "pool")
    if not id_classes:
        raise InvalidInput("id is empty; give the wnids of the ID classes")
    if far is not None and not isinstance(far, Mapping):
        raise InvalidInput(f"far must map names of far sets to lists of class names, got {type(far).__name__}")
    near: tuple[str, ...] = ()
    if near_count is None:
        external, removed = net.external(wide, id_classes)
        compared = id_classes
    else:
        reasons = net._near_reasons(wide, id_classes)
        near = _draw(tuple(reasons), near_count, seed)
        external = net.external_remainder(wide, id_classes, reasons)
        known = set(id_classes)
        removed = {}
        for wnid in wide:
            if wnid in known:
                removed[wnid] = "is an ID class"
        for wnid in _without(reasons, near):
            removed[wnid] = f"is a near candidate (below {reasons[wnid]}) that was not drawn"
        compared = tuple(dict.fromkeys(id_classes + wide))
    far_kept: dict[str, tuple[str, ...]] = {}
    far_removed: dict[str, dict[str, str]] = {}
    for name, classes in (far or {}).items():
        far_kept[name], far_removed[name] = net.far(classes, compared)
    return Built(
        wordnet=net.version,
        id=id_classes,
        near=near,
        external=external,
        far=far_kept,
        removed=removed,
        far_removed=far_removed,
        near_count=near_count,
        seed=seed,
    )


def keywords(name: str) -> tuple[str, ...]:
    """List the spellings under which a class name is looked up.

    The whole name comes first, then runs of up to four words, longest first.

    Parameters
    ----------
    name : str
        The class name.

    Returns
    -------
    tuple of str
        Spellings to compare with the :func:`spelling` of a WordNet word.

    Raises
    ------
    InvalidInput
        If the name has no letter or digit.

    Notes
    -----
    Every word is also listed in singular and plural. Runs are joined, which covers spacing and hyphens, and with the
    plural of an inner word an apostrophe too (``child room`` yields ``childsroom``). Short names are written out.
    Single letters and numbers are not words of their own.

    Examples
    --------
    >>> keywords("cup cakes")
    ('cupcakes', 'cupcake', 'cupscakes', 'cupscake', 'cup', 'cups', 'cakes', 'cake')
    >>> {"tshirt", "tee", "shirt"} <= set(keywords("T-shirt"))
    True
    """
    whole = spelling(name)
    if not whole:
        raise InvalidInput(f"a class name must hold letters or digits, got {name!r}")
    words = re.findall(r"[^\W_]+", re.sub(APOSTROPHES, "", name.lower()))
    found = {whole: None}
    for length in range(min(len(words), LONGEST_RUN), 0, -1):
        for start in range(len(words) - length + 1):
            run = words[start : start + length]
            if length == 1 and _has_no_plural(run[0]):
                continue
            joined = ["".join(forms) for forms in product(*map(_singular_and_plural, run))]
            found |= dict.fromkeys(joined)
            for short in joined:
                for written_out in SHORT.get(short, ()):
                    found |= dict.fromkeys(_singular_and_plural(written_out))
    return tuple(found)


def spelling(word: str) -> str:
    """Reduce a word to lower-case letters and digits, so that joined, hyphenated and split spellings are one.

    Parameters
    ----------
    word : str
        The word.

    Returns
    -------
    str
        The spelling.

    Examples
    --------
    >>> spelling("T-shirt"), spelling("hot_dog"), spelling("butcher's shop")
    ('tshirt', 'hotdog', 'butchersshop')
    """
    return re.sub(r"[\W_]+", "", word.lower())


def _has_no_plural(word: str) -> bool:
    return len(word) == 1 or word.isdigit()


def _singular_and_plural(word: str) -> tuple[str, ...]:
    """List the word, its possible singulars and its plurals; the rules overshoot, and a non-word matches nothing."""
    if _has_no_plural(word):
        return (word,)
    singulars = _apply_endings(word, SINGULAR)
    if word in IRREGULAR:
        singulars.append(IRREGULAR[word])
    plurals: list[str] = []
    for singular in singulars or [word]:
        plurals += _apply_endings(singular, PLURAL)
    for plural, singular in IRREGULAR.items():
        if singular in (word, *singulars):
            plurals.append(plural)
    return tuple(dict.fromkeys((word, *singulars, *plurals)))


def _apply_endings(word: str, endings: Iterable[tuple[str, str]]) -> list[str]:
    """Replace the ending of a word by every rule that fits it."""
    return [re.sub(old, new, word) for old, new in endings if re.search(old, word)]


def _without(values: Iterable[str], removed: Container[str]) -> tuple[str, ...]:
    return tuple(value for value in values if value not in removed)


def _draw(candidates: Sequence[str], count: int, seed: int) -> tuple[str, ...]:
    count = _checks.whole(count, "near_count", 0)
    if count > len(candidates):
        raise InvalidInput(
            f"near_count is {count}, but the pool has {len(candidates)} near candidates; ask for fewer, "
            "widen the pool, or pass near_count=None for no near set"
        )
    chosen = np.random.default_rng(_checks.whole(seed, "seed", 0)).choice(len(candidates), count, replace=False)
    ordered = sorted(candidates)
    return tuple(ordered[i] for i in sorted(chosen.tolist()))


def _check_distinct(values: Iterable[str], name: str) -> tuple[str, ...]:
    """Check that the values are distinct strings, and return them as a tuple."""
    if isinstance(values, str):
        raise InvalidInput(f"{name} must be a list of strings, got the single string {values!r}")
    checked: dict[str, None] = {}
    for value in values:
        if not isinstance(value, str):
            raise InvalidInput(f"{name} must hold strings, got {value!r}")
        if value in checked:
            raise InvalidInput(f"{name} holds {value!r} twice; give each class once")
        checked[value] = None
    return tuple(checked)


def _read_lines(path: Path) -> tuple[str, list[tuple[int, str]]]:
    """Read the licence, whose lines begin with a space, and the numbered lines that hold data."""
    try:
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise InvalidInput(
            f"{path} cannot be read ({error.strerror}); give the folder of WordNet 3.x that holds data.noun and "
            "index.noun (wordnet.princeton.edu, or the wordnet-base package of a Linux distribution)"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not text (byte {error.start}); {RESTORE}") from error
    lines = text.split("\n")
    if lines[-1]:
        raise InvalidInput(f"{path} ends inside line {len(lines)}; {RESTORE}")
    licence: list[str] = []
    data: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if line.startswith(" "):
            licence.append(line)
        elif line:
            data.append((number, line))
    if not data:
        raise InvalidInput(f"{path} holds no synset; {RESTORE}")
    return "\n".join(licence), data


class _ParsedSynset(NamedTuple):
    wnid: str
    words: tuple[str, ...]
    parents: tuple[str, ...]


def _parse_synset(line: str, where: str) -> _ParsedSynset:
    """Parse the wnid, words and parents of one line of data.noun.

    The format: offset lex_filenum ss_type w_cnt (word lex_id)* p_cnt (symbol offset pos source)* | gloss. The number of
    words is hexadecimal, that of pointers decimal.
    """
    fields = line.partition(" | ")[0].split()
    parents: dict[str, None] = {}
    try:
        wnid = "n" + fields[0]
        kind = fields[2]
        word_count = int(fields[3], 16)
        words = tuple(fields[4 : 4 + 2 * word_count : 2])
        pointers = fields[4 + 2 * word_count :]
        complete = len(words) == word_count > 0 and len(pointers) == 1 + 4 * int(pointers[0])
        for start in range(1, len(pointers), 4):
            symbol, offset, part_of_speech, _ = pointers[start : start + 4]
            if symbol in ("@", "@i") and part_of_speech == "n":
                parents["n" + offset] = None
    except (IndexError, ValueError):
        complete = False
    if not complete or kind != "n" or not all(map(WNID.fullmatch, (wnid, *parents))):
        raise InvalidInput(f"{where} is not a noun synset of the wndb format: {line[:60]!r}; {RESTORE}")
    return _ParsedSynset(wnid, words, tuple(parents))


def _link_children(parsed: Mapping[str, _ParsedSynset], path: Path) -> dict[str, Synset]:
    """Make synsets that know their children, too."""
    children: dict[str, list[str]] = {wnid: [] for wnid in parsed}
    for one in parsed.values():
        for parent in one.parents:
            if parent not in children:
                raise InvalidInput(f"{path}: {one.wnid} is below {parent}, which is missing; {RESTORE}")
            children[parent].append(one.wnid)
    synsets = {}
    for one in parsed.values():
        synsets[one.wnid] = Synset(one.wnid, one.words, one.parents, tuple(children[one.wnid]))
    return synsets


def _read_index(path: Path, synsets: Mapping[str, Synset]) -> dict[str, tuple[str, ...]]:
    """Parse the wnids of each lower-case word: lemma pos synset_cnt p_cnt symbol* sense_cnt tagsense_cnt offset*."""
    index: dict[str, tuple[str, ...]] = {}
    indexed: set[str] = set()
    _, lines = _read_lines(path)
    for number, line in lines:
        fields = line.split()
        try:
            count = int(fields[2])
            wnids = tuple("n" + offset for offset in fields[6 + int(fields[3]) :])
        except (IndexError, ValueError):
            count, wnids = -1, ()
        if count < 1 or len(wnids) != count or fields[1] != "n":
            raise InvalidInput(f"{path}, line {number} is not a noun of the wndb format: {line[:60]!r}; {RESTORE}")
        for wnid in wnids:
            if wnid not in synsets:
                sense = f"{fields[0]!r} has sense {wnid}"
                raise InvalidInput(f"{path}, line {number}: {sense}, not in data.noun; {RESTORE}")
        index[fields[0]] = wnids
        indexed.update(wnids)
    if len(indexed) < len(synsets):
        missing = min(synsets.keys() - indexed)
        raise InvalidInput(
            f"{path} lacks {len(synsets) - len(indexed)} synsets of data.noun, first {missing}; {RESTORE}"
        )
    return index


def _refuse_cycles(synsets: Mapping[str, Synset], path: Path) -> None:
    """Remove synsets whose parents are all removed until none is left; what remains is on or below a cycle."""
    parents_left = {wnid: len(synset.parents) for wnid, synset in synsets.items()}
    free = [wnid for wnid, count in parents_left.items() if not count]
    for wnid in free:
        for child in synsets[wnid].children:
            parents_left[child] -= 1
            if not parents_left[child]:
                free.append(child)
    if len(free) == len(synsets):
        return
    stuck = synsets.keys() - set(free)
    at = min(stuck)
    seen: set[str] = set()
    while at not in seen:  # walk up until a synset comes again: that one is on the cycle
        seen.add(at)
        at = min(set(synsets[at].parents) & stuck)
    raise InvalidInput(f"{path}: {at} ({synsets[at].words[0]}) is its own ancestor; {RESTORE}")
