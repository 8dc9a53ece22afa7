"""A real vLLM server for the tests marked `vllm`: found, started, watched and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from agentloop_autogen.models import cache_folder

__all__ = ["MODEL", "Installation", "RealVLLM", "installed"]

MODEL = "smollm2"
"""The name the model is served under."""

_TEMPLATE = Path(__file__).parent / "tools.jinja"
_START_S = 240.0
_STOP_S = 20.0
_FLAGS = (
    *("--served-model-name", MODEL, "--host", "127.0.0.1"),
    *("--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "8192", "--max-num-seqs", "32", "--block-size", "32"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    *("--chat-template", str(_TEMPLATE)),
    # A small model held to JSON writes blank lines for ever where the grammar lets it.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
    "--enable-prompt-tokens-details",
)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What `scripts/install_vllm.sh` has installed."""

    python: Path
    model: Path


def installed() -> Installation | None:
    """Find the newest installation in the cache, None where there is none."""
    home = cache_folder() / "vllm"
    model = home / "SmolLM2-135M-Instruct"
    environments = sorted(mark.parent for mark in home.glob("env-*/ready"))
    if not environments or not (model / "ready").exists():
        return None
    return Installation(python=environments[-1] / "bin" / "python", model=model)


class RealVLLM:
    """A server in a process group of its own while its `with` block lasts.

    Args:
        installation: What to run.
        log: File its output goes to.
    """

    def __init__(self, installation: Installation, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self._root}/v1"
        self._log = log
        self._command = [
            *(str(installation.python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(installation.model), "--port", str(port), *_FLAGS),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        environment = {**os.environ, **offline, "VLLM_CPU_KVCACHE_SPACE": "2"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_until_healthy(self._process)
        except BaseException:  # Ctrl-C while it loads must not leave it running.
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def metrics(self) -> Mapping[str, float]:
        """Read the server's metrics, summed over their labels."""
        sums: dict[str, float] = {}
        for line in self._get("/metrics").splitlines():
            if line.startswith("vllm:"):
                name, value = line.split("{")[0].split(" ")[0], line.rsplit(" ", 1)[1]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_S
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self._get("/health")
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
            else:
                return
        tail = self._log.read_text(errors="replace")[-2_000:]
        message = f"vLLM did not come up within {_START_S:.0f} s; its log ends:\n{tail}"
        raise RuntimeError(message)

    def _get(self, path: str) -> str:
        # A proxy named in the environment must not see traffic on loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self._root}{path}", timeout=5) as reply:
            return reply.read().decode()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Its engine is a process of its own; the group holds both.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(_STOP_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
