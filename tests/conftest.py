"""Shared set-up of the tests."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need the real local model unless `-m` asks for them, and say how to turn them on."""
    if "local_model" in (config.getoption("-m") or ""):
        return
    skip = pytest.mark.skip(
        reason="needs the local model; run `pytest -m local_model` with the extras local,local-weights"
    )
    for item in items:
        if "local_model" in item.keywords:
            item.add_marker(skip)
