"""What a training folder says about the input of its network: size, normalisation and classes, used unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from twofold._checks import number, whole
from twofold._json import check_list, check_table
from twofold.errors import InvalidInput, RunError
from twofold.nn.data.images import Images
from twofold.nn.data.views import STATISTICS
from twofold.nn.extraction.prepare import ImageInput, Prepare
from twofold.nn.models.description import MODEL_FILE, ModelDescription, read_description
from twofold.nn.rows import ImageRows
from twofold.roles import OOD

ATTRIBUTE = "trained_input"  # where a network carries it
KEYS = ("resize", "crop", "mean", "std", "size")


@dataclass(frozen=True)
class TrainedInput:
    """Say what a network was trained on.

    Parameters
    ----------
    image_input : ImageInput
        How images became its input.
    size : tuple of int, optional
        Height and width of that input, where it is known.
    class_names : tuple of str, optional
        Names of the classes, in the order of the outputs.
    source : str, default="the training"
        Where this is written, for error messages.

    Examples
    --------
    >>> TrainedInput(ImageInput(crop=224), (224, 224)).to_mapping()["crop"]
    224
    """

    image_input: ImageInput
    size: tuple[int, int] | None = None
    class_names: tuple[str, ...] | None = None
    source: str = "the training"

    def to_mapping(self) -> dict[str, object]:
        """Return what ``model.json`` holds under ``input``.

        Returns
        -------
        dict
            ``resize``, ``crop``, ``mean``, ``std`` and ``size``.
        """
        return {
            "resize": self.image_input.resize_side,
            "crop": self.image_input.side,
            "mean": list(self.image_input.prepare.mean),
            "std": list(self.image_input.prepare.std),
            "size": None if self.size is None else list(self.size),
        }

    @classmethod
    def of(cls, description: ModelDescription, source: str) -> TrainedInput | None:
        """Read what ``model.json`` says.

        Parameters
        ----------
        description : ModelDescription
            Content of the file.
        source : str
            Its path, for error messages.

        Returns
        -------
        TrainedInput or None
            The input; None if the file does not say it.

        Raises
        ------
        RunError
            If a value has the wrong type or range.
        """
        if description.input is None:
            return None
        try:
            content = check_table(description.input, "input", KEYS)
            prepare = Prepare(_check_channels(content["mean"], "mean"), _check_channels(content["std"], "std"))
            if min(prepare.std) <= 0:
                raise InvalidInput("std must be above 0")
            size = None
            if content["size"] is not None:
                height, width = check_list(content["size"], "size")
                size = (whole(height, "size", 1), whole(width, "size", 1))
            image_input = ImageInput(_optional(content["resize"]), _optional(content["crop"]), prepare)
        except (ValueError, TypeError) as error:  # InvalidInput is a ValueError
            raise RunError(f"{source} does not describe the input of a network: {error}") from error
        return cls(image_input, size, description.class_names, source)

    def check_normalisation(self, given: Prepare | None) -> None:
        """Raise if images are to be normalised otherwise than in training.

        Parameters
        ----------
        given : Prepare or None
            What the caller asks for; None agrees.

        Raises
        ------
        InvalidInput
            If the two differ.
        """
        own = self.image_input.prepare
        if given is not None and (tuple(given.mean), tuple(given.std)) != (tuple(own.mean), tuple(own.std)):
            raise InvalidInput(
                f"the normalisation {name_statistics(given)} is not that of the training, {name_statistics(own)} "
                f"({self.source}); leave normalise and prepare out to use the latter"
            )

    def check_size(self, resize: int | None, crop: int | None) -> None:
        """Raise if images are to be sized otherwise than in training.

        Parameters
        ----------
        resize, crop : int or None
            What the caller asks for; None agrees.

        Raises
        ------
        InvalidInput
            If one of them differs.
        """
        own = self.image_input
        for name, given, trained in (("resize", resize, own.resize_side), ("crop", crop, own.side)):
            if given is not None and given != trained:
                raise InvalidInput(
                    f"{name}={given} is not that of the training, {trained} ({self.source}); "
                    f"leave {name} out to use the latter"
                )

    def fit(self, images: ImageRows, role: str) -> ImageRows:
        """Bring a data set to the size of the training, and check that it fits.

        Parameters
        ----------
        images : ImageRows
            The data set.
        role : str
            What it is for. The classes of in-distribution sets must be those of the training, in the same order.

        Returns
        -------
        ImageRows
            A view of it.

        Raises
        ------
        InvalidInput
            If the images have another size, or the classes another order.
        """
        fitted = self.image_input.fit(images)
        if role not in OOD:
            self._check_classes(images)
        if self.size is not None and isinstance(fitted, Images) and fitted.shape != self.size:
            (height, width), (trained_height, trained_width) = fitted.shape, self.size
            raise InvalidInput(
                f"{images.name} is {height}x{width} but the network was trained on {trained_height}x{trained_width} "
                f"({self.source}); open the data set with ?size={min(self.size)}"
            )
        return fitted

    def _check_classes(self, images: ImageRows) -> None:
        names = images.class_names
        if names is None or self.class_names is None or tuple(names) == self.class_names:
            return
        if len(names) != len(self.class_names):
            raise InvalidInput(
                f"{images.name} has {len(names)} classes but the network was trained on {len(self.class_names)} "
                f"({self.source}); select them in the order of the training with ?classes=NAME,NAME,..."
            )
        for number_, (name, trained) in enumerate(zip(names, self.class_names, strict=True)):
            if name != trained:
                raise InvalidInput(
                    f"class {number_} of {images.name} is {name!r} but {trained!r} in training ({self.source}); "
                    "put the classes in the order of the training with ?classes=NAME,NAME,..."
                )


def _check_channels(content: object, name: str) -> tuple[float, float, float]:
    red, green, blue = (number(value, name, -1e6, 1e6) for value in check_list(content, name))
    return red, green, blue


def _optional(content: object) -> int | None:
    return None if content is None else whole(content, "size", 1)


def name_statistics(prepare: Prepare) -> str:
    """Name a normalisation by its data set, or else by its numbers.

    Parameters
    ----------
    prepare : Prepare
        The normalisation.

    Returns
    -------
    str
        A key of ``twofold.nn.data.STATISTICS``, ``"none"``, or mean and standard deviation.

    Examples
    --------
    >>> name_statistics(Prepare.named("imagenet"))
    'imagenet'
    """
    if prepare == Prepare():
        return "none"
    for name, (mean, std) in STATISTICS.items():
        if (tuple(prepare.mean), tuple(prepare.std)) == (mean, std):
            return name
    return f"mean {tuple(prepare.mean)}, std {tuple(prepare.std)}"


def remember_input(model: nn.Module, trained: TrainedInput | None) -> None:
    """Let a network carry what it was trained on.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    trained : TrainedInput or None
        What it was trained on; None changes nothing.
    """
    if trained is not None:
        setattr(model, ATTRIBUTE, trained)


def recall_input(model: nn.Module) -> TrainedInput | None:
    """Return what a network was trained on.

    Parameters
    ----------
    model : torch.nn.Module
        The network.

    Returns
    -------
    TrainedInput or None
        What it carries; None for a network that twofold neither trained nor loaded from a training folder.

    Examples
    --------
    >>> recall_input(nn.Linear(2, 2)) is None
    True
    """
    found = getattr(model, ATTRIBUTE, None)
    return found if isinstance(found, TrainedInput) else None


def find_input(places: Sequence[str | Path | None]) -> TrainedInput | None:
    """Find what a network was trained on, by where its weights are.

    Parameters
    ----------
    places : sequence of str, Path or None
        Training folders, or files in them; others are ignored.

    Returns
    -------
    TrainedInput or None
        What the first folder with a ``model.json`` says.

    Raises
    ------
    RunError
        If that file is damaged.
    """
    for place in places:
        if place is None:
            continue
        folder = Path(place)
        if folder.is_file():
            folder = folder.parent
        if (folder / MODEL_FILE).is_file():
            description = read_description(folder)
            if description is not None:
                return TrainedInput.of(description, str(folder / MODEL_FILE))
    return None
