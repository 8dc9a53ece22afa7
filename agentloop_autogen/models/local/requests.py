"""Checks what a client sends to the local server and fills in what it left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from agentloop_autogen.errors import UsageError
from agentloop_autogen.models.guided.wire import needs_guiding, to_guided_request

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "ApiError",
    "ToGrammar",
    "checked_body",
    "upstream_error",
    "upstream_fields",
    "with_grammar",
]

ToGrammar: TypeAlias = Callable[[Mapping[str, Any]], "str | None"]
"""Turns a JSON schema into what the inner server takes as `grammar`; None where it cannot."""

DEFAULT_MAX_TOKENS = 1024
"""Output cap of a request that names none, so that a degenerate model cannot run away."""


class ApiError(Exception):
    """A refusal in the shape OpenAI clients understand.

    Args:
        status: HTTP status.
        message: What is wrong and what mends it.
        code: Machine-readable reason.
        kind: OpenAI's error type. Default: "invalid_request_error".
    """

    def __init__(self, status: int, message: str, *, code: str, kind: str = "invalid_request_error") -> None:
        self.status = status
        self.code = code
        self.kind = kind
        super().__init__(message)

    def to_dict(self) -> dict[str, Any]:
        """The error as a response body."""
        return {"error": {"message": str(self), "type": self.kind, "code": self.code}}


def checked_body(raw: bytes, *, model_id: str) -> dict[str, Any]:
    """Read a chat completion request.

    Args:
        raw: The request body.
        model_id: The one model this server has.

    Returns:
        The request.

    Raises:
        ApiError: It is no JSON object, names another model, or is malformed.
    """
    try:
        decoded: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the request body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(decoded, dict):
        raise ApiError(400, "the request body must be a JSON object", code="invalid_json")
    body = cast("dict[str, Any]", decoded)
    model = body.get("model")
    if model is not None and model != model_id:
        message = f"the model {model!r} does not exist; this server has {model_id!r}"
        raise ApiError(404, message, code="model_not_found")
    if body.get("n") not in (None, 1):
        raise ApiError(400, "`n` must be 1: this server gives one choice per request", code="invalid_value")
    _check_tools(body)
    return body


def upstream_fields(body: Mapping[str, Any], *, model_id: str) -> dict[str, Any]:
    """The request as the inner server gets it: always streamed, with temperature 0 and an output cap by default.

    llama.cpp notices at every token of a stream that its client has gone; for a reply in one piece it may not
    notice while other requests are running.
    """
    fields = {key: value for key, value in body.items() if value is not None}
    cap = fields.pop("max_completion_tokens", None)
    fields.setdefault("max_tokens", cap if cap is not None else DEFAULT_MAX_TOKENS)
    fields.setdefault("temperature", 0)
    fields["model"] = model_id
    if not fields.get("stream"):
        fields.update(stream=True, stream_options={"include_usage": True})
    return fields


def with_grammar(fields: Mapping[str, Any], to_grammar: ToGrammar) -> dict[str, Any]:
    """Return a request that asks for JSON by a grammar instead of a `response_format`, where it asks for JSON at all.

    Args:
        fields: The request as the inner server would get it.
        to_grammar: Turns a schema into a grammar.
    """
    wanted: object = fields.get("response_format")
    kind = cast("Mapping[str, Any]", wanted).get("type") if isinstance(wanted, Mapping) else None
    if kind == "json_object":
        schema: object = {"type": "object"}
    elif kind == "json_schema":
        named: object = cast("Mapping[str, Any]", wanted).get("json_schema")
        schema = cast("Mapping[str, Any]", named).get("schema") if isinstance(named, Mapping) else None
    else:
        return dict(fields)
    grammar = to_grammar(cast("Mapping[str, Any]", schema)) if isinstance(schema, Mapping) else None
    if grammar is None:
        return dict(fields)
    return {**{key: value for key, value in fields.items() if key != "response_format"}, "grammar": grammar}


def upstream_error(status: int, raw: bytes, *, max_model_len: int) -> ApiError:
    """Translate a refusal of the inner server.

    Args:
        status: Its HTTP status.
        raw: Its body.
        max_model_len: The context length to name when the prompt is too long.

    Returns:
        The error to send on.
    """
    try:
        decoded: object = json.loads(raw)
    except ValueError:
        decoded = None
    found = cast("Mapping[str, Any]", decoded).get("error") if isinstance(decoded, Mapping) else None
    error: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}
    if error.get("type") == "exceed_context_size_error":
        message = (
            f"this model's maximum context length is {max_model_len} tokens, "
            f"but the messages hold {error.get('n_prompt_tokens', 'more')} tokens: shorten them"
        )
        return ApiError(400, message, code="context_length_exceeded")
    message = str(error.get("message") or raw.decode("utf-8", "replace").strip() or f"status {status}")
    if status < 500:
        return ApiError(status, message, code="invalid_request")
    return ApiError(status, f"the model failed: {message}", code="model_error", kind="server_error")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if tools is not None and (not isinstance(tools, list) or not tools):
        raise ApiError(400, "`tools` must not be an empty list: leave it out instead", code="invalid_tools")
    if tools is None and body.get("tool_choice") not in (None, "none"):
        raise ApiError(400, "`tool_choice` needs `tools` to be set", code="invalid_tool_choice")
    try:
        needs_guiding(body)
        to_guided_request(body)
    except UsageError as error:
        raise ApiError(400, str(error), code="invalid_request") from None
    except (TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ApiError(400, f"the request is malformed: {error}", code="invalid_request") from None
