"""Errors of other people's code, told on one line that gives no secret away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["causes_of", "describe_error", "message_of", "status_of", "without_secrets"]

_MAX_CHARS: Final = 300
_MAX_READ: Final = 4_000
_MAX_CHAIN: Final = 8
_UNAUTHORISED: Final = 401
# Whoever reads the line still learns what kind of secret it was: group 1 stays.
_SECRETS: Final = re.compile(
    r"""
      (   # a name that says so, then its value: api_key=..., "password": "...", Incorrect API key provided: ...
        (?:api[ _-]?key(?:\s+\w+)?|access[ _-]?key|authorization|token|passw(?:or)?d|secret)
        (?:\\?["'])?\s*[:=]\s*
      )
      (?:"[^"]*"|'[^']*'|\\?["']?(?:(?:bearer|basic)\s+)?[^\s,"'}\\&]+)
    | ([?&](?:key|sig|signature)=)[^\s&"']+
    | \b(?:bearer|basic)\s+(?!(?:auth\w*|tokens?|credentials?)(?![\w.~+/*=-]))[\w.~+/*=-]{4,}
    | \b(?:sk|pk|rk)-[\w*-]{4,}
    | \b(?:sk|pk|rk|hf|gh[a-z]|github_pat|xox[a-z]|glpat|gsk|nvapi)[_-](?=\w*\d)[\w*-]{12,}
    | \beyJ[\w-]{8,}(?:\.[\w-]+)*
    | (?<=://)[^/?\#\s"']+(?=@)
    | \b(?=[a-z]*\d)[a-z\d]{24,}\b
    """,
    re.VERBOSE | re.IGNORECASE,
)


def describe_error(error: BaseException) -> str:
    """Put an error on one line of at most 300 characters: its class and its message, secrets masked.

    Args:
        error: What was raised.
    """
    kind = type(error).__name__
    if status_of(error) == _UNAUTHORISED:
        # Servers repeat the key they refused, in words nobody can foresee.
        return f"{kind}: the server refused the credentials (HTTP {_UNAUTHORISED})"
    message = " ".join(without_secrets(message_of(error)[:_MAX_READ]).split())
    line = f"{kind}: {message}" if message else kind
    return line if len(line) <= _MAX_CHARS else f"{line[: _MAX_CHARS - 1]}…"


def without_secrets(text: str) -> str:
    """Mask what looks like a key, a token or a password.

    Args:
        text: Anything; work is linear in its length.
    """
    return _SECRETS.sub(lambda match: f"{match.group(1) or match.group(2) or ''}***", text)


def message_of(error: BaseException) -> str:
    """Return the message of an error as it is; empty where there is none.

    Args:
        error: What was raised.
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even be printed must not become another one here
        return ""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the ones it was raised from, eight at most.

    Args:
        error: What was raised.
    """
    link: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        if link is None:
            return
        yield link
        link = link.__cause__


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status an error, or one it was raised from, stands for; None where there is none.

    Args:
        error: What was raised.
    """
    for link in causes_of(error):
        response: object = getattr(link, "response", None)
        for holder in (link, response):
            status: object = getattr(holder, "status_code", None)
            if isinstance(status, int):
                return status
    return None
