"""What an exception of a model client means for the next attempt, and how to tell of it without telling secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

from pydantic import ValidationError

from agentloop_autogen.verify.usage import TokenCounts

__all__ = ["Fault", "classify", "describe", "salvage"]


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
_SECRETS = re.compile(
    r"""(?ix)
    \b[a-z_-]*(?:api[_-]?key|authorization|token|password|secret)["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?[^\s,"'}]+
    | \b(?:bearer|basic)\s+\S+
    | \b(?:sk|pk|key)-[\w*-]{4,}
    | (?<=://)[^/\s@]+@
    | \b(?=[\w-]*\d)[\w-]{24,}\b
    """
)
_MAX_CAUSE_CHARS = 200
_MAX_CHAIN = 8


def classify(error: BaseException) -> Fault:
    """Tell what a failed call asks for.

    Args:
        error: What the client raised; the errors it was raised from count too.
    """
    status = _status(error)
    text = " ".join(map(_text, _chain(error)))
    if status in _TOO_LONG_STATUS and _TOO_LONG.search(text) and not _NOT_LENGTH.search(text):
        return Fault.TOO_LONG
    if status in _REFUSING_STATUS or (status is None and isinstance(error, _REFUSING_ERRORS)):
        return Fault.FORMAT_REFUSED
    return Fault.BROKEN


def describe(error: BaseException) -> str:
    """Put an error on one short line: its class and message, without anything that looks like a secret.

    Args:
        error: What the client raised.
    """
    kind, status = type(error).__name__, _status(error)
    if status in (401, 403):
        # Servers repeat the key they refused.
        return f"{kind}: the server refused the credentials (HTTP {status})"
    message = " ".join(_SECRETS.sub("***", _text(error)).split())
    line = f"{kind}: {message}" if message else kind
    return line if len(line) <= _MAX_CAUSE_CHARS else f"{line[: _MAX_CAUSE_CHARS - 1]}…"


def salvage(error: BaseException) -> tuple[str, TokenCounts | None] | None:
    """Get the reply back from an error that a client raised because it could not parse it.

    Args:
        error: What the client raised.

    Returns:
        The text of the reply and its tokens where they are known; None where the error holds no reply.
    """
    for link in _chain(error):
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


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be printed must not become another one here
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__


def _status(error: BaseException) -> int | None:
    for link in _chain(error):
        response: object = getattr(link, "response", None)
        for holder in (link, response):
            status: object = getattr(holder, "status_code", None)
            if isinstance(status, int):
                return status
    return None
