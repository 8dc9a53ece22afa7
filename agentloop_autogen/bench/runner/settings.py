"""What has to be the same for attempts to be compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from agentloop_autogen.bench.systems.system import Limits

__all__ = ["RunSettings"]

_DIGEST_CHARS: Final = 16


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings all attempts of a result file share; their seeds may differ."""

    model: str
    limits: Limits
    endpoint_kind: str = "server"
    """What serves the model, as it calls itself."""
    context_length: int = 8192
    guided: bool = False
    """Whether tool calls are guided at the endpoint, for models that cannot call tools."""

    @property
    def digest(self) -> str:
        """A short name for exactly these settings."""
        told = {**asdict(self), "limits": {**asdict(self.limits), "seed": None}}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:_DIGEST_CHARS]

    def limits_of(self, seed: int) -> Limits:
        """Return the limits of an attempt with this seed."""
        return replace(self.limits, seed=seed)

    def decoding_of(self, seed: int) -> dict[str, Any]:
        """Return the fields of a request that does not say how to decode, in an attempt with this seed."""
        return {
            "max_tokens": self.limits.max_completion_tokens,
            "temperature": self.limits.temperature,
            "seed": seed,
        }
