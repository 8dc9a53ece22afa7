"""The model of a benchmark run: one or several servers that have it, or this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from agentloop_autogen.bench.endpoint import AppServer, Upstream
from agentloop_autogen.console.bench_options import BenchRun
from agentloop_autogen.console.models import NO_KEY, probe_server, server_key, serving
from agentloop_autogen.console.options import ModelPlace
from agentloop_autogen.errors import ModelError, UsageError

__all__ = ["ServedModel", "open_served"]

_CONTEXT: Final = 8192
_ASK_S: Final = 5.0
_WARM_S: Final = 300.0
_UNNAMED: Final = "server"
_API: Final = "/v1"


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """The model of a run."""

    name: str
    kind: str
    """What serves it, as it calls itself."""
    context_length: int
    upstreams: tuple[Upstream, ...]


class _Listed(BaseModel):
    model_config = ConfigDict(extra="ignore")

    id: str
    owned_by: str = _UNNAMED
    max_model_len: int | None = None


class _Listing(BaseModel):
    data: list[_Listed]


@contextmanager
def open_served(run: BenchRun) -> Generator[ServedModel]:
    """Open the model a run asks for, and close what was started for it afterwards.

    Args:
        run: The run.

    Yields:
        The model.

    Raises:
        UsageError: The options cannot be met as they stand, or the servers differ.
        ModelError: A server cannot be reached, or does not start.
    """
    options = run.places.options
    with ExitStack() as stack:
        if options.place is ModelPlace.LOCAL:
            server = stack.enter_context(serving(options.weights, parallel=max(2, run.concurrency)))
            upstreams, name = (Upstream(base_url=server.base_url),), server.model_id
            _warm_up(server.base_url, name)
        else:
            key = server_key(options.api_key_env)
            upstreams, name = tuple(Upstream(base_url=url, api_key=key) for url in run.places.base_urls), options.model
            for upstream in upstreams:
                probe_server(upstream.base_url, name, key)
        told = {_look_up(upstream, name) for upstream in upstreams}
        if len(told) > 1:
            raise UsageError("the servers differ in kind or context length: give --base-url those that are alike")
        kind, context_length = told.pop()
        if run.guided:
            upstreams = tuple(stack.enter_context(_guided(upstream, name, context_length)) for upstream in upstreams)
        yield ServedModel(name=name, kind=kind, context_length=context_length, upstreams=upstreams)


def _warm_up(base_url: str, name: str) -> None:
    """Let the weights come into memory before the first attempt, which would otherwise pay for it alone."""
    body = {"model": name, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
    try:
        httpx.post(f"{base_url}/chat/completions", json=body, timeout=_WARM_S, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        problem = f"the local model does not answer ({type(error).__name__}): see to free memory, and try again"
        raise ModelError(problem) from error


@contextmanager
def _guided(upstream: Upstream, name: str, context_length: int) -> Generator[Upstream]:
    """Put guided tool calling before a server, so that every system gets the same."""
    from agentloop_autogen.models import build_app

    if upstream.api_key not in (None, NO_KEY):
        raise UsageError("--tool-mode guided passes no key on: leave --api-key-env out, or serve without a key")
    if not upstream.base_url.endswith(_API):
        raise UsageError(f"--tool-mode guided needs a --base-url that ends in {_API}, not {upstream.base_url}")
    with AppServer(build_app(upstream.base_url.removesuffix(_API), name, context_length)) as server:
        yield Upstream(base_url=f"{server.url}{_API}")


def _look_up(upstream: Upstream, name: str) -> tuple[str, int]:
    """What a server says it is, and how much context it has; the common answer where it does not say."""
    headers = {"Authorization": f"Bearer {upstream.api_key}"}
    try:
        reply = httpx.get(f"{upstream.base_url}/models", headers=headers, timeout=_ASK_S)
        listed = _Listing.model_validate_json(reply.content).data
    except (httpx.HTTPError, ValidationError):
        listed = []
    found = next((model for model in listed if model.id == name), _Listed(id=name))
    return found.owned_by, found.max_model_len or _CONTEXT
