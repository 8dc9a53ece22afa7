"""Runs llama.cpp in this process, on a loopback port of its own."""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentloop_autogen.errors import LocalServerError, MissingExtraError, WeightsError
from agentloop_autogen.models.local.one_line import can_be_bound, on_one_line

__all__ = ["Engine", "EngineOptions", "one_line_grammar"]

_CACHE_RAM_MIB = 1024
"""Memory for prompts whose slot went to another conversation, so that they need not be read again."""

_WAIT_POLICY = "OMP_WAIT_POLICY"

_LLGUIDANCE = "%llguidance"


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the model is run."""

    weights: Path
    model_id: str
    context_length: int
    """Tokens one request may hold, its reply included."""
    parallel: int
    """Requests served at once, each with a context of its own."""
    threads: int | None
    """None: one per CPU this process may use."""


class Engine:
    """A running llama.cpp server.

    Args:
        options: How to run it.

    Raises:
        MissingExtraError: llama.cpp is not installed.
        WeightsError: The weights file is not there.
        LocalServerError: llama.cpp could not load the model.
    """

    def __init__(self, options: EngineOptions) -> None:
        binding = _binding()
        if not options.weights.is_file():
            raise WeightsError(f"there is no weights file at {options.weights}: check the path")
        try:
            self._server: Any = binding.Server(_params(binding.CommonParams(), options))
        except Exception as error:  # The C++ side raises whatever its binding maps to.
            message = f"the model at {options.weights} could not be loaded ({error}): check the file and free memory"
            raise LocalServerError(message) from error
        self.url: str = str(self._server.listening_address).rstrip("/")

    def close(self) -> None:
        """Stop the server and free the model; calling it again does nothing."""
        # The binding stops its threads when the last reference goes.
        self._server = None


def one_line_grammar(schema: Mapping[str, Any]) -> str | None:
    """Return the grammar of JSON by a schema, written on one line.

    Args:
        schema: A JSON schema.

    Returns:
        What the server takes as `grammar`; None where the schema or this build has no way to say it.
    """
    if not can_be_bound(schema):
        return None
    try:
        grammar = str(_binding().json_schema_to_grammar(on_one_line(schema)))
    except Exception:  # noqa: BLE001 - the C++ side raises whatever its binding maps to, and the server says it better
        return None
    return grammar if grammar.startswith(_LLGUIDANCE) else None


def _binding() -> Any:  # noqa: ANN401 - the binding has no type information
    try:
        with _patient_threads():
            return importlib.import_module("xllamacpp")
    except ImportError:
        raise MissingExtraError("the local model", "local") from None


@contextmanager
def _patient_threads() -> Generator[None, None, None]:
    """Let OpenMP threads sleep at their barriers, unless the user has decided otherwise.

    They spin by default, and with one other busy process on the machine generation then slows down thirtyfold.
    OpenMP reads the variable once, when it is loaded, so it need not stay set for this process's children.
    """
    if _WAIT_POLICY in os.environ:
        yield
        return
    os.environ[_WAIT_POLICY] = "PASSIVE"
    try:
        yield
    finally:
        os.environ.pop(_WAIT_POLICY, None)


def _cpus() -> int:
    # In a container the machine may have more CPUs than this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _params(params: Any, options: EngineOptions) -> Any:  # noqa: ANN401 - the binding has no type information
    threads = options.threads or _cpus()
    params.model.path = str(options.weights)
    params.model_alias = {options.model_id}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = options.context_length * options.parallel
    params.n_parallel = options.parallel
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.use_jinja = True
    # A conversation that ends with the model's own words is a finished turn, as on other servers; two would be refused.
    params.prefill_assistant = False
    params.cache_prompt = True
    params.cache_ram_mib = _CACHE_RAM_MIB
    params.ui = False
    params.warmup = False
    params.offline = True
    # Nothing may be written to this process's own output.
    params.verbosity = 0
    return params
