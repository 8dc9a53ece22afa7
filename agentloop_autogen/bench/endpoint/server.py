"""Runs the counted endpoint on a loopback port, in a thread of its own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from agentloop_autogen.bench.endpoint.app_server import AppServer
from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.endpoint.upstream import Upstream, UpstreamQueue
from agentloop_autogen.errors import MissingExtraError, ModelError, UsageError

if TYPE_CHECKING:
    from agentloop_autogen.bench.endpoint.app import CountingProxy

__all__ = ["CountedEndpoint"]


class CountedEndpoint:
    """A reverse proxy before one or several real endpoints that counts the model traffic of each attempt.

    Requests and replies pass as they are, with three exceptions that are the same for every system: a request that does
    not set the output cap, temperature or seed gets them filled in; a streamed one is asked for its usage; and a usage
    chunk the system did not ask for is kept from it. It lives in a thread of its own, so that a busy event loop of the
    runner neither delays a reply nor its time of arrival.

    Args:
        upstreams: The real endpoints; an attempt stays at the one it first got, the least busy then.
        most_requests: Requests each gets at once, the others wait in order. None: any number.

    Raises:
        UsageError: There is no endpoint, or the number is below 1.
    """

    def __init__(self, upstreams: Sequence[Upstream], *, most_requests: int | None = None) -> None:
        if not upstreams:
            raise UsageError("a counted endpoint needs at least one real endpoint: give its base URL")
        self._queues = [UpstreamQueue(upstream, most=most_requests) for upstream in upstreams]
        self._proxy: CountingProxy | None = None
        self._server: AppServer | None = None

    def __enter__(self) -> Self:
        try:
            from agentloop_autogen.bench.endpoint.app import CountingProxy
        except ImportError:
            raise MissingExtraError("the benchmark", "bench") from None
        self._proxy = CountingProxy(self._queues)
        self._server = AppServer(self._proxy.app).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.__exit__(kind, error, trace)
        self._proxy = self._server = None

    @asynccontextmanager
    async def attempt(self, decoding: Mapping[str, Any]) -> AsyncGenerator[AttemptTraffic, None]:
        """Open a path for one attempt; at the end of the block its traffic is complete.

        Args:
            decoding: Fields for requests that do not set them, such as `max_tokens`, `temperature` and `seed`.

        Yields:
            The traffic, whose `base_url` is where the system finds the model.
        """
        if self._proxy is None or self._proxy.loop is None or self._server is None:
            raise ModelError("the counted endpoint is not running: open it with `with`")
        token = uuid.uuid4().hex
        traffic = AttemptTraffic(f"{self._server.url}/attempts/{token}/v1", decoding)
        self._proxy.open_attempts[token] = traffic
        try:
            yield traffic
        finally:
            settling = asyncio.run_coroutine_threadsafe(self._proxy.settle(token), self._proxy.loop)
            await asyncio.wrap_future(settling)
