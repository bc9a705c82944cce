"""Engines that run the tasks of a benchmark: this process, several processes, a Dask or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from twofold.errors import InvalidInput, MissingExtra
from twofold.scores.registry import load_plugin, plugins

Engine = Literal["local", "dask", "ray"]
Result = TypeVar("Result")

ENGINES: tuple[Engine, ...] = ("local", "dask", "ray")
DASK_TIMEOUT = 60  # seconds to wait for the first worker of a Dask cluster
RAY_RETRIES = 10  # times that a task is started again when its worker is lost


@dataclass(frozen=True)
class Workers:
    """Say where tasks run.

    Parameters
    ----------
    jobs : int, default=1
        Number of processes; a running cluster brings its own workers.
    engine : {"local", "dask", "ray"}, default="local"
        What runs the tasks.
    address : str, optional
        Address of a running cluster; None starts one on this machine.
    """

    jobs: int = 1
    engine: Engine = "local"
    address: str | None = None


def execute(tasks: Sequence[Callable[[], Result]], workers: Workers) -> Iterator[tuple[int, Result]]:
    """Run tasks in this process, in several processes of this machine, or on a cluster.

    Parameters
    ----------
    tasks : sequence of callable
        Functions without arguments, such as ``functools.partial`` of a function that can be pickled.
    workers : Workers
        Where they run.

    Yields
    ------
    tuple of (int, object)
        Index and result of each task, in the order in which they finish.

    Raises
    ------
    MissingExtra
        If the engine is not installed.
    InvalidInput
        If no Dask scheduler or Ray cluster answers at the address.

    Examples
    --------
    >>> from functools import partial
    >>> list(execute([partial(max, 1, 2), partial(min, 1, 2)], Workers()))
    [(0, 2), (1, 1)]
    """
    if workers.engine == "local" and (workers.jobs == 1 or len(tasks) < 2):
        for index, task in enumerate(tasks):
            yield index, task()
        return
    if workers.engine == "ray":
        yield from _execute_on_ray(tasks, workers)
        return
    import joblib

    with _joblib_backend(workers):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        modules = plugins()
        yield from parallel(joblib.delayed(_run_task)(index, task, modules) for index, task in enumerate(tasks))


def _run_task(index: int, task: Callable[[], Result], modules: Sequence[str]) -> tuple[int, Result]:
    """Run a task in a process that may not know the plugins yet."""
    for module in modules:
        load_plugin(module)
    return index, task()


@contextmanager
def _joblib_backend(workers: Workers) -> Iterator[None]:
    """Let joblib work through an engine while the context is open."""
    import joblib

    if workers.engine == "local":
        with joblib.parallel_config("loky", n_jobs=workers.jobs, inner_max_num_threads=1):
            yield
    else:
        with _connect_dask(workers), joblib.parallel_config("dask", wait_for_workers_timeout=DASK_TIMEOUT):
            yield


def _connect_dask(workers: Workers) -> AbstractContextManager[object]:
    """Connect to a running Dask cluster, or start one on this machine."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtra('engine dask is not installed: pip install "twofold[cluster]"') from error
    if workers.address is None:
        return Client(n_workers=workers.jobs, threads_per_worker=1)  # type: ignore[no-untyped-call]
    try:
        return Client(address=workers.address)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no Dask scheduler answers at {workers.address}: {error}") from error


def _execute_on_ray(tasks: Sequence[Callable[[], Result]], workers: Workers) -> Iterator[tuple[int, Result]]:
    """Run tasks on Ray, which starts a task again when its worker or its node is lost."""
    ray = _connect_ray(workers)
    run = ray.remote(max_retries=RAY_RETRIES)(_run_task)
    modules = plugins()
    waiting = [run.remote(index, task, modules) for index, task in enumerate(tasks)]
    try:
        while waiting:
            (finished,), waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(finished)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error  # what the task raised
    finally:
        for reference in waiting:  # of a caller that stopped early
            ray.cancel(reference)


def _connect_ray(workers: Workers) -> Any:
    """Connect to a running Ray cluster, or start one on this machine, which lasts as long as this process."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra('engine ray is not installed: pip install "twofold[ray]"') from error
    if ray.is_initialized():
        return ray
    try:
        if workers.address is None:
            ray.init(num_cpus=workers.jobs, include_dashboard=False, log_to_driver=False)
        else:
            ray.init(address=workers.address, log_to_driver=False)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no Ray cluster answers at {workers.address}: {error}") from error
    return ray
