"""What an exception of a model client means for the next attempt."""

from __future__ import annotations

import re
from enum import Enum

from pydantic import ValidationError

from agentloop_autogen.faults import causes_of, message_of, status_of
from agentloop_autogen.verify.usage import TokenCounts

__all__ = ["Fault", "classify", "refuses_logprobs", "salvage"]


class Fault(str, Enum):
    """What a failed call asks for."""

    FORMAT_REFUSED = "format_refused"
    """Server or client does not take the output format: ask for less of it."""
    TOO_LONG = "too_long"
    """The prompt does not fit the context: shorten it."""
    BROKEN = "broken"
    """Anything else: asking again changes nothing."""


_REFUSING_STATUS = frozenset({400, 404, 422, 501})
_TOO_LONG_STATUS = frozenset({400, 413, 422})
_REFUSING_ERRORS = (ValueError, NotImplementedError, KeyError, TypeError)
_TOO_LONG = re.compile(r"context|too long|too large|length|maximum.{0,40}tokens|tokens.{0,40}(?:exceed|maximum)", re.I)
_NOT_LENGTH = re.compile(r"max_?length|response_format|json_schema|grammar", re.I)


def classify(error: BaseException) -> Fault:
    """Tell what a failed call asks for.

    Args:
        error: What the client raised; the errors it was raised from count too.
    """
    status = status_of(error)
    text = " ".join(map(message_of, causes_of(error)))
    if status in _TOO_LONG_STATUS and _TOO_LONG.search(text) and not _NOT_LENGTH.search(text):
        return Fault.TOO_LONG
    if status in _REFUSING_STATUS or (status is None and isinstance(error, _REFUSING_ERRORS)):
        return Fault.FORMAT_REFUSED
    return Fault.BROKEN


def refuses_logprobs(error: BaseException) -> bool:
    """Whether a call failed because log probabilities were asked for.

    Args:
        error: What the client raised; the errors it was raised from count too.
    """
    return any("logprobs" in message_of(link) for link in causes_of(error))


def salvage(error: BaseException) -> tuple[str, TokenCounts | None] | None:
    """Get the reply back from an error that a client raised because it could not parse it.

    Args:
        error: What the client raised.

    Returns:
        The text of the reply and its tokens where they are known; None where the error holds no reply.
    """
    for link in causes_of(error):
        completion: object = getattr(link, "completion", None)
        if completion is not None:
            message: object = getattr(next(iter(getattr(completion, "choices", None) or ()), None), "message", None)
            return str(getattr(message, "content", None) or ""), getattr(completion, "usage", None)
        if isinstance(link, ValidationError):
            inputs = [details["input"] for details in link.errors(include_url=False, include_context=False)]
            texts = [item for item in inputs if isinstance(item, str) and "{" in item]
            if texts:
                return texts[0], None
    return None
