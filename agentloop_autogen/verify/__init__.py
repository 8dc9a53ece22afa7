"""Judging whether a request is answered: the interface, the model behind it, its prompts and its wire format."""

from agentloop_autogen.verify.base import SlotVerifier
from agentloop_autogen.verify.hinted import HintedSlotVerifier
from agentloop_autogen.verify.model_verifier import ModelSlotVerifier, ModelSlotVerifierConfig
from agentloop_autogen.verify.usage import TokenCounts, UsageMeter, collect_usage, record_usage
from agentloop_autogen.verify.wire import ParsedVerdict, parse_verdict

__all__ = [
    "HintedSlotVerifier",
    "ModelSlotVerifier",
    "ModelSlotVerifierConfig",
    "ParsedVerdict",
    "SlotVerifier",
    "TokenCounts",
    "UsageMeter",
    "collect_usage",
    "parse_verdict",
    "record_usage",
]
