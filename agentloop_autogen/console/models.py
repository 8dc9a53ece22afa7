"""Where the model of a run comes from: a server, this process, or a recording."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from typing_extensions import assert_never

from agentloop_autogen.console.options import ModelOptions, ModelPlace
from agentloop_autogen.console.tape import TapePlayer, TapeRecorder, load_tape
from agentloop_autogen.errors import ModelError, UsageError

if TYPE_CHECKING:
    from autogen_core.models import ChatCompletionClient

    from agentloop_autogen.models import LocalModelServer
    from agentloop_autogen.scenario import Scenario

__all__ = ["NO_KEY", "RunModel", "open_judge", "open_model", "probe_server", "server_key", "serving"]

_PROBE_S = 5.0
NO_KEY = "none"
"""What a server that asks for no key is given as one."""


class _ListedModel(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: list[_ListedModel]


@dataclass(frozen=True, kw_only=True)
class RunModel:
    """The model clients of one run."""

    planner: ChatCompletionClient
    """Plans and answers."""
    verifier: ChatCompletionClient
    name: str
    """The model's name, as a recording states it."""
    label: str
    """The model and its place, as a person reads it."""
    player: TapePlayer | None = None
    recorder: TapeRecorder | None = None

    async def close(self) -> None:
        """Close the clients."""
        await self.planner.close()
        if self.verifier is not self.planner:
            await self.verifier.close()

    def check_followed(self) -> None:
        """See that a finished run followed the recording it ran on, if it ran on one.

        Raises:
            ModelError: It did not.
        """
        if self.player is not None and self.player.problem():
            raise ModelError(self.player.problem())

    def save_tape(self, scenario: Scenario, *, policy: str) -> None:
        """Write down the replies of a finished run.

        Args:
            scenario: What ran.
            policy: The policy it ran under.

        Raises:
            UsageError: There is nothing whole to write, or the file cannot be written.
        """
        if self.recorder is not None:
            self.recorder.save(
                scenario=scenario.name,
                request=scenario.asked,
                model=self.name,
                recorded=date.today().isoformat(),
                policy=policy,
            )


@contextmanager
def open_model(options: ModelOptions, scenario: Scenario, *, tape: Path) -> Generator[RunModel]:
    """Open the model a run asks for, and close what was started for it afterwards.

    Args:
        options: What the command line says about the model.
        scenario: What will run.
        tape: Where its recording lies.

    Yields:
        The clients.

    Raises:
        UsageError: The options cannot be met as they stand.
        ModelError: The model cannot be reached or started.
    """
    match options.place:
        case ModelPlace.RECORDED:
            yield _recorded(tape, scenario)
        case ModelPlace.SERVER:
            yield _recording(_served(options), options)
        case ModelPlace.LOCAL:
            with _local(options) as model:
                yield _recording(model, options)
        case _:
            assert_never(options.place)


@contextmanager
def open_judge(options: ModelOptions) -> Generator[ChatCompletionClient]:
    """Open the model that gives verdicts on recorded rounds, and close what was started for it afterwards.

    Args:
        options: What the command line says about the model.

    Yields:
        Its client; it must be closed in the event loop it was used in.

    Raises:
        UsageError: The options cannot be met as they stand.
        ModelError: The model cannot be reached or started.
    """
    if options.place is ModelPlace.LOCAL:
        with _local(options) as model:
            yield model.verifier
    else:
        yield _served(options).verifier


def _recorded(path: Path, scenario: Scenario) -> RunModel:
    from agentloop_autogen.recording import RecordedClient

    if not path.is_file():
        mend = f"give --local, or --base-url URL --model NAME, and --record {path} in place of --recorded"
        raise UsageError(f"scenario `{scenario.name}` has no recording; to make one, {mend}")
    tape = load_tape(path)
    if (tape.scenario, tape.request) != (scenario.name, scenario.asked):
        raise UsageError(f"{path} records another request than scenario `{scenario.name}` makes: record it anew")
    player = TapePlayer(tape)
    return RunModel(
        planner=RecordedClient(player),
        verifier=RecordedClient(player, verifier=True),
        name=tape.model,
        label=f"{tape.model}, recorded on {tape.recorded}",
        player=player,
    )


def _recording(model: RunModel, options: ModelOptions) -> RunModel:
    if options.record is None:
        return model
    from agentloop_autogen.recording import RecordingClient

    recorder = TapeRecorder(options.record)
    return RunModel(
        planner=RecordingClient(model.planner, recorder),
        verifier=RecordingClient(model.verifier, recorder, verifier=True),
        name=model.name,
        label=model.label,
        recorder=recorder,
    )


def _served(options: ModelOptions) -> RunModel:
    key = server_key(options.api_key_env)
    probe_server(options.base_url, options.model, key)
    label = f"{options.model} at {options.base_url}"
    return _on_server(options.base_url, options.model, key=key, label=label)


def _on_server(base_url: str, model: str, *, key: str, label: str) -> RunModel:
    from agentloop_autogen.models.vllm import VLLMChatCompletionClient

    client = VLLMChatCompletionClient(model, base_url, api_key=key, temperature=0.0)
    return RunModel(planner=client, verifier=client, name=model, label=label)


def server_key(variable: str | None) -> str:
    """Return the key for a server.

    Args:
        variable: The environment variable that holds it. None: the server asks for none, any word will do.

    Raises:
        UsageError: The variable is not set.
    """
    if variable is None:
        return NO_KEY
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"environment variable {variable} is not set: export it, or leave --api-key-env out")
    return key


def probe_server(base_url: str, model: str, key: str) -> None:
    """Find out at once what a run would find out late.

    Args:
        base_url: The server's API.
        model: The model it is to have.
        key: The key for it.

    Raises:
        UsageError: The address is none, the server refuses access, or it has no such model.
        ModelError: No server answers.
    """
    import httpx

    if not base_url.startswith(("http://", "https://")):
        raise UsageError(f"--base-url {base_url!r} is no web address: it looks like http://127.0.0.1:8000/v1")
    try:
        reply = httpx.get(
            f"{base_url.rstrip('/')}/models", headers={"Authorization": f"Bearer {key}"}, timeout=_PROBE_S
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = f"no model server answers at {base_url} ({type(error).__name__}): start it, or correct --base-url"
        raise ModelError(problem) from error
    if reply.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise UsageError(f"{base_url} refuses access ({reply.status_code}): name the key's variable by --api-key-env")
    names = _model_names(reply.content)
    if names and model not in names:
        raise UsageError(f"{base_url} has no model {model!r}: give --model one of {', '.join(names[:5])}")


def _model_names(body: bytes) -> list[str]:
    """Names a `/models` reply lists; none where the server has no such page, which is no fault."""
    try:
        listed = _ModelList.model_validate_json(body)
    except ValidationError:
        return []
    return [item.id for item in listed.data]


@contextmanager
def _local(options: ModelOptions) -> Generator[RunModel]:
    with serving(options.weights) as server:
        label = f"{server.model_id} in this process"
        yield _on_server(server.base_url, server.model_id, key=NO_KEY, label=label)


@contextmanager
def serving(
    weights: Path | None, *, host: str = "127.0.0.1", port: int = 0, parallel: int = 2
) -> Generator[LocalModelServer]:
    """Serve the local model while the block runs.

    Args:
        weights: The file with its weights; None: found by themselves.
        host: Address to listen on.
        port: Port to listen on; 0: any free one.
        parallel: Requests served at once.

    Yields:
        The server.

    Raises:
        UsageError: There is no such file, or the extra `local` is not installed.
        ModelError: There are no weights, or the server does not start.
    """
    from agentloop_autogen.console.preparation import find_weights
    from agentloop_autogen.models import LocalModelServer

    with LocalModelServer(find_weights(weights), host=host, port=port, parallel=parallel) as server:
        yield server
