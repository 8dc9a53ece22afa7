"""Where the tests find the published task sets: `AGENTLOOP_DATA`, or `shared/data` beside the repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

_BESIDE: Final = Path(__file__).parents[2] / "shared" / "data"

DATA: Final = Path(os.environ.get("AGENTLOOP_DATA") or _BESIDE)

needs_data = pytest.mark.skipif(
    not (DATA / "tasks").is_dir(), reason=f"needs the task sets: set AGENTLOOP_DATA, or put them in {_BESIDE}"
)
