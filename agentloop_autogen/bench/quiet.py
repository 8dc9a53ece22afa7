"""Keeps the remarks of libraries off a terminal that shows a benchmark run."""

from __future__ import annotations

import logging
import warnings
from typing import Final

__all__ = ["quiet_libraries"]

_UNHEARD: Final = logging.NullHandler()


def quiet_libraries() -> None:
    """Silence what is no news: failed turns are errors in the results, and remarks on types concern nobody here."""
    # In a team AutoGen logs the traceback of every turn that fails; without a handler that goes to the terminal.
    logging.getLogger("autogen_core").addHandler(_UNHEARD)
    # AutoGen's client dumps each parsed reply for its log, and pydantic remarks on the type of the parsed part.
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings", category=UserWarning)
