"""Image files on disk: which files are images, which of a folder, and image lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import isfile
from pathlib import Path

from twofold.errors import InvalidInput

IMAGE_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".ppm", ".pgm", ".pbm", ".pnm", ".tif", ".tiff"}
)


def check_equal_counts(counts: Mapping[str, int], what: str) -> None:
    """Raise an error that lists the counts unless all parts of a data set hold equally many images.

    Parameters
    ----------
    counts : mapping of str to int
        Number of images of each part, by name.
    what : str
        What the parts are, for the error message.

    Raises
    ------
    InvalidInput
        If the counts differ.

    Examples
    --------
    >>> check_equal_counts({"a": 2, "b": 3}, "the batches")
    Traceback (most recent call last):
        ...
    twofold.errors.InvalidInput: the batches must have equally many images, got a: 2, b: 3
    """
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise InvalidInput(f"{what} must have equally many images, got {listed}")


def check_path(path: Path, what: str, *, folder: bool | None = None) -> Path:
    """Return a path, or raise an error that says what is missing there.

    Parameters
    ----------
    path : Path
        The path to look at.
    what : str
        What should be there, for the error message, such as ``"image list"``.
    folder : bool, optional
        True if it must be a folder, False if it must be a file; by default either is accepted.

    Returns
    -------
    Path
        ``path`` itself.

    Raises
    ------
    InvalidInput
        If nothing is there, or a file where a folder must be, or a folder where a file must be.

    Examples
    --------
    >>> check_path(Path("."), "folder", folder=True) == Path(".")
    True
    """
    if not path.exists():
        raise InvalidInput(f"{path}: there is no such {what}")
    if folder is True and not path.is_dir():
        raise InvalidInput(f"{path} is a file; {what} must be a folder")
    if folder is False and path.is_dir():
        raise InvalidInput(f"{path} is a folder; {what} must be a file")
    return path


def check_files_exist(paths: Sequence[Path], where: str) -> None:
    """Raise unless every path is a file.

    Parameters
    ----------
    paths : sequence of Path
        The image files.
    where : str
        The list that names them, for the error message.

    Raises
    ------
    InvalidInput
        If files are missing; the message counts them and names the first.

    Examples
    --------
    >>> check_files_exist([], "val.txt")
    """
    missing = [path for path in paths if not isfile(path)]
    if missing:
        raise InvalidInput(f"{where}: {len(missing)} of {len(paths)} images are missing, the first is {missing[0]}")


def is_image_file(path: Path) -> bool:
    """Check whether a path is a file with the suffix of an image; names that begin with a dot are not.

    Parameters
    ----------
    path : Path
        The path.

    Returns
    -------
    bool
        Whether it is an image file.

    Examples
    --------
    >>> is_image_file(Path("gone.png"))
    False
    """
    return path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()


def list_image_files(folder: Path) -> list[Path]:
    """List the image files of a folder and its subfolders, in the order of their paths.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    list of Path
        The files; those whose name begins with a dot are left out.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.png").write_bytes(b"")
    ...     [path.name for path in list_image_files(Path(folder))]
    ['a.png']
    """
    files = [path for path in folder.rglob("*") if is_image_file(path)]
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


def read_image_list(file: Path) -> tuple[list[str], list[int]]:
    """Read the paths and labels of an OpenOOD image list.

    Parameters
    ----------
    file : Path
        A text file with a relative path, a space or tab, and a label of at least -1 on each line; empty lines are
        skipped.

    Returns
    -------
    names : list of str
        The paths as written.
    labels : list of int
        Their labels.

    Raises
    ------
    InvalidInput
        If the file is missing or not text, a line has another form, or the list is empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "val.txt"
    ...     _ = file.write_text("birds/a.png 3" + chr(10) + "cats/b.png -1")
    ...     read_image_list(file)
    (['birds/a.png', 'cats/b.png'], [3, -1])
    """
    check_path(file, "image list", folder=False)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file} is not a text file: {error}") from error
    names, labels = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().replace("\t", " ").rpartition(" ")
        if not name or not label.removeprefix("-").isdecimal() or int(label) < -1:
            raise InvalidInput(
                f"{file}, line {number}: must be a path, a space and a label of at least -1, got {line!r}"
            )
        names.append(name.strip())
        labels.append(int(label))
    if not names:
        raise InvalidInput(f"{file} lists no images")
    return names, labels
