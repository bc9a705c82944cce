"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir():
    """The folder with real network outputs, named by the environment variable TWOFOLD_DATA."""
    folder = os.environ.get("TWOFOLD_DATA")
    if not folder:
        pytest.skip("TWOFOLD_DATA is not set; it names the folder with the real network outputs")
    return Path(folder)
