"""The attempts of a run and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentloop_autogen.bench.records import Attempt
from agentloop_autogen.bench.results import AttemptKey
from agentloop_autogen.bench.systems.system import BenchSystem
from agentloop_autogen.bench.tasks.task import BenchTask

__all__ = ["PlannedAttempt", "make_plan", "still_to_do"]


@dataclass(frozen=True, kw_only=True)
class PlannedAttempt:
    """One system at one task with one seed."""

    system: BenchSystem
    task: BenchTask
    seed: int

    @property
    def key(self) -> AttemptKey:
        """What tells it apart from the others."""
        return AttemptKey(self.system.name, self.task.family, self.task.id, self.seed)


def make_plan(systems: Sequence[BenchSystem], tasks: Sequence[BenchTask], seeds: Sequence[int]) -> list[PlannedAttempt]:
    """Put all attempts into the order they are run in.

    Seed by seed, task by task; all systems do a task before any does the next, so that they meet the same conditions at
    the server. Which of them begins moves on by one from task to task: none always finds the server's cache cold.

    Args:
        systems: The systems.
        tasks: The tasks, in their order.
        seeds: The seeds.
    """
    plan: list[PlannedAttempt] = []
    for seed in seeds:
        for place, task in enumerate(tasks):
            first = place % len(systems)
            turn = [*systems[first:], *systems[:first]]
            plan.extend(PlannedAttempt(system=system, task=task, seed=seed) for system in turn)
    return plan


def still_to_do(
    plan: Sequence[PlannedAttempt], done: Mapping[AttemptKey, Attempt], *, retry_failed: bool
) -> list[PlannedAttempt]:
    """Return the attempts of a plan that a result file does not hold, in the same order.

    Args:
        plan: The plan.
        done: The attempts that are there.
        retry_failed: Whether those that failed as such count as not done.
    """
    held = {key for key, attempt in done.items() if attempt.error is None or not retry_failed}
    return [planned for planned in plan if planned.key not in held]
