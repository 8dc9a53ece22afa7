"""An export job that moves on each time it is looked at, with a new time stamp every time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import count

__all__ = ["export_tools"]

_STARTED = datetime(2031, 3, 4, 9, 15, 2, tzinfo=timezone.utc)
_PROGRESS = (10, 40, 80)


def export_tools() -> tuple[Callable[..., str], ...]:
    """Make the tools of one run; the job starts afresh.

    Returns:
        `job_status`.
    """
    looks = count()

    def job_status(job_id: str) -> str:
        """Current state of an export job; ask again while it is still running."""
        if job_id.strip().upper() != "EX-77":
            return "No such job. Jobs: EX-77."
        look = next(looks)
        at = (_STARTED + timedelta(seconds=37 * look)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if look < len(_PROGRESS):
            return f"{at} job EX-77: still running, {_PROGRESS[look]} % done, result not ready yet."
        return f"{at} job EX-77: finished, 100 % done. Rows written: 48,213. Checksum: c7f1-09ae."

    return (job_status,)
