"""A capable model in this process, served as an OpenAI API on loopback."""

from agentloop_autogen.models.local.server import MODEL_ID, LocalModelServer, build_app, local_chat_client

__all__ = ["MODEL_ID", "LocalModelServer", "build_app", "local_chat_client"]
