"""How training images reach the network: read, cropped, augmented and mixed, here or in processes that read ahead.

What happens to an image depends on the seed, the epoch and its row alone, so any number of reading processes gives the
same bytes.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from twofold.errors import InvalidInput, RunError, SkippedImages, TwofoldError, UnreadableImage
from twofold.nn.data import Images
from twofold.nn.data.decoding import Box
from twofold.nn.extraction import Prepare
from twofold.nn.ingredients.augment import crop_boxes
from twofold.nn.ingredients.fractals import Mixers
from twofold.nn.recipes import Term
from twofold.nn.rows import ImageRows, Pixels
from twofold.nn.training.settings import AUGMENTATIONS, Settings

OnBad: TypeAlias = Literal["stop", "skip"]
Rows: TypeAlias = npt.NDArray[np.int64]

PREFETCH = 2  # batches that each reading process prepares ahead
SECOND_VIEW = 2**32  # epochs from which a second view of an image takes its draws
MOST_UNREADABLE = 100  # unreadable images in a row, after which the data set is considered lost


class BatchRequest(NamedTuple):
    """Say which batch to prepare.

    Attributes
    ----------
    rows : ndarray of int64, shape (B,)
        Rows of the training set.
    epoch : int
        Number of the epoch, from 0.
    number : int
        Number of the step in the whole run, from 0.
    is_clean : bool
        Whether the images alone are needed, without outliers and what loss terms make of them.
    """

    rows: Rows
    epoch: int
    number: int
    is_clean: bool = False


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """Hold a batch as the network takes it, on the CPU.

    Parameters
    ----------
    rows : ndarray of int64, shape (B,)
        Rows of the training set; they differ from those requested where unreadable images were replaced.
    pixels : Tensor of uint8, shape (B, H, W, 3)
        Augmented images.
    images : Tensor of float32, shape (B, 3, H, W)
        The same, normalised.
    views : dict of str to Tensor of float32, shape (B, 3, H, W)
        What loss terms made of them, normalised, by name.
    outliers : Tensor of float32, shape (K, 3, H, W), optional
        Normalised outliers, where a term needs them.
    unreadable : tuple of str, default=()
        What is wrong with the images that were replaced.
    """

    rows: Rows
    pixels: Tensor
    images: Tensor
    views: dict[str, Tensor]
    outliers: Tensor | None = None
    unreadable: tuple[str, ...] = ()

    def part(self, number: int, parts: int) -> PreparedBatch:
        """Select one of several micro-batches.

        Parameters
        ----------
        number : int
            Its number, from 0.
        parts : int
            Number of micro-batches; each has every ``parts``-th row.

        Returns
        -------
        PreparedBatch
            The micro-batch.
        """
        views = {name: view[number::parts] for name, view in self.views.items()}
        outliers = None if self.outliers is None else self.outliers[number::parts]
        rows, pixels, images = self.rows[number::parts], self.pixels[number::parts], self.images[number::parts]
        return PreparedBatch(rows, pixels, images, views, outliers)


@dataclass(frozen=True, eq=False)
class _Augmented:
    """The augmented images from which loss terms make their views."""

    pixels: Pixels
    index: Rows
    seed: int
    epoch: int
    source: Mixers | None
    again: Callable[[], Pixels]

    def augment_again(self) -> Pixels:
        return self.again()

    @property
    def mixers(self) -> Mixers:
        if self.source is None:
            raise InvalidInput("a term that mixes in pictures must set uses_mixers = True")
        return self.source


@dataclass(frozen=True, eq=False)
class BatchMaker:
    """Prepare batches of a training set.

    Parameters
    ----------
    data : Images
        The training set; the images may differ in size if they are cropped at random.
    settings : Settings
        Augmentations, size and seed.
    prepare : Prepare
        Normalisation of the images.
    terms : sequence of Term, default=()
        Loss terms, which may make views of their own.
    mixers : Mixers, optional
        Pictures for PixMix, where a term mixes them in.
    outliers : ImageRows, optional
        Images of no known class, where a term needs them.
    outliers_per_image : int, default=0
        Number of outliers for each training image.
    rank, world_size : int, default=0 and 1
        Number of this process, and of all that share a batch.
    on_bad : {"stop", "skip"}, default="stop"
        Whether an unreadable image ends the training, or is replaced by the next readable row of the training set.
    """

    data: Images
    settings: Settings
    prepare: Prepare
    terms: Sequence[Term] = ()
    mixers: Mixers | None = None
    outliers: ImageRows | None = None
    outliers_per_image: int = 0
    rank: int = 0
    world_size: int = 1
    on_bad: OnBad = "stop"

    def make(self, request: BatchRequest) -> PreparedBatch:
        """Prepare one batch.

        Parameters
        ----------
        request : BatchRequest
            Which.

        Returns
        -------
        PreparedBatch
            The batch.

        Raises
        ------
        UnreadableImage
            If an image cannot be read and ``on_bad`` is ``"stop"``, or 100 in a row cannot.
        """
        rows = request.rows
        unreadable: tuple[str, ...] = ()
        try:
            pixels = self.pixels(rows, request.epoch)
        except UnreadableImage:
            if self.on_bad == "stop":
                raise
            rows, unreadable = self._replace_unreadable(request)
            pixels = self.pixels(rows, request.epoch)
        views: dict[str, Tensor] = {}
        outliers = None
        if not request.is_clean:
            outliers = self.outlier_images(len(rows), request.number)
            for name, view in self.views(pixels, rows, request.epoch).items():
                views[name] = self.prepare.floats(view)
        return PreparedBatch(
            rows=rows,
            pixels=torch.from_numpy(pixels),
            images=self.prepare(pixels),
            views=views,
            outliers=outliers,
            unreadable=unreadable,
        )

    def pixels(self, rows: Rows, epoch: int) -> Pixels:
        """Read and augment images.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Rows of the training set.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The augmented images.

        Raises
        ------
        UnreadableImage
            If an image cannot be read.
        """
        settings = self.settings
        pixels = self._read(rows, epoch)
        for name in settings.augment:
            if name == "resized_crop":
                if settings.input_side is not None:
                    continue  # cropped while it was read
                pixels = AUGMENTATIONS[name](pixels, rows, seed=settings.seed, epoch=epoch, size=min(pixels.shape[1:3]))
            else:
                pixels = AUGMENTATIONS[name](pixels, rows, seed=settings.seed, epoch=epoch)
        return pixels

    def augment_again(self, rows: Rows, epoch: int) -> Pixels:
        """Read images and augment them by other draws than :meth:`pixels` does in any epoch.

        Parameters
        ----------
        rows : ndarray of int64, shape (B,)
            Rows of the training set.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        ndarray of uint8, shape (B, H, W, 3)
            The augmented images.

        Raises
        ------
        UnreadableImage
            If an image cannot be read.
        """
        return self.pixels(rows, epoch + SECOND_VIEW)

    def views(self, pixels: Pixels, rows: Rows, epoch: int) -> dict[str, npt.NDArray[np.float32]]:
        """Make the views that the loss terms ask for.

        Parameters
        ----------
        pixels : ndarray of uint8, shape (B, H, W, 3)
            Augmented images.
        rows : ndarray of int64, shape (B,)
            Their rows of the training set.
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        dict of str to ndarray of float32, shape (B, H, W, 3)
            The views by name, not normalised.
        """
        again = partial(self.augment_again, rows, epoch)
        batch = _Augmented(pixels, rows, self.settings.seed, epoch, self.mixers, again)
        views = {}
        for term in self.terms:
            views.update(term.make_views(batch))
        return views

    def _read(self, rows: Rows, epoch: int) -> Pixels:
        """Read images at one size: a random box of the whole picture where one is asked for."""
        settings = self.settings
        if settings.input_side is None or "resized_crop" not in settings.augment:
            return self.data.read(rows)
        draw = partial(_draw_box, seed=settings.seed, epoch=epoch)
        return self.data.read_crops(rows, draw, settings.input_side, draft=settings.draft)

    def _replace_unreadable(self, request: BatchRequest) -> tuple[Rows, tuple[str, ...]]:
        """Replace each row that cannot be read by the next one that can."""
        rows = request.rows.copy()
        unreadable: list[str] = []
        for place, row in enumerate(rows.tolist()):
            problems: list[str] = []
            while (problem := self._find_problem(row, request.epoch)) is not None:
                problems.append(problem)
                if len(problems) >= min(MOST_UNREADABLE, len(self.data)):
                    raise UnreadableImage(f"{len(problems)} images in a row cannot be read; the first: {problems[0]}")
                row = (row + 1) % len(self.data)
            rows[place] = row
            unreadable.extend(problems)
        return rows, tuple(unreadable)

    def _find_problem(self, row: int, epoch: int) -> str | None:
        try:
            self._read(np.array([row]), epoch)
        except UnreadableImage as error:
            return str(error)
        return None

    def outlier_images(self, count: int, number: int) -> Tensor | None:
        """Read the outliers of a step, drawn by its number.

        Parameters
        ----------
        count : int
            Number of training images of this process in the step.
        number : int
            Number of the step in the whole run.

        Returns
        -------
        Tensor of float32, shape (K, 3, H, W), or None
            Normalised outliers; None if no term needs them.
        """
        if not self.outliers_per_image or self.outliers is None:
            return None
        rng = np.random.default_rng((self.settings.seed, 1, number))
        drawn = rng.choice(len(self.outliers), self.outliers_per_image * count * self.world_size, replace=True)
        return self.prepare(self.outliers.read(drawn[self.rank :: self.world_size]))


def _draw_box(row: int, height: int, width: int, *, seed: int, epoch: int) -> Box:
    top, left, box_height, box_width = crop_boxes([row], [(height, width)], seed=seed, epoch=epoch)[0].tolist()
    return Box(top, left, box_height, box_width)


class _Batches(Dataset[PreparedBatch | TwofoldError]):
    """Batches by request, for a ``DataLoader``; an error of twofold is an item, so that it arrives as one line."""

    def __init__(self, maker: BatchMaker) -> None:
        self.maker = maker

    def __getitem__(self, request: BatchRequest) -> PreparedBatch | TwofoldError:
        try:
            return self.maker.make(request)
        except TwofoldError as error:
            return error


class _Requests(Sampler[BatchRequest]):
    """The requests of the present epoch, in order."""

    def __init__(self) -> None:
        self.requests: Sequence[BatchRequest] = ()

    def __iter__(self) -> Iterator[BatchRequest]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)


def _as_it_is(batch: PreparedBatch | TwofoldError) -> PreparedBatch | TwofoldError:
    """Leave a batch as it is; a named function, since other processes cannot receive a lambda."""
    return batch


def _start_worker(number: int) -> None:
    """Leave signals to the main process, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@dataclass(eq=False)
class BatchFeed:
    """Hand out prepared batches in order, from processes that read ahead or from this one.

    Parameters
    ----------
    maker : BatchMaker
        What prepares a batch.
    workers : int, default=0
        Number of processes that read ahead; 0 prepares batches in this one.

    Attributes
    ----------
    waited : float
        Seconds that the training has waited for batches so far.
    unreadable : dict of str to None
        What is wrong with the images that were replaced so far, each once.
    """

    maker: BatchMaker
    workers: int = 0
    waited: float = field(default=0.0, init=False)
    unreadable: dict[str, None] = field(default_factory=dict, init=False)
    _requests: _Requests = field(default_factory=_Requests, init=False)
    _loader: DataLoader[PreparedBatch | TwofoldError] | None = field(default=None, init=False)

    def batches(self, requests: Sequence[BatchRequest]) -> Iterator[PreparedBatch]:
        """Prepare batches, one after the other.

        Parameters
        ----------
        requests : sequence of BatchRequest
            Which.

        Yields
        ------
        PreparedBatch
            The batches in the same order.

        Raises
        ------
        UnreadableImage
            If an image cannot be read and is not to be skipped.
        RunError
            If a reading process died.
        """
        before = len(self.unreadable)
        items = self._items(requests)
        while True:
            start = time.perf_counter()
            batch = _next_item(items)
            self.waited += time.perf_counter() - start
            if batch is None:
                break
            if isinstance(batch, TwofoldError):
                self.close()
                raise batch
            self.unreadable.update(dict.fromkeys(batch.unreadable))
            yield batch
        if len(self.unreadable) > before:
            _warn_of_unreadable(list(self.unreadable), len(self.maker.data))

    def _items(self, requests: Sequence[BatchRequest]) -> Iterator[PreparedBatch | TwofoldError]:
        if self.workers == 0:
            return map(self.maker.make, requests)
        self._requests.requests = requests
        if self._loader is None:
            self._loader = DataLoader(
                _Batches(self.maker),
                batch_size=None,
                sampler=self._requests,
                collate_fn=_as_it_is,  # type: ignore[arg-type]  # whole batches are items
                num_workers=self.workers,
                prefetch_factor=PREFETCH,
                persistent_workers=True,
                worker_init_fn=_start_worker,
                generator=torch.Generator(),  # so that no numbers of the training are drawn
            )
        return iter(self._loader)

    def close(self) -> None:
        """End the reading processes; they start again when batches are asked for."""
        self._loader = None


def _next_item(items: Iterator[PreparedBatch | TwofoldError]) -> PreparedBatch | TwofoldError | None:
    """Return the next item, or None at the end."""
    try:
        return next(items, None)
    except RuntimeError as error:  # of the DataLoader
        if "DataLoader worker" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise RunError(
            f"a reading process died ({reason}); the last epoch is kept: run the same command again, with fewer "
            "workers or a smaller batch if memory ran out"
        ) from error


def _warn_of_unreadable(problems: Sequence[str], rows: int) -> None:
    warnings.warn(
        f"{len(problems)} of {rows} images could not be read and were replaced by others; the first: {problems[0]}",
        SkippedImages,
        stacklevel=4,
    )
