"""What the command line says about a benchmark run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Self

from agentloop_autogen.console.options import ModelOptions

__all__ = ["BenchRun", "ModelPlaces"]


@dataclass(frozen=True, kw_only=True)
class ModelPlaces:
    """Where the model is served: in this process, or at one or several servers."""

    base_urls: tuple[str, ...] = ()
    """Empty: in this process."""
    options: ModelOptions

    @classmethod
    def of(cls, options: ModelOptions) -> Self:
        """Read what was said about the model; several base URLs stand in one, with commas between.

        Args:
            options: What was said.
        """
        urls = (url.strip().rstrip("/") for url in options.base_url.split(","))
        return cls(base_urls=tuple(dict.fromkeys(url for url in urls if url)), options=options)


@dataclass(frozen=True, kw_only=True)
class BenchRun:
    """One run of the benchmark."""

    systems: tuple[str, ...]
    families: tuple[str, ...]
    places: ModelPlaces
    out: Path
    data: Path | None = None
    limit: int | None = None
    half: str | None = None
    """None: both halves."""
    order: int = 0
    """Which order of the tasks, and so which sample of them where there is a limit."""
    seeds: tuple[int, ...] = field(default=(0,))
    rounds: int = 10
    timeout_s: float = 180.0
    max_completion_tokens: int = 512
    temperature: float = 0.0
    stream: bool = False
    guided: bool = False
    concurrency: int = 1
    most_requests: int | None = None
    """Requests at once at each endpoint. None: no limit."""
    rate: float | None = None
    poisson: bool = False
    retry_failed: bool = False
    ray: str | None = None
    """Address of a Ray cluster; empty: one on this machine. None: no Ray."""
    workers: int = 2
    """Workers that Ray runs."""
