"""The same attempts on workers that Ray places, on this machine or on many; Ray alone decides where."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from typing_extensions import Self

from agentloop_autogen.bench.endpoint import CountedEndpoint, Upstream
from agentloop_autogen.bench.quiet import quiet_libraries
from agentloop_autogen.bench.runner.attempt import ExecutedAttempt, execute_attempt
from agentloop_autogen.bench.runner.plan import PlannedAttempt
from agentloop_autogen.bench.runner.settings import RunSettings
from agentloop_autogen.bench.systems.registry import make_systems
from agentloop_autogen.bench.systems.system import BenchSystem
from agentloop_autogen.bench.tasks.task import BenchTask
from agentloop_autogen.errors import MissingExtraError, ModelError

__all__ = ["FindTask", "RayWorkers"]

_USAGE_REPORTS: Final = "RAY_USAGE_STATS_ENABLED"
_RESTARTS: Final = 3

FindTask = Callable[[str, str], BenchTask]
"""Finds a task by the name of its family and its id, wherever it is called."""


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What a worker needs to know once."""

    upstreams: tuple[Upstream, ...]
    settings: RunSettings
    find_task: FindTask


class RayWorkers:
    """Workers that execute attempts; each has a counted endpoint of its own before the same servers.

    Args:
        count: How many, at least 1.
        address: The cluster. None: one on this machine for as long as the block lasts.
        upstreams: The servers, which every worker must be able to reach.
        settings: Settings of the run.
        find_task: Finds the tasks; its data must be where the workers are.

    Raises:
        MissingExtraError: Ray is not installed.
    """

    def __init__(
        self,
        *,
        count: int,
        address: str | None,
        upstreams: Sequence[Upstream],
        settings: RunSettings,
        find_task: FindTask,
    ) -> None:
        # Nothing about a run is reported to anybody.
        os.environ.setdefault(_USAGE_REPORTS, "0")
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError:
            raise MissingExtraError("running on several machines", "ray") from None
        self._count = count
        self._address = address
        self._orders = [
            # Each worker begins with another server, so that all get something to do.
            _Order(upstreams=_turned(upstreams, place), settings=settings, find_task=find_task)
            for place in range(count)
        ]
        self._workers: list[Any] = []
        self._under_way: list[int] = []

    def __enter__(self) -> Self:
        options = {"include_dashboard": False} if self._address is None else {}
        try:
            self._ray.init(
                address=self._address or "local",
                log_to_driver=False,
                logging_level="ERROR",
                configure_logging=False,
                **options,
            )
        except (OSError, RuntimeError, ValueError) as error:
            where = self._address or "this machine"
            raise ModelError(f"Ray could not be reached at {where} ({error}): start it, or correct --ray") from error
        # Attempts mostly wait for a model, so that a worker claims no processor; Ray spreads them over the machines.
        remote = self._ray.remote(
            num_cpus=0, max_restarts=_RESTARTS, max_task_retries=_RESTARTS, scheduling_strategy="SPREAD"
        )(_Worker)
        self._workers = [remote.remote(order) for order in self._orders]
        self._under_way = [0] * self._count
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        self._ray.shutdown()
        self._workers = []

    async def execute(self, planned: PlannedAttempt) -> ExecutedAttempt:
        """Execute one attempt on the worker that has the fewest.

        Args:
            planned: Which.

        Raises:
            ModelError: The worker died, and so did those that took its place.
        """
        place = self._under_way.index(min(self._under_way))
        self._under_way[place] += 1
        key = planned.key
        running = self._workers[place].execute.remote(key.system, key.family, key.task, key.seed)
        try:
            return await running
        except self._ray.exceptions.RayActorError as error:
            raise ModelError("a Ray worker died again and again: see to its machine, and run again") from error
        finally:
            self._under_way[place] -= 1


class _Worker:
    """Executes attempts where Ray has put it."""

    def __init__(self, order: _Order) -> None:
        quiet_libraries()
        self._order = order
        self._systems: dict[str, BenchSystem] = {}
        self._endpoint = CountedEndpoint(order.upstreams).__enter__()

    async def execute(self, system: str, family: str, task: str, seed: int) -> ExecutedAttempt:
        """Execute one attempt, named by words alone."""
        if system not in self._systems:
            self._systems[system] = make_systems([system])[0]
        planned = PlannedAttempt(system=self._systems[system], task=self._order.find_task(family, task), seed=seed)
        return await execute_attempt(planned, self._endpoint, self._order.settings)


def _turned(upstreams: Sequence[Upstream], place: int) -> tuple[Upstream, ...]:
    first = place % len(upstreams)
    return (*upstreams[first:], *upstreams[:first])
