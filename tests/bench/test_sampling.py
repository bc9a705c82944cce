"""Benchmarks with fewer images."""

import pytest

from twofold.bench.catalogue import load
from twofold.bench.sampling import sample_images
from twofold.errors import InvalidInput, UnknownName


def test_the_name_comes_before_the_role_and_the_role_before_all():
    whole = load("cifar10-real")
    small = sample_images(whole, {"svhn": 30, "far": 20, "all": 10})
    assert small["svhn"].data == f"{whole['svhn'].data}&sample=30"
    assert small["textures"].data.endswith("sample=20")
    assert small["test"].data.endswith("sample=10")
    assert [small[name].rows for name in ("svhn", "textures", "test")] == [30, 20, 10]
    assert small.name == whole.name
    assert [one.role for one in small.sets] == [one.role for one in whole.sets]


def test_data_sets_that_are_small_enough_or_not_named_stay():
    whole = load("cifar10-real")
    assert sample_images(whole, {"far": 10**6}) == whole
    assert sample_images(whole, {"svhn": 5})["test"] == whole["test"]
    assert sample_images(whole, {}) == whole


def test_a_sample_of_a_sample_keeps_the_smaller_number():
    once = sample_images(load("cifar10-real"), {"all": 50})
    assert sample_images(once, {"all": 80}) == once
    again = sample_images(once, {"all": 20})
    assert again["test"].data.endswith("sample=20")
    assert again["test"].rows == 20


@pytest.mark.parametrize(
    ("images", "error", "said"),
    [
        ({"nowhere": 5}, UnknownName, "nowhere"),
        ({"test": 0}, InvalidInput, "images of test"),
        ({"test": 1.5}, InvalidInput, "images of test"),
        ({"test": "5"}, InvalidInput, "images of test"),
    ],
)
def test_keys_and_numbers_are_checked(images, error, said):
    with pytest.raises(error, match=said):
        sample_images(load("cifar10-real"), images)
