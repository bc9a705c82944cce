"""The file model.json: what it holds is checked, and nothing else is believed."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from twofold._json import encode_json  # noqa: E402
from twofold.errors import InvalidInput, RunError  # noqa: E402
from twofold.nn import build  # noqa: E402
from twofold.nn.models.description import (  # noqa: E402
    ModelDescription,
    NetworkDescription,
    describe_network,
    read_description,
    write_description,
)


def _write(folder, **changes):
    write_description(folder, ModelDescription(NetworkDescription("resnet8_cifar", 4)))
    content = json.loads((folder / "model.json").read_text())
    del content["checksum"]
    content |= changes
    (folder / "model.json").write_bytes(encode_json(content))


def test_what_is_written_is_read_again(tmp_path):
    network = NetworkDescription("resnet8_cifar", 4, "cosine", 16.0, True, 0.3, "head", True, "devries", 1, "linear")
    written = ModelDescription(network, ("a", "b", "c", "d"), "2", None)
    write_description(tmp_path, written)
    assert read_description(tmp_path) == written


def test_a_folder_without_the_file_has_no_description(tmp_path):
    assert read_description(tmp_path) is None


def test_a_network_of_the_zoo_carries_its_description():
    network = build("resnet8_cifar", 4, dropout=0.2, head="cosine", scale=12.0, abstain=True)
    described = describe_network(network)
    assert described == NetworkDescription("resnet8_cifar", 4, "cosine", 12.0, dropout=0.2, abstain=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": {"model": "resnet8_cifar"}}, "network must have the keys"),
        ({"network": 3}, "network must be a table"),
        ({"class_names": [1]}, "class_names must be text"),
        ({"freeze": 2}, "freeze must be text"),
        ({"other": 1}, "'other' is missing or too much"),
    ],
)
def test_odd_content_is_one_line(tmp_path, changes, message):
    _write(tmp_path, **changes)
    with pytest.raises(RunError, match=message):
        read_description(tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("classes", 1, "classes"),
        ("classes", True, "classes"),
        ("dropout", 1.0, "dropout"),
        ("head", "round", "head"),
        ("confidence", "other", "confidence"),
        ("abstain", 1, "abstain must be true or false"),
        ("model", 5, "model must be text"),
        ("model", "hf:/etc", "must be 'hf:.'"),
    ],
)
def test_odd_values_of_the_network_are_one_line(tmp_path, field, value, message):
    write_description(tmp_path, ModelDescription(NetworkDescription("resnet8_cifar", 4)))
    network = json.loads((tmp_path / "model.json").read_text())["network"]
    _write(tmp_path, network={**network, field: value})
    with pytest.raises(RunError, match=message):
        read_description(tmp_path)


def test_an_edited_or_truncated_file_is_refused(tmp_path):
    write_description(tmp_path, ModelDescription(NetworkDescription("resnet8_cifar", 4)))
    raw = (tmp_path / "model.json").read_bytes()
    (tmp_path / "model.json").write_bytes(raw.replace(b"resnet8_cifar", b"resnet9_cifar"))
    with pytest.raises(RunError, match="damaged or was edited"):
        read_description(tmp_path)
    (tmp_path / "model.json").write_bytes(raw[:40])
    with pytest.raises(RunError, match="not complete JSON"):
        read_description(tmp_path)


def test_a_description_is_checked_when_it_is_made():
    with pytest.raises(InvalidInput, match="classes"):
        NetworkDescription("resnet8_cifar", 0)
