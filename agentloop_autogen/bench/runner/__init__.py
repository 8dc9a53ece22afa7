"""Runs a plan of attempts: resumable, bounded, and indifferent to the failure of any one of them."""

from agentloop_autogen.bench.runner.attempt import ExecutedAttempt, execute_attempt
from agentloop_autogen.bench.runner.pace import Pace
from agentloop_autogen.bench.runner.plan import PlannedAttempt, make_plan, still_to_do
from agentloop_autogen.bench.runner.progress import RunProgress, RunWatcher
from agentloop_autogen.bench.runner.ray_workers import RayWorkers
from agentloop_autogen.bench.runner.run import Execute, run_plan
from agentloop_autogen.bench.runner.settings import RunSettings

__all__ = [
    "Execute",
    "ExecutedAttempt",
    "Pace",
    "PlannedAttempt",
    "RayWorkers",
    "RunProgress",
    "RunSettings",
    "RunWatcher",
    "execute_attempt",
    "make_plan",
    "run_plan",
    "still_to_do",
]
