"""The command as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(**more: str) -> dict[str, str]:
    """The environment of a process, without the user's wishes about colour."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def command(*args: str) -> list[str]:
    """The words that start `agentloop` with these arguments."""
    return [sys.executable, "-c", "import sys; from agentloop_autogen.cli import main; sys.exit(main())", *args]
