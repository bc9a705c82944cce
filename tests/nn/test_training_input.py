"""Training on image files of mixed sizes, read by any number of processes: same bytes, clean endings, bad images."""

import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from PIL import Image  # noqa: E402
from training_toys import PREPARE  # noqa: E402

from twofold.errors import InvalidInput, RunError, SkippedImages, UnreadableImage  # noqa: E402
from twofold.nn import build, data  # noqa: E402
from twofold.nn.extraction import ImageInput, Prepare  # noqa: E402
from twofold.nn.ingredients.fractals import Mixers  # noqa: E402
from twofold.nn.recipes import recipe  # noqa: E402
from twofold.nn.training import Settings, train  # noqa: E402
from twofold.nn.training.input import BatchFeed, BatchMaker, BatchRequest  # noqa: E402

SIZES = [(60, 40), (48, 48), (37, 90), (64, 51)]
MIXERS = Mixers(np.random.default_rng(0).integers(0, 256, (4, 36, 36, 3), dtype=np.uint8))
SETTINGS = Settings(epochs=2, batch=8, lr=0.02, resize=36, crop=32, augment=("resized_crop", "flip"))


def write_folder(folder, n=24, classes=3):
    """Write JPEG files of mixed sizes, one colour for each class."""
    colours = np.random.default_rng(9).integers(30, 226, (classes, 1, 1, 3))
    for number in range(n):
        rng = np.random.default_rng(number)
        height, width = SIZES[number % len(SIZES)]
        label = number % classes
        pixels = np.clip(colours[label] + 20 * rng.normal(size=(height, width, 3)), 0, 255).astype(np.uint8)
        file = folder / f"class{label}" / f"{number:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file, quality=90)
    return data.open(f"folder:{folder}")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("photographs"))


def feed(images, workers, terms="sure_plus", on_bad="stop", settings=SETTINGS):
    maker = BatchMaker(
        images,
        settings,
        PREPARE,
        recipe(terms).terms,
        mixers=MIXERS,
        outliers=data.open("noise:uniform?n=9&size=32"),
        outliers_per_image=1,
        on_bad=on_bad,
    )
    return BatchFeed(maker, workers)


def requests(images, epoch, batch=8):
    order = np.random.default_rng(epoch).permutation(len(images))
    rows = [order[start : start + batch] for start in range(0, len(images), batch)]
    return [BatchRequest(some, epoch, epoch * len(rows) + i) for i, some in enumerate(rows)]


def collect(images, workers, **options):
    """All bytes of two epochs."""
    made = []
    source = feed(images, workers, **options)
    for epoch in range(2):
        for batch in source.batches(requests(images, epoch)):
            views = [batch.views[name].numpy().tobytes() for name in sorted(batch.views)]
            made.append((batch.rows.tolist(), batch.pixels.numpy().tobytes(), batch.images.numpy().tobytes(), views))
            made.append(batch.outliers.numpy().tobytes())
    source.close()
    return made


@pytest.mark.parametrize("terms", ["sure_plus", "augmix"])
def test_any_number_of_workers_gives_the_same_bytes(photographs, terms):
    here = collect(photographs, 0, terms=terms)
    assert here == collect(photographs, 1, terms=terms)
    assert here == collect(photographs, 2, terms=terms)
    views = next(feed(photographs, 0, terms).batches(requests(photographs, 0))).views
    assert sorted(views) == {"sure_plus": ["pixmix"], "augmix": ["augmix 0", "augmix 1"]}[terms]


def test_a_row_is_the_same_in_any_batch_and_differs_between_epochs(photographs):
    maker = feed(photographs, 0).maker
    many = maker.pixels(np.array([5, 3, 11]), 4)
    assert many.shape == (3, 32, 32, 3)
    np.testing.assert_array_equal(many[1], maker.pixels(np.array([3]), 4)[0])
    assert (many[1] != maker.pixels(np.array([3]), 5)[0]).any()


def test_without_a_random_crop_the_centre_is_taken(photographs):
    settings = Settings(resize=36, crop=32, augment=())
    fitted = ImageInput(36, 32).fit(photographs)
    got = feed(fitted, 0, settings=settings).maker.pixels(np.array([2]), 0)[0]
    with Image.open(photographs.source.where(2)) as image:
        width, height = image.size
        scale = 36 / min(width, height)
        resized = image.resize((int(width * scale), int(height * scale)), Image.Resampling.BILINEAR)
        left, top = round((resized.width - 32) / 2), round((resized.height - 32) / 2)
        want = np.asarray(resized.crop((left, top, left + 32, top + 32)))
    np.testing.assert_array_equal(got, want)


def run(images, out, workers=0, name="sure_plus", **options):
    made = recipe(name)
    return train(
        made,
        build("resnet8_cifar", 3, **made.options),
        images,
        out,
        settings=SETTINGS,
        prepare=PREPARE,
        mixers=MIXERS,
        workers=workers,
        **options,
    )


def test_training_with_workers_ends_with_the_same_weights(photographs, tmp_path):
    run(photographs, tmp_path / "here", val=photographs)
    run(photographs, tmp_path / "there", workers=2, val=photographs)
    for name in ("weights.safetensors", "metrics.csv"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


SCRIPT = """
import os, sys
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
import test_training_input as t
images = t.data.open("folder:{folder}")
seen = 0
def done(values):
    global seen
    seen += 1
    if seen == 5 and {die!r}:
        print("at work", flush=True)
        if {die!r} == "kill":
            os.kill(os.getpid(), 9)
        import time
        time.sleep(60)
t.run(images, {out!r}, workers=2, done=done)
"""


def start(photographs, out, die=""):
    folder = os.path.dirname(os.path.dirname(photographs.source.where(0)))
    code = SCRIPT.format(here=os.path.dirname(__file__), folder=folder, out=str(out), die=die)
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def members(session):
    """Processes of a session that still run."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "-s", str(session)], capture_output=True, text=True, check=False)
    return [line for line in listed.stdout.splitlines() if " Z" not in line]


def assert_all_gone(session, seconds=30):
    deadline = time.monotonic() + seconds
    while members(session):
        assert time.monotonic() < deadline, members(session)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are sent to processes")
def test_killed_in_the_middle_of_an_epoch_with_workers_and_resumed(photographs, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(photographs, whole)
    killed = start(photographs, cut, die="kill")
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert (cut / "state.safetensors").exists()  # of the first epoch
    assert not (cut / "weights.safetensors").exists()
    assert_all_gone(killed.pid)  # nobody was left to end the workers: they notice by themselves
    again = start(photographs, cut)
    _, errors = again.communicate(timeout=300)
    assert again.returncode == 0, errors
    assert (cut / "weights.safetensors").read_bytes() == (whole / "weights.safetensors").read_bytes()
    assert_all_gone(again.pid)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are sent to processes")
def test_ctrl_c_leaves_no_orphans_and_no_noise_of_workers(photographs, tmp_path):
    process = start(photographs, tmp_path / "out", die="wait")
    assert process.stdout.readline() == "at work\n"
    assert len(members(process.pid)) >= 3  # itself and two workers
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to all
    _, errors = process.communicate(timeout=120)
    assert errors.count("KeyboardInterrupt") == 1  # of the main process alone
    assert_all_gone(process.pid, seconds=5)


# --- images that cannot be read -------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path):
    images = write_folder(tmp_path / "damaged", n=12)
    file = tmp_path / "damaged" / "class1" / "004.jpg"
    file.write_bytes(file.read_bytes()[:200])
    return data.open(f"folder:{tmp_path / 'damaged'}"), list(images.ids).index("class1/004.jpg")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_stops_with_its_name(damaged, workers):
    images, _ = damaged
    with pytest.raises(UnreadableImage, match=r"004\.jpg is not a readable image") as caught:
        list(feed(images, workers).batches(requests(images, 0)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_unreadable_image_is_skipped_and_counted(damaged, workers):
    images, bad = damaged
    source = feed(images, workers, on_bad="skip")
    asked = requests(images, 0)
    with pytest.warns(SkippedImages, match=r"1 of 12 images could not be read.*004\.jpg"):
        got = list(source.batches(asked))
    for request, batch in zip(asked, got, strict=True):
        want = np.where(request.rows == bad, bad + 1, request.rows)
        np.testing.assert_array_equal(batch.rows, want)  # the next row stands in, with its label
        np.testing.assert_array_equal(batch.pixels.numpy(), source.maker.pixels(want, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(source.batches(asked))  # counted once


def test_a_training_that_skips_learns_from_the_label_of_the_row_that_stands_in(damaged, tmp_path):
    images, _ = damaged
    with pytest.raises(UnreadableImage, match=r"004\.jpg"):
        run(images, tmp_path / "stop", name="basic")
    with pytest.warns(SkippedImages):
        here = run(images, tmp_path / "skip", name="basic", on_bad="skip", val=images)
    with pytest.warns(SkippedImages):
        there = run(images, tmp_path / "skip2", workers=2, name="basic", on_bad="skip", val=images)
    assert here.history == there.history
    assert len(here.history) == 2


def test_a_data_set_without_readable_images_ends(tmp_path):
    images = write_folder(tmp_path, n=6)
    for path in tmp_path.rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(UnreadableImage, match="6 images in a row cannot be read"):
        list(feed(images, 0, on_bad="skip").batches(requests(images, 0)))


class Dying(data.sources.FileSource):
    """A source whose reading ends the process, as a lack of memory would."""

    def encoded(self, row):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_is_one_clear_line(photographs):
    images = data.Images.of(Dying(photographs.source.paths), photographs.labels)
    with pytest.raises(RunError, match="a reading process died"):
        list(feed(images, 1).batches(requests(images, 0)))


# --- sizes ----------------------------------------------------------------------------------------------------------


def test_sizes_that_do_not_fit_are_clear_errors(photographs):
    with pytest.raises(InvalidInput, match="crop=64 is larger than resize=32"):
        Settings(resize=32, crop=64)
    with pytest.raises(InvalidInput, match="images differ in size"):
        photographs.read()
    opened = data.open(f"folder:{os.path.dirname(os.path.dirname(photographs.source.where(0)))}", size=40)
    with pytest.raises(InvalidInput, match="comes out at 40x40 but the network takes 32x32"):
        ImageInput(36, 32).fit(opened)
    assert ImageInput(crop=40).fit(opened) is opened
    assert ImageInput(prepare=Prepare()).fit(photographs) is photographs
