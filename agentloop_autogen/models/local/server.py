"""Serves a small but capable model from this process as an OpenAI API on loopback, tool calls included."""

from __future__ import annotations

import asyncio
import atexit
import errno
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from agentloop_autogen.errors import LocalServerError, MissingExtraError, UsageError
from agentloop_autogen.models.local.engine import Engine, EngineOptions, one_line_grammar

if TYPE_CHECKING:
    import uvicorn
    from autogen_ext.models.openai import OpenAIChatCompletionClient
    from starlette.applications import Starlette

    from agentloop_autogen.models.local.requests import ToGrammar

__all__ = ["MODEL_ID", "LocalModelServer", "build_app", "local_chat_client"]

MODEL_ID = "qwen2.5-coder-1.5b-instruct"
"""The id under which the local model is served."""

_START_S = 15.0
_STOP_S = 5.0


def build_app(
    upstream_base_url: str, model_id: str, max_model_len: int, *, to_grammar: ToGrammar | None = None
) -> Starlette:
    """Build the OpenAI front of a server that cannot call tools.

    Args:
        upstream_base_url: The inner server, without `/v1`.
        model_id: The id of its one model.
        max_model_len: Its context length, as `/v1/models` reports it.
        to_grammar: Turns a JSON schema into what the inner server takes as `grammar`, or into None where it cannot.
            None: schemas are sent on as they are.

    Returns:
        An application with `/health`, `/v1/models` and `/v1/chat/completions`.

    Raises:
        MissingExtraError: Starlette or httpx is not installed.
    """
    try:
        from agentloop_autogen.models.local.app import build_front
    except ImportError:
        raise MissingExtraError("the local model", "local") from None
    return build_front(upstream_base_url, model_id, max_model_len, to_grammar)


class LocalModelServer:
    """Runs a model in this process and serves it as an OpenAI API until it is stopped.

    Use it as a context manager, `with` or `async with`, or call `start` and `stop`. Both may be called again.

    Args:
        weights: The model's GGUF file.
        host: Address to listen on. Default: loopback; any other address opens the model to the network.
        port: Port to listen on. Default: 0, any free one.
        model_id: Name of the model. Default: the id of the model `resolve_weights` finds.
        context_length: Tokens one request may hold, its reply included. Default: 8192.
        parallel: Requests served at once. Default: 2.
        threads: CPU threads. Default: None, one per CPU.

    Raises:
        UsageError: A number is out of range.
    """

    def __init__(
        self,
        weights: str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        model_id: str = MODEL_ID,
        context_length: int = 8192,
        parallel: int = 2,
        threads: int | None = None,
    ) -> None:
        if not 0 <= port <= 65535:
            raise UsageError(f"the port must be between 0 and 65535, not {port}")
        if context_length < 1 or parallel < 1 or (threads is not None and threads < 1):
            raise UsageError("context_length, parallel and threads must be at least 1")
        self.model_id = model_id
        self.context_length = context_length
        self._host = host
        self._wanted_port = port
        self._options = EngineOptions(
            weights=Path(weights).expanduser(),
            model_id=model_id,
            context_length=context_length,
            parallel=parallel,
            threads=threads,
        )
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on.

        Raises:
            LocalServerError: The server is not running.
        """
        if self._socket is None:
            raise LocalServerError("the local model server is not running: start it first")
        return int(self._socket.getsockname()[1])

    @property
    def base_url(self) -> str:
        """The URL an OpenAI client takes, `/v1` included.

        Raises:
            LocalServerError: The server is not running.
        """
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/v1"

    @property
    def running(self) -> bool:
        """Whether it serves requests now."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Self:
        """Load the model and serve it; returns at once when it is running already.

        Returns:
            The server itself.

        Raises:
            MissingExtraError: The extra `local` is not installed.
            WeightsError: The weights file is not there.
            LocalServerError: The port is taken, the model does not load, or the server does not come up.
        """
        with self._lock:
            if self.running:
                return self
            _check_extra()
            atexit.register(self.stop)
            try:
                self._socket = _listen(self._host, self._wanted_port)
                self._engine = Engine(self._options)
                self._serve(self._engine.url, self._socket)
            except BaseException:  # Ctrl-C while the model loads must free port and memory, too.
                self._tear_down()
                raise
        return self

    def stop(self) -> None:
        """Stop serving, cut off requests that are still running, and free the model; safe to call again."""
        with self._lock:
            self._tear_down()

    def wait(self) -> None:
        """Block until the server is stopped or the caller is interrupted."""
        while self.running:
            time.sleep(0.2)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _serve(self, upstream: str, listener: socket.socket) -> None:
        import uvicorn

        config = uvicorn.Config(
            build_app(upstream, self.model_id, self.context_length, to_grammar=one_line_grammar),
            loop="asyncio",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="agentloop-local-model", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise LocalServerError(f"the local model server did not come up within {_START_S:.0f} s: try again")
            time.sleep(0.01)

    def _tear_down(self) -> None:
        atexit.unregister(self.stop)
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_S)
        if self._socket is not None:
            self._socket.close()
        if self._engine is not None:
            self._engine.close()
        self._engine = self._socket = self._server = self._thread = None


def local_chat_client(server: LocalModelServer) -> OpenAIChatCompletionClient:
    """Build AutoGen's own OpenAI client for a running local server.

    Args:
        server: The server, running.

    Returns:
        A client that knows what the model can do and counts tokens when streaming, too.

    Raises:
        MissingExtraError: AutoGen's OpenAI client is not installed.
        LocalServerError: The server is not running.
    """
    try:
        from autogen_ext.models.openai import OpenAIChatCompletionClient
    except ImportError:
        raise MissingExtraError("the local model", "local") from None
    return OpenAIChatCompletionClient(
        model=server.model_id,
        base_url=server.base_url,
        api_key="local",
        stream_options={"include_usage": True},
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": "unknown",
            "multiple_system_messages": True,
        },
    )


def _check_extra() -> None:
    try:
        import httpx
        import starlette
        import uvicorn
    except ImportError:
        raise MissingExtraError("the local model", "local") from None
    del httpx, starlette, uvicorn


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise LocalServerError(f"port {port} on {host} is taken: choose another, or 0 for any free one") from None
        raise LocalServerError(f"cannot listen on {host}:{port} ({error.strerror}): choose another address") from None
    return listener
