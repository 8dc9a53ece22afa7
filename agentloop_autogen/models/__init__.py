"""Model clients, the local model server, and where its weights come from."""

from __future__ import annotations

from agentloop_autogen.models.guided import GuidedToolCallingClient, GuidedToolCallingClientConfig
from agentloop_autogen.models.local import MODEL_ID, LocalModelServer, build_app, local_chat_client
from agentloop_autogen.models.weights import (
    QWEN_CODER,
    ModelFile,
    Progress,
    WeightsStage,
    cache_folder,
    resolve_weights,
)

__all__ = [
    "MODEL_ID",
    "QWEN_CODER",
    "GuidedToolCallingClient",
    "GuidedToolCallingClientConfig",
    "LocalModelServer",
    "ModelFile",
    "Progress",
    "WeightsStage",
    "build_app",
    "cache_folder",
    "local_chat_client",
    "resolve_weights",
]
