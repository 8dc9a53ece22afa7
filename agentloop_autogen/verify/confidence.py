"""How sure a verdict is, by the probabilities its flags were written with instead of the number the model states."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from autogen_core.models import ChatCompletionTokenLogprob, TopLogprob

from agentloop_autogen.core.records import Verdict

__all__ = ["LOGPROB_ARGS", "calibrated"]

LOGPROB_ARGS: Final[dict[str, Any]] = {"logprobs": True, "top_logprobs": 5}
"""Extra create arguments that ask for what `calibrated` needs; five alternatives hold both truth values in practice."""

_FLAGS: Final = ("answer_complete", "need_tool")
_FLAG: Final = re.compile(rf'"({"|".join(_FLAGS)})"\s*:\s*(true|false)'.encode())
_NO_LETTER: Final = re.compile(r"^[^a-z]+")


def calibrated(verdict: Verdict, logprobs: Sequence[ChatCompletionTokenLogprob] | None) -> Verdict:
    """Replace the stated confidence by the probability that both flags are as the model wrote them.

    At each flag the probability is that of the value written against the other one; what else the model might have put
    there, such as a blank, says nothing about the flag.

    Args:
        verdict: The verdict as it was read.
        logprobs: The tokens of the reply, with alternatives. None: the client has none.

    Returns:
        The verdict with its new confidence, also where a flag was corrected after it was read; as it was where the
        tokens do not hold both flags.
    """
    if not logprobs:
        return verdict
    tokens = [_bytes_of(token) for token in logprobs]
    # A reply may quote a verdict before it gives its own: the last one counts.
    written = {match[1]: match for match in _FLAG.finditer(b"".join(tokens))}
    if len(written) < len(_FLAGS):
        return verdict
    chances = [_chance(logprobs[_token_at(tokens, match.start(2))], match[2]) for match in written.values()]
    return verdict.model_copy(update={"confidence": math.prod(chances)})


def _bytes_of(token: ChatCompletionTokenLogprob) -> bytes:
    return bytes(token.bytes) if token.bytes is not None else token.token.encode(errors="replace")


def _token_at(tokens: Sequence[bytes], position: int) -> int:
    for index, token in enumerate(tokens):
        position -= len(token)
        if position < 0:
            return index
    raise IndexError("a match lies within the tokens it was found in")


def _chance(token: ChatCompletionTokenLogprob, value: bytes) -> float:
    written = _probability(token.logprob)
    alternatives = token.top_logprobs or ()
    others = [
        _probability(top.logprob) for top in alternatives if _begins(top, b"false" if value == b"true" else b"true")
    ]
    # An alternative that is not shown is at most as likely as the least likely one that is.
    unseen = min((_probability(top.logprob) for top in alternatives), default=1.0 - written)
    other = sum(others) if others else min(unseen, 1.0 - written)
    return written / (written + other) if written + other > 0 else 0.0


def _probability(logprob: float) -> float:
    return min(1.0, math.exp(logprob)) if logprob == logprob else 0.0


def _begins(top: TopLogprob, value: bytes) -> bool:
    """Whether an alternative starts a value, alone or behind the punctuation before it."""
    text = _NO_LETTER.sub("", bytes(top.bytes or ()).decode(errors="replace"))
    return bool(text) and value.startswith(re.split(r"[^a-z]", text)[0].encode())
