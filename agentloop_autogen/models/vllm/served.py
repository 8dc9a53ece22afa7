"""What a server says about the models it serves, and what their names say about them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from autogen_core.models import ModelFamily, ModelInfo
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, ValidationError

__all__ = ["ModelLookUp", "ServedModel", "info_for", "read_models"]

_LOOK_UP_S: Final = 2.0
_LOOK_UP_AGAIN_S: Final = 30.0
_BRIEFLY: Final[Mapping[str, Any]] = {"timeout": _LOOK_UP_S, "max_retries": 0}

_SEES: Final = re.compile(
    r"(?<![a-z])(?:vlm?|vision|omni|multimodal)(?![a-z])|llava|pixtral|internvl|minicpm-[vo]|gemma-3-(?!1b|270m)|llama-4",
    re.IGNORECASE,
)
_R1: Final = re.compile(r"(?<![a-z])(?:deepseek-)?r1(?![a-z0-9])", re.IGNORECASE)


class ServedModel(BaseModel):
    """One entry of a server's list of models."""

    id: str
    """The name requests must give."""
    root: str | None = None
    """The weights behind the name; of an adapter, its folder."""
    max_model_len: int | None = None
    """Context length in tokens, the reply included; None: the server does not say."""


class _Listing(BaseModel):
    data: Sequence[ServedModel]


def read_models(body: object) -> tuple[ServedModel, ...]:
    """Read a `/v1/models` reply; none where it has another form, which is no fault.

    Args:
        body: The decoded body.
    """
    try:
        return tuple(_Listing.model_validate(body).data)
    except ValidationError:
        return ()


def info_for(name: str, root: str | None, given: Mapping[str, object]) -> ModelInfo:
    """Say what a model served by vLLM can do.

    Any model takes tools, JSON and schemas there; whether it sees images the server does not tell, its name does.

    Args:
        name: The name it is served under.
        root: The weights behind the name, where they are known.
        given: Entries the user knows better.
    """
    names = f"{name} {root or ''}"
    info: ModelInfo = {
        "vision": _SEES.search(names) is not None,
        "function_calling": True,
        "json_output": True,
        "structured_output": True,
        "family": ModelFamily.R1 if _R1.search(names) else ModelFamily.UNKNOWN,
        # The client joins them itself, wherever they stand.
        "multiple_system_messages": True,
    }
    info.update(given)  # type: ignore[typeddict-item]  # the same keys, as the user gave them
    return info


class ModelLookUp:
    """Looks a model up in a server's list, when it is first needed and never for long.

    Args:
        client: The SDK's client of the server.
        model: The name requests give.
    """

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self._client = client
        self._model = model
        self._tried_at: float | None = None
        self.served: ServedModel | None = None
        """The model as the server lists it; None: not looked up yet, or not to be had."""
        self.names: tuple[str, ...] = ()
        """All names the server has."""

    async def look_up(self) -> None:
        """Ask the server within two seconds, and not again for thirty where it does not answer; never raises."""
        if not self._is_due():
            return
        with suppress(Exception):  # A server that cannot be asked is found out by the request itself.
            page = await asyncio.wait_for(self._client.with_options(**_BRIEFLY).models.list(), _LOOK_UP_S)
            self._take(page)

    def look_up_now(self) -> None:
        """Do the same where nothing can be awaited; the calling thread waits two seconds at most."""
        if not self._is_due():
            return
        with suppress(Exception):  # As above.
            headers = {name: value for name, value in self._client.default_headers.items() if isinstance(value, str)}
            key, url = self._client.api_key, str(self._client.base_url)
            with OpenAI(api_key=key, base_url=url, default_headers=headers, **_BRIEFLY) as client:
                self._take(client.models.list())

    def _is_due(self) -> bool:
        now = time.monotonic()
        if self.served is not None or (self._tried_at is not None and now < self._tried_at + _LOOK_UP_AGAIN_S):
            return False
        # Set before the answer is there: of many first requests only one asks.
        self._tried_at = now
        return True

    def _take(self, page: BaseModel) -> None:
        models = read_models(page.model_dump())
        self.names = tuple(model.id for model in models)
        self.served = next((model for model in models if model.id == self._model), None)
