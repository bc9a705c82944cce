"""Engines: tasks run anywhere with the same results, and errors say what is missing and what is not."""

import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

from twofold import scorer
from twofold.bench.engines import Workers, execute
from twofold.errors import MissingExtra, UnknownName


def need_a_library():
    raise ImportError("no module named 'of_the_task'")


@pytest.mark.parametrize(
    ("engine", "package", "install"),
    [("dask", "distributed", r'pip install "twofold\[cluster\]"'), ("ray", "ray", r'pip install "twofold\[ray\]"')],
)
def test_an_engine_that_is_not_installed_names_what_installs_it(monkeypatch, engine, package, install):
    pytest.importorskip("joblib", reason="joblib is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"engine {engine} is not installed: {install}"):
        list(execute([need_a_library], Workers(engine=engine)))


def test_an_import_error_of_a_task_is_not_that_of_the_engine(monkeypatch):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=lambda **options: nullcontext()))
    monkeypatch.setattr(joblib, "parallel_config", lambda *options, **named: nullcontext())
    with pytest.raises(ImportError, match="of_the_task") as caught:
        list(execute([need_a_library], Workers(engine="dask")))
    assert not isinstance(caught.value, MissingExtra)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_errors_of_tasks_on_ray_keep_their_class():
    ray = pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(UnknownName, match="no score or transform 'nonsense'"):
        list(execute([partial(scorer, "nonsense")], Workers(engine="ray")))
    ray.shutdown()


def test_several_processes_return_every_result_with_its_index():
    pytest.importorskip("joblib", reason="joblib is not installed")
    tasks = [partial(pow, 2, exponent) for exponent in range(5)]
    assert dict(execute(tasks, Workers(jobs=2))) == {index: 2**index for index in range(5)}
