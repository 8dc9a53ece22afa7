"""The evidence of one run: one bounded record per tool result, bounded in total (Ē_t, eq. 1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from agentloop_autogen.core.config import LoopConfig
from agentloop_autogen.core.normalise import bounded_text, is_empty_result, replace_blobs
from agentloop_autogen.core.passages import MOST_TERMS, SCANNED_CHARS, key_passages, query_terms
from agentloop_autogen.core.records import Evidence
from agentloop_autogen.core.rounds import ToolCall, ToolResult

__all__ = ["EvidenceLog", "compress"]

_STUB_CHARS: Final = 160
_REMEMBERED: Final = 64
"""Shortened results remembered, for tools that return the same again."""
_MEGABYTES: Final = 8_000_000
"""Beyond it a result is cut before it is even searched for base64."""


def compress(text: str, limit: int, terms: Sequence[str] = ()) -> str:
    """Return a tool result as bounded text: short ones verbatim, long ones by head, tail and the passages asked for.

    Args:
        text: The result.
        limit: Characters to keep.
        terms: What was asked for, from `query_terms`; none: head and tail alone are kept.

    Returns:
        The text with base64 replaced by a mark.
    """
    if len(text) <= min(limit, 255):
        return text
    if len(text) > _MEGABYTES:
        text = bounded_text(text, _MEGABYTES)
    return key_passages(bounded_text(replace_blobs(text), SCANNED_CHARS), limit, terms)


class EvidenceLog:
    """Append-only evidence; over its bound the oldest pieces are shortened, then dropped. Ids are never reused."""

    def __init__(self, config: LoopConfig, *, request: str = "") -> None:
        self._terms = query_terms(request)
        self._shortened: dict[tuple[ToolCall, int, int], str] = {}
        self._finding_chars = config.max_finding_chars
        self._total_chars = config.max_evidence_chars
        self._old: deque[Evidence] = deque()
        self._recent: deque[Evidence] = deque()
        self._chars = 0
        self._count = 0

    def add(self, result: ToolResult) -> Evidence:
        """Append the evidence of one executed call and return it."""
        self._count += 1
        finding = self.shortened(result, self._finding_chars)
        unresolved = (result.call.name,) if result.is_error or is_empty_result(result.content) else ()
        evidence = Evidence(
            id=f"e{self._count}",
            tool=result.call.name,
            is_error=result.is_error,
            finding=finding,
            unresolved=unresolved,
        )
        self._recent.append(evidence)
        self._chars += len(finding)
        self._shrink()
        return evidence

    def shortened(self, result: ToolResult, limit: int) -> str:
        """Return the content of a result in about `limit` characters, by the words of the request and of its call."""
        if len(result.content) <= limit:
            return compress(result.content, limit)
        known = (result.call, hash(result.content), limit)
        if known not in self._shortened:
            if len(self._shortened) >= _REMEMBERED:
                self._shortened.clear()
            terms = (*query_terms(result.call.arguments), *self._terms)
            self._shortened[known] = compress(result.content, limit, terms[:MOST_TERMS])
        return self._shortened[known]

    def _shrink(self) -> None:
        while self._chars > self._total_chars and len(self._recent) > 1:
            oldest = self._recent.popleft()
            stub = bounded_text(oldest.finding, _STUB_CHARS)
            self._chars += len(stub) - len(oldest.finding)
            self._old.append(
                Evidence(
                    id=oldest.id,
                    tool=oldest.tool,
                    is_error=oldest.is_error,
                    finding=stub,
                    unresolved=oldest.unresolved,
                )
            )
        while self._chars > self._total_chars and self._old:
            self._chars -= len(self._old.popleft().finding)

    @property
    def items(self) -> Sequence[Evidence]:
        """All evidence kept, oldest first."""
        return (*self._old, *self._recent)

    def __bool__(self) -> bool:
        return self._count > 0
