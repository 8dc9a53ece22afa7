"""Runs the counted endpoint on a loopback port, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import Self

from agentloop_autogen.bench.endpoint.traffic import AttemptTraffic
from agentloop_autogen.bench.endpoint.upstream import Upstream, UpstreamQueue
from agentloop_autogen.errors import MissingExtraError, ModelError, UsageError

if TYPE_CHECKING:
    import uvicorn

    from agentloop_autogen.bench.endpoint.app import CountingProxy

__all__ = ["CountedEndpoint"]

_START_S: Final = 15.0
_STOP_S: Final = 5.0


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
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @asynccontextmanager
    async def attempt(self, decoding: Mapping[str, Any]) -> AsyncGenerator[AttemptTraffic, None]:
        """Open a path for one attempt; at the end of the block its traffic is complete.

        Args:
            decoding: Fields for requests that do not set them, such as `max_tokens`, `temperature` and `seed`.

        Yields:
            The traffic, whose `base_url` is where the system finds the model.
        """
        if self._proxy is None or self._proxy.loop is None or self._socket is None:
            raise ModelError("the counted endpoint is not running: open it with `with`")
        token = uuid.uuid4().hex
        port = self._socket.getsockname()[1]
        traffic = AttemptTraffic(f"http://127.0.0.1:{port}/attempts/{token}/v1", decoding)
        self._proxy.open_attempts[token] = traffic
        try:
            yield traffic
        finally:
            settling = asyncio.run_coroutine_threadsafe(self._proxy.settle(token), self._proxy.loop)
            await asyncio.wrap_future(settling)

    def _start(self) -> None:
        try:
            import uvicorn

            from agentloop_autogen.bench.endpoint.app import CountingProxy
        except ImportError:
            raise MissingExtraError("the benchmark", "bench") from None
        self._proxy = CountingProxy(self._queues)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            self._proxy.app,
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        sockets = {"sockets": [self._socket]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, name="agentloop-bench", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._stop()
                raise ModelError(f"the counted endpoint did not come up within {_START_S:.0f} s: try again")
            time.sleep(0.01)

    def _stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_S)
        if self._socket is not None:
            self._socket.close()
        self._proxy = self._socket = self._server = self._thread = None
