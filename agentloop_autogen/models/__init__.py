"""Model clients, the local model server, and where its weights come from."""

from __future__ import annotations

from .guided import GuidedToolCallingClient, GuidedToolCallingClientConfig
from .local_server import MODEL_ID, LocalModelServer, build_app, local_chat_client
from .weights import QWEN_CODER, ModelFile, Progress, WeightsStage, cache_folder, resolve_weights

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
