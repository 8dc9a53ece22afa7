"""Serves an application on a free loopback port, in a thread of its own."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from typing_extensions import Self

from agentloop_autogen.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["AppServer"]

_START_S: Final = 15.0
_STOP_S: Final = 5.0


class AppServer:
    """Serves an application while its `with` block lasts.

    Args:
        app: The application.

    Raises:
        MissingExtraError: The server is not installed.
    """

    def __init__(self, app: Starlette) -> None:
        try:
            import uvicorn
        except ImportError:
            raise MissingExtraError("the benchmark", "bench") from None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        """Where it is served."""
        config = uvicorn.Config(
            app,
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

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self._stop()
                raise ModelError(f"a server on loopback did not come up within {_START_S:.0f} s: try again")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_S)
        self._socket.close()
